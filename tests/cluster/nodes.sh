# SPDX-License-Identifier: GPL-3.0-or-later
# Sourced by tests that run several nodes on this machine: node I has the store $TOP/store/I, the mount $TOP/mnt/I, a daemon, and its agent.
# Nothing is left behind, whatever happens.

set -eEuo pipefail
BUILD=${CKPTFS_BUILD:?is the build directory and must be set}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

skip() { echo "skipped: $*"; exit 77; }
[ -x "$BUILD/mpi-agent/ckptfs-agent" ] || skip "built without MPI"
command -v mpirun >/dev/null || skip "no mpirun"
[ -c /dev/fuse ] || skip "no /dev/fuse"

# Ranks that wait give others their processor; mpirun gives those that are left a second, which no test here needs.
export OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_odls_base_sigkill_timeout=0
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1

TOP=$(mktemp -d "${TMPDIR:-/tmp}/ckptfs-nodes.XXXXXX")
DAEMONS=() # by node
AGENTS= # mpirun of them
PROGRAM= # mpirun of what is tested
export BUILD TOP
head -c 64 /dev/urandom >"$TOP/key"
chmod 600 "$TOP/key"
# What a rank that is killed leaves of its shared memory goes with the rest.
export OMPI_MCA_btl_vader_backing_directory=$TOP
mkdir "$TOP/store" "$TOP/mnt" "$TOP/log"

fail() { # WHY
	echo "$*" >"$TOP/failed" # a subshell can call this
	exit 1
}
running() { [ -n "$1" ] && kill -0 "$1" 2>/dev/null; } # PID
mounted() { grep -qs " $TOP/mnt/$1 fuse" /proc/mounts; } # NODE

# eventually SECONDS WHAT COMMAND...: it succeeds
eventually() {
	local tries=$(($1 * 20)) what=$2
	shift 2
	until "$@" 2>/dev/null; do
		[ $((tries -= 1)) -gt 0 ] || fail "$what"
		sleep 0.05
	done
}

is_over() { # PID, of a child
	[ "$(ps -o stat= -p "$1" | cut -c 1)" = Z ] || ! running "$1"
}
# agents_end: whatever mpirun says of how they do. That it waits on when all of them have gone is no fault of theirs.
agents_end() {
	local agent i
	kill -TERM "$AGENTS" 2>/dev/null || true # they end by themselves when a node dies
	for agent in $(pgrep -P "$AGENTS"); do eventually 120 "an agent does not end: $(ps -o pid=,stat=,wchan=,args= -p "$agent")" is_over "$agent"; done
	for ((i = 0; i < 400; i++)); do
		! is_over "$AGENTS" || break
		sleep 0.05
	done
	is_over "$AGENTS" || { echo "mpirun waits for nobody"; kill -KILL "$AGENTS"; }
	wait "$AGENTS" || true
	AGENTS=
}

# node_start NODE [OPTIONS]: a mount, made if it is not there
node_start() {
	mkdir -p "$TOP/mnt/$1"
	"$BUILD/fs/mount.ckptfs" "$TOP/store/$1" "$TOP/mnt/$1" --foreground -o "cluster=$TOP/key,log_level=debug${2:+,$2}" >>"$TOP/log/daemon.$1" 2>&1 &
	DAEMONS[$1]=$!
	eventually 60 "node $1 does not mount" mounted "$1"
}
node_figure() { "$BUILD/tools/ckptfs-stat" --json "$TOP/mnt/$1" | "$BUILD/tests/mount/json_value" "$2"; } # NODE KEY
has_agent() { [ "$(node_figure "$1" cluster.nodes)" = "$2" ]; } # NODE NR

# agents_start [NODE...]: one for each node, in this order, each on a host of its own; HOST_I is that of node I, if it is another
agents_start() {
	local i
	[ $# -gt 0 ] || set -- "${!DAEMONS[@]}"
	# shellcheck disable=SC2016
	mpirun -n $# sh -c 'shift $OMPI_COMM_WORLD_RANK; eval "host=\${HOST_$1:-host$1}"; CKPTFS_AGENT_HOST=$host exec "$BUILD/mpi-agent/ckptfs-agent" --mount "$TOP/mnt/$1"' sh "$@" \
		>>"$TOP/log/agents" 2>&1 &
	AGENTS=$!
	for i; do eventually 60 "node $i has no agent" has_agent "$i" $#; done
}

# program_start RANKS-PER-NODE COMMAND...: in the background, ranks in the order of nodes; $NODE is the number of a rank's node
program_start() {
	local each=$1
	shift
	# shellcheck disable=SC2016
	NODES=${!DAEMONS[*]} EACH=$each mpirun -n $((each * ${#DAEMONS[@]})) sh -c 'command=$1; set -- $NODES; shift $((OMPI_COMM_WORLD_RANK / EACH))
		export NODE=$1; eval "exec $command"' sh "$*" >"$TOP/log/program" 2>&1 &
	PROGRAM=$!
}
program_end() { # it ends well
	wait "$PROGRAM" || fail "the program's exit status is $?"
	PROGRAM=
}
program_run() { program_start "$@"; program_end; }
said() { grep -qs -- "$1" "$TOP/log/program"; } # REGEX

# A process and all that it has started, at once, as when the power goes.
kill_tree() { # PID
	local child
	kill -STOP "$1" 2>/dev/null || return 0
	for child in $(pgrep -P "$1"); do kill_tree "$child"; done
	kill -KILL "$1" 2>/dev/null || true
}
kill_mpirun() { # PID
	running "$1" || return 0
	kill_tree "$1"
	{ wait "$1" || true; } 2>/dev/null
}

# all_die: program, agents and daemons
all_die() {
	local i
	kill_mpirun "$PROGRAM"
	kill_mpirun "$AGENTS"
	PROGRAM='' AGENTS=''
	for i in "${!DAEMONS[@]}"; do node_dies "$i"; done
}
node_dies() { # NODE: its daemon, and the dead mount
	! running "${DAEMONS[$1]}" || kill -KILL "${DAEMONS[$1]}"
	{ wait "${DAEMONS[$1]}" || true; } 2>/dev/null
	unset "DAEMONS[$1]"
	while mounted "$1"; do umount -l "$TOP/mnt/$1" || break; done
}

# all_end: as an administrator does it; each has to end well
all_end() {
	local i
	agents_end
	for i in "${!DAEMONS[@]}"; do
		eventually 60 "node $i cannot be unmounted" umount "$TOP/mnt/$i"
		wait "${DAEMONS[$i]}" || fail "the daemon of node $i: exit status $?"
		unset "DAEMONS[$i]"
	done
}

nodes_cleanup() {
	local code=$?
	trap - EXIT
	set +e
	cd /
	if [ "$code" != 0 ] && [ "$code" != 77 ]; then # the reason last: ./run-tests shows the last lines
		tail -n 20 "$TOP"/log/*
		if [ -s "$TOP/failed" ]; then echo "FAILED: $(cat "$TOP/failed")"; else echo "FAILED: ${failed_at:-exit code $code}"; fi
	fi >&2
	all_die
	rm -rf --one-file-system "$TOP"
	exit "$code"
}
trap nodes_cleanup EXIT
trap 'failed_at="${BASH_SOURCE[0]##*/} line $LINENO: $BASH_COMMAND"' ERR
trap 'exit 130' INT
trap 'exit 143' TERM HUP
