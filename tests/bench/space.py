# SPDX-License-Identifier: GPL-3.0-or-later
"""The group space of ./bench: what stores take on the disk, of seven data sets, before and after ckptfs-compact.

Against what the data itself says: the bytes of its distinct pages, and of its distinct chunks as the store cuts them; zeros do
not count, and nothing of the store takes part in telling (distinct.c). And against programs that do the same (backup.py), uncompressed
with uncompressed, compressed with compressed, and those without random access with compacted stores.
"""
import hashlib
import json
import os
import shutil
import subprocess

import backup
from common import BUILD, TOP, ckptfs, sh, tool

PAGE = 4096
SETS = ["ranks", "shifted", "images", "criu", "python", "lammps", "torch", "hdf5"]
# Title, mount options, whether data may get smaller than its distinct bytes.
SETTINGS = [("ckptfs, page", {"chunking": "page"}, False),
            ("ckptfs, cdc", {"chunking": "cdc"}, False),
            ("ckptfs, auto", {"chunking": "auto"}, False),  # after those that it is compared with
            ("ckptfs, page, auto", {"chunking": "page", "compress": "auto"}, True),
            ("ckptfs, cdc, auto", {"chunking": "cdc", "compress": "auto"}, True),
            ("ckptfs, page, zstd", {"chunking": "page", "compress": "zstd"}, True),
            ("ckptfs, cdc, zstd", {"chunking": "cdc", "compress": "zstd"}, True)]
LIMITS = {"page": 1.02, "cdc": 1.05}  # x distinct bytes, uncompressed
LIMIT_AUTO = 1.02  # x the smaller of these two
LIMIT_BEST = 1.03  # x the smallest of the others
MIXES = [(chunking, compress) for chunking in ("page", "cdc", "auto") for compress in ("none", "lz4", "auto", "zstd")]
LIMIT_COMPACTED = 1.01  # x pages, uncompressed and then compacted: auto and zstd, compacted. Coders within 1 % count as equal
BUDGET = 100  # CPU seconds per GB for ckptfs-compact: so large that a busy machine does not choose another coder
LIMIT_WHOLE = 1.0  # x the smallest of the programs without random access: the best compacted store


def steps_of(data):
    return sorted(os.path.join(data, name) for name in os.listdir(data))


def files_of(steps):
    return [os.path.join(step, name) for step in steps for name in sorted(os.listdir(step))]


def distinct_pages(files):
    """Bytes of distinct pages that are not zero; the last of a file counts as a whole one."""
    seen, zero = set(), bytes(PAGE)
    for name in files:
        with open(name, "rb") as f:
            while page := f.read(PAGE):
                page = page.ljust(PAGE, b"\0")
                if page != zero:
                    seen.add(hashlib.blake2b(page, digest_size=16).digest())
    return len(seen) * PAGE


