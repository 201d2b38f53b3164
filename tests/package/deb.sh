#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Debian packages are built in a fresh system that has what debian/control names and no more, lintian finds nothing in them, and what is
# in them mounts. Takes minutes, and the mirror of this machine.
# SUITE and MIRROR: of another release, such as SUITE=trixie; MIRROR is a URL.
. "$(dirname "$0")/../mount/lib.sh"
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need debootstrap lintian
SUITE=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
MIRROR=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' "Suite: $SUITE" 2>/dev/null | head -n 1)}
MIRROR=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' "Codename: $SUITE" | head -n 1)}
[ -n "$MIRROR" ] || skip "no mirror of $SUITE"

umask 022
fresh=$WORK/fresh
components=main
case $MIRROR in *ubuntu*) components=main,universe ;; esac
debootstrap --variant=minbase --components=$components "$SUITE" "$fresh" "$MIRROR" >"$WORK/said" 2>&1 || {
	! grep -qE 'Failed getting release file|Unable to connect|Could not resolve' "$WORK/said" || skip "no access to $MIRROR"
	fail_showing debootstrap
}
cp /etc/resolv.conf "$fresh/etc/"
printf 'APT::Install-Recommends "false";\nDPkg::Use-Pty "false";\n' >"$fresh/etc/apt/apt.conf.d/test"
echo force-unsafe-io >"$fresh/etc/dpkg/dpkg.cfg.d/test" # it is thrown away
printf '#!/bin/sh\nexit 101\n' >"$fresh/usr/sbin/policy-rc.d" # starts no service
chmod +x "$fresh/usr/sbin/policy-rc.d"

inside() { # SYSTEM COMMAND: in a system with devices, its end if it fails
	unshare --mount --pid --fork --kill-child bash -c 'mount --make-rprivate / && mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" &&
		mount -t tmpfs tmpfs "$0/tmp" && exec chroot "$0" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
		PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -ec "$1"' "$1" "$2" </dev/null >"$WORK/said" 2>&1 || { tail -n 60 "$WORK/said" >&2; fail "in $1: $2"; }
}
inside "$fresh" 'apt-get update -q'

copy_tree "$fresh/build/ckptfs"
inside "$fresh" 'apt-get install -q -y dpkg-dev && apt-get build-dep -q -y /build/ckptfs'
inside "$fresh" "cd /build/ckptfs && DEB_BUILD_OPTIONS='nocheck parallel=$(nproc)' dpkg-buildpackage -us -uc -b"
mkdir "$WORK/debs" "$WORK/root" && mv "$fresh"/build/*.{deb,changes,buildinfo} "$WORK/debs/"
rm -rf "$fresh"
for package in ckptfs ckptfs-agent libckptfs0 libckptfs-dev python3-ckptfs; do
	dpkg -x "$WORK/debs/${package}_${version}"_*.deb "$WORK/root" || fail "$package: not made, or of another version than $version"
done
# Who publishes packages has an address; the tree has none.
lintian --allow-root --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "$WORK"/debs/*.changes || fail "lintian"

export PATH=$WORK/root/usr/bin:$WORK/root/usr/sbin:$PATH LD_LIBRARY_PATH=$(echo "$WORK"/root/usr/lib/*-linux-gnu) PYTHONPATH=$WORK/root/usr/lib/python3/dist-packages
use_it
