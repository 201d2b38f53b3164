#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-run: a program gets a mount, its status comes out, and nothing is left mounted, whichever process dies; sealed checkpoints are copied out,
# the newest first, complete or absent, and gone on with.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
export PATH=$CKPTFS_BUILD/tools:$CKPTFS_BUILD/fs:$PATH
unset "${!SLURM_@}" "${!PBS_@}" "${!FLUX_@}" "${!OMPI_@}" CKPTFS_STORE CKPTFS_MOUNT XDG_RUNTIME_DIR

spaced="$WORK/a store"
run() { ckptfs-run --store "$spaced" --mount "$WORK/a mount" "$@"; }
start_run() { # ...: beside the test, with what it says in $WORK/first
	: >"$WORK/first" # what the one before has said is not taken for this one's
	ckptfs-run --store "$spaced" --mount "$WORK/a mount" "$@" >"$WORK/first" 2>&1 &
	first=$!
	await grep -q started "$WORK/first"
}
nothing_mounted() {
	! grep -q "$WORK" /proc/mounts || fail "left mounted $1: $(grep "$WORK" /proc/mounts)"
	[ ! -e "$WORK/a mount" ] || fail "the mountpoint is left $1"
}
daemon_of() { ckptfs-stat --json "$1" | json pid; } # MOUNTPOINT

# --- a program and its status ---
# shellcheck disable=SC2016
exits 0 run sh -c 'mkdir "$CKPTFS_MOUNT/step 1" && cp "$0" "$CKPTFS_MOUNT/step 1/tool" && ckptfs-seal -q "$CKPTFS_MOUNT/step 1" && echo done' "$(command -v ckptfs-seal)"
tells "^done$"
says "1 sealed checkpoint, 1 of them new; the newest is step 1"
says "written: .*, new: .* (.* %)"
says "$spaced stores .* of files in"
nothing_mounted "after a program"
exits 7 run --quiet sh -c 'exit 7'
says_nothing "it is quiet"
exits 143 run sh -c 'kill $$'
says "ended by signal 15"
exits 127 run "$WORK/no such program"
says "no such program: No such file"
: >"$WORK/plain"
exits 126 run "$WORK/plain"
nothing_mounted "after programs that fail"
echo some >"$WORK/in"
exits 0 run cat <"$WORK/in"
tells some

# A link of another user leads nowhere, as in /tmp, where names of mountpoints can be guessed.
mkdir "$WORK/elsewhere"
ln -s "$WORK/elsewhere" "$WORK/link"
chown -h 65534 "$WORK/link"
exits 125 ckptfs-run --store "$spaced" --mount "$WORK/link" touch "$WORK/ran"
says "mountpoint $WORK/link: is a symbolic link of another user; give another --mount"
[ ! -e "$WORK/ran" ] || fail "the program has run on a mount that another user has chosen"
chown -h 0 "$WORK/link"
exits 0 ckptfs-run --store "$spaced" --mount "$WORK/link" mountpoint -q "$WORK/elsewhere"
rm "$WORK/link"
rmdir "$WORK/elsewhere"
# In a sticky directory a mountpoint of another user is refused: its owner could move it away with the mount.
mkdir -m 1777 "$WORK/tmp"
mkdir -m 777 "$WORK/tmp/guessed"
chown 65534 "$WORK/tmp/guessed"
exits 125 ckptfs-run --store "$spaced" --mount "$WORK/tmp/guessed" touch "$WORK/ran"
says "mountpoint $WORK/tmp/guessed: belongs to another user; give another --mount"
[ ! -e "$WORK/ran" ] || fail "the program has run on a mountpoint of another user"
chmod -t "$WORK/tmp"
exits 0 ckptfs-run --store "$spaced" --mount "$WORK/tmp/guessed" true
rm -r "$WORK/tmp"

