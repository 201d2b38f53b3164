#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# dpkg-buildpackage makes packages from the tree, lintian finds nothing in them, and what is in them mounts. Takes minutes.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
need_root
need dpkg-buildpackage dh dh_python3 lintian git
top=$HERE/../..

mkdir -p "$WORK/build/ckptfs" "$WORK/root"
(cd "$top" && git ls-files -co --exclude-standard -z | tar c --null -T -) | tar x -C "$WORK/build/ckptfs"
cd "$WORK/build/ckptfs"
DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" dpkg-buildpackage -us -uc -b >"$WORK/said" 2>&1 || { tail -n 30 "$WORK/said" >&2; fail "dpkg-buildpackage"; }
cd "$WORK/build"
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$top/meson.build")
for package in ckptfs ckptfs-agent libckptfs0 libckptfs-dev python3-ckptfs; do
	dpkg -x "$package"_"$version"_*.deb "$WORK/root" || fail "$package: not made, or of another version than $version"
done
# Who publishes packages has an address; the tree has none.
lintian --allow-root --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog ./*.changes || fail "lintian"

export PATH=$WORK/root/usr/bin:$WORK/root/usr/sbin:$PATH LD_LIBRARY_PATH=$(echo "$WORK"/root/usr/lib/*-linux-gnu) PYTHONPATH=$WORK/root/usr/lib/python3/dist-packages
exits 0 ckptfs-run --store "$STORE" --mount "$MNT" "$PYTHON" -c 'import os, ckptfs, ckptfs_gpu
where = os.environ["CKPTFS_MOUNT"]
with ckptfs.checkpoint(where + "/step") as d:
    (d / "state").write_bytes(b"state")
with ckptfs_gpu.Lineage(where + "/gpu") as lineage:
    lineage.save(1, {"a": b"bytes"})
assert ckptfs.newest(where).bytes == 5 and ckptfs.__version__ == "'"$version"'"'
says "1 sealed checkpoints, 1 of them new"
ckptfs-agent --version | grep -q "$version" || fail "no agent"
fsck.ckptfs -n --read-data "$STORE" || fail "the store is not sound"
