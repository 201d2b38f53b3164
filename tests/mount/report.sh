#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-stat --html: a page of its own that any name leaves well-formed, that carries its readings along, and that takes no
# other file's place.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

stat=$CKPTFS_BUILD/tools/ckptfs-stat
page=$WORK/report.html

# An empty mount has a page too.
fs_mount
exits 0 "$stat" --html "$WORK/empty.html" "$MNT"
grep -q 'There are no files' "$WORK/empty.html" || fail "no word of an empty mount"

# A series, copies, a sparse file, hard links, a scattered file, and names that want to be more than names.
"$PYTHON" - "$MNT" <<'PY'
import os, random, sys
mnt = os.fsencode(sys.argv[1])
rnd = random.Random(1)
state = bytearray(rnd.randbytes(4 << 20))
for step in range(6):
    for _ in range(20):
        at = rnd.randrange(len(state) >> 12) << 12
        state[at:at + 4096] = rnd.randbytes(4096)
    os.makedirs(mnt + b"/run/step%d" % step, exist_ok=True)
    for rank in range(2):
        name = mnt + b"/run/step%d/rank%d" % (step, rank)
        with open(name, "wb") as f:
            f.write(state)
        os.utime(name, (1_700_000_000 + 60 * step,) * 2)
hostile = [b"<script>alert(1)</script>"[:20], b"<img src=x onerror=alert(1)>", b'"><b>', b"'&amp;'", b"</bdi><h1>big", b"new\nline",
           b"\xff\xfe not utf8", "\u202egnp.exe".encode(), b"\x1b[31mred", b"-->", b"]]>", b"</title><script>", b"ends with \xc3"]
for name in hostile:
    name = name.replace(b"/", b"_")
    os.makedirs(mnt + b"/" + name, exist_ok=True)
    with open(mnt + b"/" + name + b"/" + name, "wb") as f:
        for i in range(400):  # pages of others, here and there: scattered
            os.pwrite(f.fileno(), state[(i * 37 % 1000) * 4096:][:4096], i * 4096)
with open(mnt + b"/sparse", "wb") as f:
    f.truncate(1 << 40)
    f.write(b"head")
os.utime(mnt + b"/sparse", (-1000, -1000))
os.link(mnt + b"/run/step0/rank0", mnt + b"/link")
os.symlink(b"/nowhere", mnt + b"/dangling")
PY
sync "$MNT/sparse"
exits 0 "$stat" --html "$page" "$MNT"
says_nothing "the page was written"
grep -q 'not known yet: the readings of this page must be an hour apart' "$page" || fail "a rate of one reading"
grep -q 'This is the first reading' "$page" || fail "the first page is not told to be the first"
cp -r "$MNT/run" "$MNT/run2"
sleep 1.1
exits 0 "$stat" --html "$page" "$MNT/"
! grep -q 'This is the first reading' "$page" || fail "the second page has forgotten the first"
[ "$(stat -c %a "$page")" = 644 ] || fail "mode $(stat -c %a "$page")"
[ "$(ls "$WORK" | grep -c '^report.html')" = 1 ] || fail "left behind: $(ls "$WORK")"

"$PYTHON" - "$page" "$WORK/empty.html" <<'PY'
import html.parser, re, sys

ALLOWED = set("""html head meta title style body header main footer section h1 h2 h3 p ul li b span strong code bdi time table thead
tbody tr th td figure figcaption details summary svg path rect circle text div script""".split())

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.text, self.ids, self.names = [], [], [], []
    def handle_starttag(self, tag, attrs):
        assert tag in ALLOWED, tag
        attrs = dict(attrs)
        for k, v in attrs.items():
            assert not k.startswith("on") and k not in ("src", "href", "xlink:href", "style", "srcset", "action"), (tag, k)
            assert not re.search(r"nan|inf(?!o)", v or "") or tag == "meta", (tag, k, v)
        if tag == "script":
            assert attrs == {"type": "text/plain", "id": "ckptfs-record-1"}, attrs
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag == "svg":
            assert attrs.get("role") == "img" or attrs.get("aria-hidden") == "true", attrs
        if tag == "bdi":
            self.names.append("")
        if tag != "meta":
            self.open.append(tag)
    def handle_startendtag(self, tag, attrs):
        assert tag in ("path", "rect", "circle"), tag
        self.handle_starttag(tag, attrs)
        self.open.pop()
    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()
    def handle_data(self, data):
        self.text.append(data)
        if "bdi" in self.open:
            self.names[-1] += data
    def handle_comment(self, data):
        raise AssertionError("a comment: " + data)