# What a launcher sends to all processes of a group does not end a mount half-way, which would not be reported.
mkdir "$WORK/beside"
cp "$CKPTFS_BUILD/tools/ckptfs-run" "$WORK/beside" # it takes what lies beside it
cat >"$WORK/beside/mount.ckptfs" <<EOT
#!/bin/sh
kill -USR1 -"\$(ps -o pgid= -p \$PPID | tr -d ' ')"
exec "$CKPTFS_BUILD/fs/mount.ckptfs" "\$@"
EOT
chmod +x "$WORK/beside/mount.ckptfs"
setsid -w "$WORK/beside/ckptfs-run" --store "$spaced" --mount "$WORK/a mount" true >"$WORK/said" 2>&1 || true # it is passed on
! grep "cannot mount on" "$WORK/said" || fail "a signal to its group has ended mount.ckptfs"
nothing_mounted "after a signal while it was mounting"

# Without a place for it, and the names of a job.
mkdir "$WORK/rt"
# shellcheck disable=SC2016
SLURM_JOB_ID=17 XDG_RUNTIME_DIR=$WORK/rt exits 0 ckptfs-run --store "$WORK/s.%j.%n.%%" sh -c 'echo "$CKPTFS_STORE $CKPTFS_MOUNT"'
tells "^$WORK/s.17.0.% $WORK/rt/ckptfs-root-17$"
[ -z "$(ls "$WORK/rt")" ] || fail "a mountpoint is left"

# --- refusals ---
exits 1 ckptfs-run true
says "no store: give --store"
exits 1 run
says "a program must be given"
exits 1 run --signal-before 10s true
says "give --time-limit"
exits 1 run --mount "$WORK/%x" true
says "% must be followed by"
exits 1 run --grace soon true
says "not a time"
exits 1 run --signal KILL true
says "TERM, INT, HUP, USR1 or USR2"
exits 1 run --nodes 3 --flush-to "$WORK/to" true
says "put %h or %n into it"
SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=many exits 1 run true
says "SLURM_JOB_NUM_NODES: is not a number"
exits 125 run -o no_such_option true
says "no_such_option"
exits 125 ckptfs-run --store "$WORK/nowhere/store" --mount "$WORK/a mount" true
nothing_mounted "after refusals"
exits 125 run --shared true
says "no ckptfs is mounted there"

# --- two jobs on one node ---
start_run sh -c 'echo started; exec sleep 1000'
exits 125 ckptfs-run --store "$spaced" --mount "$WORK/other" true # one store
says "in use: mounted on"
exits 125 ckptfs-run --store "$WORK/other.store" --mount "$WORK/a mount" true # one mountpoint
says "is mounted there already"
exits 0 ckptfs-run --store "$WORK/other.store" --mount "$WORK/other" true
exits 4 ckptfs-run --shared --mount "$WORK/a mount" sh -c 'ls "$CKPTFS_MOUNT/step 1" && exit 4'
tells tool
grep -q "a.040mount" /proc/mounts || fail "--shared has unmounted it"

# --- the daemon dies below it; the next one takes the dead mount away ---
kill -KILL "$(daemon_of "$WORK/a mount")"
kill -TERM "$first"
code=0
wait "$first" || code=$?
[ "$code" = 143 ] || fail "ended by SIGTERM, it says $code"
grep -q "its daemon died" "$WORK/first" || fail "nothing is said of a dead daemon"
nothing_mounted "by a dead daemon"
# shellcheck disable=SC2016
exits 125 run sh -c 'kill -KILL $(ckptfs-stat --json "$CKPTFS_MOUNT" | sed "s/.*\"pid\":\([0-9]*\).*/\1/")'
says "its daemon died"
nothing_mounted "by a dead daemon"

