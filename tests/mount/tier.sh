#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Sealed checkpoints are flushed to a shared directory in the background: byte for byte, once, and again after kill -9.
# A tier that is full, read-only, removed or hangs delays no user.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
tools=$CKPTFS_BUILD/tools
restore=$(program tier_restore)
TIER=$WORK/tier
mkdir "$TIER"
seal() { "$tools/ckptfs-seal" -q "$@"; }
tier() { figure "tier.$1"; }
is() { [ "$(tier "$1")" = "$2" ]; } # KEY VALUE: to be awaited
all_there() { [ "$(tier waiting)" = 0 ] && [ "$(tier sealed)" = "$1" ] && [ "$(tier in_tier)" = "$1" ]; } # NUMBER
objects() { find "$1" -type f ! -name '.*' -path "*/$2/*" 2>/dev/null | wc -l; } # TIER KIND
tier_bytes() { find "$1" -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }'; }

# back TIER: what an empty machine gets from it, in $WORK/back; each checkpoint is as it is in $WORK/plain, by its path
back() {
	local path
	rm -rf "$WORK/back"
	mkdir "$WORK/back"
	"$restore" "dir:$1" "$WORK/back" || fail "the tier cannot be read"
	for path in "$WORK"/back/*/*.path; do
		[ -e "$path" ] || continue
		diff -r --no-dereference "${path%.path}" "$WORK/plain/$(cat "$path")" || fail "$(cat "$path"): other bytes in the tier"
	done
}
# has TIER PATH...: and these are among them
has() {
	local tier=$1 path
	shift
	back "$tier"
	for path; do
		grep -qsx "$path" "$WORK"/back/*/*.path || fail "$path is not in the tier"
	done
}
step() { # PATH SEED: 6 MiB of which 1 MiB is new, and odd files; in the mount and in $WORK/plain
	local d
	for d in "$MNT/$1" "$WORK/plain/$1"; do
		mkdir -p "$d/ranks"
		{ noise same 5; noise "$2" 1; } >"$d/ranks/0"
		truncate -s 3M "$d/hole"
		echo "$2" >"$d/info"
		: >"$d/empty"
		ln "$d/info" "$d/ranks/also"
		ln -s ranks/0 "$d/link"
	done
}

# --- flushed in the background, byte for byte; nothing that the tier has is sent again ---
no_commit_timer
fs_mount "tier=dir:$TIER"
is state connecting || await is state idle
step run/step.1 1
exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/run/step.1"
tells "step.1: in the tier dir:$TIER"
[ "$(objects "$TIER" packs) $(objects "$TIER" sealed) $(objects "$TIER" keys)" = "1 1 1" ] || fail "other objects: $(find "$TIER")"
first=$(tier_bytes "$TIER")
for n in 2 3 4; do
	step run/step.$n $n
	exits 0 "$tools/ckptfs-seal" --wait=tier:4m "$MNT/run/step.$n"
done
# 3 MiB are new: one put for each started 64 MiB of a flush, and one for the manifest
[ "$(objects "$TIER" packs) $(objects "$TIER" sealed) $(objects "$TIER" keys)" = "4 4 1" ] || fail "other objects: $(find "$TIER")"
more=$(($(tier_bytes "$TIER") - first))
[ $more -le $(((3 << 20) * 102 / 100 + 4 * 8192)) ] || fail "$more bytes sent for 3 MiB"
# and the key and the entry of the store in the log
[ "$(tier sent_bytes)" = $((first + more - 76 - 80)) ] || fail "sent $(tier sent_bytes), but there are $((first + more)) bytes"
has "$TIER" run/step.1 run/step.2 run/step.3 run/step.4
# of 130 MiB, three packs
mkdir -p "$MNT/run/large" "$WORK/plain/run/large"
noise large 130 | tee "$WORK/plain/run/large/data" >"$MNT/run/large/data"
before=$(tier_bytes "$TIER")
exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/run/large"
[ "$(objects "$TIER" packs) $(objects "$TIER" sealed)" = "7 5" ] || fail "other objects: $(find "$TIER")"
[ $(($(tier_bytes "$TIER") - before)) -le $(((130 << 20) * 102 / 100)) ] || fail "more than 1.02 x the bytes"
seal --unseal "$MNT/run/large"
rm -r "$MNT/run/large"
await is state idle # which it is a moment after the last one is there
exits 0 "$tools/ckptfs-stat" "$MNT"
tells "^Tier: *idle *dir:$TIER, 4 of 4 sealed checkpoints are there"
exits 0 "$tools/ckptfs-stat" --sealed "$MNT"
tells "TIER\$"
tells "step.4  *sealed  *tier .*all\$"
exits 0 "$tools/ckptfs-stat" --sealed --json "$MNT"
tells '"durable":"tier".*"tier":{"complete":true,'
exits 0 "$tools/ckptfs-stat" --prometheus "$MNT"
tells '^ckptfs_tier_checkpoints{.*} 4$'
exits 2 "$tools/ckptfs-seal" --no-seal --wait=tier "$MNT/run"
says "not sealed"
exits 1 "$tools/ckptfs-seal" --wait=tier:never "$MNT/run"
fs_umount

