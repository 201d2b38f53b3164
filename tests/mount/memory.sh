#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The daemon's memory stays below cache + dirty + 200 MiB while much is written and read, and with many files in the tree.
#   MEMORY_MIB    new data per writer (default 384)
#   MEMORY_FILES  files in the tree (default 20000)
#   WRITERS       how many (default 8)
# ./run-tests memory-long: 8 writers of 3840 MiB, a million files.
. "$(dirname "$0")/lib.sh"
need_mount
! grep -q __asan_init "$CKPTFS_BUILD/fs/mount.ckptfs" || skip "memory means nothing with a sanitizer in it"

: "${MEMORY_MIB:=384}" "${MEMORY_FILES:=20000}" "${WRITERS:=8}"
work=$CKPTFS_BUILD/tests/bench/work
[ -x "$work" ] || fail "$work is missing: build first"
cache=64 dirty=64 # MiB

# peak WHAT: the most the daemon has had resident since it was started or last asked
peak() {
	local kib limit=$(((cache + dirty + 200) * 1024))
	kib=$(awk '/^VmHWM/ { print $2 }' "/proc/$DAEMON/status")
	echo "$1: $((kib / 1024)) MiB resident at most, $((limit / 1024)) allowed"
	[ "$kib" -le "$limit" ] || fail "$1: more than cache + dirty + 200 MiB"
	echo 5 >"/proc/$DAEMON/clear_refs" # forgets the peak
}

fs_mount "cache=${cache}M,dirty=${dirty}M"
"$work" write "$MNT" --processes "$WRITERS" --size "$MEMORY_MIB" --step 0 --changed 5
peak "new data"
"$work" write "$MNT" --processes "$WRITERS" --size "$MEMORY_MIB" --step 1 --changed 5
peak "5 % changed"
"$work" read "$MNT" --processes "$WRITERS" --size "$MEMORY_MIB" --step 1 --changed 5 --check
peak "read back"

# Sparse tables, whose checksum is wrong (EBADMSG), or which are larger than half of dirty (EFBIG)
mkdir "$MNT/lineage"
"$(program delta)" crowd "$MNT/lineage" 16 31 74
"$(program delta)" crowd "$MNT/lineage" 16 250 27
peak "16 deltas with large tables"

"$PYTHON" - "$MNT/many" "$MEMORY_FILES" <<'PY'
import os, sys
top, nr = sys.argv[1], int(sys.argv[2])
for i in range(nr):
    d = f"{top}/{i // 10000}"
    if i % 10000 == 0:
        os.makedirs(d)
    fd = os.open(f"{d}/{i}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    if i % 10 == 0:
        os.write(fd, b"%d" % i)
    os.close(fd)
PY
peak "$MEMORY_FILES files made"
[ "$(find "$MNT/many" -type f -size -2 | wc -l)" = "$MEMORY_FILES" ] || fail "files are missing"
peak "$MEMORY_FILES files looked at"
fs_remount "cache=${cache}M,dirty=${dirty}M"
[ "$(find "$MNT/many" -type f | wc -l)" = "$MEMORY_FILES" ] || fail "files are missing after a remount"
peak "a remount, and all looked at"
fs_umount

# A table of fingerprints that fills up in one go, with a cache that is larger than all else: 4 million short chunks.
rm -rf "$STORE"
cache=256 dirty=32
fs_mount "cache=${cache}M,dirty=${dirty}M,chunking=cdc,cdc=256:512:1K"
"$work" write "$MNT" --processes 8 --size 256 --step 0 --changed 100
peak "4 million new chunks"
fs_umount
