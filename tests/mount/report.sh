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
    for wanted in ("Size and deduplication over time", "Files by time of writing", "Where the savings come from", "Fragmentation",
                   "Space by directory"):
        assert wanted in p.text, wanted
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", source), "control characters"
    if path == sys.argv[1]:
        names, text = p.names, "".join(p.text)

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
	code=0
	"$stat" --html "$small/page.html" "$MNT" >"$WORK/out" 2>"$WORK/said" || code=$?
	left=$(ls "$small")
	umount "$small"
	[ "$code" = 2 ] && [ -z "$left" ] || fail "a full disk: exit code $code, left: $left"
	says 'cannot be written: No space left'
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
