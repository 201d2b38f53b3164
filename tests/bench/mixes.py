# SPDX-License-Identifier: GPL-3.0-or-later
"""The group mixes of ./bench: data sets of space and aware, and velocity fields, stored with every mix of chunking and compression, and compacted.

A store must not grow by compacting, what is said to be saved must be, and data that was compressed when written must not
take more in the end than other data. ckptfs-analyze must predict what stores take, before and after, and recommend what is
smallest. Small sizes suffice for that, and so there are no memory images, of which each has 250 MiB (criu has some).
"""
import json
import os
import shutil
import subprocess

import aware
import backup
import space
from common import tool

SETS = [name for name in dict.fromkeys(space.SETS + aware.SETS + ["velocity"]) if name != "images"]
LIMIT_OFF = 0.05  # of a store: how far ckptfs-analyze may be off
LIMIT_RECOMMENDED = 1.02  # x the smallest of all: 1 % is given away for less work, and 1 % is how near predictions are


def steps_of(data):
    """Directories of steps, or all of it where files lie in one."""
    steps = space.steps_of(data)
    return steps if all(os.path.isdir(step) for step in steps) else [data]


def analyze(base, data):
    """What ckptfs-analyze predicts: by options, bytes before and after compacting; and what it recommends."""
    out = subprocess.run([tool("ckptfs-analyze"), "--quiet", "--json", "--budget", str(space.BUDGET), data], check=True,
                         stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": base}).stdout
    j = json.loads(out)
    stores = {s["options"]: {"before": s["store_bytes"], "after": s["compacted_bytes"]} for s in j["measured"]["stores"]}
    return {"stores": stores, "recommended": j["recommended"]}


def compare(predicted, compacted):
    """Against what was measured: the farthest that it is off, and what it recommends against the best."""
    found = {f"chunking={r['chunking']},compress={r['compress']}": r for r in compacted}
    off = {f"{options}, {when}": store[when] / found[options][when] - 1 for options, store in predicted["stores"].items() for when in store}
    farthest = max(off, key=lambda name: abs(off[name]))
    best, its_name = min((r[when], f"{name}, {when}") for name, r in found.items() for when in ("before", "after"))
    options, compact = predicted["recommended"]["options"], predicted["recommended"]["compact"]
    ratio = found[options]["after" if compact else "before"] / best
    print(f"    ckptfs-analyze: at most {100 * off[farthest]:+.1f} % off, {farthest} (<= {100 * LIMIT_OFF:.0f} %"
          f"{'' if abs(off[farthest]) <= LIMIT_OFF else ' MISSED'}); recommends {options}{', compacted' if compact else ''}: "
          f"{ratio:.3f} x the smallest, {its_name} (<= {LIMIT_RECOMMENDED}{'' if ratio <= LIMIT_RECOMMENDED else ' MISSED'})", flush=True)
    return {"off": off, "recommended_x_smallest": ratio, "smallest": its_name}


def run(base, size, sets, others):
    """others: whether other programs than ckptfs take part."""
    print("mixes", flush=True)
    result = {"sets": {}}
    for name in sets:
        data = os.path.join(base, name)
        why = aware.make(name, data, size)
        if why:
            print(f"  {name}: left out: {why}", flush=True)
            result["sets"][name] = {"skipped": why}
            shutil.rmtree(data, ignore_errors=True)
            continue
        steps = steps_of(data)
        print(f"  {name}: {backup.du(data) / 2**20:.1f} MiB", flush=True)
        rivals = space.backup_rows(base, steps, backup.COMPRESSED if others else [])
        compacted, predicted = space.compacted_rows(base, steps, rivals), analyze(base, data)
        result["sets"][name] = {"others": rivals, "compacted": compacted, "analyze": {**predicted, **compare(predicted, compacted)}}
        shutil.rmtree(data)
    return result
