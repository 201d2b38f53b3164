#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Files and checkpoints with many extents are erased in the background: other requests complete meanwhile, and an erasure
# that is interrupted by an unmount, a crash or a rebuilt index is finished by the next mount.
. "$(dirname "$0")/lib.sh"
need_mount

NR_EXTENTS=${CKPTFS_ERASE_EXTENTS:-65536} # of a file: 64 GiB, with a page in each MiB
LEAST=3 # rounds of another user while it is erased; a mount that stops completes one or none

# many_extents FILE: a page in each MiB, by clones of clones
many_extents() {
	"$PYTHON" - "$1" "$NR_EXTENTS" <<'PY'
import os, sys
fd, end = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), int(sys.argv[2]) << 20
os.pwrite(fd, b"page" * 1024, 0)
os.ftruncate(fd, 1 << 20)
at = 1 << 20
while at < end:
    at += os.copy_file_range(fd, fd, min(at, end - at), 0, at)
PY
}

# rounds COMMAND...: run it, and print how many files were created, found and removed while some of the bytes that it
# removes were erased and others not
rounds() {
	"$PYTHON" - "$MNT" "$@" <<'PY'
import json, os, subprocess, sys
mnt, command = sys.argv[1], sys.argv[2:]
logical = lambda: json.loads(os.getxattr(mnt, "user.ckptfs.stat"))["logical_bytes"]
before, least, nr = logical(), int(os.environ.get("LEFT", 0)), 0
remover = subprocess.Popen(command, stdout=subprocess.DEVNULL)
while (now := logical()) > least:
    with open(mnt + "/other", "w"):
        pass
    os.stat(mnt + "/other")
    os.unlink(mnt + "/other")
    nr += now < before
if remover.wait() != 0:
    sys.exit("failed: " + " ".join(command))
print(nr)
PY
}

# rounds_go_on WHAT COMMAND...
rounds_go_on() {
	local what=$1 nr
	shift
	nr=$(rounds "$@")
	echo "$nr rounds while $what was erased"
	[ "$nr" -ge $LEAST ] || fail "$nr rounds of another user while $what was erased, $LEAST expected"
}

# remove_and_kill FILE: kill the daemon when some of its bytes are erased, durably
remove_and_kill() {
	"$PYTHON" - "$MNT" "$1" "$DAEMON" <<'PY'
import json, os, signal, sys
mnt, path, daemon = sys.argv[1], sys.argv[2], int(sys.argv[3])
logical = lambda: json.loads(os.getxattr(mnt, "user.ckptfs.stat"))["logical_bytes"]
all, top = logical(), os.open(mnt, os.O_RDONLY)
os.unlink(path)
while logical() == all:
    pass
os.fsync(top)
os.kill(daemon, signal.SIGKILL)
PY
	fs_kill
}

is_all_erased() { [ "$(figure logical_bytes)" = "${LEFT:-0}" ]; }

fs_mount
many_extents "$MNT/file"
rm "$MNT/file" # its recipe is in memory only
await is_all_erased
many_extents "$MNT/file"
fs_remount # its recipe is in the index
rounds_go_on "a file" rm "$MNT/file"

mkdir "$MNT/run"
setfattr -n user.ckptfs.keep -v last=1 "$MNT/run"
for step in 1 2; do
	mkdir "$MNT/run/step$step"
	echo $step >"$MNT/run/step$step/small"
	[ $step = 2 ] || for i in 1 2; do
		many_extents "$MNT/run/step$step/rank$i"
	done
	"$CKPTFS_BUILD/tools/ckptfs-seal" "$MNT/run/step$step" >/dev/null
done
fs_remount
LEFT=2 rounds_go_on "a checkpoint" "$CKPTFS_BUILD/tools/ckptfs-gc" --delete --policies --quiet "$MNT"
LEFT=2 await is_all_erased
[ ! -e "$MNT/run/step1" ] || fail "the checkpoint was not removed"

# interrupt_erasure: some bytes of a removed file are left, durably; again if it was faster than the crash
interrupt_erasure() {
	local all
	for _ in $(seq 20); do
		many_extents "$MNT/file"
		fs_remount
		all=$(figure logical_bytes)
		remove_and_kill "$MNT/file"
		fs_mount ro # nothing is erased
		[ ! -e "$MNT/file" ] || fail "a removed file has returned"
		left=$(figure logical_bytes)
		fs_umount
		[ "$left" -lt "$all" ] || fail "$left bytes of $all after a part was erased"
		[ "$left" -le 2 ] || return 0
		fs_mount
	done
	fail "no erasure was interrupted in 20 attempts"
}

for index in kept rebuilt; do
	interrupt_erasure
	fs_sound "after a crash during an erasure"
	[ $index = kept ] || fs_rebuild
	fs_mount ro
	[ "$(figure logical_bytes)" = "$left" ] || fail "$(figure logical_bytes) bytes instead of $left with the index $index"
	fs_remount
	"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --quiet "$MNT" >/dev/null # which waits for the erasure
	LEFT=2 is_all_erased || fail "$(figure logical_bytes) bytes after an erasure was continued"
	fs_umount
	fs_sound "after an erasure was continued, with the index $index"
	fs_mount
done
[ "$(cat "$MNT/run/step2/small")" = 2 ] || fail "a file that was not removed has changed"
fs_umount
