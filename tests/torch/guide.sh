#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The guide to PyTorch with PyTorch itself: its blocks run as they are printed, up to its check; run again, its program continues from its
# last checkpoint.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
need_root
"$PYTHON" -c 'import torch' 2>/dev/null || skip "PyTorch is not installed: .ci/install torch"
cd "$HERE/../.."

code=0
tests/docs/blocks docs/guides/pytorch.md || code=$?
[ $code != 77 ] || exit 77
[ $code = 0 ] || fail "docs/guides/pytorch.md"

fs_mount
export PYTHONPATH=$PWD/client/python PYTHONDONTWRITEBYTECODE=1
sed -n '/^```python$/,/^```$/p;/^```$/q' docs/guides/pytorch.md | sed "/^\`\`\`/d; s#/mnt/ckpt#$MNT#g" >"$WORK/plain.py"
for run in 1 2; do "$PYTHON" "$WORK/plain.py" || fail "run $run"; done
"$PYTHON" - "$MNT/tune" <<'PY' || fail "its checkpoints"
import sys
import ckptfs, torch
have = ckptfs.checkpoints(sys.argv[1])
assert [c.path.name for c in have] == [f"step.{n:04}" for n in range(1, 9)], have
states = [torch.load(c.path / "state.pt") for c in have]
assert [s["step"] for s in states] == list(range(1, 9))
counted = [int(s["optimizer"]["state"][0]["step"]) for s in states]
assert counted == list(range(1, 9)), counted  # Adam's own count of steps went on, too
PY
fs_umount
