# SPDX-License-Identifier: GPL-3.0-or-later
"""The group aware of ./bench: what stores of files with variables take once they are compacted, as ckptfs-analyze measures.

The measure of mcrEngine (Islam et al., SC'12): how much smaller checkpoints get if variables are merged (Aware, Aware-Block) than if
files are (Agnostic, Agnostic-Block), by ranks that are merged and by the size of blocks. And against gzip -6, zstd -3 and zstd -19 of everything
as one stream, and programs that compress (backup.py). Speeds are of CPU time on one core. What mounts save with each mix of chunking and compression (space.py) and
what restoring takes (aware_restore.py) is measured on mounts.
"""
import json
import os
import shutil
import subprocess

import aware_restore
import backup
import space
from common import BUILD, tool

SCHEMES = ["agnostic", "agnostic-block", "aware", "aware-block", "auto"]
GROUP_SIZES = [1, 2, 4, 8, 16, 32]
BLOCK_SIZES = [4, 8, 16, 32, 64]  # KiB
RANKS, STEPS = 16, 8
CELL = 48  # bytes of all variables
MEEP_RANKS, MEEP_STEPS = 32, 4
MEEP_CELL = 150  # bytes, about: fields and what absorbs them at the walls
BUDGET = 30  # CPU seconds per GB: so large that a busy machine does not choose another coder
SMALL = {"meep": 3}  # restored once more, of so many times fewer bytes: files of 330 KB, which are one request of the kernel each
SETS = ["stencil", "meep", "hdf5", "torch", "training"]
RANKS_OF = {"stencil": RANKS, "meep": MEEP_RANKS}  # those with a file for each

# A pulse of light in a box with a sphere and a bar of glass: every process writes its part of all fields, from when they are full.
MEEP = """(define-param edge 8)
(set-param! resolution 10)
(set! geometry-lattice (make lattice (size edge edge edge)))
(set! geometry (list
  (make sphere (center 0.2 0 0) (radius (/ edge 4)) (material (make dielectric (epsilon 5))))
  (make block (center (/ edge -4) 1 0) (size 0.5 2 infinity) (material (make dielectric (epsilon 12))))))
(set! pml-layers (list (make pml (thickness (/ edge 8)))))
(set! sources (list (make source (src (make gaussian-src (frequency 0.3) (fwidth 0.2))) (component Ez) (center (/ edge -4) -1 0.3))))
(define step 0)
(define (two n) (string-append (if (< n 10) "0" "") (number->string n)))
(define (dump)
  (meep-fields-dump fields (string-append "ckpt.rank" (two (meep-my-rank)) ".step" (number->string step) ".h5") false)
  (set! step (+ step 1)))
(run-until %d (after-time 4.9 (at-every 1 dump)))
"""


def make_stencil(data, size):
    program = os.path.join(BUILD, "tests/bench/stencil_h5")
    if not os.path.exists(program):
        return "stencil_h5 was not built: it needs MPI and HDF5"
    edge = max(4, round((size * 2**20 / RANKS / CELL) ** (1 / 3)))
    os.makedirs(data)
    subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS), program, data, str(edge), str(STEPS)], check=True,
                   stderr=subprocess.DEVNULL)
    return None


def make_meep(data, size):
    if not shutil.which("meep"):
        return "meep is not installed: apt-get install meep-openmpi"
    os.makedirs(data)
    with open(os.path.join(data, "in.ctl"), "w") as f:
        f.write(MEEP % (4 + MEEP_STEPS))
    edge = round((size * 2**20 / MEEP_CELL) ** (1 / 3) / 10, 1)
    out = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", str(MEEP_RANKS), "meep",
                          f"edge={edge}", "in.ctl"], cwd=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    os.remove(os.path.join(data, "in.ctl"))
    if out.returncode != 0 or len(os.listdir(data)) != MEEP_RANKS * MEEP_STEPS:
        raise SystemExit(f"meep failed: {out.stdout.decode()[-2000:]}")
    return None


def make(name, data, size):
    own = {"stencil": make_stencil, "meep": make_meep}
    return own[name](data, size) if name in own else space.make(name, data, size)


