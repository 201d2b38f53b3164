#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A plain user mounts, uses and unmounts a store through fusermount3; no other user can read it.
. "$(dirname "$0")/lib.sh"
need_root # to become another user
need_mount
need fusermount3 setpriv unshare
[ -u "$(command -v fusermount3)" ] || skip "fusermount3 is not set-uid root"

mkdir "$WORK/home"
mknod -m 666 "$WORK/fuse" c 10 229 || skip "may not make a device node"
chown 65534:65534 "$WORK/home"
mkdir -m 700 "$WORK/secret" "$WORK/foreign"
cp "$CKPTFS_BUILD/fs/mount.ckptfs" "$CKPTFS_BUILD/tools/ckptfs-stat" "$WORK/"
cat >"$WORK/as-user" <<'SH'
set -eux
cd "$WORK/home"
mkdir mnt
id -u | grep -qx 65534
refused() { # CODE REGEX COMMAND...
	local code=0
	"${@:3}" >said 2>&1 || code=$?
	[ "$code" = "$1" ]
	grep -Eq "$2" said
}
refused 1 "store $WORK/secret: .*" "$WORK/mount.ckptfs" "$WORK/secret" "$PWD/mnt"
refused 1 "store $WORK/new: .*" "$WORK/mount.ckptfs" "$WORK/new" "$PWD/mnt"
refused 1 "mountpoint $WORK/foreign: .*" "$WORK/mount.ckptfs" "$PWD/store" "$WORK/foreign"
[ ! -e store ]
"$WORK/mount.ckptfs" "$PWD/store" "$PWD/mnt"
grep " $PWD/mnt fuse.ckptfs" /proc/mounts | grep -q 'user_id=65534'
mkdir mnt/d
head -c 3000000 /dev/urandom >mnt/d/file
cp mnt/d/file copy
sync -f mnt
"$WORK/ckptfs-stat" --json mnt >stat.json
grep -q stored_bytes stat.json
chmod 600 mnt/d/file
ln mnt/d/file mnt/hard
! chown 0 mnt/d/file
! mknod mnt/null c 1 3
[ "$(stat -c %u mnt/d/file)" = 65534 ]
pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' stat.json)
fusermount3 -u mnt
for i in $(seq 300); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
[ ! -d "/proc/$pid" ]
"$WORK/mount.ckptfs" "$PWD/store" "$PWD/mnt"
cmp mnt/d/file copy
touch "$WORK/home/mounted"
for i in $(seq 1200); do [ -e "$WORK/home/looked" ] || sleep 0.1; done
fusermount3 -u mnt
SH
cat >"$WORK/as-root" <<'SH'
set -eu
mount --bind "$WORK/fuse" /dev/fuse # for this namespace only: users may use FUSE
chmod 600 "$WORK/fuse"
mkdir -m 777 "$WORK/closed"
setpriv --reuid 65534 --regid 65534 --clear-groups "$WORK/mount.ckptfs" "$WORK/home/closed" "$WORK/closed" 2>&1 |
	grep 'dev/fuse: not accessible for ordinary users; chmod 666 it, or mount as root$'
[ ! -e "$WORK/home/closed" ]
chmod 666 "$WORK/fuse"
setpriv --reuid 65534 --regid 65534 --clear-groups bash "$WORK/as-user" &
pid=$!
for i in $(seq 1200); do
	[ -e "$WORK/home/mounted" ] || { kill -0 "$pid" 2>/dev/null && sleep 0.1; }
done
if [ -e "$WORK/home/mounted" ]; then
	! setpriv --reuid 1234 --regid 1234 --clear-groups ls "$WORK/home/mnt" || { echo "another user can look in"; exit 1; }
	! ls "$WORK/home/mnt" || { echo "root can look into a mount that is private"; exit 1; }
	touch "$WORK/home/looked"
fi
wait "$pid"
SH
unshare -m bash "$WORK/as-root" >"$WORK/said" 2>&1 || { cat "$WORK/said" >&2; fail "a plain user cannot mount"; }
