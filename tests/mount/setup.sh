#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# mount.ckptfs from the outside: each wrong way to mount has its own message and exit code and changes nothing; the right
# ways (by hand, as a daemon, by mount(8), by fstab, read-only) work and end cleanly.
. "$(dirname "$0")/lib.sh"
need_root
need_mount

helper=$CKPTFS_BUILD/fs/mount.ckptfs
failures=0

snapshot() { # all that a failed mount could have changed; a mounted store changes by itself
	local busy=none
	! mounted || busy=store
	(cd "$WORK" && find . \( -path ./mnt -o -path ./log -o -path ./$busy \) -prune -o -type f -printf '%p %s %m ' \
		-exec sha256sum {} \; -o -printf '%p %y %m\n')
	find "$MNT" -xdev -printf '%p %y\n'
	grep -F " $WORK/" /proc/mounts || true
}

# refused NAME CODE REGEX COMMAND...: the command fails with this code, says this, and changes nothing
refused() {
	local name=$1 code=$2 regex=$3 got=0
	shift 3
	snapshot >"$WORK/log/before"
	"$@" >"$WORK/log/said" 2>&1 || got=$?
	sleep 0.1
	snapshot >"$WORK/log/after"
	if [ "$got" != "$code" ]; then
		echo "not ok $name: exit code $got, expected $code: $(cat "$WORK/log/said")"
	elif ! grep -Eq -- "$regex" "$WORK/log/said"; then
		echo "not ok $name: says \"$(cat "$WORK/log/said")\", expected /$regex/"
	elif ! diff "$WORK/log/before" "$WORK/log/after" >"$WORK/log/diff"; then
		echo "not ok $name: something has changed: $(head -n 6 "$WORK/log/diff")"
	else
		echo "ok $name"
		return
	fi
	failures=$((failures + 1))
}

# works NAME COMMAND...
works() {
	local name=$1
	shift
	if "$@" >"$WORK/log/said" 2>&1; then
		echo "ok $name"
	else
		echo "not ok $name: exit code $?: $(tail -n 5 "$WORK/log/said")"
		failures=$((failures + 1))
	fi
}

mkdir "$WORK/log" "$WORK/empty" "$WORK/full" "$WORK/notstore"
echo x >"$WORK/full/file"
echo x >"$WORK/file"
echo x >"$WORK/notstore/something"

# A store to be refused in many ways, and one of a version to come.
fs_mount
echo content >"$MNT/file"
fs_umount
cp -a "$STORE" "$WORK/future"
cp -a "$STORE" "$WORK/feature"
"$PYTHON" - "$WORK/future/superblock" 8 99 "$WORK/feature/superblock" 16 4 <<'PY'
import struct, sys
def crc32c(data):
    crc = 0xffffffff
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
def put(path, off, value):
    with open(path, "r+b") as f:
        for copy in range(2):
            f.seek(copy * 4096)
            block = bytearray(f.read(4096))
            block[off:off + 4] = struct.pack("<I", value)
            block[4092:] = struct.pack("<I", crc32c(block[:4092]))
            f.seek(copy * 4096)
            f.write(block)
for path, off, value in zip(*[iter(sys.argv[1:])] * 3):
    put(path, int(off), int(value))
PY
cp -a "$STORE" "$WORK/damaged"
dd if=/dev/zero of="$WORK/damaged/superblock" bs=4096 count=2 conv=notrunc status=none
cp -a "$STORE" "$WORK/noindex"
rm -r "$WORK/noindex/index"
head -c 32 /dev/urandom >"$WORK/key"

