# SPDX-License-Identifier: GPL-3.0-or-later
"""The groups of ./bench that are about speed: write, restore, small, meta, compress; and the tables that programs of their
own print: index, chunk."""
import contextlib
import json
import os
import shutil
import statistics

from common import BUILD, REST, Rival, ckptfs, rest, settle, sh

GROUPS = ["write", "restore", "small", "meta", "compress"]
ALONE = ["index", "chunk"]  # by programs of their own, without rivals on a disk
CODECS = ["none", "auto", "lz4", "zstd"]  # the rivals of the group compress: ckptfs itself, with each


def sink_daemon(base, mountpoint):
    return [os.path.join(BUILD, "tests/bench/sink"), mountpoint]


class Case:
    """One row. `prepare` is not timed and runs once per rival, `measure(rival, round)` gives a work() result."""

    unit, scale, of = "GB/s", 1e9, "bytes"

    def __init__(self, title, targets, processes, size):
        self.title, self.targets, self.processes, self.size = title, targets, processes, size

    def prepare(self, rival):
        pass

    def before(self, rival, number):
        """Not timed, before each round."""

    def figure(self, result):
        return result[self.of] / self.scale / result["seconds"]


class Write(Case):
    def __init__(self, title, targets, processes, size, changed, noise=8):
        super().__init__(f"{title}, {processes} writer{'s' * (processes > 1)}", targets, processes, size)
        self.changed, self.noise = changed, noise

    def options(self, step):
        return {"processes": self.processes, "size": self.size, "changed": self.changed, "step": step, "noise": self.noise}

    def prepare(self, rival):
        rival.work("write", **self.options(0))

    def before(self, rival, number):
        if number > 1:  # a checkpoint or two are kept, as applications do
            rival.remove(number - 2, self.processes)

    def measure(self, rival, number):
        return rival.work("write", **self.options(number))


class Read(Case):
    def __init__(self, title, targets, processes, size, steps, cold, noise=8):
        super().__init__(f"{title}, {processes} reader{'s' * (processes > 1)}", targets, processes, size)
        self.steps, self.cold, self.noise = steps, cold, noise

    def options(self, step):
        return {"processes": self.processes, "size": self.size, "changed": 5, "step": step, "noise": self.noise}

    def prepare(self, rival):
        steps = range(self.steps + 1) if rival.shares else [self.steps]
        for step in steps:
            rival.work("write", **self.options(step))

    def before(self, rival, number):
        if not self.cold:
            self.measure(rival, number)
        elif rival.shares:
            rival.unmount()
            rival.mount()

    def measure(self, rival, number):
        check = {} if rival.name.startswith("sink") else {"check": True}
        return rival.work("read", **self.options(self.steps), **check)


class Overwrite(Case):
    def before(self, rival, number):
        rival.work("write", size=self.size, step=number, changed=100)

    def measure(self, rival, number):
        return rival.work("overwrite", size=self.size, step=number, changed=100)


class Append(Case):
    unit, scale, of = "op/s", 1, "operations"

    def measure(self, rival, number):
        return rival.work("append", processes=self.processes, count=500, step=number)


