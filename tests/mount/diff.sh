#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-diff: the bytes that it names are those that differ, whatever files share; what they share is not read; and it
# ends as diff(1) does.
. "$(dirname "$0")/lib.sh"
need_mount

differ() { "$CKPTFS_BUILD/tools/ckptfs-diff" "$@"; }
fs_mount
cd "$WORK"

# --- two directories ---
mkdir -p "$MNT/a/sub" "$MNT/b/sub"
noise 1 8 >"$MNT/a/sub/big"
cp --reflink=auto "$MNT/a/sub/big" "$MNT/b/sub/big"
echo same | tee "$MNT/a/same" >"$MNT/b/same"
echo x >"$MNT/a/gone"
echo x >"$MNT/b/new"
ln -s one "$MNT/a/link"
ln -s two "$MNT/b/link"
mkdir "$MNT/a/kind"
echo x >"$MNT/b/kind"
ln "$MNT/a/same" "$MNT/b/twin"
ln "$MNT/a/same" "$MNT/a/twin"
printf 'abc' | dd of="$MNT/b/sub/big" bs=1 seek=5000000 conv=notrunc status=none
exits 1 differ "$MNT/a" "$MNT/b"
[ "$(cat out)" = "# first: $MNT/a
# second: $MNT/b
# path: offset +length of each difference, in bytes
gone: only in the first
kind: different file types
link: symbolic links with different targets
new: only in the second
sub/big: 4997120 +4096" ] || fail_showing "something else"
[ ! -s said ] || fail_showing "something is said"
exits 1 differ --unit 1 "$MNT/a/sub/big" "$MNT/b/sub/big"
tells "big: 5000000 +3\$"
exits 1 differ --summary "$MNT/a" "$MNT/b"
tells "^# first: $MNT/a\$"
tells "^# path: size of the differences"
tells "^sub/big: 4 KiB of 8 MiB in 1 place\$"
tells "^4 KiB of .* in 2 of 4 files; 1 only in the first, 1 only in the second; 4 KiB read of each"
exits 1 differ --json "$MNT/a" "$MNT/b"
"$PYTHON" -c 'import json, sys
j = json.load(open(sys.argv[1]))
big = next(d for d in j["differences"] if d["path"] == "sub/big")
assert big == {"path": "sub/big", "state": "differs", "ranges": [[4997120, 4096]], "size_a": 8 << 20, "size_b": 8 << 20,
               "nr_ranges": 1, "bytes": 4096}, big
assert sorted((d["path"], d["state"]) for d in j["differences"]) == [("gone", "only_a"), ("kind", "kind"),
    ("link", "target"), ("new", "only_b"), ("sub/big", "differs")], j
assert not j["same"] and j["complete"] and j["read_bytes"] == 4096, j' out || fail_showing "other JSON"
exits 1 differ --json --summary "$MNT/a" "$MNT/b"
json same <out >/dev/null || fail_showing "no JSON"
exits 1 differ --quiet "$MNT/a" "$MNT/b"
[ ! -s out ] || fail_showing "something is said"
exits 0 differ "$MNT/a" "$MNT/a"
exits 0 differ "$MNT/a/sub/big" "$MNT/a/sub/big"
says_nothing "they are the same"

# --- trouble ---
exits 2 differ "$MNT/a"
exits 2 differ "$MNT/a" "$MNT/nowhere"
says "No such file"
exits 2 differ --unit 3 "$MNT/a" "$MNT/b"
says "power of two"
exits 1 differ "$MNT/a" "$MNT/a/same"
tells "different file types"

# --- elsewhere: all is read, and that is said ---
cp -r "$MNT/a" "$WORK/copy"
exits 0 differ "$MNT/a" "$WORK/copy"
says "not on the same ckptfs mount: reading all bytes"
printf 'abc' | dd of="$WORK/copy/sub/big" bs=1 seek=4096 conv=notrunc status=none
exits 1 differ "$MNT/a" "$WORK/copy"
tells "^sub/big: 4096 +4096"

# --- much that is shared, and a hole that has no end: nothing of them is read ---
truncate -s 512P "$MNT/a/hole" "$MNT/b/hole"
printf x | dd of="$MNT/b/hole" bs=1 seek=$((1 << 58)) conv=notrunc status=none
exits 1 differ --json --unit 1 "$MNT/a/hole" "$MNT/b/hole"
[ "$(json bytes <out)" = 1 ] || fail_showing "other bytes"
[ "$(json read_bytes <out)" -le 4096 ] || fail_showing "a hole was read"

# --- without read permission nothing is shown ---
if [ "$(id -u)" = 0 ]; then
	chmod 700 "$MNT/a/sub"
	fs_remount allow_other
	exits 2 as_nobody "$CKPTFS_BUILD/tools/ckptfs-diff" "$MNT/a/sub/big" "$MNT/b/sub/big"
	says "Permission denied"
	exits 2 as_nobody "$CKPTFS_BUILD/tools/ckptfs-diff" "$MNT/a" "$MNT/b"
	says "a/sub: Permission denied"
	tells "gone: only in the first" # the rest is compared
	chmod 755 "$MNT/a/sub"
fi

# --- names ---
mkdir "$MNT/p" "$MNT/q"
echo 1 >"$MNT/p/"$'evil\n\e'
exits 1 differ "$MNT/p" "$MNT/q"
[ "$(grep -v '^#' out)" = 'evil\012\033: only in the first' ] || fail_showing "a name is shown as it is"

# --- against what Python finds, for files that share in every way there is ---
for chunking in page cdc auto; do
	fs_remount chunking=$chunking
	"$PYTHON" - "$MNT" "$CKPTFS_BUILD/tools/ckptfs-diff" "$chunking" <<'PY'
import json, os, random, subprocess, sys
mnt, tool, chunking = sys.argv[1:]
random.seed(chunking)
known = mixed = 0
for round in range(20):
    a = bytearray(random.randbytes(random.choice([0, 1, 4096, 70000, 2 << 20])))
    for i in range(random.randrange(4)): # holes
        at = random.randrange(len(a) + 1)
        a[at:at + 100000] = bytes(len(a[at:at + 100000]))
    b = bytearray(a)
    for i in range(random.randrange(5)):
        at, n = random.randrange(len(b) + 1), random.choice([1, 10, 5000, 200000])
        what = random.randrange(5)
        if what == 0: b[at:at + n] = random.randbytes(len(b[at:at + n]))
        elif what == 1: b[at:at + n] = bytes(len(b[at:at + n]))
        elif what == 2: del b[len(b) - min(n, len(b)):]
        elif what == 3: b += random.randbytes(n)
        elif round % 5 == 0: b[at:at] = random.randbytes(min(n, 100)) # moved
    pa, pb = f"{mnt}/{chunking}.a", f"{mnt}/{chunking}.b"
    open(pa, "wb").write(a)
    if round % 2: # as a clone that is changed where it must be
        subprocess.run(["cp", "--reflink=auto", pa, pb], check=True)
        with open(pb, "r+b") as f:
            f.truncate(len(b))
            for at in range(0, len(b), 512):
                if a[at:at + 512] != b[at:at + 512]:
                    f.seek(at)
                    f.write(b[at:at + 512])
    else:
        open(pb, "wb").write(b)
    for unit in (1, 512, 4096):
        out = subprocess.run([tool, "--json", "--unit", str(unit), pa, pb], capture_output=True, text=True)
        j = json.loads(out.stdout)
        want, common = [], min(len(a), len(b))
        for at in (x for block in range(0, common, 4096) if a[block:block + 4096] != b[block:block + 4096]
                   for x in range(block, min(block + 4096, common), unit)):
            end = min(at + unit, common)
            if a[at:end] != b[at:end]:
                if want and want[-1][1] == at: want[-1][1] = end
                else: want.append([at, end])
        if len(a) != len(b):
            if want and want[-1][1] == common: want[-1][1] = max(len(a), len(b))
            else: want.append([common, max(len(a), len(b))])
        got = [[off, off + n] for d in j["differences"] for off, n in d["ranges"]]
        assert got == want, (chunking, round, unit, got[:5], want[:5])
        assert out.returncode == (1 if want else 0), out
        known += common - j["read_bytes"]
assert known > 10 << 20, known # what was not read
PY
done
fs_umount
fs_sound "after clones"
