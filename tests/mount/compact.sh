#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-compact on a mount: ranks of two steps become smaller and keep their bytes, under every scheme, while they are read, after kill -9
# in the middle of it, of the daemon and of the command; what it says is right, and what it cannot do it says.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
compact=$CKPTFS_BUILD/tools/ckptfs-compact

# Checkpoints of four ranks in two steps, as safetensors: a field of doubles, one of floats, integers that count, and what no variable has. The
# head has an odd length, so that no element begins at a multiple of its size.
make_steps() { # DIRECTORY SEED
	"$PYTHON" - "$@" <<-'END'
		import array, json, math, os, random, struct, sys
		top, seed = sys.argv[1], int(sys.argv[2])
		random.seed(seed)
		n = 1 << 16
		for step in (100, 200):
		    os.makedirs(f"{top}/step-{step}", exist_ok=True)
		    for rank in range(4):
		        wave = [math.sin((rank * n + i + step + seed) / 700) for i in range(n)]
		        parts = {
		            "temperature": ("F64", array.array("d", [2 + x + random.random() * 1e-7 for x in wave])),
		            "velocity": ("F32", array.array("f", [x * 3 + random.random() * 1e-4 for x in wave])),
		            "id": ("I32", array.array("i", [rank * n + i * 2 + step for i in range(n)])),
		        }
		        head, data = {}, b""
		        for name, (kind, values) in parts.items():
		            bytes_ = values.tobytes()
		            head[name] = {"dtype": kind, "shape": [len(values)], "data_offsets": [len(data), len(data) + len(bytes_)]}
		            data += bytes_
		        text = json.dumps(head).encode()
		        text += b" " * (1 - (8 + len(text)) % 2)
		        with open(f"{top}/step-{step}/rank{rank}.safetensors", "wb") as f:
		            f.write(struct.pack("<Q", len(text)) + text + data)
	END
}
same() { diff -r "$WORK/steps" "$MNT/steps" || fail "$1: other bytes"; }
value() { "$PYTHON" -c 'import json,sys; print(eval(sys.argv[1], {"json": json, "d": json.load(open(sys.argv[2]))}))' "$1" "$WORK/out"; } # EXPRESSION
run() { "$compact" --budget 1000 --json "$@" >"$WORK/out" || fail "compact $*: $?"; }

