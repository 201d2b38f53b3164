#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Compression on a mount: every codec, real data, remounted, read at random, collected beside; settings of directories; figures.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

random_reads() { # FILE ORIGINAL: 300 reads of 4 KiB and less, anywhere
	"$PYTHON" - "$@" <<-'END'
		import os, random, sys
		random.seed(7)
		a, b = (os.open(p, os.O_RDONLY) for p in sys.argv[1:])
		size = os.fstat(b).st_size
		for _ in range(300):
		    off, n = random.randrange(size), random.choice([1, 512, 4096])
		    if os.pread(a, n, off) != os.pread(b, n, off):
		        sys.exit(f"other bytes at {off}")
	END
}

# Something like a checkpoint: counters that hardly differ, text, noise, zeros, and a copy of it that has changed in places.
"$PYTHON" - "$WORK" <<'EOT'
import random, struct, sys
random.seed(3)
counters = b"".join(struct.pack("<Q", 1000000 + i * 3 + random.randrange(8)) for i in range(1 << 19))
words = [bytes(random.choices(b"etaoinshrdlu", k=random.randrange(2, 9))) for _ in range(500)]
text = b" ".join(random.choice(words) for _ in range(600000))[:3 << 20]
noise = random.randbytes(3 << 20)
one = counters + text + noise + bytes(1 << 20) + text[:12345]
two = bytearray(one)
for _ in range(40):
    at = random.randrange(len(two))
    two[at : at + 5] = b"other"
open(sys.argv[1] + "/one", "wb").write(one)
open(sys.argv[1] + "/two", "wb").write(two)
EOT

for how in lz4 zstd zstd:1 zstd:12 auto none; do
	fs_mount "compress=$how"
	mkdir "$MNT/$how"
	cp "$WORK/one" "$WORK/two" "$MNT/$how/"
	cmp "$WORK/one" "$MNT/$how/one"
	rm -r "${MNT:?}/$how"
	collect # nothing of it is shared with the next one
	cp "$WORK/one" "$WORK/two" "$MNT/"
	sync "$MNT/one" "$MNT/two"
	{ read -r plain && read -r stored && read -r after && read -r taken; } < <(
		figure compression.plain_bytes stored_bytes compressed_bytes pack_disk_bytes)
	case $how in
	none) [ "$plain" = 0 ] || fail "$how: $plain bytes were compressed" ;;
	auto) ;; # if there was time
	*)
		[ "$plain" -ge $((6 << 20)) ] || fail "$how: only $plain bytes were compressed"
		[ "$after" -lt $((stored * 8 / 10)) ] || fail "$how: $stored bytes take $after"
		;;
	esac
	[ $((taken / 1024 - $(disk_kib "$STORE/packs"))) -lt 256 ] || fail "$how: du and ckptfs-stat differ"
	fs_remount "compress=$how"
	drop_caches
	random_reads "$MNT/one" "$WORK/one"
	drop_caches
	cmp "$WORK/one" "$MNT/one"
	cmp "$WORK/two" "$MNT/two"
	rm "$MNT"/*
	collect
	[ "$(figure stored_bytes)" = 0 ] || fail "$how: something is left"
	fs_umount
done

# What was written in any way is shared and read in any other, while a collection goes on.
for how in lz4 zstd none auto; do
	fs_mount "compress=$how"
	cp "$WORK/one" "$MNT/$how"
	rm -f "$MNT/two"
	collect &
	COLLECTOR=$!
	cp "$WORK/two" "$MNT/two"
	for f in "$MNT"/[!t]*; do cmp "$WORK/one" "$f"; done
	cmp "$WORK/two" "$MNT/two"
	wait "$COLLECTOR"
	COLLECTOR=
	cmp "$WORK/two" "$MNT/two"
	fs_umount
done
fs_mount
collect
for f in lz4 zstd none auto; do cmp "$WORK/one" "$MNT/$f"; done
rm "$MNT"/*
collect

# A directory's setting, inherited, and changed for one file.
mkdir -p "$MNT/dir/deeper"
setfattr -n user.ckptfs.compress -v zstd:3 "$MNT/dir"
! setfattr -n user.ckptfs.compress -v best "$MNT/dir" 2>/dev/null || fail "a setting that means nothing was taken"
head -c 4M "$WORK/one" >"$MNT/outside" && sync "$MNT/outside"
[ "$(figure compression.plain_bytes)" = 0 ] || fail "compressed though nobody said so"
mkdir "$MNT/dir/new"
head -c 8M "$WORK/one" | tail -c 3M >"$MNT/dir/new/file" && sync "$MNT/dir/new/file"
inside=$(figure compression.plain_bytes)
[ "$inside" -ge $((2 << 20)) ] || fail "a new file in a directory that is compressed is not"
tr a-z b-za <"$WORK/one" >"$WORK/three"
head -c 7M "$WORK/three" | tail -c 3M >"$MNT/dir/deeper/old" # that directory was there before
sync "$MNT/dir/deeper/old"
[ "$(figure compression.plain_bytes)" = "$inside" ] || fail "inherited by what was there before"
cmp <(head -c 8M "$WORK/one" | tail -c 3M) "$MNT/dir/new/file"

# Set on a file that is open it counts at once, and is no further opening: closed and collected, nothing is kept of it.
noise 5 1 >"$MNT/open"
exec 5<>"$MNT/open"
setfattr -n user.ckptfs.compress -v zstd "$MNT/open"
head -c 2M "$WORK/three" >&5
sync "$MNT/open"
[ "$(figure compression.plain_bytes)" -gt "$inside" ] || fail "a setting of a file that is open counts later"
exec 5>&-
collect
[ "$(figure memory.segment_bytes)" = 0 ] || fail "the recipe of a file that is closed is still held"
fs_umount