for path in sys.argv[1:]:
    source = open(path, encoding="utf-8").read()  # strict
    assert not re.search(r"https?:|url\(|@import|//", source.split("</style>")[0]), "asks for something from elsewhere"
    assert "http" not in source.split("</style>")[1], "asks for something from elsewhere"
    p = Page()
    p.feed(source)
    p.close()
    assert p.open == [], p.open
    assert len(p.ids) == len(set(p.ids)), p.ids
    headings = re.findall(r'<h2 id="(.*?)">', source)
    assert headings[:3] == ["health", "sealed", "delete"], headings
    for wanted in ("Health", "Size and deduplication over time", "Files by time of writing", "Where the savings come from", "Fragmentation",
                   "Space by directory"):
        assert wanted in p.text, wanted
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", source), "control characters"
    if path == sys.argv[1]:
        names, text = p.names, "".join(p.text)

assert "garbage at" not in text and "in files, without holes" in text
assert "<img src=x onerror=alert(1)>" in names and '"><b>' in names and "'&amp;'" in names, names
assert "\ufffd\ufffd not utf8" in names and "new\ufffdline" in names and "ends with \ufffd" in names, names
assert "run" in names and "run2" in names, names
lines = re.search(r'id="ckptfs-record-1">\n(.*?)</script>', open(sys.argv[1]).read(), re.S)[1].splitlines()
assert len(lines) == 3 and re.fullmatch("[0-9a-f]{32}", lines[0]), lines
a, b = ([int(n) for n in l.split()] for l in lines[1:])
assert len(a) == len(b) == 9 and b[1] - a[1] == 12 * (4 << 20) and b[2] == a[2] and b[5] == a[5], (a, b)
assert b[8] == a[8], "a copy is not new"
PY
echo "ok a page that is only a page"

# Health: when the disk will be full, of a reading that is made a day older and smaller; a scrub; damage.
health() { # WORD SUBJECT REGEX: a finding of the page
	"$stat" --html "$page" "$MNT" || fail "no page"
	"$PYTHON" - "$page" "$@" <<-'PY' || fail "no such finding: $*"
	import html, re, sys
	source = open(sys.argv[1], encoding="utf-8").read().split('id="health"')[1].split("</section>")[0]
	word, subject, text = sys.argv[2:]
	rows = re.findall(r'<tr><td><span class="badge (\w+)">.*?</span></td><th scope="row">(.*?)</th><td>(.*?)</td></tr>', source, re.S)
	rows = [(w, s, html.unescape(re.sub("<.*?>", "", t))) for w, s, t in rows]
	assert ("All is well" in source) == all(w == "ok" for w, _, _ in rows), source
	assert [1 for w, s, t in rows if w == word and s == subject and re.search(text, t)], rows
	PY
}
older() { # DISK: leave one reading, which is a day older; DISK: same, or its bytes on disk
	"$PYTHON" - "$page" "$1" <<-'PY'
	import re, sys
	source = open(sys.argv[1], encoding="utf-8").read()
	head, lines, tail = re.search(r'(.*id="ckptfs-record-1">\n)(.*?)(</script>.*)', source, re.S).groups()
	store, *_, last = lines.splitlines()
	n = last.split()
	n[0] = str(int(n[0]) - 86400)
	n[4] = n[4] if sys.argv[2] == "same" else sys.argv[2]
	open(sys.argv[1], "w", encoding="utf-8").write(head + store + "\n" + " ".join(n) + "\n" + tail)
	PY
}
health warning scrub 'never been searched for damage.*ckptfs scrub '
exits 0 "$CKPTFS_BUILD/tools/ckptfs-scrub" "$MNT"
health ok scrub 'the last one was 0 days ago'
health ok damage 'none known'
health ok space ' available'
older same
health ok 'disk full' 'not at the present rate: the store has not grown in 24 hours'
fs_umount
big=$STORE
memory=$WORK/memory
mkdir "$memory"
mount -t tmpfs -o size=128m tmpfs "$memory"
STORE=$memory/store
page=$WORK/small.html
fs_mount
fuller() { [ "$(df --output=avail -B 1M "$MNT" | tail -n 1)" -lt "$1" ]; } # MIB; the daemon asks its disk once a second
noise 7 24 >"$MNT/data"
sync "$MNT/data"
await fuller 110
health ok 'disk full' 'not known yet'
older 0
health warning 'disk full' '^in [2-6]\.[0-9] days at the present rate, on 20[0-9-]*: [0-9.]* MiB a day, the mean of the last 24 hours.*ckptfs gc --delete'
noise 8 60 >"$MNT/more"
sync "$MNT/more"
await fuller 60
older 0
health critical 'disk full' '^in [0-9.]* hours at the present rate, on 20[0-9-]* at .*ckptfs gc --delete'
strike "$MNT/more"
drop_caches
! cat "$MNT/more" >"$WORK/read" 2>&1 || fail "damage was not noticed"
health critical damage '1 chunk is damaged'
fs_umount
umount "$memory"
STORE=$big
fs_mount
page=$WORK/report.html
echo "ok health"

