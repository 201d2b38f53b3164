#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-scrub as people use it: damage on the disk of a mounted store is found and told with its files, writing repairs it, a scrub is
# stopped, killed and gone on with, beside writers and collections, refused with a reason.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

scrub=$CKPTFS_BUILD/tools/ckptfs-scrub
stat=$CKPTFS_BUILD/tools/ckptfs-stat

# Nothing is wrong.
fs_mount
mkdir -p "$MNT/run7/deep"
for i in 1 2 3; do noise $i 8 >"$WORK/$i"; done
cp "$WORK/1" "$MNT/run7/deep/ckpt.1"
cp "$WORK/1" "$MNT/twin"
cp "$WORK/2" "$MNT/other"
cp "$WORK/3" "$MNT/third"
sync "$MNT/third"
exits 0 "$stat" "$MNT"
tells '^Last scrub: *never'
exits 0 "$scrub" "$MNT"
tells '^Compared: *24 MiB in 6144 chunks'
tells '^Damaged: *nothing'
exits 0 "$scrub" --quiet "$MNT"
says_nothing "all is sound and --quiet was given"
[ "$(figure scrub.known) $(figure scrub.bytes) $(figure scrub.damaged)" = "true $((24 << 20)) 0" ] ||
	fail "ckptfs-stat does not know of it"
exits 0 "$stat" "$MNT"
tells '^Last scrub: *24 MiB .*ago, 0 damaged places, 0 left'
exits 0 "$stat" --prometheus "$MNT"
tells '^ckptfs_scrub_last_bytes{.*} 25165824$'

# Two bytes flip on the disk: found, told with the files, and only those.
flip_chunk "$WORK/1" $((5 * 4096 + 7))
flip_chunk "$WORK/1" $((6 * 4096 + 7))
flip_chunk "$WORK/2" $((1000 * 4096 + 7))
exits 4 "$scrub" "$MNT"
tells '^run7/deep/ckpt.1: bytes 20480 to 28671 cannot be read'
tells '^twin: bytes 20480 to 28671 cannot be read'
tells '^other: bytes 4096000 to 4100095 cannot be read'
says_not '^third'
tells '^3 files are missing 20 KiB'
tells '3 chunks, 0 tables or headers; 0 repaired, 0 unreferenced, 3 left'
[ "$(figure health.damaged)" = 3 ] || fail "not marked as damaged"
[ "$(figure scrub.damaged) $(figure scrub.left)" = "3 3" ] || fail "ckptfs-stat does not know of the damage"
! cat "$MNT/twin" >/dev/null 2>&1 || fail "damaged bytes can be read"
cmp "$WORK/3" "$MNT/third"
"$scrub" --json "$MNT" >"$WORK/json" && fail "--json: exit code 0"
"$PYTHON" - "$WORK/json" <<'PY' || fail "--json: not as promised"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema_version"] == 1 and d["complete"] and d["damaged_chunks"] == 3 and d["left"] == 3 and d["lost_bytes"] == 20480, d
hits = {(h["path"], h["offset"], h["length"]) for h in d["hits"]}
assert hits == {("run7/deep/ckpt.1", 20480, 8192), ("twin", 20480, 8192), ("other", 4096000, 4096)}, hits
PY
echo "ok damage is told with its files"

# The same content again, as other files: all are repaired.
cp "$WORK/1" "$MNT/again.1"
cp "$WORK/2" "$MNT/again.2"
sync "$MNT/again.1" "$MNT/again.2"
exits 0 "$scrub" "$MNT"
tells '^Damaged: *nothing'
[ "$(figure health.damaged) $(figure health.repaired)" = "0 3" ] || fail "repair is not counted"
cmp "$WORK/1" "$MNT/run7/deep/ckpt.1"
cmp "$WORK/2" "$MNT/other"
fs_remount
[ "$(figure scrub.known) $(figure scrub.bytes)" = "true $((24 << 20))" ] ||
	fail "the last scrub is forgotten after a remount"
exits 0 "$scrub" "$MNT"
echo "ok writing repairs"

