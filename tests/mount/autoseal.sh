#!/usr/bin/env bash
# Directories that are sealed by themselves, when a program says in its own way that they are complete.
. "$(dirname "$0")/lib.sh"
need_mount

seal() { "$CKPTFS_BUILD/tools/ckptfs-seal" "$@"; }
epochs() { seal --list --json "$MNT" | "$PYTHON" -c 'import json, sys
print(" ".join(sorted(e["path"].split("/")[-1] for e in json.load(sys.stdin)["epochs"])))'; }
# sealed NAMES: these, after a while
sealed() {
	for _ in $(seq 200); do
		[ "$(epochs)" != "$1" ] || return 0
		sleep 0.05
	done
	fail "sealed are: $(epochs); not: $1"
}
settled() { fs_remount "$options"; } # whoever waits to be sealed is, before the mount is gone
step() { mkdir "$MNT/$1" && noise "$1" 1 >"$MNT/$1/data"; }

# --- not unless asked for ---
options=
fs_mount
step a.tmp
mv "$MNT/a.tmp" "$MNT/a"
touch "$MNT/a/.complete"
settled
[ -z "$(epochs)" ] || fail "sealed though nobody wanted it: $(epochs)"
exits 1 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o autoseal=a//b
says "autoseal"

# --- from a temporary name ---
options=autoseal=rename:commit_success.txt:.complete
settled
step b.tmp
mv "$MNT/b.tmp" "$MNT/b"
sealed b
! touch "$MNT/b/new" 2>/dev/null || fail "a directory that is sealed by itself can be changed"
step c.tmp
mv "$MNT/c.tmp" "$MNT/c.partial" # still not
step d
mv "$MNT/d" "$MNT/e" # no temporary name
echo x >"$MNT/file.tmp"
mv "$MNT/file.tmp" "$MNT/file" # no directory
settled
[ "$(epochs)" = b ] || fail "sealed are: $(epochs)"

# --- when a marker appears ---
step f
echo done >"$MNT/f/commit_success.txt"
sealed "b f"
[ "$(cat "$MNT/f/commit_success.txt")" = done ] || fail "a marker was sealed before it was written"
step g
touch "$MNT/g/tmp"
mv "$MNT/g/tmp" "$MNT/g/.complete"
sealed "b f g"
step h
ln "$MNT/h/data" "$MNT/h/.complete"
sealed "b f g h"
step i
ln -s nowhere "$MNT/i/.complete"
sealed "b f g h i"
step j
mkdir "$MNT/j/.complete" # is no file
touch "$MNT/j/complete"
settled
[ "$(epochs)" = "b f g h i" ] || fail "sealed are: $(epochs)"

# --- others are still writing ---
step k
exec 7>"$MNT/k/late"
touch "$MNT/k/.complete"
sleep 0.3
[ "$(epochs)" = "b f g h i" ] || fail "sealed with a writer in it"
echo late >&7
exec 7>&-
sealed "b f g h i k"
[ "$(cat "$MNT/k/late")" = late ] || fail "what was written last is not there"

# --- an application that goes away at once, and a mount ---
step l
touch "$MNT/l/.complete"
settled
[ "$(epochs)" = "b f g h i k l" ] || fail "an unmount has not waited: $(epochs)"
fs_umount
fs_sound "after seals"
