#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The page of ckptfs-stat --html in a real browser that has no network: it is drawn, in light and in dark, with findings in
# their colours.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
browser=
for b in chromium chromium-browser google-chrome; do
	[ -n "$browser" ] || ! command -v "$b" >/dev/null || browser=$b
done
if [ -z "$browser" ]; then
	! apt-cache show chromium >/dev/null 2>&1 || fail "chromium is not installed: .ci/install test does that"
	skip "chromium is not installed, and this release has none"
fi

stat=$CKPTFS_BUILD/tools/ckptfs-stat
page=$WORK/report.html
shots=${CKPTFS_SHOTS:-$WORK} # to look at them afterwards
fs_mount
head -c 16M /dev/urandom >"$WORK/state"
for step in 1 2 3 4 5 6; do
	mkdir -p "$MNT/training/step_$step" "$MNT/simulation"
	dd if=/dev/urandom of="$WORK/state" bs=4K seek=$((step * 400)) count=$((step * 60)) conv=notrunc status=none
	cp "$WORK/state" "$MNT/training/step_$step/model.pt"
	cp "$WORK/state" "$MNT/training/step_$step/<b>backup<\b>.pt"
	head -c $((step << 20)) "$WORK/state" >"$MNT/simulation/restart.$step"
	"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/training/step_$step"
	sync "$MNT/simulation/restart.$step"
	"$stat" --html "$page" "$MNT"
	sleep 1.5
done

shoot() { # FILE ARGUMENT...
	local file=$1
	shift
	HOME=$WORK timeout 600 unshare -n "$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
		--user-data-dir="$WORK/profile" --window-size=1000,4600 "$@" --screenshot="$file" "file://$page" >"$WORK/browser.log" 2>&1 ||
		{ tail "$WORK/browser.log"; fail "$browser does not draw the page"; }
}
[ "$shots" = "$WORK" ] || cp "$page" "$shots/"
shoot "$shots/light.png"
shoot "$shots/dark.png" --blink-settings=preferredColorScheme=0

# Not blank, and dark where it is to be dark.
"$PYTHON" - "$shots/light.png" "$shots/dark.png" <<'PY'
import struct, sys, zlib

def pixels(path):
    data, at, idat = open(path, "rb").read(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
        elif kind == b"IDAT":
            idat += body
        at += 12 + size
    n = {2: 3, 6: 4}[colour]
    assert depth == 8
    raw, stride, before, rows = zlib.decompress(idat), width * n, bytearray(width * n), []
    for y in range(height):
        filt, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            left = line[i - n] if i >= n else 0
            up, corner = before[i], before[i - n] if i >= n else 0
            if filt == 1:
                line[i] = line[i] + left & 255
            elif filt == 2:
                line[i] = line[i] + up & 255
            elif filt == 3:
                line[i] = line[i] + (left + up >> 1) & 255
            elif filt == 4:
                p = left + up - corner
                line[i] = line[i] + min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))[2] & 255
        rows.append([bytes(line[i:i + 3]) for i in range(0, stride, n)])
        before = line
    return rows

for path, dark in zip(sys.argv[1:], (False, True)):
    rows = pixels(path)
    corner = rows[2][2]
    assert (sum(corner) < 200) == dark, (path, corner)
    counts = {}
    for row in rows[::2]:
        for p in row[::2]:
            counts[p] = counts.get(p, 0) + 1
    assert len(counts) > 50, f"{path}: {len(counts)} colours"
    for what, wanted in (("ok", (0x17, 0x73, 0x4b) if not dark else (0x5f, 0xd3, 0xa0)),
                         ("warning", (0x8a, 0x5a, 0x00) if not dark else (0xf0, 0xb9, 0x4a))):
        assert counts.get(bytes(wanted), 0) > 20, f"{path}: no badge {what} in its colour"
    blue = sum(n for p, n in counts.items() if p[2] > p[0] + 60)
    assert blue > 500, f"{path}: the charts are missing"
PY
echo "ok drawn"
fs_umount
