#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-tier reads a tier without a mount: it lists and restores what was sealed, and names what is damaged.
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

# --- an empty tier, and wrong arguments ---
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

# --- the probe ---
exits 0 tier probe "$URL"
tells '^exactly one of several concurrent requests creates an object: yes, tried 20 times$'
tells "^$URL: can be used as a tier\$"
[ -z "$(find "$TIER" -type f)" ] || fail "left over: $(find "$TIER" -type f)"
exits 0 tier probe --json "$URL"
[ "$(json usable why <"$WORK/out")" = "$(printf 'true\nnull')" ] || fail_showing "not as it must be"
if command -v setpriv >/dev/null; then
	exits 2 as_nobody "$tools/ckptfs-tier" probe --json "$URL"
	says 'Permission denied'
	[ "$(json usable <"$WORK/out")" = null ] || fail_showing "not as it must be"
fi

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
[ "$(json unreadable <"$WORK/out")" = "[{\"name\":\"sealed/$id/0000000000000002\",\"why\":\"its manifest is damaged\"}]" ] || fail_showing "unreadable"
cp "$WORK/second" "$TIER/sealed/$id/0000000000000002"
exits 0 "$tools/ckptfs" tier list "$URL"

# --- verified: all, by path and by number; chunks that are shared are read once ---
exits 0 tier verify "$URL"
[ "$(grep -c ': valid: ' "$WORK/out")" = 4 ] || fail_showing "not four are valid"
tells '^run/step.1, number 4: valid: 4 files, .* read, root [0-9a-f]*$'
first=$(listed path number | sed -n 's,run/step.1 ,,p' | head -n 1)
exits 0 tier verify --json "$URL" "$first" run/step.1
[ "$(json complete <"$WORK/out")" = true ] || fail_showing "incomplete"
"$PYTHON" - "$WORK/out" <<'PY' || fail_showing "not as it must be"
import json, sys
first, last = json.load(open(sys.argv[1]))["checkpoints"]
assert first["state"] == last["state"] == "valid" and not first["damaged"] and last["number"] == 4
assert first["read_bytes"] > 6 << 20 and last["read_bytes"] < 1 << 20, (first, last)
PY
exits 0 tier verify --quiet "$URL"
says_nothing "nothing is damaged"
exits 0 tier verify "$URL" "/run/step.2/" ".ckptfs/stores/$id/run/step.1" ".ckptfs/sealed/$id/0000000000000001"
[ "$(grep -c ': valid: ' "$WORK/out")" = 3 ] || fail_showing "not three are valid"
exits 2 tier verify "$URL" run/step.3
says 'run/step.3: no such checkpoint'
exits 2 tier verify "$URL" 17

