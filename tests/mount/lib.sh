# SPDX-License-Identifier: GPL-3.0-or-later
# Sourced by every test that runs on a mount: a store and a mountpoint of its own, and nothing left behind.
#
# Environment:
#   CKPTFS_BUILD    build directory: fs/mount.ckptfs, tools/, tests/mount/ (the programs of this folder)
#   TMPDIR          where store and mountpoint are made (default /tmp)
#   CKPTFS_OPTIONS  more mount options, separated by commas
#   CKPTFS_PYTHON   another Python than /usr/bin/python3, which has what Debian installs
#   CKPTFS_PLAIN    not empty: no mount at all, the tests run on a plain directory (to test the tests on ext4)
#
# A test sources this file and then uses $MNT, $STORE and $WORK (scratch outside of the mount). The daemon runs in the
# foreground as a child of the test, so that its end can be waited for and its exit code counts.
#
# What two tests use is here, once, in this order: what a test needs, the machine, the mount, the store below it,
# content, what commands say, figures.

set -eEuo pipefail

: "${CKPTFS_BUILD:?is the build directory and must be set}"
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PYTHON=${CKPTFS_PYTHON:-/usr/bin/python3}
WORK=$(mktemp -d "${TMPDIR:-/tmp}/ckptfs-test.XXXXXX")
STORE=$WORK/store
MNT=$WORK/mnt
DAEMON=
COLLECTOR=
export CKPTFS_BUILD WORK STORE MNT PYTHON
chmod 755 "$WORK" # other users reach the mountpoint
mkdir "$MNT"

skip() { echo "skipped: $*"; exit 77; }
skip_part() { echo "skipped in part: $*"; }
fail() { # WHY
	echo "$*" >"$WORK/failed" # a subshell can call this
	exit 1
}
plain() { [ -n "${CKPTFS_PLAIN:-}" ]; }
need_mount() { ! plain || skip "needs a ckptfs mount"; }
has_cluster() { [ -x "$CKPTFS_BUILD/mpi-agent/ckptfs-agent" ]; }
need_cluster() { has_cluster || skip "built without the cluster"; }
# With ASan a mount of a plain user may hang: libfuse forks in a process with threads, one of which may hold a lock of ASan's
# allocator at that moment. In the child no thread releases it.
users_can_mount() { [ -u "$(command -v fusermount3)" ] && ! grep -q __asan_init "$CKPTFS_BUILD/fs/mount.ckptfs"; }
need_root() { [ "$(id -u)" = 0 ] || skip "needs root"; }
need() {
	local c
	for c; do
		command -v "$c" >/dev/null || skip "$c is not installed"
	done
}
program() { # NAME: path of a program that was built for these tests
	local p=$CKPTFS_BUILD/tests/mount/$1
	[ -x "$p" ] || fail "$p is missing: build first"
	echo "$p"
}
mounted() { grep -qsF " $MNT fuse" /proc/mounts; }
running() { # PID: alive and not a zombie; one with threads left still has its files open
	[ -r "/proc/$1/stat" ] && { [ "$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null)" != Z ] ||
		[ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -gt 1 ]; }
}
stop_process() { # PID: until SIGCONT; after kill(2) alone, threads go on until one of them has received the signal
	kill -STOP "$1"
	await grep -q '^State:.T' "/proc/$1/status"
}
gone() { # PID: it ends within two minutes
	for _ in $(seq 1200); do
		running "$1" || return 0
		sleep 0.1
	done
	return 1
}
await() { # COMMAND...: until it succeeds, for four minutes and the time that it takes: machines that run tests may be busy
	local tries nap=0.05
	for ((tries = 0; tries < 1200; tries++)); do
		! "$@" 2>/dev/null || return 0
		sleep $nap
		[ $tries -lt 40 ] || nap=0.2 # asking costs processor time, with sanitizers most of it
	done
	fail "not within four minutes: $*"
}
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; } # COMMAND...
disk_kib() { du -sk "$1" | cut -f 1; } # PATH: what it takes on its disk
drop_caches() { echo 3 >/proc/sys/vm/drop_caches; } # of the kernel: what is read next comes from the daemon

# no_commit_timer: for tests that count stored bytes. A timer that fires between two requests of a write commits half a
# page, and the whole page is stored again later.
no_commit_timer() { CKPTFS_OPTIONS=${CKPTFS_OPTIONS:+$CKPTFS_OPTIONS,}commit=3600; }

