#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-gc --tier removes checkpoints from a tier, and packs that only they needed, while the tier is mounted and flushed
# to. Kept checkpoints stay there byte for byte, and removed ones are not flushed again.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
tools=$CKPTFS_BUILD/tools
restore=$(program tier_restore)
TIER=$WORK/tier
ANY=$WORK/any
mkdir "$TIER" "$ANY"
at_end() { ! grep -qsF " $ANY fuse" /proc/mounts || "$tools/umount.ckptfs" "$ANY"; }
seal() { "$tools/ckptfs-seal" -q "$@"; }
objects() { find "$TIER/$1" -type f ! -name '.*' 2>/dev/null | wc -l; } # KIND
is() { [ "$(figure "tier.$1")" = "$2" ]; } # KEY VALUE: to be awaited
manifests() { grep -rla ckptTMAN "$TIER/sealed" | wc -l; }
step() { # PATH SEED: 2 MiB of which 1 MiB is new; in the mount and in $WORK/plain
	local d
	for d in "$MNT/$1" "$WORK/plain/$1"; do
		mkdir -p "$d"
		{ noise same 1; noise "$2" 1; } >"$d/state"
		echo "$2" >"$d/info"
	done
}
# has PATH...: an empty machine gets these, byte for byte, and no others
has() {
	local path
	rm -rf "$WORK/back"
	mkdir "$WORK/back"
	"$restore" "dir:$TIER" "$WORK/back" || fail "the tier cannot be read"
	for path in "$WORK"/back/*/*.path; do
		[ -e "$path" ] || continue
		diff -r "${path%.path}" "$WORK/plain/$(cat "$path")" || fail "$(cat "$path"): other bytes in the tier"
	done
	[ "$(cat "$WORK"/back/*/*.path | sort | xargs)" = "$*" ] || fail "in the tier: $(cat "$WORK"/back/*/*.path | xargs), not $*"
}
gc() { "$tools/ckptfs-gc" --tier "$@" "dir:$TIER"; }
gc_says() { # KEY...: of the last collection
	json "$@" <"$WORK/out.json" | xargs
}

no_commit_timer
fs_mount "tier=dir:$TIER"
for i in 1 2 3 4; do
	step run/step.$i $i
	exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/run/step.$i"
done
step other/state.1 9
exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/other/state.1"
has other/state.1 run/step.1 run/step.2 run/step.3 run/step.4

# --- it only lists without --delete ---
before=$(find "$TIER" -type f | sort | xargs -d '\n' sha256sum)
exits 0 gc --keep-last 2
tells "remove  run/step.2"
tells "keep    run/step.3"
tells "keep    other/state.1"
tells "Nothing was changed. --delete would remove 2 sealed checkpoints."
[ "$(find "$TIER" -type f | sort | xargs -d '\n' sha256sum)" = "$before" ] || fail "a list changed the tier"

# --- wrong uses ---
exits 1 "$tools/ckptfs-gc" "dir:$TIER"
says "add --tier"
exits 1 "$tools/ckptfs-gc" --tier "$TIER"
exits 1 "$tools/ckptfs-gc" --tier --policies "dir:$TIER"
exits 2 "$tools/ckptfs-gc" --tier "dir:$WORK/absent"

# --- removed at once; the space with the next collection; a mount of the tier is not disturbed ---
exits 0 "$CKPTFS_BUILD/fs/mount.ckptfs" "dir:$TIER" "$ANY"
exec 7<"$ANY/run/step.4/state" 8<"$ANY/run/step.1/state"
packs=$(objects packs)
gc --keep-last 2 --delete --json >"$WORK/out.json" || fail "no collection"
[ "$(gc_says removed kept freed_packs complete)" = "2 3 0 true" ] || fail "$(cat "$WORK/out.json")"
[ "$(gc_says pending_packs)" = 1 ] || fail "$(cat "$WORK/out.json")" # step 1 has what is in all of them
[ "$(manifests) $(objects packs)" = "3 $packs" ] || fail "objects: $(find "$TIER" -type f)"
has other/state.1 run/step.3 run/step.4
gc --delete --json >"$WORK/out.json" || fail "no second collection"
[ "$(gc_says removed freed_packs pending_packs)" = "0 1 0" ] || fail "$(cat "$WORK/out.json")"
[ "$(gc_says freed_bytes)" -gt $((1 << 20)) ] || fail "$(cat "$WORK/out.json")"
[ "$(objects packs)" = $((packs - 1)) ] || fail "objects: $(find "$TIER" -type f)"
has other/state.1 run/step.3 run/step.4
cmp - "$WORK/plain/run/step.4/state" <&7 || fail "a kept checkpoint cannot be read"
exec 7<&- 8<&-
await test ! -e "$ANY/run/step.1"
cmp "$ANY/run/step.3/state" "$WORK/plain/run/step.3/state" || fail "a kept checkpoint cannot be read"
[ "$(ls "$ANY/run" | xargs)" = "step.3 step.4" ] || fail "shown: $(ls "$ANY/run")"

# --- a mounted daemon has it from the log of the tier before a wait is answered, without a flush or a remount ---
exits 3 "$tools/ckptfs-seal" --no-seal --wait=tier "$MNT/run/step.1"
says "retention has removed it there"
exits 0 "$tools/ckptfs-seal" --no-seal --wait=tier "$MNT/run/step.4"
exits 0 "$tools/ckptfs-stat" --sealed "$MNT"
tells "run/step.1.*removed by retention"
[ "$(figure tier.sealed) $(figure tier.in_tier) $(figure tier.waiting)" = "3 3 0" ] ||
	fail "$(figure tier.sealed) sealed, $(figure tier.in_tier) in the tier"

# --- the daemon continues behind the fence of the collection, and does not share deleted packs ---
step run/step.5 2 # what only step.2 had
exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/run/step.5"
has other/state.1 run/step.3 run/step.4 run/step.5

# --- what was removed is not flushed again after a restart ---
fs_umount
fs_mount "tier=dir:$TIER"
await is state idle
has other/state.1 run/step.3 run/step.4 run/step.5
[ "$(figure tier.sealed) $(figure tier.in_tier) $(figure tier.waiting)" = "4 4 0" ] ||
	fail "$(figure tier.sealed) sealed, $(figure tier.in_tier) in the tier"
exits 0 "$tools/ckptfs-stat" --sealed "$MNT"
tells "removed by retention"
exits 3 "$tools/ckptfs-seal" --no-seal --wait=tier "$MNT/run/step.1"
says "retention has removed it there"

# --- collections are killed at any time, and repeated: no garbage is left ---
for i in 6 7 8; do
	step run/step.$i $i
	exits 0 "$tools/ckptfs-seal" --wait=tier "$MNT/run/step.$i"
	for delay in 0.02 0.2 0.5 1; do
		"$tools/ckptfs-gc" --tier --keep-last 2 --delete -q "dir:$TIER" >/dev/null 2>&1 &
		sleep $delay
		kill -KILL $! 2>/dev/null || true
		wait $! || true
	done
done
pack=$(find "$TIER/packs" -type f ! -name '.*' | head -n 1)
ln "$pack" "${pack%/*}/.new-0123456789abcdef" # as of a writer that was killed before it removed this name
for i in 1 2; do exits 0 gc --keep-last 2 --delete; done
has other/state.1 run/step.7 run/step.8
[ "$(find "$TIER" -name '.new-*' | wc -l)" = 0 ] || fail "temporaries are left: $(find "$TIER" -name '.new-*')"
[ "$(manifests) $(objects packs)" = "3 4" ] || fail "objects: $(find "$TIER" -type f)"

# --- a damaged manifest may name any pack: nothing is deleted ---
damaged=$(grep -rla ckptTMAN "$TIER/sealed" | sort | head -n 1)
cp -p "$damaged" "$WORK/saved"
printf x | dd of="$damaged" bs=1 seek=190 conv=notrunc status=none
exits 2 gc --keep-last 1 --delete
says "is damaged"
[ "$(manifests) $(objects packs)" = "3 4" ] || fail "objects: $(find "$TIER" -type f)"
cp -p "$WORK/saved" "$damaged"
has other/state.1 run/step.7 run/step.8

# --- a manifest is missing, which no collection has removed: nothing is deleted until it is dropped ---
rm "$damaged"
exits 2 gc --keep-last 1 --delete
says "is missing"
[ "$(manifests) $(objects packs)" = "2 4" ] || fail "objects: $(find "$TIER" -type f)"
cp -p "$WORK/saved" "$damaged"
exits 0 gc --delete
has other/state.1 run/step.7 run/step.8
rm "$damaged"
exits 0 gc --forget-missing --delete
has run/step.7 run/step.8
exits 0 gc --delete
has run/step.7 run/step.8
exits 0 "$tools/umount.ckptfs" "$ANY"
fs_umount
