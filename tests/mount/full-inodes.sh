#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A disk without a free inode, though with free blocks: the store mounts, read-only and read-write, after a clean end and after
# a crash; it can be collected offline; deleting is durable, and writing fails as on a full disk until there are inodes again.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

fill_up() { # not an inode is left
	local n=0
	while : >"$disk/filler.$n"; do n=$((n + 1)); done 2>/dev/null
}
check_files() { # NR...: they are there, byte by byte
	local i
	for i; do cmp "$WORK/data" "$MNT/file.$i" || fail "$fs: file.$i"; done
}

without_inodes() { # NAME
	fs=$1
	fs_mount
	for i in 1 2 3 4; do { cat "$WORK/data"; echo "$i"; } >"$MNT/own.$i"; cp "$WORK/data" "$MNT/file.$i"; done
	sync "$MNT"
	fill_up
	rm "$MNT/own.4"
	sync "$MNT" || fail "$fs: deleting is not durable"
	fs_umount
	fill_up
	fs_mount ro
	check_files 1 2 3 4
	fs_umount
	for i in 1 2 3; do # and again
		fill_up
		fs_mount
		[ ! -e "$MNT/own.4" ] || fail "$fs: a deleted file is back"
		check_files 1 2 3 4
		fs_umount
	done
	fill_up
	"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --quiet "$STORE" >"$WORK/gc.log" 2>&1 || { cat "$WORK/gc.log"; fail "$fs: cannot collect offline"; }
	fill_up
	fs_mount
	fill_up
	mkdir "$MNT/dir"
	mv "$MNT/file.1" "$MNT/dir/file.1"
	sync "$MNT"
	fs_kill
	fill_up
	fs_mount
	mv "$MNT/dir/file.1" "$MNT"
	check_files 1 2 3 4
	rm "$MNT"/own.*
	collect || fail "$fs: cannot collect"
	fs_umount
	free_blocks "$disk"/filler.*
	fs_mount
	for i in 1 2 3 4; do head -c 20M /dev/urandom >"$MNT/again.$i"; done
	sync "$MNT"
	check_files 1 2 3 4
	fs_umount
	fs_sound "$fs: after a disk without inodes"
	umount "$disk"
	disk=
	echo "ok $fs"
}

head -c 6M /dev/urandom >"$WORK/data"
if small_filesystem 400M ext4 -q -N 64; then without_inodes "ext4"; else skip_part "ext4: $(tail -n 1 "$WORK/why")"; fi
small_disk 400M,nr_inodes=100
without_inodes "tmpfs"
