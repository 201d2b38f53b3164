#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A disk that others have filled to the last byte, on real filesystems: the store mounts, read-only and read-write, after a
# clean end and after a crash; it can be collected offline; and deleting, collecting and unmounting make room.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

gc=$CKPTFS_BUILD/tools/ckptfs-gc
head -c 6M /dev/urandom >"$WORK/data"

fill_up() { # not a byte is left, neither for root nor in small pieces
	local n=0
	while [ "$n" -lt 3 ]; do
		n=$((n + 1))
		dd if=/dev/zero of="$disk/filler.$n" bs=1M 2>/dev/null || true
		dd if=/dev/zero of="$disk/filler.$n" bs=4K oflag=append conv=notrunc 2>/dev/null || true
		sync -f "$disk"
	done
}

check_files() { # NR...: they are there, byte by byte
	local i
	for i; do cmp "$WORK/data" "$MNT/file.$i" || fail "$fs: file.$i"; done
}

full_disk() { # NAME SIZE TYPE [MKFS OPTIONS]
	fs=$1
	shift
	small_filesystem "$@" || { skip_part "$fs: $(tail -n 1 "$WORK/why")"; return 0; }
	fs_mount
	for i in 1 2 3 4; do cat "$WORK/data" "$WORK/data" >"$MNT/own.$i"; head -c 1M /dev/urandom >>"$MNT/own.$i"; cp "$WORK/data" "$MNT/file.$i"; done
	sync -f "$MNT"
	fs_umount
	fill_up
	fs_mount ro
	check_files 1 2 3 4
	fs_umount
	fill_up
	fs_mount
	check_files 1 2 3 4
	fs_umount
	fill_up
	"$gc" --delete --quiet "$STORE" >"$WORK/gc.log" 2>&1 || { cat "$WORK/gc.log"; fail "$fs: cannot collect offline"; }
	fill_up
	fs_mount
	rm "$MNT/own.1"
	sync "$MNT"
	fs_kill
	fill_up
	fs_mount
	[ ! -e "$MNT/own.1" ] || fail "$fs: a deleted file is back"
	check_files 1 2 3 4
	rm "$MNT"/own.*
	collect || fail "$fs: cannot collect"
	fs_umount
	free_blocks "$disk"/filler.*
	fs_mount
	cp "$WORK/data" "$MNT/again"
	sync "$MNT/again"
	rm "$STORE"/reserve*
	fill_up
	rm "$MNT/again"
	sync "$MNT" || fail "$fs: without a free block and the reserve nothing can be deleted" # the journal overwrites its own blocks
	free_blocks "$disk"/filler.*
	check_files 1 2 3 4
	fs_umount
	fs_sound "$fs: after a full disk"
	umount "$disk"
	disk=
	echo "ok $fs"
}

full_disk "ext4" 100M ext4 -q
full_disk "ext4 without reserved blocks" 100M ext4 -q -m 0
full_disk "xfs" 320M xfs -q
full_disk "btrfs" 256M btrfs -q