refused "no arguments" 1 'Usage|usage|STORE' "$helper"
refused "no mountpoint" 1 'MOUNTPOINT|mountpoint' "$helper" "$STORE"
refused "too many arguments" 1 'third|argument|usage' "$helper" "$STORE" "$MNT" third
refused "an unknown option" 1 'nosuchoption' "$helper" "$STORE" "$MNT" -o nosuchoption
refused "an unknown option with a value" 1 'nosuch' "$helper" "$STORE" "$MNT" -o nosuch=5
refused "an unknown flag" 1 'try mount.ckptfs --help' "$helper" "$STORE" "$MNT" --wrong
refused "a value that is not one" 1 'page' "$helper" "$STORE" "$MNT" -o page=banana
refused "a page that is too small" 1 'page' "$helper" "$STORE" "$MNT" -o page=1K
refused "a page that is not a power of two" 1 'page' "$helper" "$STORE" "$MNT" -o page=12K
refused "a cache that is too small" 1 'cache' "$helper" "$STORE" "$MNT" -o cache=1M
refused "a chunking that is not known" 1 'chunking' "$helper" "$STORE" "$MNT" -o chunking=magic
refused "another hash than the store's" 1 'hash' "$helper" "$STORE" "$MNT" -o hash=sha256
refused "a cluster key for an old store" 1 'cluster' "$helper" "$STORE" "$MNT" -o cluster="$WORK/key"
refused "a remount of nothing" 32 "remount: $STORE is not mounted on $MNT" "$helper" "$STORE" "$MNT" -o remount,ro
refused "no mountpoint there" 32 "mountpoint $WORK/nowhere: .*not exist" "$helper" "$STORE" "$WORK/nowhere"
refused "a mountpoint that is a file" 32 "mountpoint $WORK/file: not a directory" "$helper" "$STORE" "$WORK/file"
refused "a mountpoint that is not empty" 32 "mountpoint $WORK/full: not empty" "$helper" "$STORE" "$WORK/full"
refused "a store that is a file" 32 "store $WORK/file: not a directory" "$helper" "$WORK/file" "$MNT"
refused "a directory that is not a store" 32 "store $WORK/notstore: .*not a ckptfs store" "$helper" "$WORK/notstore" "$MNT"
refused "a store whose parent is not there" 32 "store $WORK/no/store: .*mkdir" "$helper" "$WORK/no/store" "$MNT"
refused "a store below the mountpoint" 32 'below the mountpoint' "$helper" "$MNT/store" "$MNT"
refused "the store as mountpoint" 32 'not empty|inside the store|below the mountpoint' "$helper" "$STORE" "$STORE"
refused "a log on the mount itself" 32 "log $MNT/log: lies below the mountpoint" "$helper" "$STORE" "$MNT" -o "log=$MNT/log"
refused "a mountpoint inside the store" 32 'inside the store' "$helper" "$WORK/empty/.." "$WORK/empty"
refused "a store of another version" 32 "store $WORK/future: has format version 99, .* version 1 only" "$helper" "$WORK/future" "$MNT"
refused "a store with an unknown feature" 32 "store $WORK/feature: has features 0x4 of a later version" "$helper" "$WORK/feature" "$MNT"
refused "a store with a damaged superblock" 32 "store $WORK/damaged: .*superblock" "$helper" "$WORK/damaged" "$MNT"
refused "a store without its index" 32 "fsck.ckptfs --rebuild" "$helper" "$WORK/noindex" "$MNT"
if has_cluster; then
	refused "a new store with a cluster key that is not there" 32 "cluster key $WORK/nokey: cannot open" "$helper" "$WORK/new" "$MNT" -o "cluster=$WORK/nokey"
	head -c 3 /dev/urandom >"$WORK/shortkey"
	refused "a new store with a short cluster key" 1 "has 3 bytes, must have" "$helper" "$WORK/new" "$MNT" -o "cluster=$WORK/shortkey"
fi
refused "a read-only mount of a new store" 32 'not exist' "$helper" "$WORK/new" "$MNT" -o ro
mkdir "$WORK/made"
for new in new made; do # the store is created before the kernel is asked
	refused "a mount that the kernel refuses, of a store $new" 32 'refused the mount' setpriv --bounding-set -sys_admin "$helper" "$WORK/$new" "$MNT"
	refused "in the foreground" 32 'refused the mount' setpriv --bounding-set -sys_admin "$helper" --foreground "$WORK/$new" "$MNT"
done

works "unknown options are ignored with -s" "$helper" -s "$STORE" "$MNT" -o nosuchoption
pid=$(figure pid)
works "it is fuse.ckptfs in /proc/mounts" grep -q "^$STORE $MNT fuse.ckptfs rw," /proc/mounts
works "content is there" grep -qx content "$MNT/file"
mkdir "$WORK/second"
refused "a second mount of a mounted store" 32 "store $STORE: in use: mounted on $MNT " "$helper" "$STORE" "$WORK/second"
mkdir "$MNT/inner"
refused "a store on the mount itself" 32 "below the mountpoint|mounted there already" "$helper" "$MNT/store" "$MNT"
refused "a remount with an option that is not a flag" 1 'cache=64M: cannot be changed' "$helper" "$STORE" "$MNT" -o remount,cache=64M
refused "a mount on a busy mountpoint" 32 "$STORE is mounted there already" "$helper" "$WORK/new" "$MNT"
works "umount" umount "$MNT"
works "the daemon ends" gone "$pid"

works "-f checks and mounts nothing" "$helper" -f "$STORE" "$MNT"
works "-v says that nothing was mounted, as commands speak" sh -c "'$helper' -f -v '$STORE' '$MNT' 2>&1 | grep -q '^mount.ckptfs: store $STORE: not mounted on $MNT'"
works "really nothing" sh -c "! grep -q ' $MNT ' /proc/mounts"
works "fsck at boot finds nothing" "$CKPTFS_BUILD/tools/fsck.ckptfs" -a "$STORE"
refused "fsck at boot of nothing" 8 "No such file" "$CKPTFS_BUILD/tools/fsck.ckptfs" -a "$WORK/nowhere"
refused "fsck -n that would change something" 16 "rebuild" "$CKPTFS_BUILD/tools/fsck.ckptfs" -n --rebuild "$STORE"
works "--help" "$helper" --help
works "--version" "$helper" --version

