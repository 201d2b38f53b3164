#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# On a kernel that is too old mount.ckptfs says which one is required, and makes nothing.
. "$(dirname "$0")/lib.sh"
need_mount
need setarch
setarch --uname-2.6 true 2>/dev/null || skip "no personality with another version of the kernel"

exits 32 setarch --uname-2.6 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT"
says '^mount.ckptfs: kernel: ckptfs needs Linux 5\.15 or newer, and this is 2\.6\.[^ ]*; update the kernel$'
[ ! -e "$STORE" ] || fail "a refused mount has made a store"
! mounted || fail "it is mounted"
grep -q "Linux 5\.15" "$HERE/../../README.md" || fail "README.md says something else"
