#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-init creates a store with what can be chosen only once, or says why not and leaves nothing behind.
. "$(dirname "$0")/lib.sh"
need_mount

init=$CKPTFS_BUILD/tools/ckptfs-init
refused() { # CODE REGEX ARGUMENT...: and nothing is made or changed
	local code=$1 regex=$2
	shift 2
	find "$WORK" ! -name out ! -name said -printf '%p %y %s %T@\n' | grep -v "^$WORK d" >"$WORK.before"
	exits "$code" "$init" "$@"
	says "$regex"
	find "$WORK" ! -name out ! -name said -printf '%p %y %s %T@\n' | grep -v "^$WORK d" >"$WORK.after"
	cmp -s "$WORK.before" "$WORK.after" || fail_showing "changed: $(diff "$WORK.before" "$WORK.after")"
	rm "$WORK.before" "$WORK.after"
}

mkdir "$WORK/full"
echo x >"$WORK/full/file"
echo short >"$WORK/key"
refused 1 'one directory for the store must be given'
refused 1 '--hash md5: must be one of auto|xxh3|sha256|clmul' --hash md5 "$STORE"
refused 1 '--dedup all: must be one of global|group|user' --dedup all "$STORE"
refused 2 "$WORK/no/store: its parent directory does not exist; mkdir it first" "$WORK/no/store"
refused 2 "$WORK/full: holds 'file' and no superblock: not a ckptfs store, and not empty" "$WORK/full"
refused 2 "$WORK/key: not a directory; give the directory of a store" "$WORK/key"
echo "ok refusals"

exits 0 "$init" --hash sha256 --dedup user "$STORE"
tells "^$STORE: created: hash=sha256, dedup=user, not part of a cluster$"
tells "^Mount it with: ckptfs mount $STORE MOUNTPOINT$"
refused 2 'is a store already, and what was chosen then cannot be changed' "$STORE"
exits 0 "$CKPTFS_BUILD/tools/fsck.ckptfs" -n "$STORE"
exits 1 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o hash=clmul
says 'made with another hash='
exits 1 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o dedup=global
says 'made with dedup=user'
fs_mount hash=sha256,dedup=user
echo content >"$MNT/file"
fs_remount
grep -qx content "$MNT/file" || fail "the file is gone"
fs_umount
mkdir "$WORK/empty"
exits 0 "$init" --quiet "$WORK/empty"
[ ! -s "$WORK/out" ] || fail_showing "--quiet prints something"
echo "ok a store"

if [ -x "$CKPTFS_BUILD/mpi-agent/ckptfs-agent" ]; then
	refused 2 "cluster key $WORK/key: has 6 bytes, must have 32" --cluster "$WORK/key" "$WORK/member"
	head -c 32 /dev/urandom >"$WORK/key"
	chmod 600 "$WORK/key"
	exits 0 "$init" --cluster "$WORK/key" "$WORK/member"
	tells 'shares chunks with the stores of its cluster'
	STORE=$WORK/member
	fs_mount "cluster=$WORK/key"
	[ "$(figure cluster.member)" = true ] || fail "not in the cluster"
	fs_umount
	echo "ok a store of a cluster"
fi

if [ "$(id -u)" != 0 ]; then
	skip_part "a store in memory needs root"
else
	mkdir "$WORK/memory"
	mount -t tmpfs -o size=64m tmpfs "$WORK/memory"
	exits 0 "$init" "$WORK/memory/store"
	says "^ckptfs-init: warning: store $WORK/memory/store: lies on tmpfs, in memory: all of it is lost when this machine stops"
	umount "$WORK/memory"
	echo "ok in memory"
fi
