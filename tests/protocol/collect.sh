#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Every interleaving of the collector's protocol (gc.pml); and each step of it left out must be found out.
set -euo pipefail
cd "$(dirname "$0")"
command -v spin >/dev/null || { echo "skipped: spin is not installed"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/ckptfs-protocol.XXXXXX")
trap 'rm -rf "$work"' EXIT
model=$PWD/gc.pml

# errors [-DSTEP]: how many spin finds, all states visited
errors() {
	(cd "$work" && rm -f pan* && spin -a ${1:+"$1"} "$model" && cc -O2 -DSAFETY -w -o pan pan.c && ./pan -m100000) >"$work/out"
	grep -q 'max search depth too small' "$work/out" && { cat "$work/out"; exit 1; }
	sed -n 's/.*errors: *//p' "$work/out"
}

[ "$(errors)" = 0 ] || { cat "$work/out"; echo "FAILED: the protocol loses data"; exit 1; }
grep 'states, stored' "$work/out"
for step in NO_PENDING NO_MARK NO_WAIT NO_KEEP NO_FORGET NO_WAIT2 NO_WAIT3; do
	[ "$(errors "-D$step")" -gt 0 ] || { echo "FAILED: $step makes no difference: the model proves nothing"; exit 1; }
done
