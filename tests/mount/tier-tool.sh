#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-tier reads a tier without a mount: what it lists is what was sealed, and what is damaged is named.
. "$(dirname "$0")/lib.sh"
need_root
need_mount

TIER=$WORK/tier
URL=dir:$TIER
mkdir "$TIER"
FILL=$(program tier_fill)
tools=$CKPTFS_BUILD/tools

tier() { "$tools/ckptfs-tier" "$@"; }
seal() { "$tools/ckptfs-seal" --quiet "$@"; }
fill() { "$FILL" "$STORE" "$TIER" "$@" >"$WORK/filled" || fail "cannot fill the tier"; } # [PACK_BYTES]
listed() { # KEY...: of each checkpoint, a line each
	tier list --json "$URL" | "$PYTHON" -c 'import json, sys
for c in json.load(sys.stdin)["sealed"]:
    print(*(c[k] for k in sys.argv[1:]))' "$@"
}

# --- nothing in it, and what is no tier ---
exits 0 tier list "$URL"
tells 'no sealed checkpoints'
exits 2 tier list "dir:$WORK/none"
says 'No such file'
exits 1 tier list relative
says 'use dir:/path'
exits 1 tier show "$URL"
says 'show: no such action'
exits 1 tier list "$URL" more
says 'list: one URL must be given'
exits 2 tier list --tier-config "$WORK/conf" "$URL"
says 'only for object stores'
exits 1 tier list
says 'an action and the URL of a tier must be given'

# --- two checkpoints, and newer ones at their paths ---
fs_mount compress=none
mkdir -p "$MNT/run/step.1/sub" "$MNT/run/step.2" "$MNT/$(printf 'evil\033[31m\nname')"
noise one 6 >"$MNT/run/step.1/sub/0"
noise two 2 >"$MNT/run/step.2/0"
for i in 1 2 3; do echo "$i" >"$MNT/run/step.1/$i"; done
seal "$MNT/run/step.1" "$MNT/run/step.2" "$MNT/$(printf 'evil\033[31m\nname')"
exits 0 "$tools/ckptfs-seal" --list --json "$MNT"
cp "$WORK/out" "$WORK/sealed"
fs_umount
fill 1000000
exits 0 tier list "$URL"
tells '^  CHECKPOINT  *NUMBER  *SIZE  *FILES  *AGE  STORE$'
tells '^  run/step\.1 '
tells '^\* run/step\.2 '
tells 'evil\\033\[31m\\012name '
[ "$(grep -c . "$WORK/out")" = 4 ] || fail_showing "not three checkpoints"
exits 0 tier list --json "$URL"
"$PYTHON" - "$WORK" <<'PY' || fail_showing "the list is not that of the seals"
import json, sys
def read(name):
    with open(f"{sys.argv[1]}/{name}") as f:
        return json.load(f)
tier, seals = read("out"), read("sealed")
assert tier["schema_version"] == 1 and tier["tier"].startswith("dir:/") and tier["unreadable"] == []
assert len(tier["sealed"]) == len(seals["sealed"]) == 3
for a, b in zip(tier["sealed"], seals["sealed"]):
    assert b["path"] == seals["mountpoint"].rstrip("/") + "/" + a["path"], (a, b)
    for key in "sealed_ns", "inode", "files", "directories", "bytes", "root", "state", "newest":
        assert a[key] == b[key], (key, a, b)
    assert a["durable"] == "tier" and a["name"] == f"sealed/{a['store']}/{a['number']:016x}", a
assert sorted(a["number"] for a in tier["sealed"]) == [1, 2, 3]
PY
fs_mount compress=none
seal --unseal "$MNT/run/step.1"
echo changed >"$MNT/run/step.1/1"
sleep 0.01
seal "$MNT/run/step.1"
fs_umount
fill 1000000
[ "$(listed path number newest | grep 'run/')" = "$(printf 'run/step.1 %s False\nrun/step.2 %s False\nrun/step.1 4 True' \
	"$(listed path number | sed -n 's,run/step.1 ,,p' | head -n 1)" "$(listed path number | sed -n 's,run/step.2 ,,p')")" ] ||
	fail "$(listed path number newest)"

# --- damaged manifests, and other files in the directory ---
id=$(ls "$TIER/sealed")
touch "$TIER/sealed/README" "$TIER/sealed/$id/notes" "$TIER/sealed/$id/.tmp"
exits 0 tier list "$URL"
cp "$TIER/sealed/$id/0000000000000002" "$WORK/second"
flip "$TIER/sealed/$id/0000000000000002" 60
exits 3 tier list "$URL"
says "sealed/$id/0000000000000002: not listed: its manifest is damaged"
[ "$(grep -c "$id" "$WORK/out")" = 3 ] || fail_showing "not the three others"
exits 3 tier list --json "$URL"
[ "$(json unreadable <"$WORK/out")" = "[{'name': 'sealed/$id/0000000000000002', 'why': 'its manifest is damaged'}]" ] || fail_showing "unreadable"
cp "$WORK/second" "$TIER/sealed/$id/0000000000000002"
exits 0 "$tools/ckptfs" tier list "$URL"
