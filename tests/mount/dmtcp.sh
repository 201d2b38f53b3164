#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# DMTCP, unchanged, with its images in the mount: a program, one of several threads, a tree of processes and an MPI job are checkpointed while they run, every time as a
# whole; restarted from any of these, they go on from there, and the job comes to the same result. What is stored grows with what has changed.
# DMTCP: where it is installed, or was built (the directory with bin/dmtcp_launch), if not in PATH.
. "$(dirname "$0")/lib.sh"
need_mount
PATH=${DMTCP:+$DMTCP/bin:}$PATH
command -v dmtcp_launch >/dev/null || skip "dmtcp_launch is not there: DMTCP is the directory in which DMTCP was built or installed"
need dmtcp_coordinator dmtcp_command dmtcp_restart

worker=$(program worker)
mib=8 steps=${STEPS:-100} name= port=
export DMTCP_GZIP=0 DMTCP_TMPDIR=$WORK/dmtcp
mkdir "$DMTCP_TMPDIR"
# What MPI's memory and topology look at is what DMTCP cannot bring back: pages of code that are patched, block devices, shared memory. Processes talk over TCP.
export OMPI_MCA_memory=^patcher OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob=tcp HWLOC_COMPONENTS=-linux:io
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Before each run of pages DMTCP writes 4 KiB with what was on its stack by chance: pages that are new, and that compress to a hundredth.
options=compress=zstd:3
fs_mount $options
stored() { sync -f "$MNT"; figure compressed_bytes; }

# begin: a coordinator, which ends with the last process
begin() {
	rm -f "$WORK/port"
	(cd "$MNT/$name" && exec dmtcp_coordinator --daemon --exit-on-last -q -p 0 --port-file "$WORK/port" >/dev/null 2>&1)
	await test -s "$WORK/port"
	port=$(cat "$WORK/port")
}
ask() { dmtcp_command -p "$port" "$@" >"$WORK/said" 2>&1; }
at_end() { [ -z "$port" ] || ask -k; }

# launch NAME COMMAND...: under DMTCP, its images in $MNT/NAME
launch() {
	name=$1
	shift
	mkdir "$MNT/$name"
	begin
	setsid dmtcp_launch -q -j -p "$port" --ckptdir "$MNT/$name" "$@" </dev/null >"$WORK/$name.log" 2>&1 &
}
work() { # NAME THREADS CHILDREN: every process has counted
	local i
	processes=$((1 + $3))
	launch "$1" "$worker" "$WORK/$1" $mib "$2" "$3"
	for i in $(seq 0 "$3"); do await grep -q ' [1-9]' "$WORK/$1.$i"; done
}

checkpoint() { # STEP: all processes, into a directory of its own
	await runs # all of it, also after the checkpoint before
	ask -bc || { cat "$WORK/said" "$WORK/$name.log" >&2; fail "checkpoint of $name"; }
	mkdir "$MNT/$name/step$1"
	mv "$MNT/$name"/ckpt_* "$MNT/$name/step$1"
}
runs() { ask -s && grep -q 'RUNNING=yes' "$WORK/said"; }
stop() {
	ask -k
	await not_there
}
not_there() { ! ask -s; } # the coordinator has gone, after all others

restart() { # STEP, in the place where it was: DMTCP looks for copies of files there
	begin
	cp -r "$MNT/$name/step$1"/ckpt_* "$MNT/$name"
	setsid dmtcp_restart -q -j -p "$port" "$MNT/$name"/*.dmtcp </dev/null >"$WORK/$name.log" 2>&1 &
}
restore() { # STEP: all processes of a worker are there again, and count on
	local before=()
	for i in $(seq 0 $((processes - 1))); do before+=("$(cat "$WORK/$name.$i")"); done
	restart "$1"
	for i in $(seq 0 $((processes - 1))); do counts_on "$name" "$i" "${before[i]}" "after step $1"; done
}

# 1. A program: many steps, and back to one of the first.
work program 0 0
before=$(stored)
checkpoint 0001
first=$(($(stored) - before)) begun=$(counted program 0)
for step in $(seq 2 "$steps"); do checkpoint "$(printf %04d "$step")"; done
last=$(counted program 0) grown=$(($(stored) - before - first))
changed=$(((last - begun) * 4096))
[ "$first" -ge $((mib << 20)) ] || fail "the first checkpoint stored $first bytes"
# pages that were counted, and of each checkpoint what DMTCP changes and adds
[ "$grown" -le $((changed + steps * 160 * 1024)) ] || fail "$steps steps stored $grown bytes, of which $changed had changed"
stop
fs_remount $options
restore 0002
[ "$(counted program 0)" -lt "$last" ] || [ "$last" -lt 100 ] || fail "step 2 went on from $(counted program 0), where the last was"
stop
echo "ok: $steps steps stored $((first >> 10)) + $((grown >> 10)) KiB, $((changed >> 10)) of which were changed"

# 2. Several threads, 3. several processes, each with threads: from a mount that has been away in between.
work threads 4 0
checkpoint 1
stop
fs_remount $options
restore 1
stop
work tree 1 3
checkpoint 1
checkpoint 2
stop
fs_remount $options
restore 2
stop

# 4. What is known of these images.
kinds_are_known "$MNT/tree/step2" 4 $mib "heap stack code library anonymous other all" library 0.7 stack 0.9

# 5. An MPI job: interrupted and restarted, it comes to what it comes to by itself.
if command -v mpicc mpirun >/dev/null; then
	mpicc -O1 -o "$WORK/rounds" "$(dirname "$0")/rounds.c" || fail "rounds.c does not compile"
	rounds=400
	mpirun --oversubscribe -n 2 "$WORK/rounds" "$WORK/undisturbed" $mib $rounds >"$WORK/said" 2>&1 || fail_showing "rounds by itself"
	beyond() { [ "$(cat "$WORK/job")" -gt "$1" ]; } # ROUND
	launch job mpirun --oversubscribe -n 2 "$WORK/rounds" "$WORK/job" $mib $rounds
	await beyond 10
	before=$(stored)
	checkpoint 1
	first=$(($(stored) - before)) begun=$(cat "$WORK/job")
	for step in $(seq 2 10); do checkpoint "$step"; done
	changed=$((($(cat "$WORK/job") - begun) * 2 * 4096)) grown=$(($(stored) - before - first))
	[ "$grown" -le $((changed + 10 * 512 * 1024)) ] || fail "9 more steps of an MPI job stored $grown bytes, of which $changed had changed"
	stop
	[ ! -e "$WORK/job.result" ] || fail "it was done before it was interrupted"
	fs_remount $options
	restart 7
	await test -s "$WORK/job.result"
	cmp "$WORK/undisturbed.result" "$WORK/job.result" || fail "another result after a restart"
	await not_there
	exits 0 "$CKPTFS_BUILD/tools/ckptfs-analyze" --no-compact --chunking page --compress none --images "$MNT"/job/step7/ckpt_rounds*.dmtcp
	tells 'Process images: 2'
	echo "ok: 10 steps of an MPI job stored $((first >> 10)) + $((grown >> 10)) KiB, $((changed >> 10)) of which were changed; it came to its result"
else
	echo "MPI is not tried: mpicc and mpirun are not there"
fi
fs_umount
fs_sound "after images"
echo "ok"