# While the program runs: said at once, and mounted again where it opens files anew; what was durable is there.
kill_daemon() { # MESSAGE: and that is said; the program ends only when it is told to
	kill -KILL "$(daemon_of "$WORK/a mount")"
	await grep -q "its daemon died; .*: $1" "$WORK/first"
}
cat >"$WORK/survivor" <<'SH'
trap 'echo "got it"; exit 3' TERM
exec 5>"$CKPTFS_MOUNT/open"
echo durable >"$CKPTFS_MOUNT/durable"
sync "$CKPTFS_MOUNT/durable"
echo started
until [ -e "$WORK/go" ]; do sleep 0.05; done
! echo lost >&5 || exit 9
cat "$CKPTFS_MOUNT/durable"
SH
start_run bash "$WORK/survivor"
kill_daemon "mounting it again"
await grep -q "mounted again; files can be reopened" "$WORK/first"
touch "$WORK/go"
code=0
wait "$first" || code=$?
grep -q "^durable" "$WORK/first" || fail "what was durable cannot be opened anew: $(cat "$WORK/first")"
[ "$code" = 125 ] || fail "the program has succeeded, but unsynced data may be lost: exit code $code"
grep -q "its daemon died: data that was not durable is lost" "$WORK/first" || fail "not told at the end"
nothing_mounted "after a daemon has died"
rm "$WORK/go"
start_run --on-daemon-death end bash "$WORK/survivor"
kill_daemon "ending the program"
code=0
wait "$first" || code=$?
[ "$code" = 3 ] && grep -q "got it" "$WORK/first" || fail "the program was not told to end: exit code $code"
nothing_mounted "after a program was ended with its daemon"
start_run --on-daemon-death report bash "$WORK/survivor"
kill_daemon "the program continues without it"
! stat -f "$WORK/a mount" >"$WORK/out" 2>&1 || fail "it was mounted again"
touch "$WORK/go"
wait "$first" || true
rm "$WORK/go"
nothing_mounted "by a dead daemon that was reported"
exits 1 run --on-daemon-death pray true
says "remount|end|report"
# One that dies again and again is left dead; so is one that cannot be mounted again; and one that was unmounted.
start_run bash "$WORK/survivor"
for again in 1 2 3; do
	kill_daemon "mounting it again"
	await sh -c '[ "$(grep -c "mounted again; files" "$0")" = "$1" ]' "$WORK/first" $again
done
kill_daemon "it died repeatedly, not mounting it again"
kill "$first"
wait "$first" || true
nothing_mounted "after a daemon that dies again and again"
start_run bash "$WORK/survivor"
mv "$spaced" "$WORK/away"
: >"$spaced"
kill_daemon "mounting it again"
await grep -q "cannot mount again; the program continues without it" "$WORK/first"
rm "$spaced"
mv "$WORK/away" "$spaced"
kill "$first"
wait "$first" || true
nothing_mounted "after a store that cannot be mounted again"
start_run sh -c 'echo started; exec sleep 1000'
umount "$WORK/a mount"
await grep -q "unmounted while the program is running" "$WORK/first"
kill "$first"
wait "$first" || true
nothing_mounted "after it was unmounted"
# ckptfs-run is killed while it mounts again: nothing is mounted after that.
start_run bash "$WORK/survivor"
kill_daemon "mounting it again"
kill -KILL "$first"
{ wait "$first" || true; } 2>/dev/null
await sh -c '! pgrep -f "mount.ckptfs $0 " && ! pgrep -f "[c]kptfs-run .*$0" && ! grep -q "$1/" /proc/mounts' "$spaced" "$WORK" >"$WORK/out"
rmdir "$WORK/a mount" 2>/dev/null || true # it may have been in use when it was to be removed

mkdir "$WORK/a mount"
mount.ckptfs "$spaced" "$WORK/a mount"
kill -KILL "$(daemon_of "$WORK/a mount")"
await sh -c '! stat -f "$0"' "$WORK/a mount"
exits 125 ckptfs-run --store "$WORK/other.store" --mount "$WORK/a mount" true
says "has died; umount.ckptfs"
exits 0 run true
says "unmounting the mount of a dead daemon"
rmdir "$WORK/a mount"

