#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-analyze: what it tells of data whose duplicates are known, which options it takes, and what it does with files that it cannot read.
. "$(dirname "$0")/../mount/lib.sh"

analyze=$CKPTFS_BUILD/tools/ckptfs-analyze
data=$WORK/data
mkdir "$data" "$WORK/scratch"
cd "$data"
export TMPDIR=$WORK/scratch

# check EXPRESSION [ARGUMENT...]: run on the arguments, it is true of the result: j all, t total, f files by name; p and
# c are what becomes of them in pages and by content, without compression
check() {
	local expression=$1
	shift
	exits "${code:-0}" "$analyze" --no-compact --compress none --json "$@"
	"$PYTHON" - "$expression" "$WORK/out" <<-'EOT' || fail "analyze $*: not true: $expression"
	import json, os, sys
	j = json.load(open(sys.argv[2]))
	stores = j["measured"]["stores"]
	def add(o, figures):
	    for figure, store in zip(figures, stores):
	        o[store["chunking"][0]] = figure
	        figure["sum"] = sum(figure[n + "_bytes"] for n in ("previous", "known", "new", "zero"))
	t = j["total"]
	add(t, stores)
	for o in j["files"]:
	    add(o, o["stores"])
	f = {os.path.basename(x["path"]): x for x in j["files"]}
	p, c, K = t.get("p"), t.get("c"), 4096
	if not eval(sys.argv[1]):
	    print(json.dumps(j, indent=1), file=sys.stderr)
	    sys.exit(1)
	EOT
	echo "ok $expression"
}
make() { "$PYTHON" - "$@"; }
pages_only="--chunking page"

# Pages that are known: 100 of a kind, 60 of them twice, 40 of zeros.
make <<'EOT'
import random
r = random.Random(1)
pages = [r.randbytes(4096) for i in range(100)]
open("pages", "wb").write(b"".join(pages) + bytes(40 * 4096) + b"".join(pages[:60]))
EOT
check 'p["new_bytes"] == 100 * K and p["known_bytes"] == 60 * K and p["zero_bytes"] == 40 * K' pages
check 't["size_bytes"] == 200 * K == p["sum"] == c["sum"] and t["files"] == 1' pages
check 'j["schema_version"] == 1 and j["complete"] and len(stores) == 3 and "compacted_bytes" not in stores[0]' pages

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
check '[x["path"] for x in j["files"]] == [f"ckpt.{r}.{s}" for r in range(3) for s in (1, 2, 10)]' $pages_only ckpt.*
check 'f["ckpt.0.1"]["p"]["new_bytes"] == 100 * K and f["ckpt.0.2"]["p"]["new_bytes"] == 10 * K' $pages_only ckpt.*
check 'f["ckpt.0.10"]["p"]["previous_bytes"] == 90 * K and f["ckpt.0.10"]["series"] == "ckpt.0.#"' $pages_only ckpt.*
check 'f["ckpt.1.1"]["p"]["known_bytes"] == 20 * K and f["ckpt.1.1"]["p"]["new_bytes"] == 80 * K' $pages_only ckpt.*
check 't["series"] == 3 and p["previous_bytes"] == 6 * 90 * K and p["new_bytes"] == 320 * K' $pages_only ckpt.*
cp ckpt.2.10 other
check 'f["other"]["p"]["known_bytes"] == 100 * K and f["other"]["c"]["new_bytes"] == 0' ckpt.* other

# --- owners who share nothing with each other ---
if [ "$(id -u)" = 0 ]; then
	cp other hers
	chown 12345:100 hers
	cp other theirs
	chown 0:100 theirs
	check 'j["dedup"] == "global" and p["new_bytes"] == 100 * K and "dedup" not in j["recommended"]["options"]' $pages_only other hers theirs
	check 'j["dedup"] == "user" and p["new_bytes"] == 200 * K and f["theirs"]["p"]["known_bytes"] == 100 * K' $pages_only --dedup user other hers theirs
	check 'p["new_bytes"] == 200 * K and j["recommended"]["options"] == "chunking=page,compress=none,dedup=group"' $pages_only --dedup group other hers theirs
fi

# Shifted by a few bytes, in the middle of a file: new to pages, not to chunks cut by content.
make <<'EOT'
import random
b = random.Random(7).randbytes(8 << 20)
open("shift.1", "wb").write(b)
open("shift.2", "wb").write(b[:4000000] + b"seven b" + b[4000000:])
EOT
check 'f["shift.2"]["p"]["new_bytes"] > 4 << 20 and f["shift.2"]["c"]["new_bytes"] < 65536 and f["shift.2"]["a"]["new_bytes"] < 65536' shift.*
check 'j["recommended"]["options"].split(",")[0] in ("chunking=cdc", "chunking=auto")' shift.*
check 'j["recommended"]["options"] == "chunking=cdc,cdc=1024:8192:65536,compress=none"' --chunking cdc --min 1K --avg 8K --max 64K shift.*
check 'j["recommended"]["expected_bytes"] == c["store_bytes"] < 10 << 20' --chunking cdc shift.*
check 'j["recommended"]["options"] == "chunking=page,compress=none"' shift.1
check 'j["recommended"]["options"] == "chunking=page,page=64K,compress=none" and f["pages"]["p"]["new_bytes"] == 12 * 65536' --chunking page --page 64K pages

# Text shrinks; noise does not.
seq 300000 >text
exits 0 "$analyze" --no-compact --json text
tells '"options":"chunking=[a-z]*,compress=zstd","compact":false'
exits 0 "$analyze" --no-compact --json shift.1
tells '"recommended":{"options":"chunking=page,compress=none","compact":false'
check '[s["compress"] for s in stores] == ["zstd:9"]' --chunking page --compress zstd:9 text

