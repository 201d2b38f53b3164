#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Four mounts and their agents over real MPI. The same data, written out of step, is stored as often as replicas= says; agents and a daemon are killed in
# between, and every byte is there afterwards.
set -euo pipefail
build=${CKPTFS_BUILD:?is the build directory and must be set}
agent=$build/mpi-agent/ckptfs-agent nodes=4 mib=${MOUNTS_MIB:-6}
skip() { echo "skipped: $*"; exit 77; }
[ -x "$agent" ] || skip "built without MPI"
command -v mpirun >/dev/null || skip "no mpirun"
[ -c /dev/fuse ] || skip "no /dev/fuse"
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
export OMPI_MCA_btl=self,vader OMPI_MCA_odls_base_sigkill_timeout=0

top=$(mktemp -d "${TMPDIR:-/tmp}/ckptfs-mounts.XXXXXX")
# What a rank that is killed leaves of its shared memory goes with the rest.
export OMPI_MCA_btl_vader_backing_directory=$top
daemons=() world=
cleanup() {
	local i
	[ -z "$world" ] || kill -9 "$world" 2>/dev/null || true
	for i in "${daemons[@]}"; do kill -9 "$i" 2>/dev/null || true; done
	for ((i = 0; i < nodes; i++)); do umount -l "$top/m$i" 2>/dev/null || true; done
	rm -rf --one-file-system "$top"
}
trap cleanup EXIT