# fs_mount [OPTIONS]: mount $STORE on $MNT; returns once it answers
fs_mount() {
	local options tries=0
	plain && return
	options=$(IFS=,; set -- ${CKPTFS_OPTIONS:+"$CKPTFS_OPTIONS"} ${1:+"$1"}; echo "$*")
	"$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" --foreground ${options:+-o "$options"} >>"$WORK/daemon.log" 2>&1 &
	DAEMON=$!
	until mounted && stat -f "$MNT" >/dev/null 2>&1; do
		running "$DAEMON" || fail "mount.ckptfs ended instead of mounting"
		[ $((tries += 1)) -lt 6000 ] || fail "no answer from the mount after 5 minutes"
		sleep 0.05
	done
}

# fs_umount: unmount, wait for the daemon, whose exit code must be 0
fs_umount() {
	local code=0 tries=0
	plain && return
	until umount "$MNT" 2>"$WORK/umount.log"; do # a process that has just ended may still hold it for a moment
		[ $((tries += 1)) -lt 100 ] || fail "umount: $(cat "$WORK/umount.log")"
		sleep 0.1
	done
	wait "$DAEMON" || code=$?
	DAEMON=
	[ "$code" = 0 ] || fail "the daemon ended with exit code $code after umount"
}

fs_remount() { fs_umount; fs_mount "$@"; }

# daemon_kill: kill -9 the daemon; users of the mount notice
daemon_kill() {
	[ -n "$DAEMON" ] || return 0
	kill -KILL "$DAEMON" 2>/dev/null || true
	{ wait "$DAEMON" || true; } 2>/dev/null
	DAEMON=
}

# fs_kill: and take the dead mount away
fs_kill() {
	daemon_kill
	while mounted; do umount -l "$MNT" || break; done
}

# fs_kill_writing FILE SOURCE...: kill the daemon, mounted with commit=1, while the sources are written to the file one
# after the other without an end, and mount again: the file is a beginning of them
fs_kill_writing() {
	local file=$1 size before
	shift
	before=$(figure written_bytes)
	endless "$@" >"$file" &
	await at_least written_bytes $((before + (4 << 20)))
	before=$(figure durability.commits)
	await at_least durability.commits $((before + 2)) # the second one began after that was written
	sleep 0.3 # not at the moment of a commit
	fs_kill
	wait || true
	fs_sound "after kill -9"
	fs_mount
	size=$(stat -c %s "$file")
	[ "$size" -gt $((1 << 20)) ] || fail "after two commits only $size bytes were durable"
	cmp -n "$size" <(endless "$@") "$file" || fail "half a file has other bytes"
}
endless() { while cat "$@"; do :; done 2>/dev/null; } # FILE...: until it is not taken any more

# free_blocks FILE...: delete them. A deleted file keeps its blocks while another program drops the kernel's caches, so
# they are truncated first, which btrfs may refuse at its quota.
free_blocks() {
	truncate -c -s 0 "$@" 2>/dev/null || true
	rm -f "$@"
}

# small_disk SIZE[,OPTION...]: the store is on a disk of its own, $disk, that can be filled
small_disk() {
	disk=$WORK/disk
	mkdir -p "$disk"
	mount -t tmpfs -o "size=$1" tmpfs "$disk"
	STORE=$disk/store
}

# small_filesystem SIZE TYPE [MKFS OPTIONS]: the same on a loop device; fails where the kernel or the tools do not have it
small_filesystem() {
	local size=$1 type=$2
	shift 2
	disk=$WORK/disk
	STORE=$disk/store
	mkdir -p "$disk"
	command -v "mkfs.$type" >/dev/null || { echo "mkfs.$type is not installed" >"$WORK/why"; return 1; }
	rm -f "$WORK/image"
	truncate -s "$size" "$WORK/image"
	"mkfs.$type" "$@" "$WORK/image" >"$WORK/why" 2>&1 || return 1
	mount -t "$type" -o loop "$WORK/image" "$disk" 2>"$WORK/why"
}

# anywhere COMMAND...: again, while an address that it wants is taken by what it was given there itself
anywhere() {
	local tries=20 r
	while r=0; "$@" 2>"$WORK/anywhere" || r=$?; [ $r != 0 ] && [ $((tries--)) -gt 0 ]; do
		grep -q 'File exists' "$WORK/anywhere" || break
	done
	cat "$WORK/anywhere" >&2
	return $r
}

