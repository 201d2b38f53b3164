#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-doctor finds what is wrong with a machine, a mount or a store, says what to do, and its exit status says how bad
# it is. Whether the machine of the test is healthy does not matter: findings are looked up by subject.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

doctor=$CKPTFS_BUILD/tools/ckptfs-doctor
found() { # ABOUT SUBJECT HEALTH REGEX [ACTION-REGEX]: in the JSON in $WORK/out
	"$PYTHON" - "$WORK/out" "$@" <<-'PY' || fail_showing "$1, $2: not $3, $4"
	import json, re, sys
	path, about, subject, health, text, *action = sys.argv[1:]
	of = [f for f in json.load(open(path))["findings"] if re.fullmatch(subject, f["subject"]) and re.search(about, f["about"])]
	assert len(of) == 1, of
	assert of[0]["health"] == health and re.search(text, of[0]["text"]), of
	assert not action or re.search(action[0], of[0]["action"]), of
	PY
}
check() { # [-STATUS] ARGUMENT...: --json, with this exit status at least
	local least=0 code=0
	case ${1:-} in -[0-9]) least=${1#-}; shift ;; esac
	"$doctor" --json "$@" >"$WORK/out" 2>"$WORK/said" || code=$?
	[ $code -ge "$least" ] && [ $code -le 2 ] || fail_showing "exit code $code"
	[ ! -s "$WORK/said" ] || fail_showing "says something beside the JSON"
}
on="$STORE on $MNT\$"

# --- the command line ---
exits 3 "$doctor" --wrong
exits 3 "$doctor" --json --quiet
check -2 "$WORK/nowhere"
found nowhere path critical 'No such file' 'give a mountpoint or a store'
check -2 "$WORK"
found "$WORK" path critical 'not a store'
echo "ok paths"

# --- the machine ---
check "$WORK"
found machine kernel ok '^Linux [0-9]'
found machine fuse ok 'can be opened'
found machine cluster ok .
if setarch --uname-2.6 true 2>/dev/null; then
	code=0
	setarch --uname-2.6 "$doctor" --json >"$WORK/out" || code=$?
	[ $code = 2 ] || fail_showing "exit code $code with an old kernel"
	found machine kernel critical 'mounting needs 5\.15' 'update the kernel'
fi
code=0
(ulimit -n 100 && exec "$doctor" --json) >"$WORK/out" || code=$?
[ $code -ge 1 ] || fail_showing "exit code $code with 100 open files"
found machine limits warning 'open files: 100' 'ulimit -n 1024'
code=0
unshare -m sh -c 'mount -t tmpfs tmpfs /dev && exec "$0" --json' "$doctor" >"$WORK/out" || code=$?
[ $code = 2 ] || fail_showing "exit code $code without /dev/fuse"
found machine fuse critical 'is not there' 'modprobe fuse'
code=0
as_nobody env PATH="$WORK" "$doctor" --json >"$WORK/out" || code=$?
[ $code = 2 ] || fail_showing "exit code $code without fusermount3"
found machine fusermount3 critical 'not in PATH' 'install the package fuse3'
echo "ok machine"

# --- a mount ---
fs_mount commit=3600
noise 1 1 >"$MNT/file"
sync "$MNT/file"
check "$MNT"
found "$on" daemon ok 'answers'
found "$on" damage ok 'none known'
found "$on" durability ok .
found "$on" scrub warning 'never' "ckptfs scrub $MNT"
check -1 "$STORE" # leads to its mount
found "$on" scrub warning 'never'
"$CKPTFS_BUILD/tools/ckptfs-scrub" --quiet "$MNT" >"$WORK/scrub"
check
found "$on" scrub ok '0 days ago'
exits 2 "$doctor" "$WORK/nowhere"
tells "^$WORK/nowhere:$"
tells '  CRITICAL  path '
tells '  -> give a mountpoint or a store$'
tells ' critical$'
exits 2 "$doctor" --quiet "$WORK/nowhere"
! grep -q '^  ok ' "$WORK/out" || fail_showing "--quiet prints what is well"

