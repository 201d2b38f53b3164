#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A daemon hangs. Commands print after two seconds what they wait for, end at a signal, and fail after a minute. Long work of
# a daemon that answers is not cut off.
. "$(dirname "$0")/lib.sh"
need_mount
tools=$CKPTFS_BUILD/tools

# --- work that takes longer than a minute: a MiB each second ---
slow=$WORK/slow
mkdir "$slow"
"$CKPTFS_BUILD/fs/mount.ckptfs" "$WORK/slow.store" "$slow"
at_end() {
	[ -z "${hung:-}" ] || kill -CONT "$hung" 2>/dev/null
	umount -l "$slow" 2>/dev/null
}
noise 1 70 >"$slow/data"
sync -f "$slow"
"$tools/ckptfs-scrub" --rate 1M "$slow" >"$WORK/scrub" 2>&1 &
scrub=$!

# --- commands with a daemon that is stopped ---
fs_mount
mkdir "$MNT/step"
noise 2 1 >"$MNT/step/a"
cp "$MNT/step/a" "$MNT/step/b"
"$tools/ckptfs-seal" -q "$MNT/step"
"$tools/ckptfs-stat" "$MNT" >/dev/null
"$tools/ckptfs-stat" --watch 0.1 "$MNT" >"$WORK/watch" 2>&1 & # begun before
watch=$!
await test -s "$WORK/watch"
hung=$DAEMON

declare -A pids
begin() { # NAME COMMAND...
	"$tools/ckptfs-$2" "${@:3}" >"$WORK/$1" 2>&1 &
	pids[$1]=$!
}

# One that goes on within a minute is only waited for.
stop_process "$hung"
begin resumed stat "$MNT"
await grep -q "waiting for its daemon" "$WORK/resumed"
kill -CONT "$hung"
wait "${pids[resumed]}" || fail "a daemon that went on: exit code $?: $(cat "$WORK/resumed")"
grep -q "kept in" "$WORK/resumed" || fail "a daemon that went on: $(cat "$WORK/resumed")"
unset "pids[resumed]"

stop_process "$hung"
pids[watch]=$watch
begin stat stat "$MNT"
begin sealed stat --sealed "$MNT"
begin users stat --users "$MNT"
begin verify stat --verify "$MNT/step"
begin html stat --html "$WORK/report.html" "$MNT"
begin gc gc "$MNT"
begin retain gc --keep-last 1 "$MNT"
begin scrub-hung scrub "$MNT"
begin seal seal "$MNT/step"
begin list seal --list "$MNT"
begin restart-path restart-path "$MNT"
begin diff diff "$MNT/step/a" "$MNT/step/b"
begin compact compact "$MNT/step"
begin pause compact --pause "$MNT"
begin analyze analyze "$MNT/step"
for name in "${!pids[@]}"; do
	await grep -q "^ckptfs-[a-z-]*: $MNT[a-z/]*: waiting for its daemon to answer" "$WORK/$name"
	running "${pids[$name]}" || fail "$name has ended before its time: $(cat "$WORK/$name")"
done

# A signal ends a command although its daemon hangs.
begin killed stat "$MNT"
await grep -q "waiting" "$WORK/killed"
kill -TERM "${pids[killed]}"
code=0
wait "${pids[killed]}" || code=$?
[ "$code" = 143 ] || fail "a command that was told to end: exit code $code: $(cat "$WORK/killed")"
unset "pids[killed]"

for name in "${!pids[@]}"; do
	gone "${pids[$name]}" || fail "$name waits for ever for a daemon that hangs: $(cat "$WORK/$name")"
	code=0
	wait "${pids[$name]}" || code=$?
	[ "$code" = 2 ] || fail "$name: exit code $code instead of 2: $(cat "$WORK/$name")"
	grep -q "its daemon does not answer; kill it and mount again, or umount.ckptfs -l" "$WORK/$name" ||
		fail "$name: nothing was said of the daemon: $(cat "$WORK/$name")"
done
kill -CONT "$hung"
[ "$(cat "$MNT/step/a" | md5sum)" = "$(noise 2 1 | md5sum)" ] || fail "the mount does not go on"
"$tools/ckptfs-stat" "$MNT" >/dev/null
fs_umount

gone "$scrub" || fail "a scrub does not end"
wait "$scrub" || fail "a scrub of more than a minute was cut off: $(cat "$WORK/scrub")"
! grep -q "answer" "$WORK/scrub" || fail "a scrub complains of a daemon that works: $(cat "$WORK/scrub")"