# slurm_scripts DIRECTORY: Slurm's prolog, epilog and task-prolog as installed, with programs of this build, and settings in $WORK/etc/ckptfs/slurm.conf
slurm_scripts() {
	local name
	mkdir "$1" "$1/bin"
	for name in fs/mount.ckptfs tools/umount.ckptfs tools/ckptfs-run; do ln -s "$CKPTFS_BUILD/$name" "$1/bin/"; done
	for name in prolog epilog task-prolog; do
		sed "s#@s*bindir@#$1/bin#; s#@sysconfdir@#$WORK/etc#; s#@datadir@#$WORK/share#" "$HERE/../../tools/jobs/ckptfs-slurm.in" >"$1/$name"
		chmod +x "$1/$name"
	done
}

# collect: free what no file refers to
collect() { "$CKPTFS_BUILD/tools/ckptfs-gc" --delete --quiet "$MNT" >/dev/null; }

# collect_on: collect garbage again and again beside the test, whatever becomes of the mount
collect_on() {
	plain && return
	while sleep 0.3; do
		collect 2>/dev/null || true
	done &
	COLLECTOR=$!
	disown "$COLLECTOR" # its end is nothing to report
}

# fs_rebuild: rebuild the index of the store, not mounted; 1 is "changed something"
fs_rebuild() {
	local code=0
	"$CKPTFS_BUILD/tools/fsck.ckptfs" --rebuild "$STORE" >"$WORK/fsck.log" 2>&1 || code=$?
	[ "$code" -le 1 ] || fail "fsck.ckptfs --rebuild: exit code $code: $(tail -n 5 "$WORK/fsck.log")"
}

# fs_sound WHEN: the store, not mounted, is clean to the last byte
fs_sound() {
	plain && return
	"$CKPTFS_BUILD/tools/fsck.ckptfs" -n --read-data "$STORE" >"$WORK/fsck.log" 2>&1 || {
		tail -n 20 "$WORK/fsck.log" >&2
		fail "fsck.ckptfs finds something $1"
	}
}

# Content that is the same in every run, so that what fails once fails again.
noise() { # SEED MIB: bytes that neither repeat nor shrink
	"$PYTHON" -c 'import random, sys
sys.stdout.buffer.write(random.Random(sys.argv[1]).randbytes(int(sys.argv[2]) << 20))' "$@"
}
# scattered_series: $MNT/step.00 to step.15 of 4 MiB, each with 50 pages of the one before changed. Each is synced, so
# that what is new in it lies in a place of its own and the last one all over the store.
scattered_series() {
	"$PYTHON" - "$MNT" <<'PY'
import os, random, sys
random.seed(5)
pages = [random.randbytes(4096) for i in range(1024)]
for step in range(16):
    for i in random.sample(range(1024), 50):
        pages[i] = random.randbytes(4096)
    with open(f"{sys.argv[1]}/step.{step:02}", "wb") as f:
        f.write(b"".join(pages))
        f.flush()
        os.fsync(f.fileno())
PY
}
# flip FILE OFFSET: one bit of this byte, as a bad disk does; synced, so that a reader past the cache meets it too
flip() {
	"$PYTHON" - "$1" "$2" <<'PY'
import os, sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]))
    b = f.read(1)[0]
    f.seek(int(sys.argv[2]))
    f.write(bytes([b ^ 4]))
    f.flush()
    os.fsync(f.fileno())
PY
}

# flip_chunk CONTENT OFFSET: change one byte of the pack, where it has the 64 bytes at this offset of a file
flip_chunk() {
	"$PYTHON" - "$STORE" "$1" "$2" <<'PY'
import glob, os, sys
store, name, off = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(name, "rb") as f:
    f.seek(off)
    want = f.read(64)
for pack in sorted(glob.glob(store + "/packs/*.pack")):
    with open(pack, "r+b") as f:
        at = f.read().find(want)
        if at >= 0:
            f.seek(at)
            f.write(bytes([want[0] ^ 1]))
            f.flush()
            os.fsync(f.fileno())
            sys.exit(0)
sys.exit("no such bytes in any pack")
PY
}

# worker.c, of which images are taken: FILE.PROCESS says how far it is.
counted() { cut -d ' ' -f 2 "$WORK/$1.$2"; } # FILE PROCESS
more_than() { [ "$(counted "$1" "$2")" -gt "$3" ]; } # FILE PROCESS COUNT
differs() { [ "$(cat "$2")" != "$1" ]; } # TEXT FILE
counts_on() { # FILE PROCESS BEFORE WHEN: it says something else than before, counts, and all its memory is what it must be
	local count
	await differs "$3" "$WORK/$1.$2"
	count=$(counted "$1" "$2")
	await more_than "$1" "$2" "$count"
	grep -q '^right' "$WORK/$1.$2" || fail "$1, process $2 $4: $(cat "$WORK/$1.$2")"
}

