#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Versions of a lineage made from delta objects: each is an ordinary file, whatever becomes of the producer, the daemon, the disk, the
# versions before it; what must be refused changes nothing.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
no_commit_timer

delta=$(program delta)

fs_mount
for method in full basic list tree; do
	for chunk in 32 128 4096; do
		mkdir "$MNT/$method.$chunk"
		"$delta" make "$MNT/$method.$chunk" 1 $method $chunk 1 20 >"$WORK/$method.$chunk"
		"$delta" check "$MNT/$method.$chunk" 1 1 20
	done
done
[ "$(figure deltas.versions)" = 240 ] || fail "$(figure deltas.versions) versions are counted, not 240"
given=$(figure deltas.payload_bytes) whole=$(figure deltas.bytes)
[ "$given" -gt 0 ] && [ "$given" -lt "$whole" ] || fail "$given of $whole bytes are said to have come with the deltas"
[ "$whole" = "$(cat "$MNT"/*/* | wc -c)" ] || fail "versions are said to have $whole bytes"
"$CKPTFS_BUILD/tools/ckptfs-stat" "$MNT" | grep -q '^Deltas since mount: .* in 240 versions' || fail "ckptfs-stat does not tell of deltas"
fs_remount
for lineage in "$MNT"/*; do
	"$delta" check "$lineage" 1 1 20
done
echo "ok every version reads and maps as what the program had"

# A version is a file like any other, and shares with all others.
before=$(figure stored_bytes)
cp "$MNT/tree.128/000008" "$MNT/copy"
sync "$MNT/copy"
grown=$(($(figure stored_bytes) - before))
[ "$grown" -lt 8192 ] || fail "a copy of a version that was written whole took $grown bytes"
cmp "$MNT/copy" "$MNT/tree.128/000008"
mkdir "$MNT/written-first" "$MNT/later"
cp "$MNT/tree.128/000001" "$MNT/written-first/plain"
before=$(figure stored_bytes)
"$delta" make "$MNT/later" 1 tree 128 1 1 >/dev/null # 3 MiB; what is staged has another alignment, and goes
collect
grown=$(($(figure stored_bytes) - before))
[ "$grown" -lt 16384 ] || fail "a version of known pages took $grown bytes"
printf changed >>"$MNT/later/000001"
echo "ok pages of versions and of other files are the same"

# The producer dies between BEGIN and COMMIT.
collect
before=$(figure stored_bytes)
mkfifo "$WORK/staged"
"$delta" stage "$MNT/later" 7 100 >"$WORK/staged" &
producer=$!
read -r line <"$WORK/staged"
[ "$line" = staged ] || fail "no object was staged"
[ ! -e "$MNT/later/000100" ] || fail "a version is there that was not committed"
kill -KILL $producer
wait $producer 2>/dev/null || true
gone $producer || fail "the producer lives on"
collect
[ "$(figure stored_bytes)" = "$before" ] || fail "$(($(figure stored_bytes) - before)) bytes of a dead producer are left"
[ ! -e "$MNT/later/000100" ] || fail "a version of a dead producer is there"
echo "ok a producer that dies leaves nothing"

# So does the daemon. What was committed with SYNC is there, even if it was a moment ago.
mkdir "$MNT/killed"
"$delta" make "$MNT/killed" 2 tree 128 1 12 >/dev/null
"$delta" stage "$MNT/killed" 2 13 >"$WORK/staged" &
producer=$!
read -r line <"$WORK/staged"
fs_kill
kill -KILL $producer 2>/dev/null || true
wait $producer 2>/dev/null || true
fs_sound "after kill -9 of the daemon between begin and commit"
fs_mount
"$delta" check "$MNT/killed" 2 1 12
[ ! -e "$MNT/killed/000013" ] || fail "a version is there that was not committed"
"$delta" make "$MNT/killed" 2 tree 128 13 20 >/dev/null # a new process knows nothing of the old one's
"$delta" check "$MNT/killed" 2 1 20
echo "ok kill -9 of the daemon"

# Old versions go, and what only they had.
rm "$MNT"/killed/00000? "$MNT"/killed/00001[0-8]
"$delta" check "$MNT/killed" 2 19 20
rm -r "$MNT"/full.* "$MNT"/basic.* "$MNT"/list.* "$MNT/tree.32" "$MNT/tree.4096" "$MNT/copy" "$MNT/written-first" "$MNT/later"
rm "$MNT"/tree.128/00000[1-9]
before=$(figure stored_bytes)
collect
[ "$(figure stored_bytes)" -lt "$before" ] || fail "nothing was freed"
"$delta" check "$MNT/tree.128" 1 10 20
"$delta" check "$MNT/killed" 2 19 20
"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --place --quiet "$MNT" >/dev/null
"$delta" check "$MNT/tree.128" 1 10 20
fs_remount
"$delta" check "$MNT/tree.128" 1 10 20
echo "ok deleting old versions and collecting"

mkdir "$MNT/errors"
"$delta" errors "$MNT/errors"
echo "ok what must be refused is"

# A user without read permission for a version cannot make another from it. (The user nobody cannot reach the build directory.)
mkdir -m 777 "$MNT/shared"
"$delta" make "$MNT/shared" 3 tree 128 1 1 >/dev/null # 0640, root's
cp "$delta" "$WORK/delta"
chmod 755 "$WORK/delta"
! as_nobody "$WORK/delta" make-on "$MNT/shared" 3 tree 128 2 2 >"$WORK/said" 2>&1 || fail "bytes of a file that cannot be read were shared"
grep -q "Permission denied" "$WORK/said" || fail "not EACCES but: $(cat "$WORK/said")"
chmod 644 "$MNT/shared/000001"
as_nobody "$WORK/delta" make-on "$MNT/shared" 3 tree 128 2 2 >/dev/null
"$delta" check "$MNT/shared" 3 1 2
[ "$(stat -c %U "$MNT/shared/000002")" = "$(id -un 65534)" ] || fail "version 2 belongs to $(stat -c %U "$MNT/shared/000002")"
chmod 755 "$MNT/shared"
! as_nobody "$WORK/delta" make "$MNT/shared" 3 tree 128 3 3 >"$WORK/said" 2>&1 || fail "a version in a directory of others"
grep -q "Permission denied" "$WORK/said" || fail "not EACCES but: $(cat "$WORK/said")"
echo "ok permissions"

# Several lineages at once.
for i in 1 2 3 4 5 6; do
	mkdir "$MNT/lineage.$i"
	"$delta" make "$MNT/lineage.$i" "$i" tree 128 1 20 >/dev/null &
	makers[i]=$!
done
for i in 1 2 3 4 5 6; do wait "${makers[i]}" || fail "lineage $i was not made"; done
for i in 1 2 3 4 5 6; do "$delta" check "$MNT/lineage.$i" "$i" 1 20; done
fs_umount
fs_sound "after many deltas"
echo "ok several lineages at once"

# A full disk: an error, nothing half made, and room again when something is deleted.
small_disk 60m
fs_mount
last=0
while mkdir "$MNT/l.$last" && "$delta" make "$MNT/l.$last" $last full 128 1 1 >"$WORK/said" 2>&1; do
	last=$((last + 1))
	[ "$last" -lt 40 ] || fail "a disk of 60 MiB is never full"
done
grep -q "No space left" "$WORK/said" || fail "not ENOSPC but: $(cat "$WORK/said")"
[ -z "$(ls "$MNT/l.$last")" ] || fail "after an error there is a version: $(ls "$MNT/l.$last")"
for ((i = 0; i < last; i++)); do "$delta" check "$MNT/l.$i" $i 1 1; done
rm -r "$MNT"/l.[0-2]
collect
"$delta" make "$MNT/l.$last" $last full 128 1 1 >/dev/null
for ((i = 3; i <= last; i++)); do "$delta" check "$MNT/l.$i" $i 1 1; done
fs_umount
fs_sound "after a full disk"
echo "ok a full disk after $last lineages"
