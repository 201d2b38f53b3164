#!/bin/bash
# Real mounts and real agents, several nodes on one machine: what all of them write is stored as often as replicas= says and evenly, is read back on all of
# them, and whatever dies, what was synced is there.
set -euo pipefail
build=${CKPTFS_BUILD:?is the build directory and must be set}
agent=$build/mpi-agent/ckptfs-agent
[ -x "$agent" ] || { echo "skipped: built without MPI"; exit 77; }
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }
[ -c /dev/fuse ] || { echo "skipped: no /dev/fuse"; exit 77; }
export OMPI_MCA_btl=self,vader
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
nodes=4 mib=16
top=$(mktemp -d)
agents=

cleanup() {
	[ -z "$agents" ] || kill "$agents" 2>/dev/null || true
	for ((i = 0; i < nodes; i++)); do fusermount3 -u -z "$top/m$i" 2>/dev/null || umount -l "$top/m$i" 2>/dev/null || true; done
	wait
	rm -rf "$top"
}
trap cleanup EXIT
fail() {
	echo "FAILED: $*"
	tail -n 20 "$top"/log* "$top/agents" 2>/dev/null
	exit 1
}

all() { # COMMAND...: beside each other, with I replaced by each node's number
	local pids=() i p
	for ((i = 0; i < nodes; i++)); do
		"${@//I/$i}" &
		pids+=($!)
	done
	for p in "${pids[@]}"; do wait "$p" || fail "${*//I/N}"; done
}
figure() { # NODE NAME
	"$build/tools/ckptfs-stat" --json "$top/m$1" | python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d["cluster"].get(sys.argv[1], d.get(sys.argv[1])))' "$2"
}
mounts() { all "$build/fs/mount.ckptfs" "$top/sI" "$top/mI" -o "cluster=$top/key,replicas=2,commit=600,log=$top/logI"; }
start_agents() {
	local i t
	# shellcheck disable=SC2016
	mpirun ${root:-} --oversubscribe -n $nodes sh -c \
		'CKPTFS_AGENT_HOST=h$OMPI_COMM_WORLD_RANK exec "$0" --mount "$1/m$OMPI_COMM_WORLD_RANK"' "$agent" "$top" >>"$top/agents" 2>&1 &
	agents=$!
	for ((i = 0; i < nodes; i++)); do
		for ((t = 0; $(figure $i nodes) != nodes; t++)); do
			[ $t -lt 600 ] || fail "node $i has no agent"
			sleep 0.1
		done
	done
}
stop_agents() {
	kill "$agents" 2>/dev/null || true
	wait "$agents" 2>/dev/null || true
	agents=
}
data() { python3 -c 'import random, sys
open(sys.argv[1], "wb").write(random.Random(sys.argv[2]).randbytes(int(sys.argv[3]) << 20))' "$top/$1" "$1" $mib; } # NAME
write_all() { all cp "$top/$1" "$top/mI/$1"; }
check_all() { all cmp "$top/$1" "$top/mI/$1"; }

head -c 32 /dev/urandom >"$top/key"
for ((i = 0; i < nodes; i++)); do mkdir "$top/m$i"; done
mounts
start_agents

echo "all have the same"
data one
write_all one
all sync "$top/mI/one"
sum=0
for ((i = 0; i < nodes; i++)); do
	stored=$(figure $i stored_bytes)
	sum=$((sum + stored))
	[ "$stored" -le $(((mib << 20) * 2 / nodes * 105 / 100)) ] || fail "node $i has stored $stored bytes of $((mib << 20))"
done
[ "$sum" -le $(((mib << 20) * 204 / 100)) ] || fail "$sum bytes are stored on all nodes together"
check_all one
for ((i = 0; i < nodes; i++)); do
	[ "$(figure $i fetched_bytes)" = "$(figure $i elsewhere_bytes)" ] || fail "node $i has read something else than what is elsewhere"
done

echo "without agents"
stop_agents
data two
write_all two
all sync "$top/mI/two"
check_all two

echo "agents come back"
start_agents
data three
write_all three
all sync "$top/mI/three"

echo "unmounting and mounting again"
all umount "$top/mI"
wait "$agents" || true
agents=
mounts
start_agents
for f in one two three; do check_all $f; done
all umount "$top/mI"
wait "$agents" || true
agents=
for ((i = 0; i < nodes; i++)); do
	t=0
	until "$build/tools/fsck.ckptfs" -n "$top/s$i" >"$top/fsck" 2>&1; do # the daemon ends a moment after the mount
		[ $((t += 1)) -lt 100 ] || fail "fsck.ckptfs finds something in store $i: $(cat "$top/fsck")"
		sleep 0.1
	done
done
