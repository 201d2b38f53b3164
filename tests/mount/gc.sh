#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-gc as people use it: what it tells, what it frees, mounted and not, stopped and gone on with, refused.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
no_commit_timer

gc=$CKPTFS_BUILD/tools/ckptfs-gc

# What an empty store takes.
fs_mount
fs_umount
empty=$(disk_kib "$STORE")

fs_mount
# In whole pages: requests end where pages of the writer's buffer do, and half a page, stored by a commit just then, is garbage when the other half has come.
for i in 1 2 3 4; do noise $i 24 | dd of="$MNT/file.$i" bs=1M iflag=fullblock status=none; done
cp "$MNT/file.1" "$MNT/copy"
sync "$MNT/file.4"
exits 0 "$gc" "$MNT"
tells '^Garbage: *0 B'

# Told, not done.
rm "$MNT/file.1" "$MNT/file.2"
[ "$("$gc" --json "$MNT" | json dead_bytes)" = $((24 << 20)) ] || fail "file.2 alone is garbage: copy has what file.1 had"
exits 0 "$gc" "$MNT"
tells "ckptfs gc --delete $MNT"
[ "$(figure stored_bytes)" = $((96 << 20)) ] || fail "a report has changed something"
"$CKPTFS_BUILD/tools/ckptfs-stat" "$MNT" | grep -q '^Garbage: *24 MiB' || fail "ckptfs-stat does not tell what was found"

# Done, and what is left is whole.
before=$(disk_kib "$STORE")
[ "$("$gc" --delete --json "$MNT" | json freed_bytes)" = $((24 << 20)) ] || fail "what was told is not what was freed"
[ "$(figure stored_bytes)" = $((72 << 20)) ] || fail "ckptfs-stat does not know"
[ $((before - $(disk_kib "$STORE"))) -ge $((23 << 10)) ] || fail "the disk did not get it back"
for i in 3 4; do noise $i 24 | cmp - "$MNT/file.$i"; done
noise 1 24 | cmp - "$MNT/copy"
fs_remount
for i in 3 4; do noise $i 24 | cmp - "$MNT/file.$i"; done

# Written again, it is stored again, once.
noise 2 24 >"$MNT/again"
noise 2 24 >"$MNT/and-again"
sync "$MNT/again" "$MNT/and-again"
[ "$(figure stored_bytes)" = $((96 << 20)) ] || fail "not stored once"
noise 2 24 | cmp - "$MNT/again"

# A file that is open though it has no name stays.
exec 5<"$MNT/again"
rm "$MNT/again" "$MNT/and-again"
collect
noise 2 24 | cmp - /dev/fd/5
exec 5<&-

# Without a mount; and a rebuilt index knows what is gone.
fs_umount
exits 0 "$gc" "$STORE"
tells '^Garbage: *24 MiB'
exits 0 "$gc" --delete "$STORE"
tells '^Freed: *24 MiB'
rm -r "$STORE/index"
exits 2 "$gc" "$STORE"
says 'fsck.ckptfs --rebuild'
fs_rebuild
fs_mount
for i in 3 4; do noise $i 24 | cmp - "$MNT/file.$i"; done
noise 2 24 >"$MNT/again"
noise 2 24 | cmp - "$MNT/again"

# However slow it is to be, the clock ends it.
exits 3 timeout 600 "$gc" --delete --rate 1 --budget 0.3s "$MNT"

# Refused, with a reason.
exits 2 "$gc" "$STORE"
says "run ckptfs gc $MNT"
[ "$(wc -l <"$WORK/said")" = 1 ] || fail "one reason, several lines"
exits 2 "$gc" "$MNT/again"
says 'give a mountpoint or a store'
exits 2 "$gc" "$WORK"
says 'neither a ckptfs mount nor a store'
exits 2 "$gc" "$WORK/missing"
exits 1 "$gc"
exits 1 "$gc" --budget soon "$MNT"
says 'not a time'
exits 1 "$gc" --move-below 101 "$MNT"
exits 1 "$gc" --rate fast "$MNT"
exits 1 "$gc" --place "$MNT"
says 'needs --delete'
exits 1 "$gc" --no-such-option "$MNT"
exits 0 "$gc" --help
exits 0 "$gc" --version
chmod 755 "$MNT"
exits 2 as_nobody "$gc" --delete "$MNT"
says 'only root'

# The newest file of a series comes to lie in few places, all stay what they were.
scattered_series
(cd "$MNT" && sha256sum step.*) >"$WORK/steps"
places() { stat_json "$MNT/step.15" | json frames; }
[ "$(places)" -gt 32 ] || fail "the series is not scattered: $(places) places"
exits 0 "$gc" --delete --place "$MNT"
tells '^Placed: '
[ "$(places)" -le 16 ] || fail "still in $(places) places"
fs_remount
(cd "$MNT" && sha256sum --quiet -c "$WORK/steps") || fail "a file has changed"

# With hardly any time it ends early and says so; in the end all is done.
rm "$MNT"/*
exits 3 "$gc" --delete --budget 0.000001s "$MNT"
tells 'Time limit reached'
exits 0 "$gc" --delete "$MNT"
exits 0 "$gc" --delete "$MNT"
[ "$(figure stored_bytes)" = 0 ] || fail "something is left"
fs_umount
# The journal keeps its records until its next segment.
[ "$(disk_kib "$STORE")" -le $((empty + 128)) ] ||
	{ du -ak "$STORE"; fail "$(disk_kib "$STORE") KiB are left, an empty store takes $empty"; }

# A daemon that has died: its mount says so, its store is free.
fs_mount
daemon_kill
exits 2 "$gc" "$MNT"
says 'has died; unmount'
exits 2 "$CKPTFS_BUILD/tools/ckptfs-scrub" "$MNT"
says 'has died; unmount'
exits 0 "$gc" "$STORE"
fs_kill