# --- after a restart the manifests say what is there; what was sealed without a tier is flushed ---
fs_mount
exits 3 "$tools/ckptfs-seal" --no-seal --wait=tier "$MNT/run/step.1"
says "sealed on this node, but not in the tier: the mount has none"
exits 32 "$tools/umount.ckptfs" --flush "$MNT"
says "no tier to flush to"
step run/step.5 5
seal "$MNT/run/step.5"
fs_remount "tier=dir:$TIER"
await all_there 5
is flushed 1 || fail "flushed again: $(tier flushed)"
[ "$(objects "$TIER" sealed)" = 6 ] || fail "other manifests: $(find "$TIER")"
has "$TIER" run/step.5
# unsealed ones and removed ones are not waited for
seal --unseal "$MNT/run/step.5"
await all_there 4
rm -r "$MNT/run/step.5"
fs_umount

# --- unsealed, or removed, while it is flushed: no failure, and it is not there ---
fs_mount "tier=dir:$TIER,tier_rate=1M"
await all_there 4
begin_flush() { # NAME: a flush that takes 16 s
	mkdir -p "$MNT/gone/$1"
	noise "$1" 16 >"$MNT/gone/$1/data"
	seal "$MNT/gone/$1"
	await is state flushing
	exits 3 "$tools/ckptfs-seal" --no-seal --wait=tier:0.1s "$MNT/gone/$1"
	exits 0 "$tools/ckptfs-stat" --sealed "$MNT"
	tells "gone/$1  *sealed  *local .* of 16 MiB"
}
begin_flush a
seal --unseal "$MNT/gone/a"
await all_there 4
begin_flush b
mkdir "$MNT/gone/c"
seal "$MNT/gone/c"
exits 0 "$tools/ckptfs-gc" --keep-last 1 --delete "$MNT/gone"
await all_there 5
seal --unseal "$MNT/gone/c"
mkdir -p "$WORK/plain/gone/c"
is failures 0 || fail "that was a failure: $(tier failures)"
fs_umount
back "$TIER"
! grep -qs 'gone/[ab]' "$WORK"/back/*/*.path || fail "what was unsealed meanwhile is there"

# --- a checkpoint whose path is too long for a manifest does not delay others ---
ours=$STORE
mkdir "$WORK/long"
STORE=$WORK/fifth
fs_mount
step long/it l1
seal "$MNT/long/it"
"$PYTHON" - "$MNT" "$tools/ckptfs-seal" <<'PY'
import os, subprocess, sys
os.chdir(sys.argv[1])
for n in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
open("file", "w").write("far away")
subprocess.run([sys.argv[2], "-q", "."], check=True)
PY
fs_remount "tier=dir:$WORK/long"
exits 0 "$tools/ckptfs-seal" --no-seal --wait=tier "$MNT/long/it" # the older one
[[ "$(tier reason)" = *"File name too long"* ]] || fail "the reason: $(tier reason)"
fs_umount
has "$WORK/long" long/it
STORE=$ours

# --- a tier that is emptied under the mount: no manifest names deleted objects, and everything is flushed again ---
emptied=$WORK/emptied
mkdir "$emptied"
ours=$STORE
STORE=$WORK/fourth
fs_mount "tier=dir:$emptied"
step emptied/a e1
exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/emptied/a"
rm -r "$emptied"/*
step emptied/b e2
exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/emptied/b"
says "objects were deleted from the tier"
await all_there 2
fs_umount
has "$emptied" emptied/a emptied/b
STORE=$ours

# --- options ---
exits 1 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o "tier=ftp://host/path"
says "tier=ftp://host/path: unknown scheme"
exits 1 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o "tier=dir:relative"
says "begins with a slash"
exits 1 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o "ro,tier=dir:$TIER"
says "read-only"
for place in "$MNT" "$MNT/tier" "$STORE/tier"; do # flushing to itself, it could never be unmounted
	exits 32 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o "tier=dir:$place"
	says "tier dir:$place: lies .* choose a directory that outlives this machine"
done

# --- kill -9 at any moment: all that was acknowledged is there, and nothing that is there is partial ---
rm -rf "$TIER"
mkdir "$TIER"
acknowledged=()
for n in $(seq 12); do
	fs_mount "tier=dir:$TIER,tier_rate=4M"
	step kill/step.$n "k$n"
	sync -f "$MNT"
	seal "$MNT/kill/step.$n"
	if [ $((n % 3)) = 0 ]; then
		exits 0 "$tools/ckptfs-seal" --no-seal --wait=tier "$MNT/kill/step.$n"
		acknowledged+=(kill/step.$n)
	else
		sleep "0.$((RANDOM % 10))"
	fi
	fs_kill
	has "$TIER" "${acknowledged[@]}"
done
fs_sound "after kill -9"
fs_mount "tier=dir:$TIER"
await is waiting 0
fs_umount
has "$TIER" $(for n in $(seq 12); do echo kill/step.$n; done)

# --- a state of twice as many pages as there is memory for: what is new is sent, whatever ends in between ---
rm -rf "$TIER"
mkdir "$TIER"
beyond() { # STEP: flushed; of step 0 a checkpoint of 64 MiB, of others 1 % of its pages are new
	local before
	[ "$1" = 0 ] || cp -r "$WORK/plain/beyond/$(($1 - 1))" "$WORK/plain/beyond/$1"
	"$PYTHON" -c 'import os, random, sys
path, step = sys.argv[1], int(sys.argv[2])
os.makedirs(path, exist_ok=True)
draw = random.Random(step)
with open(path + "/state", "r+b" if step else "wb") as f:
    for page in draw.sample(range(16384), 164) if step else range(16384):
        f.seek(4096 * page)
        f.write(draw.randbytes(4096))' "$WORK/plain/beyond/$1" "$1"
	mkdir -p "$MNT/beyond"
	cp -r "$WORK/plain/beyond/$1" "$MNT/beyond/$1"
	await is waiting 0 # earlier checkpoints, which this tier does not have
	await is state idle
	before=$(tier sent_bytes)
	exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/beyond/$1"
	sent=$(($(tier sent_bytes) - before))
}
sends_what_is_new() { [ "$sent" -le $((164 * 4096 * 102 / 100)) ] || fail "$1: $sent bytes sent for $((164 * 4096))"; } # WHEN
mkdir -p "$WORK/plain/beyond"
fs_mount "tier=dir:$TIER,tier_cache=1M" # enough for 30 MiB
beyond 0
beyond 1
sends_what_is_new "on the same connection"
[ -s "$STORE/tier/list" ] || fail "the store has no index of the tier"
fs_kill
fs_mount "tier=dir:$TIER,tier_cache=1M"
beyond 2
sends_what_is_new "after kill -9"
fs_umount
fs_sound "with an index of the tier"
rm -r "$STORE/tier"
fs_mount "tier=dir:$TIER,tier_cache=1M"
beyond 3
sends_what_is_new "with a new index"
for n in 0 1 2 3; do seal --unseal "$MNT/beyond/$n"; done
rm -r "$MNT/beyond"
fs_umount
has "$TIER" beyond/0 beyond/1 beyond/2 beyond/3

# --- two copies of a store: the second one to write stops, and says so after a restart, too ---
cp -r "$STORE" "$WORK/copy"
ours=$STORE
fs_mount "tier=dir:$TIER"
step two/a a
exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/two/a"
fs_umount
STORE=$WORK/copy
for n in 1 2; do
	fs_mount "tier=dir:$TIER"
	await is state stopped
	[[ "$(tier reason)" = *"another machine has flushed to it as this store"* ]] || fail "the reason: $(tier reason)"
	if [ $n = 1 ]; then
		step two/b b
		seal "$MNT/two/b"
	fi
	exits 3 "$tools/ckptfs-seal" --no-seal --wait=tier "$MNT/two/b"
	says "not in the tier dir:$TIER: another machine"
	exits 2 "$tools/ckptfs-doctor" "$MNT"
	tells "flushing to dir:$TIER has stopped"
	exits 32 "$tools/umount.ckptfs" --flush "$MNT"
	says "1 of 17 .* flushing has stopped"
	fs_umount
done
has "$TIER" two/a
! grep -qsx two/b "$WORK"/back/*/*.path || fail "both copies have flushed"
# a person decides that the copy goes on; then the other one is stopped
fs_mount "tier=dir:$TIER,tier_takeover"
exits 0 "$tools/ckptfs-seal" --no-seal --wait=tier "$MNT/two/b"
fs_remount "tier=dir:$TIER"
await is state idle
fs_umount
STORE=$ours
fs_mount "tier=dir:$TIER"
await is state stopped
fs_umount
has "$TIER" two/a two/b

