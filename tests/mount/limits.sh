#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Limits that the daemon inherits from the shell that mounts: of file sizes, of open files, of processor time. They are raised, or
# mounting says what they mean. Without that, what users do kills the daemon.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need setpriv
export PATH=$CKPTFS_BUILD/tools:$CKPTFS_BUILD/fs:$PATH

# shellcheck disable=SC2016
limited='ulimit $0 && exec "$@"' # its options and value
head -c 50M /dev/urandom >"$WORK/data"
exits 0 bash -c "$limited" "-Sf 20000" mount.ckptfs "$STORE" "$MNT"
cp "$WORK/data" "$MNT/data" || fail "the daemon cannot write a pack beyond the limit of the shell"
sync "$MNT/data"
exits 0 umount.ckptfs "$MNT"
exits 32 setpriv --bounding-set -sys_resource bash -c "$limited" "-f 20000" mount.ckptfs "$STORE" "$MNT"
says "file size limit of 19 MiB (ulimit -f): files of a store take up to"
! mounted || fail "mounted with a limit below the size of a pack"
exits 0 mount.ckptfs "$STORE" "$MNT"
cmp "$WORK/data" "$MNT/data"
exits 0 umount.ckptfs "$MNT"

# 20 open files are too few for a store, and one second of processor time is soon over.
exits 0 bash -c "$limited" "-Sn 20" mount.ckptfs "$STORE" "$MNT"
exits 0 umount.ckptfs "$MNT"
exits 0 bash -c "$limited" "-St 1" mount.ckptfs "$STORE" "$MNT"
daemon=$(pgrep -fx "mount.ckptfs $STORE $MNT")
used() { awk '{ print $14 + $15 }' "/proc/$daemon/stat"; } # in hundredths of a second
for _ in $(seq 200); do
	cp "$WORK/data" "$MNT/again" || fail "the daemon was killed when its processor time was over"
	[ "$(used)" -lt 150 ] || break
done
[ "$(used)" -ge 150 ] || fail "the daemon has not used a second"
exits 0 umount.ckptfs "$MNT"
exits 0 setpriv --bounding-set -sys_resource bash -c "$limited" "-t 3600" mount.ckptfs "$STORE" "$MNT"
says "processor time limit of 3600 s (ulimit -t)"
exits 0 umount.ckptfs "$MNT"
