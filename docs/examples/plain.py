#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Usage: plain.py DIRECTORY STEPS: a computation that can be stopped at any moment and goes on from its last checkpoint."""
import pickle
import random
import sys

import ckptfs

top, steps = sys.argv[1], int(sys.argv[2])
last = ckptfs.newest(top)
if last is None:
    step, state = 0, {"random": random.Random(7).getstate(), "sum": 0.0}
else:
    with open(last.path / "state", "rb") as f:
        step, state = pickle.load(f)

rng = random.Random()
while step < steps:
    rng.setstate(state["random"])
    step, state = step + 1, {"sum": state["sum"] + rng.random(), "random": rng.getstate()}
    with ckptfs.checkpoint(f"{top}/step.{step:04}") as where:  # complete, or absent
        with open(where / "state", "wb") as f:
            pickle.dump((step, state), f)
print(f"after step {step}: {state['sum']:.6f}")
