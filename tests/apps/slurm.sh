#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Slurm itself, a controller and a node of it on this machine: a user's jobs get their mount from the prolog and lose it with the epilog; the example of a job, and one
# that are out of time copy out what they have sealed.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
need_root
need munged slurmctld slurmd sbatch scontrol setpriv flock
unset "${!SLURM_@}" CKPTFS_STORE CKPTFS_MOUNT
jobs=$HERE/../../tools/jobs
mkdir -p "$WORK"/{state,spool,run,local,scratch/{solver,run1},tmp,etc/ckptfs,munge}
chmod 777 "$WORK"/{scratch,scratch/solver,scratch/run1,local,tmp}
export SLURM_CONF=$WORK/slurm.conf
PIDS=()
at_end() {
	local pid
	for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
	for pid in "${PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
}

slurm_scripts "$WORK/slurm"
cat >"$WORK/etc/ckptfs/slurm.conf" <<SH
stores=$WORK/stores
points=$WORK/run
flush_to=$WORK/scratch/%u.%j
SH

# A cluster of its own: no other has its key, ports, directories and numbers of jobs, of which PMIx makes names in /tmp.
read -r port1 port2 < <("$PYTHON" -c 'import socket
s = [socket.socket() for _ in range(2)]
[x.bind(("127.0.0.1", 0)) for x in s]
print(*(x.getsockname()[1] for x in s))')
node=$(uname -n)
cat >"$SLURM_CONF" <<SH
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$port1
SlurmdPort=$port2
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$WORK/munge/socket
CredType=cred/munge
StateSaveLocation=$WORK/state
SlurmdSpoolDir=$WORK/spool
SlurmctldPidFile=$WORK/slurmctld.pid
SlurmdPidFile=$WORK/slurmd.pid
SlurmctldLogFile=$WORK/slurmctld.log
SlurmdLogFile=$WORK/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
FirstJobId=$((1000 + RANDOM))
KillWait=30
PrologFlags=Alloc
Prolog=$WORK/slurm/prolog
Epilog=$WORK/slurm/epilog
TaskProlog=$WORK/slurm/task-prolog
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc)
PartitionName=all Nodes=$node Default=YES MaxTime=60 State=UP OverSubscribe=FORCE
SH
head -c 128 /dev/urandom >"$WORK/munge/key"
chmod 400 "$WORK/munge/key"
munged --foreground --force --num-threads 2 --socket "$WORK/munge/socket" --key-file "$WORK/munge/key" --log-file "$WORK/munge/log" --pid-file "$WORK/munge/pid" \
	--seed-file "$WORK/munge/seed" >"$WORK/munged.out" 2>&1 &
PIDS+=($!)
await test -S "$WORK/munge/socket"
slurmctld -D >"$WORK/slurmctld.out" 2>&1 &
PIDS+=($!)
slurmd -D -N "$node" >"$WORK/slurmd.out" 2>&1 &
PIDS+=($!)
is_idle() { sinfo --noheader --format %t | grep -qE '^(idle|mix)$'; }
for _ in $(seq 600); do
	! is_idle 2>/dev/null || break
	running "${PIDS[1]}" && running "${PIDS[2]}" || break
	sleep 0.1
done
is_idle || skip "Slurm does not run here: $(tail -n 1 "$WORK/slurmd.log" "$WORK/slurmctld.log" 2>&1 | tr '\n' ' ')"

# submit OPTION... SCRIPT: as nobody, unless plain users cannot mount here; its number
as_user=as_nobody
submit() { $as_user env HOME=/tmp PATH="$PATH" sbatch --parsable --chdir "$WORK/tmp" --output "$WORK/tmp/out.%j" "$@"; }
is_over() { scontrol show job "$1" | grep -qE 'JobState=(COMPLETED|FAILED|TIMEOUT|CANCELLED)'; }
ended() { # JOB STATE: it comes to that, and its epilog is done
	await is_over "$1"
	scontrol show job "$1" | grep -q "JobState=$2" || { scontrol show job "$1" >&2; cat "$WORK/tmp/out.$1" >&2; tail -n 20 "$WORK/slurmd.log" >&2; fail "job $1 is not $2"; }
	await is_idle_again
}
is_idle_again() { sinfo --noheader --format %t | grep -q '^idle$'; }
is_mounted() { grep -qF " $WORK/run/nobody fuse.ckptfs" /proc/mounts; }
export PATH=$CKPTFS_BUILD/tools:$CKPTFS_BUILD/fs:$CKPTFS_BUILD/mpi-agent:$PATH

# 1. The prolog mounts for users that ask, the epilog drains as the user and unmounts.
cat >"$WORK/tmp/step" <<'SH'
#!/bin/sh
[ -n "$CKPTFS_MOUNT" ] || exit 9
mkdir "$CKPTFS_MOUNT/step.$SLURM_JOB_ID" && echo "state" >"$CKPTFS_MOUNT/step.$SLURM_JOB_ID/state" && ckptfs-seal -q "$CKPTFS_MOUNT/step.$SLURM_JOB_ID"
SH
one=$(submit --comment=ckptfs "$WORK/tmp/step")
ended "$one" COMPLETED
! is_mounted || fail "still mounted after the job"
[ "$(cat "$WORK/scratch/nobody.$one/step.$one/state")" = state ] || fail "the epilog has not copied out"
[ "$(stat -c %U "$WORK/scratch/nobody.$one/step.$one")" = nobody ] || fail "copied out by root"
two=$(submit "$WORK/tmp/step")
ended "$two" FAILED # it has not asked for a mount
[ ! -e "$WORK/scratch/nobody.$two" ] || fail "a job that does not ask is copied out"

