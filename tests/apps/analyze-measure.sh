#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-analyze recommends what is smallest, and a mount with the same options takes what it says, with --page and --dedup too.
# SETS: of tests/bench/datasets.py; SIZE: MiB. At their full size all sets were within 1 %; small stores get a slack.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
need_root
analyze=$CKPTFS_BUILD/tools/ckptfs-analyze
SLACK=64 # KiB: the journal and the index are rewritten by every mount, and its timer ends a frame whenever it fires
export LC_ALL=C
field() { "$PYTHON" -c 'import json,sys; j = json.load(open(sys.argv[2])); print(eval(sys.argv[1]))' "$1" "$WORK/measured"; } # EXPRESSION

# predict [ARGUMENT...]: of $set, to $WORK/measured
predict() {
	mkdir "$WORK/scratch"
	TMPDIR=$WORK/scratch "$analyze" --quiet --json --budget 1000 "$@" "$WORK/$set" >"$WORK/measured"
	rmdir "$WORK/scratch" || fail "scratch stores are left behind"
}

# fill: the mount gets the set with its owners, in the order in which it was written, as a program writes: in large pieces. With
# $fsync, the percentage that may be missed then, each file is synced.
fsync=
fill() {
	local uid gid name
	(cd "$WORK" && find "$set" -type d -exec mkdir -p "$MNT/{}" \;)
	(cd "$WORK" && find "$set" -type f -printf '%T@ %U %G %p\n') | sort -n | while read -r _ uid gid name; do
		install -o "$uid" -g "$gid" /dev/null "$MNT/$name"
		dd if="$WORK/$name" of="$MNT/$name" bs=1M "conv=notrunc${fsync:+,fsync}" status=none
	done
}

# taken OPTIONS COMPACT: KiB of a store that has the set, once it is unmounted
taken() {
	rm -rf "$STORE"
	fs_mount "$1"
	fill
	fs_umount
	if [ "$2" = True ]; then
		fs_mount "$1"
		"$CKPTFS_BUILD/tools/ckptfs-compact" --quiet --budget 1000 "$MNT/$set" >"$WORK/out"
		fs_umount
	fi
	disk_kib "$STORE"
}

# near BYTES KIB WHAT: within 1 %, or 4 % if files are synced: commits of scratch stores have no names
near() {
	local off=$(($1 / 1024 - $2))
	[ "${off#-}" -le $(($2 * ${fsync:-1} / 100 + SLACK)) ] || fail "$set, $3: $(($1 / 1024)) KiB expected, a mount takes $2"
	echo "ok $set, $3: $(($1 / 1024)) KiB expected, $2 taken"
}

# make_set: 1 if it cannot be made here
make_set() {
	/usr/bin/python3 "$HERE/../bench/datasets.py" "$set" "$WORK/$set" --size "${SIZE:-1}" >"$WORK/why" && return
	[ $? = 77 ] || fail "cannot make $set"
	skip_part "$set: $(tail -1 "$WORK/why")"
	return 1
}

for set in ${SETS:-criu hdf5}; do
	make_set || continue
	predict
	options=$(field 'j["recommended"]["options"]') compact=$(field 'j["recommended"]["compact"]') expected=$(field 'j["recommended"]["expected_bytes"]')
	least=$(field 'min(min(s["store_bytes"], s["compacted_bytes"]) for s in j["measured"]["stores"])')
	[ $((expected * 100)) -le $((least * 101)) ] || fail "$set: $expected bytes recommended, $least were measured"
	near "$expected" "$(taken "$options" "$compact")" "$options, compact $compact"
	# and what was not recommended is told as well
	near "$(field 'j["measured"]["stores"][5]["compacted_bytes"]')" "$(taken chunking=auto,compress=zstd True)" "auto, zstd, compacted"
	rm -r "${WORK:?}/$set"
done

# Ranks, of which two belong to another user.
set=ranks
make_set
chown 12345:12345 "$WORK/$set"/*/*rank[12]
for with in "--chunking page --page 64K --compress zstd" "--chunking auto --dedup user --compress zstd" "--chunking cdc --dedup group --min 1K --avg 8K --max 64K --compress none"; do
	# shellcheck disable=SC2086 # each is a word
	predict $with
	options=$(field 'j["measured"]["stores"][0]["options"]')
	near "$(field 'j["measured"]["stores"][0]["store_bytes"]')" "$(taken "$options" False)" "$options"
	near "$(field 'j["measured"]["stores"][0]["compacted_bytes"]')" "$(taken "$options" True)" "$options, compacted"
done

# Files that are synced one by one: small ones, with and without compression. Without --fsync less is expected.
set=small fsync=4
mkdir "$WORK/small"
for i in $(seq 150); do
	head -c 10K /dev/urandom >"$WORK/small/random-$i"
	seq $((i * 5000)) $((i * 5000 + 4000)) >"$WORK/small/text-$i"
done
for compress in none zstd; do
	predict --chunking auto --compress "$compress" --fsync
	near "$(field 'j["measured"]["stores"][0]["store_bytes"]')" "$(taken "chunking=auto,compress=$compress" False)" "auto, $compress, fsync"
	near "$(field 'j["measured"]["stores"][0]["compacted_bytes"]')" "$(taken "chunking=auto,compress=$compress" True)" "auto, $compress, fsync, compacted"
done
exits 0 "$analyze" --quiet --no-compact --chunking page "$WORK/small"
tells 'Programs that sync each file need noticeably more space: measure with --fsync'
exits 0 "$analyze" --quiet --no-compact --chunking page --fsync "$WORK/small"
says_not 'measure with --fsync'
set=ranks

# Only the newest steps, where there is more than is to be measured; not even one; no room.
exits 0 "$analyze" --quiet --no-compact --chunking page --json --measure 10M "$WORK/$set"
"$PYTHON" -c 'import json,sys; j = json.load(open(sys.argv[1])); assert 0 < j["measured"]["data_bytes"] <= 10 << 20 < j["total"]["size_bytes"], j["measured"]' "$WORK/out" ||
	fail "--measure is not kept"
exits 2 "$analyze" --quiet --measure 4K "$WORK/$set"
says 'give a larger --measure'
says_not '^Recommended: '
TMPDIR=$WORK/nowhere exits 2 "$analyze" --quiet "$WORK/$set"
says 'nowhere: .*No such file'
mkdir "$WORK/full"
mount -t tmpfs -o size=60m none "$WORK/full"
TMPDIR=$WORK/full exits 2 "$analyze" --quiet "$WORK/$set"
says 'full: a scratch store needs .* is free: set TMPDIR, or give a smaller --measure'
umount "$WORK/full"
exits 0 "$analyze" --quiet --no-compact --chunking page --json "$WORK/$set"
data=$("$PYTHON" -c 'import json,sys; print(json.load(open(sys.argv[1]))["measured"]["data_bytes"])' "$WORK/out")
mount -t tmpfs -o size=$((data * 3 / 2 + (64 << 20))) none "$WORK/full" # compaction copies before it frees
TMPDIR=$WORK/full exits 2 "$analyze" --quiet --chunking page "$WORK/$set"
says 'full: a scratch store needs .* is free: set TMPDIR, or give a smaller --measure'
TMPDIR=$WORK/full exits 0 "$analyze" --quiet --no-compact --chunking page "$WORK/$set"
umount "$WORK/full"
echo "ok"
