#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Our own POSIX checks on a mount: posix.sh [NAME...]
. "$(dirname "$0")/lib.sh"
need_root

fs_mount
mkdir "$MNT/posix"
"$(program posix)" "$MNT/posix" "$@" || fail "see the lines with \"not ok\""
fs_umount