# --- signals, and what is left running ---
cat >"$WORK/stubborn" <<'SH'
trap 'echo "got it"' TERM
echo started
while :; do sleep 0.1; done
SH
start_run --grace 1s bash "$WORK/stubborn"
kill -TERM "$first"
code=0
wait "$first" || code=$?
[ "$code" = 137 ] || fail "killed, it says $code"
grep -q "got it" "$WORK/first" || fail "the program did not get SIGTERM"
grep -q "killing it" "$WORK/first" || fail "it is not told that it was killed"
sed -i 's/TERM/USR1/' "$WORK/stubborn"
start_run --grace 1s --signal USR1 bash "$WORK/stubborn"
kill -TERM "$first"
wait "$first" || true
grep -q "got it" "$WORK/first" || fail "the program did not get SIGUSR1 for SIGTERM"
exits 0 run --grace 5s sh -c 'cd "$CKPTFS_MOUNT"; sleep 1000 & exit 0'
says "terminated processes that the program left behind"
nothing_mounted "with something left running"
# In another session: those that use the mount, in any way, are ended; others are left alone.
cat >"$WORK/sessions" <<'EOT'
dir=$1
cd /
apart() { setsid "$@" </dev/null >/dev/null 2>&1 & }
echo data >"$CKPTFS_MOUNT/file"
cp "$(command -v sleep)" "$CKPTFS_MOUNT/sleep"
apart sh -c 'cd "$CKPTFS_MOUNT"; echo $$ >"$0/cwd"; exec sleep 1000' "$dir"
apart sh -c 'exec 8<"$CKPTFS_MOUNT/file"; echo $$ >"$0/fd"; exec sleep 1000' "$dir"
apart sh -c 'echo $$ >"$0/exe"; exec "$CKPTFS_MOUNT/sleep" 1000' "$dir"
apart sh -c 'cd "$CKPTFS_MOUNT"; trap "" TERM; echo $$ >"$0/stubborn"; while :; do sleep 1; done' "$dir"
apart sh -c 'echo $$ >"$0/unconcerned"; exec sleep 1000' "$dir"
for i in cwd fd exe stubborn unconcerned; do
	until [ -s "$dir/$i" ]; do sleep 0.05; done
