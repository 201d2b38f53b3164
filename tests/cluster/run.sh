#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-run on several nodes, all of them on this machine: mounts on each, agents over real MPI, each drains its own; and nothing is left mounted, also
# where a node cannot mount, the agents are killed, or ckptfs-run itself is. Once by mpirun, once by what stands in for srun.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
need_root
need mpirun
[ -x "$CKPTFS_BUILD/mpi-agent/ckptfs-agent" ] || skip "built without MPI"
mkdir "$WORK/bin"
export PATH=$WORK/bin:$CKPTFS_BUILD/tools:$CKPTFS_BUILD/fs:$CKPTFS_BUILD/mpi-agent:$PATH
unset "${!SLURM_@}" "${!PBS_@}" "${!FLUX_@}" "${!OMPI_@}" CKPTFS_STORE CKPTFS_MOUNT XDG_RUNTIME_DIR
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_vader_backing_directory=$WORK

# All that ckptfs-run wants of srun: a process for each node with its number, their input, and agents that are a world of MPI.
cat >"$WORK/bin/srun" <<'SH'
#!/bin/bash
options=$*
while [[ $1 == -* ]]; do
	case $1 in --ntasks=*) tasks=${1#*=} ;; esac
	shift
done
case " $* " in *" --agent "*) echo "$options" >>"$WORK/agents.options"; exec mpirun --oversubscribe -n "$tasks" "$@" ;; esac
pids=() code=0
cd "$(mktemp -d "$WORK/srun.XXXXXX")"
for ((i = 0; i < tasks; i++)); do
	mkfifo "in$i"
	SLURM_NODEID=$i "$@" <"in$i" &
	pids+=($!)
done
for ((i = 0; i < tasks; i++)); do eval "exec $((i + 10))>in$i"; done
read -r -n 1 word && for ((i = 0; i < tasks; i++)); do printf %s "$word" >&$((i + 10)); done
cat # until the end of the input
for ((i = 0; i < tasks; i++)); do eval "exec $((i + 10))>&-"; done
for i in "${pids[@]}"; do wait "$i" || code=$?; done
exit $code
SH
# What it does for programs of MPI, where nothing else is asked for
cat >"$WORK/bin/scontrol" <<'SH'
#!/bin/sh
[ "$*" = "show config" ] && printf 'MinJobAge               = 300 sec\nMpiDefault              = %s\nMpiParams               = (null)\n' "${SITE_MPI:-none}"
SH
chmod +x "$WORK/bin/srun" "$WORK/bin/scontrol"

head -c 32 /dev/urandom >"$WORK/key"
chmod 600 "$WORK/key"
nothing_left() {
	! grep -q "$WORK" /proc/mounts || fail_showing "left mounted $1: $(grep "$WORK" /proc/mounts)"
	[ -z "$(find "$WORK" -maxdepth 1 -name 'm *')" ] || fail_showing "a mountpoint is left $1"
}
cat >"$WORK/program" <<'SH'
set -eu
ckptfs-stat --json "$WORK/m 0" | grep -q '"nodes":3' # the agents have met
for i in 1 2; do until ckptfs-stat --json "$WORK/m $i" | grep -q '"nodes":3'; do sleep 0.05; done; done # that of node 0 says nothing of them
for i in 0 1 2; do
	mkdir "$WORK/m $i/step.1"
	dd if="$WORK/state" of="$WORK/m $i/step.1/state" bs=1M conv=fsync status=none &
done
wait
for i in 0 1 2; do ckptfs-seal -q "$WORK/m $i/step.1"; done
exit 5
SH

cat >"$WORK/kill-agent" <<'SH'
set -eu
figure() { ckptfs-stat --json "$WORK/m $1" | grep -q "$2"; }
for i in 0 1 2; do until figure $i '"nodes":3'; do sleep 0.05; done; done
for process in /proc/[0-9]*; do
	words=$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null) || continue
	[ "$words" != "ckptfs-agent --mount $WORK/m 1 " ] || kill -KILL "${process#/proc/}"
done
for i in 0 1 2; do until figure $i '"agent":false'; do sleep 0.05; done; done
until grep -q "agents have ended" "$WORK/said"; do sleep 0.05; done
SH

cat >"$WORK/survivor" <<'SH'
trap 'exit 3' TERM
echo durable >"$WORK/m 1/durable"
sync "$WORK/m 1/durable"
exec 5<"$WORK/m 1/durable"
echo started
while cat /dev/fd/5 >/dev/null 2>&1; do sleep 0.05; done # until the daemon dies; mounted again, it stays so
exec 5<&-
until grep -qx durable "$WORK/m 1/durable" 2>/dev/null; do sleep 0.05; done
SH

