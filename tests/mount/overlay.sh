#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Directories of a mount as lower layers of overlayfs, as containers have them, sealed or not.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
grep -qw overlay /proc/filesystems || skip "this kernel has no overlayfs"

merged=$WORK/merged
mkdir "$merged" "$WORK/plain"
mount -t tmpfs tmpfs "$WORK/plain"

# stack LOWER UPPER WORK [OPTIONS]: mount them on $merged
stack() {
	mkdir -p "$2" "$3"
	mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3${4:+,$4}" "$merged" || fail "cannot mount $2 over $1: $(dmesg | tail -n 3)"
}

# change: what programs do in a container, and what comes of it
change() {
	[ "$(cat "$merged/file")" = lower ] || fail "a file of the lower layer reads as $(cat "$merged/file")"
	echo more >>"$merged/file" # copied up
	rm "$merged/gone" # a whiteout
	mv "$merged/moved" "$merged/there"
	rm -r "$merged/dir"
	mkdir "$merged/dir" # opaque
	echo new >"$merged/dir/new"
	mv "$merged/linked" "$merged/dir/linked"
	setfattr -n user.mine -v yes "$merged/file"
	chown 1201 "$merged/owned"
}
look() {
	[ "$(cat "$merged/file")" = $'lower\nmore' ] || fail "a changed file reads as $(cat "$merged/file")"
	for name in gone moved; do [ ! -e "$merged/$name" ] || fail "$name is there again"; done
	[ "$(cat "$merged/there")" = moved ] || fail "a moved file reads as $(cat "$merged/there")"
	[ "$(ls "$merged/dir")" = $'linked\nnew' ] || fail "a directory made anew has $(ls "$merged/dir")"
	[ "$(getfattr --absolute-names --only-values -n user.mine "$merged/file")" = yes ] || fail "an extended attribute is gone"
	[ "$(stat -c %u "$merged/owned")" = 1201 ] || fail "the owner has not changed"
	[ "$(ls -A "$merged")" = $'dir\nfile\nowned\nthere' ] || fail "the overlay has $(ls -A "$merged")"
}
lower_is_as_it_was() {
	[ "$(cd "$lower" && find . | sort | tr '\n' ' ')" = ". ./dir ./dir/old ./file ./gone ./linked ./moved ./owned " ] ||
		fail "the lower layer has changed: $(find "$lower")"
	[ "$(cat "$lower/file")" = lower ] || fail "a file of the lower layer has changed"
}

fs_mount
lower=$MNT/lower
mkdir -p "$lower/dir"
for name in file gone moved linked owned dir/old; do basename "${name/file/lower}" >"$lower/$name"; done
stack "$lower" "$WORK/plain/upper" "$WORK/plain/work"
change
look
umount "$merged"
lower_is_as_it_was
fs_remount
stack "$lower" "$WORK/plain/upper" "$WORK/plain/work"
look
umount "$merged"
mkdir "$MNT/other"
mv "$lower/dir" "$MNT/other"
stack "$MNT/other:$lower" "$WORK/plain/two" "$WORK/plain/two.work"
[ "$(cat "$merged/dir/old" "$merged/file")" = $'old\nlower' ] || fail "two lower layers are not shown as one"
umount "$merged"
mv "$MNT/other/dir" "$lower"
echo "ok a lower layer, also after a remount, and two of them"

# For an upper layer overlayfs wants what ckptfs does not have; ckptfs(5) says so.
mkdir "$MNT/upper" "$MNT/work"
! mount -t overlay overlay -o "lowerdir=$lower,upperdir=$MNT/upper,workdir=$MNT/work" "$merged" 2>/dev/null || fail "ckptfs(5) says that there can be no upper layer"
echo "ok an upper layer is refused"

# A sealed lower layer: overlayfs copies that it is immutable, so that what it has cannot be changed, but new names can be made.
"$CKPTFS_BUILD/tools/ckptfs-seal" "$lower" >/dev/null
stack "$lower" "$WORK/plain/sealed" "$WORK/plain/sealed.work"
[ "$(cat "$merged/file" "$merged/dir/old")" = $'lower\nold' ] || fail "the overlay does not show a sealed lower layer"
echo new >"$merged/new"
! rm -r "$merged/dir" 2>/dev/null || fail "a sealed directory can be removed in an overlay"
umount "$merged"
lower_is_as_it_was
echo "ok a sealed lower layer"
fs_umount
fs_sound "after overlays"
