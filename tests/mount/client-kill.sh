#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# kill -9 of a program that takes checkpoints with libckptfs, at random moments: it goes on from its newest one and comes to the same
# result as one that is not disturbed.
#   ROUNDS   how often at least (default 30)
. "$(dirname "$0")/lib.sh"

: "${ROUNDS:=30}"
client=$(program client)
steps=120
modes=(adaptive async predictive sync)
trackings=("" mprotect)

result() { sed -n 's/^result //p' "$1"; }

fs_mount
"$client" "$WORK/undisturbed" $steps 1000 >"$WORK/undisturbed.out" 2>/dev/null || fail "undisturbed"
right=$(result "$WORK/undisturbed.out")
[ -n "$right" ] || fail "no result"

killed=0 runs=0 restarts=0
while [ $killed -lt "$ROUNDS" ]; do
	dir=$MNT/run$runs
	export CKPTFS_MODE=${modes[$((runs % 4))]} CKPTFS_TRACKING=${trackings[$((runs / 4 % 2))]} CKPTFS_COW=$((RANDOM % 3 * 128))K
	for tries in $(seq 200); do
		CKPTFS_KEPT=3 "$client" "$dir" $steps 3 >"$WORK/out" 2>"$WORK/said" &
		pid=$!
		# Later each time, so that it ends at last.
		ms=$((RANDOM % 60 + tries * 20))
		sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
		kill -KILL "$pid" 2>/dev/null || true
		code=0
		{ wait "$pid" || code=$?; } 2>/dev/null
		[ $code != 137 ] || killed=$((killed + 1))
		! grep -q ^restarted "$WORK/out" || restarts=$((restarts + 1))
		[ $code = 0 ] && break
		[ $code = 137 ] || { cat "$WORK/said"; fail "$CKPTFS_MODE: exit status $code"; }
	done
	[ $code = 0 ] || fail "$CKPTFS_MODE: it does not come to its end"
	[ "$(result "$WORK/out")" = "$right" ] || fail "$CKPTFS_MODE ${CKPTFS_TRACKING:-default}: $(result "$WORK/out"), undisturbed: $right"
	[ "$(find "$dir" -name '[0-9]*' | wc -l)" = 3 ] || fail "not 3 checkpoints are kept: $(ls "$dir")"
	[ -z "$(find "$dir" -name '.*part')" ] || fail "something is left: $(ls -A "$dir")"
	rm -r "$dir"
	runs=$((runs + 1))
done
[ $restarts -gt 0 ] || fail "nobody ever went on from a checkpoint"
fs_umount
echo "ok killed $killed times in $runs runs, which went on $restarts times"
