# SPDX-License-Identifier: GPL-3.0-or-later
# Sourced by the tests of packages, after tests/mount/lib.sh.
top=$(realpath "$HERE/../..")
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$top/meson.build")

quietly() { # COMMAND...: the end of what it prints, if it fails
	"$@" >"$WORK/said" 2>&1 || { tail -n 40 "$WORK/said" >&2; fail "$*"; }
}

copy_tree() { # DIRECTORY: the tree as it is now, with what git does not know yet
	mkdir -p "$1"
	(cd "$top" && git ls-files -co --exclude-standard -z | xargs -0 ls -d 2>/dev/null | tar c -T -) | tar x -C "$1"
}

# make_tarball DIRECTORY: ckptfs-VERSION.tar.xz, as a release has it. It is a commit that meson packs.
make_tarball() {
	copy_tree "$WORK/source"
	(cd "$WORK/source" && git init --quiet && git add --all &&
		git -c user.name=test -c user.email=test@localhost commit --quiet --no-verify -m test)
	quietly meson setup -Dtests=false -Dgpu=disabled "$WORK/for-dist" "$WORK/source"
	quietly meson dist -C "$WORK/for-dist" --no-tests --formats xztar
	mkdir -p "$1"
	(cd "$WORK/for-dist/meson-dist" && sha256sum --quiet --check ./*.sha256sum && mv ./*.tar.xz "$1") || fail "the tarball is not that of its checksum"
	rm -rf "$WORK/source" "$WORK/for-dist"
}

# Programs and modules of a package are in PATH and so on: one job, from the mount to the store after it.
use_it() {
	exits 0 ckptfs-run --store "$STORE" --mount "$MNT" "$PYTHON" "$top/tests/package/job.py" "$version"
	says "1 sealed checkpoint, 1 of them new"
	ckptfs-agent --version | grep -q "$version" || fail "no agent"
	fsck.ckptfs -n --read-data "$STORE" || fail "the store is not sound"
}