# Holes are not read, and count as zeros do.
truncate -s 3G sparse
dd if=shift.1 of=sparse bs=1000 seek=5555 count=2000 conv=notrunc status=none
dd if=shift.1 of=sparse bs=1M seek=2000 count=1 conv=notrunc status=none
check 't["size_bytes"] == c["sum"] == p["sum"] == 3 << 30 and t["hole_bytes"] > (3 << 30) - (4 << 20)' sparse
truncate -s 64M sparse-too
dd if=shift.1 of=sparse-too bs=1000 seek=5555 count=2000 conv=notrunc status=none
cp --sparse=never sparse-too full
check 'f["full"]["hole_bytes"] == 0 and f["full"]["p"]["zero_bytes"] == f["sparse-too"]["p"]["zero_bytes"] > 0' full sparse-too
check 'f["full"]["p"]["new_bytes"] == 0 or f["sparse-too"]["p"]["new_bytes"] == 0' full sparse-too

# Nothing, a directory with links, names that are hard to write.
: >empty
check 't["size_bytes"] == 0 and p["sum"] == 0 and j["recommended"]["expected_bytes"] == p["store_bytes"]' empty
mkdir -p tree/a/b
cp pages "tree/a/b/two
lines \"quoted\""
cp pages $'tree/a/\xff\xfe'
ln pages tree/hard
ln -s "$PWD/pages" tree/soft
mkfifo tree/fifo
check 't["files"] == 3 and p["new_bytes"] == 100 * K' $pages_only tree
check 'set(f) == {"\u00ff\u00fe", "two\nlines \"quoted\"", "hard"}' $pages_only tree
check 't["files"] == 3' $pages_only tree pages tree/hard
exits 0 "$analyze" --no-compact $pages_only tree
tells '3 files in 3 series'
tells 'Skipped: 2 names, neither file nor directory'
# The summary comes first, small files are one line, large ones and those that cannot be read have their own.
head -n 1 "$WORK/out" | grep -q '^3 files in 3 series' || fail_showing "the summary does not come first"
mkdir few
cp pages few/large
head -c 5000 pages >few/small.1
head -c 7000 pages >few/small.2
exits 0 "$analyze" few
tells '^few/large '
tells '^2 below 64 KiB  *11.7 KiB'
tells '^auto  *zstd '
says_not 'few/small'
[ "$(grep -n '^Recommended' "$WORK/out" | cut -d : -f 1)" -lt "$(grep -n '^few/large' "$WORK/out" | cut -d : -f 1)" ] ||
	fail_showing "the recommendation comes after the files"
ln -s tree link
check 't["files"] == 3' $pages_only link

# What cannot be read is told, the rest is looked at.
code=2 check 't["files"] == 1 and p["new_bytes"] == 100 * K' $pages_only pages missing
says 'missing: .*No such file'
exits 2 "$analyze" tree/fifo
says 'neither a file nor a directory'
exits 2 "$analyze" missing
[ ! -s "$WORK/out" ] || fail "figures of nothing"
if [ "$(id -u)" = 0 ]; then
	cp pages secret
	chmod 600 secret
	chmod 755 "$data"
	chmod 777 "$TMPDIR"
	exits 2 as_nobody "$analyze" --json pages secret
	says 'secret: cannot open: Permission denied'
	tells '"error":"Permission denied"'
	tells '"complete":false'
fi
for bad in '--dedup nobody' '--page 5000' '--page huge' '--min 4K --avg 4K' '--max 1M' '--chunking some' '--compress much' '--measure 0' '--variables --no-compact' \
	'--scheme best' '--group 0' '--group x' '--chain 16' '--block 7' '--block x' '--budget 0' '--budget soon' '--no-such-option'; do
	# shellcheck disable=SC2086 # each is a word
	exits 1 "$analyze" $bad pages
	says "${bad%% *}\|not a size"
done
exits 1 "$analyze"
says 'must be given'
mkdir nothing
exits 2 "$analyze" nothing
says 'no files'
exits 0 "$analyze" --help
tells '^Usage: ckptfs-analyze'
exits 0 "$analyze" --version
tells '^ckptfs-analyze [0-9]'

# Interrupted, it ends with what it has, and leaves nothing behind.
seq 15000000 >long
"$analyze" --json long >"$WORK/out" 2>&1 &
analyzing=$!
await eval '[ -n "$(ls "$TMPDIR")" ]'
kill -HUP $analyzing
code=0
wait $analyzing || code=$?
[ $code = 130 ] || fail "a closed terminal: status $code"
[ -z "$(ls "$TMPDIR")" ] || fail "a closed terminal leaves scratch stores behind: $(ls "$TMPDIR")"
exits 130 timeout --preserve-status -s INT 0.3 "$analyze" --json long
"$PYTHON" -c '
import json, sys
j = json.load(open(sys.argv[1]))
assert not j["complete"] and len(j["measured"]["stores"]) < 6' "$WORK/out" ||
	fail "what was interrupted is said to be complete"
"$analyze" long >"$WORK/out" 2>"$WORK/said" &
pid=$! code=0
until [ -n "$(ls "$TMPDIR")" ] || ! kill -0 $pid; do sleep 0.05; done
kill -INT $pid
wait $pid || code=$?
[ $code = 130 ] || fail_showing "an interrupted analysis ends with $code"
tells '^Interrupted: the figures are of the stores completed by then'
says_not 'could not be read'
rm long
[ -z "$(ls "$TMPDIR")" ] || fail "scratch stores are left behind: $(ls "$TMPDIR")"
