#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# libckptfs-gpu and its Python module on a mount, without a GPU: what both promise, and that the CPU is said to do it.
. "$(dirname "$0")/lib.sh"
need_mount

lineage=$(program lineage)
fs_mount
mkdir "$WORK/other"
"$lineage" "$MNT" "$WORK/other" 2>"$WORK/said" || { tail -n 20 "$WORK/said" >&2; exit 1; }
grep -q 'warning lineage .*on the CPU' "$WORK/said" || fail "nobody was told that the CPU does it"
echo "ok the library keeps its promises"

export CKPTFS_GPU_LIBRARY=$CKPTFS_BUILD/gpu/libckptfs-gpu.so.0 PYTHONPATH=$HERE/../../gpu/lib PYTHONDONTWRITEBYTECODE=1
if [ -n "${CKPTFS_SANITIZED:-}" ] || ldd "$CKPTFS_GPU_LIBRARY" | grep 'lib[at]san' >/dev/null; then # all of it: with -q ldd may be killed, and that fails
	echo "ok (the interpreter has no sanitizer: the module is tested in the plain tree)"
	exit 0
fi
run() { # [OPTION]: lineage.py, which may hang where it should not
	timeout 600 "$PYTHON" "$HERE/lineage.py" "$@" "$MNT/python" 2>"$WORK/said" || { tail -n 20 "$WORK/said" >&2; exit 1; }
}
run
fs_remount
run --again
echo "ok the Python module keeps its promises"

[ "$(run --exit)" = "told 1 None" ] || fail "a save that was under way at the end was not told of"
echo "ok the interpreter ends when what is under way has ended"

mkfifo "$WORK/is-back"
run --restart <"$WORK/is-back" >"$WORK/restart" &
trainer=$!
exec 3>"$WORK/is-back"
until grep -q now "$WORK/restart"; do
	running "$trainer" || fail "lineage.py --restart ended early"
	sleep 0.1
done
fs_kill
fs_mount
echo >&3
wait "$trainer" || fail "a handle did not outlive its daemon"
exec 3>&-
echo "ok a handle outlives its daemon"

fs_remount ro
run --read-only
echo "ok what needs no writing works on a mount that is read-only"