done
echo started
[ -z "$2" ] || exec sleep 1000
EOT
mkdir "$WORK/pids"
ended() { # WHEN: all but one have
	for i in cwd fd exe stubborn; do
		gone "$(cat "$WORK/pids/$i")" || fail "a process that uses the mount goes on $1: $i"
	done
	kill "$(cat "$WORK/pids/unconcerned")" || fail "a process that does not use the mount was ended $1"
	rm "$WORK/pids"/*
}
exits 0 run --grace 1s bash "$WORK/sessions" "$WORK/pids"
says "terminated processes that the program left behind"
says_not "detached"
nothing_mounted "with something in other sessions"
ended "after the program"
start_run --grace 1s bash "$WORK/sessions" "$WORK/pids" waits
kill -KILL "$first"
{ wait "$first" || true; } 2>/dev/null
await sh -c '! grep -q "$0/" /proc/mounts' "$WORK"
await sh -c '! [ -e "$0" ]' "$WORK/a mount"
! grep detached "$WORK/first" || fail "detached after kill -9"
ended "after kill -9"

# A process that is not the program's is left alone; the mount is detached.
start_run sh -c 'echo started; until [ -e "$0" ]; do sleep 0.05; done' "$WORK/go"
setsid sh -c 'cd "$0"; echo $$ >"$1"; exec sleep 1000' "$WORK/a mount" "$WORK/pid" &
await test -s "$WORK/pid"
touch "$WORK/go"
code=0
wait "$first" || code=$?
[ "$code" = 125 ] || fail "detached, it says $code"
grep -q "detached" "$WORK/first" || fail "it is not told that the mount was detached"
nothing_mounted "with a stranger in it"
kill "$(cat "$WORK/pid")" || fail "a stranger was ended"
await run --quiet true # the store is free again
exits 0 run --time-limit 7s --signal-before 2s sh -c 'trap "exit 0" TERM; while :; do sleep 0.1; done'
says "time is nearly up"

# --- ckptfs-run itself is killed ---
start_run sh -c 'echo started; exec sleep 1000'
program=$(pgrep -P "$first" -x sleep)
kill -KILL "$first"
{ wait "$first" || true; } 2>/dev/null
await sh -c '! grep -q "$0/" /proc/mounts' "$WORK"
gone "$program" || fail "the program goes on"
await sh -c '! [ -e "$0" ]' "$WORK/a mount"

# Also while it unmounts.
for at in 0 1 3; do
	start_run sh -c 'echo started; head -c 20M /dev/urandom >"$CKPTFS_MOUNT/large"'
	await sh -c 'pgrep -f "umount.ckptfs -n $0" >/dev/null || ! pgrep -P "$1" >/dev/null' "$WORK/a mount" "$first"
	sleep "0.0$at"
	kill -KILL "$first" 2>/dev/null || true
	{ wait "$first" || true; } 2>/dev/null
	await sh -c '! grep -q "$0/" /proc/mounts' "$WORK"
	await sh -c '! [ -e "$0" ]' "$WORK/a mount"
done

# Where no process waits for orphans, those that have ended are not taken for running: else this would last for the grace.
cat >"$WORK/childless.py" <<'PY'
import ctypes, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
run = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE)
while run.stdout.readline() != b"started\n":
    pass
run.kill()
run.wait()
open(sys.argv[1], "w").close()
time.sleep(1000)
PY
"$PYTHON" "$WORK/childless.py" "$WORK/killed" ckptfs-run --store "$spaced" --mount "$WORK/a mount" --grace 1000s sh -c 'echo started; exec sleep 1000' &
reaper=$!
await test -e "$WORK/killed"
await sh -c '! grep -q "$0/" /proc/mounts' "$WORK"
await sh -c '! [ -e "$0" ]' "$WORK/a mount"
kill "$reaper"
{ wait "$reaper" || true; } 2>/dev/null

# --- draining ---
cat >"$WORK/steps" <<'SH'
set -e
for i in 1 2 3; do
	mkdir -p "$CKPTFS_MOUNT/run/step.$i/deep"
	head -c 3000000 /dev/urandom >"$CKPTFS_MOUNT/run/step.$i/data"
	truncate -s 5M "$CKPTFS_MOUNT/run/step.$i/data"
	ln "$CKPTFS_MOUNT/run/step.$i/data" "$CKPTFS_MOUNT/run/step.$i/deep/twin"
	ln -s data "$CKPTFS_MOUNT/run/step.$i/soft"
	mkfifo "$CKPTFS_MOUNT/run/step.$i/deep/fifo"
	setfattr -n user.step -v "$i" "$CKPTFS_MOUNT/run/step.$i/data" || true
	ckptfs-seal -q "$CKPTFS_MOUNT/run/step.$i"
done
mkdir "$CKPTFS_MOUNT/run/half"
SH
to="$WORK/drained to"
rm -r "$spaced"
exits 0 run --flush-to "$to" bash "$WORK/steps"
[ "$(grep -o 'run/step.[0-9]: copied out' "$WORK/said" | tr -d '\n')" = "run/step.3: copied outrun/step.2: copied outrun/step.1: copied out" ] ||
	fail_showing "not the newest first"
[ "$(ls -A "$to/run" | tr '\n' ' ')" = "step.1 step.2 step.3 " ] || fail "drained: $(ls -A "$to/run")"
sums() { (cd "$1" && find . -printf '%P %y %m %U %G %s %n %T@ %l\n' | sort && find . -type f -exec md5sum {} + | sort); }
cat >"$WORK/compare" <<SH
$(declare -f sums)
for i in 1 2 3; do cmp <(sums "\$CKPTFS_MOUNT/run/step.\$i") <(sums "\$1/run/step.\$i") || exit 1; done
SH
exits 0 run --flush-to "$to" bash "$WORK/compare" "$to"
says "step.3: already in the destination"
# Half a copy is gone on with: what is done stays, what is not is done again.
rm -r "$to/run/step.1"
mv "$to/run/step.2" "$to/run/step.2.whole"
sealed=$(run --quiet sh -c 'ckptfs-seal --list --json "$CKPTFS_MOUNT"' | "$PYTHON" -c 'import json, sys
print(*("%x" % e["sealed_ns"] for e in json.load(sys.stdin)["sealed"] if e["path"].endswith("step.2")))')
cp -a "$to/run/step.2.whole" "$to/run/.step.2.ckptfs-$sealed"
rm -r "$to/run/step.2.whole"
done_file=$(stat -c %i "$to/run/.step.2.ckptfs-$sealed/data")
exits 0 run --flush-to "$to" true
says "step.2: copied out"
[ "$(stat -c %i "$to/run/step.2/data")" = "$done_file" ] || fail "what was copied is copied again"
cp -a "$to/run/step.2" "$to/run/.step.1.ckptfs-0" # of another seal: nothing to go on with
rm -r "$to/run/step.1"
exits 0 run --flush-to "$to" bash -c 'cmp "$0/run/step.2/data" "$CKPTFS_MOUNT/run/step.2/data"' "$to"
rm -r "$to/run/.step.1.ckptfs-0"
exits 0 run bash "$WORK/compare" "$to"
# What is there and is something else is not replaced.
rm -r "$to/run/step.1/deep"
exits 125 run --flush-to "$to" true
says "step.1: exists and differs from sealed"
rm -r "$to/run/step.1"
touch "$to/run/step.1"
exits 125 run --flush-to "$to" true
says "step.1: cannot copy out: Not a directory"
rm -r "$to/run/step.1" "$to/run/step.3"
# Symbolic links in the destination are not followed: another user may have made them.
mkdir "$WORK/elsewhere"
mv "$to/run" "$WORK/moved"
ln -s "$WORK/elsewhere" "$to/run"
exits 125 run --flush-to "$to" true
says "$to/run: is a symbolic link, which is not followed"
[ -z "$(ls -A "$WORK/elsewhere")" ] || fail "written through a symbolic link: $(ls -A "$WORK/elsewhere")"
rm "$to/run"
mv "$WORK/moved" "$to/run"
ln -s "$WORK/elsewhere" "$to/run/step.1"
exits 125 run --flush-to "$to" true
says "run/step.1: is a symbolic link, which is not followed"
rm -r "$to/run/step.1" "$to/run/step.3"
if [ "$(id -u)" = 0 ]; then
	# Where any user can make directories, those of other users are not used, and no copy of theirs counts.
	cp -a "$to/run/step.2" "$WORK/forged"
	mkdir -m 1777 "$WORK/all"
	mkdir -m 1777 "$WORK/all/run"
	mv "$WORK/forged" "$WORK/all/run/step.2"
	chown -h 1001 "$WORK/all/run/step.2"
	exits 125 run --flush-to "$WORK/all" true
	says "all/run/step.2: belongs to user 1001, in a directory where any user may create it"
	says "step.1: copied out"
	rm -r "$WORK/all/run"
	mkdir -m 777 "$WORK/all/run"
	chown 1001 "$WORK/all/run"
	exits 125 run --flush-to "$WORK/all" true
	says "all/run: belongs to user 1001, in a directory where any user may create it"
	[ -z "$(ls -A "$WORK/all/run")" ] || fail "copied into a directory of another user: $(ls -A "$WORK/all/run")"
	# Nor does root write into a partial copy that another user can change.
	mkdir -p "$WORK/theirs/run/.step.2.ckptfs-$sealed"
	chown -R 1001 "$WORK/theirs/run"
	exits 125 run --flush-to "$WORK/theirs" true
	says "step.2: cannot copy out: .step.2.ckptfs-$sealed beside it belongs to user 1001; remove it"
	[ -z "$(ls -A "$WORK/theirs/run/.step.2.ckptfs-$sealed")" ] || fail "copied into a directory of another user"
	rm -r "$WORK/all" "$WORK/theirs"
fi
# No time: what is there is whole, and the newest comes first.
exits 125 run --flush-to "$to" --time-limit 6s --signal-before 1s sh -c 'trap "" TERM; exec sleep 5.8'
says "time is up: 0 of 3"
exits 0 run --flush-to "$to" true
exits 0 run bash "$WORK/compare" "$to"
# Where nothing can be brought, no program is run in vain.
exits 125 run --flush-to "$WORK/plain" touch "$WORK/ran"
says "flush-to $WORK/plain: Not a directory"
exits 125 run --flush-to "$WORK/nowhere/to" touch "$WORK/ran"
says "flush-to $WORK/nowhere/to: its parent directory does not exist; mkdir it first"
mkdir -p "$WORK/a mount"
for in in "$WORK/a mount/to" "$WORK/a mount" "$spaced/to" "$spaced/packs/.."; do
	exits 125 run --flush-to "$in" touch "$WORK/ran"
	says "flush-to $in: is in the "
	[ ! -e "$WORK/a mount/to" ] && [ ! -e "$spaced/to" ] || fail "$in was made, and is left"
done
rmdir "$WORK/a mount" # it was there and stays
[ ! -e "$WORK/ran" ] || fail "the program has run, though nothing can be drained"
nothing_mounted "after a drain that cannot be"

# Killed at some moment of a drain: never half of an epoch under its name, and the next one goes on.
exits 0 run bash -c 'mkdir "$CKPTFS_MOUNT/many" && for i in $(seq 12); do head -c 300K /dev/urandom >"$CKPTFS_MOUNT/many/$i"; done; ckptfs-seal -q "$CKPTFS_MOUNT/many"'
for at in 1 5 11; do
	ckptfs-run --quiet --store "$spaced" --mount "$WORK/a mount" --flush-to "$to" touch "$WORK/ran.$at" &
	first=$!
	await [ -e "$WORK/ran.$at" ] # what the last one has left may be as many
	until [ "$(find "$to" -path '*/.many.*/*' | wc -l)" -ge $at ] || [ -e "$to/many" ]; do :; done
	kill -KILL "$first" 2>/dev/null || true
	{ wait "$first" || true; } 2>/dev/null
	await sh -c '! grep -q "$0/" /proc/mounts' "$WORK"
	await sh -c '! [ -e "$0" ]' "$WORK/a mount"
	[ ! -e "$to/many" ] || [ "$(ls "$to/many" | wc -l)" = 12 ] || fail "half an epoch"
done
exits 0 run --flush-to "$to" bash -c 'diff -r "$CKPTFS_MOUNT/many" "$0/many" 2>/dev/null || [ ! -e "$0/many" ]' "$to"
exits 0 run diff -r "$WORK/a mount/many" "$to/many"
[ -z "$(find "$to" -name '.*')" ] || fail "left: $(find "$to" -name '.*')"

# --- a destination that hangs is not waited for beyond the end of the job ---
mkdir "$WORK/far"
"$CKPTFS_BUILD/fs/mount.ckptfs" "$WORK/far.store" "$WORK/far"
far=$("$CKPTFS_BUILD/tools/ckptfs-stat" --json "$WORK/far" | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
stop_far() {
	kill -STOP "$1"
	until grep -q '^State:.T' "/proc/$1/status"; do sleep 0.05; done
}
# It hangs before the program starts: what is waited for is said, and a signal ends that.
stop_far "$far"
ckptfs-run --store "$spaced" --mount "$WORK/a mount" --flush-to "$WORK/far/to" touch "$WORK/ran" >"$WORK/first" 2>&1 &
first=$!
await grep -q -- "--flush-to $WORK/far/to: waiting for its filesystem to answer" "$WORK/first"
kill -TERM "$first"
code=0
wait "$first" || code=$?
kill -CONT "$far"
[ $code = 125 ] || fail "exit code $code before a destination that hangs: $(cat "$WORK/first")"
grep -q "to: stopped: its filesystem does not answer" "$WORK/first" || fail "of a stop is said: $(cat "$WORK/first")"
[ ! -e "$WORK/ran" ] || fail "the program has run, though the destination hangs"
[ ! -e "$WORK/a mount" ] || fail "the mountpoint is left before a destination that hangs"
code=0
timeout -k 1 300 ckptfs-run --store "$spaced" --mount "$WORK/a mount" --flush-to "$WORK/far/to" --time-limit 5s bash -c "$(declare -f stop_far); stop_far $far" >"$WORK/said" 2>&1 || code=$?
kill -CONT "$far"
[ $code = 125 ] || fail_showing "exit code $code of a copy to a destination that hangs"
says "copying out does not end: the destination does not answer"
! grep -q '/a\\040mount' /proc/mounts || fail "left mounted after a destination that hangs"
"$CKPTFS_BUILD/tools/umount.ckptfs" "$WORK/far"

# --- a daemon that hangs when it is asked for its figures, after it has answered that it is there ---
fs_mount
cc -shared -fPIC -x c -o "$WORK/hang.so" - <<'C' || fail "hang.so is not built"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
ssize_t lgetxattr(const char *path, const char *name, void *p, size_t len)
{
	if (open(getenv("HANG_ONCE"), O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0) {
		kill(atoi(getenv("HANG")), SIGSTOP);
		sleep(1); /* until then, its threads may answer */
	}
	return syscall(SYS_lgetxattr, path, name, p, len);
}
C
HANG=$DAEMON HANG_ONCE=$WORK/hung ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 LD_PRELOAD=$WORK/hang.so \
	ckptfs-run --shared --store "$STORE" --mount "$MNT" touch "$WORK/ran" >"$WORK/said" 2>&1 &
