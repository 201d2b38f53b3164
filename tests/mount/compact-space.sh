#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A store takes no more on its disk after ckptfs-compact than before, however it was written, and what is said to be saved is. Data that was compressed when written
# is not larger in the end than other data. ./bench space and ./bench aware have the other data sets, at their size.
# SETS: of tests/bench/datasets.py, and stencil, files of many ranks with small variables; all with each COMPRESS, by default hdf5 with all four ways, and the
# others with two. SIZE: MiB.
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

# Nor is the index larger because the daemon had nothing to do for a second meanwhile: fingerprints that are not worth a
# place in it when the store is closed are not written to it before.
rm -rf "$STORE"
fs_mount cache=64M
mkdir "$MNT/random"
for step in 1 2; do
	head -c 40M /dev/urandom >"$MNT/random/step-$step"
done
fresh
before=$kib
fs_mount cache=64M
"$compact" "$MNT/random" >"$WORK/out"
sleep 2.5 # longer than a quiet moment
fresh
[ "$kib" -le $((before + tables)) ] || fail "80 MiB of random bytes: grew from $before to $kib KiB"

# make_stencil: as tests/bench/aware.py does, 8 MiB in all
make_stencil() {
	local program=$CKPTFS_BUILD/tests/bench/stencil_h5
	if ! [ -x "$program" ] || ! command -v mpirun >/dev/null; then
		echo "needs MPI and HDF5"
		return 77
	fi
	mkdir "$WORK/stencil"
	mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -n 16 "$program" "$WORK/stencil" 11 8 2>&1
}
# make_set NAME: 77: it cannot be made here, and the last line says why
make_set() {
	[ "$1" != stencil ] || { make_stencil; return; }
	/usr/bin/python3 "$HERE/../bench/datasets.py" "$1" "$WORK/$1" --size "${SIZE:-1}"
}

made=
for set in ${SETS:-hdf5 stencil criu}; do
	make_set "$set" >"$WORK/why" || {
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
	# Chunks cut by content begin anywhere: those that stay beside coded ones must not keep the blocks that they share with them.
	[ "$set" != stencil ] || [ $((left[cdc-none] * 100)) -le $((left[cdc-zstd] * 105)) ] ||
		fail "$set: cut by content, compacted, takes ${left[cdc-none]} KiB, and ${left[cdc-zstd]} if compressed when written"
done
echo "ok"
