#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Debian packages are built in a fresh system that has what debian/control names and no more, and lintian finds nothing in them. In
# another fresh system they are installed, a job uses them, and they are removed. Takes minutes, and the mirror of this machine.
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
base=$WORK/base fresh=$WORK/fresh
components=main
case $MIRROR in *ubuntu*) components=main,universe ;; esac
debootstrap --variant=minbase --components=$components "$SUITE" "$base" "$MIRROR" >"$WORK/said" 2>&1 || {
	! grep -qE 'Failed getting release file|Unable to connect|Could not resolve' "$WORK/said" || skip "no access to $MIRROR"
	fail_showing debootstrap
}
cp /etc/resolv.conf "$base/etc/"
printf 'APT::Install-Recommends "false";\nDPkg::Use-Pty "false";\n' >"$base/etc/apt/apt.conf.d/test"
echo force-unsafe-io >"$base/etc/dpkg/dpkg.cfg.d/test" # it is thrown away
printf '#!/bin/sh\nexit 101\n' >"$base/usr/sbin/policy-rc.d" # starts no service
chmod +x "$base/usr/sbin/policy-rc.d"

inside() { # SYSTEM COMMAND: in a system with devices, its end if it fails
	unshare --mount --pid --fork --kill-child bash -c 'mount --make-rprivate / && mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" &&
		mount -t tmpfs tmpfs "$0/tmp" && exec chroot "$0" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
		PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -ec "$1"' "$1" "$2" </dev/null >"$WORK/said" 2>&1 || { tail -n 60 "$WORK/said" >&2; fail "in $1: $2"; }
}
inside "$base" 'apt-get update -q'
cp -a "$base" "$fresh"

copy_tree "$fresh/build/ckptfs"
inside "$fresh" 'apt-get install -q -y dpkg-dev && apt-get build-dep -q -y /build/ckptfs'
inside "$fresh" "cd /build/ckptfs && DEB_BUILD_OPTIONS='nocheck parallel=$(nproc)' dpkg-buildpackage -us -uc -b"
mkdir "$base/debs" && mv "$fresh"/build/*.{deb,changes,buildinfo} "$base/debs/"
rm -rf "$fresh"
packages=(ckptfs ckptfs-agent libckptfs0 libckptfs-dev python3-ckptfs)
for package in "${packages[@]}"; do
	[ -n "$(find "$base/debs" -name "${package}_${version}_*.deb")" ] || fail "$package: not made, or of another version than $version"
done
# Who publishes packages has an address; the tree has none.
lintian --allow-root --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "$base"/debs/*.changes || fail "lintian"

inside "$base" "cd /debs && apt-get install -q -y $(printf ' ./%s_*.deb' "${packages[@]}")"
cp "$top/tests/package/job.py" "$base/debs/"
inside "$base" "ckptfs-run --store /var/store --mount /var/mnt python3 /debs/job.py $version"
grep -q "1 sealed checkpoint, 1 of them new" "$WORK/said" || fail "the job: $(cat "$WORK/said")"
inside "$base" "fsck.ckptfs -n --read-data /var/store && ckptfs-agent --version && test -e /usr/share/man/man7/ckptfs.7.gz"
inside "$base" "dpkg -L ${packages[*]} | sort -u | while read -r f; do [ -d \"\$f\" ] || echo \"\$f\"; done >/debs/files && apt-get purge -q -y ${packages[*]}"
left=$(while read -r f; do [ ! -e "$base$f" ] || echo "$f"; done <"$base/debs/files")
[ -s "$base/debs/files" ] || fail "the packages have no files"
[ -z "$left" ] || fail "left after the packages were removed: $left"
