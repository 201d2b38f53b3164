#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A test that runs alone (tests/isolated) does not keep others from unmounting: it has their mounts no more than it has their processes.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

fs_mount
"$HERE/../isolated" sh -c 'echo begun; exec sleep 1000' >"$WORK/said" 2>&1 &
other=$!
await grep -q begun "$WORK/said"
fs_umount # waits for the daemon, which ends with the last of its mounts
kill -0 $other || fail "that test has ended meanwhile: $(cat "$WORK/said")"
kill -KILL $other # and all that it has started ends with it
