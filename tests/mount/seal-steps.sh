#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A directory with many files is sealed and unsealed while one process of its owner writes into it and another user works
# elsewhere: the writer waits for the outcome, the other user does not, and a crash leaves nothing in between.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

NR_FILES=${CKPTFS_SEAL_FILES:-12000}
ROUNDS=${ROUNDS:-5}
SEAL=$CKPTFS_BUILD/tools/ckptfs-seal

fs_mount commit=1
mkdir "$MNT/user" "$MNT/user/many" "$MNT/other"
for i in 1 2 3 4; do # directories as well as files
	mkdir "$MNT/user/many/$i"
	(cd "$MNT/user/many/$i" && seq -f f%.0f $((NR_FILES / 4)) | xargs touch)
done
cp "$(program hog)" "$MNT/user/many/1/bytes" # root and new bytes are to be computed, too
chown -R 1000:1000 "$MNT/user"
chown 1001:1001 "$MNT/other"
sync -f "$MNT"

cat >"$WORK/steps.py" <<'PY'
"""Seals and unseals with a writer and another user beside it; kills whoever asked for it, or the daemon; looks at the result."""
import errno, os, random, signal, subprocess, sys, threading, time
seal, mnt = sys.argv[1:3]
top = mnt + "/user/many"
target = top + "/4/f1"


def as_user(uid, work):
    """Run in a process of that user; what it writes to the pipe."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(r)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            work(os.fdopen(w, "w"))
            code = 0
        finally:
            os._exit(code)
    os.close(w)
    return pid, os.fdopen(r)


def attempts(wanted):
    """Open for writing until the outcome is another one than before: from when to when did that attempt last?"""
    def work(out):
        while True:
            start = time.monotonic()
            error = open_error(target)
            if error == wanted:
                out.write(f"{start} {time.monotonic()}\n")
                out.flush()
                return
            assert error in (0, errno.EPERM), error
            time.sleep(0.002)
    return as_user(1000, work)


def rounds(out):
    """Stat, create, write, fsync and unlink elsewhere; when each of them was done. Until it is killed."""
    path = f"{mnt}/other/{os.getpid()}"
    while True:
        start = time.monotonic()
        os.stat(mnt + "/other")
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
        os.write(fd, b"bytes")
        os.fsync(fd)
        os.close(fd)
        os.unlink(path)
        out.write(f"{start} {time.monotonic()}\n")
        out.flush()


def begin_seal(*options):
    return subprocess.Popen(["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", seal, "--quiet", *options, top])


def is_listed():
    return top in subprocess.run([seal, "--list", mnt], check=True, stdout=subprocess.PIPE, text=True).stdout


def open_error(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
        return 0
    except OSError as e:
        return e.errno


def check_whole(sealed):
    """All of it is, or nothing."""
    wanted = errno.EPERM if sealed else 0
    for sub in os.listdir(top):
        names = os.listdir(f"{top}/{sub}")
        for name in names[::7] + names[-1:]:
            error = open_error(f"{top}/{sub}/{name}")
            assert error == wanted, f"{sub}/{name}: {os.strerror(error)}, though the directory is {'' if sealed else 'not '}sealed"


def give_up(seconds):
    """The client is killed after that. Has anybody been told that it is sealed, and it is not?"""
    client = begin_seal()
    end = time.monotonic() + seconds
    refused = False
    while client.poll() is None:
        if time.monotonic() > end:
            client.kill()
        refused = refused or open_error(target) == errno.EPERM
        time.sleep(0.005) # so that it can be sealed
    listed = is_listed()
    assert listed or not refused, "a file was said to be sealed by a seal that failed"
    check_whole(listed)
    if listed:
        assert begin_seal("--unseal").wait() == 0
    return listed


def run(wanted, *options):
    """The writer's last attempt begins before it is sealed, or unsealed, and ends with that. Rounds in between."""
    victim, done = as_user(1001, rounds)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(done))
    reader.start()
    while len(lines) < 3:
        assert reader.is_alive()
        time.sleep(0.01)
    writer, result = attempts(wanted)
    assert begin_seal(*options).wait() == 0
    begin, end = map(float, result.read().split())
    assert os.waitpid(writer, 0)[1] == 0
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    reader.join()
    times = [tuple(map(float, line.split())) for line in lines if len(line.split()) == 2]
    inside = [t for t in times if t[0] >= begin and t[1] <= end]
    print(f"{' '.join(options) or 'seal'}: a writer has waited for {end - begin:.3f} s; meanwhile {len(inside)} rounds of another "
          f"user, the longest {max([t[1] - t[0] for t in times]) * 1000:.1f} ms", flush=True)
    return len(inside)


random.seed(7)
if sys.argv[3] == "rounds":
    # With fs.names held all the time it is one, at most.
    for wanted, options in (errno.EPERM, []), (0, ["--unseal"]):
        nr = run(wanted, *options)
        assert nr >= 5, f"only {nr} rounds of another user while a directory is sealed or unsealed"
    start = time.monotonic()
    assert begin_seal().wait() == 0
    took = time.monotonic() - start
    assert begin_seal("--unseal").wait() == 0
    made = sum(give_up(took * (i + random.random()) / 8) for i in range(8))
    print(f"{8 - made} of 8 seals were given up")
elif sys.argv[3] == "begin": # until the daemon is killed; commits come with the rounds
    as_user(1001, rounds)
    begin_seal(*sys.argv[5:])
    time.sleep(float(sys.argv[4]))
else:
    check_whole(is_listed())
PY
"$PYTHON" "$WORK/steps.py" "$SEAL" "$MNT" rounds

# kill -9 of the daemon in the middle
for ((i = 0; i < ROUNDS; i++)); do
	option=
	! "$SEAL" --list "$MNT" | grep -qF "$MNT/user/many" || option=--unseal
	"$PYTHON" "$WORK/steps.py" "$SEAL" "$MNT" begin "0.$((3 + 2 * i % 7))" $option 2>/dev/null || fail "cannot begin"
	fs_kill
	fs_sound "after kill -9 while sealing"
	fs_mount commit=1
	"$PYTHON" "$WORK/steps.py" "$SEAL" "$MNT" check || fail "after kill -9 in the middle of ${option:-a seal}"
done
grep -c "being sealed or unsealed" "$WORK/daemon.log" | sed 's/$/ seals were half made when the daemon was killed/' || true
fs_umount
