# SPDX-License-Identifier: GPL-3.0-or-later
"""The group gc of ./bench: how fast ckptfs-gc is, what others notice of it, and what placing does for a restart."""
import json
import os
import statistics
import subprocess

import speed
from common import BUILD, ckptfs, settle, tool

STALL_LIMIT_MS = 100  # a call may take this much longer while a collection runs
PARTS = ["rates", "stalls", "series", "chunking"]
RESTORE_LIMIT = 0.75  # newest against first, cold
GROWTH_LIMIT = 16 << 20  # bytes of memory more with four times the store
STEPS, CHANGED = 50, 5
MEMORY = {"cache": "64M", "dirty": "64M"}


def gc(path, *options):
    """What it told, with the most memory it had."""
    process = subprocess.Popen([tool("ckptfs-gc"), "--json", *options, path], stdout=subprocess.PIPE)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"ckptfs-gc {path}: exit status {process.returncode}")
    told = json.loads(out)
    return {**told, "peak_bytes": usage.ru_maxrss * 1024}


def rates(told):
    seconds = max(told["seconds"], 1e-3)
    return {"GB/s": (told["live_bytes"] + told["dead_bytes"]) / 1e9 / seconds,
            "chunks/s": (told["live_chunks"] + told["dead_chunks"]) / seconds}


def fill(rival, size):
    """Packs of all kinds: a fifth in use, which are emptied; half in use, which are punched; and a series with scattered holes.
    About 9 x size is written."""
    rival.work("write", processes=5, size=size, changed=100, step=100)
    for rank in range(1, 5):
        os.unlink(os.path.join(rival.dir, f"ckpt-{rank}.0100"))
    rival.work("write", processes=2, size=size, changed=100, step=101)
    os.unlink(os.path.join(rival.dir, "ckpt-0.0101"))
    for step in range(1, 4):
        rival.work("write", processes=1, size=size, changed=25, step=step)
    for step in range(1, 3):
        rival.remove(step, 1)


def forget_peak(pid):
    with open(f"/proc/{pid}/clear_refs", "w") as f:
        f.write("5")


