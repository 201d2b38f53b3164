# SPDX-License-Identifier: GPL-3.0-or-later
"""The group cores of ./bench: how writing and reading scale with the number of processes. The amount of data is the same
for each number. Rivals: the filesystem under --dir, which should be in memory; the sink; a sink that also fingerprints
every page in its request thread, which is all that ckptfs has to do for data it knows."""
import os

import speed
from common import BUILD, Rival, ckptfs

PARTS = ["new", "changed", "equal", "cold", "warm"]
PROCESSES = "1,2,4,8,16"
REST = 0.3
OPTIONS = {"cache": "1G", "dirty": "2G"}


def case(part, processes, mib):
    size = mib // processes
    if part == "new":
        return speed.Write("all pages new", {"plain": 0.33}, processes, size, 100)
    if part == "changed":
        return speed.Write("5 % of pages changed", {}, processes, size, 5)
    if part == "equal":
        return speed.Write("equal to the last", {"sink+fp": 0.85}, processes, size, 0)
    return speed.Read(part, {"sink": 0.7}, processes, size, 0, part == "cold")


def rivals_of(base, plain):
    result = []
    for name in plain, "sink", "sink+fp":
        os.mkdir(os.path.join(base, name))
        options = ["fingerprint"] if name == "sink+fp" else []
        daemon = None if name == plain else lambda _, mountpoint, options=options: [
            os.path.join(BUILD, "tests/bench/sink"), mountpoint, *options]
        result.append(Rival(name, os.path.join(base, name), daemon))
    return result + [ckptfs(base, "ckptfs", **OPTIONS)]


def run(base, mib, rounds, plain, parts, processes):
    rivals = rivals_of(base, plain)
    speed.head("cores", rivals)
    those = [case(part, n, mib) for part in PARTS if part in parts for n in processes]
    return speed.run_cases("cores", those, rivals, rounds, plain, REST)
