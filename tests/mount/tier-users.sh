#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A tier with checkpoints of several users: retention counts those of each user, and a mounted tier shows none in place of
# another user's.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need setpriv
tools=$CKPTFS_BUILD/tools
TIER=$WORK/tier
ANY=$WORK/any
mkdir "$TIER" "$ANY"
ALICE=2001 BOB=2002

as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; } # UID COMMAND...
at_end() { ! grep -qsF " $ANY fuse" /proc/mounts || "$tools/umount.ckptfs" "$ANY"; }
gc() { "$tools/ckptfs-gc" --tier "$@" "dir:$TIER"; }
# checkpoint UID PATH [TEXT]: sealed and in the tier; empty without a text
checkpoint() {
	as "$1" mkdir -p "$MNT/$2"
	[ -z "${3:-}" ] || as "$1" sh -c 'echo "$1" >"$2/state"' sh "$3" "$MNT/$2"
	as "$1" "$tools/ckptfs-seal" --quiet --wait=tier "$MNT/$2" || fail "$2: not in the tier"
}

fs_mount "allow_other,tier=dir:$TIER"
mkdir "$MNT/run"
chmod 1777 "$MNT" "$MNT/run"

# --- retention: the newest of each user, though bob has sealed last, and more ---
for i in 1 2 3; do checkpoint $ALICE run/step.$i "alice $i"; done
for i in 1 2 3 4 5; do checkpoint $BOB run/empty.$i; done
exits 0 gc --keep-last 2 --delete
for path in step.2 step.3 empty.4 empty.5; do tells "keep    run/$path"; done
for path in step.1 empty.1 empty.2 empty.3; do tells "removed run/$path"; done
gc --json >"$WORK/out.json"
[ "$("$PYTHON" -c 'import json, sys
print(*("%s=%d" % (c["path"], c["uid"]) for c in sorted(json.load(sys.stdin)["sealed"], key=lambda c: c["path"])))' <"$WORK/out.json")" = \
	"run/empty.4=$BOB run/empty.5=$BOB run/step.2=$ALICE run/step.3=$ALICE" ] || fail "$(cat "$WORK/out.json")"

# --- lists mark the newest of each user; of all of them, mounted or not, the uid is known ---
newest() { "$PYTHON" -c 'import json, os, sys
print(*sorted("%s=%d" % (os.path.basename(c["path"]), c["uid"]) for c in json.load(sys.stdin)["sealed"] if c["newest"]))'; }
marked="empty.5=$BOB step.3=$ALICE"
[ "$("$tools/ckptfs-stat" --sealed --json "$MNT" | newest)" = "$marked" ] || fail "marked in the mount"
[ "$("$tools/ckptfs-tier" list --json "dir:$TIER" | newest)" = "$marked" ] || fail "marked in the tier"
exits 0 "$CKPTFS_BUILD/fs/mount.ckptfs" "dir:$TIER" "$ANY"
[ "$("$tools/ckptfs-stat" --sealed --json "$ANY" | newest)" = "$marked" ] || fail "marked in the mounted tier"
exits 0 "$tools/umount.ckptfs" "$ANY"

# --- paths: bob seals names that alice had, and a directory above them; alice seals one again ---
checkpoint $ALICE work/of/alice/step.1 "alice 1"
as $ALICE mv "$MNT/work" "$MNT/old"
checkpoint $BOB work/of/alice/step.1 "bob 1"
as $BOB mv "$MNT/work" "$MNT/newer"
checkpoint $BOB work/of/alice "bob above"
as $BOB mv "$MNT/work" "$MNT/newest"
checkpoint $ALICE work/of/alice/step.1 "alice again"
checkpoint $BOB of.bob/step.1 "bob 1"
exits 0 "$CKPTFS_BUILD/fs/mount.ckptfs" "dir:$TIER" "$ANY" -o allow_other
id=$(ls "$ANY/.ckptfs/stores")
for top in "$ANY" "$ANY/.ckptfs/stores/$id"; do
	[ "$(cat "$top/work/of/alice/step.1/state")" = "alice again" ] || fail "$top: read: $(cat "$top/work/of/alice/step.1/state")"
	[ "$(ls "$top/work/of/alice")" = step.1 ] || fail "$top: shown: $(ls "$top/work/of/alice")"
	[ "$(cat "$top/of.bob/step.1/state")" = "bob 1" ] || fail "$top: bob's own is not shown"
done
[ "$(cat "$ANY/.ckptfs/sealed/$id"/*/state | sort | xargs -d '\n')" = "alice 1 alice 2 alice 3 alice again bob 1 bob 1 bob above" ] ||
	fail "by number: $(cat "$ANY/.ckptfs/sealed/$id"/*/state)"
exits 0 "$tools/umount.ckptfs" "$ANY"
exits 0 "$tools/ckptfs-tier" get --quiet "dir:$TIER" work/of/alice/step.1 "$WORK/back"
[ "$(cat "$WORK/back/state")" = "alice again" ] || fail "restored: $(cat "$WORK/back/state")"
fs_umount
