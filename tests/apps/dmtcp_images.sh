#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Images as DMTCP 3 and 4 write them, made by image_files.py from the memory of running processes: Debian has no DMTCP. Images of later steps store what has
# changed, ckptfs-analyze knows the kinds of memory, and compaction keeps every byte. tests/mount/dmtcp.sh has DMTCP itself, where it is installed.
. "$(dirname "$0")/../mount/lib.sh"
need_mount

worker=$(program worker)
mib=8
image() { # VERSION PID FILE; $count: of the process at that time
	stop_process "$2"
	count=$(counted "count.$1" 0)
	"$PYTHON" "$HERE/../apps/image_files.py" --dmtcp "$1" "$2" "$3" || fail "no image of process $2"
	kill -CONT "$2"
}

no_commit_timer
for version in 3 4; do
	for chunking in page auto; do
		fs_mount chunking=$chunking
		mkdir -p "$MNT/$version" "$WORK/$version"
		rm -f "$WORK/count.$version.0"
		"$worker" "$WORK/count.$version" $mib 1 0 </dev/null >/dev/null 2>&1 &
		pid=$!
		await grep -q ' [1-9]' "$WORK/count.$version.0"
		for step in 1 2 3; do
			image $version $pid "$WORK/$version/$step"
			before=$(new)
			cp "$WORK/$version/$step" "$MNT/$version/$step.dmtcp"
			sync -f "$MNT"
			more=$(($(new) - before))
			if [ $step = 1 ]; then
				[ $more -ge $((mib << 20)) ] || fail "version $version, $chunking: the first image stored $more bytes"
			else
				# pages that were counted since, and stacks, the allocator's state and the headers of areas
				changed=$(((count + 1 - last) * 4096)) # the last count may not be told yet
				[ $more -le $((changed + (256 << 10))) ] || fail "version $version, $chunking: step $step stored $more bytes, of which $changed had changed"
			fi
			last=$count
		done
		kill -KILL $pid
		wait $pid 2>/dev/null || true
		fs_remount chunking=$chunking
		kinds_are_known "$MNT/$version" 3 $mib "stack code library anonymous other all"
		exits 0 "$CKPTFS_BUILD/tools/ckptfs-compact" --quiet "$MNT"
		fs_remount chunking=$chunking
		for step in 1 2 3; do cmp "$WORK/$version/$step" "$MNT/$version/$step.dmtcp" || fail "version $version, $chunking: step $step"; done
		fs_umount
		fs_sound "after images of version $version"
		rm -rf "$STORE"
		echo "ok images of version $version, chunking=$chunking"
	done
done
