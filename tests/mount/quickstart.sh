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

# What the build has left out is told in a line each, with how to get it.
mkdir -p "$WORK/top/build/mpi-agent" "$WORK/top/build/client"
touch "$WORK/top/build/client/libckptfs-fortran.so.0"
rm "$WORK/top/build/tools"
mkdir "$WORK/top/build/tools"
built_with() { # LIBRARY...: all others are left out
	local library
	printf '#!/bin/sh\ncat <<END\nckptfs 0\n' >"$WORK/top/build/tools/ckptfs"
	for library in libmicrohttpd libcurl HDF5; do
		case " $* " in *" $library "*) version=1.2 ;; *) version=no ;; esac
		printf '  %-15s %s\n' "$library" "$version" >>"$WORK/top/build/tools/ckptfs"
	done
	echo END >>"$WORK/top/build/tools/ckptfs"
	chmod +x "$WORK/top/build/tools/ckptfs"
}
built_with libmicrohttpd libcurl HDF5
"$CKPTFS_BUILD/fs/mount.ckptfs" "$WORK/store/plain" "$WORK/point/plain"
point=$WORK/point/plain
exits 0 env PATH="$WORK/bin:$PATH" "$WORK/top/quickstart" "$point"
[ "$(grep '^Left out: ' "$WORK/out")" = "Left out: ckptfs-agent, which connects several nodes; to have it: \
apt-get install openmpi-bin libopenmpi-dev && meson setup --reconfigure $WORK/top/build, and $WORK/top/quickstart $point again" ] || fail_showing "left out"
touch "$WORK/top/build/mpi-agent/ckptfs-agent"
exits 0 env PATH="$WORK/bin:$PATH" "$WORK/top/quickstart" "$point"
! grep '^Left out: ' "$WORK/out" || fail_showing "nothing is left out"
built_with libcurl
exits 0 env PATH="$WORK/bin:$PATH" "$WORK/top/quickstart" "$point"
[ "$(grep -o '^Left out: .* && ' "$WORK/out")" = "Left out: metrics for Prometheus (metrics=); to have it: apt-get install libmicrohttpd-dev && 
Left out: variables of HDF5 files (ckptfs compact); to have it: apt-get install libhdf5-dev && " ] || fail_showing "no metrics, no HDF5"
built_with libmicrohttpd HDF5
exits 0 env PATH="$WORK/bin:$PATH" "$WORK/top/quickstart" "$point"
[ "$(grep -o '^Left out: .* && ' "$WORK/out")" = "Left out: tiers in S3 object stores (tier=s3://...); to have it: apt-get install libcurl4-openssl-dev && " ] ||
	fail_showing "no S3"
# That is how the program itself writes it.
"$CKPTFS_BUILD/tools/ckptfs" version | grep -qE '^  libcurl +(no|[0-9.]+)$' || fail "ckptfs version"
"$CKPTFS_BUILD/tools/umount.ckptfs" "$point"
