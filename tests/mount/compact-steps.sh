#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-compact on a mount with several steps of a variable: coded one against the other they are far smaller, and every one of them keeps its bytes
# whichever others are deleted, overwritten, collected and moved, and after kill -9 in the middle of any of it.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
compact=$CKPTFS_BUILD/tools/ckptfs-compact

# Six steps of two ranks, as safetensors: weights that change in their last bits, and noise that is new in each step.
make_steps() { # DIRECTORY
	"$PYTHON" - "$@" <<-'END'
		import array, json, os, random, struct, sys
		random.seed(3)
		n = 100000
		for rank in range(2):
		    weights = [random.gauss(0, 1) for i in range(n)]
		    for step in range(1, 7):
		        os.makedirs(f"{sys.argv[1]}/step-{step}", exist_ok=True)
		        weights = [w + random.gauss(0, 1e-12) for w in weights]
		        parts = {"weights": array.array("d", weights), "noise": array.array("d", [random.random() for i in range(n // 4)])}
		        head, data = {}, b""
		        for name, values in parts.items():
		            bytes_ = values.tobytes()
		            head[name] = {"dtype": "F64", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(bytes_)]}
		            data += bytes_
		        text = json.dumps(head).encode()
		        with open(f"{sys.argv[1]}/step-{step}/rank{rank}.safetensors", "wb") as f:
		            f.write(struct.pack("<Q", len(text)) + text + data)
	END
}
same() { # WHAT STEP...
	local what=$1 step
	shift
	for step in "$@"; do
		diff -r "$WORK/steps/step-$step" "$MNT/steps/step-$step" || fail "$what: step $step has other bytes"
	done
}
run() { "$compact" --budget 1000 --json "$@" >"$WORK/out" || fail "compact $*: $?"; }
value() { "$PYTHON" -c 'import json,sys; print(eval(sys.argv[1], {"d": json.load(open(sys.argv[2]))}))' "$1" "$WORK/out"; } # EXPRESSION
begin() {
	rm -rf "$STORE"
	fs_mount commit=1
	cp -r "$WORK/steps" "$MNT/"
	sync "$MNT"/steps/*/*
}
move_all() { "$CKPTFS_BUILD/tools/ckptfs-gc" --delete --place --move-below 100 --quiet "$MNT" >/dev/null; }

make_steps "$WORK/steps"
begin
run --chain 0 "$MNT/steps"
isolated=$(disk_kib "$STORE/packs")
fs_umount
begin
run "$MNT/steps"
coder=$(value '[v["coder"] for v in d["variables"] if v["key"].startswith("weights")][0]')
[[ $coder == *-base* ]] || fail "weights are coded by themselves: $coder"
together=$(disk_kib "$STORE/packs")
[ "$together" -lt $((isolated * 7 / 10)) ] || fail "together $together KiB, by themselves $isolated"
same "compacted" 1 2 3 4 5 6
drop_caches
same "from the disk" 1 2 3 4 5 6
run "$MNT/steps"
[ "$(value 'd["coded_bytes"]')" = 0 ] || fail "coded twice: $(cat "$WORK/out")"
"$CKPTFS_BUILD/tools/ckptfs-scrub" -q "$MNT" >/dev/null || fail "scrub finds damage"

# The newest, which others are coded against, goes; then one in the middle is overwritten.
rm -r "$MNT/steps/step-5"
collect
same "step 5 is gone" 1 2 3 4 6
fs_remount
same "mounted again" 1 2 3 4 6
head -c 500000 /dev/urandom >"$WORK/other"
dd if="$WORK/other" of="$MNT/steps/step-3/rank0.safetensors" bs=100000 seek=1 conv=notrunc status=none
collect
same "step 3 is overwritten" 1 2 4 6
fs_kill
fs_sound "killed"
fs_mount
same "killed" 1 2 4 6
move_all
same "moved" 1 2 4 6
rm -r "$MNT/steps/step-3" "$MNT/steps/step-1"
move_all
same "moved again" 2 4 6
fs_umount
fs_sound "moved"
# An index made from packs and journal finds all of it.
rm -rf "$STORE/index"
exits 1 "$CKPTFS_BUILD/tools/fsck.ckptfs" --rebuild "$STORE" # mended
fs_mount
same "rebuilt" 2 4 6
rm -r "$MNT/steps"
collect
fs_umount
fs_sound "all gone"

# Killed while steps are coded together, or moved, or given up.
for round in 1 2 3 4; do
	begin
	if [ $((round % 2)) = 0 ]; then
		run "$MNT/steps"
		rm -r "$MNT/steps/step-5" "$MNT/steps/step-2"
		"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --place --move-below 100 --rate 20M --quiet "$MNT" >/dev/null 2>&1 &
	else
		"$compact" --quiet --rate 20M "$MNT/steps" >/dev/null 2>&1 &
	fi
	pid=$!
	sleep "0.$((RANDOM % 8 + 1))"
	fs_kill
	wait $pid 2>/dev/null || true
	fs_sound "round $round"
	fs_mount
	same "round $round" 1 3 4 6
	run "$MNT/steps"
	move_all
	same "round $round, compacted" 1 3 4 6
	fs_umount
	fs_sound "round $round, compacted"
done

fs_mount
exits 1 "$compact" --chain 16 "$MNT/steps"
says "chain"
exits 1 "$compact" --chain x "$MNT/steps"
says "chain"
fs_umount