# --- a tier that is full, and has room again ---
small=$WORK/small
mkdir "$small"
mount -t tmpfs -o size=8M tmpfs "$small"
STORE=$WORK/other
fs_mount "tier=dir:$small"
step full/a f1
mkdir "$MNT/full/b" "$WORK/plain/full/b"
noise f2 16 | tee "$WORK/plain/full/b/data" >"$MNT/full/b/data"
seal "$MNT/full/b"
await is state retrying
[[ "$(tier reason)" = *"No space left on device"* ]] || fail "the reason: $(tier reason)"
exits 3 "$tools/ckptfs-seal" --no-seal --wait=tier:1s "$MNT/full/b"
says "in this time.*No space left"
exits 0 "$tools/ckptfs-stat" "$MNT"
tells "No space left on device"
# users must not learn the names in private directories of others; the log has them
reason=$(as_nobody "$tools/ckptfs-stat" --json "$MNT" | json tier.reason)
[[ "$reason" =~ ^directory\ [0-9]+: ]] || fail "the reason for all users: $reason"
grep -q "full/b: No space left on device; retrying" "$WORK/daemon.log" || fail "the log lacks the path"
seal "$MNT/full/a" # is not in its way
mount -o remount,size=64M "$small"
exits 0 "$tools/umount.ckptfs" --flush "$MNT"
wait "$DAEMON"
DAEMON=
has "$small" full/a full/b

