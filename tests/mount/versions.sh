#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Many versions with changes everywhere, which share what they are made of, in memory and in the index. Whichever are deleted, in
# whatever order, with collections, remounts and kill -9 in between: the others are what was made.
. "$(dirname "$0")/lib.sh"
need_mount

delta=$(program delta)

left() { # DIR SEED: all versions that are there are what they should be
	local f n
	for f in "$1"/*; do
		n=$((10#${f##*/}))
		"$delta" check "$1" "$2" $n $n || fail "version $n of $1 differs"
	done
}
order() { # NAME COUNT: numbers in that order
	case $1 in
	oldest) seq "$2" ;;
	newest) seq "$2" -1 1 ;;
	even) seq 2 2 "$2"; seq 1 2 "$2" ;;
	any) seq "$2" | shuf --random-source=<(yes) ;;
	esac
}

fs_mount
mkdir "$MNT/long"
"$delta" make "$MNT/long" 1000 tree 128 1 30 >/dev/null
"$delta" check "$MNT/long" 1000 1 30
fs_remount
"$delta" check "$MNT/long" 1000 1 30
"$delta" make "$MNT/long" 1000 tree 128 31 40 >/dev/null # on what the index has
fs_kill
fs_sound "after kill -9 behind 40 versions"
fs_mount
"$delta" check "$MNT/long" 1000 31 40
echo "ok 40 versions are what was made, after a remount and after kill -9"

seed=1001
for way in oldest newest even any; do
	mkdir "$MNT/$way"
	"$delta" make "$MNT/$way" $seed tree 128 1 6 >/dev/null
	fs_remount
	"$delta" make "$MNT/$way" $seed tree 128 7 12 >/dev/null
	step=0
	for n in $(order $way 12); do
		rm "$MNT/$way/$(printf %06d "$n")"
		step=$((step + 1))
		case $step in
		3) collect ;;
		5) fs_remount ;;
		7) sync "$MNT/$way"; fs_kill; fs_mount ;;
		8) "$CKPTFS_BUILD/tools/ckptfs-gc" --delete --place --quiet "$MNT" >/dev/null ;;
		11) collect; fs_kill; fs_mount ;;
		12) break ;;
		esac
		[ $((step % 3)) != 0 ] && [ $step != 11 ] || left "$MNT/$way" $seed
	done
	rmdir "$MNT/$way"
	seed=$((seed + 1))
done
echo "ok versions are deleted in any order"

# Versions are made and deleted while it is collected, and the index is written.
mkdir "$MNT/busy"
collect_on
for ((from = 1; from <= 24; from += 6)); do
	"$delta" make "$MNT/busy" 1010 tree 128 $from $((from + 5)) >/dev/null
	rm -f "$MNT/busy/$(printf %06d $((from + 1)))" "$MNT/busy/$(printf %06d $((from + 3)))"
done
kill -KILL "$COLLECTOR"
COLLECTOR=
fs_kill
fs_sound "after kill -9 with a collection under way"
fs_mount
left "$MNT/busy" 1010
left "$MNT/long" 1000
echo "ok versions are made and deleted while it is collected"

# What is left of the index without them is little: layers go with the versions that had them.
fs_umount
before=$(disk_kib "$STORE/index")
fs_mount
rm -r "$MNT/busy" "$MNT/long"
"$delta" make "$MNT" 1020 tree 128 1 2 >/dev/null
collect
fs_umount
fs_sound "after all was deleted"
fs_rebuild
fs_mount
left "$MNT" 1020
fs_umount
[ "$(disk_kib "$STORE/index")" -lt $((before / 2)) ] || fail "the index has $(disk_kib "$STORE/index") KiB, it had $before"
echo "ok nothing is left of them"
