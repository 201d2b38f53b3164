#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# meson dist makes a tarball that has what a release has, and rpmbuild makes packages of it without git; each file that is installed is in
# one, what is in them mounts, and programs link with the libraries through pkg-config. Takes minutes.
. "$(dirname "$0")/../mount/lib.sh"
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need rpmbuild rpm2cpio cpio meson git gfortran pkg-config

make_tarball "$WORK"
cd "$WORK"
tar tJf "ckptfs-$version.tar.xz" >files
for f in LICENSE LICENSES/BSD-3-Clause.txt CHANGELOG.md SECURITY.md README.md quickstart run-tests debian/control client/python/LICENSE; do
	grep -x "ckptfs-$version/$f" files >/dev/null || fail "$f is not in the tarball"
done
# The names of what it needs are those of Fedora; what this machine has is found by the build, without optimization in half
# the time. -tb: the spec is the one in the tarball.
quietly rpmbuild -tb --nodeps --define "optflags -O0" --define "_topdir $WORK/rpm" --define "_dbpath $WORK/db" "ckptfs-$version.tar.xz"
machine=$(rpm --eval '%{_arch}')
made=$(find rpm/RPMS -name '*.rpm' -printf '%f\n' | sed "s/-$version-.*\.\(.*\)\.rpm/ \1/" | LC_ALL=C sort | tr '\n' ,)
[ "$made" = "ckptfs $machine,ckptfs-agent $machine,ckptfs-devel $machine,ckptfs-libs $machine,python3-ckptfs noarch," ] || fail "packages: $made"
licences() { rpm --dbpath "$WORK/db" -qp --queryformat '%{license}\n' "$1"; }
for p in libs devel; do [ "$(licences rpm/RPMS/*/ckptfs-$p-*.rpm)" = BSD-3-Clause ] || fail "$p: another licence"; done
rpm --dbpath "$WORK/db" -qp --requires rpm/RPMS/*/ckptfs-agent-*.rpm | grep "^ckptfs.* = $version-" >/dev/null || fail "the agent needs no ckptfs"
# No file is in two, which could not be installed together.
for p in rpm/RPMS/*/*.rpm; do rpm --dbpath "$WORK/db" -qp --queryformat '[%{filemodes:perms} %{filenames}\n]' "$p" | sed -n 's/^-[^ ]* //p'; done >files
[ -z "$(sort files | uniq -d)" ] || fail "in two packages: $(sort files | uniq -d)"

mkdir root
for p in rpm/RPMS/*/*.rpm; do rpm2cpio "$p" | (cd root && cpio --quiet -idm); done
export PATH=$WORK/root/usr/bin:$WORK/root/usr/sbin:$PATH LD_LIBRARY_PATH=$(dirname "$(find "$WORK/root" -name libckptfs-gpu.so.0)")
export PYTHONPATH=$(dirname "$(find "$WORK/root" -name ckptfs_gpu.py)")
use_it

# Programs link with what is in the packages, through pkg-config. All of it is shared libraries, so that --static adds none of what they
# use in turn.
export PKG_CONFIG_LIBDIR=$(dirname "$(find "$WORK/root" -name ckptfs.pc)") PKG_CONFIG_SYSROOT_DIR=$WORK/root
unset PKG_CONFIG_PATH
cat >ckptfs.c <<'C'
#include <ckptfs.h>
#include <ckptfs/ioctl.h>
int main(void) { return ckptfs_strerror(0) == 0 || sizeof(struct ckptfs_clone) == 0; }
C
cat >ckptfs-gpu.c <<'C'
#include <ckptfs_gpu.h>
#include <stddef.h>
int main(void) { return ckptfs_gpu_close(NULL); }
C
cp "$top/client/examples/heat.f90" ckptfs-fortran.f90
for name in ckptfs ckptfs-gpu ckptfs-fortran; do
	[ "$(pkg-config --modversion $name)" = "$version" ] || fail "$name.pc has another version than $version"
	[ "$(pkg-config --static --libs $name)" = "$(pkg-config --libs $name)" ] || fail "$name.pc: --static names libraries that programs do not need"
	compiler=cc
	[ $name != ckptfs-fortran ] || compiler=gfortran
	# shellcheck disable=SC2046 # several words
	quietly $compiler -o linked $name.[cf]* $(pkg-config --cflags --libs $name)
	ldd linked | grep "$WORK/root.*/lib$name" >/dev/null || fail "a program that uses $name does not find it"
done
