# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints of process memory: the memory benchmark of AI-Ckpt (tests/bench/memory.c), its modes beside each other and beside a
program that takes none."""
import json
import os
import shutil
import subprocess

import cluster
from common import BUILD, ckptfs

MEMORY = os.path.join(BUILD, "tests/bench/memory")
RATE = 60_000_000  # bytes per second: the disks of the paper
PACE = 0.7  # what the program computes per page beside what the store takes for one, as its figures say (docs/performance.md)
TOUCH_US = 3  # of a page, byte by byte
MODES = ["sync", "async", "adaptive", "predictive"]
ORDERS = ["ascending", "random", "descending"]
PARTS = ["modes", "unlimited", "cow", "unaligned", "tracking", "scaling"]
COW = [0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1]  # of the memory


def memory(mount=None, mode="adaptive", tracking="mprotect", cow=None, rate=0, **options):
    """One run; figures. With a mount: checkpoints are taken into it. Tracking is the paper's unless told."""
    command = [MEMORY]
    for key, value in options.items():
        command += [f"--{key.replace('_', '-')}"] + ([] if value is True else [str(value)])
    environment = dict(os.environ, CKPTFS_MODE=mode, CKPTFS_TRACKING=tracking)
    if mount:
        where = os.path.join(mount, "run")
        command += ["--dir", where]
        environment |= {"CKPTFS_RATE": str(rate)} if rate else {}
        environment |= {"CKPTFS_COW": str(int(cow))} if cow is not None else {}
    result = json.loads(subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout)
    if mount:
        shutil.rmtree(where)
    return result


def compare(mount, size, rate, work_us):
    """Each order in each mode, beside no checkpoints at all."""
    rows = []
    options = {"size": size, "work_us": work_us}
    for order in ORDERS:
        none = memory(order=order, **options)["seconds"]
        for mode in MODES:
            r = memory(mount, mode, cow=size * 2**20 / 16, rate=rate, order=order, **options)
            row = {"order": order, "mode": mode, "none_s": none, "more_s": r["seconds"] - none, **r}
            rows.append(row)
            print(f"  {order:10} {mode:10} {none:7.2f} s + {row['more_s']:6.2f} s   WAIT {r['wait']:6}  COW {r['cow']:6}"
                  f"  AVOIDED {r['avoided']:6}  AFTER {r['after']:6}  {r['writes']:6} writes", flush=True)
    return rows


def ratios(rows):
    """What the paper tells of its figure 2."""
    by = {(r["order"], r["mode"]): r for r in rows}
    for order in ORDERS:
        for mode in "adaptive", "predictive":
            a, b, s = by[order, mode], by[order, "async"], by[order, "sync"]
            print(f"  {order:10} {mode}: {100 * (1 - a['more_s'] / b['more_s']):5.1f} % less than async, "
                  f"{100 * (1 - a['more_s'] / s['more_s']):5.1f} % less than sync, "
                  f"{100 * (1 - a['wait'] / max(b['wait'], 1)):5.1f} % fewer WAITs", flush=True)


def curve(mount, size, work_us):
    """Room for copies, from none to all of the memory; what either mode saves of what sync costs. Few iterations: the others add nothing."""
    options = {"size": size, "work_us": work_us, "order": "random", "every": 3, "iterations": 11}
    none = memory(**options)["seconds"]
    sync = memory(mount, "sync", rate=RATE, **options)["seconds"] - none
    rows = []
    for part in COW:
        row = {"cow_mib": size * part}
        for mode in "async", "adaptive":
            r = memory(mount, mode, cow=size * part * 2**20, rate=RATE, **options)
            row[mode] = {"more_s": r["seconds"] - none, "less_than_sync": 1 - (r["seconds"] - none) / sync, "wait": r["wait"]}
        rows.append(row)
        print(f"  {row['cow_mib']:6.0f} MiB  async {100 * row['async']['less_than_sync']:6.1f} %  adaptive "
              f"{100 * row['adaptive']['less_than_sync']:6.1f} % less than sync  (WAIT {row['async']['wait']}, {row['adaptive']['wait']})", flush=True)
    return {"none_s": none, "sync_s": sync, "rows": rows}