mkdir "$WORK/memory"
mount -t tmpfs -o size=1m tmpfs "$WORK/memory"
works "a warning of a store in memory" sh -c "'$helper' -f '$WORK/memory/new' '$MNT' 2>&1 | grep -q '^mount.ckptfs: warning: store $WORK/memory/new: lies on tmpfs, in memory: all of it is lost'"
umount "$WORK/memory"
case $(stat -f -c %T "$WORK") in
ext* | xfs | btrfs) works "no warning of one on a disk" sh -c "! '$helper' -f '$STORE' '$MNT' 2>&1 | grep -q 'lies on'" ;;
esac

works "a read-only mount" "$helper" "$STORE" "$MNT" -o ro
pid=$(figure pid)
works "is read" grep -qx content "$MNT/file"
works "is not written" sh -c "! touch '$MNT/new' 2>&1 && touch '$MNT/new' 2>&1 | grep -q 'Read-only'"
works "fusermount3 -u" fusermount3 -u "$MNT"
works "the daemon of a read-only mount ends" gone "$pid"

works "umount.ckptfs" sh -c "'$helper' '$STORE' '$MNT' && '$CKPTFS_BUILD/tools/umount.ckptfs' '$MNT'"
works "a mount whose daemon dies" "$helper" "$STORE" "$MNT"
pid=$(figure pid)
kill -KILL "$pid"
works "is gone" gone "$pid"
works "and the next one says so" sh -c "'$helper' '$STORE' '$MNT' 2>&1 | grep -q 'has died; umount'"
umount "$MNT"
works "umount.ckptfs waits for the store" "$helper" "$STORE" "$MNT"
pid=$(figure pid)
echo more >"$MNT/more"
works "a read rate of nothing is refused" sh -c "! '$helper' '$WORK/new' '$WORK/second' -o read_rate=1 2>/dev/null"
kill -TERM "$pid"
works "SIGTERM unmounts" gone "$pid"
works "and leaves no dead mount" sh -c "! grep -q ' $MNT ' /proc/mounts"
works "and loses nothing" sh -c "'$helper' '$STORE' '$MNT' && grep -qx more '$MNT/more' && umount '$MNT'"
works "a log file" sh -c "'$helper' '$STORE' '$MNT' -o log='$WORK/log/daemon' && umount '$MNT'"
await grep -q 'unmounted, everything durable' "$WORK/log/daemon" # its last words
works "a log file that cannot be" sh -c "'$helper' -v '$STORE' '$MNT' -o log='$WORK/no/log' >'$WORK/log/told' 2>&1 &&
	umount '$MNT' && grep -q 'syslog instead' '$WORK/log/told' && grep -q 'mounted on $MNT' '$WORK/log/told'"

# mount(8) finds its helpers in /sbin only: a private copy of that directory, which only this test sees.
cat >"$WORK/mount8" <<'SH'
set -eu
mkdir "$WORK/real" "$WORK/sbin"
mount --bind /usr/sbin "$WORK/real"
ln -s "$WORK/real"/* "$WORK/sbin/"
rm -f "$WORK/sbin/mount.ckptfs" "$WORK/sbin/umount.ckptfs"
cp "$CKPTFS_BUILD/fs/mount.ckptfs" "$CKPTFS_BUILD/tools/umount.ckptfs" "$WORK/sbin/"
mount --bind "$WORK/sbin" /usr/sbin
mount -t ckptfs "$STORE" "$MNT" -o noatime,commit=3
grep -qx content "$MNT/file"
grep "^$STORE $MNT fuse.ckptfs" /proc/mounts | grep -q noatime
umount "$MNT"
echo "$STORE $MNT ckptfs cache=64M,noauto,nofail,x-systemd.automount 0 0" >"$WORK/fstab"
for i in 1 2 3; do # by mountpoint, by source, all
	case $i in
	1) mount -T "$WORK/fstab" "$MNT" ;;
	2) mount -T "$WORK/fstab" "$STORE" ;;
	3) sed -i s/noauto,// "$WORK/fstab"; mount -T "$WORK/fstab" -a ;;
	esac
	grep -qx content "$MNT/file"
	umount "$MNT"
done
! mount -t ckptfs "$STORE" "$MNT" -o nosuchoption
SH
works "mount(8) and fstab" unshare -m bash -c '. "$WORK/mount8"'
rm -rf "$WORK/sbin"

[ "$failures" = 0 ] || fail "$failures ways to mount behave otherwise"
