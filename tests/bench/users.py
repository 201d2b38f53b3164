# SPDX-License-Identifier: GPL-3.0-or-later
"""The group users of ./bench: what long requests of one user, at absurd sizes, cost another user's ordinary ones."""
import os
import subprocess
import time

from common import BUILD, ckptfs

KINDS = ["clone", "clone-deep", "copy", "compare", "compare-deep", "stat", "seek", "verify", "seal", "reseal", "seals", "list", "ask",
         "owners"]
APART = {"repeat": 3, "osync": 64}  # processes of kinds that are not among the last row: they write as fast as they can
LIMIT = 10  # times the latency of the quiet mount
USER, OTHER = 1000, 1001
NR_EACH, NR_FILES, MS = 3, 60000, 5000
HOG = os.path.join(BUILD, "tests/mount/hog")


def as_user(uid, *command):
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *command]


def rounds(directory):
    """stat, create, write, fsync and unlink, one after the other."""
    out = subprocess.run(as_user(OTHER, HOG, "victim", directory, str(MS)), check=True, stdout=subprocess.PIPE, text=True)
    return dict(zip(("rounds", "p50_us", "p99_us", "max_us"), map(int, out.stdout.split())))


def prepare(mnt):
    for name in ("user", "user/many", "user/whole", "user/sealed", "other"):
        os.mkdir(os.path.join(mnt, name))
    for i in range(NR_FILES):
        for name in ("many", "whole"):
            os.close(os.open(f"{mnt}/user/{name}/{i}", os.O_CREAT | os.O_WRONLY, 0o644))
    with open(f"{mnt}/user/sealed/sparse", "w") as f:
        f.truncate(900 << 50)
    subprocess.run(["chown", "-R", f"{USER}:{USER}", f"{mnt}/user"], check=True)
    os.chown(f"{mnt}/other", OTHER, OTHER)
    subprocess.run(as_user(USER, HOG, "files", f"{mnt}/user"), check=True)
    subprocess.run(as_user(USER, os.path.join(BUILD, "tools/ckptfs-seal"), f"{mnt}/user/sealed"), check=True,
                   stdout=subprocess.DEVNULL)


def beside(kinds, nr, mnt, marks):
    """The other user's figures while `nr` processes per kind are at it, and how long the last of them lives when killed."""
    hogs = [subprocess.Popen(as_user(USER, HOG, kind, f"{mnt}/user", f"{marks}/{kind}.{i}"), stderr=subprocess.DEVNULL)
            for kind in kinds for i in range(nr)]
    while not all(os.path.exists(f"{marks}/{kind}.{i}") for kind in kinds for i in range(nr)):
        time.sleep(0.01)
    try:
        figures = rounds(f"{mnt}/other")
    finally:
        start = time.monotonic()
        for hog in hogs:
            hog.kill()
        for hog in hogs:
            hog.wait()
        for name in os.listdir(marks):
            os.unlink(os.path.join(marks, name))
    return {**figures, "killed_ms": round(1000 * (time.monotonic() - start))}


def show(name, f, quiet=None):
    ratio = f"{f['p50_us'] / quiet['p50_us']:5.1f} x p50 {f['p99_us'] / quiet['p99_us']:5.1f} x p99" if quiet else ""
    killed = f"  clients gone after {f['killed_ms']} ms" if "killed_ms" in f else ""
    print(f"  {name:14}{f['rounds']:7} rounds  p50 {f['p50_us']:7} us  p99 {f['p99_us']:8} us  max {f['max_us']:8} us  "
          f"{ratio}{killed}", flush=True)


def measure(mnt, marks):
    result = {"quiet": rounds(f"{mnt}/other")}
    show("quiet", result["quiet"])
    rows = [(kind, [kind], NR_EACH) for kind in KINDS] + [(kind, [kind], nr) for kind, nr in APART.items()]
    for name, kinds, nr in rows + [("all but these", KINDS, NR_EACH)]:
        result[name] = beside(kinds, nr, mnt, marks)
        show(name, result[name], result["quiet"])
    return result


def run(base):
    print(f"users: one user's stat, create, write, fsync and unlink, beside {NR_EACH} processes of another per kind of long request, "
          f"{APART['osync']} of osync")
    marks = os.path.join(base, "marks")
    os.mkdir(marks)
    os.chmod(marks, 0o777)
    os.chmod(os.path.dirname(base), 0o755)  # the users have to get there
    rival = ckptfs(base, "ckptfs")
    rival.start()
    try:
        prepare(rival.dir)
        with open(f"{rival.dir}/user/many/0", "a"):  # so that sealing it fails
            result = measure(rival.dir, marks)
    finally:
        rival.stop()
    worst = max(f["p50_us"] for f in result.values()) / result["quiet"]["p50_us"]
    print(f"  at most {worst:.1f} x the median latency of the quiet mount (limit {LIMIT}): "
          f"{'kept' if worst <= LIMIT else 'NOT KEPT'}")
    return {**result, "worst_ratio": worst, "limit": LIMIT}
