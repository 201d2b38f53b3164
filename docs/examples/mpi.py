#!/usr/bin/env python3
"""Usage: mpirun -n 4 mpi.py DIRECTORY STEPS: each rank writes its part, and when all have, rank 0 makes it one checkpoint. One node, or one mount for each rank's node."""
import os
import sys

import ckptfs
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
top, steps = sys.argv[1], int(sys.argv[2])
last = world.bcast(ckptfs.newest(top) if world.rank == 0 else None)  # all of them begin at the same step
if last is None:
    step, mine = 0, np.random.default_rng(world.rank).random(100_000)
else:
    step = int(last.path.name.split(".")[1])
    mine = np.load(last.path / f"rank{world.rank}.npy")

while step < steps:
    mine[step::100] *= 1.01  # a hundredth of it
    step += 1
    where = f"{top}/step.{step:04}"
    if world.rank == 0:
        os.makedirs(where, exist_ok=True)  # what a crash has left is not sealed, and written anew
    world.Barrier()
    np.save(f"{where}/rank{world.rank}.npy", mine)
    world.Barrier()  # all parts are there, and closed
    if world.rank == 0:
        ckptfs.seal(where)
    world.Barrier()
total = world.reduce(mine.sum())
if world.rank == 0:
    print(f"after step {step}: {total:.6f}")
