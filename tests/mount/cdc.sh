#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Chunks that are cut by content, on a mount: a series that shifts, settings of directories, sizes, changes in place, collecting,
# kill -9; and every byte compared after each.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need setfattr getfattr
no_commit_timer

same() { # DIRECTORY [STEP...]: what it has of the series, byte for byte
	local dir=$1 f
	shift
	drop_caches
	for f in "${@:-$WORK/series/}"*; do
		f=${f##*/}
		[ ! -e "$dir/$f" ] || cmp "$WORK/series/$f" "$dir/$f" || fail "$dir/$f has other bytes"
	done
}

# Ten steps of 12 MiB. Each has bytes put in, taken out and changed at a few places: what follows moves by odd amounts.
mkdir "$WORK/series"
"$PYTHON" - "$WORK/series" <<'EOT'
import random, sys
random.seed(11)
b = bytearray(random.randbytes(12 << 20))
b[3000001:3400001] = bytes(400000)
for step in range(10):
    open(f"{sys.argv[1]}/ckpt.{step:03}", "wb").write(b)
    for _ in range(4):
        at = random.randrange(len(b) - 100000)
        b[at:at] = random.randbytes(random.randrange(1, 2000))
        at = random.randrange(len(b) - 100000)
        del b[at : at + random.randrange(1, 2000)]
        at = random.randrange(len(b) - 100000)
        b[at : at + 100] = random.randbytes(100)
EOT
one=$((12 << 20))

# The whole mount by content: nine more steps cost little, and a tenth of what pages take.
fs_mount chunking=cdc
for f in "$WORK"/series/*; do cp "$f" "$MNT/"; done
sync "$MNT/ckpt.009" # everything with it
stored=$(figure stored_bytes)
[ "$stored" -lt $((one + one / 4)) ] || fail "ten steps of $one bytes take $stored"
[ "$stored" -gt $((one - 410000)) ] || fail "ten steps of $one bytes take only $stored"
same "$MNT"
fs_remount chunking=cdc
same "$MNT"
cp "$WORK/series/ckpt.009" "$MNT/again"
sync "$MNT/again"
now=$(figure stored_bytes)
[ "$now" = "$stored" ] || fail "the same bytes were stored twice, after a mount: $((now - stored)) bytes more"
cmp "$WORK/series/ckpt.009" "$MNT/again"
used=$(du -s --block-size=1 "$MNT/again" | cut -f 1)
[ "$used" -lt $(($(stat -c %s "$MNT/again") - 380000)) ] || fail "the zeros are no hole: $used bytes"
fs_umount
fs_sound "after a series by content"

# Changes in place cost a few chunks each, also in a mount of pages, and what was cut by content is read there.
fs_mount chunking=cdc,cdc=1K:8K:64K
"$PYTHON" - "$MNT/again" "$WORK/series/ckpt.009" <<'EOT'
import os, random, sys
random.seed(12)
a = os.open(sys.argv[1], os.O_RDWR)
b = bytearray(open(sys.argv[2], "rb").read())
for i in range(60):
    at, n = random.randrange(len(b)), random.choice([1, 100, 4096, 70000])
    what = random.randbytes(n) if i % 3 else bytes(n)
    os.pwrite(a, what, at)
    b[at : at + n] = what
    if len(b) < at + n:
        b.extend(bytes(at + n - len(b)))
    if i % 10 == 9:
        os.fsync(a)
    if i == 30:
        os.ftruncate(a, len(b) - 1234567)
        del b[len(b) - 1234567 :]
open(sys.argv[2] + ".changed", "wb").write(b)
EOT
cmp "$WORK/series/ckpt.009.changed" "$MNT/again"
fs_remount chunking=page
cmp "$WORK/series/ckpt.009.changed" "$MNT/again"
grown=$(($(figure stored_bytes) - stored))
[ "$grown" -lt $((6 << 20)) ] || fail "60 changes cost $grown bytes"
printf x | dd of="$MNT/again" bs=1 seek=5000001 conv=notrunc status=none
printf x | dd of="$WORK/series/ckpt.009.changed" bs=1 seek=5000001 conv=notrunc status=none
cmp "$WORK/series/ckpt.009.changed" "$MNT/again"
rm "$MNT/again" "$WORK/series/ckpt.009.changed"

# Half of them deleted and collected: the others stay, to the last byte.
for i in 0 2 4 6 8; do rm "$MNT/ckpt.00$i"; done
collect
same "$MNT"
fs_umount
fs_sound "after a collection"
fs_mount chunking=cdc
same "$MNT"
rm "$MNT"/*
collect
[ "$(figure stored_bytes)" = 0 ] || fail "$(figure stored_bytes) bytes are left of nothing"
fs_umount
fs_sound "after everything was collected"

# One directory by content, another one not; new directories and files inherit it.
fs_mount
mkdir "$MNT/cut" "$MNT/pages"
setfattr -n user.ckptfs.chunking -v cdc "$MNT/cut"
! setfattr -n user.ckptfs.chunking -v rabin "$MNT/pages" 2>/dev/null || fail "any value is taken"
# Repeated attempts do not fill the log.
"$PYTHON" - "$MNT/pages" <<'PY'
import os, sys
for i in range(500):
    try:
        os.setxattr(sys.argv[1], "user.ckptfs.chunking", b"rabin%d" % i)
        sys.exit("FAILED: any value is taken")
    except OSError:
        pass
PY
[ "$(grep -c 'user.ckptfs.chunking: must be' "$WORK/daemon.log")" = 10 ] || fail "the log: $(grep -c 'must be' "$WORK/daemon.log") lines"
mkdir "$MNT/cut/below"
for f in "$WORK"/series/*; do cp "$f" "$MNT/cut/below/"; done
sync "$MNT/cut/below/ckpt.009"
[ "$(getfattr --absolute-names --only-values -n user.ckptfs.chunking "$MNT/cut/below/ckpt.003")" = cdc ] || fail "the setting is not inherited"
stored=$(figure stored_bytes)
[ "$stored" -lt $((one + one / 4)) ] || fail "ten steps in a directory take $stored"
cp "$WORK/series/ckpt.000" "$WORK/series/ckpt.001" "$WORK/series/ckpt.002" "$MNT/pages/"
sync "$MNT/pages/ckpt.002"
[ "$(($(figure stored_bytes) - stored))" -gt $((2 * one)) ] || fail "the other directory is not of pages"
same "$MNT/cut/below"
same "$MNT/pages"
fs_remount
setfattr -n user.ckptfs.chunking -v page "$MNT/cut/below/ckpt.003" # what it has stays as it is
printf y | dd of="$MNT/cut/below/ckpt.003" bs=1 seek=100 conv=notrunc status=none
printf y | dd of="$WORK/series/ckpt.003" bs=1 seek=100 conv=notrunc status=none
same "$MNT/cut/below"

# Killed while it writes: what was synced is there.
for f in "$WORK"/series/ckpt.00[5-9]; do cp "$f" "$MNT/cut/k-${f##*/}" && sync "$MNT/cut/k-${f##*/}"; done
fs_remount commit=1
fs_kill_writing "$MNT/cut/half" "$WORK"/series/*
for f in "$WORK"/series/ckpt.00[5-9]; do cmp "$f" "$MNT/cut/k-${f##*/}"; done
same "$MNT/cut/below"
fs_umount
fs_sound "at the end"
