#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Usage: mpirun -n 4 mpi.py DIRECTORY STEPS: each rank writes its part, and when all have, each node makes its parts one checkpoint.

One node, or several with a mount on each; then ranks are where they were when it goes on.
"""
import os
import shutil
import sys

import ckptfs
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
node = world.Split_type(MPI.COMM_TYPE_SHARED)  # the ranks that share a mount
top, steps = sys.argv[1], int(sys.argv[2])


def number(sealed):
    return int(sealed.path.name.split(".")[1])


last = ckptfs.newest(top)
here = number(last) if last is not None else 0
step = world.allreduce(here, MPI.MIN)  # what all nodes have
if world.allreduce(here, MPI.MAX) > step + 1:
    sys.exit("a node has lost its checkpoints")
if node.rank == 0 and here > step:  # a crash before others had sealed it, too
    ckptfs.unseal(last.path)
    shutil.rmtree(last.path)
if step == 0:
    mine = np.random.default_rng(world.rank).random(100_000)
else:
    mine = np.load(f"{top}/step.{step:04}/rank{world.rank}.npy")

while step < steps:
    mine[step::100] *= 1.01  # a hundredth of it
    step += 1
    where = f"{top}/step.{step:04}"
    if node.rank == 0:
        os.makedirs(where, exist_ok=True)  # what a crash has left is not sealed, and is overwritten
    node.Barrier()
    np.save(f"{where}/rank{world.rank}.npy", mine)
    world.Barrier()  # all parts are there, and closed
    if node.rank == 0:
        ckptfs.seal(where)
    world.Barrier()
total = world.reduce(mine.sum())
if world.rank == 0:
    print(f"after step {step}: {total:.6f}")
