#!/bin/bash
# ckptfs-analyze: what it tells of data whose duplicates are known, and that a mount stores what it says.
. "$(dirname "$0")/../mount/lib.sh"

analyze=$CKPTFS_BUILD/tools/ckptfs-analyze
data=$WORK/data
mkdir "$data"
cd "$data"

# check EXPRESSION [ARGUMENT...]: run on the arguments, it is true of the result: j all, t total, f files by name; p and
# c are what becomes of them in pages of 4 KiB and by content
check() {
	local expression=$1
	shift
	exits "${code:-0}" "$analyze" --json "$@"
	"$PYTHON" - "$expression" "$WORK/out" <<-'EOT' || fail "analyze $*: not true: $expression"
	import json, os, sys
	j = json.load(open(sys.argv[2]))
	def add(o):
	    o["p"] = next(x for x in o["by_chunking"] if x.get("page_bytes") == 4096)
	    o["c"] = o["by_chunking"][-1]
	    assert o["c"]["chunking"] == "cdc"
	    for x in o["by_chunking"]:
	        parts = ("same_file", "same_series", "other_ranks", "other_files", "new", "zero")
	        x["sum"] = sum(x[n + "_bytes"] for n in parts)
	for o in j["files"] + [j["total"]]:
	    add(o)
	t = j["total"]
	f = {os.path.basename(x["path"]): x for x in j["files"]}
	p, c, K = t["p"], t["c"], 4096
	if not eval(sys.argv[1]):
	    print(json.dumps(t, indent=1), file=sys.stderr)
	    sys.exit(1)
	EOT
	echo "ok $expression"
}
make() { "$PYTHON" - "$@"; }

# Pages that are known: 100 of a kind, 60 of them twice, 40 of zeros.
make <<'EOT'
import random
r = random.Random(1)
pages = [r.randbytes(4096) for i in range(100)]
open("pages", "wb").write(b"".join(pages) + bytes(40 * 4096) + b"".join(pages[:60]) + b"end")
EOT
check 'p["new_bytes"] == 101 * K and p["same_file_bytes"] == 60 * K' pages
check 'p["zero_bytes"] == 40 * K == t["zero_bytes"]' pages
check 't["size_bytes"] == 200 * K + 3 and p["sum"] == 201 * K and c["sum"] == t["size_bytes"]' pages
check 'j["schema_version"] == 1 and j["complete"] and j["exact"] and p["sampling_rate"] == 1 and t["files"] == 1' pages

# Steps and ranks. Each rank has 80 pages of its own and 20 that all have; each step changes 10 of its own.
make <<'EOT'
import random
common = random.Random(0).randbytes(20 * 4096)
for rank in range(3):
    own = bytearray(random.Random(100 + rank).randbytes(80 * 4096))
    for step in (1, 2, 10):
        own[step * 4096:(step + 10) * 4096] = random.Random(1000 * rank + step).randbytes(10 * 4096)
        open(f"ckpt.{rank}.{step}", "wb").write(common + own)
EOT
check '[x["path"] for x in j["files"]] == [f"ckpt.{r}.{s}" for r in range(3) for s in (1, 2, 10)]' ckpt.*
check 'f["ckpt.0.1"]["p"]["new_bytes"] == 100 * K and f["ckpt.0.2"]["p"]["new_bytes"] == 10 * K' ckpt.*
check 'f["ckpt.0.10"]["p"]["same_series_bytes"] == 90 * K and f["ckpt.0.10"]["series"] == "ckpt.0.#"' ckpt.*
check 'f["ckpt.1.1"]["p"]["other_ranks_bytes"] == 20 * K and f["ckpt.1.1"]["p"]["new_bytes"] == 80 * K' ckpt.*
check 't["series"] == 3 and p["other_ranks_bytes"] == 40 * K and p["same_series_bytes"] == 6 * 90 * K' ckpt.*
check 'p["other_files_bytes"] == 0 and p["new_bytes"] == 320 * K' ckpt.*
cp ckpt.2.10 other
check 'f["other"]["p"]["other_files_bytes"] == 100 * K' ckpt.* other
check 'f["other"]["c"]["new_bytes"] == 0' ckpt.* other

