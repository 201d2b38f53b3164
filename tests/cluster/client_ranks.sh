#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# libckptfs, MPI, ckptfs-seal and agents together: 4 ranks on two nodes, each node with a mount of its own. What all ranks have is stored once on both nodes together. They are killed at random
# moments, and once all nodes with them; they go on from the newest step that is sealed on both, all from the same, and come to the result of ranks that are not disturbed.
#   ROUNDS   how often they are killed (default 4)
. "$(dirname "$0")/nodes.sh"
: "${ROUNDS:=4}"
steps=60
nodes_start() {
	local i
	for i in 0 1; do node_start "$i" replicas=1; done
	agents_start
}
ring() { echo "'$BUILD/tests/cluster/ring' '$TOP/mnt'/\$NODE/$1 $steps '$BUILD/tools/ckptfs-seal'"; } # DIRECTORY
sum() { echo $(($(node_figure 0 "$1") + $(node_figure 1 "$1"))); } # KEY: of both nodes
settled() { [ "$(sum cluster.pending_bytes)" = 0 ]; }
taken() { { find "$TOP/mnt/0/disturbed$runs" -maxdepth 1 -name '[0-9]*' 2>/dev/null || true; } | wc -l; }
one_more() { [ "$(taken)" -gt "$have" ] || ! running "$PROGRAM"; }
sealed() { "$BUILD/tools/ckptfs-seal" --list "$TOP/mnt/$1" | grep -o "disturbed$runs/[0-9]*" | sort | tail -n 1; } # NODE: its newest
# As if they had been killed when one node had sealed a step and the other one had not.
lose_a_seal() {
	local newest
	newest=$(sealed 1) || return 0 # it has none yet
	"$BUILD/tools/ckptfs-seal" --quiet --unseal "$TOP/mnt/1/$newest" || fail "node 1: $newest cannot be unsealed"
}
result() { grep ^result "$TOP/log/program"; }

nodes_start
program_run 2 "$(ring alone)"
right=$(result) || fail "no result"
# Each rank has a table of 1.5 MiB, which is the same for all: one node stores it, the other one refers to that. On a busy
# machine a node may commit some of it before the nodes have agreed, so an eighth has to do.
eventually 60 "data waits for a round" settled
elsewhere=$(sum cluster.remote_bytes) stored=$(sum stored_bytes) written=$(sum written_bytes)
[ "$elsewhere" -ge $((3 * 65536 * 8 / 8)) ] || fail "of $stored distinct bytes only $elsewhere are those of another node"
echo "ok of $written bytes of 4 ranks $stored are distinct and stored, $elsewhere of them for the other node, too"

restarts=0 killed=0 runs=0
ended() { # as it should
	[ "$(result)" = "$right" ] || fail "$(result), undisturbed: $right"
	runs=$((runs + 1))
}
# On a busy machine they may be killed each time before a step is sealed on both nodes.
while [ $killed -lt "$ROUNDS" ] || { [ $restarts = 0 ] && [ $killed -lt $((8 * ROUNDS)) ]; }; do
	have=$(taken)
	program_start 2 "$(ring disturbed$runs)"
	eventually 120 "no checkpoint $((have + 1))" one_more
	sleep "0.$(printf %03d $((RANDOM % 300)))"
	! said '^restarted' || restarts=$((restarts + 1))
	if ! running "$PROGRAM"; then
		program_end
		ended
		continue
	fi
	killed=$((killed + 1))
	case $killed in
	2) all_die; nodes_start ;;
	3) kill_mpirun "$PROGRAM"; lose_a_seal ;;
	*) kill_mpirun "$PROGRAM" ;;
	esac
done
program_run 2 "$(ring disturbed$runs)"
! said '^restarted' || restarts=$((restarts + 1))
ended
[ $restarts -gt 0 ] || fail "nobody ever went on from a checkpoint"
fetched=$(sum cluster.fetched_bytes)
[ "$fetched" -gt 0 ] || fail "nothing was read from the other node"
echo "ok killed $killed times in $runs runs, once with both nodes; went on $restarts times from a step that is sealed on both, with $fetched bytes from the other node"
all_end
