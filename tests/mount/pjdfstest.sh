#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# pjdfstest, as root, on a mount: no failure but those listed in pjdfstest-ext4.txt.
#   PJDFSTEST  directory of pjdfstest with its program built (autoreconf -ifs && ./configure && make pjdfstest)
#   PJD_TESTS  only these files or directories of its tests/ (default: all)
. "$(dirname "$0")/lib.sh"
need_root
need prove
[ -n "${PJDFSTEST:-}" ] || skip "PJDFSTEST is not set: the directory of a built pjdfstest"
[ -x "$PJDFSTEST/pjdfstest" ] || skip "$PJDFSTEST/pjdfstest is not built"
PJDFSTEST=$(realpath "$PJDFSTEST")

fs_mount
mkdir -m 755 "$MNT/pjd"
cd "$MNT/pjd"
read -ra tests <<<"${PJD_TESTS:-.}"
prove -r -v "${tests[@]/#/$PJDFSTEST/tests/}" >"$WORK/pjd.log" 2>&1 || true
cd /
fs_umount

# "file.t: number" of each failed check; a file that ends early fails as a whole.
awk -v root="$PJDFSTEST/tests/" '
	/\.t +(\.+ *$|\(Wstat)/ { file = $1; sub(".*/tests/", "", file) }
	/^not ok / && !/# TODO/ { print file ": " $3 }
	/Parse errors|Dubious/ { print file ": broken" }
' "$WORK/pjd.log" | sort -u >"$WORK/failed"
sed '/^#/d; /^$/d; s/ *#.*//' "$HERE/pjdfstest-ext4.txt" | sort -u >"$WORK/known"
tail -n 3 "$WORK/pjd.log"
new=$(comm -23 "$WORK/failed" "$WORK/known")
if [ -n "$new" ]; then
	echo "$new" | while read -r line; do
		echo "not ok $line"
	done
	fail "$(echo "$new" | wc -l) checks fail that pass on ext4"
fi
grep -q '^Files=' "$WORK/pjd.log" || fail "pjdfstest did not run: $(tail -n 1 "$WORK/pjd.log")"
