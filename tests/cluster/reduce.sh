#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The reduction of a round over real MPI ranks: any number of them, powers of two or not.
set -euo pipefail
reduce=${CKPTFS_BUILD:?is the build directory and must be set}/tests/cluster/reduce
[ -x "$reduce" ] || { echo "skipped: built without MPI"; exit 77; }
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }

[ "$(id -u)" != 0 ] || root=--allow-run-as-root
for ranks in 1 2 3 5 8 13; do
	mpirun ${root:-} --oversubscribe --mca btl self,vader -n $ranks "$reduce" 1 2 3 4 5 6
done
