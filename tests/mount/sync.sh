#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What -o sync and O_SYNC promise: it is on disk when the call returns. The daemon is killed right after each.
. "$(dirname "$0")/lib.sh"
need_mount

# change OPTIONS CALL...: of a file of 1 MiB, with 60 s until the next commit
change() {
	fs_mount "commit=60,$1"
	"$PYTHON" - "$MNT" "${@:2}" <<'PY'
import ctypes, os, sys
os.chdir(sys.argv[1])
call, flags = sys.argv[2], 0 if "O_WRONLY" in sys.argv else os.O_RDWR
for flag in sys.argv[3:]:
    flags |= getattr(os, flag)
if call == "open":
    os.open("file", flags | os.O_TRUNC)
    sys.exit()
if call == "truncate":
    os.truncate("file", 5000)
    sys.exit()
fd = os.open("file", flags)
if call == "write":
    os.pwrite(fd, b"y" * 5000, 1 << 20)
elif call == "large-write":
    os.pwrite(fd, os.urandom(2 << 20), 0)
elif call == "ftruncate":
    os.ftruncate(fd, 5000)
elif call == "fallocate":
    os.posix_fallocate(fd, 0, 2 << 20)
elif call == "punch":
    keep_and_punch = 3
    if ctypes.CDLL(None).fallocate(fd, keep_and_punch, ctypes.c_long(0), ctypes.c_long(1 << 19)) != 0:
        sys.exit("cannot punch")
elif call == "copy_file_range":
    if os.copy_file_range(os.open("file", os.O_RDONLY), fd, 1 << 19, 0, 1 << 20) != 1 << 19:
        sys.exit("copied less")
PY
	fs_kill
}
while read -r options call size blocks; do
	fs_mount
	noise 1 1 >"$MNT/file"
	fs_umount
	# shellcheck disable=SC2086 # a call may have a flag with it
	change "$options" ${call//,/ }
	fs_mount
	is=$(stat -c '%s %b' "$MNT/file")
	[ "$is" = "$size $blocks" ] || fail "$call with -o $options: size and blocks are $is instead of $size $blocks after kill -9"
	echo "ok $call with -o $options"
	fs_umount
done <<'CALLS'
async write,O_SYNC 1053576 2058
async write,O_DSYNC 1053576 2058
async write,O_WRONLY,O_SYNC 1053576 2058
async large-write,O_WRONLY,O_SYNC 2097152 4096
async,writeback write,O_SYNC 1053576 2058
async fallocate,O_SYNC 2097152 2048
async punch,O_SYNC 1048576 1024
async copy_file_range,O_SYNC 1572864 3072
sync write 1053576 2058
sync fallocate 2097152 2048
sync punch 1048576 1024
sync copy_file_range 1572864 3072
sync open 0 0
sync truncate 5000 10
sync ftruncate 5000 10
CALLS
