#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# quickstart on a mountpoint where a store is mounted already: it finds that by its name, whatever is in it.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

mkdir -p "$WORK/top/.ci" "$WORK/top/build" "$WORK/bin" # with nothing to install and to build
cp "$HERE/../../quickstart" "$WORK/top/"
ln -s "$CKPTFS_BUILD/fs" "$CKPTFS_BUILD/tools" "$WORK/top/build/"
touch "$WORK/top/build/build.ninja"
ln -s /bin/true "$WORK/top/.ci/install"
ln -s /bin/true "$WORK/bin/ninja"

for name in plain 'a b' 'a 1' 'a\tb' 'a\\b' '100%s' '$(x)' '*'; do
	point=$WORK/point/$name store=$WORK/store/$name
	mkdir -p "$point" "$WORK/store"
	trap 'code=$?; set +e; umount -l "$point" 2>/dev/null; (exit $code); cleanup' EXIT
	"$CKPTFS_BUILD/fs/mount.ckptfs" "$store" "$point"
	exits 0 env PATH="$WORK/bin:$PATH" "$WORK/top/quickstart" "$point"
	[ "$(head -n 2 "$WORK/out")" = "$point is mounted already
ckptfs is on $point, its data in $store." ] || fail_showing "${name@Q}"
	exits 0 env PATH="$WORK/bin:$PATH" "$WORK/top/quickstart" "$point" "$store"
	exits 1 env PATH="$WORK/bin:$PATH" "$WORK/top/quickstart" "$point" "$WORK/other"
	"$CKPTFS_BUILD/tools/umount.ckptfs" "$point"
done
