#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# kill -9 of the daemon at random moments under 8 writers and the collector; nothing that was acknowledged may be lost
# (writers.c).
#   ROUNDS   how often (default 16)
#   WRITERS  how many (default 8)
# Every 50 rounds begin with an empty store: the collector cannot always keep up with 8 writers and is killed with them.
. "$(dirname "$0")/lib.sh"
need_root

: "${ROUNDS:=16}" "${WRITERS:=8}"
rounds_per_store=50
writers=$(program writers)
order=()
case ,${CKPTFS_OPTIONS:-}, in *,writeback,*) order=(unordered) ;; esac
mkdir "$WORK/acks"

# What a store holds survives a clean remount; then it goes.
end_store() {
	fs_remount
	"$writers" verify "$MNT" "$WORK/acks" "$WRITERS" "${order[@]}" || fail "after a clean remount"
	fs_umount
	fs_sound "after a clean remount"
	plain && rm -rf "${MNT:?}"/*
	rm -rf "$STORE" "$WORK/acks"
	mkdir "$WORK/acks"
}

# A mount that is killed while it recovers must be as good as none.
mount_and_kill() {
	"$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" --foreground >>"$WORK/daemon.log" 2>&1 &
	local pid=$!
	sleep "0.0$((RANDOM % 90 + 10))"
	kill -KILL "$pid" 2>/dev/null || true
	{ wait "$pid" || true; } 2>/dev/null
	fs_kill
}

fs_mount commit=1
collect_on
for round in $(seq "$ROUNDS"); do
	"$writers" run "$MNT" "$WORK/acks" "$WRITERS" "${order[@]}" >"$WORK/run.log" 2>&1 &
	pid=$!
	sleep "$((RANDOM % 2)).$((RANDOM % 900 + 100))"
	if plain; then # without a daemon only the writers can be killed
		{ kill -KILL $(pgrep -P "$pid") "$pid"; wait "$pid" || true; } 2>/dev/null
	else
		daemon_kill
		wait "$pid" || { cat "$WORK/run.log"; fail "round $round: a writer met an error that was not the daemon's death"; }
		fs_kill
		fs_sound "after round $round"
		[ $((round % 4)) != 0 ] || mount_and_kill
		fs_mount commit=1
	fi
	"$writers" verify "$MNT" "$WORK/acks" "$WRITERS" "${order[@]}" >"$WORK/verify.log" 2>&1 || {
		cat "$WORK/verify.log"
		fail "round $round of $ROUNDS"
	}
	[ $((round % rounds_per_store)) != 0 ] || { end_store; fs_mount commit=1; }
done
end_store
echo "$ROUNDS rounds, no violation"
