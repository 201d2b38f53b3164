#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#flux: --job-name=solver
#flux: --nodes=4
#flux: --time-limit=24h
ckptfs-run --store /local/solver.store --mount /tmp/ckpt.%j -o cluster=/local/solver.key \
	--nodes "$(flux getattr size)" \
	--signal-before 2m --flush-to /scratch/solver/%h \
	sh -c 'exec flux run --nodes=4 --tasks-per-node=32 ./solver --checkpoints "$CKPTFS_MOUNT"'