# strike FILE: damage the last page of this file of a mount, which no other has and is not compressed, where it is stored
strike() {
	local at
	at=$("$PYTHON" - "$STORE" "$1" <<'PY'
import glob, sys
needle = open(sys.argv[2], "rb").read()[-4096:]
for pack in glob.glob(sys.argv[1] + "/packs/*.pack"):
    at = open(pack, "rb").read().find(needle)
    if at >= 0:
        print(pack, at + 100)
        break
PY
)
	flip ${at:?is not in the packs}
}

# all_kinds DIRECTORY: makes this directory with every kind of file, name and attribute in it
all_kinds() {
	mkdir -p "$1/ranks/deep/er"
	cd "$1"
	noise one 6 >ranks/0
	{ noise one 3; noise two 2; } >ranks/1 # shares half of it
	head -c 1234567 ranks/1 >ranks/odd
	: >empty
	truncate -s 9M sparse
	noise three 1 | dd of=sparse bs=4096 seek=700 conv=notrunc status=none
	printf x | dd of=sparse bs=1 seek=100 conv=notrunc status=none
	ln ranks/0 ranks/deep/hard
	ln -s ranks/0 link
	ln -s /nowhere/at/all "$(printf 'odd\nname \\ %%s')"
	mkfifo pipe
	mknod null c 1 3
	"$PYTHON" - <<'PY'
import os, struct
os.setxattr("ranks/0", "user.note", b"with a \0 byte")
os.setxattr("ranks", "user.big", b"v" * 3000)
os.setxattr("ranks/1", "trusted.t", b"for root")
# user::rw- user:65534:r-- group::--- mask::r-- other::---
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", t, p, i) for t, p, i in (
    (1, 6, 0xffffffff), (2, 4, 65534), (4, 0, 0xffffffff), (16, 4, 0xffffffff), (32, 0, 0xffffffff)))
os.setxattr("ranks/odd", "system.posix_acl_access", acl)
PY
	chmod 600 ranks/1
	chmod 711 ranks/deep
	chown 65534:1234 ranks/deep/er
	touch -d '1969-12-31 23:59:58.5 UTC' empty
	cd "$WORK"
}
# describe DIRECTORY [restored]: all that a program can read of a tree, to compare two; restored: without what a copy cannot have
describe() {
	"$PYTHON" - "$@" <<'PY'
import hashlib, os, stat, sys
top, links, is_whole = sys.argv[1], {}, len(sys.argv) == 2
for dir, dirs, files in os.walk(top):
    dirs.sort()
    for name in sorted(files) + [""] + [d for d in dirs if os.path.islink(os.path.join(dir, d))]:
        path = os.path.join(dir, name) if name else dir
        st = os.lstat(path)
        what = [os.path.relpath(path, top), oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns, st.st_rdev]
        if is_whole or not stat.S_ISDIR(st.st_mode):
            what.append(st.st_nlink)
        if is_whole:
            what += [st.st_ctime_ns, st.st_size]
        if not stat.S_ISDIR(st.st_mode):
            what.append(links.setdefault(st.st_ino, len(links)))
        for x in sorted(os.listxattr(path, follow_symlinks=False)):
            what += [x, os.getxattr(path, x, follow_symlinks=False)]
        if stat.S_ISLNK(st.st_mode):
            what.append(os.readlink(path))
        if stat.S_ISREG(st.st_mode):
            what += [st.st_size] + [st.st_blocks] * is_whole
            with open(path, "rb") as f:
                what.append(hashlib.sha256(f.read()).hexdigest())
                at, map = 0, []
                while is_whole:
                    try:
                        data = os.lseek(f.fileno(), at, os.SEEK_DATA)
                    except OSError:
                        break
                    at = os.lseek(f.fileno(), data, os.SEEK_HOLE)
                    map.append((data, at))
                what.append(map)
        print(*what)
PY
}

