#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What the daemon permits by ioctls is what the kernel permits by open(2), for every kind of caller, file and directory; and where the
# daemon cannot see the caller's process, never more than that.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
as_nobody test -x "$WORK" || skip "other users cannot reach $WORK"

permissions=$(program permissions)

# run PLAIN [unseen], run control, run tier
run() {
	local code=0
	case $1 in /*) mkdir -p "$1" ;; esac
	"$permissions" "$MNT" "$@" >"$WORK/said" || code=$?
	[ $code != 77 ] || skip "$(cat "$WORK/said") ($1)"
	[ $code = 0 ] || fail "permissions exited with $code"
	cat "$WORK/said"
}

# The filesystem to compare with: ext4 where it can be had.
mkdir "$WORK/plain"
truncate -s 64M "$WORK/image"
if ! { mkfs.ext4 -q "$WORK/image" && mount -o loop "$WORK/image" "$WORK/plain"; } 2>/dev/null; then
	skip_part "no ext4 on a loop device: compared with the filesystem of TMPDIR"
fi
fs_mount
run "$WORK/plain/a"
fs_umount
fs_sound "after many callers"
echo "ok every entry point decides as the kernel does"

# A daemon in a pid namespace of its own, with a /proc of another one: requests of processes outside have no pid.
rm -r "$STORE"
run_daemon() { unshare --pid --fork --kill-child "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" --foreground >>"$WORK/daemon.log" 2>&1; }
run_daemon &
DAEMON=$!
await mounted
await stat -f "$MNT" >/dev/null
run "$WORK/plain/b" unseen
umount "$MNT"
wait "$DAEMON" || fail "the daemon ended with exit code $?"
DAEMON=
echo "ok a caller that cannot be seen gets nothing that depends on its groups and capabilities"

# A tier beneath the store.
rm -r "$STORE"
mkdir "$WORK/tier"
fs_mount "tier=dir:$WORK/tier"
run tier
fs_umount
echo "ok figures of the tier are for those that the manual names"

# The node directory view of a store in a cluster.
if has_cluster; then
	rm -r "$STORE"
	head -c 32 /dev/urandom >"$WORK/key"
	fs_mount "cluster=$WORK/key"
	run control
	fs_umount
	echo "ok no caller changes the node directory view"
else
	skip_part "built without the cluster"
fi