# --- a damaged chunk: the file that has it, of each checkpoint that has it, and no other ---
place() { # SEED OFFSET: pack and offset of these bytes
	noise "$1" 6 >"$WORK/noise"
	dd if="$WORK/noise" of="$WORK/needle" bs=1 skip="$2" count=64 status=none
	"$PYTHON" - "$TIER/packs" "$WORK/needle" <<'PY'
import os, sys
needle = open(sys.argv[2], "rb").read()
for dir, _, files in os.walk(sys.argv[1]):
    for path in [os.path.join(dir, n) for n in files]:
        at = open(path, "rb").read().find(needle)
        if at >= 0:
            print(path, at)
PY
}
read -r pack at < <(place one 3000000)
cp "$pack" "$WORK/pack"
flip "$pack" "$at"
exits 3 tier verify "$URL"
object=${pack#"$TIER/"}
[ "$(grep -c "^run/step.1/sub/0: $object is damaged\$" "$WORK/out")" = 2 ] || fail_showing "the file is not named"
[ "$(grep -c '^run/step.1, number [14].*: damaged: 1 object or file$' "$WORK/out")" -ge 1 ] || fail_showing "no result"
[ "$(grep -c ': damaged: ' "$WORK/out")" = 2 ] || fail_showing "not two are damaged"
[ "$(grep -c ': valid: ' "$WORK/out")" = 2 ] || fail_showing "not two are valid"
exits 3 tier verify --quiet "$URL"
! grep -q valid "$WORK/out" || fail_showing "--quiet shows the others"
exits 0 tier verify "$URL" run/step.2

# --- a pack with damaged tables, one that ends early, and one that is missing ---
cp "$WORK/pack" "$pack"
flip "$pack" "$(($(stat -c %s "$pack") - 1000))"
exits 3 tier verify "$URL"
tells "^run/step.1: $object is damaged\$"
tells "^run/step.1/sub/0: $object is damaged\$"
cp "$WORK/pack" "$pack"
truncate -s 100000 "$pack"
exits 3 tier verify "$URL"
tells "^run/step.1: $object is damaged\$"
rm "$pack"
exits 3 tier verify --json "$URL"
"$PYTHON" - "$WORK/out" "$object" <<'PY' || fail_showing "not as it must be"
import json, sys
j = json.load(open(sys.argv[1]))
assert j["complete"]
bad = [c for c in j["checkpoints"] if c["state"] == "damaged"]
assert [c["path"] for c in bad] == ["run/step.1"] * 2 and len(j["checkpoints"]) == 4
for c in bad:
    assert {"path": None, "object": sys.argv[2], "why": "is missing"} in c["damaged"], c
    assert {"path": "sub/0", "object": sys.argv[2], "why": "is missing"} in c["damaged"], c
PY
cp "$WORK/pack" "$pack"

# --- another root, a damaged manifest, a missing key ---
manifest=$TIER/sealed/$id/0000000000000001
cp "$manifest" "$WORK/first"
"$PYTHON" - "$manifest" <<'PY'
import sys
table = []
for i in range(256):
    c = i
    for _ in range(8):
        c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    table.append(c)
def crc32c(data):
    c = 0xffffffff
    for b in data:
        c = c >> 8 ^ table[(c ^ b) & 255]
    return c ^ 0xffffffff
with open(sys.argv[1], "r+b") as f:
    head = bytearray(f.read(184))
    assert crc32c(head[:180]) == int.from_bytes(head[180:], "little")
    head[72] ^= 1 # of the root
    head[180:] = crc32c(head[:180]).to_bytes(4, "little")
    f.seek(0)
    f.write(head)
PY
exits 3 tier verify "$URL"
tells 'number 1: damaged: its root differs from the sealed root'
[ "$(grep -c ': valid: ' "$WORK/out")" = 3 ] || fail_showing "not three are valid"
cp "$WORK/first" "$manifest"
flip "$manifest" "$(($(stat -c %s "$manifest") - 1))"
exits 3 tier verify "$URL"
tells 'number 1: damaged: its manifest, key or catalog is damaged'
flip "$manifest" 20
exits 3 tier verify "$URL"
tells "^sealed/$id/0000000000000001: damaged: its manifest is damaged"
cp "$WORK/first" "$manifest"
key=$(find "$TIER/keys" -type f)
mv "$key" "$WORK/key"
exits 3 tier verify "$URL"
says 'its key is missing'
mv "$WORK/key" "$key"
exits 0 tier verify "$URL"

# --- restored: every byte, name and attribute ---
fs_mount compress=none
all_kinds "$MNT/run/all"
chmod 2750 "$MNT/run/all/ranks"
"$PYTHON" -c 'import os, socket, sys
os.chdir(sys.argv[1])
socket.socket(socket.AF_UNIX).bind("socket")
os.makedirs("d/" * 60 + "deepest")' "$MNT/run/all"
seal "$MNT/run/all"
describe "$MNT/run/all" restored >"$WORK/expected"
mkdir -p "$MNT/run/plain/closed/in"
echo text >"$MNT/run/plain/closed/in/file"
noise one 6 >"$MNT/run/plain/data"
chmod 0 "$MNT/run/plain/closed/in/file"
chmod 500 "$MNT/run/plain/closed" "$MNT/run/plain/closed/in"
seal "$MNT/run/plain"
mkdir "$MNT/run/suid"
cp /bin/true "$MNT/run/suid/program"
chmod 4755 "$MNT/run/suid/program"
seal "$MNT/run/suid"
mkdir -p "$MNT/run/rules/user" "$MNT/run/rules/former"
chown 65534:65534 "$MNT/run/rules/user" "$MNT/run/rules/former"
settings() { # [CALL]: attributes that only a ckptfs mount checks
	"$PYTHON" - "$1" "${2:-get}" <<'PY'
import os, sys
os.chdir(sys.argv[1])
def set(path, name, value, uid=0):
    os.seteuid(uid)
    os.setxattr(path, "user.ckptfs." + name, value)
    os.seteuid(0)
if sys.argv[2] == "set":
    set(".", "keep", b"last=5,within=7d")
    set("user", "keep", b"last=3", 65534)
    set("former", "keep", b"tagged", 65534)
    os.chown("former", 0, 0)
    set(".", "compress", b"zstd:3")
    set("user", "chunking", b"cdc")
else:
    for path in ".", "user", "former":
        names = sorted(n for n in os.listxattr(path) if n.startswith("user.ckptfs."))
        try:
            names += ["user.ckptfs.keep_uid"] if sys.argv[2] == "authors" else []
            print(path, *((n, os.getxattr(path, n)) for n in names))
        except OSError:
            print(path, "without a rule")
PY
}
settings "$MNT/run/rules" set
seal "$MNT/run/rules"
settings "$MNT/run/rules" >"$WORK/settings"
settings "$MNT/run/rules" authors >"$WORK/authors"
fs_umount
fill 1000000
mkdir "$WORK/to"
nothing_in() { [ -z "$(ls -A "$1")" ] || fail_showing "left over: $(ls -A "$1")"; } # DIRECTORY
exits 2 tier get "$URL" run/all "$WORK/to/all"
says 'run/all/null: is a device: not restored; add --trust'
exits 2 tier get "$URL" run/suid "$WORK/to/all"
says 'run/suid/program: is a set-user-ID'
nothing_in "$WORK/to"
"$PYTHON" -c 'import os, struct, sys
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", t, p, i) for t, p, i in (
    (1, 7, 0xffffffff), (2, 7, 1), (4, 7, 0xffffffff), (16, 7, 0xffffffff), (32, 7, 0xffffffff)))
