#!/bin/bash
# DMTCP, unchanged, with its images in the mount: a program with threads is checkpointed twice and restarted from the last, and goes on from there; its memory is known by
# kind. $DMTCP is where it is installed; or it is on the PATH.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
PATH=${DMTCP:+$DMTCP/bin:}$PATH
need dmtcp_launch dmtcp_restart dmtcp_command

mib=8
fs_mount
export DMTCP_COORD_HOST=localhost DMTCP_GZIP=0 DMTCP_CHECKPOINT_DIR=$MNT/images DMTCP_TMPDIR=$WORK
mkdir "$MNT/images"
dmtcp_coordinator --daemon --exit-on-last -p 0 --port-file "$WORK/port" -i 0 >"$WORK/said" 2>&1 || fail_showing "dmtcp_coordinator"
DMTCP_COORD_PORT=$(cat "$WORK/port")
export DMTCP_COORD_PORT
counted() { cut -d ' ' -f 2 "$WORK/count.0"; }
differs() { [ "$(cat "$WORK/count.0")" != "$ended" ]; }
more_than() { [ "$(counted)" -gt "$1" ]; }

dmtcp_launch --no-gzip "$(program worker)" "$WORK/count" $mib 2 0 </dev/null >"$WORK/launched" 2>&1 &
await more_than 3
for _ in 1 2; do
	dmtcp_command --bcheckpoint >"$WORK/said" 2>&1 || fail_showing "dmtcp_command"
done
last=$(counted)
await more_than "$last"
dmtcp_command --kill >/dev/null 2>&1
wait || true
image=$(ls "$MNT"/images/*.dmtcp)
exits 0 "$CKPTFS_BUILD/tools/ckptfs-analyze" --images --json "$image"
"$PYTHON" - "$WORK/out" $mib "$(stat -c %s "$image")" <<'EOT' || fail "ckptfs-analyze --images: not as it must be"
import json, sys
k = {k["kind"]: k for k in json.load(open(sys.argv[1]))["images"]["together"]}
assert {"heap", "stack", "code", "library", "anonymous"} <= set(k), set(k)
assert k["anonymous"]["deduplicated_bytes"] >= int(sys.argv[2]) << 20 and k["all"]["original_bytes"] == int(sys.argv[3])
EOT

fs_remount
ended=$(cat "$WORK/count.0")
dmtcp_coordinator --daemon --exit-on-last -p 0 --port-file "$WORK/port" -i 0 >"$WORK/said" 2>&1 || fail_showing "dmtcp_coordinator"
DMTCP_COORD_PORT=$(cat "$WORK/port")
dmtcp_restart "$image" </dev/null >"$WORK/restarted" 2>&1 &
await differs
await more_than "$last"
grep -q '^right' "$WORK/count.0" || fail "after a restart: $(cat "$WORK/count.0")"
dmtcp_command --kill >/dev/null 2>&1
wait || true
fs_umount
echo "ok"