# --- owners who share nothing with each other ---
if [ "$(id -u)" = 0 ]; then
	cp other hers
	chown 12345:100 hers
	cp other theirs
	chown 0:100 theirs
	check 'j["dedup"] == "global" and p["new_bytes"] == 100 * K and "dedup" not in j["recommended"]["options"]' other hers theirs
	check 'j["dedup"] == "user" and p["new_bytes"] == 200 * K and f["hers"]["p"]["other_files_bytes"] == 0 and f["theirs"]["p"]["other_files_bytes"] == 100 * K' \
		--dedup user other hers theirs
	check 'p["new_bytes"] == 200 * K and f["theirs"]["c"]["other_files_bytes"] + f["hers"]["c"]["other_files_bytes"] == 100 * K' --dedup group other hers theirs
	check 'j["recommended"]["options"].endswith(",dedup=group")' --dedup group other hers
fi

# Shifted by a few bytes, in the middle of a file: new to pages, not to chunks cut by content.
make <<'EOT'
import random
b = random.Random(7).randbytes(8 << 20)
open("shift.1", "wb").write(b)
open("shift.2", "wb").write(b[:4000000] + b"seven b" + b[4000000:])
EOT
check 'f["shift.2"]["p"]["new_bytes"] > 4 << 20 and f["shift.2"]["c"]["new_bytes"] < 65536' shift.*
check 'j["recommended"]["options"] == "chunking=cdc,compress=none"' shift.*
check 'j["recommended"]["options"] == "chunking=cdc,cdc=1024:8192:65536,compress=none"' --min 1K --avg 8K --max 64K shift.*
check 'j["recommended"]["expected_bytes"] == c["new_bytes"]' shift.*
check 'j["recommended"]["options"] == "chunking=page,compress=none"' shift.1

# Text shrinks; noise does not.
seq 300000 >text
check 'p["new_zstd_bytes"] < p["new_bytes"] / 2 and "compress=zstd:3" in j["recommended"]["options"]' text
check 'p["new_lz4_bytes"] == p["new_zstd_bytes"] == p["new_bytes"]' shift.1

# Holes are not read, and count as zeros do.
truncate -s 3G sparse
dd if=shift.1 of=sparse bs=1000 seek=5555 count=2000 conv=notrunc status=none
dd if=shift.1 of=sparse bs=1M seek=2000 count=1 conv=notrunc status=none
check 't["size_bytes"] == c["sum"] == p["sum"] == 3 << 30 and t["hole_bytes"] > (3 << 30) - (4 << 20)' sparse
truncate -s 64M sparse-too
dd if=shift.1 of=sparse-too bs=1000 seek=5555 count=2000 conv=notrunc status=none
cp --sparse=never sparse-too full
check 'f["full"]["hole_bytes"] == 0' full
check 'f["full"]["zero_bytes"] == f["sparse-too"]["zero_bytes"] > 0' full sparse-too
check 'all(f["sparse-too"][x]["other_files_bytes"] == f["full"][x]["new_bytes"] for x in "pc")' full sparse-too
check '[f["sparse-too"][x]["new_bytes"] for x in "pc"] == [0, 0]' full sparse-too

# Nothing, a directory with links, names that are hard to write.
: >empty
check 't["size_bytes"] == 0 and p["sum"] == 0 and j["recommended"]["expected_bytes"] == 0' empty
mkdir -p tree/a/b
cp pages "tree/a/b/two
lines \"quoted\""
cp pages $'tree/a/\xff\xfe'
ln pages tree/hard
ln -s "$PWD/pages" tree/soft
mkfifo tree/fifo
check 't["files"] == 3 and p["new_bytes"] == 101 * K' tree
check 'set(f) == {"\u00ff\u00fe", "two\nlines \"quoted\"", "hard"}' tree
check 't["files"] == 3' tree pages tree/hard
exits 0 "$analyze" tree
tells '3 files in 3 series'
tells 'Left out: 2 that are neither'
ln -s tree link
check 't["files"] == 3' link
exits 0 "$analyze" --page 64K ckpt.*
tells 'page=64K'
tells 'in ranks'
tells 'ranks together'
tells '^Recommended: -o chunking=page,page=64K\|^Recommended: -o chunking=page,compress=none'
says_not 'ESTIMATES'
check 'len(t["by_chunking"]) == 3 and t["by_chunking"][1]["page_bytes"] == 65536' --page 64K ckpt.*
check 'c["avg_bytes"] == 8192 and 900 < c["chunks"] < 1150' --min 1K --avg 8K --max 64K shift.1 --json -q

# More than fits in memory: estimates, that say so.
make <<'EOT'
import random
r = random.Random(5)
for step in range(4):
    if step == 0:
        pages = [r.randbytes(4096) for i in range(6000)]
    for i in r.sample(range(6000), 600):
        pages[i] = r.randbytes(4096)
    popular = r.randbytes(4096) * 500
    open(f"big.{step}", "wb").write(b"".join(pages) + popular)
