#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# compact=auto: what is sealed is compacted by itself, steps with those before them, keeps its bytes, and is not looked at twice, over remounts and
# kill -9; it can be paused, gives way to a collection, and does not prevent unmounting.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
compact=$CKPTFS_BUILD/tools/ckptfs-compact
auto=compact=auto,compact_budget=1000000 # no deadline, so that the best coding is found on any machine
stat=$CKPTFS_BUILD/tools/ckptfs-stat
seal=$CKPTFS_BUILD/tools/ckptfs-seal

make_field() { # NAME DOUBLES: with a little noise, as .npy
	"$PYTHON" - "$WORK/$1.npy" "$2" <<-'END'
		import array, math, random, struct, sys
		random.seed(1)
		n = int(sys.argv[2])
		data = array.array("d", [2 + math.sin(i / 700) + random.random() * 1e-7 for i in range(n)]).tobytes()
		head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % n
		head += b" " * (64 - (10 + len(head) + 1) % 64) + b"\n"
		with open(sys.argv[1], "wb") as f:
		    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)
	END
}
make_field field $((1 << 17))
make_field large $((1 << 19)) # 4 s at the lowest rate there is
make_step() { # NAME SEED [FIELD]: no page as in the others
	mkdir "$MNT/$1"
	"$PYTHON" -c 'import sys; a = bytearray(open(sys.argv[1], "rb").read()); a[200::4096] = bytes([int(sys.argv[2]) % 256]) * len(a[200::4096])
open(sys.argv[3], "wb").write(a)' "$WORK/${3:-field}.npy" "$2" "$WORK/$1.npy"
	cp "$WORK/$1.npy" "$MNT/$1/field.npy"
	"$seal" "$MNT/$1" >/dev/null
}
same() { # NAME...
	for i in "$@"; do
		cmp "$WORK/$i.npy" "$MNT/$i/field.npy" || fail "$i: other bytes"
	done
}
is_state() { [ "$(figure compaction.state)" = "$1" ]; }
has_done() { [ "$(figure compaction.done_directories)" = "$1" ] && is_state idle; }
has_failed() { [ "$(figure compaction.failed_directories)" = "$1" ]; }
coded() { "$stat" --variables --json "$MNT" | "$PYTHON" -c 'import json, sys; print(sum(v["coded_bytes"] for v in json.load(sys.stdin)["variables"]))'; }

fs_mount
is_state off || fail "it is on though nobody has asked for it"
exits 2 "$compact" --pause "$MNT"
says 'compact=auto'
make_step one 1
fs_remount $auto
await has_done 1 # what was sealed before, too
one=$(coded)
[ "$one" -ge 1000000 ] || fail "of 1 MiB $one bytes were coded"
same one
make_step two 2
await has_done 2
[ "$(coded)" -ge $((one * 19 / 10)) ] || fail "the second one was not coded"
mkdir "$MNT/empty" "$MNT/open"
cp "$WORK/field.npy" "$MNT/open/"
"$seal" "$MNT/empty" >/dev/null
await has_done 3
[ "$(figure compaction.failed_directories)" = 0 ] || fail "failed: $(figure compaction.failed_directories)"
same one two
cmp "$WORK/field.npy" "$MNT/open/field.npy"
echo "ok what is sealed"

# The next mount knows what is done.
both=$(coded)
fs_remount $auto
make_step three 3
await has_done 1
[ "$(coded)" -gt "$both" ] || fail "the third one was not coded"
same one two three

# Paused: it waits, and says so.
exits 0 "$compact" --pause "$MNT"
make_step four 4
await is_state paused
exits 0 "$compact" --resume "$MNT"
await has_done 2
same four
exits 2 "$compact" --pause "$WORK"
exits 1 "$compact" --pause "$MNT" "$MNT"
echo "ok paused, and not done twice"

# Steps that come one by one are coded by themselves, and one against the other when there are five of them.
fs_remount $auto
before=$(coded)
mkdir "$MNT/run" "$WORK/run"
for i in 1 2 3 4; do
	make_step "run/step.$i" "1$i"
	await has_done $i
done
apart=$(($(coded) - before))
[ "$apart" -lt 4300000 ] || fail "of 4 MiB $apart bytes were coded"
make_step run/step.5 15
await has_done 5
both=$(($(coded) - before - apart))
[ "$both" -ge 5000000 ] || fail "the fifth step was not coded with those before it: $both bytes were"
same run/step.1 run/step.2 run/step.3 run/step.4 run/step.5
make_step run/step.6 16
await has_done 6
[ $(($(coded) - before - apart - both)) -lt 1100000 ] || fail "steps were coded a third time"
"$seal" --unseal "$MNT/run/step.5" >/dev/null
rm -r "$MNT/run/step.5"
same run/step.1 run/step.4 run/step.6
echo "ok steps together"