def analyze(files, *options):
    """Of a store of pages, all of it, once it is compacted. Speed is that of coding."""
    out = subprocess.run([tool("ckptfs-analyze"), "-q", "--json", "--variables", "--chunking", "page", "--compress", "none", "--budget", str(BUDGET),
                          "--group", str(max(GROUP_SIZES)), *options, *files], check=True, stdout=subprocess.PIPE).stdout
    j = json.loads(out)
    report, plain, taken = j["compacted"]["report"], j["total"]["size_bytes"], j["measured"]["stores"][0]["compacted_bytes"]
    return {"plain_bytes": plain, "coded_bytes": taken, "ratio": plain / taken, "in_mb_s": report["bytes"] * 1e3 / report["code_ns"],
            "variables": report["variables"], "rivals": j.get("rivals")}


def figures(a):
    return {k: a[k] for k in ("plain_bytes", "coded_bytes", "ratio", "in_mb_s")}


def show(title, a, against=None):
    gain = f"{100 * (a['ratio'] / against['ratio'] - 1):+8.1f} %" if against else ""
    print(f"  {title:<26} {a['ratio']:8.3f} {a['in_mb_s']:9.0f} {gain}", flush=True)


def measure_set(data):
    rows = {}
    print(f"  {'':<26} {'ratio':>8} {'in MB/s':>9} over agnostic")
    for scheme in SCHEMES:
        rows[scheme] = figures(analyze([data], "--scheme", scheme, "--chain", "0"))
        show(scheme, rows[scheme], rows["agnostic"])
    whole = analyze([data], "--chain", "4", "--rivals")
    rows["auto, against steps"] = figures(whole)
    show("auto, against steps", rows["auto, against steps"], rows["agnostic"])
    for rival in whole["rivals"]:
        rows[rival["name"]] = {"plain_bytes": whole["plain_bytes"], "coded_bytes": rival["coded_bytes"],
                               "ratio": whole["plain_bytes"] / rival["coded_bytes"],
                               "in_mb_s": whole["plain_bytes"] * 1e3 / rival["encode_ns"]}
        show(rival["name"], rows[rival["name"]])
    return {"rows": rows, "variables": whole["variables"]}


def last_step(data, ranks):
    """A checkpoint set: steps do not matter where each is coded for itself."""
    names = sorted(os.listdir(data), key=lambda name: name.split(".step")[1])  # ckpt.rankRANK.stepSTEP.h5
    return [os.path.join(data, name) for name in names[-ranks:]]


def sweep(files, option, values, unit, schemes):
    table = {}
    print(f"  {option + ', ' + unit:<16}" + "".join(f"{s:>16}" for s in schemes))
    for value in values:
        table[value] = {s: analyze(files, "--scheme", s, "--chain", "0", f"--{option}", f"{value}{'K' if unit == 'KiB' else ''}")["ratio"]
                        for s in schemes}
        print(f"  {value:<16}" + "".join(f"{table[value][s]:16.3f}" for s in schemes), flush=True)
    return table


def restore_small(name, data, size, base, rounds):
    make(name, data, max(1, size // SMALL[name]))
    result = aware_restore.measure(base, data, rounds)
    aware_restore.show(result, "small files")
    shutil.rmtree(data)
    return result


def run(base, size, rounds, sets, others):
    """others: whether other programs than ckptfs take part."""
    report = {"sets": {}}
    for name in sets:
        data = os.path.join(base, name)
        why_not = make(name, data, size)
        print(f"aware, {name}" + (f": skipped: {why_not}" if why_not else ""), flush=True)
        if why_not:
            report["sets"][name] = {"skipped": why_not}
            continue
        report["sets"][name] = measure_set(data)
        if name in RANKS_OF:
            files = last_step(data, RANKS_OF[name])
            report["sets"][name]["by_group"] = sweep(files, "group", GROUP_SIZES, "ranks", SCHEMES[:4])
            report["sets"][name]["by_block"] = sweep(files, "block", BLOCK_SIZES, "KiB", ["agnostic-block", "aware-block"])
        report["sets"][name]["others"] = space.backup_rows(base, [data], backup.COMPRESSED if others else [])
        report["sets"][name]["compacted"] = space.compacted_rows(base, [data], report["sets"][name]["others"])
        report["sets"][name]["restore"] = aware_restore.measure(base, data, rounds)
        aware_restore.show(report["sets"][name]["restore"])
        shutil.rmtree(data)
        if name in SMALL:
            report["sets"][name]["restore_small"] = restore_small(name, data, size, base, rounds)
    return report