first=$!
for _ in $(seq 1800); do
	[ ! -e "$WORK/ran" ] && running "$first" || break
	sleep 0.1
done
kill -CONT "$DAEMON"
[ -e "$WORK/ran" ] || fail "ckptfs-run waits for a daemon that hangs: $(cat "$WORK/said")"
wait "$first" || fail "exit code $?: $(cat "$WORK/said")"
: >"$WORK/out"
says "$MNT: its daemon does not answer"
fs_umount

# --- a plain user, through fusermount3 ---
if users_can_mount && mknod -m 666 "$WORK/fuse" c 10 229; then
	mkdir "$WORK/home" "$WORK/bin"
	chown 65534:65534 "$WORK/home"
	for f in fs/mount.ckptfs tools/umount.ckptfs tools/ckptfs-run tools/ckptfs-seal; do cp "$CKPTFS_BUILD/$f" "$WORK/bin/"; done
	cat >"$WORK/as-user" <<-'SH'
		mount --bind "$WORK/fuse" /dev/fuse # for this namespace only: users may use FUSE
		cd "$WORK/home"
		PATH=$WORK/bin:$PATH exec setpriv --reuid 65534 --regid 65534 --clear-groups ckptfs-run --store "$PWD/store" --mount "$PWD/mnt" --flush-to "$PWD/to" \
			sh -c 'id -u && mkdir mnt/step && echo mine >mnt/step/file && ckptfs-seal -q mnt/step && exit 6'
	SH
	exits 6 unshare -m bash "$WORK/as-user"
	tells 65534
	[ "$(cat "$WORK/home/to/step/file")" = mine ] || fail_showing "a plain user's epoch is not drained"
	[ ! -e "$WORK/home/mnt" ] || fail_showing "a plain user's mount is left"
fi
nothing_mounted "in the end"
fs_sound_store() { fsck.ckptfs -n --read-data "$1" >"$WORK/fsck.log" 2>&1 || fail "fsck.ckptfs: $(tail -n 5 "$WORK/fsck.log")"; }
fs_sound_store "$spaced"
