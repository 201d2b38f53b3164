#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A store takes no more on its disk after ckptfs-compact than before, however it was written, and what is said to be saved is. Data that was compressed when written
# is not larger in the end than other data. ./bench space and ./bench aware have the other data sets, at their size.
# SETS: of tests/bench/datasets.py, all with each COMPRESS; by default hdf5 with all four ways, and criu with two. SIZE: MiB.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
no_commit_timer
compact=$CKPTFS_BUILD/tools/ckptfs-compact
slack=64 # KiB: headers and tables of packs
tables=16 # KiB: RocksDB may merge small tables of the index later on a busy machine

# fresh: once it is unmounted, what the store takes and what its packs do
fresh() {
	fs_umount
	kib=$(disk_kib "$STORE") packs=$(disk_kib "$STORE/packs")
}

# Random bytes cannot be coded: compacting changes nothing, neither packs nor the index, whatever the number of files.
mkdir "$WORK/random"
head -c 2M /dev/urandom >"$WORK/random/large"
for i in $(seq 600); do
	head -c 5K /dev/urandom >"$WORK/random/file-$i"
done
for options in chunking=page,compress=none chunking=cdc,compress=zstd chunking=auto,compress=zstd; do
	rm -rf "$STORE"
	fs_mount "$options"
	cp -r "$WORK/random" "$MNT/"
	fresh
	before=$kib
	for round in 1 2; do
		fs_mount "$options"
		"$compact" "$MNT/random" >"$WORK/out"
		fresh
		[ "$kib" -le $((before + tables)) ] || fail "random, $options, round $round: grew from $before to $kib KiB"
	done
done

made=
for set in ${SETS:-hdf5 criu}; do
	/usr/bin/python3 "$HERE/../bench/datasets.py" "$set" "$WORK/$set" --size "${SIZE:-1}" >"$WORK/why" || {
		[ $? = 77 ] || fail "cannot make $set"
		skip_part "$set: $(tail -1 "$WORK/why")"
		continue
	}
	made="$made $set"
done
[ -n "$made" ] || skip "none of the data sets can be made here"

for set in $made; do
	declare -A left=()
	ways="none zstd"
	[ "$set" != hdf5 ] || ways="none lz4 auto zstd"
	for chunking in page cdc auto; do
		for compress in ${COMPRESS:-$ways}; do
			rm -rf "$STORE"
			fs_mount "chunking=$chunking,compress=$compress"
			cp -r "$WORK/$set" "$MNT/"
			fresh
			before=$kib packs_before=$packs
			fs_mount "chunking=$chunking,compress=$compress"
			budget=(--budget 1000) # so much time that a busy machine chooses no other coder
			[ "$set-$chunking-$compress" != hdf5-page-auto ] || budget=() # the coders that users get
			"$compact" --json "${budget[@]}" "$MNT/$set" >"$WORK/out"
			fresh
			saved=$("$PYTHON" -c 'import json,sys; print(json.load(sys.stdin)["saved_bytes"] // 1024)' <"$WORK/out")
			[ "$packs" -le "$packs_before" ] || fail "$set, $chunking, $compress: packs grew from $packs_before to $packs KiB"
			[ "$kib" -le $((before + tables)) ] || fail "$set, $chunking, $compress: grew from $before to $kib KiB"
			off=$((packs_before - packs - saved))
			[ "${off#-}" -le "$slack" ] || fail "$set, $chunking, $compress: $saved KiB said to be saved, $((packs_before - packs)) are"
			[ $((before - kib)) -ge $((saved * 15 / 16 - slack)) ] || # the index may have grown
				fail "$set, $chunking, $compress: $saved KiB said to be saved, the store is $((before - kib)) smaller"
			left[$chunking-$compress]=$packs
			fs_mount
			diff -r "$WORK/$set" "$MNT/$set" || fail "$set, $chunking, $compress: other bytes"
			fs_umount
			echo "$set, $chunking, $compress: packs $packs_before to $packs KiB, store $before to $kib"
		done
	done
	[ "${left[auto-zstd]}" -le $((left[page-none] + slack)) ] ||
		fail "$set: auto with zstd, compacted, takes ${left[auto-zstd]} KiB, pages, compacted, ${left[page-none]}"
done
echo "ok"
