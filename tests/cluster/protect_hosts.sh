#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Nodes of one host are lost together: what two of them have is not protected by that. Pages that two nodes own are referred to by two others; then the owners are
# found to be on one host, and both are lost after one of the others has sealed what it refers to.
. "$(dirname "$0")/nodes.sh"

seal() { "$BUILD/tools/ckptfs-seal" "$@"; }
write() { mkdir "$TOP/mnt/$1/sealed" && dd if="$TOP/data" of="$TOP/mnt/$1/sealed/data" bs=1M conv=fsync status=none; } # NODE

head -c 3M /dev/urandom >"$TOP/data"
for i in 0 1 2 3; do node_start $i protect=partner,replicas=2,commit=3600; done # nothing is committed in parts
agents_start
write 1 & write 2
wait $!
for i in 0 3; do
	write $i
	[ "$(node_figure $i stored_bytes)" = 0 ] || fail "node $i has stored what others own"
done
agents_end

export HOST_1=both HOST_2=both
agents_start
seal --quiet --wait=replicated "$TOP/mnt/0/sealed"
agents_end
for i in 1 2; do
	node_dies $i
	rm -r "$TOP/store/$i"
done
agents_start 0 3
cmp "$TOP/data" "$TOP/mnt/0/sealed/data" || fail "what node 0 has sealed is lost with a host"

# Agents end during --repair: the command reports it, and the work continues when they run again.
mkdir "$TOP/mnt/0/more"
head -c 3M /dev/urandom >"$TOP/mnt/0/more/data"
kill -STOP "${DAEMONS[3]}"
seal --quiet "$TOP/mnt/0/more"
"$BUILD/mpi-agent/ckptfs-agent" --mount "$TOP/mnt/0" --repair >"$TOP/log/heal" 2>&1 &
heal=$!
sleep 1
kill_mpirun "$AGENTS"
AGENTS=
eventually 60 "who waits for what cannot come" is_over $heal
wait $heal && fail "--repair succeeds without agents"
grep -q 'the agents ended before everything was re-replicated' "$TOP/log/heal" || fail "it does not say why"
kill -CONT "${DAEMONS[3]}"
agents_start 0 3
timeout 300 "$BUILD/mpi-agent/ckptfs-agent" --mount "$TOP/mnt/0" --repair || fail "--repair fails"
all_end
echo "all is as it should be"
