#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Checkpoints of several ranks find the step before theirs, whichever number of the name is the step, also after a remount:
# then hardly anything is looked up in the index.
. "$(dirname "$0")/lib.sh"
need_mount

ranks=3 mib=4
for r in $(seq $ranks); do head -c ${mib}M /dev/urandom >"$WORK/data$r"; done

# series STEP-1 STEP-2, %s standing for the rank: of the second step all is the champion's
series() {
	local r before same
	for r in $(seq $ranks); do
		mkdir -p "$(dirname "$MNT/$(printf "$1" "$r")")"
		cp "$WORK/data$r" "$MNT/$(printf "$1" "$r")"
	done
	[ -z "${remount:-}" ] || fs_remount
	before=$(figure written_by_cause.previous_bytes)
	for r in $(seq $ranks); do
		mkdir -p "$(dirname "$MNT/$(printf "$2" "$r")")"
		cp "$WORK/data$r" "$MNT/$(printf "$2" "$r")"
		cmp "$WORK/data$r" "$MNT/$(printf "$2" "$r")"
	done
	same=$(($(figure written_by_cause.previous_bytes) - before))
	[ "$same" -ge $((ranks * mib << 20)) ] || fail "$1 and $2: only $same bytes as the champion's"
}

fs_mount
for remount in '' yes; do
	d=d$remount
	mkdir "$MNT/$d"
	series "$d/a-%s.0001" "$d/a-%s.0002"
	series "$d/step0001-rank%s.bin" "$d/step0002-rank%s.bin"
	series "$d/global_step1/rank_%s.pt" "$d/global_step2/rank_%s.pt"
	series "$d/c_20261115_0600_%s" "$d/c_20261115_0601_%s"
done
fs_umount
echo "ok"
