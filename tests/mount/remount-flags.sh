#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# mount -o remount changes flags of a mount that is there, in the kernel and in the daemon, and no other options; what cannot be
# done is refused and changes nothing. umount.ckptfs takes a store, too.
. "$(dirname "$0")/lib.sh"
need_root
need_mount
export PATH=$CKPTFS_BUILD/tools:$CKPTFS_BUILD/fs:$PATH
remount() { mount.ckptfs "$STORE" "$MNT" -o "remount,$1"; } # OPTIONS
flags() { sed -n "s,.* $MNT \([^ ]*\) .*- fuse.ckptfs [^ ]* \([^ ]*\)$,\1\,\2,p" /proc/self/mountinfo; } # of the mount, then of the filesystem
has() { # FLAG...: all of them
	local flag
	for flag; do case ,$(flags), in *",$flag,"*) ;; *) fail "no $flag after the remount: $(flags)" ;; esac; done
}
has_not() { local flag; for flag; do case ,$(flags), in *",$flag,"*) fail "$flag after the remount: $(flags)" ;; esac; done; } # FLAG...
refused() { # CODE REGEX OPTIONS: and nothing changes
	local before
	before=$(flags)
	exits "$1" remount "$3"
	says "$2"
	[ "$(flags)" = "$before" ] || fail "$3: refused, but the flags are $(flags)"
}

exits 32 mount.ckptfs "$STORE" "$MNT" -o remount,ro
says "is not mounted on"
fs_mount cache=64M,verify,nosuid
mkdir "$MNT/dir"
echo before >"$MNT/dir/file"

# --- only the store that is mounted there, whether another one exists or not ---
mkdir "$WORK/other"
for other in "$WORK/other" "$WORK/nosuch" nosuch; do
	before=$(flags)
	exits 32 mount.ckptfs "$other" "$MNT" -o remount,ro
	says "$STORE is mounted on $MNT, not $other"
	[ "$(flags)" = "$before" ] || fail "$other: refused, but the flags are $(flags)"
done
mv "$STORE" "$STORE.renamed" # mount(8) passes the name that is in the list of mounts
remount nodev
has nodev
mv "$STORE.renamed" "$STORE"
remount dev

# --- flags of the kernel, one by one, others stay ---
remount noexec,nodev
has noexec nodev nosuid rw
remount exec,suid
has nodev rw
has_not noexec nosuid
cp /bin/true "$MNT/true"
chmod +x "$MNT/true"
"$MNT/true"
remount noexec
! "$MNT/true" 2>/dev/null || fail "a program runs from a noexec mount"
[ "$(figure read_only)" = false ] || fail "the daemon takes it for read-only"

# --- noatime is the daemon's, too ---
touch -a -d 2000-01-01 "$MNT/dir/file"
remount noatime
has noatime
cat "$MNT/dir/file" >"$WORK/out"
[ "$(stat -c %X "$MNT/dir/file")" = "$(date -d 2000-01-01 +%s)" ] || fail "reading has changed the read time"
remount relatime
has relatime
drop_caches
cat "$MNT/dir/file" >"$WORK/out"
[ "$(stat -c %X "$MNT/dir/file")" != "$(date -d 2000-01-01 +%s)" ] || fail "reading does not change the read time any more"

# --- read-only: durable at once, no more changes, not even by requests that the kernel does not look at ---
exec 5>"$MNT/open"
refused 32 "files are open for writing" ro
[ "$(figure read_only)" = false ] || fail "refused by the kernel, but the daemon is read-only"
echo accepted >&5
exec 5>&-
remount ro
has ro noexec nodev
[ "$(figure read_only)" = true ] || fail "the daemon does not know that it is read-only"
[ "$(cat "$MNT/open")" = accepted ] || fail "not readable"
! touch "$MNT/new" 2>"$WORK/said" || fail "a file was made on a read-only mount"
says "Read-only"
! ckptfs-seal -q "$MNT/dir" 2>"$WORK/said" || fail "sealed on a read-only mount"
says "Read-only"
! ckptfs-gc --delete "$MNT" >"$WORK/out" 2>"$WORK/said" || fail "collected on a read-only mount"
remount ro # once more is fine
remount rw
has rw noexec
[ "$(figure read_only)" = false ] || fail "the daemon is still read-only"
echo after >"$MNT/after"
ckptfs-seal -q "$MNT/dir"
fs_remount commit=3600
echo unsynced >"$MNT/unsynced"
remount ro
fs_kill
fs_mount
[ "$(cat "$MNT/unsynced")" = unsynced ] || fail "what was written before remount,ro was not durable after it"