strike "$MNT/file"
drop_caches
! cat "$MNT/file" >"$WORK/read" 2>&1 || fail "damage was not noticed"
check -2 "$MNT"
found "$on" damage critical '1 chunk is damaged' 'log'
echo "ok mount"

# --- checkpoints that are not protected yet: a warning after an hour, as with the alerts ---
cc -shared -fPIC -x c -o "$WORK/answer.so" - <<'C' || fail "answer.so is not built"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
ssize_t lgetxattr(const char *path, const char *name, void *p, size_t len)
{
	static char text[1 << 20];
	size_t n;
	FILE *f;

	if (strcmp(name, "user.ckptfs.stat") != 0)
		return syscall(SYS_lgetxattr, path, name, p, len);
	f = fopen(getenv("ANSWER"), "r");
	if (!f)
		abort();
	n = fread(text, 1, sizeof(text), f);
	fclose(f);
	memcpy(p, text, n < len ? n : len);
	return n;
}
C
answer() { # JSON: the mount answers with these objects changed
	"$PYTHON" - "$MNT" "$1" >"$WORK/answer" <<-'PY'
	import json, os, sys
	j = json.loads(os.getxattr(sys.argv[1], "user.ckptfs.stat").decode().rstrip("\0"))
	for name, o in json.loads(sys.argv[2]).items():
	    j.setdefault(name, {}).update(o)
	print(json.dumps(j, separators=(",", ":")))
	PY
	ANSWER=$WORK/answer ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 LD_PRELOAD=$WORK/answer.so check "$MNT"
}
cluster='"member":true,"agent":true,"agent_answers":true,"nodes":2,"protects":true,"sealed":5'
answer '{"cluster":{'"$cluster"',"sealed_protected":4,"replication_lag_ns":60000000000}}'
found "$on" replicas ok '^4 of 5 sealed checkpoints replicated, lag 1m'
answer '{"cluster":{'"$cluster"',"sealed_protected":4,"replication_lag_ns":7300000000000,"protect_errno":28}}'
found "$on" replicas warning '^1 of 5 .* on this node only, the first one for 2h: No space left on device' log
answer '{"cluster":{'"$cluster"',"sealed_protected":5,"replication_lag_ns":0}}'
found "$on" replicas ok '^5 of 5 sealed checkpoints replicated$'
tier='"where":"dir:/far","reason":"","errno":0,"sealed":5'
answer '{"tier":{'"$tier"',"state":"flushing","waiting":1,"lag_ns":60000000000}}'
found "$on" tier ok 'dir:/far: flushing, 4 of 5 sealed checkpoints there, lag 1m'
answer '{"tier":{'"$tier"',"state":"flushing","waiting":1,"lag_ns":7300000000000}}'
found "$on" tier warning '1 of 5 sealed checkpoints not there, the first one for 2h' tier_rate
answer '{"tier":{'"$tier"',"state":"idle","waiting":0,"lag_ns":0}}'
found "$on" tier ok '5 of 5 sealed checkpoints there$'
echo "ok lags"

stop_process "$DAEMON"
check -2 "$MNT"
found "$on" daemon critical 'does not answer within 10 s'
kill -CONT "$DAEMON"
# The daemon hangs after it has answered the first question.
cc -shared -fPIC -x c -o "$WORK/hang.so" - <<'C' || fail "hang.so is not built"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
static int is_stopped(const char *pid)
{
	char name[64], line[256];
	int is = 0;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%s/status", pid);
	f = fopen(name, "r");
	if (!f)
		abort();
	while (fgets(line, sizeof(line), f))
		is |= strncmp(line, "State:\tT", 8) == 0;
	fclose(f);
	return is;
}
ssize_t lgetxattr(const char *path, const char *name, void *p, size_t len)
{
	kill(atoi(getenv("HANG")), SIGSTOP);
	while (!is_stopped(getenv("HANG"))) /* until then, its threads may answer */
		usleep(10000);
	return syscall(SYS_lgetxattr, path, name, p, len);
}
C
HANG=$DAEMON ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 LD_PRELOAD=$WORK/hang.so check -2 "$MNT"
found "$on" daemon critical 'does not answer within 10 s'
kill -CONT "$DAEMON"
daemon_kill
check -2 "$MNT"
found "$on" daemon critical 'has died' 'mount again'
fs_kill
check "$STORE"
found "$STORE\$" store ok 'not mounted' 'ckptfs fsck'
echo "ok daemon"

