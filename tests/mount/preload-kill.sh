#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# kill -9 of a program that runs on libckptfs-preload.so, at random moments: its newest checkpoint is its memory at one moment, and its heap can be used on.
#   ROUNDS   how often (default 8)
. "$(dirname "$0")/lib.sh"
need_mount

: "${ROUNDS:=8}"
preload=$CKPTFS_BUILD/client/libckptfs-preload.so
[ -e "$preload" ] || skip "not built with sanitizers, which have an allocator of their own"
captured=$(program captured) check=$(program captured_check)

newest() { { find "$1" -maxdepth 1 -name '[0-9]*' -printf '%f\n' 2>/dev/null || true; } | sort | tail -n 1; } # DIR; nothing if there is none

fs_mount
dir=$MNT/captured modes=(adaptive async predictive)
mkfifo "$WORK/in"
exec 3<>"$WORK/in" # which never ends
begun() { grep -q ^root "$WORK/out"; } # all that is looked at is there
# A checkpoint that began when it was has ended: the second one from then on.
has_something() {
	local now
	now=$(newest "$dir")
	begun && { : "${seen:=$now}"; [ "$((10#${now:-0}))" -ge $((10#${seen:-0} + 2)) ]; }
}
checked=0 early=0
for round in $(seq "$ROUNDS"); do
	before=$(newest "$dir") seen=
	: >"$WORK/out"
	CKPTFS_MODE=${modes[$((round / 2 % 3))]} CKPTFS_DIR=$dir CKPTFS_PERIOD=0.02 CKPTFS_KEPT=3 CKPTFS_COW=$((RANDOM % 3 * 128))K LD_PRELOAD=$preload \
		"$captured" <&3 >"$WORK/out" 2>"$WORK/errors" &
	pid=$!
	# Every other time when there is something to look at.
	while [ $((round % 2)) = 0 ] && ! has_something; do
		running $pid || { cat "$WORK/errors"; fail "round $round: it ended by itself"; }
		! grep 'none are taken' "$WORK/errors" || skip "no userfaultfd"
		sleep 0.01
	done
	sleep "0.$(printf %03d $((RANDOM % 400)))"
	kill -KILL $pid
	code=0
	{ wait $pid || code=$?; } 2>/dev/null
	[ $code = 137 ] || { cat "$WORK/errors"; fail "round $round: exit status $code"; }
	number=$(newest "$dir")
	[ "$number" != "$before" ] || continue
	root=$(sed -n 's/^root //p' "$WORK/out")
	code=0
	anywhere "$check" "$dir" "$number" "${root:-0}" >/dev/null 2>"$WORK/errors" || code=$?
	[ $code = 0 ] || { [ $code = 3 ] && [ $((round % 2)) = 1 ]; } || fail "round $round: checkpoint $number: $(cat "$WORK/errors")"
	[ -z "$(find "$dir" -name '.*part')" ] || fail "something is left: $(ls -A "$dir")"
	[ $code = 0 ] && checked=$((checked + 1)) || early=$((early + 1))
done
[ $checked -gt 0 ] || fail "there was never a checkpoint"
fs_umount
echo "ok killed $ROUNDS times, and $checked times its newest checkpoint was of one moment; $early times it was of one before the program had begun"