# Sealed checkpoints, newest first, with the figures of the commands; a name cannot leave its cell. What to delete first:
# neither the newest of them, nor what has copies (run, run2), nor a directory of sealed ones.
mkdir -p "$MNT/train/step1" "$MNT/train/<td>2"
noise 11 4 >"$MNT/train/step1/state"
"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/train/step1"
{ noise 11 3; noise 12 2; } >"$MNT/train/<td>2/state"
"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/train/<td>2"
mkdir "$MNT/<big>"
noise 13 6 >"$MNT/<big>/file"
sync "$MNT/<big>/file"
"$stat" --html "$page" "$MNT"
"$stat" --sealed --json "$MNT" >"$WORK/sealed"
"$stat" --if-deleted --json "$MNT/train/step1" >"$WORK/step1"
"$stat" --if-deleted --json "$MNT/train/step1" "$MNT/<big>" >"$WORK/both"
"$PYTHON" - "$page" "$WORK/sealed" "$WORK/step1" "$WORK/both" <<'PY'
import html, json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
def rows_of(heading):
    return [[html.unescape(re.sub("<.*?>", "", c)) for c in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row)]
            for row in re.findall(r"<tr>(.*?)</tr>", section(heading).split("<tbody>")[1], re.S)]
def section(heading):
    return page.split(f'id="{heading}"')[1].split("</section>")[0]
def size(s):
    number, unit = s.split()
    return float(number) * 1024 ** ["B", "KiB", "MiB"].index(unit)
