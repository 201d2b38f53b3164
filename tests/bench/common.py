# SPDX-License-Identifier: GPL-3.0-or-later
"""What the groups of ./bench share: where things are, mounts, and an empty cache."""
import json
import os
import shutil
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("CKPTFS_BUILD") or os.path.join(TOP, "build")
WORK = os.path.join(BUILD, "tests/bench/work")
REST = 1.5  # seconds without work; a daemon begins what it has put off after one
REST_MAX = 30  # then it goes on as it is


def sh(*command):
    subprocess.run(command, check=True)


def tool(name):
    return os.path.join(BUILD, "tools", name)


class Rival:
    """A directory to work in: a plain one, or a filesystem mounted afresh for each case."""

    def __init__(self, name, base, daemon=None, shares=False):
        self.name, self.base, self.daemon, self.shares = name, base, daemon, shares
        self.dir = os.path.join(base, name)
        self.process = None

    def start(self):
        os.makedirs(self.dir)
        self.mount()

    def mount(self):
        if not self.daemon:
            return
        self.process = subprocess.Popen(self.daemon(self.base, self.dir))
        for _ in range(600):
            if os.path.ismount(self.dir):
                os.statvfs(self.dir)  # answered by the daemon: it has started
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"bench: {self.name} does not mount")

    def unmount(self):
        if self.process:
            sh("umount", self.dir)
            status = self.process.wait()  # everything is on disk only then
            self.process = None
            if status != 0:
                sys.exit(f"bench: {self.name}: the daemon ended with status {status}")

    def cpu(self):
        """Seconds of processor time that its daemon has used."""
        if not self.process:
            return 0
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.unmount()
        for name in os.listdir(self.base):
            shutil.rmtree(os.path.join(self.base, name))

    def work(self, workload, **options):
        """Run one workload; its result. Options as of tests/bench/work."""
        command = [WORK, workload, self.dir]
        for key, value in options.items():
            command += [f"--{key}"] + ([] if value is True else [str(value)])
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return json.loads(out)

    def remove(self, step, processes):
        for i in range(processes):
            os.unlink(os.path.join(self.dir, f"ckpt-{i}.{step:04}"))


def ckptfs(base, name, **options):
    """A rival: ckptfs with mount options, its store and mountpoint in a new directory of that name."""
    given = ",".join(f"{key}={value}" for key, value in {"log_level": "warning", **options}.items())
    program = os.path.join(BUILD, "fs/mount.ckptfs")
    base = os.path.join(base, name)
    os.mkdir(base)
    return Rival(name, base, lambda base, mountpoint: [program, "--foreground", "-o", given,
                                                       os.path.join(base, "store"), mountpoint], shares=True)


def rest(rivals, idle=REST):
    """Until no daemon has done anything for so long: what one has put off must not be done in the turn of another."""
    used, since, end = -1, time.monotonic(), time.monotonic() + REST_MAX
    while time.monotonic() < min(since + idle, end):
        now = sum(r.cpu() for r in rivals)
        if now > used + 0.01 * (1 + len(rivals)):  # as it was, but for their timers
            used, since = now, time.monotonic()
        time.sleep(0.1)


def settle(drop):
    os.sync()
    if drop:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
