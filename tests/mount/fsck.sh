#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# fsck.ckptfs on stores that were mounted: exit codes, what it says, that -n changes nothing, that what it repairs mounts again
# with everything there, and that the files it names are those that cannot be read.
. "$(dirname "$0")/lib.sh"
need_root
need_mount
need setfattr

fsck=$CKPTFS_BUILD/tools/fsck.ckptfs

# said CODE REGEX COMMAND...: exits so and says so
said() {
	local code=$1 regex=$2 got=0
	shift 2
	"$@" >"$WORK/said" 2>&1 || got=$?
	[ "$got" = "$code" ] || fail "$*: exit code $got, expected $code: $(tail -n 20 "$WORK/said")"
	grep -Eq -- "$regex" "$WORK/said" || fail "$*: says nothing like /$regex/: $(tail -n 20 "$WORK/said")"
}
state_of() { (cd "$STORE" && find . -printf '%p %s %m %T@ %C@\n' | sort && find . -type f -exec sha256sum {} + | sort); }
unchanged() { # COMMAND...
	state_of >"$WORK/state.before"
	"$@"
	state_of >"$WORK/state.after"
	diff "$WORK/state.before" "$WORK/state.after" >&2 || fail "$*: has changed something"
}
restore() { rm -rf "$STORE"; cp -a "$WORK/good" "$STORE"; }
# intact: mounts, and everything is there
intact() {
	fs_mount
	(cd "$MNT" && find . -type f -exec sha256sum {} + | sort) | diff "$WORK/sums" - >&2 || fail "$1: not everything is there"
	fs_umount
}

fs_mount
mkdir -p "$MNT/d/e" "$MNT/moved"
head -c 3000000 /dev/urandom >"$MNT/d/big"
cp "$MNT/d/big" "$MNT/d/copy"
for i in $(seq 200); do echo "$i" >"$MNT/d/e/file$i"; done
ln "$MNT/d/e/file7" "$MNT/link"
ln -s nowhere "$MNT/soft"
mkfifo "$MNT/fifo"
setfattr -n user.x -v y "$MNT/d/big"
truncate -s 64M "$MNT/sparse"
printf x | dd of="$MNT/sparse" bs=1 seek=50000001 conv=notrunc status=none
mv "$MNT/d/e" "$MNT/moved/e"
rm "$MNT/moved/e/file9"
(cd "$MNT" && find . -type f -exec sha256sum {} + | sort) >"$WORK/sums"
said 8 "in use: $STORE is mounted on $MNT" "$fsck" -n "$STORE"
said 8 "in use: $STORE is mounted on $MNT" "$fsck" -n "$MNT"
fs_umount
cp -a "$STORE" "$WORK/good"

said 16 'one store' "$fsck"
said 16 'exclude each other' "$fsck" -n -y "$STORE"
said 16 'rebuild' "$fsck" -n --rebuild "$STORE"
said 16 'cache' "$fsck" --cache banana "$STORE"
said 16 '' "$fsck" --wrong "$STORE"
said 8 'No such file' "$fsck" -p "$WORK/nowhere"
said 8 'not a ckptfs store' "$fsck" "$WORK"
said 0 'Usage' "$fsck" --help
echo "ok usage"

unchanged said 0 'clean' "$fsck" "$STORE"
unchanged said 0 'every byte read' "$fsck" -n --read-data "$STORE"
said 0 'clean' "$fsck" -p "$STORE"
said 0 'clean' "$fsck" -y --cache 8M "$STORE"
said 1 'rebuilt' "$fsck" --rebuild "$STORE"
said 0 'clean' "$fsck" -a "$STORE"
intact "a rebuilt store"
echo "ok a clean store"

