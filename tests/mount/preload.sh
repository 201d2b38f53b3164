#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Programs that know nothing of checkpoints run on libckptfs-preload.so: they come to the same results, and each checkpoint is their memory at one moment.
. "$(dirname "$0")/lib.sh"
need_mount

preload=$CKPTFS_BUILD/client/libckptfs-preload.so
[ -e "$preload" ] || skip "not built with sanitizers, which have an allocator of their own"
captured=$(program captured) check=$(program captured_check)

fs_mount
CKPTFS_TRACKING=userfaultfd "$(program client)" "$MNT/probe" 1 1 >/dev/null 2>"$WORK/said" || {
	grep -q 'no userfaultfd' "$WORK/said" || { cat "$WORK/said"; fail "userfaultfd"; }
	LD_PRELOAD=$preload CKPTFS_DIR=$MNT/none /bin/true 2>"$WORK/said" || fail "without userfaultfd it does not run"
	grep -q 'none are taken' "$WORK/said" || fail "nobody was told that there are no checkpoints"
	skip "no userfaultfd"
}

in_preload() { # DIR COMMAND...: a checkpoint every 50 ms
	local dir=$1
	shift
	CKPTFS_DIR=$dir CKPTFS_PERIOD=0.05 LD_PRELOAD=$preload "$@"
}
counts() { find "$1" -maxdepth 1 -name '[0-9]*' 2>/dev/null | wc -l; }
has_at_least() { [ "$(counts "$1")" -ge "$2" ]; } # DIR N

# A program with more rights than the user that has started it: its memory is not for that user.
if [ "$(id -u)" = 0 ]; then
	cc -x c -o "$WORK/setuid" - -L"$CKPTFS_BUILD/client" -Wl,--no-as-needed -lckptfs-preload -Wl,-rpath,"$CKPTFS_BUILD/client" <<-'C' || fail "setuid is not built"
		#include <unistd.h>
		int ckptfs_checkpoint(void);
		int main(void) { return geteuid() != 0 || ckptfs_checkpoint() >= 0; }
	C
	mkdir -m 777 "$MNT/setuid" "$MNT/same"
	exits 1 env CKPTFS_DIR="$MNT/same/x" CKPTFS_PERIOD=1h "$WORK/setuid"
	[ -n "$(ls -A "$MNT/same")" ] || fail "a program that is linked with it takes no checkpoint"
	if findmnt -no OPTIONS -T "$WORK" | grep -qw nosuid || grep -q '^NoNewPrivs:[[:space:]]*1' /proc/self/status; then
		skip_part "no set-user-ID programs here"
	else
		chmod 4755 "$WORK/setuid"
		exits 0 env CKPTFS_DIR="$MNT/setuid/x" CKPTFS_PERIOD=1h setpriv --reuid 65534 --clear-groups "$WORK/setuid"
		[ -z "$(ls -A "$MNT/setuid")" ] || fail "the memory of a program with more rights is in a directory of its caller"
	fi
	echo "ok nothing of set-user-ID programs"
fi

# Memory of one moment: four threads, children, memory that comes and goes, a checkpoint that the program asks for.
mkfifo "$WORK/in"
in_preload "$MNT/captured" "$captured" <"$WORK/in" >"$WORK/out" 2>"$WORK/errors" &
pid=$!
exec 3>"$WORK/in"
for n in 3 6 9; do
	await has_at_least "$MNT/captured" $n || { cat "$WORK/out" "$WORK/errors"; fail "no checkpoint $n"; }
	echo >&3