# --- a store can be mounted while its disk, which answers late, is examined ---
cc -shared -fPIC -x c -o "$WORK/late.so" - <<'C' || fail "late.so is not built"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
int statfs64(const char *path, struct statfs64 *ret)
{
	open(getenv("MARK"), O_CREAT | O_CLOEXEC, 0600);
	sleep(9);
	return syscall(SYS_statfs, path, ret);
}
C
MARK=$WORK/examined ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 LD_PRELOAD=$WORK/late.so \
	"$doctor" --json "$STORE" >"$WORK/out" 2>"$WORK/said" &
late=$!
await test -e "$WORK/examined"
fs_mount
fs_umount
wait "$late" || [ $? -le 2 ] || fail_showing "exit code $?"
echo "ok disk that answers late"

# --- a disk that hangs: that of a store on another mount, whose daemon is stopped ---
fs_mount
mkdir "$WORK/upper"
"$CKPTFS_BUILD/fs/mount.ckptfs" "$MNT/upper.store" "$WORK/upper"
exits 0 "$CKPTFS_BUILD/tools/ckptfs-init" "$MNT/other.store"
stop_process "$DAEMON"
check_hung() { # ARGUMENT...: as check -2, but ends although the disk hangs
	local pid code=0
	"$doctor" --json "$@" >"$WORK/out" 2>"$WORK/said" &
	pid=$!
	gone "$pid" || fail_showing "waits for a disk that hangs"
	wait "$pid" || code=$?
	[ $code = 2 ] || fail_showing "exit code $code"
}
upper="$MNT/upper.store on $WORK/upper\$"
for path in "$WORK/upper" ''; do
	check_hung ${path:+"$path"}
	found "$upper" disk critical 'does not answer within 10 s'
done
for path in "$MNT/other.store" "$MNT/upper.store" "$MNT/none"; do
	check_hung "$path"
	found "^$path( on |\$)" 'path|disk' critical 'does not answer within 10 s' # the kernel may know the path still
done
kill -CONT "$DAEMON"
check "$MNT/other.store"
found "$MNT/other.store\$" store ok 'not mounted'
found "$MNT/other.store\$" disk warning 'FUSE filesystem'
check "$MNT/upper.store"
found "$upper" disk warning 'FUSE filesystem'
"$CKPTFS_BUILD/tools/umount.ckptfs" "$WORK/upper"
fs_umount
echo "ok disk that hangs"

# --- a disk that is nearly full, and is none ---
small_disk 200m
on="$STORE on $MNT\$"
fs_mount
head -c 100M /dev/zero >"$disk/filler"
check -1 "$MNT"
found "$on" disk warning 'tmpfs, in memory'
found "$on" space ok '200 MiB'
head -c 80M /dev/zero >>"$disk/filler" || true
check -2 "$MNT"
found "$on" space critical 'writes will fail soon' "ckptfs gc --delete $MNT"
fs_umount
umount "$disk"
disk=
echo "ok disk"

# --- a store of a cluster ---
need_cluster
STORE=$WORK/member
on="$STORE on $MNT\$"
head -c 32 /dev/urandom >"$WORK/key"
chmod 600 "$WORK/key"
fs_mount "cluster=$WORK/key,protect=partner"
check -1 "$MNT"
found "$on" agent warning 'no ckptfs-agent is connected.*nothing is replicated' "ckptfs-agent --mount $MNT"
! grep -q '"replicas"' "$WORK/out" || fail_showing "replicas are counted without an agent"
fs_umount
echo "ok cluster"
