#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A store on a disk that is read-only: read, looked at and proven as any other, and no byte of it changes.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

sums() { (cd "$STORE" && find . -type f -exec sha256sum {} + | sort; find . | sort); }
freeze() { mount --bind "$STORE" "$STORE" && mount -o remount,ro,bind "$STORE"; }
thaw() { umount "$STORE"; }

# 1. What was sealed before, and what is read from it.
fs_mount
mkdir "$MNT/step"
head -c 3000000 /dev/urandom >"$WORK/a"
cp "$WORK/a" "$MNT/step/a"
"$CKPTFS_BUILD/tools/ckptfs-seal" "$MNT/step"
fs_umount
sums >"$WORK/before"
freeze
fs_mount ro
cmp "$WORK/a" "$MNT/step/a"
! touch "$MNT/b" 2>/dev/null || fail "a file was made on a disk that is read-only"
exits 0 "$CKPTFS_BUILD/tools/ckptfs-stat" --verify "$MNT/step"
exits 0 "$CKPTFS_BUILD/tools/ckptfs-restart-path" "$MNT"
exits 0 "$CKPTFS_BUILD/tools/ckptfs-scrub" "$MNT"
exits 0 "$CKPTFS_BUILD/tools/ckptfs-gc" "$MNT"
fs_umount
exits 0 "$CKPTFS_BUILD/tools/fsck.ckptfs" "$STORE"
exits 32 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT"
thaw
sums | cmp "$WORK/before" - || fail "the store has changed"

# 2. What only the journal knows cannot be put into the index there.
fs_mount
cp "$WORK/a" "$MNT/c"
sync "$MNT/c"
fs_kill
freeze
exits 32 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o ro
says "not unmounted, and its disk is read-only"
thaw
fs_mount ro
cmp "$WORK/a" "$MNT/c"
fs_umount
freeze
fs_mount ro
cmp "$WORK/a" "$MNT/c"
fs_umount
