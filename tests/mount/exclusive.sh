#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What would deleting free? Asked of files, directories and sets; then really deleted, and what the disk got back is compared.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
no_commit_timer

stat=$CKPTFS_BUILD/tools/ckptfs-stat
gc=$CKPTFS_BUILD/tools/ckptfs-gc

text() { "$PYTHON" -c 'import random, sys
r = random.Random(sys.argv[1])
sys.stdout.write("".join("%08x%024d" % (r.getrandbits(32), 0) for _ in range(int(sys.argv[2]) << 15)))' "$@"; }
exclusive() { "$stat" --if-deleted --json "$@" | json exclusive_bytes; }
is() { [ "$1" = "$2" ] || fail "$3: $1 instead of $2"; }
M=$((1 << 20))

fs_mount
mkdir -p "$MNT/run/step.1" "$MNT/run/step.2" "$MNT/other"
noise 1 8 >"$MNT/run/step.1/a"
noise 2 4 >"$MNT/run/step.1/b"
{ noise 1 8; noise 3 2; } >"$MNT/run/step.2/a" # 8 MiB as before, 2 new
noise 2 4 >"$MNT/run/step.2/b"
noise 4 6 >"$MNT/other/c"
sync "$MNT/other/c"

# Files, directories, sets.
is "$(exclusive "$MNT/run/step.1/a")" 0 "all of it is in step.2"
is "$(exclusive "$MNT/run/step.2/a")" $((2 * M)) "what only step.2/a has"
is "$(exclusive "$MNT/run/step.1")" 0 "a directory all of which is elsewhere too"
is "$(exclusive "$MNT/run/step.2")" $((2 * M)) "a directory"
is "$(exclusive "$MNT/run")" $((14 * M)) "a directory with others in it: what they share counts once"
is "$(exclusive "$MNT/run/step.1" "$MNT/run/step.2/a" "$MNT/run/step.2/b")" $((14 * M)) "a set"
is "$(exclusive "$MNT/run" "$MNT/run/step.1/a" "$MNT/run/")" $((14 * M)) "a set with some twice"
is "$(exclusive "$MNT")" $((20 * M)) "all"
is "$(cd "$MNT/run/step.2" && exclusive a)" $((2 * M)) "a path without a directory"

# The same as part of what is told of a file or directory.
is "$("$stat" --json "$MNT/run/step.2/a" | json exclusive_bytes)" $((2 * M)) "of a file"
is "$("$stat" --json "$MNT/run/step.2/a" | json shared_bytes)" $((8 * M)) "of a file"
is "$("$stat" --json "$MNT/run" | json exclusive_bytes)" $((14 * M)) "of a directory"
is "$("$stat" --json "$MNT/run" | json size_bytes)" $((26 * M)) "of a directory"
is "$("$stat" --if-deleted --json "$MNT/run" | json files)" 4 "files of a set"
exits 0 "$stat" "$MNT/run/step.2/a"
tells '^Exclusive: *2 MiB'
tells '^Shared: *8 MiB'
exits 0 "$stat" --if-deleted "$MNT/run" "$MNT/other"
tells '^If deleted: '
tells '^Exclusive: *20 MiB'

# Again and again, until interrupted: what comes meanwhile is in the next answer.
env --default-signal=INT "$stat" --if-deleted --json --watch 0.1 "$MNT/run/step.2" >"$WORK/watched" &
watcher=$!
soon() { for _ in $(seq 1200); do grep -q "\"exclusive_bytes\":$1," "$WORK/watched" && return; sleep 0.1; done; fail "$1 was never told"; }
soon $((2 * M))
noise 5 1 >"$MNT/run/step.2/new"
soon $((3 * M))
rm "$MNT/run/step.2/new"
kill -INT $watcher
code=0
wait $watcher || code=$?
is "$code" 130 "interrupted"

# Links: a file goes with its last name.
ln "$MNT/other/c" "$MNT/run/link"
is "$(exclusive "$MNT/other")" 0 "it has another name"
is "$("$stat" --if-deleted --json "$MNT/other" | json linked_files)" 1 "it has another name"
is "$(exclusive "$MNT/other" "$MNT/run/link")" $((6 * M)) "both names"
ln -s ../other/c "$MNT/run/symlink"
is "$(exclusive "$MNT/run/symlink")" 0 "a symbolic link"

# What is open without a name still has its bytes.
cp "$MNT/other/c" "$MNT/open"
exec 5<"$MNT/open"
rm "$MNT/open"
is "$(exclusive "$MNT/other" "$MNT/run/link")" 0 "an open file has it"
exec 5<&-

# After a remount, a crash, a new index: the same.
for how in fs_remount "fs_kill fs_mount" "fs_umount fs_rebuild fs_mount"; do
	sync "$MNT/run/step.2/a"
	for step in $how; do $step; done
	is "$(exclusive "$MNT/run")" $((14 * M)) "after $how"
	is "$(exclusive "$MNT/run/step.2/a")" $((2 * M)) "after $how"
done

# Refused, with a reason.
exits 1 "$stat" --if-deleted
says 'needs the files'
exits 1 "$stat" --if-deleted --prometheus "$MNT/run"
says 'exclude each other'
exits 1 "$stat" --if-deleted --html "$WORK/page.html" "$MNT"
says 'exclude each other'
[ ! -e "$WORK/page.html" ] || fail "a page was written for wrong use"
exits 2 "$stat" --if-deleted "$MNT/missing"
says 'missing'
exits 2 "$stat" --if-deleted "$WORK"
says 'not on a ckptfs'
exits 2 "$stat" --if-deleted "$MNT/run" "$WORK"
mkdir -m 700 "$MNT/private"
noise 9 1 >"$MNT/private/f"
chmod 755 "$MNT"
exits 2 as_nobody "$stat" --if-deleted "$MNT/private"
exits 0 as_nobody "$stat" --if-deleted "$MNT/run"
rm -r "$MNT/private"

# Now really. The disk gets back what was told, and a little for tables.
freed_is() { # TOLD WHAT
	local before after
	before=$(disk_kib "$STORE/packs")
	rm -r "${@:3}"
	is "$("$gc" --delete --json --move-below 0 "$MNT" | json freed_bytes)" "$1" "$2: freed chunks"
	after=$(disk_kib "$STORE/packs")
	[ $((before - after)) -ge $(($1 * 99 / 100 >> 10)) ] && [ $((before - after)) -le $(($1 * 102 / 100 + 65536 >> 10)) ] ||
		fail "$2: $1 bytes were told, the disk got back $((before - after)) KiB"
}
collect
freed_is $((2 * M)) "step.2" "$MNT/run/step.2"
freed_is "$(exclusive "$MNT/run" "$MNT/other")" "all that is left" "$MNT/run" "$MNT/other"
is "$(exclusive "$MNT")" 0 "nothing is left"

# Placed: what lies elsewhere now belongs to the same files.
scattered_series
series() { exclusive "$MNT/step.00"; exclusive "$MNT/step.15"; exclusive "$MNT"/step.0?; exclusive "$MNT"/step.*; }
before=$(series)
exits 0 "$gc" --delete --place "$MNT"
tells '^Placed: '
is "$(series)" "$before" "after a placing collection"
fs_remount
is "$(series)" "$before" "after a placing collection and a remount"
rm "$MNT"/step.*
collect

# Compressed: told as it is stored too.
fs_remount compress=zstd
text 5 8 >"$MNT/text"
text 6 8 >"$MNT/more"
sync "$MNT/text"
is "$(exclusive "$MNT/text")" $((8 * M)) "compressed, as it is read"
stored=$("$stat" --json "$MNT/text" | json exclusive_stored_bytes)
[ "$stored" -gt $((M / 2)) ] && [ "$stored" -lt $((5 * M)) ] || fail "$stored bytes are said to be stored of 8 MiB that shrink"
# disk_gets STORED WHAT: that is what a collection finds and what the disk gets back, to a header
disk_gets() {
	local before freed found
	found=$("$gc" --json "$MNT" | json dead_disk_bytes)
	is "$found" "$1" "$2: found by a collection"
	before=$(disk_kib "$STORE/packs")
	"$gc" --delete -q --move-below 0 "$MNT" >/dev/null
	freed=$((before - $(disk_kib "$STORE/packs")))
	# A pack with holes may take a block more for its list of extents.
	[ "$freed" -ge $((($1 >> 10) - 8)) ] && [ "$freed" -le $((($1 >> 10) + 8)) ] || fail "$2: $1 bytes were told, the disk got back $freed KiB"
}
rm "$MNT/text"
disk_gets "$stored" "compressed"
rm "$MNT/more"
collect

# What is compressed together is freed together: every other one of many small files gives next to nothing back.
stored() { "$stat" --if-deleted --json "$@" | json exclusive_stored_bytes; }
mkdir "$MNT/even" "$MNT/odd"
text 7 4 | "$PYTHON" -c 'import sys
for i in range(1024):
    open("%s/%s/%d" % (sys.argv[1], ("even", "odd")[i % 2], i), "wb").write(sys.stdin.buffer.read(4096))' "$MNT"
sync -f "$MNT"
is "$(exclusive "$MNT/even")" $((2 * M)) "every other file, as it is read"
told=$(stored "$MNT/even") both=$(stored "$MNT/even" "$MNT/odd")
[ "$both" -gt $((M / 4)) ] && [ "$both" -lt $((5 * M / 2)) ] || fail "$both bytes are said to be stored of 4 MiB that shrink"
[ "$told" -le $((both / 8)) ] || fail "$told of $both bytes are said to come back of parts that other files use"
rm -r "$MNT/even"
disk_gets "$told" "every other file"
told=$(stored "$MNT/odd")
rm -r "$MNT/odd"
disk_gets "$told" "the other ones"

# Cut by content: what has moved is shared.
fs_remount chunking=cdc
collect
noise 7 4 >"$MNT/plain"
{ printf 'in front'; noise 7 4; } >"$MNT/moved"
sync "$MNT/plain" "$MNT/moved"
moved=$(exclusive "$MNT/moved") both=$(exclusive "$MNT/plain" "$MNT/moved")
[ "$moved" -gt 0 ] && [ "$moved" -le $((256 << 10)) ] || fail "$moved bytes are said to be of a file alone that has 8 bytes of its own"
[ "$both" -ge $((4 * M)) ] && [ "$both" -le $((4 * M + (256 << 10))) ] || fail "$both bytes are said to be of two files of 4 MiB that share"
rm "$MNT/plain" "$MNT/moved"
freed=$("$gc" --delete --json "$MNT" | json freed_bytes)
is "$freed" "$both" "freed chunks"
# Paths of one mount only.
echo x >"$MNT/here"
exits 2 "$stat" --if-deleted "$MNT/here" /proc/self/status
says 'on another mount'
# A link is asked about as it is, wherever it leads, also as the first path.
ln -s / "$MNT/away"
ln -s nowhere "$MNT/dangling"
echo x >"$MNT/one"
for link in away dangling; do
	exits 0 "$stat" --if-deleted "$MNT/$link" "$MNT/one"
	tells '^Files: *1 '
done
fs_umount
fs_sound "after all was deleted"
