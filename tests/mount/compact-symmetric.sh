#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A field of doubles that is symmetric in three directions, as a solver computes it: mirrored numbers have other signs and differ in their last
# bits. Compacting stores each of them once, and a small difference for the others. All bytes come back, also in single pages and after a collection.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
no_commit_timer
compact=$CKPTFS_BUILD/tools/ckptfs-compact

# An eighth of the field is noise. The others mirror it: odd in the first direction, even in the others; in small or large byte order. With "twice"
# each half is also even in the first direction.
make_field() { # FILE SEED ORDER CELLS [twice]
	"$PYTHON" - "$@" <<-'END'
		import random, struct, sys
		path, seed, order = sys.argv[1], int(sys.argv[2]), sys.argv[3]
		random.seed(seed)
		n = int(sys.argv[4])
		half = n // 2 + 1
		corner = [random.getrandbits(53) | 0x3fe << 52 for _ in range(half**3)]
		at = [min(i, n - i) for i in range(n)]
		plane = [min(i, n // 2 - i) for i in at] if sys.argv[5:] else at
		field = []
		for x in range(n):
		    sign = (x > n // 2) << 63
		    for y in range(n):
		        row = (plane[x] * half + at[y]) * half
		        field += [corner[row + at[z]] + random.randrange(4) | sign for z in range(n)]
		head = f"{{'descr': '{order}f8', 'fortran_order': False, 'shape': ({n}, {n}, {n}), }}".ljust(117) + "\n"
		with open(path, "wb") as f:
		    f.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"{order}{n**3}Q", *field))
	END
}
same() { diff -r "$WORK/steps" "$MNT/steps" || fail "$1: other bytes"; } # WHEN

for step in 0 1 2; do
	mkdir -p "$WORK/steps/$step"
	make_field "$WORK/steps/$step/field.npy" $step "$([ $step = 2 ] && echo '>' || echo '<')" 48
done
plain=$(du -sk --apparent-size "$WORK/steps" | cut -f 1)
fs_mount
cp -r "$WORK/steps" "$MNT/"
sync "$MNT"/steps/*/*
"$compact" --budget 1000 --json "$MNT/steps" >"$WORK/out" || fail "compact: $?"
after=$(disk_kib "$STORE/packs")
# an eighth, somewhat more as planes in the middle are their own mirrors, and 3 bits of 64
[ "$after" -le $((plain * 26 / 100)) ] || fail "$after of $plain KiB: $(cat "$WORK/out")"
echo "ok $after of $plain KiB"
drop_caches
same compacted
"$PYTHON" - "$WORK/steps" "$MNT/steps" <<'END' || fail "single pages"
import os, random, sys
random.seed(1)
for _ in range(200):
    name = f"{random.randrange(3)}/field.npy"
    a, b = (os.open(os.path.join(top, name), os.O_RDONLY) for top in sys.argv[1:])
    off = random.randrange(os.fstat(a).st_size)
    assert os.pread(a, 4096, off) == os.pread(b, 4096, off), (name, off)
    os.close(a)
    os.close(b)
END
rm -r "$MNT/steps/1" "$WORK/steps/1"
"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --move-below 95 --quiet "$MNT" >/dev/null
[ "$(disk_kib "$STORE/packs")" -lt "$after" ] || fail "a collection gives nothing back"
drop_caches
same collected

# A field of two frames: the mirror images of a plane lie in both, so it is folded.
mkdir "$WORK/steps/large" "$MNT/steps/large"
make_field "$WORK/steps/large/large.npy" 3 '<' 64 twice
before=$(disk_kib "$STORE/packs")
cp "$WORK/steps/large/large.npy" "$MNT/steps/large/"
sync "$MNT/steps/large/large.npy"
"$compact" --budget 1000 --json "$MNT/steps/large" >"$WORK/out" || fail "compact: $?"
took=$(($(disk_kib "$STORE/packs") - before))
# 9 of each 32 planes, a quarter of each, and 3 bits of 64; unfolded, 17 of each 32 planes: 380 KiB
[ "$took" -le $((2048 * 16 / 100)) ] || fail "$took of 2048 KiB: $(cat "$WORK/out")"
echo "ok $took of 2048 KiB"
drop_caches
same folded
fs_umount
fs_sound "a symmetric field"
