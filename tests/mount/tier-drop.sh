#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Sealed checkpoints that are in the tier are dropped from the store: their space is freed, their names stay, and they are
# read from the tier, byte for byte, also after a restart and kill -9 in the middle. What is not in the tier stays.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
tools=$CKPTFS_BUILD/tools
TIER=$WORK/tier
PLAIN=$WORK/plain
mkdir "$TIER" "$PLAIN"
seal() { "$tools/ckptfs-seal" -q "$@"; }
packs_kib() { disk_kib "$STORE/packs"; }
step() { # NUMBER: 10 MiB of which 8 MiB are new, and odd files; in the mount and in $PLAIN
	local d
	for d in "$MNT/run/step.$1" "$PLAIN/run/step.$1"; do
		mkdir -p "$d/ranks"
		{ noise same 2; noise "$1" 8; } >"$d/ranks/0"
		truncate -s 3M "$d/hole"
		echo "$1" >"$d/info"
		: >"$d/empty"
		ln "$d/info" "$d/ranks/also"
		ln -s ranks/0 "$d/link"
		noise "part$1" 1 >"$d/sparse"
		truncate -s 4M "$d/sparse"
	done
}
same() { # NUMBER...: all bytes, from the daemon
	local n
	drop_caches
	for n; do
		diff -r --no-dereference "$MNT/run/step.$n" "$PLAIN/run/step.$n" >"$WORK/out" 2>&1 ||
			fail_showing "step.$n has other bytes"
	done
}
fails() { # NUMBER: its data cannot be read, but its names can
	drop_caches
	! cat "$MNT/run/step.$1/ranks/0" >/dev/null 2>"$WORK/said" || fail "step.$1 was read"
	says 'Input/output error'
	[ "$(stat -c %s "$MNT/run/step.$1/ranks/0")" = $((10 << 20)) ] || fail "step.$1 has another size"
}
keep() { "$tools/ckptfs-gc" "$@" "$MNT/run" >"$WORK/out" 2>"$WORK/said"; }
sealed_line() { "$tools/ckptfs-stat" --sealed "$MNT" | grep "step\.$1 "; }

no_commit_timer
fs_mount "tier=dir:$TIER"
for n in 1 2 3 4 5; do
	step $n
	seal --wait=tier "$MNT/run/step.$n"
done

# --- without --drop nothing changes, and --drop is not --delete ---
keep --keep-last 2 || fail "cannot list"
tells 'remove .*step.3'
exits 1 "$tools/ckptfs-gc" --drop "$MNT"
exits 1 "$tools/ckptfs-gc" --keep-last 2 --drop --delete "$MNT/run"
same 1 2 3 4 5

