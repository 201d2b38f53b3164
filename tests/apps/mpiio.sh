#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# MPI-IO by 4 ranks into one file.
. "$(dirname "$0")/../mount/lib.sh"
need mpicc mpirun

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
run() { mpirun --oversubscribe -np 4 "$WORK/mpiio" "$@" 2>"$WORK/mpi.log" || { cat "$WORK/mpi.log" >&2; fail "mpiio $*"; }; }

mpicc -O1 -Wall -o "$WORK/mpiio" "$(dirname "$0")/mpiio.c" || fail "mpiio.c does not compile"
fs_mount
run "$MNT/data"
fs_remount
run "$MNT/data" --read-only
fs_umount
