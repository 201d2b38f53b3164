#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Directories that are sealed by themselves, when a program says in its own way that they are complete.
. "$(dirname "$0")/lib.sh"
need_mount

seal() { "$CKPTFS_BUILD/tools/ckptfs-seal" "$@"; }
epochs() { seal --list --json "$MNT" | "$PYTHON" -c 'import json, sys
print(" ".join(sorted(e["path"].split("/")[-1] for e in json.load(sys.stdin)["sealed"])))'; }
# sealed NAMES: these, after a while
sealed() {
	for _ in $(seq 1200); do
		[ "$(epochs)" != "$1" ] || return 0
		sleep 0.05
	done
	fail "sealed are: $(epochs); not: $1"
}
settled() { fs_remount "$options"; } # directories that wait to be sealed are, before the mount is gone
step() { mkdir "$MNT/$1" && noise "$1" 1 >"$MNT/$1/data"; }

# --- not unless asked for ---
options=
fs_mount
step a.tmp
mv "$MNT/a.tmp" "$MNT/a"
touch "$MNT/a/.complete"
settled
[ -z "$(epochs)" ] || fail "sealed though nobody wanted it: $(epochs)"
exits 1 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o autoseal=a//b
says "autoseal"

# --- from a temporary name ---
options=autoseal=rename:commit_success.txt:.complete
settled
step b.tmp
mv "$MNT/b.tmp" "$MNT/b"
sealed b
! touch "$MNT/b/new" 2>/dev/null || fail "a directory that is sealed by itself can be changed"
step c.tmp
mv "$MNT/c.tmp" "$MNT/c.partial" # still not
step d
mv "$MNT/d" "$MNT/e" # no temporary name
echo x >"$MNT/file.tmp"
mv "$MNT/file.tmp" "$MNT/file" # no directory
settled
[ "$(epochs)" = b ] || fail "sealed are: $(epochs)"

# --- when a marker appears ---
step f
echo done >"$MNT/f/commit_success.txt"
sealed "b f"
[ "$(cat "$MNT/f/commit_success.txt")" = done ] || fail "a marker was sealed before it was written"
step g
touch "$MNT/g/tmp"
mv "$MNT/g/tmp" "$MNT/g/.complete"
sealed "b f g"
step h
ln "$MNT/h/data" "$MNT/h/.complete"
sealed "b f g h"
step i
ln -s nowhere "$MNT/i/.complete"
sealed "b f g h i"
step j
mkdir "$MNT/j/.complete" # is no file
touch "$MNT/j/complete"
settled
[ "$(epochs)" = "b f g h i" ] || fail "sealed are: $(epochs)"

# --- others are still writing ---
step k
exec 7>"$MNT/k/late"
touch "$MNT/k/.complete"
sleep 0.3
[ "$(epochs)" = "b f g h i" ] || fail "sealed with a writer in it"
echo late >&7
exec 7>&-
sealed "b f g h i k"
[ "$(cat "$MNT/k/late")" = late ] || fail "what was written last is not there"

# --- an application that goes away at once, and a mount ---
step l
touch "$MNT/l/.complete"
settled
[ "$(epochs)" = "b f g h i k l" ] || fail "an unmount has not waited: $(epochs)"

# --- a file of another user in it: not while it is there ---
if [ "$(id -u)" = 0 ]; then
	for name in strange stays; do
		step $name
		touch "$MNT/$name/foreign"
		chown 1001 "$MNT/$name" "$MNT/$name/data"
		setpriv --reuid 1001 --clear-groups touch "$MNT/$name/.complete"
	done
	sleep 0.3
	[ "$(epochs)" = "b f g h i k l" ] || fail "sealed with a file of another user: $(epochs)"
	rm "$MNT/strange/foreign"
	sealed "b f g h i k l strange"
	settled
	[ "$(epochs)" = "b f g h i k l strange" ] || fail "sealed with a file of another user: $(epochs)"
	grep -q 'not sealed by itself, because of .*foreign.*: belongs to another user$' "$WORK/daemon.log" ||
		fail "the log does not name the file of another user"
	seal --unseal "$MNT/strange" >"$WORK/out"
	rm -r "$MNT/strange" "$MNT/stays"
fi

# --- a user who may not seal, again and again: the log does not grow with it ---
if [ "$(id -u)" = 0 ]; then
	markers=()
	for i in $(seq 40); do
		mkdir -m 777 "$MNT/others.$i"
		markers+=("$MNT/others.$i/.complete")
	done
	as_nobody touch "${markers[@]}"
	settled
	[ "$(epochs)" = "b f g h i k l" ] || fail "sealed by a user who does not own it: $(epochs)"
	nr=$(grep -c "not sealed by itself" "$WORK/daemon.log" || true)
	[ "$nr" -gt 0 ] && [ "$nr" -le 30 ] || fail "$nr lines in the log about 40 directories" # 10 a minute

	# --- many directories of one user that are being written do not delay those of another ---
	# Each of them was waited for two seconds. Rounds of requests are counted instead of time: on a slow machine these
	# take longer too.
	mkdir -m 777 "$MNT/busy"
	step m.tmp
	exits 0 "$PYTHON" - "$MNT" 65534 40 20000 <<'PY'
import errno, os, sys
mnt, (uid, nr, most) = sys.argv[1], map(int, sys.argv[2:])
os.seteuid(uid)
for i in range(nr):
    os.mkdir(f"{mnt}/busy/{i}.tmp")
held = [open(f"{mnt}/busy/{i}.tmp/data", "w") for i in range(nr)]
for i in range(nr):
    os.rename(f"{mnt}/busy/{i}.tmp", f"{mnt}/busy/{i}")
os.seteuid(0)
os.rename(mnt + "/m.tmp", mnt + "/m")
for i in range(most):
    with open(mnt + "/round", "w"):
        pass
    os.unlink(mnt + "/round")
    try:
        os.chmod(mnt + "/m", 0o755)
    except PermissionError: # sealed
        print(i, "rounds until it was sealed")
        sys.exit(0)
    except OSError as e: # being sealed
        assert e.errno == errno.EBUSY, e
sys.exit(f"not sealed after {most} rounds")
PY
	tells "rounds until it was sealed"
	sealed "$(seq 0 39 | LC_ALL=C sort | tr '\n' ' ')b f g h i k l m" # once their files are closed

	# --- a large directory of one user does not delay another user's ---
	# With one thread, a seal that began later never ends earlier. The delay is chosen by how long the large one took, and
	# one of ten attempts suffices: this machine may stop a thread for as long.
	exits 0 "$PYTHON" - "$MNT" "$CKPTFS_BUILD/tools/ckptfs-seal" 65534 10000 <<'PY'
import array, fcntl, json, os, subprocess, sys, time
mnt, seal, uid, nr = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
large, small = mnt + "/busy/large", mnt + "/small"
def is_sealed(path):
    fd, flags = os.open(path, os.O_RDONLY), array.array("l", [0])
    fcntl.ioctl(fd, 0x80086601, flags) # FS_IOC_GETFLAGS
    os.close(fd)
    return bool(flags[0] & 0x10) # FS_IMMUTABLE_FL
def began():
    seals = json.loads(subprocess.run([seal, "--list", "--json", mnt], check=True, capture_output=True).stdout)
    times = {s["path"].split("/")[-1]: s["sealed_ns"] for s in seals["sealed"]}
    return times["large"], times["small"]
os.seteuid(uid)
os.mkdir(large + ".tmp")
for i in range(nr):
    os.close(os.open(f"{large}.tmp/{i}", os.O_CREAT | os.O_WRONLY))
os.seteuid(0)
os.mkdir(small + ".tmp")
took = 0
for attempt in range(10):
    start = time.monotonic()
    os.seteuid(uid)
    os.rename(large + ".tmp", large)
    os.seteuid(0)
    time.sleep(took * (0.2 + 0.07 * attempt))
    os.rename(small + ".tmp", small)
    while not is_sealed(large) and not is_sealed(small):
        time.sleep(0.001)
    is_first = not is_sealed(large)
    while not is_sealed(large):
        time.sleep(0.001)
    took = time.monotonic() - start
    while not is_sealed(small):
        time.sleep(0.001)
    large_ns, small_ns = began()
    if is_first and large_ns < small_ns:
        print("sealed before the large one, attempt", attempt, "of", took, "seconds")
        sys.exit(0)
    for path in large, small:
        subprocess.run([seal, "--unseal", path], check=True)
        os.rename(path, path + ".tmp")
sys.exit("never sealed while a large directory of another user is")
PY
	tells "sealed before the large one"
	for large in busy/large small; do
		seal --unseal "$MNT/$large" >"$WORK/out" && rm -r "$MNT/${large:?}"
	done

	# --- another user's marker does not take the place of the owner's: the owner still writes the files ---
	rm -rf "$MNT"/others.*
	before=$(epochs)
	step n
	chmod 1777 "$MNT/n"
	chown -R 1001 "$MNT/n"
	exec 7>>"$MNT/n/data"
	setpriv --reuid 1001 --clear-groups touch "$MNT/n/commit_success.txt"
	chmod 666 "$MNT/n/commit_success.txt"
	sleep 0.7 # it waits for its next attempt
	as_nobody ln "$MNT/n/commit_success.txt" "$MNT/n/.complete" # a file of its own would prevent the seal
	exec 7>&-
	sealed "$before n"
fi
fs_umount
fs_sound "after seals"
