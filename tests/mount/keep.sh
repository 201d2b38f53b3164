#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Retention: of the sealed checkpoints in a directory those that a policy keeps stay, and always the newest that proves itself; the
# others are removed whole, whatever comes between.
. "$(dirname "$0")/lib.sh"
need_mount
need setfattr

seal() { "$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$@"; }
keep() { "$CKPTFS_BUILD/tools/ckptfs-gc" "$@"; }
listed() { "$CKPTFS_BUILD/tools/ckptfs-seal" --list --json "$MNT" | "$PYTHON" -c 'import json, sys
print(" ".join(e["path"].split("/")[-1] for e in json.load(sys.stdin)["sealed"] if sys.argv[1] in e["path"]))' "/$1/"; }
there() { (cd "$MNT/$1" && find . -mindepth 1 -maxdepth 1 -printf '%P\n' | sort | tr '\n' ' '); }
# steps DIR N...: sealed directories DIR/step.N
steps() {
	local dir=$MNT/$1 n
	shift
	for n; do
		mkdir -p "$dir/step.$n/deep/er"
		noise "$dir.$n" 1 >"$dir/step.$n/data"
		ln -s data "$dir/step.$n/deep/link"
		echo "$n" >"$dir/step.$n/deep/er/file"
		chmod 555 "$dir/step.$n/deep/er"
		seal "$dir/step.$n"
	done
}

fs_mount
cd "$WORK"
steps run 10 20 30 40 50 60

# --- nothing happens without --delete ---
exits 0 keep --keep-last 2 --keep-every 30 "$MNT/run"
tells "^keep  *$MNT/run/step.60 .*: newest valid"
tells "^keep  *$MNT/run/step.50 .*: last"
tells "^keep  *$MNT/run/step.30 .*: every"
tells "^remove  *$MNT/run/step.10 .*1 MiB, of which 1 MiB new when sealed"
tells "Nothing was changed. --delete would remove 3 sealed checkpoints"
exits 0 keep --json --keep-last 1 "$MNT/run"
[ "$(json deleted removed <out | tr '\n' ' ')" = "false 0 " ] || fail_showing "other JSON"
[ "$(listed run)" = "step.10 step.20 step.30 step.40 step.50 step.60" ] || fail "something was removed: $(listed run)"

# --- wrong use ---
exits 1 keep --keep-last 0 "$MNT/run"
exits 1 keep --keep-every x "$MNT/run"
exits 1 keep --keep-within 7x "$MNT/run"
exits 1 keep --keep-last 1 --place --delete "$MNT/run"
says 'with --keep options, --budget, --rate, --local and --place require --gc'
exits 1 keep --verify "$MNT"
exits 1 keep --keep-last 1 --gc "$MNT/run"
says '--gc requires --delete or --drop, and a --keep option'
exits 1 keep --delete --gc "$MNT"
exits 1 keep --keep-last 1 --policies "$MNT/run"
says '--policies and the --keep options exclude each other'
exits 2 keep --keep-last 1 "$WORK"
says "not on a ckptfs"
exits 0 keep --keep-last 1 "$MNT/run/step.10"
tells "^No sealed checkpoints found"

# --- rules ---
exits 0 keep --delete --keep-last 2 --keep-every 30 "$MNT/run"
tells "3 sealed checkpoints removed"
[ "$(there run)" = "step.30 step.50 step.60 " ] || fail "left are: $(there run)"
[ "$(listed run)" = "step.30 step.50 step.60" ] || fail "listed are: $(listed run)"
ln -s step.30 "$MNT/run/best"
mkdir "$MNT/run/step.70" # not sealed: not counted
exits 0 keep --delete --keep-tagged --json "$MNT/run"
[ "$(json removed <out)" = 1 ] || fail_showing "other JSON"
[ "$(there run)" = "best step.30 step.60 step.70 " ] || fail "left are: $(there run)"
rm "$MNT/run/best"
exits 0 keep --delete --keep-within 1h "$MNT/run"
[ "$(listed run)" = "step.30 step.60" ] || fail "listed are: $(listed run)"
exits 0 keep --delete --keep-tagged "$MNT/run"
[ "$(listed run)" = "step.60" ] || fail "listed are: $(listed run)"
mkdir "$MNT/run/step.80"
setfattr -n user.tag -v paper "$MNT/run/step.80"
seal "$MNT/run/step.80"
steps run 90
exits 0 keep --delete --keep-tagged "$MNT/run"
[ "$(listed run)" = "step.80 step.90" ] || fail "listed are: $(listed run)"

# --- what a directory says of itself, for a timer ---
steps auto 1 2 3
steps other 1 2
mkdir "$MNT/auto/inner"
! setfattr -n user.ckptfs.keep -v last=none "$MNT/auto" 2>/dev/null || fail "no policy is taken for one"
setfattr -n user.ckptfs.keep -v last=1,every=100 "$MNT/auto"
mkdir "$MNT/auto/later"
[ -z "$(getfattr --only-values -n user.ckptfs.keep "$MNT/auto/later" 2>/dev/null)" ] || fail "a policy is inherited"
exits 0 keep --policies "$MNT"
tells "^remove .*auto/step.1 "
[ "$(listed auto) $(listed other)" = "step.1 step.2 step.3 step.1 step.2" ] || fail "something was removed"
exits 0 keep --policies --delete --json "$MNT"
[ "$(there auto) $(there other)" = "inner later step.3  step.1 step.2 " ] || fail "left are: $(there auto) $(there other)"
[ "$(wc -l <out)" = 2 ] || fail_showing "not one document for the directory and one for the collection"

# A daemon that dies while they are removed: what is listed is whole.
for round in 1 2 3; do
	steps kill.$round $(seq 12)
	keep --delete --quiet --keep-last 1 "$MNT/kill.$round" >/dev/null 2>&1 &
	remover=$!
	sleep "0.0$((round * 2))"
	fs_kill
	wait "$remover" || true
	fs_sound "after kill -9 while checkpoints are removed"
	fs_mount
	for e in $(listed kill.$round); do
		noise "$MNT/kill.$round.${e#step.}" 1 | cmp - "$MNT/kill.$round/$e/data" || fail "$e is listed, and not whole"
	done
	exits 0 keep --delete --keep-last 1 "$MNT/kill.$round"
	[ "$(listed kill.$round)" = step.12 ] || fail "listed are: $(listed kill.$round)"
	[ "$(there kill.$round)" = "step.12 " ] || fail "left are: $(there kill.$round)"
done

# --- as other users ---
if [ "$(id -u)" = 0 ]; then
	mkdir -m 777 "$MNT/home"
	fs_remount allow_other
	as_nobody mkdir "$MNT/home/nobody"
	mkdir "$MNT/home/nobody/step.5" # root's, in a directory of a user that could not delete it
	echo x >"$MNT/home/nobody/step.5/file"
	seal "$MNT/home/nobody/step.5"
	for n in 1 2 3; do
		as_nobody mkdir "$MNT/home/nobody/step.$n"
		as_nobody mkdir -m 500 "$MNT/home/nobody/step.$n/dark"
		as_nobody "$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/home/nobody/step.$n"
	done
	as_nobody setfattr -n user.ckptfs.keep -v every=2 "$MNT/home/nobody"
	exits 0 keep --policies --delete "$MNT"
	tells "^keep .*step.5 .*: owned by another user"
	[ "$(there home/nobody)" = "step.2 step.3 step.5 " ] || fail "left are: $(there home/nobody)"
	# what cannot be removed is no hole in the list
	chmod 555 "$MNT/home/nobody"
	exits 2 as_nobody "$CKPTFS_BUILD/tools/ckptfs-gc" --delete --json --keep-last 1 "$MNT/home/nobody"
	json sealed <out >list
	[ "$(cat list)" = '[{"name":"step.3","keep":true,"why":"newest valid","bytes":0,"new_bytes":0}]' ] ||
		fail_showing "another list"
	chmod 755 "$MNT/home/nobody"
	seal --unseal "$MNT/home/nobody/step.5"
	rm -r "$MNT/home/nobody/step.5"
	exits 0 as_nobody "$CKPTFS_BUILD/tools/ckptfs-gc" --delete --keep-last 1 "$MNT/home/nobody"
	[ "$(there home/nobody)" = "step.3 " ] || fail "left are: $(there home/nobody)"
fi
fs_umount
fs_sound "after removals"
fs_mount

# --- the newest that proves itself, not the newest ---
steps hurt 1 2 3
strike "$MNT/hurt/step.3/data"
fs_remount
exits 0 keep --keep-last 1 --verify "$MNT/hurt"
says "step.3: not valid: damaged"
tells "^keep .*step.3 .*: last"
tells "^keep .*step.2 .*: newest valid"
tells "^remove .*step.1 "
exits 0 keep --delete --keep-last 1 --verify "$MNT/hurt"
[ "$(there hurt)" = "step.2 step.3 " ] || fail "left are: $(there hurt)"
fs_umount
