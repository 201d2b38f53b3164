# SPDX-License-Identifier: GPL-3.0-or-later
"""Those that ./bench space is compared with: programs that keep a series of directories in little space.

Each is a class with `title`, `compressed`, `needs` (program, Debian package), `add(step)` for the directory of one step after
the other, and `bytes()`: what all of them together take. close() leaves nothing mounted.
"""
import os
import re
import shutil
import subprocess
import tempfile


LIMIT_S = 900  # for one command


def quiet(*command, **environment):
    """What it has printed; with what it complained about, if it failed."""
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:3])}: exit status {done.returncode}: {done.stdout[-500:]}")
    return done.stdout


def du(path):
    """Bytes that a directory takes on the disk."""
    return int(quiet("du", "-s", "--block-size=1", path).split()[0])


def room_in(path):
    """Bytes that may be used there; of memory, half of what is free."""
    with open("/proc/meminfo") as f:
        free = next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))
    return min(shutil.disk_usage(path).free, free // 2) if os.path.isdir(path) else 0


def piped(step_names, top, command):
    """Give a tar of these directories below top to a command."""
    tar = subprocess.Popen(["tar", "--sort=name", "-C", top, "-cf", "-", *step_names], stdout=subprocess.PIPE)
    try:
        done = subprocess.run(command, stdin=tar.stdout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    finally:
        tar.stdout.close()
        status = tar.wait()
    if done.returncode != 0 or status != 0:
        raise RuntimeError(f"{' '.join(command[:3])}: exit status {done.returncode}, tar {status}: {done.stdout[-500:]}")


class Backup:
    compressed = False
    whole = False  # without random access: what is read is a whole step, or all of them

    def __init__(self, base, data):
        self.base, self.store = base, os.path.join(base, "store")
        os.makedirs(base)
        self.open(data)

    def open(self, data):
        pass

    def add(self, step):
        raise NotImplementedError

    def bytes(self):
        return du(self.store)

    def close(self):
        shutil.rmtree(self.base)


class Borg(Backup):
    title, compression, needs = "borg, none", "none", [("borg", "borgbackup")]

    def borg(self, *command):
        quiet("borg", *command, BORG_BASE_DIR=os.path.join(self.base, "borg"))

    def open(self, data):
        self.borg("init", "--encryption", "none", self.store)

    def add(self, step):
        self.borg("create", "--compression", self.compression, f"{self.store}::{os.path.basename(step)}", step)


class BorgLz4(Borg):
    title, compression, compressed = "borg, lz4 (its default)", "lz4", True


class Restic(Backup):
    title, compression, needs = "restic, off", "off", [("restic", "restic")]

    def restic(self, *command):
        quiet("restic", "--repo", self.store, "--no-cache", *command, RESTIC_PASSWORD="bench", HOME=self.base)

    def open(self, data):
        self.restic("init", "--repository-version", "2")

    def add(self, step):
        self.restic("backup", "--compression", self.compression, step)


class ResticAuto(Restic):
    title, compression, compressed = "restic, auto (its default)", "auto", True


class Casync(Backup):
    """It cannot store without compression."""

    title, compressed, needs = "casync, zstd (its default)", True, [("casync", "casync")]

    def open(self, data):
        os.mkdir(self.store)

    def add(self, step):
        quiet("casync", "make", f"--store={self.store}/chunks.castr", f"{self.store}/{os.path.basename(step)}.caidx", step)


class Btrfs(Backup):
    """As good as it gets. Files are written in direct pieces of 4 KiB: an extent of btrfs is freed as a whole or not at all, and
    from a plain copy, whose extents are long, duperemove shares much and frees nothing. duperemove compares blocks of 4 KiB, also
    inside extents. What counts is what btrfs says is used, with metadata stored once, not twice as by default. It lies in memory
    where there is room: pieces of 4 KiB would keep a disk busy for minutes, and where it lies does not change how much it is."""

    title, needs = "btrfs + duperemove", [("mkfs.btrfs", "btrfs-progs"), ("duperemove", "duperemove")]

    def open(self, data):
        size = du(data) * 5 // 4 + (1 << 30)
        os.mkdir(self.store)
        with tempfile.NamedTemporaryFile(dir="/dev/shm" if room_in("/dev/shm") > size else self.base) as image:
            image.truncate(size)
            quiet("mkfs.btrfs", "-q", "-m", "single", "-d", "single", image.name)
            quiet("mount", "-o", "loop,noatime", image.name, self.store)  # and goes with the mount

    def add(self, step):
        to = os.path.join(self.store, os.path.basename(step))
        os.mkdir(to)
        for name in sorted(os.listdir(step)):
            quiet("dd", f"if={step}/{name}", f"of={to}/{name}", "bs=4K", "oflag=direct")

    def bytes(self):
        quiet("duperemove", "-d", "-r", "-q", "-b", "4096", "--lookup-extents=no", "--dedupe-options=same,nofiemap",
              f"--hashfile={self.base}/hashes", self.store)
        quiet("btrfs", "filesystem", "sync", self.store)
        return int(re.search(r"^ +Used:\s+(\d+)$", quiet("btrfs", "filesystem", "usage", "-b", self.store), re.M)[1])

    def close(self):
        if os.path.ismount(self.store):
            quiet("umount", self.store)  # which frees the loop device as well
        super().close()


class Zbackup(Backup):
    """It takes a stream, here a tar for each step, and returns it as a whole."""

    title, compressed, whole, needs = "zbackup, lzma (its default), whole steps only", True, True, [("zbackup", "zbackup"), ("tar", "tar")]

    def zbackup(self, *command):
        return ["zbackup", "--silent", "--non-encrypted", *command]

    def open(self, data):
        quiet(*self.zbackup("init", self.store))

    def add(self, step):
        piped([os.path.basename(step)], os.path.dirname(step), self.zbackup("backup", f"{self.store}/backups/{os.path.basename(step)}"))


class Zstd(Backup):
    """One tar of all steps. What lies in it can only be read by decompressing all that is before it, and nothing can be added or
    removed: no random access, and none of the others' work."""

    title, options, compressed, whole, needs = "zstd -1, one tar, no random access", ["-1"], True, True, [("zstd", "zstd"), ("tar", "tar")]

    def open(self, data):
        os.mkdir(self.store)
        self.steps = []

    def add(self, step):
        self.steps.append(step)

    def bytes(self):
        piped([os.path.basename(step) for step in self.steps], os.path.dirname(self.steps[0]),
              ["zstd", "-q", *self.options, "-o", f"{self.store}/all.tar.zst"])
        return du(self.store)


class ZstdLong(Zstd):
    title, options = "zstd --long=27, one tar, no random access", ["-3", "--long=27"]


ALL = [Borg, Restic, Btrfs, BorgLz4, ResticAuto, Casync, Zbackup, Zstd, ZstdLong]
COMPRESSED = [program for program in ALL if program.compressed]
