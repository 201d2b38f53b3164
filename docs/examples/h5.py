#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Usage: h5.py DIRECTORY STEPS: a heat equation, its state in HDF5. A step is a clone of the one before in which only what changes is written."""
import sys

import ckptfs
import h5py
import numpy as np

top, steps = sys.argv[1], int(sys.argv[2])
last = ckptfs.newest(top)
if last is None:
    step, heat = 0, np.zeros((512, 512))
    heat[200:300, 200:300] = 100.0
else:
    with h5py.File(last.path / "state.h5") as f:
        step, heat = int(f.attrs["step"]), f["heat"][...]

while step < steps:
    heat[1:-1, 1:-1] += 0.1 * (heat[2:, 1:-1] + heat[:-2, 1:-1] + heat[1:-1, 2:] + heat[1:-1, :-2] - 4 * heat[1:-1, 1:-1])
    step += 1
    with ckptfs.checkpoint(f"{top}/step.{step:04}") as where:
        if last is not None:
            ckptfs.clone(last.path / "state.h5", where / "state.h5")
        with h5py.File(where / "state.h5", "a") as f:
            data = f.require_dataset("heat", heat.shape, heat.dtype, exact=True)
            rows = np.flatnonzero(np.any(data[...] != heat, axis=1))
            if rows.size:
                data[rows[0] : rows[-1] + 1] = heat[rows[0] : rows[-1] + 1]
            f.attrs["step"] = step
    last = ckptfs.newest(top)
print(f"after step {step}: {heat.sum():.3f} in all, {heat.max():.3f} at most")
