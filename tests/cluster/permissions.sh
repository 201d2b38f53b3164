#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Replicas below .ckptfs/nodes: each kind of caller gets the bytes of exactly those files that open(2) would give on another
# filesystem, by each request that gives bytes, and can change nothing.
. "$(dirname "$0")/nodes.sh"
[ "$(id -u)" = 0 ] || skip "needs root"
chmod 755 "$TOP" # other users reach the mountpoints
setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$TOP" || skip "other users cannot reach $TOP"
permissions=$BUILD/tests/mount/permissions

for i in 0 1; do node_start $i; done
agents_start 0 1
mkdir "$TOP/mnt/0/kinds" "$TOP/plain"
code=0
"$permissions" "$TOP/mnt/0/kinds" make >"$TOP/said" || code=$?
[ $code != 77 ] || skip "$(cat "$TOP/said")"
[ $code = 0 ] || fail "permissions exited with $code"
"$BUILD/tools/ckptfs-seal" "$TOP/mnt/0/kinds" >/dev/null || fail "cannot seal"
name=$(find "$TOP/mnt/0/.ckptfs/nodes/" -mindepth 1 -maxdepth 1 -type l -printf '%f\n')
replica=$TOP/mnt/1/.ckptfs/nodes/$name/kinds
ls "$replica" >"$TOP/said" || fail "$replica cannot be listed"
"$permissions" "$replica" "$TOP/plain" replicas "$TOP/mnt/1" || fail "permissions exited with $?"
agents_end
umount "$TOP/mnt/0" "$TOP/mnt/1"
for i in 0 1; do wait "${DAEMONS[$i]}" || fail "daemon $i: exit status $?"; done
DAEMONS=()