def peak(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


# --- rates and memory ---

def measure_store(base, size):
    """A store of one size: collected not mounted, after a fresh start, and mounted."""
    result = {}
    for where in "store", "mount":
        rival = ckptfs(base, f"{where}-{size}", **MEMORY)
        rival.start()
        try:
            fill(rival, size)
            rival.unmount()
            settle(True)
            path = os.path.join(rival.base, "store")
            if where == "mount":
                rival.mount()
                path = rival.dir
                forget_peak(rival.process.pid)
            report = gc(path)
            settle(True)
            result[where] = {"report": report, "delete": gc(path, "--delete")}
            if where == "mount":
                result[where]["delete"]["peak_bytes"] = peak(rival.process.pid)
        finally:
            rival.stop()
    return result


def rate_rows(base, size):
    result = {}
    for mib in max(1, size // 4), size:
        result[mib] = found = measure_store(base, mib)
        for where in found:
            for what, told in found[where].items():
                r = rates(told)
                told["rates"] = r
                print(f"  {what} of a {where} of {(told['live_bytes'] + told['dead_bytes']) / 2**20:.0f} MiB, "
                      f"{told['dead_bytes'] / 2**20:.0f} of it garbage:".ljust(64) +
                      f"{r['GB/s']:8.2f} GB/s {r['chunks/s']:12,.0f} chunks/s {told['seconds']:8.2f} s", flush=True)
    small, large = list(result.values())
    for where, who in ("store", "ckptfs-gc"), ("mount", "the daemon"):
        before, after = small[where]["delete"]["peak_bytes"], large[where]["delete"]["peak_bytes"]
        print(f"  memory of {who} at most:".ljust(64) + f"{before / 2**20:8.1f} MiB, with four times the store "
              f"{after / 2**20:.1f} MiB (<= {GROWTH_LIMIT >> 20} MiB more{'' if after - before <= GROWTH_LIMIT else ' MISSED'})",
              flush=True)
    return {f"{mib}_mib": found for mib, found in result.items()}


# --- what others notice ---

def stall(rival, seconds, collecting):
    """Longest calls of a load of some seconds; with collections beside it, one after the other, if told."""
    load = subprocess.Popen([os.path.join(BUILD, "tests/bench/stall"), rival.dir, str(seconds)], stdout=subprocess.PIPE,
                            text=True)
    collected = []
    while collecting and load.poll() is None:
        collected.append(gc(rival.dir, "--delete"))
    out = load.communicate()[0]
    if load.returncode != 0:
        raise RuntimeError("tests/bench/stall failed")
    return json.loads(out), collected


def stall_rows(base, size, rounds, seconds):
    """Each round with and without, in turn, on one mount; what the first load has left is there for the second."""
    longest = {False: {}, True: {}}
    nr_collections, freed = 0, 0
    for number in range(rounds):
        rival = ckptfs(base, f"stall-{number}", **MEMORY)
        rival.start()
        try:
            rival.work("write", size=size, changed=100, step=1000)
            os.rename(os.path.join(rival.dir, "ckpt-0.1000"), os.path.join(rival.dir, "read"))
            for collecting in (False, True) if number % 2 == 0 else (True, False):
                if collecting:
                    fill(rival, size)
                settle(False)
                found, collected = stall(rival, seconds, collecting)
                nr_collections += len(collected)
                freed += sum(c["freed_bytes"] for c in collected)
                for kind, calls in found.items():
                    longest[collecting].setdefault(kind, []).append(calls["longest_ms"])
        finally:
            rival.stop()
    print(f"  longest calls, {rounds} x {seconds} s, {nr_collections} collections, {freed / 2**20:.0f} MiB freed:".ljust(64) +
          f"{'without':>10}{'with gc':>10}", flush=True)
    result = {}
    for kind in longest[False]:
        without, beside = max(longest[False][kind]), max(longest[True][kind])
        missed = beside - without > STALL_LIMIT_MS
        print(f"    {kind:60}{without:10.1f}{beside:10.1f} ms  (<= {STALL_LIMIT_MS} more{' MISSED' if missed else ''})", flush=True)
        result[kind] = {"without_ms": longest[False][kind], "with_ms": longest[True][kind], "target_ms": STALL_LIMIT_MS}
    return {"collections": nr_collections, "freed_bytes": freed, "calls": result}


# --- a long series ---

def read_cold(rival, size, step):
    rival.unmount()
    settle(True)
    rival.mount()
    result = rival.work("read", size=size, changed=CHANGED, step=step, check=True)
    return result["bytes"] / 1e9 / result["seconds"]


def fragmentation(rival, step):
    path = os.path.join(rival.dir, f"ckpt-0.{step:04}")
    out = subprocess.run([tool("ckptfs-stat"), "--json", path], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(out)["fragmentation"]


def series_rows(base, size, rounds):
    """Cold reads of the first and the newest file of a series, in turn: as written, and after placing."""
    rival = ckptfs(base, "series")
    rival.start()
    result = {}
    try:
        for step in range(STEPS + 1):
            rival.work("write", size=size, changed=CHANGED, step=step)
        for title, options in ("as written", None), ("after --delete", []), ("after --delete --place", ["--place"]):
            collected = gc(rival.dir, "--delete", *options) if options is not None else None
            speeds = {step: [] for step in (0, STEPS)}
            for _ in range(rounds):
                for step in speeds:
                    speeds[step].append(read_cold(rival, size, step))
            first, newest = (statistics.median(v) for v in speeds.values())
            pieces = {step: fragmentation(rival, step) for step in speeds}
            missed = newest < RESTORE_LIMIT * first
            print(f"  {STEPS} steps of {CHANGED} %, {title}:".ljust(64) + f"first {first:.2f} GB/s, {pieces[0]:.1f} places per MiB; "
                  f"newest {newest:.2f} GB/s, {pieces[STEPS]:.1f}: {newest / first:.2f} x first (>= {RESTORE_LIMIT}"
                  f"{' MISSED' if missed else ''})", flush=True)
            result[title] = {"first": speeds[0], "newest": speeds[STEPS], "ratio": newest / first, "target": RESTORE_LIMIT,
                             "fragmentation": {"first": pieces[0], "newest": pieces[STEPS]}, "collected": collected}
    finally:
        rival.stop()
    return result


def chunking_rows(base, size, rounds):
    """What cutting by content costs writers."""
    rivals = [ckptfs(base, kind, chunking=kind) for kind in ("page", "cdc")]
    speed.head("  writing, by chunking", rivals)
    return speed.run_cases("gc", [speed.Write("all pages new", {}, 1, size, 100), speed.Write("equal to the last", {}, 1, size, 0)],
                           rivals, rounds, None)


def run(base, size, rounds, parts):
    print("gc", flush=True)
    of = {"rates": lambda: rate_rows(base, size), "stalls": lambda: stall_rows(base, size, rounds, 10 if size >= 64 else 2),
          "series": lambda: series_rows(base, size, rounds), "chunking": lambda: chunking_rows(base, 2 * size, rounds)}
    return {part: of[part]() for part in PARTS if part in parts}