rows = rows_of("sealed")
MIB = 1 << 20
assert [r[0] for r in rows] == ["train/<td>2", "train/step1"], rows
assert [r[2] for r in rows] == ["5 MiB", "4 MiB"] and [r[3] for r in rows] == ["2 MiB", "4 MiB"], rows
assert [r[4] for r in rows] == ["3 MiB", "3 MiB"] and [r[5] for r in rows] == ["as sealed"] * 2, rows
assert all(re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", r[1]) for r in rows), rows
sealed = json.load(open(sys.argv[2]))["sealed"]
assert [s["new_bytes"] for s in sealed] == [4 * MIB, 2 * MIB], sealed
growth = section("time").split("Growth by sealed checkpoints</h3>")[1]
assert growth.count('<circle class="dot s0"') == growth.count('<circle class="dot s1"') == 2, growth
tops = [float(y) for y in re.findall(r'<circle class="dot s[01]" cx="[0-9.]*" cy="([0-9.]*)"', growth)]  # 4, 9, 4 and 6 MiB
assert tops[1] < tops[3] < tops[0] == tops[2], tops
assert abs((tops[0] - tops[1]) / (tops[2] - tops[3]) - 5 / 2) < 0.02, tops
rows = rows_of("files")
assert len(rows) == 12 and rows[0][0] == "<big>/file", rows
assert rows[0][2] == rows[0][4] == "6 MiB" and rows[0][5] == "0.0 %" and re.fullmatch(r"[0-9.]+ %", rows[0][3]), rows
assert rows[1][0] == "train/<td>2/state" and rows[1][2] == rows[1][4] == "5 MiB" and rows[1][5] == "60.0 %", rows
rows, (step1, both) = rows_of("delete"), [json.load(open(f)) for f in sys.argv[3:]]
assert [r[:2] for r in rows] == [["<big>", "directory"], ["train/step1", "sealed"]], rows
assert [r[4] for r in rows] == ["6 MiB", "1 MiB"] and step1["exclusive_bytes"] == MIB, rows
assert abs(size(rows[1][3]) / step1["exclusive_stored_bytes"] - 1) < 0.01, (rows, step1)
together = re.search("would free <strong>(.*?)</strong>", section("delete"))[1]
assert abs(size(together) / both["exclusive_stored_bytes"] - 1) < 0.01, (together, both)
PY
echo "ok sealed checkpoints"

# What stands in its way is left alone.
echo mine >"$WORK/notes.html"
exits 1 "$stat" --html "$WORK/notes.html" "$MNT"
says 'not a report of ckptfs-stat; not overwritten'
[ "$(cat "$WORK/notes.html")" = mine ] || fail "somebody's file was overwritten"
exits 1 "$stat" --html "$page" "$MNT/run"
says 'give the mountpoint'
exits 1 "$stat" --html "$page" "$MNT" "$MNT"
exits 1 "$stat" --html "$page" --json "$MNT"
exits 1 "$stat" --html "$page" --watch "$MNT"
exits 2 "$stat" --html "$page" "$WORK"
says 'not on a ckptfs'
exits 2 "$stat" --html "$WORK/no/such/place.html" "$MNT"
says 'No such file'
if [ -e /dev/full ]; then
	small=$WORK/small
	mkdir "$small"
	mount -t tmpfs -o size=8k tmpfs "$small"
	full() {
		local code=0 left
		"$stat" --html "$small/page.html" "$MNT" >"$WORK/out" 2>"$WORK/said" || code=$?
		left=$(ls -s "$small" | tail -n +2)
		[ "$code" = 2 ] && [ -z "$left" ] || fail "a full disk: exit code $code, left: $left"
		says 'cannot be written: No space left'
	}
	full
	umount "$small"
	# The last but one block does not fit. Names of directories make the page so long that the last one has 8 bytes, so
	# that nothing is left to be written when the file is flushed at the end.
	lengthen() { # CHARACTERS: rename the 20 directories
		local i n name left=$1
		for i in $(seq -w 20); do
			n=$((left < 240 ? left : 240))
			left=$((left - n))
			name=$i$(printf '%0*d' $((n + 1)) 0)
			[ -e "$MNT/$name" ] || mv "$MNT/$i"* "$MNT/$name"
		done
	}
	"$CKPTFS_BUILD/tools/ckptfs-seal" --unseal --quiet "$MNT/train/"*
	rm -r "$MNT"/*
	for i in $(seq -w 20); do
		mkdir "$MNT/${i}0"
		touch "$MNT/${i}0/file"
	done
	"$stat" --html "$WORK/long.html" "$MNT"
	lengthen $(((4096 + 8 - $(stat -c %s "$WORK/long.html") % 4096) % 4096))
	rm "$WORK/long.html"
	"$stat" --html "$WORK/long.html" "$MNT"
	over=$(($(stat -c %s "$WORK/long.html") % 4096))
	[ $over -gt 2 ] && [ $over -lt 14 ] || fail "$over bytes in the last block instead of 8"
	mount -t tmpfs -o size=$(($(stat -c %s "$WORK/long.html") / 4096 - 1 << 2))k tmpfs "$small"
	full
	umount "$small"
fi
sums=$(sha256sum <"$page")
STORE=$WORK/other
fs_umount
fs_mount
exits 1 "$stat" --html "$page" "$MNT"
says 'a report of another store'
[ "$(sha256sum <"$page")" = "$sums" ] || fail "another store's report was overwritten"
fs_umount
echo "ok nothing is overwritten"
