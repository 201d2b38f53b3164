#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-stat --watch: rates in blocks for a file, in place on a terminal; it ends when told, and when the mount does.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

stat=$CKPTFS_BUILD/tools/ckptfs-stat
ended() { # CODE PID: the command ends with this code within two minutes
	local code=0
	gone "$2" || fail "--watch goes on"
	wait "$2" || code=$?
	[ "$code" = "$1" ] || { cat "$WORK/said"; fail "exit code $code instead of $1"; }
}
until_said() { # REGEX: in $WORK/out, within two minutes
	for _ in $(seq 1200); do
		! grep -Eqs "$1" "$WORK/out" || return 0
		sleep 0.1
	done
	cat "$WORK/out" "$WORK/said"
	fail "--watch does not say: $1"
}

fs_mount
head -c 16M /dev/urandom >"$WORK/data"
cp "$WORK/data" "$MNT/first"
sync "$MNT/first"

# Blocks. What is written between two readings is known already. (A job of a shell without a terminal ignores SIGINT.)
env --default-signal=INT "$stat" --watch 0.5 "$MNT" >"$WORK/out" 2>"$WORK/said" &
pid=$!
until_said '^Rates are shown'
cp "$WORK/data" "$MNT/second"
until_said '^Written: +[1-9][0-9.]* MB/s'
until_said '^Deduplication: +- +100.00 % of the written bytes were known'
until_said '^Deduplication: +- +nothing was written'
kill -INT "$pid"
ended 130 "$pid"
! grep -q $'\033' "$WORK/out" || fail "a file gets terminal commands"
[ ! -s "$WORK/said" ] || fail "an interrupted watch complains: $(cat "$WORK/said")"
echo "ok blocks"

# JSON: one document a line.
env --default-signal=INT "$stat" --json --watch=0.2 "$MNT" "$MNT/first" >"$WORK/out" 2>"$WORK/said" &
pid=$!
lines() { [ "$(wc -l <"$WORK/out")" -ge "$1" ]; } # NR
await lines 4
kill -INT "$pid"
ended 130 "$pid"
"$PYTHON" -c 'import json, sys
kinds = [json.loads(l)["kind"] for l in open(sys.argv[1])]
assert len(kinds) >= 4 and kinds[:4] == ["mount", "file"] * 2, kinds' "$WORK/out"
echo "ok JSON"

# A terminal of 20 lines and 60 columns: drawn in place, nothing beyond.
"$PYTHON" - "$stat" "$MNT" <<'PY'
import fcntl, os, pty, re, signal, struct, sys, termios, time
pid, fd = pty.fork()
if pid == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while os.get_terminal_size(0) != (60, 20):  # set by the other one
        time.sleep(0.01)
    os.execv(sys.argv[1], [sys.argv[1], "--watch", "0.2", sys.argv[2]])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
seen, end = b"", time.time() + 120
while seen.count(b"\033[H") < 3 and time.time() < end:
    seen += os.read(fd, 65536)
os.write(fd, b"\x03")
status = os.waitpid(pid, 0)[1]
assert os.waitstatus_to_exitcode(status) == 130, status
frames = seen.split(b"\033[H")[1:3]
for frame in frames:
    body, rest = frame.split(b"\033[J")
    lines = body.replace(b"\r", b"").split(b"\n")
    assert len(lines) == 20 and lines[-1] == b"", len(lines)
    assert all(line.endswith(b"\033[K") and len(line) <= 63 for line in lines[:-1]), lines
assert b"Rates are shown" in frames[0] and b"MB/s" in frames[1], frames
PY
echo "ok terminal"

# Refused.
for bad in 0 -1 soon 1e9; do
	! "$stat" --watch="$bad" "$MNT" >"$WORK/out" 2>&1 || fail "--watch=$bad is taken"
	grep -q 'not a number of seconds' "$WORK/out" || fail "--watch=$bad: $(cat "$WORK/out")"
done

# The mount goes away: unmounted, and killed.
"$stat" --watch 0.2 "$MNT" >"$WORK/out" 2>"$WORK/said" &
pid=$!
until_said '^Rates are shown'
fs_umount
ended 2 "$pid"
grep -q "$MNT: no longer on a ckptfs: it has been unmounted" "$WORK/said" || fail "$(cat "$WORK/said")"
fs_mount
"$stat" --watch 0.2 "$MNT" >"$WORK/out" 2>"$WORK/said" &
pid=$!
until_said '^Rates are shown'
connection=/sys/fs/fuse/connections/$(mountpoint -d "$MNT" | cut -d : -f 2)
mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
asks() { [ "$(cat "$connection/waiting")" -gt 0 ]; }
stop_process "$DAEMON"
await asks # it dies with a question unanswered
daemon_kill
ended 2 "$pid"
grep -q "$MNT: the daemon of this mount has died" "$WORK/said" || fail "$(cat "$WORK/said")"
echo "ok the mount goes away"
