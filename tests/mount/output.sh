#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A command that cannot write its output, as the disk is full, fails, and says so.
. "$(dirname "$0")/lib.sh"
need_mount
[ -c /dev/full ] || skip "/dev/full is not there"

tools=$CKPTFS_BUILD/tools
lost() { # CODE COMMAND...
	exits "$1" bash -c '"$@" >/dev/full' lost "${@:2}"
	says 'cannot write standard output: No space left on device$'
}

fs_mount
noise 1 1 >"$MNT/file"
noise 1 2 >"$MNT/other"
mkdir "$MNT/epoch"
"$tools/ckptfs-seal" --quiet "$MNT/epoch"
lost 2 "$tools/ckptfs-stat" --json "$MNT"
lost 2 "$tools/ckptfs-stat" "$MNT/file"
lost 2 "$tools/ckptfs-stat" --if-deleted "$MNT/file"
lost 2 "$tools/ckptfs-gc" "$MNT"
lost 2 "$tools/ckptfs-gc" --json --delete "$MNT"
lost 2 "$tools/ckptfs-scrub" --json "$MNT"
lost 2 "$tools/ckptfs-seal" --list --json "$MNT"
lost 2 "$tools/ckptfs-stat" --sealed --json "$MNT"
lost 2 "$tools/ckptfs-stat" --verify --json "$MNT/epoch"
lost 2 "$tools/ckptfs-restart-path" "$MNT"
lost 2 "$tools/ckptfs-analyze" --no-compact --json "$MNT/file"
lost 2 "$tools/ckptfs-diff" "$MNT/file" "$MNT/other" # they differ: not 1
lost 3 "$tools/ckptfs-doctor" "$MNT"                 # the mount has a warning, no scrub: not 1
mkdir "$WORK/tier"
lost 2 "$tools/ckptfs-tier" list "dir:$WORK/tier"
lost 2 "$tools/ckptfs-tier" verify --json "dir:$WORK/tier"
lost 2 "$tools/ckptfs-tier" usage "dir:$WORK/tier"
fs_umount
lost 2 "$tools/ckptfs-gc" "$STORE"
lost 8 "$tools/fsck.ckptfs" -n "$STORE"
lost 8 "$tools/fsck.ckptfs" -n --json "$STORE"
