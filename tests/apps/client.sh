#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# libckptfs with MPI: 4 ranks are killed at random moments, go on from the newest checkpoint that is sealed, all from the same, and come to the same
# result as ranks that are not disturbed. Messages arrive in memory that is tracked, by both ways.
#   ROUNDS   how often they are killed at least (default 6)
. "$(dirname "$0")/../mount/lib.sh"
need_mount
need mpicc mpirun

: "${ROUNDS:=6}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
steps=80
top=$(cd "$(dirname "$0")/../.." && pwd)
seal=$CKPTFS_BUILD/tools/ckptfs-seal

mpicc -O1 -Wall -I"$top/client/lib" -o "$WORK/client" "$top/tests/apps/client.c" "$CKPTFS_BUILD/client/libckptfs.so.0" -Wl,-rpath,"$CKPTFS_BUILD/client" ||
	fail "client.c does not compile"
steps_of() { { find "$1" -maxdepth 1 -name '[0-9]*' 2>/dev/null || true; } | wc -l; } # DIR: that have been begun
start() { exec mpirun --oversubscribe -np 4 "$WORK/client" "$1" $steps "$seal" >"$WORK/out" 2>"$WORK/said"; } # DIR: in a shell of its own
killed=0 restarts=0 right=
ranks_die() { # PID of mpirun: it and all ranks, without a word
	kill -KILL $(pgrep -P "$1") "$1" 2>/dev/null || true
	{ wait "$1" || true; } 2>/dev/null
	while pgrep -f "^$WORK/client" >/dev/null; do sleep 0.05; done
}

ended() { # as it should
	[ "$(grep ^result "$WORK/out")" = "$right" ] || fail "$tracking: $(grep ^result "$WORK/out"), undisturbed: $right"
	runs=$((runs + 1))
}

fs_mount
for tracking in userfaultfd mprotect; do
	export CKPTFS_TRACKING=$tracking
	mkdir "$MNT/$tracking"
	if ! (start "$MNT/$tracking/undisturbed"); then
		grep -q 'no userfaultfd' "$WORK/said" || { cat "$WORK/said"; fail "$tracking: undisturbed"; }
		echo "ok (without userfaultfd)"
		continue
	fi
	[ -z "$right" ] || [ "$right" = "$(grep ^result "$WORK/out")" ] || fail "$tracking comes to another result"
	right=$(grep ^result "$WORK/out")
	runs=0 of_these=0
	while [ $of_these -lt $((ROUNDS / 2)) ]; do
		dir=$MNT/$tracking/disturbed$runs
		have=$(steps_of "$dir")
		start "$dir" &
		pid=$!
		# Some time after it has taken one more.
		until [ "$(steps_of "$dir")" -gt "$have" ] || ! running $pid; do sleep 0.02; done
		sleep "0.$(printf %03d $((RANDOM % 300)))"
		if running $pid; then
			ranks_die $pid
			of_these=$((of_these + 1))
		else
			wait $pid || { cat "$WORK/said"; fail "$tracking: exit status $?"; }
			ended
		fi
		! grep -q ^restarted "$WORK/out" || restarts=$((restarts + 1))
	done
	killed=$((killed + of_these))
	(start "$MNT/$tracking/disturbed$runs") || { cat "$WORK/said"; fail "$tracking: it does not go on"; }
	! grep -q ^restarted "$WORK/out" || restarts=$((restarts + 1))
	ended
done
[ $restarts -gt 0 ] || fail "nobody ever went on from a checkpoint"
fs_umount
echo "ok killed $killed times, went on $restarts times from a sealed checkpoint"