os.setxattr(sys.argv[1], "system.posix_acl_default", acl)' "$WORK/to" # is not inherited
exits 0 tier get --trust "$URL" run/all "$WORK/to/all/"
tells "^run/all, number .*: restored to $WORK/to/all/: "
says_not 'without'
describe "$WORK/to/all" restored | diff "$WORK/expected" - || fail "not what was sealed"
[ "$(($(stat -c %b "$WORK/to/all/sparse") * 512))" -lt 5000000 ] || fail "the holes are filled"
[ "$(ls -A "$WORK/to")" = all ] || fail "left over: $(ls -A "$WORK/to")"
exits 0 tier get --trust --quiet "$URL" run/suid "$WORK/to/suid"
says_nothing "all is well"
[ "$(stat -c %a "$WORK/to/suid/program")" = 4755 ] || fail "not set-user-ID"
without_former() { sed '/^former /s/ (.*keep.*//' "$1"; } # a rule that ckptfs-gc ignores is left out
exits 0 tier get "$URL" run/rules "$WORK/to/rules"
says "run/rules/former: its retention rule is left out: neither root nor the owner has set it"
settings "$WORK/to/rules" | diff <(without_former "$WORK/settings") - || fail "not the settings that were sealed"
fs_mount
exits 0 tier get "$URL" run/rules "$MNT/run/restored"
settings "$MNT/run/restored" authors | diff <(without_former "$WORK/authors" | sed 's/^former.*/former without a rule/') - ||
	fail "not the settings that were sealed, or not their authors"