# What has a second source is repaired; before that, -n tells it and changes nothing.
repairs() { # WHAT REGEX DAMAGE...
	local what=$1 regex=$2
	shift 2
	restore
	"$@"
	unchanged said 4 "$regex" "$fsck" -n "$STORE"
	said 1 "repaired: .*$regex" "$fsck" -p "$STORE"
	said 0 'clean' "$fsck" -n --read-data "$STORE"
	intact "$what"
	echo "ok $what is repaired"
}
repairs "the superblock" 'superblock: the first copy' flip "$STORE/superblock" 60
repairs "a pack's header" 'pack 1: the header' flip "$STORE/packs/00000001.pack" 30
repairs "a table of fingerprints" 'pack 1 frame 0: the table' flip "$STORE/packs/00000001.pack" $((4096 + 300))
repairs "a journal" 'journal: ' flip "$STORE/journal/$(ls "$STORE/journal" | grep -m 1 '\.log$')" 700
repairs "a missing index" 'index: missing or unusable' rm -r "$STORE/index"
sst=$(cd "$WORK/good/index" && ls -S -- *.sst | head -n 1)
repairs "a damaged table of the index" 'index: ' flip "$STORE/index/$sst" 200

# Lost bytes: the files that are named are the ones that cannot be read.
restore
flip "$STORE/packs/00000001.pack" $((8192 + 3 * 4096 + 100))
said 0 'clean' "$fsck" -n "$STORE"
said 4 'left; -p repairs what can be' "$fsck" -n --read-data "$STORE"
said 4 '^d/big: bytes 12288 to 16383 cannot be read' "$fsck" -p --read-data "$STORE"
grep -q '^d/copy: bytes 12288 to 16383' "$WORK/said" || fail "the copy is hit and not named"
grep -q '2 files are missing 8192 bytes; writing .*verify' "$WORK/said" || fail "the sum is wrong: $(cat "$WORK/said")"
fs_mount
for f in d/big d/copy; do
	! cat "$MNT/$f" >/dev/null 2>&1 || fail "$f is damaged and can be read"
done
cat "$MNT/moved/e/"* "$MNT/sparse" >/dev/null || fail "a file that is not hit cannot be read"
fs_umount
"$fsck" -n --read-data --json "$STORE" >"$WORK/json" && fail "--json: exit code 0"
"$PYTHON" - "$WORK/json" <<'PY' || fail "--json: not as promised"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema_version"] == 1 and d["exit_code"] == 4 and d["left"] == 3 and d["lost_bytes"] == 8192, d
hits = {(f["path"], f["offset"], f["length"]) for f in d["findings"] if "path" in f}
assert hits == {("d/big", 12288, 4096), ("d/copy", 12288, 4096)}, hits
PY
echo "ok lost bytes are told with their files"

restore
dd if=/dev/zero of="$STORE/superblock" bs=8192 count=1 conv=notrunc status=none
said 4 'both copies are damaged' "$fsck" -y "$STORE"

# A store of a daemon that died: clean, and -p applies the journal.
rm -rf "$STORE"
fs_mount
for i in $(seq 50); do echo "$i" >"$MNT/f$i"; done
sync "$MNT/f50"
fs_kill
unchanged said 0 'in the journal only' "$fsck" -n --read-data "$STORE"
said 0 'clean' "$fsck" -p --read-data "$STORE"
! grep -q 'in the journal only' "$WORK/said" || fail "-p has not applied the journal"
fs_mount
[ "$(ls "$MNT" | wc -l)" = 50 ] || fail "files are missing after fsck -p"
fs_umount
echo "ok a killed store"

# An index that cannot be rebuilt is not reported as rebuilt.
restore
rm -r "$STORE/index"
mkdir "$STORE/index"
mount -t tmpfs -o ro tmpfs "$STORE/index"
said 4 'index: cannot rebuild: ' "$fsck" -p "$STORE"
! grep -q 'rebuilt from\|was rebuilt' "$WORK/said" || fail "reported as rebuilt: $(cat "$WORK/said")"
said 4 '"index_rebuilt": *false' "$fsck" -p --json "$STORE"
umount "$STORE/index"
said 1 'the index was rebuilt' "$fsck" -p "$STORE"
echo "ok an index that cannot be rebuilt"

# Interrupted: 130, and no harm done.
head -c 64M /dev/urandom >"$WORK/much"
fs_mount
cp "$WORK/much" "$MNT/much"
fs_umount
"$fsck" -p --read-data "$STORE" >"$WORK/said" 2>&1 &
pid=$!
sleep 0.02
kill -INT "$pid" 2>/dev/null || true
code=0
wait "$pid" || code=$?
[ "$code" = 130 ] || [ "$code" = 0 ] || fail "interrupted: exit code $code"
said 0 'clean' "$fsck" -n --read-data "$STORE"
echo "ok interrupted"