done
await has_at_least "$MNT/captured" 12 || fail "no checkpoint after its memory has been mapped and unmapped"
exec 3>&-
wait $pid || { cat "$WORK/out" "$WORK/errors"; fail "captured"; }
grep -qx 'asked 0' "$WORK/out" || fail "it does not find ckptfs_checkpoint(): $(cat "$WORK/out")"
grep -q 'excluded from checkpoints: mprotect' "$WORK/errors" || fail "exclusion is not logged: $(cat "$WORK/errors")"
root=$(sed -n 's/^root //p' "$WORK/out")
right=0
for n in $(find "$MNT/captured" -name '[0-9]*' -printf '%f\n'); do
	code=0
	anywhere "$check" "$MNT/captured" "$n" "$root" >/dev/null 2>"$WORK/errors" || code=$?
	case $code in
	0) right=$((right + 1)) ;;
	3) [ $((10#$n)) -le 9 ] || fail "checkpoint $n: no memory is in it" ;; # the machine is busy: it had not begun
	*) fail "checkpoint $n: $(cat "$WORK/errors")" ;;
	esac
done
[ $right -ge 3 ] || fail "only $right checkpoints of a program that has begun"
echo "ok $right checkpoints of threads that go on, each of one moment"

# Handlers that map memory, in the midst of allocating: pages are written slowly, so that an allocation waits for one.
timeout -k 1 600 env CKPTFS_RATE=20M CKPTFS_COW=64K CKPTFS_PERIOD=0.02 CKPTFS_KEPT=2 CKPTFS_DIR="$MNT/signals" LD_PRELOAD="$preload" \
	"$(program captured_signals)" forks 200 >"$WORK/out" 2>"$WORK/errors" ||
	{ cat "$WORK/errors"; fail "handlers wait for ever"; }
grep -qx right "$WORK/out" && has_at_least "$MNT/signals" 2 || fail "handlers: $(cat "$WORK/out" "$WORK/errors")"
echo "ok handlers map memory in the midst of allocating, and others fork"

# Memory that is mapped, protected and given up, also by calls that fail.
calls=$(program captured_calls)
CKPTFS_DIR=$MNT/calls LD_PRELOAD=$preload "$calls" take >"$WORK/out" 2>"$WORK/errors" || { cat "$WORK/errors"; fail "calls"; }
anywhere env LD_PRELOAD="$CKPTFS_BUILD/client/libckptfs.so.0" "$calls" check "$MNT/calls" "$(cat "$WORK/out")" 2>"$WORK/errors" || { cat "$WORK/errors"; fail "calls: the checkpoint has something else"; }
echo "ok memory that is mapped, protected and given up, also by calls that fail"
# And in the midst of asking for a checkpoint, which one that takes memory away waits for.
timeout -k 1 600 env CKPTFS_PERIOD=0.02 CKPTFS_KEPT=2 CKPTFS_DIR="$MNT/asks" LD_PRELOAD="$preload" "$(program captured_signals)" asks 200 >"$WORK/out" 2>"$WORK/errors" ||
	{ cat "$WORK/errors"; fail "a handler waits for ever for one that waits for a checkpoint"; }
grep -qx right "$WORK/out" || fail "handlers: $(cat "$WORK/out" "$WORK/errors")"
echo "ok handlers map memory in the midst of asking for checkpoints"

# At a signal, and only then.
CKPTFS_DIR=$MNT/signal CKPTFS_SIGNAL=USR1 LD_PRELOAD=$preload "$captured" <"$WORK/in" >"$WORK/out" 2>"$WORK/errors" &
pid=$!
exec 3>"$WORK/in"
await grep -q ^asked "$WORK/out"
for n in 2 3; do
	[ "$(counts "$MNT/signal")" -lt $n ] || fail "a checkpoint without a signal"
	kill -USR1 $pid
	await has_at_least "$MNT/signal" $n || fail "no checkpoint at a signal: $(cat "$WORK/errors")"
done
exec 3>&-
wait $pid || fail "signal"
echo "ok a checkpoint at a signal"

# What real programs print, without and with it.
same() { # NAME COMMAND...
	local name=$1
	shift
	"$@" >"$WORK/right" 2>/dev/null </dev/null || fail "$name"
	in_preload "$MNT/$name" "$@" >"$WORK/out" 2>"$WORK/errors" </dev/null || { cat "$WORK/errors"; fail "$name does not run"; }
	cmp "$WORK/right" "$WORK/out" || fail "$name comes to another result"
	! grep -v 'info memory' "$WORK/errors" | grep . || fail "$name: it was said that something is wrong"
	[ "$(counts "$MNT/$name")" -gt 0 ] || fail "$name: no checkpoint"
	echo "ok $name: $(counts "$MNT/$name") checkpoints"
}
same python "$PYTHON" -c '
import hashlib, json, os, subprocess, threading
words, sums = {}, []
def work(k):
    lists = [[(i * i + k) % 1009 for i in range(200)] for _ in range(300)]
    for _ in range(20):
        lists = [sorted((7 * a + 1) % 1009 for a in l) for l in lists]
    sums.append(hashlib.sha256(json.dumps(lists).encode()).hexdigest())
threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(sums), subprocess.run(["echo", "child"], capture_output=True).stdout, len(os.listdir("/proc/self/fd")) > 0)'
if command -v perl >/dev/null; then
	same perl perl -e 'my %h; for my $r (1 .. 12) { $h{$_ % 5003} .= chr(97 + $_ % 26) for 1 .. 60000; $_ = substr($_, -50) for values %h; }
		print join(",", map { "$_=$h{$_}" } sort keys %h), "\n"; print `echo child`;'
fi
if command -v sqlite3 >/dev/null; then
	same sqlite sqlite3 :memory: "create table t(a integer primary key, b text); with recursive c(i) as (select 1 union all select i + 1 from c where i < 200000)
		insert into t select i, hex(i * 7919) from c; create index x on t(b); select count(*), sum(a), min(b), max(b) from t where b > '32';
		delete from t where a % 3 = 0; select count(*), sum(length(b)) from t;"
fi

# What a shell starts is not in checkpoints of it.
in_preload "$MNT/shell" bash -c 'env; true' >"$WORK/out" 2>"$WORK/errors" </dev/null || fail "a shell: $(cat "$WORK/errors")"
! grep CKPTFS_DIR "$WORK/out" || fail "CKPTFS_DIR is in the environment of a shell's children"
[ ! -s "$WORK/errors" ] || fail "a shell's children: $(cat "$WORK/errors")"
echo "ok a shell's children are left alone"

# But what takes a program's place is: the memory in checkpoints is that of the last one.
behind() { # NAME COMMAND...
	local name=$1
	shift
	in_preload "$MNT/$name" "$@" "$PYTHON" -c '
import os, sys, time
mark = "".join(["the mark ", "of the program"]) * 1000
for _ in range(600):
    time.sleep(0.05)
    if sum(n.isdigit() for n in os.listdir(sys.argv[1])) >= 3:
        sys.exit(0)
sys.exit("no checkpoints")' "$MNT/$name" >"$WORK/out" 2>"$WORK/errors" </dev/null || fail "behind $name: $(cat "$WORK/out" "$WORK/errors")"
	grep -q 'the mark of the program' "$MNT/$name/$(find "$MNT/$name" -name '[0-9]*' -printf '%f\n' | sort | tail -n 1)" || fail "behind $name: checkpoints are of another one"
}
behind env env A=B
behind sh sh -c 'exec "$@"' sh
behind bash bash -c 'true; (true); exec -a name "$@"' bash
behind nice nice -n 1 env A=B
! command -v taskset >/dev/null || behind taskset taskset -c 0
echo "ok programs that others start by taking their place"

# A limit of addresses, of the shell's and of its own: what the program may have without, it may have.
needs='
import mmap, os, resource, sys, threading, time
if sys.argv[2:]:
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]) << 10,) * 2)
threading.Thread(target=time.sleep, args=(0.1,)).start()
a, b = bytearray(300 << 20), mmap.mmap(-1, 50 << 20)
try:
    bytearray(2 << 30)
    sys.exit("no limit")