exits 0 tier get --no-owner "$URL" run/rules "$MNT/run/mine"
[ "$(settings "$MNT/run/mine" authors | grep -c "keep_uid', b'0'")" = 2 ] || fail "the caller is not the author of all"
rm -r "$MNT/run/restored" "$MNT/run/mine"
fs_umount
exits 0 tier get "$URL" "$first" "$WORK/to/first"
[ "$(cat "$WORK/to/first/1")" = 1 ] || fail "not the first seal"
exits 0 tier get --cache 16M "$URL" run/step.1 "$WORK/to/last"
[ "$(cat "$WORK/to/last/1")" = changed ] || fail "not the newest seal"
noise one 6 | cmp - "$WORK/to/last/sub/0" || fail "other bytes"

# --- nothing is replaced ---
mkdir "$WORK/to/empty"
ln -s /nowhere "$WORK/to/link"
for there in empty link first /; do
	exits 2 tier get "$URL" run/plain "$WORK/to/$there"
	says 'exists already\|cannot be created'
done
exits 2 tier get "$URL" run/plain "$WORK/none/to"
says 'cannot be created: No such file'
exits 2 tier get "$URL" run/none "$WORK/to/none"
exits 1 tier get "$URL" run/plain
says 'get: a URL, a checkpoint and a new directory must be given'
exits 1 tier list --trust "$URL"
says 'go with get only'

# --- a failure leaves nothing ---
rm -rf "$WORK/to"
mkdir -m 777 "$WORK/to"
cp "$WORK/pack" "$pack"
flip "$pack" "$at"
exits 3 tier get "$URL" run/step.1 "$WORK/to/damaged"
says "run/step.1/sub/0: $object is damaged; not restored"
nothing_in "$WORK/to"
cp "$WORK/pack" "$pack"
mount -t tmpfs -o size=3M tmpfs "$WORK/to"
exits 2 tier get "$URL" run/plain "$WORK/to/full"
says 'cannot be written: No space left'
nothing_in "$WORK/to"
umount "$WORK/to"

# --- an ordinary user: owners, and attributes that only root can set, are left out ---
if command -v setpriv >/dev/null; then
	chmod -R a+rX "$TIER"
	chmod 777 "$WORK/to"
	exits 0 as_nobody "$tools/ckptfs-tier" get "$URL" run/plain "$WORK/to/plain"
	says "$WORK/to/plain: without owners and groups, which only root can set"
	[ "$(stat -c '%u %a' "$WORK/to/plain/closed/in/file")" = '65534 0' ] || fail "another owner or mode"
	[ "$(cat "$WORK/to/plain/closed/in/file")" = text ] || fail "other bytes"
	exits 0 as_nobody "$tools/ckptfs-tier" get --no-owner "$URL" run/plain "$WORK/to/again"
	says_not 'without'
	exits 2 as_nobody "$tools/ckptfs-tier" get --trust "$URL" run/all "$WORK/to/all"
	says 'run/all/null: cannot be created: Operation not permitted'
	[ "$(ls -A "$WORK/to" | tr '\n' ' ')" = 'again plain ' ] || fail "left over: $(ls -A "$WORK/to")"
else
	skip_part "setpriv is not installed"
fi

# --- two stores, and the size of all objects ---
mv "$STORE" "$WORK/other"
fs_mount compress=none
mkdir -p "$MNT/run/step.1"
noise one 6 >"$MNT/run/step.1/0"
seal "$MNT/run/step.1"
fs_umount
fill 1000000
[ "$(ls "$TIER/sealed" | grep -c '^[0-9a-f]*$')" = 2 ] || fail "not two stores"
exits 2 tier verify "$URL" 1
says '1: 2 stores have a checkpoint with this number; give .ckptfs/sealed/STORE/NUMBER'
exits 0 tier verify "$URL" ".ckptfs/sealed/$id/0000000000000001" ".ckptfs/stores/$id/run/step.1" run/step.1
[ "$(grep -c '^run/step.1, number [14]: valid' "$WORK/out")" -ge 2 ] || fail_showing "not both stores"
stray=$TIER/packs/ab/abababababababababababababababab
mkdir -p "${stray%/*}"
head -c 12345 /dev/zero >"$stray"
counted() { # the figures of --json equal those of the directory
	"$PYTHON" - "$WORK/out" "$TIER" <<'PY'
import collections, json, os, struct, sys
j, top = json.load(open(sys.argv[1])), sys.argv[2]
files = {}
for dir, _, names in os.walk(top):
    for n in names:
        path = os.path.join(dir, n)
        if not n.startswith("."):
            files[os.path.relpath(path, top)] = os.path.getsize(path)
of = {}  # packs of each checkpoint
for name in files:
    if name.startswith("sealed/") and len(name) == 7 + 32 + 1 + 16:
        head = open(os.path.join(top, name), "rb").read()
        path, packs = struct.unpack_from("<II", head, 168)
        of[name] = {head[184 + path + 28 * i:][:16].hex() for i in range(packs)}
size = lambda ids: sum(files[f"packs/{i[:2]}/{i}"] for i in ids)
used = collections.Counter(i for ids in of.values() for i in ids)
stores = collections.defaultdict(set)
for name, ids in of.items():
    stores[name.split("/")[1]] |= ids
by_store = collections.Counter(i for ids in stores.values() for i in ids)
kinds = {k: [v["number"], v["bytes"]] for k, v in j["objects"].items()}
keys = [s for n, s in files.items() if n.startswith("keys/")]
log = [s for n, s in files.items() if n.startswith("gc/")]
others = [s for n, s in files.items() if n.startswith("sealed/") and n not in of]
assert kinds["packs"] == [len(used), size(used)], kinds
assert kinds["manifests"] == [len(of), sum(files[n] for n in of)], kinds
assert kinds["unreferenced"] == [1, 12345] and kinds["keys"] == [len(keys), sum(keys)], kinds
assert kinds["collections"] == [len(log), sum(log)] and log, kinds
assert kinds["others"] == [len(others), sum(others)] and kinds["probe"] == [0, 0], kinds
assert len(j["stores"]) == 2 and len(j["checkpoints"]) == len(of) and j["complete"] and j["missing_packs"] == 0
for s in j["stores"]:
    ids = stores[s["store"]]
    assert s["stored_bytes"] == size(ids) and s["exclusive_bytes"] == size(i for i in ids if by_store[i] == 1), s
for c in j["checkpoints"]:
    ids = of[c["name"]]
    assert c["stored_bytes"] == size(ids) and c["exclusive_bytes"] == size(i for i in ids if used[i] == 1), c
assert any(c["exclusive_bytes"] for c in j["checkpoints"]) and any(c["exclusive_bytes"] < c["stored_bytes"] for c in j["checkpoints"])
PY
}
exits 0 tier usage --json "$URL"
counted || fail_showing "not what is in the directory"
exits 0 tier usage "$URL"
tells '^unreferenced  *1  *12.1 KiB$'
tells '^run/step.2 '
tells "^$id "
mv "$pack" "$WORK/gone"
exits 0 tier usage "$URL"
says '1 pack is not in the list'
mv "$WORK/gone" "$pack"
flip "$manifest" "$(($(stat -c %s "$manifest") - 1))"
exits 3 tier usage --json "$URL"
[ "$(json complete <"$WORK/out")" = false ] || fail_showing "complete without a manifest"

# --- a directory that hangs: the command ends when it is interrupted ---
cp "$WORK/first" "$manifest"
fs_mount
mkdir "$MNT/tier"
exits 0 tier list "dir:$MNT/tier"
mkdir -p "$MNT/tier/sealed/$id"
cp "$TIER/sealed/$id/"* "$MNT/tier/sealed/$id/"
cp -r "$TIER/keys" "$TIER/packs" "$MNT/tier/"
exits 0 tier verify --quiet "dir:$MNT/tier"
connection=/sys/fs/fuse/connections/$(mountpoint -d "$MNT" | cut -d : -f 2)
mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
stop_process "$DAEMON"
rm -rf "$WORK/to/hung"
for action in list verify get usage; do
	arguments=()
	[ $action != get ] || arguments=(run/step.2 "$WORK/to/hung")
	# with job control: a command in the background ignores SIGINT otherwise
	set -m
	"$tools/ckptfs-tier" $action "dir:$MNT/tier" "${arguments[@]}" >"$WORK/out" 2>"$WORK/said" &
	pid=$!
	set +m
	await grep -qx ckptfs-tier /proc/$pid/comm # before that, it is a shell that catches SIGINT
	await grep -q '^SigCgt:.*[2367abef]$' /proc/$pid/status # it catches SIGINT
	await sh -c "[ \$(cat '$connection/waiting') -gt 0 ]" # and waits for an answer
	running $pid || fail_showing "$action: ended although the directory hangs"
	code=0
	kill -INT $pid
	wait $pid || code=$?
	[ $code = 130 ] || fail_showing "$action: exit code $code instead of 130"
	says 'does not answer'
	[ ! -e "$WORK/to/hung" ] || fail "$action has made a directory"
done
kill -CONT "$DAEMON"
exits 0 tier get --quiet "dir:$MNT/tier" run/step.2 "$WORK/to/hung"
fs_umount
