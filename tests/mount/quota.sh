#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A quota that is used up: EDQUOT at write, what was acknowledged is there, deleting is durable, collecting makes room, and
# the store unmounts and mounts again. On btrfs, whose quotas need nothing from the kernel's configuration.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need btrfs

small_filesystem 512M btrfs -q || skip "$(tail -n 1 "$WORK/why")"
btrfs subvolume create "$disk/sub" >/dev/null
STORE=$disk/sub/store
btrfs quota enable "$disk" 2>"$WORK/why" || skip "btrfs quotas: $(tail -n 1 "$WORK/why")"
btrfs quota rescan -w "$disk" >/dev/null 2>&1 || true
btrfs qgroup limit 64M "$disk/sub"

use_up() { # others of the same quota take the rest
	dd if=/dev/zero of="$disk/sub/filler" bs=64K 2>/dev/null || true
	sync -f "$disk"
	dd if=/dev/zero of="$disk/sub/filler.2" bs=4K 2>/dev/null || true
	sync -f "$disk"
}
free_up() { free_blocks "$disk"/sub/filler*; btrfs filesystem sync "$disk"; }

head -c 4M /dev/urandom >"$WORK/data"
fs_mount
for i in 1 2 3; do cp "$WORK/data" "$MNT/file.$i"; head -c 1M /dev/urandom >>"$MNT/file.$i"; done
sync -f "$MNT"
use_up
! why=$(dd if=/dev/urandom of="$MNT/more" bs=1M count=16 conv=fsync 2>&1) || fail "16 MiB went past a quota"
[[ $why == *"quota exceeded"* ]] || fail "not EDQUOT but: $why"
echo "ok EDQUOT at write"

rm -f "$MNT/more" "$MNT/file.1"
sync "$MNT" || fail "rm is not durable at a quota"
fs_kill
use_up
fs_mount
[ ! -e "$MNT/file.1" ] || fail "a deleted file is back"
rm "$MNT/file.2"
sync "$MNT" || fail "rm is not durable at a quota"
echo "ok deleting is durable, the store mounts again"
"$CKPTFS_BUILD/tools/ckptfs-gc" --delete "$MNT" >"$WORK/gc.log" 2>&1 || { cat "$WORK/gc.log"; fail "cannot collect at a quota"; }
fs_umount
"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --quiet "$STORE" >"$WORK/gc.log" 2>&1 || { cat "$WORK/gc.log"; fail "cannot collect offline at a quota"; }
echo "ok collecting and unmounting work"
free_up
fs_mount
cmp <(head -c 4M "$MNT/file.3") "$WORK/data"
cp "$WORK/data" "$MNT/again"
sync "$MNT/again"
fs_umount
fs_sound "after a quota"
echo "ok writable again"