EOT
exits 0 "$analyze" --json big.*
cp "$WORK/out" "$WORK/exact"
exits 0 "$analyze" --json --memory 64K big.*
"$PYTHON" - "$WORK/exact" "$WORK/out" <<'EOT' || fail "estimates are too far off"
import json, sys
exact, sampled = (json.load(open(p)) for p in sys.argv[1:])
assert exact["exact"] and not sampled["exact"]
for a, b in zip(exact["total"]["by_chunking"], sampled["total"]["by_chunking"]):
    assert b["sampling_rate"] in (1/2, 1/4, 1/8) and not b["exact"]
    assert (a["chunks"], a["zero_bytes"]) == (b["chunks"], b["zero_bytes"])
    for key in ("new_bytes", "new_lz4_bytes", "new_zstd_bytes"):
        print(a["chunking"], key, a[key], b[key], f"{b[key] / a[key] - 1:+.2%}")
        assert abs(b[key] / a[key] - 1) < 0.05
EOT
exits 0 "$analyze" --memory 64K big.*
tells 'ESTIMATES'
tells '1 of [248] is kept'

# What cannot be read is told, the rest is looked at.
code=2 check 't["files"] == 1 and p["new_bytes"] == 101 * K' pages missing
says 'missing: .*No such file'
exits 2 "$analyze" tree/fifo
says 'neither a file nor a directory'
exits 2 "$analyze" missing
[ ! -s "$WORK/out" ] || fail "figures of nothing"
if [ "$(id -u)" = 0 ]; then
	cp pages secret
	chmod 600 secret
	chmod 755 "$data"
	exits 2 as_nobody "$analyze" --json pages secret
	says 'secret: cannot be opened: Permission denied'
	tells '"error":"Permission denied"'
	tells '"complete":false'
fi
exits 1 "$analyze"
says 'must be given'
exits 1 "$analyze" --dedup nobody pages
says 'must be global, group or user'
exits 1 "$analyze" --page 5000 pages
says 'power of two'
exits 1 "$analyze" --page huge pages
says 'not a size'
exits 1 "$analyze" --min 4K --avg 4K pages
says 'min 4096 --avg 4096 .*2 min <= avg'
exits 1 "$analyze" --max 1M pages
says 'max <= 64K'
mkdir nothing
exits 0 "$analyze" nothing
says 'no files'
exits 1 "$analyze" --memory 1K pages
says 'at least'
exits 1 "$analyze" --no-such-option pages
exits 0 "$analyze" --help
tells '^Usage: ckptfs-analyze'
exits 0 "$analyze" --version
tells '^ckptfs-analyze [0-9]'

# Interrupted, it ends with what it has.
seq 15000000 >long
exits 130 timeout --preserve-status -s INT 0.1 "$analyze" --json long
"$PYTHON" -c '
import json, sys
j = json.load(open(sys.argv[1]))
assert not j["complete"] and j["total"]["size_bytes"] < int(sys.argv[2])' "$WORK/out" "$(stat -c %s long)" ||
	fail "what was interrupted is said to be complete"
rm long

# A mount stores what was predicted, byte for byte.
predicts() { # MOUNT-OPTION ANALYZE-ARGUMENT...: of all there is
	local option=$1 want stored
	shift
	exits 0 "$analyze" --json "$@" pages ckpt.* shift.* sparse sparse-too full text empty other tree
	want=$("$PYTHON" -c 'import json, sys
t = json.load(open(sys.argv[1]))["total"]
print(next(x for x in t["by_chunking"] if x.get("page_bytes") == int(sys.argv[2]))["new_bytes"])' \
		"$WORK/out" "${option#page=}")
	fs_mount "$option"
	cp --sparse=always pages ckpt.* shift.* sparse sparse-too full text empty other "$MNT"
	cp -r tree/a "$MNT/a"
	sync "$MNT"/*
	sync -f "$MNT/text"
	find "$MNT/a" -type f -exec sync {} +
	stored=$(figure stored_bytes)
	[ "$stored" = "$want" ] || fail "$option: $want bytes were predicted, $stored are stored"
	echo "ok $option stores the predicted $want bytes"
	fs_umount
	rm -r "$STORE"
}
if ! plain; then
	predicts page=4096
	predicts page=65536 --page 64K
fi
