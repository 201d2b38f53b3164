#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Four mounts with their agents: what one node deletes others still read, and what all have deleted takes no space on any.
set -euo pipefail
build=${CKPTFS_BUILD:?is the build directory and must be set}
agent=$build/tests/cluster/ckptfs-agent gc=$build/tools/ckptfs-gc
[ -x "$agent" ] || { echo "skipped: built without MPI"; exit 77; }
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }
[ -c /dev/fuse ] || { echo "skipped: no /dev/fuse"; exit 77; }
export OMPI_MCA_btl=self,vader OMPI_MCA_odls_base_sigkill_timeout=0
export CKPTFS_AGENT_STALL_MS=10000 CKPTFS_AGENT_END_MS=3000

[ "$(id -u)" != 0 ] || root=--allow-run-as-root
nr=4
top=$(mktemp -d -p /var/tmp)
# What a rank that is killed leaves of its shared memory goes with the rest.
export OMPI_MCA_btl_vader_backing_directory=$top
daemons=() world=
cleanup() {
	[ -z "$world" ] || kill "$world" 2>/dev/null || true
	for ((i = 0; i < nr; i++)); do ! mountpoint -q "$top/m$i" || umount -l "$top/m$i"; done
	for pid in "${daemons[@]}"; do wait "$pid" 2>/dev/null || true; done
	rm -rf "$top"
}
trap cleanup EXIT
fail() {
	tail -v -n 20 "$top"/*.log 2>/dev/null | cut -c 1-300 || true
	echo "FAILED: $*"
	exit 1
}

# So long as it takes, within bounds.
await() { # COMMAND...
	local n
	for ((n = 0; n < 600; n++)); do
		! "$@" || return 0
		sleep 0.05
	done
	fail "does not come: $*"
}
stat_of() { "$build/tools/ckptfs-stat" --json "$top/m$1" | "$build/tests/mount/json_value" "$2"; } # NODE FIGURE
sees() { [ "$(stat_of "$1" cluster.nodes)" = "$2" ]; } # NODE NR
all_see() {
	local i
	for ((i = 0; i < nr; i++)); do sees $i "$1" || return 1; done
}
start_agents() { # FIRST NR
	# shellcheck disable=SC2016
	mpirun ${root:-} --oversubscribe -n "$2" sh -c \
		'CKPTFS_AGENT_HOST=h$OMPI_COMM_WORLD_RANK exec "$0" --mount "$1/m$(($2 + OMPI_COMM_WORLD_RANK))"' "$agent" "$top" "$1" >>"$top/agents.log" 2>&1 &
	world=$!
}
stop_agents() {
	kill "$world" 2>/dev/null || true
	wait "$world" 2>/dev/null || true
	world=
	await all_see 0
}
collect() { # NODE: with all; a node may still be at the end of one that another has begun
	local r
	while r=0; timeout 300 "$gc" --delete --json "$top/m$1" >"$top/said.log" 2>"$top/gc.log" || r=$?; [ $r != 0 ]; do
		grep -q "running already" "$top/gc.log" || fail "ckptfs-gc: exit status $r"
		sleep 0.1
	done
}
result() { "$build/tests/mount/json_value" "$1" <"$top/said.log"; }
kib() { du -sk "$top"/s?/packs | awk '{ n += $1 } END { print n }'; }
# The same on all nodes, of which the last has some from others. A node that comes to a round before others have written is alone in it: then once more.
write_all() { # FILE
	local i n pids
	for ((n = 0; n < 20; n++)); do
		head -c 16M /dev/urandom >"$top/data"
		pids=()
		for ((i = 0; i < nr; i++)); do
			dd if="$top/data" of="$top/m$i/$1" bs=1M conv=fsync status=none &
			pids+=($!)
		done
		for i in "${pids[@]}"; do wait "$i" || fail "cannot write"; done
		[ "$(stat_of 3 cluster.remote_bytes)" -lt $((4 << 20)) ] || return 0
		for ((i = 0; i < nr; i++)); do rm "$top/m$i/$1"; done
		collect 0
	done
	fail "the nodes share nothing"
}

head -c 64 /dev/urandom >"$top/key"
for ((i = 0; i < nr; i++)); do
	mkdir "$top/m$i"
	"$build/fs/mount.ckptfs" "$top/s$i" "$top/m$i" --foreground -o "cluster=$top/key,replicas=2,pending=64M" >"$top/daemon$i.log" 2>&1 &
	daemons+=($!)
done
for ((i = 0; i < nr; i++)); do await mountpoint -q "$top/m$i"; done

echo "without an agent"
collect 0
[ "$(result cluster)" = "no agent" ] || fail "cluster: $(result cluster)"
start_agents 0 $nr
await all_see $nr
before=$(kib)

echo "what others refer to stays"
write_all ck
for ((i = 0; i < nr - 1; i++)); do rm "$top/m$i/ck"; done
collect 0
[ "$(result cluster)" = together ] || fail "cluster: $(result cluster)"
[ "$(result cluster_pinned_bytes)" -ge $((4 << 20)) ] || fail "pinned: $(result cluster_pinned_bytes)"
echo 3 >/proc/sys/vm/drop_caches 2>/dev/null || true
cmp "$top/data" "$top/m3/ck" || fail "what was left cannot be read"

echo "what nobody refers to goes, on all nodes"
rm "$top/m3/ck"
collect 1
[ "$(result cluster)" = together ] || fail "cluster: $(result cluster)"
[ "$(result cluster_unpinned_bytes)" -ge $((4 << 20)) ] || fail "unpinned: $(result cluster_unpinned_bytes)"
gone() { [ $(($(kib) - before)) -lt 1024 ]; }
await gone
for ((i = 0; i < nr; i++)); do
	[ "$(stat_of $i cluster.pinned_bytes)" = 0 ] || fail "node $i still pins $(stat_of $i cluster.pinned_bytes)"
	[ "$(stat_of $i cluster.remote_bytes)" = 0 ] || fail "node $i refers to $(stat_of $i cluster.remote_bytes)"
done

echo "a node that is away keeps everything"
write_all again
stop_agents
for ((i = 0; i < nr - 1; i++)); do rm "$top/m$i/again"; done
start_agents 0 $((nr - 1))
await sees 0 $((nr - 1))
collect 0
[ "$(result cluster)" = missing ] || fail "cluster: $(result cluster)"
[ -n "$(result cluster_missing)" ] || fail "nobody is missing"
timeout 300 "$gc" --delete "$top/m0" >"$top/said.log"
grep -q "^Cluster: *node .* is not connected: pinned chunks stay" "$top/said.log" || fail "not told so"
stop_agents
start_agents 0 $nr
await all_see $nr
cmp "$top/data" "$top/m3/again" || fail "what a node that was away refers to is lost"

echo "an agent that dies in the middle takes nothing along"
for n in 1 2 3; do
	timeout 300 "$gc" --delete --json "$top/m0" >"$top/said.log" 2>&1 &
	asking=$!
	sleep 0.0$n
	# shellcheck disable=SC2009
	victim=$(ps --ppid "$world" -o pid= | sed -n "${n}p" | tr -d ' ')
	[ -z "$victim" ] || kill -9 "$victim" || true
	wait $asking || true
	stop_agents
	start_agents 0 $nr
	await all_see $nr
	cmp "$top/data" "$top/m3/again" || fail "lost when an agent died"
done
rm "$top/m3/again"
collect 2
[ "$(result cluster)" = together ] || fail "cluster: $(result cluster)"
await gone

stop_agents
for ((i = 0; i < nr; i++)); do
	"$build/tools/umount.ckptfs" "$top/m$i"
	wait "${daemons[$i]}" || fail "daemon $i: exit status $?"
	"$build/tools/fsck.ckptfs" "$top/s$i" >"$top/fsck.log" 2>&1 || fail "fsck of store $i: $(cat "$top/fsck.log")"
done
daemons=()
echo "all is as it should be"