def distinct_chunks(files):
    out = subprocess.run([os.path.join(BUILD, "tests/bench/distinct"), *files], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(out)["bytes"]


def exact(files):
    return {"bytes": sum(os.path.getsize(f) for f in files), "files": len(files), "page": distinct_pages(files),
            "cdc": distinct_chunks(files)}


def make(name, data, size):
    """None, or why it cannot be made."""
    made = subprocess.run(["/usr/bin/python3", os.path.join(TOP, "tests/bench/datasets.py"), name, data, "--size", str(size)],
                          stdout=subprocess.PIPE, text=True)
    if made.returncode == 77:
        return made.stdout.strip()
    made.check_returncode()
    return None


class Store:
    """A ckptfs with some options, and what it takes when it is not mounted."""

    def __init__(self, base, **options):
        self.rival = ckptfs(base, "ckptfs", **options)
        self.rival.start()

    def write(self, steps):
        for step in steps:
            sh("cp", "-r", "--sparse=never", step, self.rival.dir)

    def take(self):
        """Bytes when unmounted, and when mounted once more, the journal looked at, and unmounted."""
        self.rival.unmount()
        first = backup.du(os.path.join(self.rival.base, "store"))
        self.rival.mount()
        self.rival.unmount()
        return first, backup.du(os.path.join(self.rival.base, "store"))

    def packs(self):
        """Bytes of them alone."""
        return backup.du(os.path.join(self.rival.base, "store/packs"))

    def check(self, steps):
        """What was written is there."""
        self.rival.mount()
        for step in steps:
            sh("diff", "-r", step, os.path.join(self.rival.dir, os.path.basename(step)))
        self.rival.unmount()

    def close(self):
        self.rival.stop()
        os.rmdir(self.rival.base)


def empty_store(base):
    store = Store(base)
    try:
        return store.take()[1]
    finally:
        store.close()


def measure_ckptfs(base, steps, options, half):
    """half: the older half of the steps is removed at the end, and collected."""
    store = Store(base, **options)
    try:
        store.write(steps)
        if half:
            for step in steps[:len(steps) // 2]:
                shutil.rmtree(os.path.join(store.rival.dir, os.path.basename(step)))
            subprocess.run([tool("ckptfs-gc"), "--delete", "--quiet", store.rival.dir], check=True, stdout=subprocess.DEVNULL)
            steps = steps[len(steps) // 2:]
        at_unmount, later = store.take()
        store.check(steps)
        return {"bytes": later, "at_unmount": at_unmount}
    finally:
        store.close()


def measure_backup(base, steps, program):
    other = None
    try:
        other = program(os.path.join(base, "other"), os.path.dirname(steps[0]))
        for step in steps:
            other.add(step)
        return {"bytes": other.bytes()}
    finally:
        if other:
            other.close()


def lacking(program):
    gone = [package for name, package in program.needs if not shutil.which(name)]
    return f"not installed: apt-get install {' '.join(gone)}" if gone else None


def row(title, taken, text):
    print(f"    {title:44}{taken / 2**20:10.1f} MiB  {text}", flush=True)


def against(taken, least, empty, limit, of):
    ratio = taken / least
    return (f"{ratio:.3f} x distinct {of} (<= {limit}{'' if ratio <= limit else ' MISSED'}), "
            f"{(taken - empty) / least:.3f} without what an empty store takes")


def judge(title, found, options, rows, least, empty):
    """Tell an uncompressed store beside what it is measured by."""
    kind, taken = options["chunking"], found["bytes"]
    if kind == "auto":
        better = min(r["bytes"] for r in rows)
        ratio = taken / better
        row(title, taken, f"{ratio:.3f} x the better of page and cdc (<= {LIMIT_AUTO}{'' if ratio <= LIMIT_AUTO else ' MISSED'})")
        return {"x_better": ratio, "target": LIMIT_AUTO}
    row(title, taken, against(taken, least[kind], empty, LIMITS[kind], "pages" if kind == "page" else "chunks"))
    return {"x_distinct": taken / least[kind], "target": LIMITS[kind]}


def ckptfs_rows(base, steps, least, empty):
    result = []
    for title, options, compressed in SETTINGS:
        found = measure_ckptfs(base, steps, options, False)
        if compressed:
            judged = {"x_distinct": found["bytes"] / least[options["chunking"]]}
            row(title, found["bytes"], f"{judged['x_distinct']:.3f} x distinct bytes")
        else:
            judged = judge(title, found, options, result, least, empty)
        result.append({"program": title, "ours": True, "compressed": compressed, **found, **judged})
    return result


def measure_compacted(base, steps, options):
    """Bytes before and after, and what ckptfs-compact says that it saved."""
    store = Store(base, **options)
    try:
        store.write(steps)
        before, packs_before = store.take()[1], store.packs()
        store.rival.mount()
        out = subprocess.run([tool("ckptfs-compact"), "--quiet", "--json", "--budget", str(BUDGET), store.rival.dir], check=True,
                             stdout=subprocess.PIPE).stdout
        after, packs = store.take()[1], store.packs()
        store.check(steps)
        return {"before": before, "after": after, "packs_before": packs_before, "packs": packs, "said": json.loads(out)["saved_bytes"]}
    finally:
        store.close()


def compacted_rows(base, steps, others):
    """A store must not grow by compacting, however it was written. others: rows of backup_rows()."""
    result = []
    for chunking, compress in MIXES:
        found = measure_compacted(base, steps, {"chunking": chunking, "compress": compress})
        saved = found["before"] - found["after"]
        row(f"ckptfs, {chunking}, {compress}, compacted", found["after"],
            f"{saved / 2**20:.2f} MiB less, {found['said'] / 2**20:.2f} said; packs {found['packs_before'] / 2**10:.0f} to "
            f"{found['packs'] / 2**10:.0f} KiB{'' if saved >= 0 and found['packs'] <= found['packs_before'] else ' GREW'}")
        result.append({"chunking": chunking, "compress": compress, **found})
    ratio = result[-1]["after"] / result[0]["after"]
    print(f"    auto, zstd, compacted: {ratio:.3f} x page, none, compacted (<= {LIMIT_COMPACTED}{'' if ratio <= LIMIT_COMPACTED else ' MISSED'}), "
          f"{result[-1]['after'] / min(r['after'] for r in result):.3f} x the smallest", flush=True)
    compare_compacted(min(r["after"] for r in result), others)
    return result


def compare_compacted(ours, others):
    """The smallest compacted store against all that compress."""
    those = [r for r in others if r.get("compressed")]
    if not those:
        return
    worst = max([ours / r["bytes"] for r in those if r["whole"]], default=0)
    text = ", ".join(f"{ours / r['bytes']:.3f} x {r['program'].split(',')[0]}" for r in those)
    print(f"    the smallest compacted: {text} (<= {LIMIT_WHOLE} of those without random access{'' if worst <= LIMIT_WHOLE else ' MISSED'})", flush=True)


def backup_row(base, steps, program):
    why = lacking(program)
    if not why:
        try:
            found = measure_backup(base, steps, program)
            row(program.title, found["bytes"], "")
            return {"program": program.title, "ours": False, "compressed": program.compressed, "whole": program.whole, **found}
        except subprocess.TimeoutExpired as e:
            why = f"{e.cmd[0]} was not done after {e.timeout:.0f} s"
    print(f"    {program.title:44}         - left out: {why}", flush=True)
    return {"program": program.title, "skipped": why}


def backup_rows(base, steps, programs):
    return [backup_row(base, steps, program) for program in programs]


def compare(rows):
    """The best of ours against each other with random access and the best of them, with and without compression."""
    result = {}
    for compressed in False, True:
        those = [r for r in rows if r.get("compressed") == compressed]
        ours = min((r for r in those if r["ours"]), key=lambda r: r["bytes"])
        others = sorted((r for r in those if not r["ours"] and not r["whole"]), key=lambda r: r["bytes"])
        if not others:
            continue
        ratios = {r["program"]: ours["bytes"] / r["bytes"] for r in others}
        worst = ours["bytes"] / others[0]["bytes"]
        result["compressed" if compressed else "uncompressed"] = {
            "ours": ours["program"], "ratios": ratios, "target": LIMIT_BEST}
        text = ", ".join(f"{ratio:.3f} x {name.split(',')[0]}" for name, ratio in ratios.items())
        print(f"    {'compressed' if compressed else 'uncompressed'}, {ours['program']}: {text}"
              f" (<= {LIMIT_BEST}{'' if worst <= LIMIT_BEST else ' MISSED'})", flush=True)
    return result


def collected_rows(base, steps, empty):
    """What is left of the store when the older half is deleted and collected."""
    least = exact(files_of(steps[len(steps) // 2:]))
    result = []
    for title, options, compressed in SETTINGS:
        if compressed:
            continue
        found = measure_ckptfs(base, steps, options, True)
        judged = judge(f"{title}, older half deleted, collected", found, options, result, least, empty)
        result.append({"program": title, **found, **judged})
    return {"exact": least, "rows": result}


def run(base, size, sets, others):
    """others: whether anybody else than ckptfs takes part."""
    print("space", flush=True)
    empty = empty_store(base)
    print(f"  an empty store takes {empty / 2**20:.1f} MiB", flush=True)
    result = {"empty_store": empty, "sets": {}}
    for name in sets:
        data = os.path.join(base, "data")
        why = make(name, data, size)
        if why:
            print(f"  {name}: left out: {why}", flush=True)
            result["sets"][name] = {"skipped": why}
            shutil.rmtree(data, ignore_errors=True)
            continue
        steps = steps_of(data)
        least = exact(files_of(steps))
        print(f"  {name}: {least['bytes'] / 2**20:.0f} MiB in {least['files']} files and {len(steps)} steps; distinct pages "
              f"{least['page'] / 2**20:.1f} MiB, chunks {least['cdc'] / 2**20:.1f} MiB", flush=True)
        ours, rivals = ckptfs_rows(base, steps, least, empty), backup_rows(base, steps, backup.ALL if others else [])
        result["sets"][name] = {"exact": least, "rows": ours + rivals, "best": compare(ours + rivals)}
        result["sets"][name]["compacted"] = compacted_rows(base, steps, rivals)
        if name == "ranks":
            result["sets"][name]["collected"] = collected_rows(base, steps, empty)
        shutil.rmtree(data)
    return result
