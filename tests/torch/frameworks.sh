#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What the guide to PyTorch prints for FSDP2, the Hugging Face Trainer and Lightning runs with these libraries, as far as they are
# installed: tests/torch/frameworks.py.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
"$PYTHON" -c 'import torch' 2>/dev/null || skip "PyTorch is not installed: .ci/install torch"

fs_mount
PYTHONPATH=$HERE/../../client/python PYTHONDONTWRITEBYTECODE=1 timeout 900 "$PYTHON" "$HERE/../torch/frameworks.py" "$HERE/../../docs/guides" "$MNT" ||
	fail "what the guide prints"
fs_umount