make_steps "$WORK/steps" 1
sizes=()
for scheme in agnostic agnostic-block aware aware-block auto; do
	rm -rf "$STORE"
	fs_mount
	cp -r "$WORK/steps" "$MNT/"
	sync "$MNT"/steps/*/*
	before=$(disk_kib "$STORE/packs")
	run --dry-run --scheme "$scheme" "$MNT/steps"
	would=$(value 'd["after_bytes"]')
	[ "$(disk_kib "$STORE/packs")" = "$before" ] || fail "$scheme: a dry run has changed something"
	run --scheme "$scheme" "$MNT/steps"
	saved=$(value 'd["before_bytes"] - d["after_bytes"]')
	[ "$(value 'd["complete"] and d["files"] == 8 and abs(d["after_bytes"] - '"$would"') <= d["after_bytes"] // 10')" = True ] ||
		fail "$scheme: $(cat "$WORK/out")"
	after=$(disk_kib "$STORE/packs")
	[ $(((before - after) * 1024)) -ge $((saved * 9 / 10)) ] || fail "$scheme: of $saved bytes $((before - after)) KiB came back"
	sizes+=("$after")
	same "$scheme"
	drop_caches
	same "$scheme, from the disk"
	run --scheme "$scheme" "$MNT/steps"
	[ "$(value 'd["coded_bytes"]')" = 0 ] || fail "$scheme: coded twice"
	collect
	"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --place --quiet "$MNT" >/dev/null
	[ "$(disk_kib "$STORE/packs")" -le $((after + 64)) ] || fail "$scheme: a collection has undone it"
	same "$scheme, collected"
	fs_remount
	same "$scheme, mounted again"
	fs_umount
	fs_sound "$scheme"
done
[ "${sizes[2]}" -lt $((sizes[0] * 98 / 100)) ] || fail "aware: ${sizes[2]} KiB, agnostic: ${sizes[0]} KiB"
[ "${sizes[4]}" -le $((sizes[2] < sizes[3] ? sizes[2] * 102 / 100 : sizes[3] * 102 / 100)) ] || fail "auto is not the best: ${sizes[*]}"

# What it says of each variable.
fs_mount
run --scheme aware --dry-run "$MNT/steps"
keys=$(value '" ".join(v["key"] + ":" + v["type"] for v in d["variables"])')
[ "$keys" = "(no variable):B8 id_I32LE_Array1D:I32LE temperature_F64LE_Array1D:F64LE velocity_F32LE_Array1D:F32LE" ] || fail "other variables: $keys"
"$compact" --dry-run "$MNT/steps" | grep -q "^total" || fail "no table"
fs_umount

# What ckptfs-stat says of them afterwards, and to which users.
remembered() { # EXPRESSION
	"$CKPTFS_BUILD/tools/ckptfs-stat" --variables --json "$MNT" >"$WORK/out"
	[ "$(value "$1")" = True ] || fail "ckptfs-stat --variables: not true: $1: $(cat "$WORK/out")"
}
rm -rf "$STORE"
fs_mount
remembered 'd["kind"] == "variables" and d["variables"] == []'
cp -r "$WORK/steps" "$MNT/"
run --scheme aware-block "$MNT/steps/step-100"
run --scheme aware "$MNT/steps/step-200"
cp "$WORK/out" "$WORK/last"
fs_remount
remembered '[v["key"] for v in d["variables"]] == sorted(v["key"] for v in d["variables"])'
remembered '[v["scheme"] for v in d["variables"] if v["key"] != "(no variable)"] == ["aware"] * 3'
remembered 'all(v["ratio"] > 1 and v["mb_per_s"] > 0 and v["coder"] and v["encode_ns"] > 0 for v in d["variables"])'
# both steps, and the coder of the second one
remembered '[(v["key"], v["type"], v["coder"]) for v in d["variables"]] == [(v["key"], v["type"], v["coder"]) for v in json.load(open("'"$WORK/last"'"))["variables"] if v["coded_bytes"]]'
remembered '{v["key"]: v["coded_bytes"] for v in d["variables"]}["temperature_F64LE_Array1D"] > 2 * 3 * 65536 * 8'
exits 0 "$CKPTFS_BUILD/tools/ckptfs-stat" --variables "$MNT"
tells '^temperature_F64LE_Array1D  *F64LE .* aware  '
exits 1 "$CKPTFS_BUILD/tools/ckptfs-stat" --variables --users "$MNT"
exits 2 "$CKPTFS_BUILD/tools/ckptfs-stat" --variables "$WORK"
says "not on a ckptfs"
fs_umount

# Killed at any moment: the daemon, and the command. Readers beside it see nothing but the right bytes, and the next run returns the space that was left.
grown() { [ "$(disk_kib "$STORE/packs")" -gt $(($1 + 1024)) ] || ! running "$2"; } # KIB PID
for round in 1 2 3 4; do
	rm -rf "$STORE"
	fs_mount commit=1
	cp -r "$WORK/steps" "$MNT/"
	sync "$MNT"/steps/*/*
	before=$(disk_kib "$STORE/packs")
	"$compact" --budget 1000 --quiet --rate $((round * 8))M "$MNT/steps" >"$WORK/out" 2>&1 &
	pid=$!
	(while cmp -s "$WORK/steps/step-100/rank1.safetensors" "$MNT/steps/step-100/rank1.safetensors"; do :; done) 2>/dev/null &
	reader=$!
	[ $((round % 2)) = 1 ] || await grown "$before" $pid # some of it is coded
	sleep "0.$((RANDOM % 8 + 1))"
	if [ $((round % 3)) = 0 ]; then
		kill -KILL $pid 2>/dev/null || true # it may have ended
		wait $pid 2>/dev/null || true
		running $reader || fail "round $round: a reader met other bytes"
		kill $reader; wait $reader 2>/dev/null || true
		same "round $round, the command was killed"
		await "$compact" --budget 1000 --json "$MNT/steps" >"$WORK/out" # the daemon ends what it has begun
		fs_umount
	else
		running $reader || fail "round $round: a reader met other bytes"
		fs_kill
		wait $pid 2>/dev/null || true
		kill $reader 2>/dev/null || true; wait $reader 2>/dev/null || true
	fi
	fs_sound "round $round"
	fs_mount
	same "round $round"
	run "$MNT/steps"
	[ "$(value 'd["complete"]')" = True ] || fail "round $round: $(cat "$WORK/out")"
	same "round $round, compacted"
	fs_umount
	left=$(disk_kib "$STORE/packs")
	[ "$left" -le $((sizes[4] * 103 / 100)) ] || fail "round $round: $left KiB are left, ${sizes[4]} without an interruption"
	fs_sound "round $round, compacted"
