#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A node that had nothing in common with others for some checkpoints asks them no more, and stores at once. What it stores so is told, and if others have the same,
# by a round or alone, it is found out: then it asks again. Three nodes over real MPI.
. "$(dirname "$0")/nodes.sh"

MIB=5 # of a file; more than a commit must have to be judged by
random() { head -c "${MIB}M" /dev/urandom >"$TOP/$1"; } # NAME
write() { dd if="$TOP/$2" of="$TOP/mnt/$1/$2" bs=1M conv=fsync status=none; } # NODE NAME
rounds() { node_figure "$1" cluster.rounds; } # NODE
stored() { # by all
	echo $(($(node_figure 0 stored_bytes) + $(node_figure 1 stored_bytes) + $(node_figure 2 stored_bytes)))
}
grown() { # BYTES MIB WHAT: since there were these, so many MiB were stored
	local by=$(($(stored) - $1))
	[ $by = $(($2 << 20)) ] || fail "$3: $by bytes were stored, and not $2 MiB"
}
asks() { # NODE: it takes part in a round with something new
	local before
	before=$(rounds "$1")
	head -c 4096 /dev/urandom >"$TOP/mnt/$1/small"
	sync "$TOP/mnt/$1/small"
	[ "$(rounds "$1")" -gt "$before" ]
}
asks_not() { ! asks "$1"; }
alone() { # NODE NAME: until it asks no more
	local i
	for i in 1 2 3; do
		random "$2.$i"
		write "$1" "$2.$i"
	done
	asks_not "$1" || fail "node $1 asks though it was alone"
}

for i in 0 1 2; do node_start $i replicas=1,commit=3600; done # nothing is committed in parts
agents_start

echo "what a round has settled"
random settled
write 0 settled &
write 1 settled
wait $!
alone 2 a
before=$(stored)
write 2 settled
grown "$before" $MIB "what node 2 does not ask about"
eventually 60 "node 2 does not find out that others have it" asks 2

echo "what one node has stored alone"
random single
write 0 single
before=$(stored)
write 2 single
grown "$before" 0 "what node 2 asks about"

echo "what two that ask no more store at once"
alone 1 b
before=$(stored)
random both
alone 0 c
before=$(stored)
write 0 both &
write 1 both
wait $!
grown "$before" $((2 * MIB)) "what nodes 0 and 1 do not ask about"
for i in 0 1; do eventually 60 "node $i does not find out that the other has it" asks $i; done
before=$(stored)
random again
write 0 again &
write 1 again
wait $!
grown "$before" $MIB "what nodes 0 and 1 ask about again"

for name in settled single; do cmp "$TOP/$name" "$TOP/mnt/2/$name" || fail "$name differs"; done
for i in 0 1; do
	for name in settled both again; do cmp "$TOP/$name" "$TOP/mnt/$i/$name" || fail "$name differs on node $i"; done
done
all_end
for i in 0 1 2; do "$BUILD/tools/fsck.ckptfs" "$TOP/store/$i" >"$TOP/log/fsck" 2>&1 || fail "fsck of store $i: exit status $?"; done
echo "all is as it should be"