class Meta(Case):
    unit, scale, of = "files/s", 1, "operations"

    def measure(self, rival, number):
        return rival.work("meta", processes=self.processes, count=20000 // self.processes, step=number)


def cases(group, size):
    if group == "write":
        for n in 1, 4:
            yield Write("equal to the last", {"plain": 1.8, "sink": 0.65}, n, size, 0)
            yield Write("5 % of pages changed", {"plain": 1.4}, n, size, 5)
            yield Write("all pages new", {"plain": 0.8}, n, size, 100)
    elif group == "restore":
        for n in 1, 4:
            yield Read("cold, written in one go", {"plain": 0.8}, n, size, 0, True)
            yield Read("cold, after 10 steps of 5 %", {"plain": 0.6}, n, size, 10, True)
            yield Read("warm", {"plain": 0.9}, n, size, 0, False)
    elif group == "small":
        yield Overwrite("4 KiB random overwrites", {"plain": 0.25}, 1, min(size, 1024))
        yield Append("64 KiB append + fsync, 4 processes", {"plain": 0.5}, 4, 0)
    elif group == "meta":
        yield Meta("create, stat, unlink, 2 processes", {"sink": 0.5}, 2, 0)
    elif group == "compress":
        for n in 1, 4:
            yield Write("all new, can be compressed", {"none": 0.9}, n, size, 100, 3)
            yield Write("all new, cannot be", {"none": 0.9}, n, size, 100)
        yield Read("cold, can be compressed", {}, 1, size, 0, True, 3)


def run_case(case, rivals, rounds, idle):
    """Figures per rival, in rounds of turns."""
    figures = {r.name: [] for r in rivals}
    with contextlib.ExitStack() as stack:  # an interrupted stop of one does not leave others mounted
        for r in rivals:
            stack.callback(r.stop)
            r.start()
            case.prepare(r)
        for number in range(1, rounds + 1):
            for r in rivals:
                settle(True)
                case.before(r, number)
                settle(not isinstance(case, Read) or case.cold)
                rest(rivals, idle)
                figures[r.name].append(case.figure(case.measure(r, number)))
    return figures


def ratios(case, medians, plain):
    """Name of the rival -> (ratio, target or None), where it can be told."""
    result = {}
    for subject, key, rival in (("ckptfs", "plain", plain), ("ckptfs", "sink", "sink"), ("ckptfs", "sink+fp", "sink+fp"), ("auto", "none", "none"), ("cdc", "page", "page")):
        if subject in medians and rival in medians:
            result[rival] = (medians[subject] / medians[rival], case.targets.get(key))
    return result


def print_row(title, unit, names, medians, found):
    row = f"  {title:44}"
    for name in names:
        row += f"{medians[name]:>10.3g}" if name in medians else f"{'-':>10}"
    row += f" {unit:8}"
    for rival, (ratio, target) in found.items():
        row += f"  {ratio:5.2f} x {rival}"
        if target is not None:
            row += f" (>= {target}{'' if ratio >= target else ' MISSED'})"
    print(row, flush=True)


def run_alone(group, base):
    """A program of its own prints its table and writes its figures. What it is given to work in goes afterwards."""
    directory, figures = os.path.join(base, group), os.path.join(base, f"{group}.json")
    program = [os.path.join(BUILD, f"tests/bench/bench_{group}"), "--json", figures]
    sh(*program, *([directory] if group == "index" else []))
    shutil.rmtree(directory, ignore_errors=True)
    with open(figures) as f:
        return json.load(f)


def rivals_of(group, base, names, plain):
    """Each in a new directory; `plain` is how the filesystem of the disk is called."""
    if group == "compress":
        return [ckptfs(base, codec, compress=codec) for codec in CODECS]
    result = []
    for name in names:
        if name == "ckptfs":
            result.append(ckptfs(base, name))
            continue
        shown = plain if name == "plain" else name
        os.mkdir(os.path.join(base, shown))
        result.append(Rival(shown, os.path.join(base, shown), sink_daemon if name == "sink" else None))
    return result


def run_cases(group, those, rivals, rounds, plain, idle=REST):
    """Print a row for each case; their figures, medians and ratios."""
    result = []
    for case in those:
        figures = run_case(case, rivals, rounds, idle)
        medians = {n: statistics.median(v) for n, v in figures.items()}
        found = ratios(case, medians, plain)
        print_row(case.title, case.unit, [r.name for r in rivals], medians, found)
        result.append({
            "group": group, "case": case.title, "unit": case.unit, "figures": figures, "median": medians,
            "ratio": {k: v[0] for k, v in found.items()},
            "target": {k: v[1] for k, v in found.items() if v[1] is not None}})
    return result


def head(group, rivals):
    print(f"{group:46}" + "".join(f"{r.name:>10}" for r in rivals), flush=True)


def run(group, base, names, size, rounds, plain):
    rivals = rivals_of(group, base, names, plain)
    head(group, rivals)
    return run_cases(group, cases(group, size), rivals, rounds, plain)
