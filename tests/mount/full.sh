#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A full disk: ENOSPC at write, deleting goes on, what was acknowledged is there, and it mounts again with no byte free.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

small_disk 150m

fs_mount
n=0
while head -c 5M /dev/urandom >"$WORK/data.$n" && cp "$WORK/data.$n" "$MNT/file.$n" 2>/dev/null && sync "$MNT/file.$n" 2>/dev/null; do
	n=$((n + 1))
	[ "$n" -lt 40 ] || fail "200 MiB went into a disk of 150"
done
[ "$n" -gt 10 ] || fail "full after $n files of 5 MiB"
echo "ok full after $n files"
! why=$(dd if=/dev/urandom of="$MNT/more" bs=1M count=16 2>&1) || fail "16 MiB went into a full disk"
[[ $why == *"No space left"* ]] || fail "not ENOSPC but: $why"
echo "ok ENOSPC at write"

sync "$MNT/more" 2>/dev/null || true # a frame that is on its way when others take all would need the reserve, and then names are refused
dd if=/dev/zero of="$disk/filler" bs=4K 2>/dev/null || true # others take the rest as well
rm "$MNT/file.0"
mkdir "$MNT/dir"
mv "$MNT/file.1" "$MNT/dir/one"
sync "$MNT/dir"
echo "ok names change on a full disk"
fs_umount
dd if=/dev/zero of="$disk/filler2" bs=4K 2>/dev/null || true

fs_mount
[ ! -e "$MNT/file.0" ] || fail "a deleted file is back"
cmp "$WORK/data.1" "$MNT/dir/one"
for ((i = 2; i < n; i++)); do
	cmp "$WORK/data.$i" "$MNT/file.$i"
done
rm "$MNT/dir/one"
echo "ok mounted again with a full disk, all bytes right"
rm "$MNT/file.2" "$MNT/file.3"
"$CKPTFS_BUILD/tools/ckptfs-gc" --delete "$MNT" >"$WORK/gc.log" 2>&1 || { cat "$WORK/gc.log"; fail "cannot collect on a full disk"; }
cp "$WORK/data.3" "$MNT/three"
sync "$MNT/three"
cmp "$WORK/data.3" "$MNT/three"
for ((i = 4; i < n; i++)); do
	cmp "$WORK/data.$i" "$MNT/file.$i"
done
echo "ok collecting makes room on a full disk"
fs_umount
free_blocks "$disk"/filler*
fs_mount
head -c 1M /dev/urandom >"$MNT/again"
echo "ok writable again"

# Names and attributes take room too: they are refused before there is none for deleting them.
"$PYTHON" - "$MNT" <<'PY' || fail "names and attributes went into a full disk without an end"
import errno, os, sys
def until_full(add, most):
    for i in range(most):
        try:
            add(i)
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise
            return
    sys.exit(1)
os.chdir(sys.argv[1])
with open("fill", "wb", buffering=0) as f:
    until_full(lambda i: (f.write(os.urandom(1 << 20)), os.fsync(f.fileno())), 150)
until_full(lambda i: os.setxattr("fill", f"user.{i}", os.urandom(60000)), 1000)
until_full(lambda i: os.symlink("x" * 4000, f"link.{i}"), 10000)
PY
rm -r "${MNT:?}"/*
sync "$MNT"
collect
cp "$WORK/data.3" "$MNT/three"
sync "$MNT/three"
fs_umount
fs_sound "after a disk full of attributes"
fs_mount
cmp "$WORK/data.3" "$MNT/three"
[ "$(ls "$MNT")" = three ] || fail "what was deleted is back"
fs_umount
echo "ok deleting goes on where names and attributes have filled the disk"

# So does changing them again and again, on a disk that others have filled.
fs_mount
dd if=/dev/zero of="$disk/filler" bs=4K 2>/dev/null || true
"$PYTHON" - "$MNT" <<'PY'
import errno, os, sys
os.chdir(sys.argv[1])
names = "three", "3" * 250
try:
    for i in range(60000):
        os.rename(names[i % 2], names[1 - i % 2])
except OSError as e:
    if e.errno != errno.ENOSPC:
        raise
PY
rm "$MNT"/*
sync "$MNT"
collect
fs_umount
fs_sound "after renaming on a full disk"
echo "ok deleting goes on after much renaming on a full disk"

# Clones are little in the log and much in the index: they, too, are refused before there is no room to collect.
free_blocks "$disk/filler"
fs_mount cache=64M,dirty=64M
"$PYTHON" - "$MNT" <<'PY' || fail "clones went into a full disk without an end"
import errno, os, random, sys
os.chdir(sys.argv[1])
pages = [os.urandom(4096) for _ in range(4096)]
for name in "source", "shuffled":
    with open(name, "wb") as f:
        f.write(b"".join(pages))
    random.shuffle(pages)
with open("fill", "wb", buffering=0) as f:
    try:
        while True:
            f.write(os.urandom(1 << 20))
            os.fsync(f.fileno())
    except OSError as e:
        if e.errno != errno.ENOSPC:
            raise
source = os.open("shuffled", os.O_RDONLY)
for i in range(4000):
    to = os.open(f"clone.{i}", os.O_WRONLY | os.O_CREAT)
    try:
        os.copy_file_range(source, to, 16 << 20, 0, 0)
    except OSError as e:
        if e.errno != errno.ENOSPC:
            raise
        sys.exit(0)
    finally:
        os.close(to)
sys.exit(1)
PY
rm "${MNT:?}"/*
sync "$MNT"
collect
fs_umount
fs_sound "after clones on a full disk"
echo "ok deleting and collecting go on where clones have filled the disk"