# --- dropped: the space is freed, the bytes are the same ---
sum_before=$(stat -c '%n %s %Y %Z %h %i' "$MNT"/run/step.1/* "$MNT"/run/step.1/ranks/*)
before=$(packs_kib)
keep --keep-last 2 --drop --gc || fail_showing "cannot drop"
tells 'dropped .*step.1'
tells 'dropped .*step.3'
tells 'keep .*step.4'
after=$(packs_kib)
[ $((before - after)) -ge $((3 * 8 * 1024)) ] || fail "the packs took $before KiB, and take $after now"
same 1 2 3 4 5
[ "$(stat -c '%n %s %Y %Z %h %i' "$MNT"/run/step.1/* "$MNT"/run/step.1/ranks/*)" = "$sum_before" ] || fail "attributes changed"
[ "$(stat -c %b "$MNT/run/step.1/ranks/0")" = 1 ] || fail "a dropped file takes $(stat -c %b "$MNT/run/step.1/ranks/0") blocks"
sealed_line 1 | grep -q 'all, dropped here' || fail "stat does not tell that step.1 was dropped: $(sealed_line 1)"
sealed_line 5 | grep -q dropped && fail "stat tells that step.5 was dropped: $(sealed_line 5)"
"$tools/ckptfs-stat" --sealed --json "$MNT" | tr '{' '\n' | grep step.2 | grep -q '"dropped":true' || fail "JSON"
for n in 1 5; do
	exits 0 "$tools/ckptfs-stat" --verify "$MNT/run/step.$n"
done
tar -cS -C "$MNT/run" step.2 | tar -x -C "$WORK" && diff -r --no-dereference "$WORK/step.2" "$PLAIN/run/step.2" ||
	fail "tar has other bytes"
cp --sparse=always "$MNT/run/step.2/ranks/0" "$WORK/copy" && cmp "$WORK/copy" "$PLAIN/run/step.2/ranks/0" || fail "cp has other bytes"

# --- again: nothing to do; the newest never ---
keep --keep-last 2 --drop || fail_showing "cannot drop twice"
tells 'keep .*step.1.*dropped before'
keep --keep-last 1 --drop || fail_showing "cannot drop the fourth"
tells 'keep .*step.5'
same 4 5

# --- what reads recipes does not take the missing bytes for zeros ---
cp --reflink=auto "$MNT/run/step.1/ranks/0" "$MNT/run/copy" && cmp "$MNT/run/copy" "$PLAIN/run/step.1/ranks/0" || fail "a copy has other bytes"
cp --reflink=auto "$MNT/run/step.1/sparse" "$MNT/run/copy" && cmp "$MNT/run/copy" "$PLAIN/run/step.1/sparse" || fail "a copy has other bytes"
rm "$MNT/run/copy"
exits 0 "$tools/ckptfs-diff" "$MNT/run/step.1/ranks/0" "$MNT/run/step.1/ranks/0"
if "$tools/ckptfs-diff" "$MNT/run/step.1/ranks/0" "$MNT/run/step.2/ranks/0" >/dev/null 2>&1; then
	fail "two dropped files are equal"
fi
exits 2 "$tools/ckptfs-seal" --unseal "$MNT/run/step.1"
says 'dropped here'
same 1

# --- fsck knows it, and a rebuilt index has it ---
fs_umount
fs_sound "in a store with dropped checkpoints"
fs_rebuild
fs_sound "in a rebuilt store with dropped checkpoints"
fs_mount "tier=dir:$TIER"
same 1 5

# --- it outlives the mount; without the tier its names do ---
fs_remount "tier=dir:$TIER"
same 1 2 3 4 5
fs_remount
fails 1
same 5
[ "$(cat "$MNT/run/step.5/info")" = 5 ] || fail "step.5"
fs_remount "tier=dir:$TIER"

# --- a tier that is away, and comes back ---
fs_remount "tier=dir:$TIER"
mv "$TIER" "$TIER.away"
fails 1
mv "$TIER.away" "$TIER"
same 1

# --- what the tier does not have stays ---
fs_remount "tier=dir:$WORK/nowhere"
step 6
step 7
seal "$MNT/run/step.6" "$MNT/run/step.7"
! keep --keep-last 1 --drop || fail "dropped what is in no tier"
tells 'keep .*step.6.*tier'
same 5 6 7
fs_remount
! keep --keep-last 1 --drop || fail "dropped without a tier"
tells 'keep .*step.6.*the mount has no tier'
same 5 6 7
fs_remount "tier=dir:$TIER"
seal --wait=tier "$MNT/run/step.6" "$MNT/run/step.7" 2>/dev/null ||
	for n in 6 7; do "$tools/ckptfs-seal" -q --no-seal --wait=tier "$MNT/run/step.$n"; done

# --- kill -9 in the middle of a drop: the next mount finishes it ---
for n in 8 9 10 11; do
	step $n
	seal --wait=tier "$MNT/run/step.$n"
	keep --keep-last 1 --drop &
	dropping=$!
	sleep 0.0$((n * 7 % 10))
	fs_kill
	wait $dropping || true
	fs_mount "tier=dir:$TIER"
	same 5 6 7 $(seq 8 $n)
done
keep --keep-last 1 --drop --gc || fail_showing "cannot drop after crashes"
same 1 2 3 4 5 6 7 8 9 10 11
before=$(packs_kib)
[ $before -le $((4 * 10 * 1024)) ] || fail "the packs take $before KiB for one checkpoint"

as_user() { setpriv --reuid 1001 --clear-groups "$@"; }
mkdir "$MNT/user"
chown 1001 "$MNT/user"
for n in 1 2; do
	as_user mkdir "$MNT/user/mine.$n"
	for i in $(seq 100); do
		echo "$n $i" >"$MNT/user/mine.$n/$i"
	done
	chown -R 1001 "$MNT/user/mine.$n"
	seal --wait=tier "$MNT/user/mine.$n"
done
exits 0 "$tools/ckptfs-gc" --keep-last 1 --drop "$MNT/user"

# --- a tier that hangs: a FUSE filesystem whose daemon is stopped. Only readers of dropped files wait, and can be killed ---
far=$WORK/far
mkdir "$far"
at_end() {
	[ -z "${hung:-}" ] || kill -CONT "$hung" 2>/dev/null
	umount -l "$far" 2>/dev/null
}
"$CKPTFS_BUILD/fs/mount.ckptfs" "$WORK/far.store" "$far" || fail "cannot mount the filesystem of the tier"
hung=$(stat_json "$far" | json pid)
cp -a "$TIER" "$far/tier"
# Each request is served once, also one that is queued after a read of a dropped file was queued: places of one user are all in
# use. More readers wait than the kernel lets wait by default; none of them keeps local files from others.
fs_remount "tier=dir:$far/tier,tier_timeout=10h"
as_user mkdir "$MNT/user/once"
for n in $(seq 16); do
	as_user mkdir "$MNT/user/once/$n"
	as_user touch "$MNT/user/once/$n/file"
done
drop_caches
stop_process "$hung"
waiting=
for n in $(seq 10); do
	as_user "$tools/ckptfs-stat" --verify --quick "$MNT/user/mine.1" >/dev/null 2>&1 &
	waiting+=" $!"
done
for n in $(seq 100); do
	as_user cat "$MNT/user/mine.1/$n" >/dev/null 2>&1 &
	waiting+=" $!"
done
sealing=
for n in $(seq 16); do
	as_user "$tools/ckptfs-seal" -q "$MNT/user/once/$n" &
	sealing+=" $!"
done
diff -r "$MNT/run/step.11" "$PLAIN/run/step.11" || fail "local bytes differ"
kill -CONT "$hung"
for p in $sealing; do
	wait "$p" || fail "a directory was not sealed"
done
for n in $(seq 16); do
	as_user "$tools/ckptfs-seal" -q --unseal "$MNT/user/once/$n"
done
for p in $waiting; do
	wait "$p" || true
done
for n in $(seq 16); do
	as_user touch "$MNT/user/once/$n/more" || fail "directory $n was sealed once more"
done
rm -r "$MNT/user/once"

for limit in 10h 1s; do
	fs_remount "tier=dir:$far/tier,tier_timeout=$limit"
	[ $limit = 1s ] || same 2 # a busy machine may take longer
	drop_caches
	stop_process "$hung"
	readers=
	for n in 3 4 6; do
		cat "$MNT/run/step.$n/ranks/0" >/dev/null 2>&1 &
		readers="$readers $!"
	done
	diff -r "$MNT/run/step.11" "$PLAIN/run/step.11" || fail "step.11 has other bytes"
	[ "$(stat -c %s "$MNT/run/step.3/ranks/0")" = $((10 << 20)) ] || fail "another size"
	[ "$(cat "$MNT/run/step.3/empty")" = "" ] || fail "an empty file has bytes"
	echo more >"$MNT/new-$limit" && sync "$MNT/new-$limit" || fail "cannot write while the tier hangs"
	if [ $limit = 1s ]; then
		for p in $readers; do
			! wait "$p" || fail "something was read from a tier that hangs"
		done
	else
		kill -KILL $readers
		for p in $readers; do
			wait "$p" 2>/dev/null || true
		done
	fi
	exits 0 "$tools/umount.ckptfs" "$MNT" # returns while threads still wait
	flock -n -s "$STORE/superblock" true || fail "the store is still in use"
	kill -CONT "$hung"
	wait "$DAEMON" || fail "exit code $? after a tier that hung"
	DAEMON=
	fs_mount "tier=dir:$TIER"
done
umount "$far"
gone "$hung"
hung=

# --- retention of the tier removes what was dropped here: reads fail, and stat tells ---
exits 0 "$tools/ckptfs-gc" --tier --keep-last 3 --delete "dir:$TIER"
fs_remount "tier=dir:$TIER"
lost() { sealed_line 1 | grep -q 'lost: dropped here'; }
await lost
durable() { "$tools/ckptfs-stat" --sealed --json "$MNT" | tr '{' '\n' | grep "step\.$1\"" | grep -o '"durable":"[a-z]*"'; }
[ "$(durable 1) $(durable 9)" = '"durable":"none" "durable":"tier"' ] || fail "JSON: step.1 $(durable 1), step.9 $(durable 9)"
fails 1
same 9 10 11

# --- a dropped checkpoint is removed as any other ---
keep --keep-last 1 --delete --gc || fail_showing "cannot remove dropped checkpoints"
[ "$(ls "$MNT/run")" = step.11 ] || fail "there are still: $(ls "$MNT/run")"
same 11
fs_umount
fs_sound "after dropped checkpoints were removed"
