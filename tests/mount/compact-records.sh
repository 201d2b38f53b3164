#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Files of no known format that are arrays of structs, as restart files of LAMMPS: how long records are is found by sampling, and compacting
# splits them into columns, or codes them as floats. Steps are coded against one another where columns are the same, come back after a collection, and keep their bytes.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
no_commit_timer
compact=$CKPTFS_BUILD/tools/ckptfs-compact

# Atoms of 88 bytes behind a head of an odd length: 11.0, place, number, type, group, image, speed. With MOVES the places are new with each step;
# else they move in the last bits, and only the speeds are new.
make_atoms() { # DIRECTORY MOVES STEPS
	"$PYTHON" - "$@" <<-'END'
		import os, random, struct, sys
		top, moves, steps = sys.argv[1], sys.argv[2] == "yes", int(sys.argv[3])
		random.seed(9)
		n = 20000
		places = [random.random() * 40 + 1 for _ in range(3 * n)]
		for step in range(steps):
		    os.makedirs(f"{top}/step-{step}")
		    if step > 0:
		        places = [random.random() * 40 + 1 if moves else x + random.random() * 1e-12 for x in places]
		    speeds = [random.gauss(0, 1.7) for _ in range(3 * n)]
		    with open(f"{top}/step-{step}/restart", "wb") as f:
		        f.write(b"LammpS restart, or nearly\0" + bytes(71))
		        for i in range(n):
		            f.write(struct.pack("<4d4q3d", 11, *places[3 * i:3 * i + 3], i + 1, 1, 1, 537395712, *speeds[3 * i:3 * i + 3]))
	END
}
same() { diff -r "$WORK/$1" "$MNT/$1" || fail "$1, $2: other bytes"; } # SET WHEN
value() { "$PYTHON" -c 'import json,sys; print(eval(sys.argv[1], {"d": json.load(open(sys.argv[2]))}))' "$1" "$WORK/out"; } # EXPRESSION
plain_kib() { du -sk --apparent-size "$WORK/$1" | cut -f 1; } # SET

make_atoms "$WORK/melt" yes 2
make_atoms "$WORK/solid" no 5
for set in melt solid; do
	rm -rf "$STORE"
	fs_mount
	cp -r "$WORK/$set" "$MNT/"
	sync "$MNT/$set"/*/*
	"$compact" --budget 1000 --json "$MNT/$set" >"$WORK/out" || fail "compact $set: $?"
	[ "$(value 'any("columns(88)" in v["coder"] for v in d["variables"])')" = True ] || fail "$set: no records: $(cat "$WORK/out")"
	after=$(disk_kib "$STORE/packs")
	# Of 88 bytes 36 are noise and 6 what is left of exponents, where zstd leaves 49. Of those that are solid, every second step has half of the noise in common with the next.
	percent=$([ $set = melt ] && echo 52 || echo 45)
	[ "$after" -le $(($(plain_kib $set) * percent / 100)) ] || fail "$set: $after of $(plain_kib $set) KiB"
	drop_caches
	same $set compacted
	rm -r "$MNT/$set/step-1" "$WORK/$set/step-1"
	"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --move-below 95 --quiet "$MNT" >/dev/null
	[ "$(disk_kib "$STORE/packs")" -lt "$after" ] || fail "$set: a collection gives nothing back"
	drop_caches
	same $set collected
	fs_umount
	fs_sound $set
done
[ "$(value 'any("sub-base" in v["coder"] for v in d["variables"])')" = True ] || fail "solid: not against another step: $(cat "$WORK/out")"

# Doubles behind a head of an odd length: columns leave 65 %.
mkdir "$WORK/fields"
"$PYTHON" - "$WORK/fields" <<-'END'
	import array, math, random, sys
	random.seed(4)
	head = b"a head of no known format"
	n = 1 << 18
	with open(sys.argv[1] + "/double.raw", "wb") as f:
	    f.write(head + array.array("d", [2 + math.sin(i / 700) + random.random() * 1e-7 for i in range(n)]).tobytes())
END
rm -rf "$STORE"
fs_mount
cp -r "$WORK/fields" "$MNT/"
sync "$MNT"/fields/*
"$compact" --budget 1000 --json "$MNT/fields" >"$WORK/out" || fail "compact fields: $?"
after=$(disk_kib "$STORE/packs")
[ "$after" -le $(($(plain_kib fields) * 60 / 100)) ] || fail "fields: $after of $(plain_kib fields) KiB: $(cat "$WORK/out")"
drop_caches
same fields compacted
fs_umount
fs_sound fields
