#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A command that has the daemon work for it and is killed leaves nothing at work: collecting, scrubbing and compacting end with the descriptor
# they were asked for on. Each would take an hour at a byte per second.
. "$(dirname "$0")/lib.sh"
need_mount
tools=$CKPTFS_BUILD/tools

fs_mount
mkdir "$MNT/dir"
for i in 1 2 3 4 5 6; do
	head -c 4M /dev/urandom >"$MNT/dir/$i"
	seq 500000 >"$MNT/dir/text$i"
done
sync "$MNT"/dir/*
rm "$MNT"/dir/[12]

at_work() { grep -qx "$1" /proc/"$DAEMON"/task/*/comm 2>/dev/null; } # THREAD: of the daemon
idle() { ! at_work "$1"; }
left() { # THREAD COMMAND...: killed once it is at work, it leaves no process at work
	local thread=$1 pid
	shift
	"$@" >/dev/null 2>&1 &
	pid=$!
	await at_work "$thread"
	kill -KILL $pid
	wait $pid 2>/dev/null || true
	await idle "$thread"
	echo "ok $thread"
}

left ckptfs-gc "$tools/ckptfs-gc" --delete --quiet --rate 1 "$MNT"
left ckptfs-scrub "$tools/ckptfs-scrub" --quiet --rate 1 "$MNT"
left ckptfs-compact "$tools/ckptfs-compact" --quiet --rate 1 "$MNT/dir"
left ckptfs-compact "$tools/ckptfs-compact" --quiet --rate 1 "$MNT/dir/text3"
seq 500000 | cmp - "$MNT/dir/text3" || fail "other bytes"
fs_umount
fs_sound "after all of them"
