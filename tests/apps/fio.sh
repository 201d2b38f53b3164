#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# fio with verification: random and sequential, buffered, memory-mapped, direct, asynchronous, several jobs.
. "$(dirname "$0")/../mount/lib.sh"
need fio

run() { # NAME OPTIONS...
	local name=$1
	shift
	mkdir -p "$MNT/$name"
	fio --name="$name" --directory="$MNT/$name" --size=16m --verify=crc32c --verify_fatal=1 --randseed=42 --fallocate=none \
		--minimal "$@" >"$WORK/fio.log" 2>&1 || { tail -n 20 "$WORK/fio.log" >&2; fail "fio $name"; }
	echo "ok $name"
}

cd "$WORK" || exit 1 # fio leaves its verify states where it runs
fs_mount
run random --rw=randwrite --bs=4k --fsync_on_close=1
run odd --rw=randrw --bsrange=512-70k --bs_unaligned --size=8m
run sequential --rw=write --bs=1m --numjobs=3 --end_fsync=1
run mmap --rw=randwrite --ioengine=mmap --bs=4k
run mmap_mixed --rw=randrw --ioengine=mmap --bs=8k --numjobs=2
run direct --rw=randwrite --direct=1 --bs=4k --size=8m
run direct_large --rw=write --direct=1 --bs=1m --numjobs=2
run async --rw=randrw --ioengine=libaio --iodepth=16 --direct=1 --bs=16k
run synced --rw=randwrite --bs=8k --size=4m --fdatasync=16
run dedupe --rw=write --bs=64k --dedupe_percentage=60 --buffer_compress_percentage=30
fs_remount

# What was written before is verified again, read from the store.
fio --name=sequential --directory="$MNT/sequential" --size=16m --verify=crc32c --verify_fatal=1 --randseed=42 --rw=write --bs=1m \
	--numjobs=3 --verify_only --minimal >"$WORK/fio.log" 2>&1 || { tail -n 20 "$WORK/fio.log" >&2; fail "after a remount"; }
fs_umount