# --- read-only, and removed ---
mount -o remount,ro "$small"
fs_mount "tier=dir:$small"
step ro/a r1
seal "$MNT/ro/a"
await is state retrying
[[ "$(tier reason)" = *"Read-only file system"* ]] || fail "the reason: $(tier reason)"
exits 0 "$tools/umount.ckptfs" "$MNT"
says "3 of 3 sealed checkpoints are not known to be in the tier"
wait "$DAEMON"
DAEMON=
umount "$small"
rmdir "$small"
fs_mount "tier=dir:$small"
await is state retrying
[[ "$(tier reason)" = *"No such file or directory"* ]] || fail "the reason: $(tier reason)"
fs_umount

# --- a tier that hangs: a FUSE filesystem whose daemon is stopped ---
far=$WORK/far
mkdir "$far"
"$CKPTFS_BUILD/fs/mount.ckptfs" "$WORK/far.store" "$far"
at_end() {
	[ -z "${hung:-}" ] || kill -CONT "$hung" 2>/dev/null
	umount -l "$far" 2>/dev/null
}
hung=$(stat_json "$far" | json pid)
mkdir "$far/tier"
STORE=$WORK/third
fs_mount "tier=dir:$far/tier"
step hung/a h1
exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/hung/a"
stop_process "$hung"
step hung/b h2
seal "$MNT/hung/b" # returns, as do writes, syncs and closes before it
await is state flushing
sync -f "$MNT"
exits 3 "$tools/ckptfs-seal" --no-seal --wait=tier:1s "$MNT/hung/b"
exits 0 "$tools/umount.ckptfs" "$MNT" # returns while the daemon's thread still waits
says "1 of 2 sealed checkpoints is not in the tier"
flock -n -s "$STORE/superblock" true || fail "the store is still in use"
kill -CONT "$hung"
wait "$DAEMON" || fail "exit code $? after a tier that hung"
DAEMON=
grep -q "does not answer" "$WORK/daemon.log" || fail "no word of it in the log"
fs_mount "tier=dir:$far/tier"
await all_there 2
fs_umount
has "$far/tier" hung/a hung/b
umount "$far"
gone "$hung"
hung=
