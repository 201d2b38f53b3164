# SPDX-License-Identifier: GPL-3.0-or-later
"""The group ten of ./bench: ten checkpoints of some workloads, and what they take on the disk, after each of them: as plain
files, and in a store. docs/pictures draws it."""
import os
import shutil

import backup
import space
from common import sh

# Title, as the picture has it.
SETS = {"finetune": "fine-tuning, frozen base",
        "simulation": "simulation, 5 % of pages change",
        "dense": "training, every weight changes"}


def measure(base, name, size):
    data, plain = os.path.join(base, "data"), os.path.join(base, "plain")
    why = space.make(name, data, size)
    if why:
        print(f"  {name}: left out: {why}", flush=True)
        return {"skipped": why}
    os.mkdir(plain)
    steps, as_files, stored = space.steps_of(data), [], []
    store = space.Store(base)
    try:
        for number, step in enumerate(steps):
            if number > 0:
                store.rival.mount()
            store.write([step])
            stored.append(store.take()[0])
            shutil.move(step, plain)
            as_files.append(backup.du(plain))
        store.check(space.steps_of(plain))
    finally:
        store.close()
    shutil.rmtree(data)
    shutil.rmtree(plain)
    print(f"  {SETS[name]:44}{as_files[-1] / 2**20:10.1f} MiB as files, {stored[-1] / 2**20:10.1f} MiB in ckptfs, "
          f"{as_files[-1] / stored[-1]:.2f} x less", flush=True)
    return {"title": SETS[name], "plain": as_files, "ckptfs": stored}


def run(base, size, sets):
    print("ten", flush=True)
    sh("sync")
    return {"size_mib": size, "sets": {name: measure(base, name, size) for name in sets}}