# --- sync: what write() has returned for stays durable, whatever other flag changes ---
fs_remount sync,dirsync,commit=3600
remount noexec
has sync dirsync noexec
refused 1 "option async: cannot be changed while mounted" noatime,async
remount sync,dirsync,exec # as mount(8) lists them
has sync dirsync
has_not noexec
"$PYTHON" - "$MNT/synced" <<'PY'
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.pwrite(fd, b"durable", 0)
PY
fs_kill
fs_mount
[ "$(cat "$MNT/synced")" = durable ] || fail "a write on a sync mount was not durable after a remount"
fs_umount

# --- what is not a flag ---
fs_mount cache=64M,verify
refused 1 "option cache=32M: cannot be changed while mounted" ro,cache=32M
refused 1 "option chunking=cdc: cannot be changed" chunking=cdc
refused 1 "option sync: cannot be changed" sync
refused 1 "option dirsync: cannot be changed" ro,dirsync
refused 1 "option lazytime: not supported" lazytime
refused 1 "option norelatime: not supported" norelatime
remount async,nosymfollow # it is not sync
has nosymfollow
remount nodev
has nosymfollow nodev
remount symfollow,dev
has_not nosymfollow
refused 1 "option nosuch: not known" ro,nosuch
remount "ro,relatime,cache=64M,verify,user_id=0,group_id=0,default_permissions,allow_other" # as mount(8) calls it
has ro
cp "$CKPTFS_BUILD/fs/mount.ckptfs" "$WORK/"
exits 1 as_nobody "$WORK/mount.ckptfs" "$STORE" "$MNT" -o remount,rw
says "only root may remount"
fs_umount
fs_mount ro
refused 32 "was mounted read-only; umount it, and mount it for writing" rw
remount ro,noexec
has ro noexec
fs_umount

# --- by mount(8), which has its helpers in /sbin: a private copy of that directory ---
cat >"$WORK/mount8" <<'SH'
set -eu
mkdir "$WORK/real" "$WORK/sbin"
mount --bind /usr/sbin "$WORK/real"
ln -s "$WORK/real"/* "$WORK/sbin/"
for f in fs/mount tools/umount; do
	rm -f "$WORK/sbin/${f#*/}.ckptfs" "$WORK/sbin/${f#*/}.fuse.ckptfs"
	cp "$CKPTFS_BUILD/$f.ckptfs" "$WORK/sbin/"
	ln -s "${f#*/}.ckptfs" "$WORK/sbin/${f#*/}.fuse.ckptfs"
done
mount --bind "$WORK/sbin" /usr/sbin
mount -t ckptfs "$STORE" "$MNT" -o cache=64M
mount -o remount,ro "$MNT"
! touch "$MNT/new" 2>/dev/null
mount -o remount,rw,noexec "$MNT"
touch "$MNT/new"
echo "$STORE $MNT ckptfs cache=64M,noauto 0 0" >"$WORK/fstab"
mount -T "$WORK/fstab" -o remount,ro "$MNT"
! touch "$MNT/newer" 2>/dev/null
cd "$WORK"
umount store # relative: libmount looks for it among sources, and calls the helper
! grep -q " $MNT " /proc/mounts
mount -t ckptfs "$STORE" "$MNT"
umount.ckptfs "$STORE"
! grep -q " $MNT " /proc/mounts
SH
unshare -m bash "$WORK/mount8" >"$WORK/said" 2>&1 || { cat "$WORK/said" >&2; fail "by mount(8)"; }

# --- a store instead of its mountpoint: as it is, relative, by a link ---
ln -s "$STORE" "$WORK/link"
for name in "$STORE" store "$WORK/link" ./store/; do
	fs_mount
	(cd "$WORK" && umount.ckptfs "$name") || fail "umount.ckptfs $name"
	wait "$DAEMON" || fail "the daemon: exit code $?"
	DAEMON=
done
exits 32 umount.ckptfs "$STORE"
says "neither a ckptfs mountpoint nor a mounted store"