done

# Names that have the rank in them are keys of their own, unless rules say that they mean the same.
make_named() { # DIRECTORY
	"$PYTHON" - "$1" <<-'END'
		import array, json, os, random, struct, sys
		random.seed(3)
		os.makedirs(sys.argv[1])
		for rank in range(4):
		    data = array.array("d", [i / 700 + random.random() * 1e-7 for i in range(1 << 14)]).tobytes()
		    head = json.dumps({f"rank_{rank}/t": {"dtype": "F64", "shape": [1 << 14], "data_offsets": [0, len(data)]}}).encode()
		    with open(f"{sys.argv[1]}/{rank}.safetensors", "wb") as f:
		        f.write(struct.pack("<Q", len(head)) + head + data)
	END
}
fs_mount
make_named "$WORK/named"
cp -r "$WORK/named" "$MNT/"
printf '# the same in all\nrank_(\\d+)/(.*)\t\\2\n' >"$WORK/rules"
keys() { value '[v["key"] for v in d["variables"] if "F64" in v["key"]]'; }
run --dry-run --scheme aware "$MNT/named"
[ "$(keys)" = "['rank_0/t_F64LE_Array1D', 'rank_1/t_F64LE_Array1D', 'rank_2/t_F64LE_Array1D', 'rank_3/t_F64LE_Array1D']" ] || fail "keys are $(keys)"
run --names "$WORK/rules" --scheme aware "$MNT/named"
[ "$(keys)" = "['t_F64LE_Array1D']" ] || fail "keys are $(keys)"
diff -r "$WORK/named" "$MNT/named"
echo 'rank_( x' >"$WORK/rules"
exits 1 "$compact" --names "$WORK/rules" "$MNT/named"
says "line 1"
exits 1 "$compact" --names "$WORK/nothing" "$MNT/named"
says "cannot be read"
fs_umount
fs_sound "named"

# What cannot be done is said.
fs_mount
exits 2 "$compact" "$WORK/steps/step-100"
says "not on a mounted ckptfs"
exits 2 "$compact" "$MNT/steps/step-100" "$WORK/steps/step-100"
says "same mount"
exits 2 "$compact" "$MNT/nothing"
says "No such file"
mkfifo "$MNT/pipe" # which would block it
exits 2 "$compact" "$MNT/pipe"
says "neither a file nor a directory"
exits 2 "$compact" --pause "$MNT/pipe"
exits 1 "$compact" --scheme best "$MNT/steps"
says "scheme"
exits 1 "$compact" --block 100 "$MNT/steps"
says "block"
exits 1 "$compact" --budget 0 "$MNT/steps"
says "budget"
exits 1 "$compact"
says "must be given"
mkdir "$MNT/empty"
exits 2 "$compact" "$MNT/empty"
says "no files"
exits 0 "$compact" --help
printf '\x40\0\0\0\0\0\0\0{"a":{"dtype":"F64","shape":[9999],"data_offsets":[0,10]}}' >"$MNT/liar.safetensors"
exits 0 "$compact" "$MNT/liar.safetensors"
tells "^total"
"$compact" --quiet "$MNT" >"$WORK/out" 2>&1 & # beside a writer
cp -r "$WORK/steps" "$MNT/more"
wait $! || fail "beside a writer: $(cat "$WORK/out")"
diff -r "$WORK/steps" "$MNT/more"
same "beside a writer"
fs_remount ro
exits 2 "$compact" "$MNT/steps"
says "mounted read-only; only --dry-run is possible"
[ ! -s "$WORK/out" ] || fail_showing "prints figures of nothing"
exits 0 "$compact" --dry-run "$MNT/steps"
tells "^total"
fs_umount