# Rules for names are those of the mount.
mkdir "$WORK/other"
exits 32 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE.other" "$WORK/other" -o "compact=auto,compact_names=$WORK/nothing"
says 'compact_names.*No such file'
[ ! -e "$STORE.other" ] || fail "a store was made all the same"
printf 'arr(.*)\trenamed\\1\n' >"$WORK/rules"
fs_remount "$auto,compact_names=$WORK/rules"
make_step named 7
await has_done 1
"$stat" --variables "$MNT" | grep -q renamed || fail "compact_names= is not obeyed: $("$stat" --variables "$MNT")"
same named
echo "ok names"

# Where a user puts a symbolic link in the place of a directory above a sealed one, nothing behind it is read. The process
# that the daemon starts does that here first.
fs_remount
mkdir -p "$WORK/moved" "$MNT/moved" "$WORK/outside/step" "$WORK/build/fs"
make_step moved/step 8
cp "$WORK/field.npy" "$WORK/outside/step/"
fs_umount
cp "$CKPTFS_BUILD/fs/mount.ckptfs" "$WORK/build/fs/"
cat >"$WORK/build/fs/ckptfs-compact" <<SH
#!/bin/bash
PATH=/usr/bin:/bin
mv -T "$MNT/moved" "$MNT/moved.away" && ln -s "$WORK/outside" "$MNT/moved"
exec "$compact" "\$@"
SH
chmod +x "$WORK/build/fs/ckptfs-compact"
CKPTFS_BUILD=$WORK/build fs_mount $auto
await has_failed 1
grep -q 'background compaction failed: .*moved/step: Too many levels of symbolic links' "$WORK/daemon.log" ||
	fail "a symbolic link in the place of a directory was followed: $(grep 'compaction failed' "$WORK/daemon.log")"
rm "$MNT/moved"
mv "$MNT/moved.away" "$MNT/moved"
same moved/step
exits 2 "$compact" --beneath "$MNT" "$WORK/outside/step" # an absolute path
exits 1 "$compact" --beneath "$MNT" --replicas moved
exits 0 "$compact" --beneath "$MNT" --json moved
fs_remount $auto
echo "ok moved away"

# Users take turns: a user with many directories does not keep the others waiting.
fs_remount
for step in 1001/a1 1001/a2 1001/a3 1002/b1; do
	mkdir -p "$MNT/${step%/*}/${step#*/}"
	cp "$WORK/field.npy" "$MNT/$step/"
	chown "${step%/*}" "$MNT/${step%/*}" "$MNT/$step" "$MNT/$step/field.npy"
	setpriv --reuid "${step%/*}" --clear-groups "$seal" "$MNT/$step" >/dev/null
done
fs_umount
cat >"$WORK/build/fs/ckptfs-compact" <<SH
#!/bin/bash
echo "\${@: -1}" >>"$WORK/order"
exec "$compact" "\$@"
SH
CKPTFS_BUILD=$WORK/build fs_mount $auto
await grep -q a3 "$WORK/order"
await is_state idle
[ "$(grep -o '[ab][1-3]$' "$WORK/order" | tr '\n' ' ')" = "a1 b1 a2 a3 " ] || fail "users do not take turns: $(cat "$WORK/order")"
fs_remount $auto
echo "ok in turn"

# While it is at work, and slowly: no call waits for it. Paused it ends; a collection is not refused; unmounting works, both ways.
fs_remount $auto,read_rate=1M
make_step five 5 large
await is_state running
exits 0 "$compact" --pause "$MNT"
await is_state paused
exits 0 "$compact" --resume "$MNT"
await is_state running
exits 0 timeout 600 "$CKPTFS_BUILD/tools/ckptfs-gc" --quiet "$MNT"
await is_state running
fs_umount
fs_sound "unmounted meanwhile"
fs_mount $auto,read_rate=1M
await is_state running
umount -i "$MNT"
wait "$DAEMON" || fail "it did not end: $?"
DAEMON=
fs_sound "unmounted by umount(2) meanwhile"
echo "ok gives way"

# Killed at any moment, the next mount goes on.
for round in 1 2; do
	fs_mount $auto,read_rate=1M
	await is_state running
	sleep "0.$((RANDOM % 6))"
	fs_kill
	fs_sound "killed, round $round"
done
fs_mount $auto
await has_done 1
same one two three four five
fs_umount
fs_sound "in the end"