for launcher in "mpirun --oversubscribe -n %d" srun; do
	echo "--- $launcher ---"
	rm -rf "$WORK"/s?.store "$WORK"/to.*
	noise "$launcher" 4 >"$WORK/state"
	nodes=(--launcher "$launcher" --nodes 3 --job many --store "$WORK/s%n.store" --mount "$WORK/m %n")
	exits 5 ckptfs-run "${nodes[@]}" -o "cluster=$WORK/key,replicas=1" --flush-to "$WORK/to.%n" bash "$WORK/program"
	for i in 0 1 2; do cmp "$WORK/state" "$WORK/to.$i/step.1/state" || fail_showing "node $i has drained something else"; done
	stored=$(du -ck "$WORK"/s?.store/packs | tail -n 1 | cut -f 1)
	[ "$stored" -lt 8192 ] || fail_showing "three nodes store $stored KiB: nothing was shared"
	nothing_left "after a program"

	# One cannot drain, as it turns out when the program has run, or is known before: then it is not run.
	# shellcheck disable=SC2016
	exits 125 ckptfs-run "${nodes[@]}" -o "cluster=$WORK/key,replicas=1" --no-agent --flush-to "$WORK/to.%n" sh -c 'rm -r "$0" && : >"$0"' "$WORK/to.1"
	says "flush-to $WORK/to.1: Not a directory"
	says "not all nodes ended without error"
	exits 125 ckptfs-run "${nodes[@]}" -o "cluster=$WORK/key,replicas=1" --no-agent --flush-to "$WORK/to.%n" touch "$WORK/ran"
	says "flush-to $WORK/to.1: Not a directory"
	says "not all nodes have mounted"
	[ ! -e "$WORK/ran" ] || fail_showing "the program has run, though a node cannot drain"
	rm "$WORK/to.1"

	# Agents die, and the job goes on.
	exits 0 ckptfs-run "${nodes[@]}" bash "$WORK/kill-agent"
	says "the agents have ended; from now on each node stores"
	nothing_left "after agents have died"

	# The daemon of one node dies: told at once, and mounted again there; or the program is ended.
	for death in remount end; do
		: >"$WORK/first"
		ckptfs-run "${nodes[@]}" --no-agent --on-daemon-death $death bash "$WORK/survivor" >"$WORK/first" 2>&1 &
		first=$!
		await grep -q started "$WORK/first"
		kill -KILL "$(stat_json "$WORK/m 1" | json pid)"
		await grep -q "m 1: its daemon died" "$WORK/first"
		code=0
		wait "$first" || code=$?
		case $death in
		remount)
			grep -q "m 1: mounted again" "$WORK/first" && [ "$code" = 125 ] || fail "exit code $code: $(cat "$WORK/first")" ;;
		end)
			[ "$code" = 3 ] || fail "the program was not ended, exit code $code: $(cat "$WORK/first")" ;;
		esac
		nothing_left "after a daemon has died ($death)"
	done

	# Some cannot mount.
	: >"$WORK/s1.store.file"
	mv "$WORK/s1.store" "$WORK/away"
	mv "$WORK/s1.store.file" "$WORK/s1.store"
	exits 125 ckptfs-run "${nodes[@]}" touch "$WORK/ran"
	says "not all nodes have mounted"
	[ ! -e "$WORK/ran" ] || fail "the program has run without its mounts"
	rm "$WORK/s1.store"
	mv "$WORK/away" "$WORK/s1.store"
	nothing_left "after one could not mount"

	# ckptfs-run is killed: the process that holds the mounts sees it.
	: >"$WORK/first"
	ckptfs-run "${nodes[@]}" --no-agent sh -c 'echo started; exec sleep 1000' >"$WORK/first" 2>&1 &
	first=$!
	await grep -q started "$WORK/first"
	kill -KILL "$first"
	wait "$first" || true
	await sh -c '! grep -q "$0/m" /proc/mounts' "$WORK"
	await sh -c '[ -z "$(find "$0" -maxdepth 1 -name "m *")" ]' "$WORK" # ls would fail, too, if one goes while it looks
done

# Agents are a program of MPI, also where Slurm has nothing for these by itself; what the user has chosen stays.
cat >"$WORK/wait" <<'SH'
for i in 0 1 2; do until ckptfs-stat --json "$WORK/m $i" | grep -q '"nodes":3'; do sleep 0.05; done; done
SH
is_pmix() { # WHETHER VARIABLE=VALUE...
	: >"$WORK/agents.options"
	exits 0 env "${@:2}" ckptfs-run "${nodes[@]}" bash "$WORK/wait"
	[ "$(grep -c -- '--mpi=pmix' "$WORK/agents.options")" = "$1" ] || fail "$* and srun $(cat "$WORK/agents.options")"
}
is_pmix 1
is_pmix 0 SITE_MPI=pmi2
is_pmix 0 SLURM_MPI_TYPE=pmix_v4

exits 125 ckptfs-run --launcher "$WORK/no-launcher" --nodes 2 --store "$WORK/x%n" true
says "no-launcher: cannot start processes on each node"
for i in 0 1 2; do fsck.ckptfs -n "$WORK/s$i.store" >/dev/null 2>&1 || fail "store $i is not sound"; done