# A table of fingerprints is repaired, and what no file uses is no loss.
flip "$STORE/packs/00000001.pack" $((4096 + 300))
exits 0 "$scrub" "$MNT"
tells '1 table or header; 1 repaired'
flip_chunk "$WORK/3" 8192
rm "$MNT/third"
exits 0 "$scrub" "$MNT"
tells '1 unreferenced, 0 left'
collect
exits 0 "$scrub" "$MNT"
tells '^Damaged: *nothing'
tells '^Compared: *16 MiB'
fs_umount
fs_sound "after scrubs and repair"
echo "ok tables, and what no file uses"

# Stopped by the clock, gone on with; a rate below what there is makes it end early.
fs_mount
exits 3 "$scrub" --budget 0.000001s "$MNT"
tells 'Stopped early'
exits 3 "$scrub" --rate 1M --budget 0.3s "$MNT"
[ "$(figure scrub.unfinished)" = true ] || fail "ckptfs-stat does not know that it is not done"
exits 0 "$scrub" "$MNT"
[ "$(figure scrub.unfinished)" = false ] || fail "ckptfs-stat does not know that it is done"

# Interrupted: soon, however slow it is to be.
"$scrub" --rate 10K "$MNT" >/dev/null 2>&1 &
pid=$!
until [ "$(figure scrub.running)" = true ]; do sleep 0.05; done
exits 2 "$scrub" "$MNT"
says 'running already'
kill -INT "$pid"
code=0
wait "$pid" || code=$?
[ "$code" = 130 ] || fail "interrupted: exit code $code"
exits 0 "$scrub" "$MNT"

# Killed, the tool and then the daemon, in the middle and with damage: the next mount goes on and misses nothing.
flip_chunk "$WORK/1" $((5 * 4096 + 7))
flip_chunk "$WORK/2" $((2000 * 4096 + 7))
"$scrub" --restart --rate 10K "$MNT" >/dev/null 2>&1 &
pid=$!
until [ "$(figure scrub.round.bytes)" -gt 0 ]; do sleep 0.05; done
kill -KILL "$pid"
fs_kill
fs_mount
exits 4 "$scrub" "$MNT"
tells '^twin: bytes 20480 to 24575 cannot be read'
tells '^other: bytes 8192000 to 8196095 cannot be read'
echo "ok stopped and killed"

# Beside writers and collections nothing is taken for damaged that is not.
cp "$WORK/1" "$MNT/repair.1"
cp "$WORK/2" "$MNT/repair.2"
collect_on
for i in 1 2 3 4 5 6; do
	noise $((10 + i)) 8 >"$MNT/busy.$((i % 2))" &
	exits 0 "$scrub" --restart "$MNT"
	wait $!
done
kill -KILL "$COLLECTOR"
COLLECTOR=
until [ "$(figure garbage.collecting)" = false ]; do sleep 0.05; done
exits 0 "$scrub" --restart "$MNT"
echo "ok beside writers and collections"

# A mount is not kept busy by a scrub.
"$scrub" --restart --rate 10K "$MNT" >/dev/null 2>&1 &
until [ "$(figure scrub.running)" = true ]; do sleep 0.05; done
kill -KILL $!
fs_umount
fs_sound "after a scrub that was cut short"

# Read-only: it tells, and changes nothing.
flip_chunk "$WORK/2" $((3 * 4096 + 7))
fs_mount ro
exits 4 "$scrub" "$MNT"
tells '^other: bytes 12288 to 16383'
fs_umount
fs_mount

# Refused, with a reason.
exits 2 "$scrub" "$STORE"
says 'give its mountpoint'
exits 2 "$scrub" "$WORK"
says 'not on a ckptfs'
exits 2 "$scrub" "$MNT/other"
says 'give a mountpoint'
exits 2 "$stat" "$STORE"
says 'a store; give its mountpoint'
exits 2 "$scrub" "$WORK/missing"
exits 1 "$scrub"
exits 1 "$scrub" --budget soon "$MNT"
says 'not a time'
exits 1 "$scrub" --rate fast "$MNT"
says 'not a size'
exits 1 "$scrub" --no-such-option "$MNT"
exits 0 "$scrub" --help
exits 0 "$scrub" --version
chmod 755 "$MNT"
exits 2 as_nobody "$scrub" "$MNT"
says 'only root'
fs_umount
