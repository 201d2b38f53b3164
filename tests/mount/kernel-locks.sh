#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Requests for which the kernel holds the lock of a file or directory do not wait for long requests: otherwise a user
# with enough of these could lock a directory, or another user's file, for everyone else.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

HOG=$(program hog)
HOLDER=$(program holder)
NR_HOGS=10 # more than the places of one user
PIDS=

as_user() { local uid=$1; shift; exec setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; } # in a subshell
end_pids() {
	local pid
	# shellcheck disable=SC2086 # each is a word
	kill -KILL $PIDS 2>/dev/null || true
	for pid in $PIDS; do
		{ gone "$pid" || fail "a client that was killed is still there"; wait "$pid" || true; } 2>/dev/null
	done
	PIDS=
}
# completes WHY COMMAND...: as user 1001; it is started before this waits for it
completes() {
	local why=$1 pid
	shift
	(as_user 1001 "$@") >"$WORK/said" 2>&1 &
	pid=$!
	if ! gone $pid; then
		kill -KILL $pid
		fail "$why"
	fi
	wait $pid || fail_showing "failed: $*"
}

cat >"$WORK/locks.py" <<'PY'
"""begin WHAT FILE: sends a request that locks FILE; returns once it was answered, or cannot be soon. write FILE: as its owner."""
import os, sys, time
what, path = sys.argv[1:3]
if what == "write":
    fd = os.open(path, os.O_WRONLY)
    for i in range(50):
        os.pwrite(fd, b"bytes", i * 5)
    sys.exit()
pid = os.fork()
if pid == 0:
    fd = os.open(path, os.O_RDONLY if what == "seek" else os.O_RDWR)
    if what == "seek":
        os.lseek(fd, 0, os.SEEK_HOLE)
    else:
        os.copy_file_range(fd, fd, 1 << 20, 0, 4 << 20)
    os._exit(0)
for _ in range(100): # without the fix it waits behind the long requests: then what follows shows it
    if os.waitpid(pid, os.WNOHANG)[0] == pid:
        break
    time.sleep(0.01)
PY

mkdir -m 777 "$WORK/marks"
fs_mount
mkdir -m 1777 "$MNT/shared"
mkdir "$MNT/user" "$MNT/other"
(as_user 1001 head -c 3000000 /dev/urandom >"$MNT/shared/of-other")
truncate -s 8M "$MNT/shared/of-other"
for what in seek copy; do
	cp "$MNT/shared/of-other" "$MNT/shared/$what"
	chown 1000:1000 "$MNT/shared/$what"
done
chown 1000:1000 "$MNT/user"
chown 1001:1001 "$MNT/other" "$MNT/shared/of-other"
(as_user 1000 "$HOG" files "$MNT/user")

# A user has taken all places for long requests.
for ((i = 0; i < NR_HOGS; i++)); do
	as_user 1000 "$HOG" repeat "$MNT/user" "$WORK/marks/$i" 2>>"$WORK/hogs.log" &
	PIDS+=" $!"
done
for ((i = 0; i < NR_HOGS; i++)); do
	await test -e "$WORK/marks/$i"
done
chmod 644 "$MNT/shared/of-other"
(as_user 1000 "$PYTHON" "$WORK/locks.py" seek "$MNT/shared/of-other")
completes "a reader's lseek stops the writes of a file's owner" "$PYTHON" "$WORK/locks.py" write "$MNT/shared/of-other"
for what in seek copy; do
	(as_user 1000 "$PYTHON" "$WORK/locks.py" $what "$MNT/shared/$what")
	as_user 1000 rm -f "$MNT/shared/$what" &
	PIDS+=" $!"
	completes "a $what and a removal lock a directory for everyone" "$HOG" victim "$MNT/shared" 100
done
end_pids

# Changes of a tree that is being sealed fail at once, for the same reason: a removal of the tree would wait for them with
# the lock of the directory above.
cat >"$WORK/sealing.py" <<'PY'
import errno, os, subprocess, sys
seal, top = sys.argv[1:3]
os.mkdir(top)
for i in range(int(sys.argv[3])):
    os.mknod(f"{top}/{i}")
changes = {
    "chmod": lambda: os.chmod(top, 0o755),
    "mkdir": lambda: os.rmdir(top + "/new") if os.path.exists(top + "/new") else os.mkdir(top + "/new"),
    "utime": lambda: os.utime(top + "/1"),
    "setxattr": lambda: os.setxattr(top, "user.name", b"value"),
    "rename": lambda: os.rename(*[f"{top}/{name}" for name in (("a", "2") if os.path.exists(top + "/a") else ("2", "a"))]),
    "rmdir": lambda: os.rmdir(top),
}
wanted = {errno.EBUSY: set(), errno.EPERM: set(), errno.ENOTEMPTY: set()}
client = subprocess.Popen([seal, "--quiet", top])
while len(wanted[errno.EPERM]) < len(changes): # it is sealed then
    for name, change in changes.items():
        try:
            change()
        except OSError as e:
            assert e.errno in wanted, (name, e)
            wanted[e.errno].add(name)
assert client.wait() == 0
assert wanted[errno.EBUSY] == set(changes), f"wait for the seal: {set(changes) - wanted[errno.EBUSY]}"
PY
(as_user 1000 "$PYTHON" "$WORK/sealing.py" "$CKPTFS_BUILD/tools/ckptfs-seal" "$MNT/shared/tree" 4000)

# A user holds the locks of directories in which names are to be dropped: that takes none of the places.
for ((i = 0; i < NR_HOGS; i++)); do
	install -d -o 1000 -g 1000 "$MNT/user/held$i" "$MNT/user/held$i/checkpoint"
	"$HOLDER" "$MNT/user/held$i" checkpoint 1000 >"$WORK/held$i" &
	PIDS+=" $!"
	last=$!
done
for ((i = 0; i < NR_HOGS; i++)); do
	while ! grep -q removing "$WORK/held$i"; do
		if ! running "$last" && ! grep -q removing "$WORK/held$i"; then
			code=0
			wait "$last" || code=$?
			[ $code = 77 ] || fail "holder ended with $code"
			end_pids
			fs_umount
			skip "userfaultfd is not available"
		fi
		sleep 0.05
	done
done
sleep 1 # the removals are under way by then, or there is nothing to be seen
as_user 1000 getfattr -n user.ckptfs.fingerprint "$MNT/user/deep" >"$WORK/out" 2>"$WORK/said" &
pid=$!
gone $pid || fail "removals that wait for the lock of a directory hold the places of other requests"
wait $pid || fail_showing "no fingerprint"
end_pids # they can be killed, although the kernel does not release the locks before
fs_umount