except MemoryError:
    pass
for _ in range(600):
    time.sleep(0.05)
    if os.path.isdir(sys.argv[1]) and sum(n.isdigit() for n in os.listdir(sys.argv[1])) >= 2:
        sys.exit(0)
sys.exit("no checkpoints")'
mkdir "$MNT/limited" "$MNT/limits"
(ulimit -v 800000 && CKPTFS_KEPT=2 in_preload "$MNT/limited" "$PYTHON" -c "$needs" "$MNT/limited") 2>"$WORK/errors" || fail "ulimit -v: $(cat "$WORK/errors")"
CKPTFS_KEPT=2 in_preload "$MNT/limits" "$PYTHON" -c "$needs" "$MNT/limits" 800000 2>"$WORK/errors" || fail "RLIMIT_AS: $(cat "$WORK/errors")"
echo "ok limits of addresses"

# It would take a quarter of an hour at this rate; with the program it is over.
timeout -k 1 600 env CKPTFS_RATE=4K CKPTFS_PERIOD=0.1 CKPTFS_DIR="$MNT/slow" LD_PRELOAD="$preload" sleep 0.5 2>"$WORK/errors" ||
	fail "a program does not end: $(cat "$WORK/errors")"
[ "$(counts "$MNT/slow")" -ge 1 ] || fail "the last checkpoint is not complete: $(cat "$WORK/errors")"
echo "ok with the program the limit ends"

