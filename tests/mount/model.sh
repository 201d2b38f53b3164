#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The random tester (model.c) on a mount, with the remounts and kills of the daemon that it asks for, while garbage is
# collected all the time. In every other run all files are cut by content.
#   MODEL_RUNS  runs, separated by spaces, each WORKERS:OPERATIONS-PER-PHASE:PHASES (model.c tells the letters)
#   TEST_SEED   of the first run; the tester prints it
. "$(dirname "$0")/lib.sh"
need_root

if plain; then
	: "${MODEL_RUNS:=1:5000:nr 4:10000:nrr}"
else
	: "${MODEL_RUNS:=1:3000:rkKKr 4:6000:nrkKr 2:5000:rKKk}"
fi
seed=${TEST_SEED:-1}
model=$(program model)

run() { # WORKERS OPERATIONS PHASES SEED
	local line code=0
	rm -rf "$MNT/model"
	mkdir "$MNT/model"
	case $(($4 % 3)) in
	1) plain || setfattr -n user.ckptfs.chunking -v cdc "$MNT/model" ;;
	2) plain || setfattr -n user.ckptfs.chunking -v auto "$MNT/model" ;;
	esac
	rm -f "$WORK/in" "$WORK/out"
	mkfifo "$WORK/in" "$WORK/out"
	"$model" --dir "$MNT/model" --workers "$1" --ops "$2" --phases "$3" --seed "$4" <"$WORK/in" >"$WORK/out" &
	local pid=$!
	exec 8>"$WORK/in" 9<"$WORK/out"
	while read -r line <&9; do
		case $line in
		remount)
			fs_remount commit=1
			echo go >&8
			;;
		kill)
			sleep "$((RANDOM % 3)).$((RANDOM % 900 + 100))"
			daemon_kill
			;;
		dead)
			fs_kill
			fs_sound "after a kill"
			fs_mount commit=1
			echo go >&8
			;;
		*) echo "$line" ;;
		esac
	done
	exec 8>&- 9<&-
	wait "$pid" || code=$?
	[ "$code" = 0 ] || fail "the model and the mount differ (exit code $code)"
}

fs_mount commit=1
collect_on
for spec in $MODEL_RUNS; do
	IFS=: read -r workers ops phases <<<"$spec"
	run "$workers" "$ops" "$phases" "$seed"
	seed=$((seed + 1))
done
fs_umount
fs_sound "at the end"