def unaligned(mount, size, work_us):
    """Checkpoints that do not begin where an iteration does: each a third of an iteration later."""
    options = {"size": size, "work_us": work_us, "order": "random", "every": 3, "iterations": 13, "shift": size * 256 // 3}
    none = memory(**options)["seconds"]
    rows = {}
    for mode in "async", "adaptive", "predictive":
        r = memory(mount, mode, cow=size * 2**20 / 16, rate=RATE, **options)
        rows[mode] = {"more_s": r["seconds"] - none, **r}
        print(f"  unaligned  {mode:10} + {rows[mode]['more_s']:6.2f} s   WAIT {r['wait']:6}  COW {r['cow']:6}  AVOIDED {r['avoided']:6}", flush=True)
    return rows


def tracking(mount, rounds):
    """A program that writes over more memory than caches have, as fast as it can, with no checkpoint under way: how much longer 100 passes over 256 MiB take
    after a checkpoint than without tracking. All of it is the first pass, which opens pages; the interval between checkpoints at which that is 2 % is told, too."""
    kinds = {"mprotect": "adaptive", "userfaultfd": "adaptive", "userfaultfd, noted by the kernel": "sync"}
    rows = []
    for order, pages in [(o, p) for p in ("small", "huge") for o in ("ascending", "arrays", "random")]:
        for kind, mode in kinds.items():
            r = memory(mount, mode, kind.split(",")[0], order=order, size=256, stream=20, iterations=max(rounds, 5), **({"huge": True} if pages == "huge" else {}))
            plain, first, steady = r["plain_s"], r["first_s"], r["steady_s"]
            row = {"order": order, "pages": pages, "kind": kind, "plain_s": plain, "first_s": first, "steady_s": steady,
                   "more": (first + 99 * steady) / (100 * plain) - 1, "interval_s": max(first - plain, 0) / 0.02}
            rows.append(row)
            print(f"  {order:9} {pages:5} {kind:32} a pass {1e3 * plain:6.2f} ms, the first {1e3 * first:7.2f}, others {1e3 * steady:6.2f}: {100 * row['more']:5.2f} % "
                  f"of {100 * plain:.1f} s; 2 % of {row['interval_s']:.1f} s", flush=True)
    return rows


def scaling(base, mount, rounds):
    """The stencil on 1 to 8 ranks, each with as many cells: how long 240 steps take, with 4 checkpoints and without."""
    program, library = os.path.join(BUILD, "tests/cluster/stencil"), os.path.join(BUILD, "client/libckptfs.so.0")
    if not os.path.exists(program):
        print("  scaling: not measured: built without MPI", flush=True)
        return None
    rows, where, kinds = [], os.path.join(mount, "stencil"), ["none"] + MODES[:3]
    for ranks in 1, 2, 4, 8:
        seconds, results = {kind: [] for kind in kinds}, set()
        for kind in kinds * rounds:  # each in turn, since the machine is not the same all the time
            options = f"--memory --width {ranks} --height 1 --edge 128 --levels 8 --steps 240 --every {53 if kind != 'none' else 1000} --dir {where}"
            out = cluster.mpirun(ranks, 'LD_PRELOAD="$LIBRARY" exec "$STENCIL" $OPTIONS', log=os.path.join(base, "stencil.log"), STENCIL=program,
                                 LIBRARY=library, OPTIONS=options, CKPTFS_MODE=kind if kind != "none" else "adaptive").splitlines()
            seconds[kind] += [float(line.split()[1]) for line in out if line.startswith("seconds ")]
            results.add(out[-1])
            shutil.rmtree(where)
        if len(results) != 1:
            raise RuntimeError(f"the stencil comes to different results: {results}")
        row = {"ranks": ranks, **{kind: min(s) for kind, s in seconds.items()}}  # the least disturbed
        rows.append(row)
        print(f"  {ranks} ranks  {row['none']:6.2f} s" + "".join(f"   {m} + {row[m] - row['none']:5.2f} s = {100 * (row[m] / row['none'] - 1):5.1f} %"
                                                                  for m in MODES[:3]), flush=True)
    return rows


def run(base, size, rounds, parts):
    mount = ckptfs(base, "mount")
    work_us = PACE * 4096 / RATE * 1e6 - TOUCH_US
    mount.start()
    report = {"size_mib": size, "rate": RATE, "work_us": work_us}
    try:
        if "modes" in parts:
            print(f"client: {size} MiB, checkpoints at {RATE / 1e6:.0f} MB/s, {work_us:.0f} us of work per page", flush=True)
            report["limited"] = compare(mount.dir, size, RATE, work_us)
            ratios(report["limited"])
        if "unlimited" in parts:
            print(f"client: {size} MiB, no limit, no work but touching", flush=True)
            report["unlimited"] = compare(mount.dir, size, 0, 0)
        if "cow" in parts:
            print("client: room for copies, random order", flush=True)
            report["cow"] = curve(mount.dir, size, work_us)
        if "unaligned" in parts:
            report["unaligned"] = unaligned(mount.dir, size, work_us)
        if "tracking" in parts:
            print("client: tracking between checkpoints", flush=True)
            report["tracking"] = tracking(mount.dir, rounds)
        if "scaling" in parts:
            print("client: the stencil, 128 x 128 x 8 cells for each rank", flush=True)
            report["scaling"] = scaling(base, mount.dir, rounds)
    finally:
        mount.stop()
    return report
