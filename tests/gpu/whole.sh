#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The whole path, from device memory to files of a mount and back, by three programs: what a plain read of any version gives is what
# the program had, whatever happened to the daemon and the program meanwhile. Needs a GPU, and python3 with PyTorch for two of them.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
nvidia-smi -L >/dev/null 2>&1 || skip "no GPU here"

pattern=$CKPTFS_BUILD/tests/gpu/pattern
[ -x "$pattern" ] || skip "built without CUDA"
export CKPTFS_GPU_LIBRARY=$CKPTFS_BUILD/gpu/libckptfs-gpu.so.0 PYTHONPATH=$HERE/../gpu:$HERE/../../gpu/lib PYTHONDONTWRITEBYTECODE=1
HERE=$HERE/../gpu
EXPECT=$WORK/expect
mkdir -p "$EXPECT/pattern" "$EXPECT/train" "$EXPECT/graph"

fs_mount
"$pattern" make "$MNT/pattern" "$EXPECT/pattern" 1 20 "${MIB:-96}"
"$pattern" check "$MNT/pattern" "$EXPECT/pattern"
cmp -n $((${MIB:-96} << 20)) "$MNT/pattern/000017" "$EXPECT/pattern/000017.data"
echo "ok a program in C: every version is what it had"

fs_kill # each was durable when it was said to be complete
fs_sound "after kill -9"
fs_mount
[ "$("$pattern" check "$MNT/pattern" "$EXPECT/pattern")" = "20 versions" ] || fail "versions are missing after kill -9"
echo "ok also after kill -9 of the daemon"

code=0
"$pattern" die "$MNT/pattern" "$EXPECT/pattern" 21 24 "${MIB:-96}" || code=$?
[ "$code" = 137 ] || fail "the program should have been killed, not ended with $code"
[ "$(find "$MNT/pattern" -mindepth 1 | wc -l)" = 23 ] || fail "a program that died between BEGIN and COMMIT left something"
"$pattern" make "$MNT/pattern" "$EXPECT/pattern" 24 25 "${MIB:-96}"
[ "$("$pattern" check "$MNT/pattern" "$EXPECT/pattern")" = "25 versions" ] || fail "versions are missing"
echo "ok a program that dies between BEGIN and COMMIT leaves nothing, and the next one goes on"

rm "$MNT"/pattern/0000{01,03,05,07,09,11,13,15,17,19,21}
collect
fs_remount
[ "$("$pattern" check "$MNT/pattern" "$EXPECT/pattern")" = "14 versions" ] || fail "versions are missing after others were deleted"
echo "ok versions do not need those that are deleted"

if ! python3 -c 'import torch' 2>/dev/null; then
	echo "skipped: python3 has no PyTorch: the training loop and the graph were not run"
	exit 77
fi
python3 "$HERE/arrays.py" "$MNT/arrays"
echo "ok arrays of every kind"
for workload in train graph; do
	python3 "$HERE/$workload.py" make "$MNT/$workload" "$EXPECT/$workload"
	python3 "$HERE/$workload.py" check "$MNT/$workload" "$EXPECT/$workload"
	echo "ok $workload.py: every version is what it had"
done
fs_kill
fs_sound "after kill -9"
fs_mount
python3 "$HERE/train.py" check "$MNT/train" "$EXPECT/train"
python3 "$HERE/graph.py" check "$MNT/graph" "$EXPECT/graph"
"$CKPTFS_BUILD/tools/ckptfs-stat" "$MNT" | head -n 6
fs_umount
echo "ok also after kill -9 of the daemon"