# What a command says. Answers and complaints are looked for apart: an answer that goes where the messages belong is one
# that no pipe gets.
exits() { # CODE COMMAND...: it ends with this code; its output is in $WORK/out, its messages are in $WORK/said
	local want=$1 code=0
	shift
	"$@" >"$WORK/out" 2>"$WORK/said" || code=$?
	[ "$code" = "$want" ] || fail_showing "$*: exit code $code instead of $want"
}
tells() { grep -q -- "$1" "$WORK/out" || fail_showing "nothing was told of: $1"; } # REGEX: in the output
says() { grep -q -- "$1" "$WORK/said" || fail_showing "nothing was said of: $1"; } # REGEX: in the messages
says_not() { ! grep -q -- "$1" "$WORK/out" "$WORK/said" || fail_showing "was said though it is not so: $1"; } # REGEX
says_nothing() { [ ! -s "$WORK/out" ] && [ ! -s "$WORK/said" ] || fail_showing "something was said though $1"; } # WHY
fail_showing() { # WHY: fail, and show what was said
	cat "$WORK/out" "$WORK/said" >&2
	fail "$@"
}

# Figures. A key with dots leads into objects inside objects: scrub.round.bytes. Of words there are true, false and null.
json() { "$CKPTFS_BUILD/tests/mount/json_value" "$@"; } # KEY...: what the object on standard input has there, a line each
stat_json() { "$CKPTFS_BUILD/tools/ckptfs-stat" --json "${1:-$MNT}"; } # [PATH]
figure() { stat_json | json "$@"; } # KEY...: of the mount
new() { figure written_by_cause.new_bytes; } # bytes that nothing stored had yet
at_least() { [ "$(figure "$1")" -ge "$2" ]; } # KEY VALUE: to be awaited

# kinds_are_known DIR NR MIB KINDS [KIND REDUNDANCY]...: ckptfs-analyze finds NR images there, with MIB of new anonymous memory in the first and these kinds
# in each, all bytes told, and of some kinds more than this share is redundant
kinds_are_known() {
	exits 0 "$CKPTFS_BUILD/tools/ckptfs-analyze" --no-compact --chunking page --compress none --images --json "$1"
	"$PYTHON" - "$WORK/out" "${@:2}" <<-'EOT' || fail "ckptfs-analyze --images $1: not as it must be"
	import json, sys
	j, nr, mib, must, *shares = json.load(open(sys.argv[1])), *map(int, sys.argv[2:4]), set(sys.argv[4].split()), *sys.argv[5:]
	images = j["images"]["images"]
	assert len(images) == nr and j["images"]["complete"], images
	for image in images:
	    kinds = {k["kind"]: k for k in image["kinds"]}
	    assert must <= set(kinds), set(kinds)
	    assert kinds["anonymous"]["original_bytes"] >= mib << 20
	    size = [f["size_bytes"] for f in j["files"] if f["path"] == image["path"]][0]
	    assert kinds["all"]["original_bytes"] == size == sum(k["original_bytes"] for n, k in kinds.items() if n != "all")
	together = {k["kind"]: k for k in j["images"]["together"]}
	assert all(together[kind]["redundancy"] > float(share) for kind, share in zip(shares[::2], shares[1::2])), together
	EOT
}

cleanup() {
	local code=$? pid
	trap - EXIT
	set +e
	cd /
	! declare -F at_end >/dev/null || at_end # of the test itself
	[ -z "$COLLECTOR" ] || kill -KILL "$COLLECTOR" 2>/dev/null
	for pid in $(jobs -p); do
		[ "$pid" = "$DAEMON" ] || kill -KILL "$pid" 2>/dev/null
	done
	if [ "$code" != 0 ] && [ "$code" != 77 ]; then # the reason last: ./run-tests shows the last lines
		if [ -s "$WORK/daemon.log" ]; then
			echo "--- last lines of the daemon's log"
			tail -n "${CKPTFS_LOG_LINES:-40}" "$WORK/daemon.log"
		fi
		if [ -s "$WORK/failed" ]; then echo "FAILED: $(cat "$WORK/failed")"; else echo "FAILED: ${failed_at:-exit code $code}"; fi
	fi >&2
	fs_kill
	[ -z "${disk:-}" ] || umount -l "$disk"
	grep -F "$WORK/" /proc/mounts | while read -r _ point _; do umount -l "${point//\\040/ }"; done # by other means
	if [ -n "${CKPTFS_KEEP:-}" ] && [ "$code" != 0 ]; then
		echo "kept: $WORK" >&2
	else
		rm -rf --one-file-system "$WORK"
	fi
	exit "$code"
}
trap cleanup EXIT
trap 'failed_at="${BASH_SOURCE[0]##*/} line $LINENO: $BASH_COMMAND"' ERR
trap 'exit 130' INT
trap 'exit 143' TERM HUP
