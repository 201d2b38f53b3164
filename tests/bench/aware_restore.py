# SPDX-License-Identifier: GPL-3.0-or-later
"""Restoring what was compacted, against the same files as they were written: of ./bench aware.

Two stores have the same files; of one ckptfs-compact has coded the variables. Their mounts are made anew for each reading, with nothing cached, and
take turns; all files are read one behind the other by one process, in the order of their names, with calls of 1 MiB. Once as fast as it goes, and once with
the packs read at 500 MB/s, as from a filesystem that many share. Compacting is timed, too, beside gzip -6 in aware.py.
"""
import os
import shutil
import statistics
import subprocess
import time

from common import ckptfs, settle, tool

RATES = {"unlimited": 0, "500 MB/s": 500_000_000}
LEAST = {"unlimited": 0.5, "500 MB/s": 1.0}  # times as fast as plain files
CALL = 1 << 20


def files_of(directory):
    return sorted(os.path.join(where, name) for where, _, names in os.walk(directory) for name in names)


def read_all(directory):
    """Bytes per second."""
    room, total, begin = bytearray(CALL), 0, time.monotonic()
    for path in files_of(directory):
        with open(path, "rb", buffering=0) as f:
            while n := f.readinto(room):
                total += n
    return total / (time.monotonic() - begin)


def read_cold(rival, rate):
    """With packs read at this rate, and nothing cached."""
    daemon = rival.daemon
    rival.unmount()
    settle(True)
    rival.daemon = lambda base, mountpoint: [f"{x},read_rate={rate}" if x.startswith("log_level") else x for x in daemon(base, mountpoint)]
    rival.mount()
    try:
        return read_all(rival.dir)
    finally:
        rival.daemon = daemon


def pack_bytes(rival):
    packs = os.path.join(rival.base, "store/packs")
    return sum(os.stat(path).st_blocks * 512 for path in files_of(packs))


def measure(base, data, rounds):
    rivals = {name: ckptfs(base, name) for name in ("plain", "coded")}
    try:
        for rival in rivals.values():
            rival.start()
            shutil.copytree(data, rival.dir, dirs_exist_ok=True)
        settle(False)
        begin = time.monotonic()
        subprocess.run([tool("ckptfs-compact"), "--quiet", rivals["coded"].dir], check=True, stdout=subprocess.DEVNULL)
        result = {"compact_s": time.monotonic() - begin, "rates": {}}
        for title, rate in RATES.items():
            found = {name: [] for name in rivals}
            for _ in range(rounds):
                for name, rival in rivals.items():
                    found[name].append(read_cold(rival, rate))
            result["rates"][title] = {name: statistics.median(x) for name, x in found.items()}
        for rival in rivals.values():
            rival.unmount()
        result["bytes"] = {name: pack_bytes(rival) for name, rival in rivals.items()}
        return result
    finally:
        for rival in rivals.values():
            rival.stop()
            os.rmdir(rival.base)


def show(result, what="restore"):
    taken = result["bytes"]
    print(f"  {what + ', from packs of':<26} {taken['plain'] / 2**20:8.1f} MiB plain, {taken['coded'] / 2**20:.1f} coded")
    for title, rate in result["rates"].items():
        ratio = rate["coded"] / rate["plain"]
        print(f"  {what + ', ' + title:<26} {rate['plain'] / 1e6:8.0f} MB/s plain, {rate['coded'] / 1e6:.0f} coded: {ratio:.2f} x (at least {LEAST[title]:.1f})",
              flush=True)
