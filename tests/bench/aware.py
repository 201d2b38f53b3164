"""The group aware of ./bench: what variables become, merged over ranks and coded by their type, as ckptfs-analyze tells.

The measure of mcrEngine (Islam et al., SC'12): how much smaller checkpoints get if variables are merged (Aware, Aware-Block) than if
files are (Agnostic, Agnostic-Block), by ranks that are merged and by the size of blocks. And against gzip -6, zstd -3 and zstd -19 of everything
as one stream. Speeds are of CPU time on one core.
"""
import json
import os
import shutil
import subprocess

import space
from common import BUILD, tool

SCHEMES = ["agnostic", "agnostic-block", "aware", "aware-block", "auto"]
GROUP_SIZES = [1, 2, 4, 8, 16, 32]
BLOCK_SIZES = [1, 2, 4, 8, 16, 32, 64]  # KiB
RANKS, STEPS = 16, 8
CELL = 48  # bytes of all variables
BUDGET = 30  # CPU seconds per GB: so large that a busy machine does not choose another coder
SETS = ["stencil", "hdf5", "torch", "training"]


def make_stencil(data, size):
    program = os.path.join(BUILD, "tests/bench/stencil_h5")
    if not os.path.exists(program):
        return "stencil_h5 was not built: it needs MPI and HDF5"
    edge = max(4, round((size * 2**20 / RANKS / CELL) ** (1 / 3)))
    os.makedirs(data)
    subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS), program, data, str(edge), str(STEPS)], check=True,
                   stderr=subprocess.DEVNULL)
    return None


def make(name, data, size):
    return make_stencil(data, size) if name == "stencil" else space.make(name, data, size)


def analyze(files, *options):
    out = subprocess.run([tool("ckptfs-analyze"), "-q", "--json", "--budget", str(BUDGET), *options, *files], check=True, stdout=subprocess.PIPE).stdout
    a = json.loads(out)["aware"]
    a["in_mb_s"] = a["plain_bytes"] * 1e3 / a["encode_ns"]
    a["out_mb_s"] = a["plain_bytes"] * 1e3 / a["decode_ns"]
    return a


def figures(a):
    return {k: a[k] for k in ("plain_bytes", "coded_bytes", "ratio", "in_mb_s", "out_mb_s")}


def show(title, a, against=None):
    gain = f"{100 * (a['ratio'] / against['ratio'] - 1):+8.1f} %" if against else ""
    print(f"  {title:<26} {a['ratio']:8.3f} {a['in_mb_s']:9.0f} {a.get('out_mb_s', 0):9.0f} {gain}", flush=True)


def measure_set(data):
    rows = {}
    print(f"  {'':<26} {'ratio':>8} {'in MB/s':>9} {'out MB/s':>9} over agnostic")
    for scheme in SCHEMES:
        rows[scheme] = figures(analyze([data], "--scheme", scheme, "--chain", "0"))
        show(scheme, rows[scheme], rows["agnostic"])
    whole = analyze([data], "--chain", "4", "--rivals")
    rows["auto, against steps"] = figures(whole)
    show("auto, against steps", rows["auto, against steps"], rows["agnostic"])
    for rival in whole["rivals"]:
        rows[rival["name"]] = {"plain_bytes": whole["plain_bytes"], "coded_bytes": rival["coded_bytes"],
                               "ratio": whole["plain_bytes"] / rival["coded_bytes"],
                               "in_mb_s": whole["plain_bytes"] * 1e3 / rival["encode_ns"], "out_mb_s": 0}
        show(rival["name"], rows[rival["name"]])
    return {"rows": rows, "variables": whole["variables"]}


def last_step(data):
    """A checkpoint set: steps do not matter where each is coded for itself."""
    names = sorted(os.listdir(data), key=lambda name: name.split(".step")[1])  # ckpt.rankRANK.stepSTEP.h5
    return [os.path.join(data, name) for name in names[-RANKS:]]


def sweep(files, option, values, unit, schemes):
    table = {}
    print(f"  {option + ', ' + unit:<16}" + "".join(f"{s:>16}" for s in schemes))
    for value in values:
        table[value] = {s: analyze(files, "--scheme", s, "--chain", "0", f"--{option}", f"{value}{'K' if unit == 'KiB' else ''}")["ratio"]
                        for s in schemes}
        print(f"  {value:<16}" + "".join(f"{table[value][s]:16.3f}" for s in schemes), flush=True)
    return table


def run(base, size, sets):
    report = {"sets": {}}
    for name in sets:
        data = os.path.join(base, name)
        why_not = make(name, data, size)
        print(f"aware, {name}" + (f": skipped: {why_not}" if why_not else ""), flush=True)
        if why_not:
            report["sets"][name] = {"skipped": why_not}
            continue
        report["sets"][name] = measure_set(data)
        if name == "stencil":
            report["by_group"] = sweep(last_step(data), "group", GROUP_SIZES, "ranks", SCHEMES[:4])
            report["by_block"] = sweep(last_step(data), "block", BLOCK_SIZES, "KiB", ["agnostic-block", "aware-block"])
        shutil.rmtree(data)
    return report
