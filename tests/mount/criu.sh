#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# CRIU, unchanged, with its images in the mount: a program, one of several threads and a tree of processes are dumped while they run, again and again, every time as a
# whole; restored from any of these, they go on from there. What is stored grows with what has changed.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need criu ps
criu check >"$WORK/check" 2>&1 || skip "criu check: $(tail -1 "$WORK/check")"

worker=$(program worker)
mib=8 steps=${STEPS:-100} pid=
fs_mount

# work NAME THREADS CHILDREN: start it, as a session of its own and nobody's child, as what is restored is; every process has counted
work() {
	local i
	name=$1 processes=$((1 + $3))
	(setsid "$worker" "$WORK/$name" $mib "$2" "$3" </dev/null >/dev/null 2>&1 & echo $! >"$WORK/pid")
	pid=$(cat "$WORK/pid")
	mkdir "$MNT/$name"
	for i in $(seq 0 "$3"); do await grep -q ' [1-9]' "$WORK/$name.$i"; done
}

# dump STEP [OPTION...]: all of it, into a directory of its own
dump() {
	local to=$MNT/$name/step$1
	shift
	mkdir "$to"
	criu dump -t "$pid" -D "$to" -o log "$@" >"$WORK/said" 2>&1 || { tail -5 "$to/log" >&2; fail "criu dump of $name"; }
}

# restore STEP: it is there again, with all its processes, and they count on
restore() {
	local i before=()
	for i in $(seq 0 $((processes - 1))); do before+=("$(cat "$WORK/$name.$i")"); done
	criu restore -D "$MNT/$name/step$1" -o restore.log -d --pidfile "$WORK/$name.pid$1" >"$WORK/said" 2>&1 ||
		{ tail -5 "$MNT/$name/step$1/restore.log" >&2; fail "criu restore of $name"; }
	[ "$(cat "$WORK/$name.pid$1")" = "$pid" ]
	for i in $(seq 0 $((processes - 1))); do counts_on "$name" "$i" "${before[i]}" "after step $1"; done
}

# stop: the program, restored or not, and all of its processes, which do not outlive the first
stop() {
	kill -KILL "$pid"
	await not_there "$pid"
}
not_there() { [ -z "$(ps -o pid= -s "$1")" ]; } # SESSION: nobody is in it, not even one that nobody has waited for: its number is free

# 1. A program: many steps, and back to one of the first.
work program 0 0
before=$(new)
dump 0001 --leave-running
first=$(($(new) - before)) begun=$(counted program 0)
for step in $(seq 2 "$steps"); do dump "$(printf %04d "$step")" --leave-running; done
changed=$((($(counted program 0) - begun) * 4096)) grown=$(($(new) - before - first))
[ "$first" -ge $((mib << 20)) ] || fail "the first dump stored $first bytes"
# pages that were counted, and of each dump what it writes beside them: its own files, stack, data of libraries
[ "$grown" -le $((changed + steps * 64 * 1024)) ] || fail "$steps steps stored $grown bytes, of which $changed had changed"
last=$(counted program 0)
dump last
await not_there "$pid"
restore last
[ "$(counted program 0)" -ge "$last" ] || fail "it went on from $(counted program 0) instead of $last"
stop
restore 0002
[ "$(counted program 0)" -lt "$last" ] || [ "$last" -lt 100 ] || fail "step 2 went on from $(counted program 0), where the last was"
stop
echo "ok: $steps steps stored $((first >> 10)) + $((grown >> 10)) KiB, $((changed >> 10)) of which were changed"

# 2. Several threads, 3. several processes, each with threads: from a mount that has been away in between.
work threads 4 0
dump 1
await not_there "$pid"
fs_remount
restore 1
[ "$(ls "/proc/$pid/task" | wc -l)" = 5 ] || fail "not all threads are there"
stop

work tree 1 3
dump 1 --leave-running
dump 2
await not_there "$pid"
fs_remount
restore 2
[ "$(wc -w <"/proc/$pid/task/$pid/children")" = 3 ] || fail "not all processes are there"
stop

# 4. What is known of these images.
kinds_are_known "$MNT/tree/step2" 4 $mib "heap stack code library anonymous all" code 0.4 library 0.4

# 5. Memory that is dumped before, while the program runs on, and the rest against it.
if criu check --feature mem_dirty_track >/dev/null 2>&1; then
	work before 0 0
	mkdir "$MNT/before/pre"
	criu pre-dump -t "$pid" -D "$MNT/before/pre" --track-mem -o log || fail "criu pre-dump"
	dump 1 --track-mem --prev-images-dir ../pre
	await not_there "$pid"
	restore 1
	stop
	echo "ok: pre-dump"
else
	echo "criu pre-dump is not tried: this kernel does not track changes of memory (criu check --feature mem_dirty_track)"
fi
fs_umount
fs_sound "after images"
echo "ok"