# With the last of its threads; in a handler, in the midst of allocating; and while the library is still beginning, which takes long if all is logged.
ends() { # STATUS HOW
	local status=0
	timeout -k 1 600 env CKPTFS_KEPT=1 CKPTFS_DIR="$MNT/ends" CKPTFS_PERIOD=0.001 LD_PRELOAD="$preload" "$(program captured_end)" "$2" >"$WORK/out" 2>"$WORK/errors" || status=$?
	[ $status = "$1" ] || fail "$2: it ends with $status: $(cat "$WORK/errors")"
}
ends 0 last
grep -qx 'the last one' "$WORK/out" || fail "it ends before its last thread: $(cat "$WORK/out")"
for _ in 1 2 3 4 5; do
	ends 7 handler
done
for _ in 1 2 3 4 5 6 7 8 9 10; do
	LD_DEBUG=symbols LD_DEBUG_OUTPUT=$WORK/symbols CKPTFS_KEPT=1 CKPTFS_DIR=$MNT/begins CKPTFS_PERIOD=0.0001 LD_PRELOAD=$preload /bin/true 2>"$WORK/errors" ||
		fail "a checkpoint while the library begins: $(cat "$WORK/errors")"
done
echo "ok ends and beginnings"

# A program that has its own allocator runs, and is told what that means.
in_preload "$MNT/own" "$(program own_malloc)" >"$WORK/out" 2>"$WORK/errors" || fail "an allocator of its own: $(cat "$WORK/errors")"
grep -qx runs "$WORK/out" && grep -q 'notice .*has its own allocator' "$WORK/errors" || fail "an allocator of its own: $(cat "$WORK/out" "$WORK/errors")"
echo "ok an allocator of its own is told"

# What it cannot do is refused, with a reason, and the program runs all the same.
refused() { # VARIABLE=VALUE WHAT-IT-SAYS
	env "$1" CKPTFS_DIR="$MNT/refused" LD_PRELOAD="$preload" /bin/echo runs >"$WORK/out" 2>"$WORK/errors" || fail "$1: it does not run"
	grep -q "$2" "$WORK/errors" || fail "$1: $(cat "$WORK/errors")"
	grep -q 'none are taken' "$WORK/errors" || fail "$1: $(cat "$WORK/errors")"
}
refused CKPTFS_TRACKING=mprotect 'need userfaultfd'
refused CKPTFS_TRACKING=x 'need userfaultfd'
refused CKPTFS_MODE=sync 'is for programs that are linked'
refused CKPTFS_MODE=fast 'CKPTFS_MODE=fast: must be sync, async, adaptive or predictive'
refused CKPTFS_PERIOD=soon 'CKPTFS_PERIOD=soon: must be a time'
refused CKPTFS_SIGNAL=KILL 'CKPTFS_SIGNAL=KILL: must be the number'
refused CKPTFS_COW=150% 'CKPTFS_COW=150%: must be at most 100%'
refused CKPTFS_KEPT=few 'CKPTFS_KEPT=few: must be a number'
refused CKPTFS_RATE=1 'must be at least a page per second'
LD_PRELOAD=$preload "$captured" </dev/null >"$WORK/out" 2>"$WORK/errors" || fail "without CKPTFS_DIR"
[ ! -s "$WORK/errors" ] || fail "without CKPTFS_DIR: $(cat "$WORK/errors")"
echo "ok what cannot be done is refused"
fs_umount
