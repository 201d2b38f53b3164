#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# libckptfs on two nodes, a rank on each, whose memory is the same in most pages: checkpoints have them once on both nodes together, and what goes on from them, after all has been
# unmounted, reads from the other node what it does not have and comes to the same result as one that was not disturbed.
. "$(dirname "$0")/nodes.sh"
client=$BUILD/tests/mount/client mib=16
for i in 0 1; do node_start "$i" replicas=1; done
agents_start

"$client" "$TOP/undisturbed" 30 100 $mib >"$TOP/log/undisturbed" 2>&1 || fail "undisturbed"
right=$(grep ^result "$TOP/log/undisturbed")

sum() { echo $(($(node_figure 0 "$1") + $(node_figure 1 "$1"))); } # KEY: of both nodes
settled() { [ "$(sum cluster.pending_bytes)" = 0 ]; }

# Each ends after its checkpoint, before the end.
program_run 1 "'$client' '$TOP/mnt'/\$NODE/run 12 10 $mib"
for i in 0 1; do [ -s "$TOP/mnt/$i/run/000001" ] || fail "node $i: no checkpoint: $(ls "$TOP/mnt/$i/run")"; done
eventually 60 "data waits for a round" settled
stored=$(sum stored_bytes) written=$(sum written_bytes) elsewhere=$(sum cluster.remote_bytes)
# Both have the same distinct pages: each is in one store, and the other one refers to it. Headers and tables are different.
[ "$elsewhere" -gt 500000 ] && [ $((stored - elsewhere)) -lt 50000 ] || fail "$stored distinct bytes are stored, $elsewhere are on the other node"
echo "ok of two ranks' $written bytes $stored are distinct and stored, $elsewhere of them for the other node, too"

all_end
for i in 0 1; do node_start "$i" replicas=1; done
agents_start
program_run 1 "'$client' '$TOP/mnt'/\$NODE/run 30 100 $mib"
[ "$(grep -c ^restarted "$TOP/log/program")" = 2 ] || fail "they did not go on from their checkpoints"
[ "$(grep -cFx "$right" "$TOP/log/program")" = 2 ] || fail "the results differ: $(grep ^result "$TOP/log/program"); undisturbed: $right"
fetched=$(sum cluster.fetched_bytes)
[ "$fetched" -gt 0 ] || fail "nothing was read from the other node"
echo "ok both went on, with $fetched bytes from the other node, and came to the same result"
all_end
