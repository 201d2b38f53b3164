#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What has come while an agent napped it hears at once, and not after another nap.
set -euo pipefail
wakeup=${CKPTFS_BUILD:?is the build directory and must be set}/tests/cluster/wakeup
[ -x "$wakeup" ] || { echo "skipped: built without MPI"; exit 77; }
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
[ "$(id -u)" != 0 ] || root=--allow-run-as-root
for btl in vader tcp; do
	timeout 300 mpirun ${root:-} --oversubscribe --mca btl self,$btl --mca btl_tcp_if_include lo -n 2 "$wakeup" "$dir/$btl"
done
