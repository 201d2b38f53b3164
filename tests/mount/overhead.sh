#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What a store takes beside its chunks: little while it is not mounted, and still enough to delete on a full disk.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

small_disk 300m # sets $disk

fs_mount
head -c 48M /dev/urandom >"$MNT/pages"
fs_umount
used=$(du -sk "$STORE" | cut -f1)
[ "$used" -le $((49152 * 102 / 100)) ] || { du -ak "$STORE"; fail "$used KiB for 49152 KiB of distinct pages"; }
echo "ok $used KiB for 49152 KiB of distinct pages"

fs_mount
rm "$MNT/pages"
"$PYTHON" - "$MNT" <<'PY'
import os, sys
os.chdir(sys.argv[1])
for i in range(8000):
    os.close(os.open(f"a file with a name of some length {i}", os.O_WRONLY | os.O_CREAT))
PY
cp "$CKPTFS_BUILD/tools/ckptfs-gc" "$MNT/data"
fs_umount
dd if=/dev/zero of="$disk/filler" bs=4K 2>/dev/null || true
fs_mount
rm -r "${MNT:?}"/a*
sync "$MNT" || fail "deletions are not durable on a full disk"
rm "$MNT/data"
collect
[ -z "$(ls "$MNT")" ] || fail "not everything is deleted"
fs_umount
fs_sound "after deleting on a full disk"
echo "ok 8000 files deleted on a disk that was filled while the store was not mounted"
