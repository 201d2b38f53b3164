#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# chunking=auto, on a mount: of small series of many kinds it takes at most 2 % more than the better of page and cdc; settings of
# directories, a mount in between, kill -9; and every byte compared.
#   AUTO_SERIES  those that are measured (default: all)
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need setfattr getfattr

# Series of five steps, one directory each: step-N/FILE or FILE.N, about 6 MiB a step.
"$PYTHON" - "$WORK/series" <<'EOT'
import os, random, struct, sys
top = sys.argv[1]
noise = random.Random(11).randbytes
choice = random.Random(12)
MIB, PAGE = 1 << 20, 4096

def write(name, step, file, data):
    path = os.path.join(top, name, file.format(step))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)

def pages(b, part):
    for at in range(0, len(b) - PAGE, PAGE):
        if choice.random() < part:
            b[at : at + PAGE] = noise(PAGE)

def shift(b, n, most=2000):
    for _ in range(n):
        at = choice.randrange(len(b))
        if choice.random() < 0.5:
            b[at:at] = noise(choice.randrange(1, most))
        else:
            del b[at : at + choice.randrange(1, most)]

def steps(name, file, size, change):
    b = bytearray(noise(size))
    for step in range(5):
        if step > 0:
            change(b, step)
        write(name, step, file, b)

steps("pages", "ckpt.{:03}", 6 * MIB, lambda b, step: pages(b, 0.1))
steps("shifts", "step-{}/particles", 6 * MIB, lambda b, step: shift(b, 6))
steps("late", "ckpt.{}", 6 * MIB, lambda b, step: pages(b, 0.05) if step < 3 else shift(b, 2))
steps("large", "ckpt.{}", 6 * MIB, lambda b, step: shift(b, 2, MIB))
steps("new", "ckpt.{}", 3 * MIB, lambda b, step: b.__setitem__(slice(None), noise(len(b))))
steps("mixed", "ckpt.{}", 6 * MIB, lambda b, step: (pages(memoryview(b)[: 3 * MIB], 0.1), shift(b, 1)))

# Ranks that share pages, and shift against each other: an image with a header of odd length in front.
image = [bytearray(noise(2 * MIB)) + bytes(MIB // 2) + bytearray(noise(MIB // 2)) for _ in range(2)]
for step in range(4):
    for rank, b in enumerate(image):
        pages(memoryview(b)[MIB:], 0.05)
        write("images", step, "core.rank%d.{}" % rank, noise(300 + 8 * step + 100 * rank) + image[0][:MIB] + b)

# A base that stays, a head that changes, and a table of contents in front that grows by a line with each step.
base, toc = noise(4 * MIB), b""
for step in range(5):
    toc += b"step %d loss %.17g\n" % (step, choice.random())
    write("frozen", step, "model-{}.bin", toc + base + noise(MIB // 2))

# A container that appends records to sections: each section but the first moves.
sections = [bytearray(noise(MIB + 1000 * i)) for i in range(4)]
for step in range(5):
    for s in sections:
        s += noise(choice.randrange(5000))
    write("sections", step, "out.{}.dat", b"".join(struct.pack("<Q", len(s)) + s for s in sections))
EOT

taken() { # SERIES WAY: the bytes that it takes in a store of its own, collected; $STORE is left unmounted and sound
	local first=
	rm -rf "$STORE"
	fs_mount "chunking=$2"
	for f in $(cd "$WORK/series/$1" && ls | sort -V); do
		cp -r "$WORK/series/$1/$f" "$MNT/"
		[ -n "$first" ] || { first=1; fs_remount "chunking=$2"; } # champions are found again
	done
	collect
	drop_caches
	diff -r "$WORK/series/$1" "$MNT" >&2 || fail "$1, $2: other bytes"
	stored=$(figure stored_bytes)
	fs_umount
	fs_sound "in $1, $2"
	packs=$(du -s --block-size=1 "$STORE/packs" | cut -f 1)
}

for series in ${AUTO_SERIES:-$(ls "$WORK/series")}; do
	best_stored= best_packs= line=
	for way in page cdc auto; do
		taken "$series" "$way"
		line="$line $way $stored ($packs)"
		if [ $way != auto ]; then
			[ -n "$best_stored" ] && [ "$best_stored" -lt "$stored" ] || best_stored=$stored
			[ -n "$best_packs" ] && [ "$best_packs" -lt "$packs" ] || best_packs=$packs
		fi
	done
	echo "$series:$line"
	[ "$stored" -le $((best_stored + best_stored / 50)) ] || fail "$series: auto stores $stored bytes, the better of both $best_stored"
	[ "$packs" -le $((best_packs + best_packs / 50 + 65536)) ] || fail "$series: auto takes $packs bytes, the better of both $best_packs"
done

# A directory of its own in a mount of pages: inherited, told, and what is found is counted.
rm -rf "$STORE"
fs_mount
mkdir "$MNT/auto" "$MNT/pages"
setfattr -n user.ckptfs.chunking -v auto "$MNT/auto"
mkdir "$MNT/auto/below"
cp "$WORK"/series/large/ckpt.[01] "$MNT/pages/"
[ "$(figure written_by_cause.shifted_bytes)" = 0 ] || fail "what has moved was found in a directory of pages"
rm "$MNT"/pages/*
for f in "$WORK"/series/large/*; do cp "$f" "$MNT/auto/below/"; done
[ "$(getfattr --absolute-names --only-values -n user.ckptfs.chunking "$MNT/auto/below/ckpt.3")" = auto ] || fail "the setting is not inherited"
moved=$(figure written_by_cause.shifted_bytes)
[ "$moved" -gt $((4 << 20)) ] || fail "only $moved bytes were found that have moved"

# Each file may go: the others stay, to the last byte, and unreferenced bytes are freed.
for i in 0 2 3; do
	rm "$MNT/auto/below/ckpt.$i"
	collect
	drop_caches
	for f in "$MNT"/auto/below/*; do cmp "$f" "$WORK/series/large/${f##*/}"; done
done

# Changes in place, and killed while it writes: what was synced is there.
printf changed | dd of="$MNT/auto/below/ckpt.4" bs=1 seek=2000001 conv=notrunc status=none
cp "$WORK/series/large/ckpt.4" "$WORK/changed"
printf changed | dd of="$WORK/changed" bs=1 seek=2000001 conv=notrunc status=none
cmp "$WORK/changed" "$MNT/auto/below/ckpt.4"
fs_remount commit=1
for f in "$WORK"/series/large/*; do cp "$f" "$MNT/auto/k-${f##*/}" && sync "$MNT/auto/k-${f##*/}"; done
fs_kill_writing "$MNT/auto/k-ckpt.5" "$WORK"/series/large/*
for f in "$WORK"/series/large/*; do cmp "$f" "$MNT/auto/k-${f##*/}"; done
cmp "$WORK/changed" "$MNT/auto/below/ckpt.4"
rm -r "$MNT"/*
collect
[ "$(figure stored_bytes)" = 0 ] || fail "$(figure stored_bytes) bytes are left of nothing"
fs_umount
fs_sound "at the end"