fail() {
	tail -v -n 20 "$top"/*.log 2>/dev/null | cut -c 1-300 || true
	echo "FAILED: $case: $*"
	exit 1
}
await() { # SECONDS WHAT COMMAND...: until it succeeds
	local until=$((SECONDS + $1)) what=$2
	shift 2
	until "$@"; do
		[ $SECONDS -lt $until ] || fail "$what: not within the time there is"
		sleep 0.05
	done
}
is_mounted() { grep -qs " $top/m$1 fuse" /proc/mounts; }
figure() { "$build/tools/ckptfs-stat" --json "$top/m$1" | "$build/tests/mount/json_value" "$2"; } # NODE KEY
cluster_figure() { figure "$1" "cluster.$2"; } # NODE NAME
knows_all() { [ "$(cluster_figure "$1" nodes)" = $nodes ]; }
is_alone() { [ "$(cluster_figure "$1" agent)" = false ]; }
is_gone() { [ ! -e "/proc/$1" ]; }

mount_node() { # NODE
	"$build/fs/mount.ckptfs" "$top/s$1" "$top/m$1" --foreground -o "cluster=$top/key,replicas=$replicas" >>"$top/daemon$1.log" 2>&1 &
	daemons[$1]=$!
	await 60 "mount $1" is_mounted "$1"
}
start_agents() {
	local i
	# shellcheck disable=SC2016
	timeout -k 5 200 mpirun ${root:-} --oversubscribe -n $nodes sh -c \
		'echo $$ >"$1/agent$OMPI_COMM_WORLD_RANK.pid"; CKPTFS_AGENT_HOST=h$OMPI_COMM_WORLD_RANK exec "$0" --mount "$1/m$OMPI_COMM_WORLD_RANK"' \
		"$agent" "$top" >>"$top/agents.log" 2>&1 &
	world=$!
	for ((i = 0; i < nodes; i++)); do await 60 "agent $i" knows_all $i; done
}
end_agents() { # SIGNAL NODE: that agent gets it, and all of them end
	local i
	kill "-$1" "$(cat "$top/agent$2.pid")"
	wait "$world" || true
	world=
	for ((i = 0; i < nodes; i++)); do await 60 "the end of agent $i" is_gone "$(cat "$top/agent$i.pid")"; done
	for ((i = 0; i < nodes; i++)); do await 60 "daemon $i" is_alone $i; done
}
random() { head -c "${mib}M" /dev/urandom >"$top/$1"; } # NAME
write() { dd if="$top/$2" of="$top/m$1/$2" bs=1M conv=fsync status=none; } # NODE NAME
at_once() { # NAME NODE...
	local i pids=() name=$1
	shift
	for i; do write "$i" "$name" & pids+=($!); done
	for i in "${pids[@]}"; do wait "$i" || fail "$name: cannot be written"; done
}
compare() { # NAME...: on all nodes
	local i name
	for name; do
		for ((i = 0; i < nodes; i++)); do cmp "$top/$name" "$top/m$i/$name" || fail "$name differs on node $i"; done
	done
}
stored() { # by all
	local i sum=0 n
	for ((i = 0; i < nodes; i++)); do
		n=$(figure "$i" stored_bytes)
		sum=$((sum + n))
	done
	echo $sum
}
stored_once() { # BYTES: since these, a file was stored as often as replicas says
	local grown=$(($(stored) - $1)) one=$((mib << 20))
	echo "  $grown bytes for $one"
	[ $grown -ge $((one * replicas)) ] || fail "only $grown bytes of $one were stored"
	[ $((grown * 100)) -le $((one * replicas * 102)) ] || fail "$grown bytes were stored for $one"
}

for replicas in 1 2; do
	case=replicas-$replicas
	echo "$case"
	head -c 32 /dev/urandom >"$top/key"
	for ((i = 0; i < nodes; i++)); do mkdir -p "$top/m$i"; mount_node $i; done
	start_agents

	echo "  one after the other"
	random a
	for ((i = 0; i < nodes; i++)); do write $i a; done
	stored_once 0

	echo "  one, and then all others"
	before=$(stored)
	random b
	write 3 b
	at_once b 0 1 2
	stored_once "$before"

	echo "  two, and then the others, one after the other"
	before=$(stored)
	random c
	at_once c 1 2
	write 0 c
	write 3 c
	stored_once "$before"
	compare a b c

	echo "  an agent is killed, and others come"
	random d
	write 1 d &
	writer=$!
	end_agents 9 2
	wait "$writer" || fail "d: cannot be written"
	write 0 d
	start_agents
	compare a b c
	for i in 2 3; do write $i d; done
	before=$(stored)
	random e
	for i in 2 0 3 1; do write $i e; done
	stored_once "$before"
	compare d e

	echo "  a daemon is killed, and is there again"
	random f
	write 0 f
	write 1 f &
	writer=$!
	kill -9 "${daemons[2]}"
	wait "${daemons[2]}" || true
	wait "$writer" || fail "f: cannot be written"
	umount -l "$top/m2"
	wait "$world" || true
	world=
	mount_node 2
	start_agents
	for i in 2 3; do write $i f; done
	compare a b c d e f

	echo "  all are unmounted, and mounted again"
	end_agents TERM 0
	for ((i = 0; i < nodes; i++)); do
		umount "$top/m$i"
		wait "${daemons[$i]}" || fail "daemon $i: exit status $?"
		daemons[$i]=
		"$build/tools/fsck.ckptfs" "$top/s$i" >"$top/fsck.log" 2>&1 || fail "store $i: fsck.ckptfs exit status $?"
	done
	daemons=()
	for ((i = 0; i < nodes; i++)); do mount_node $i; done
	start_agents
	compare a b c d e f
	end_agents TERM 0
	for ((i = 0; i < nodes; i++)); do
		umount "$top/m$i"
		wait "${daemons[$i]}" || fail "daemon $i: exit status $?"
	done
	daemons=()

	echo "  one is left, without agents"
	rm -rf "$top"/s[1-3]
	mount_node 0
	! cmp -s "$top/b" "$top/m0/b" 2>/dev/null || fail "nothing of b was elsewhere"
	dd if="$top/b" of="$top/m0/g" bs=1M conv=fsync status=none
	for name in b g; do cmp "$top/b" "$top/m0/$name" || fail "$name cannot be read where it was written once more"; done
	umount "$top/m0"
	wait "${daemons[0]}" || fail "daemon 0: exit status $?"
	daemons=()
	rm -rf "$top"/s? "$top"/[a-f] "$top"/*.log "$top"/*.pid
done
echo "all is as it should be"
