#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A user who holds the kernel's lock of his own directory, in which a name is to be dropped: others write and remove.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

seal() { "$CKPTFS_BUILD/tools/ckptfs-seal" "$@"; }
HOLDER=$(program holder)

fs_mount
mkdir -p "$MNT/user/checkpoint" "$MNT/other/old" "$MNT/other/new"
chown -R 1000:1000 "$MNT/user"
chown -R 1001:1001 "$MNT/other"
"$HOLDER" "$MNT/user" checkpoint 1000 >"$WORK/held" &
pid=$!
until grep -q removing "$WORK/held"; do
	if ! running $pid; then
		code=0
		wait $pid || code=$?
		[ $code = 77 ] || fail "holder ended with $code"
		fs_umount
		skip "userfaultfd is not available"
	fi
	sleep 0.05
done
await grep -q "removed, with" "$WORK/daemon.log"

# A write beside a reader: its answer waits until pages are dropped. A removal: until a name is.
cat >"$WORK/others.py" <<'PY'
import os, sys
os.setresgid(1001, 1001, 1001)
os.setresuid(1001, 1001, 1001)
path = sys.argv[1] + "/file"
with open(path, "wb") as f:
    f.write(b"old")
reader = os.open(path, os.O_RDONLY)
assert os.read(reader, 3) == b"old"
writer = os.open(path, os.O_WRONLY)
os.pwrite(writer, b"new", 0)
assert os.pread(reader, 3, 0) == b"new"
PY
timeout -s KILL 600 "$PYTHON" "$WORK/others.py" "$MNT/other" || fail "a write waits for a lock that another user holds"
seal "$MNT/other/old" "$MNT/other/new" >/dev/null
timeout -s KILL 600 "$CKPTFS_BUILD/tools/ckptfs-gc" --keep-last 1 --delete "$MNT/other" >"$WORK/said" 2>&1 ||
	fail_showing "a removal waits for a lock that another user holds"
[ ! -e "$MNT/other/old" ] || fail "not removed"

# The daemon ends all the same: everything is durable, and the store can be mounted again at once. The kernel keeps one
# thread until the lock is released, as a zombie.
echo durable >"$MNT/other/last"
exec 5<"$MNT/other/last"
kill -TERM "$DAEMON"
ended() { ! grep -q '^State:.[^Z]' "/proc/$1/status"; } # PID: but for threads that the kernel keeps
await ended "$DAEMON"
grep -q "unmounted, everything durable" "$WORK/daemon.log" || fail "not closed"
! timeout -s KILL 60 cat <&5 >/dev/null 2>&1 || fail "a file of a mount that has ended can be read"
exec 5<&-
[ ! -e "$MNT/other" ] || fail "still mounted"
first=$DAEMON
fs_mount
[ "$(cat "$MNT/other/last")" = durable ] || fail "a file is lost"
fs_umount
kill -KILL $pid 2>/dev/null || true # it may have ended with the session
{ wait $pid || true; } 2>/dev/null
wait "$first" || fail "the daemon ended with an error"
