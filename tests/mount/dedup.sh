#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Dedup is exact: pages stored = distinct pages written, what it costs on disk is bounded, and du and ckptfs-stat agree.
#   DEDUP_MIB  size of the checkpoint for the part about costs (default 256)
. "$(dirname "$0")/lib.sh"
need_root
need_mount
need openssl
no_commit_timer

: "${DEDUP_MIB:=256}"
tool=$CKPTFS_BUILD/tools/ckptfs-stat
size=$((DEDUP_MIB << 20))

used() { du -sB1 "$@" | awk '{ n += $1 } END { print n }'; }
at_most() { # WHAT VALUE LIMIT
	[ "$2" -le "$3" ] || fail "$1: $2 bytes, at most $3 are allowed"
	echo "ok $1: $2 bytes of at most $3"
}
near() { # WHAT A B: equal but for the blocks that directories and half-filled files take
	local d=$(($2 > $3 ? $2 - $3 : $3 - $2))
	[ "$d" -le $((131072 + $2 / 1000)) ] || fail "$1: du says $2, ckptfs-stat says $3"
	echo "ok $1: du says $2, ckptfs-stat says $3"
}
checkpoint() { # NAME: the same bytes each time
	(
		set +o pipefail # openssl ends when head has enough
		openssl enc -aes-128-ctr -nosalt -K 00112233445566778899aabbccddeeff -iv 0 -in /dev/zero 2>/dev/null |
			head -c "$size" | dd of="$MNT/$1" bs=1M iflag=fullblock conv=fsync status=none
	)
}
# Exactness.
exact=yes
fs_mount
"$PYTHON" "$HERE/dedup.py" "$MNT" "$tool" "$WORK/state" first || exact=no
fs_remount
"$PYTHON" "$HERE/dedup.py" "$MNT" "$tool" "$WORK/state" again || exact=no
fs_remount cache=16M
checkpoint small-cache.1
before=$(figure stored_bytes)
checkpoint small-cache.2
[ "$(figure stored_bytes)" = "$before" ] || fail "with a small cache duplicates are stored again"
echo "ok a small cache finds all"
fs_remount verify
checkpoint verified
[ "$(figure stored_bytes)" = "$before" ] || fail "with -o verify duplicates are stored again"
echo "ok with -o verify as well"
fs_umount

# Costs, on a store of its own. du looks after an unmount: a mounted index has room taken ahead. So has the journal, but
# it knows, once the background has seen to it.
STORE=$WORK/store2
fs_mount
checkpoint ckpt.1
fs_remount
stored=$(figure stored_bytes)
[ "$stored" = "$size" ] || fail "$stored bytes stored of a checkpoint of $size distinct ones"
has_spare() { [ "$(stat -c %s "$STORE/journal/spare")" -ge 1048576 ]; }
await has_spare
says=$(figure pack_disk_bytes index_disk_bytes journal_disk_bytes)
set -- $says
near "journal on disk" "$(used "$STORE/journal")" "$3"
fs_umount
near "packs on disk" "$(used "$STORE/packs")" "$1"
near "index on disk" "$(used "$STORE/index")" "$2"
at_most "packs and index beyond the pages" "$(($(used "$STORE/packs" "$STORE/index") - size))" "$((size / 100))"
one=$(used "$STORE")
fs_mount
checkpoint ckpt.2
stored=$(figure stored_bytes)
fs_umount
[ "$stored" = "$size" ] || fail "the equal checkpoint has stored $((stored - size)) bytes of pages"
at_most "an equal checkpoint" "$(($(used "$STORE") - one))" "$((size / 2000))"
[ "$exact" = yes ] || fail "not exact"