# 2. The example, as it stands but for the names of disks and its size.
as_nobody test -w /dev/fuse || as_user=
$as_user sh -c 'umask 077; head -c 32 /dev/urandom >"$0"' "$WORK/local/solver.key"
cat >"$WORK/tmp/solver" <<'SH'
#!/bin/sh
mkdir "$2/step" && echo "state of $2" >"$2/step/state" && ckptfs-seal -q "$2/step"
SH
chmod +x "$WORK/tmp/solver"
# The same for the example of ckptfs-run(1), which has its key in the home directory.
manual() {
	echo '#!/bin/sh'
	sed -n '/^#SBATCH /,/^\.Ed/p' "$HERE/../../docs/man/ckptfs-run.1" |
		sed -E '$d'"; s#\\\\e\$#\\\\#; s#([ =])/(tmp|local|scratch)/#\\1$WORK/\\2/#g; s#\\\$HOME/#$WORK/local/#; s/--nodes=4 --time=24:00:00/--nodes=1 --time=30/"
}
example() { sed -E "s#([ =])/(tmp|local|scratch)/#\\1$WORK/\\2/#g; s/^#SBATCH --nodes=.*/#SBATCH --nodes=1/; s/--ntasks-per-node=.*/--ntasks-per-node=1/" "$jobs/examples/job.slurm"; }
example | sed -E 's/--time=24:00:00/--time=30/' >"$WORK/tmp/job"
three=$(submit "$WORK/tmp/job")
ended "$three" COMPLETED
[ "$(cat "$WORK/scratch/solver/$node/step/state")" = "state of $WORK/tmp/ckpt.$three" ] || { cat "$WORK/tmp/out.$three" >&2; fail "the example has not drained"; }
rm -r "$WORK/scratch/solver/$node" "$WORK/local/solver.store"

manual >"$WORK/tmp/job"
$as_user cp "$WORK/local/solver.key" "$WORK/local/.ckptfs.key"
of_manual=$(submit "$WORK/tmp/job")
ended "$of_manual" COMPLETED
[ "$(cat "$WORK/scratch/run1/$node/step/state")" = "state of $WORK/tmp/ckpt" ] || { cat "$WORK/tmp/job" "$WORK/tmp/out.$of_manual" >&2; fail "the example of ckptfs-run(1) has not copied out"; }

# 3. Its time is up: told before by ckptfs-run, which asks Slurm when that is, it seals its last step, which is drained within its time.
cat >"$WORK/tmp/solver" <<'SH'
#!/bin/sh
trap 'mkdir "$2/last" && echo last >"$2/last/state" && ckptfs-seal -q "$2/last"; exit 0' USR1
while :; do sleep 0.2; done
SH
example | sed -E 's/--time=24:00:00/--time=1/; s/--signal-before 2m/--signal-before 55s/' >"$WORK/tmp/job"
four=$(submit "$WORK/tmp/job")
ended "$four" COMPLETED
[ "$(cat "$WORK/scratch/solver/$node/last/state")" = last ] || { cat "$WORK/tmp/out.$four" >&2; fail "its last step is not drained"; }
! grep -q " $WORK/.* fuse.ckptfs " /proc/mounts || fail "something is still mounted"

# 4. Agents of two mounts, by srun itself, are one world, and what both write is stored once.
agents() {
	local i srun
	head -c 32 /dev/urandom >"$WORK/key"
	chmod 600 "$WORK/key"
	head -c 4M /dev/urandom >"$WORK/pages"
	for i in 0 1; do
		mkdir "$WORK/m$i"
		mount.ckptfs "$WORK/s$i" "$WORK/m$i" -o "cluster=$WORK/key,replicas=1"
	done
	# shellcheck disable=SC2016
	srun --mpi=pmix --ntasks=2 --overcommit sh -c 'CKPTFS_AGENT_HOST=host$SLURM_PROCID exec ckptfs-agent --mount "$0/m$SLURM_PROCID"' "$WORK" >"$WORK/srun.out" 2>&1 &
	srun=$!
	PIDS+=("$srun")
	for i in 0 1; do (await sh -c 'ckptfs-stat --json "$0" | grep -q "\"nodes\":2"' "$WORK/m$i") || { cat "$WORK/srun.out" "$WORK/slurmd.log" >&2; exit 1; }; done
	for i in 0 1; do dd if="$WORK/pages" of="$WORK/m$i/state" bs=1M conv=fsync status=none & PIDS+=($!); done
	wait "${PIDS[-1]}" "${PIDS[-2]}"
	for i in 0 1; do cmp "$WORK/pages" "$WORK/m$i/state" || fail "mount $i has something else"; done
	for i in 0 1; do umount "$WORK/m$i"; done # the agents end by that
	await sh -c '! pgrep -f "ckptfs-agent --mount $0" >/dev/null' "$WORK"
	wait "$srun" || true # whatever it says of how they ended
	await is_idle # Slurm has done with it, too
	[ "$(du -ck "$WORK"/s?/packs | tail -n 1 | cut -f 1)" -lt 6144 ] || { cat "$WORK/srun.out" >&2; fail "two nodes store the same"; }
}
if [ ! -x "$CKPTFS_BUILD/mpi-agent/ckptfs-agent" ]; then
	skip_part "agents by srun, built without MPI"
elif ! srun --mpi=list 2>&1 | grep pmix >/dev/null; then
	skip_part "agents by srun, which has no PMIx"
else
	agents
fi
echo "ok: jobs $one, $two, $three, $four of $(sbatch --version)"
