# SPDX-License-Identifier: GPL-3.0-or-later
"""The group cluster of ./bench: several nodes on this machine, each a store, a mount and an agent. What they store together, what a round
costs, and what it takes to read what others have. Needs MPI.

Nodes share the processors and the disk, so times are those of all nodes together; counts are exact.
"""
import contextlib
import glob
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

from common import BUILD, ckptfs, rest, settle, tool

NODES = 8
MIB = 1 << 20
K = 1 << 17  # pages in a set; a page of 4 KiB of `pending` each
COPIES_LIMIT = 1.02  # stored chunk bytes / (copies x one copy)
EVEN_LIMIT = 1.05  # most of a node / mean of all
ROUND_LIMIT = 1.05  # checkpoint with agents / without
REMOTE_LIMIT = 0.5  # restore of what others have / of what is here
PATIENCE = 600  # seconds that nothing here takes
MPI = {"OMPI_MCA_btl": "self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_odls_base_sigkill_timeout": "0",
       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}


def program(name):
    return os.path.join(BUILD, "tests/cluster", name)


def judge(value, limit, least=False):
    held = value >= limit if least else value <= limit
    return f"({'>=' if least else '<='} {limit}{'' if held else ' MISSED'})"


# --- processes ---

def mpirun_start(nr, script, *arguments, log, options=(), **variables):
    """A shell script for each rank, in a session of its own, so that all of it can be ended."""
    with open(log, "a") as out:
        return subprocess.Popen(["mpirun", *options, "-n", str(nr), "sh", "-c", script, "sh", *arguments], stdout=out,
                                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                                env={**os.environ, **MPI, **variables})


def end(process, seconds=20):
    """As it should, or at once."""
    try:
        process.terminate()
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def processor_seconds(pid):
    """Of all its threads, those that have ended among them: the clock of clock_getcpuclockid(3)."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError as e:
        raise FileNotFoundError(f"process {pid}") from e


def difference(after, before):
    return {key: after[key] - before[key] for key in after}


def medians_of(rows):
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def mpirun(nr, script, *arguments, log, **more):
    """Until it has ended; what it printed."""
    open(log, "w").close()
    process = mpirun_start(nr, script, *arguments, log=log, **more)
    try:
        status = process.wait(PATIENCE)
    finally:
        end(process)
    with open(log) as f:
        said = f.read()
    if status != 0:
        raise RuntimeError(f"mpirun {script}: exit status {status}: {said[-2000:]}")
    return said


def together(jobs):
    """Each in a thread of its own, from a common start; seconds until the last is done."""
    barrier = threading.Barrier(len(jobs) + 1)
    failed = []

    def work(job):
        try:
            barrier.wait()
            job()
        except BaseException as e:  # told below, where it can be heard
            failed.append(e)

    threads = [threading.Thread(target=work, args=(job,), daemon=True) for job in jobs]
    for t in threads:
        t.start()
    barrier.wait()
    begun = time.monotonic()
    for t in threads:
        t.join(max(0, begun + PATIENCE - time.monotonic()))
        if t.is_alive():
            raise RuntimeError("a node does not come to an end")
    if failed:
        raise failed[0]
    return time.monotonic() - begun


def write(path, data, sync=True):
    with open(path, "ab", buffering=0) as f:
        for at in range(0, len(data), MIB):
            f.write(data[at:at + MIB])
        if sync:
            os.fsync(f.fileno())


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# --- nodes ---

class Cluster:
    """Some nodes, with agents unless told otherwise; all of it is gone when it is left, whatever happened."""

    def __init__(self, base, nr, agents=True, **options):
        self.dir = os.path.join(base, f"cluster-{nr}")
        os.mkdir(self.dir)
        key = os.path.join(self.dir, "key")
        with open(key, "wb") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write(os.urandom(64))
        self.log = os.path.join(self.dir, "log")
        self.nodes = [ckptfs(self.dir, f"node-{i}", cluster=key, **options) for i in range(nr)]
        self.has_agents, self.agents = agents, None

    def __enter__(self):
        try:
            for node in self.nodes:
                os.makedirs(node.dir)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.end_agents()
        for node in self.nodes:
            if not node.process:
                continue
            if subprocess.run(["umount", node.dir], stderr=subprocess.DEVNULL).returncode != 0:
                node.process.kill()
                subprocess.run(["umount", "-l", node.dir], stderr=subprocess.DEVNULL)
            try:
                node.process.wait(PATIENCE)
            finally:
                node.process.kill()
        subprocess.run(["rm", "-rf", "--one-file-system", self.dir], check=True)

    def start(self):
        for node in self.nodes:
            node.mount()
        if self.has_agents:
            self.start_agents()

    def stop(self):
        self.end_agents()
        for node in self.nodes:
            node.unmount()

    def start_agents(self):
        script = 'shift $OMPI_COMM_WORLD_RANK; CKPTFS_AGENT_HOST=host$OMPI_COMM_WORLD_RANK exec "$AGENT" --mount "$1"'
        self.agents = mpirun_start(len(self.nodes), script, *(node.dir for node in self.nodes), log=self.log,
                                   AGENT=os.path.join(BUILD, "mpi-agent/ckptfs-agent"))
        until = time.monotonic() + 60
        while any(self.stat(node)["cluster"]["nodes"] != len(self.nodes) for node in self.nodes):
            if time.monotonic() > until or self.agents.poll() is not None:
                raise RuntimeError(f"the agents do not find each other: {open(self.log).read()[-2000:]}")
            time.sleep(0.1)

    def end_agents(self):
        if self.agents:
            end(self.agents)
            self.agents = None

    def stat(self, node):
        out = subprocess.run([tool("ckptfs-stat"), "--json", node.dir], check=True, stdout=subprocess.PIPE, timeout=60).stdout
        return json.loads(out)

    def stored(self):
        """Bytes of chunks, by node."""
        return [self.stat(node)["stored_bytes"] for node in self.nodes]

    def processor_seconds(self):
        """Of all daemons, of all agents, and of this program, which writes and reads: what a machine with other load measures, too."""
        with contextlib.suppress(FileNotFoundError):  # an agent that is about to end
            agents = open(f"/proc/{self.agents.pid}/task/{self.agents.pid}/children").read().split() if self.agents else []
            return {"daemons": sum(processor_seconds(node.process.pid) for node in self.nodes),
                    "agents": sum(processor_seconds(int(pid)) for pid in agents), "programs": time.process_time()}
        raise RuntimeError(f"agents have ended: {open(self.log).read()[-2000:]}")

    def rounds(self):
        """Of node 0's agent: how many, and the seconds that they have taken so far, by part."""
        out = subprocess.run([os.path.join(BUILD, "mpi-agent/ckptfs-agent"), "--mount", self.nodes[0].dir, "--status"], check=True,
                             stdout=subprocess.PIPE, text=True, timeout=60).stdout
        times = [float(s) for s in re.findall(r"([0-9.]+) s", next(line for line in out.splitlines() if line.startswith("Time:")))]
        return {"rounds": int(re.search(r"Rounds: +(\d+)", out)[1]),
                **dict(zip(("offering", "reducing", "storing", "gathering"), times))}

    def disk(self):
        """KiB of each part of the stores, which are not mounted."""
        parts = {}
        for node in self.nodes:
            store = os.path.join(node.base, "store")
            for name in os.listdir(store):
                out = subprocess.run(["du", "-sk", os.path.join(store, name)], check=True, stdout=subprocess.PIPE, text=True).stdout
                parts[name] = parts.get(name, 0) + int(out.split()[0])
        return parts


# --- a: the same on all nodes ---

def same_rows(base, size, rounds):
    result = []
    for replicas in 1, 2:
        with Cluster(base, NODES, replicas=replicas, pending=f"{2 * size}M") as c:
            data = os.urandom(size * MIB)
            seconds = together([lambda n=node: write(os.path.join(n.dir, "ckpt"), data) for node in c.nodes])
            stored, told = c.stored(), c.rounds()
            c.stop()
            disk = c.disk()
        copies, even = sum(stored) / len(data), max(stored) / statistics.mean(stored)
        others = {name: kib for name, kib in disk.items() if name != "packs"}
        tables = disk["packs"] / 1024 - sum(stored) / MIB
        print(f"  the same {size} MiB on {NODES} nodes, replicas={replicas}:".ljust(56) +
              f"{copies:6.3f} copies stored {judge(copies, round(COPIES_LIMIT * replicas, 2))}, most / mean of a node {even:.3f} "
              f"{judge(even, EVEN_LIMIT)}, {told['rounds']} rounds, {seconds:.1f} s", flush=True)
        whole = sum(disk.values()) / 1024
        print(f"    on disk {whole:.1f} MiB, {whole / size:.3f} copies: chunks {sum(stored) / MIB:.1f}, tables {tables:.1f}, " +
              ", ".join(f"{name} {kib / 1024:.1f}" for name, kib in sorted(others.items()) if kib >= 64), flush=True)
        result.append({"replicas": replicas, "stored_bytes": stored, "copies": copies, "target": COPIES_LIMIT * replicas,
                       "max_to_mean": even, "max_to_mean_target": EVEN_LIMIT, "disk_kib": disk, "rounds": told, "seconds": seconds})
    return result


# --- b: what a round costs ---

def told_seconds(used):
    return " + ".join(f"{key} {value:.3f}" for key, value in used.items()) + f" = {sum(used.values()):.3f} s"


def unique_checkpoint(c, size, common):
    """Seconds, those of processors, and what the agent of node 0 says of rounds."""
    same = os.urandom(common)
    data = [same + os.urandom(size * MIB - common) for _ in c.nodes]
    paths = [os.path.join(node.dir, "ckpt") for node in c.nodes]
    settle(False)
    rest(c.nodes)
    before, used_before = c.rounds() if c.agents else {}, c.processor_seconds()
    took = together([lambda p=path, d=d: write(p, d) for path, d in zip(paths, data)])
    used = difference(c.processor_seconds(), used_before)
    told = difference(c.rounds(), before) if c.agents else {}
    for path in paths:
        os.unlink(path)
    return took, used, told


def unique_rows(base, size, rounds):
    """Checkpoints of new pages, all nodes at once, in turn: with agents, the first since these are there, of which all pages are asked about;
    the second, whose first pages are; the third, of which the same is true, as of one in 17 from then on; and some that are not asked about;
    with agents and one page in a hundred that all have; and without agents."""
    each = max(1, size // 4)
    # agents, bytes in common, checkpoints before those that count (nodes go by what the last one had in common), and how many do
    cases = {"with agents, the first": (True, 0, 0, 1), "with agents, the second": (True, 0, 0, 1), "with agents, a probe": (True, 0, 0, 1),
             "with agents": (True, 0, 0, 3), "with agents, 1 % in common": (True, each * MIB // 100 // 4096 * 4096, 1, 1), "without": (False, 0, 1, 3)}
    seconds = {name: [] for name in cases}
    parts = {name: [] for name, (agents, *_) in cases.items() if agents}
    used = {name: [] for name in cases}
    with Cluster(base, NODES, replicas=2, pending=f"{K * 4096 // MIB}M") as c:
        for number in range(max(rounds, 5) + 1):  # the first is not counted: files, packs and memory are new to all
            for name, (agents, common, nr_before, nr_counted) in cases.items():
                if agents and not c.agents:
                    c.start_agents()
                if not agents:
                    c.end_agents()
                if not agents:
                    nr_before += number % 3  # what a daemon does once in so many checkpoints is not always for the same ones
                for is_counted in [False] * nr_before + [number > 0] * nr_counted:
                    took, used_now, told = unique_checkpoint(c, each, common)
                    if is_counted:
                        seconds[name].append(took)
                        used[name].append(used_now)
                        if agents:
                            parts[name].append(told)
    medians = {name: statistics.median(v) for name, v in seconds.items()}
    of_processors = {name: medians_of(v) for name, v in used.items()}
    for name in parts:
        ratio = medians[name] / medians["without"]
        told = medians_of(parts[name])
        print(f"  {each} MiB on each of {NODES} nodes, all new, {name}:".ljust(72) +
              f"{medians[name]:6.3f} s, without {medians['without']:.3f} s: {ratio:.3f} x "
              f"{judge(ratio, ROUND_LIMIT) if name in ('with agents', 'with agents, a probe') else ''}", flush=True)
        print(f"    of it {told['rounds']:.0f} rounds: {told['offering'] * 1e3:.0f} ms for offers, "
              f"{told['reducing'] * 1e3:.0f} ms reducing, {told['storing'] * 1e3:.0f} ms storing, "
              f"{told['gathering'] * 1e3:.0f} ms until all have", flush=True)
        print(f"    of processors {told_seconds(of_processors[name])}, without {told_seconds(of_processors['without'])}: "
              f"{sum(of_processors[name].values()) / sum(of_processors['without'].values()):.3f} x", flush=True)
    return {"size_mib": each, "seconds": seconds, "processor_seconds": used, "rounds": parts, "target": ROUND_LIMIT,
            "ratio": {name: medians[name] / medians["without"] for name in parts}}


# --- c: the reduction ---

def messages(prefix):
    """What MPI itself has counted: messages and bytes of all ranks, and of the one that sent the most."""
    by_rank = []
    for path in glob.glob(prefix + ".*.prof"):
        with open(path) as f:
            sent = [re.match(r"[IE]\s+\d+\s+\d+\s+(\d+) bytes\s+(\d+) msgs", line) for line in f]
        by_rank.append((sum(int(m[2]) for m in sent if m), sum(int(m[1]) for m in sent if m)))
        os.unlink(path)
    return {"messages": sum(m for m, _ in by_rank), "bytes": sum(b for _, b in by_rank), "messages_of_one": max(m for m, _ in by_rank),
            "bytes_of_one": max(b for _, b in by_rank)}


def reduction(base, ranks, times, count):
    prefix = os.path.join(base, "monitor")
    options = ["--mca", "pml_monitoring_enable", "1", "--mca", "pml_monitoring_enable_output", "3", "--mca", "pml_monitoring_filename",
               prefix] if count else []
    out = mpirun(ranks, 'exec "$REDUCE" --measure "$1" 0 "$2"', str(K), str(times), log=os.path.join(base, "reduce.log"), options=options,
                 REDUCE=program("reduce"))
    told = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    return {**told, **(messages(prefix) if count else {})}


def reduction_rows(base, size, rounds):
    """Counts of one reduction are the difference between two runs, with two of them and with one; times are of runs that count nothing."""
    print(f"  a reduction of {K} pages, all different:".ljust(48) + f"{'ranks':>6}{'deep':>6}{'merges':>8}{'entries':>10}{'of one':>9}"
          f"{'messages':>10}{'MB':>8}{'of one':>8}{'ms':>8}", flush=True)
    result = []
    for ranks in 2, 4, 8, 16, 32, 64:
        one, two = (reduction(base, ranks, n, True) for n in (1, 2))
        row = {**reduction(base, ranks, rounds, False),
               **{key: two[key] - one[key] for key in ("messages", "bytes", "messages_of_one", "bytes_of_one")}}
        row["log2"] = math.ceil(math.log2(ranks))
        print(f"{'':48}{ranks:6}{row['log2']:6}{row['merges']:8}{row['entries']:10}{row['entries_of_one']:9}{row['messages']:10}"
              f"{row['bytes'] / 1e6:8.1f}{row['bytes_of_one'] / 1e6:8.1f}{row['seconds'] * 1e3:8.0f}", flush=True)
        result.append(row)
    merge, seal = (statistics.median(row[key] for row in result) for key in ("merge_ns", "seal_ns"))
    print(f"    a merge takes {merge:.1f} ns of a processor for an entry, a seal {seal:.3f} ns for a byte", flush=True)
    return {"k": K, "rows": result, "merge_ns": merge, "seal_ns": seal}


# --- d: the stencil ---

def stencil(base, ranks, edge, dirs):
    """Two checkpoints of a tile for each rank, which is a node of its own; what the result is."""
    width = 1 << (ranks.bit_length() - 1 + 1) // 2
    options = f"--width {width} --height {ranks // width} --edge {edge} --levels 8 --steps 20 --every 10"
    out = mpirun(ranks, 'shift $OMPI_COMM_WORLD_RANK; exec "$STENCIL" $OPTIONS --dir "$1"', *dirs, log=os.path.join(base, "stencil.log"),
                 STENCIL=program("stencil"), OPTIONS=options)
    return out.splitlines()[-1]


def stencil_rows(base, size, rounds):
    edge = 32 if size < 64 else 96
    print(f"  stencil, {edge} x {edge} x 8 cells and a node for each rank, stored KiB per rank:".ljust(80) +
          f"{'ranks':>6}{'full':>8}{'local':>8}{'collective':>12}", flush=True)
    result = []
    for ranks in 2, 4, 8, 16, 32:
        plain = os.path.join(base, "plain")
        dirs = [os.path.join(plain, str(i)) for i in range(ranks)]
        for d in dirs:
            os.makedirs(d)
        row = {"ranks": ranks}
        said = stencil(base, ranks, edge, dirs)
        row["full"] = sum(os.path.getsize(p) for p in glob.glob(plain + "/*/ckpt.*")) / ranks
        subprocess.run(["rm", "-rf", plain], check=True)
        for name, agents in ("local", False), ("collective", True):
            with Cluster(base, ranks, agents, replicas=1, cache="16M", dirty="32M", pending="32M") as c:
                if stencil(base, ranks, edge, [node.dir for node in c.nodes]) != said:
                    raise RuntimeError("the stencil comes to another result on a mount")
                stored = c.stored()
                row[name], row[name + "_max"] = statistics.mean(stored), max(stored)
        print(f"{'':80}{ranks:6}" + "".join(f"{row[n] / 1024:{w}.0f}" for n, w in (("full", 8), ("local", 8), ("collective", 12))) +
              f"   = {row['local'] / row['full']:.3f} and {row['collective'] / row['full']:.3f} x full", flush=True)
        result.append(row)
    return {"edge": edge, "rows": result}


# --- e: restoring what others have ---

def read_all(path):
    begun = time.monotonic()
    with open(path, "rb", buffering=0) as f:
        buf, total = bytearray(MIB), 0
        while n := f.readinto(buf):
            total += n
    return total / MIB / (time.monotonic() - begun)


def make_remote(c, size):
    """Two files of node 0: one that it has alone, and one that the other has for it. Of pages that both have the less loaded one
    stores all, and node 0 has as much of its own in each round."""
    here, there = c.nodes
    step = min(size, 16)
    for _ in range(0, size, step):
        data = os.urandom(step * MIB)
        write(os.path.join(there.dir, "remote"), data, False)
        write(os.path.join(here.dir, "remote"), data, False)
        write(os.path.join(here.dir, "local"), os.urandom(step * MIB + 4096 * 64), False)
        together([lambda n=node: sync(os.path.join(n.dir, "remote")) for node in c.nodes])
    return c.stat(here)["cluster"]["remote_bytes"] / (size * MIB)


def remote_rows(base, size, rounds):
    size *= 4
    speeds, used = {"local": [], "remote": []}, {"local": [], "remote": []}
    with Cluster(base, 2, replicas=1, pending="256M", commit=600) as c:  # nothing is committed before both have written
        away = make_remote(c, size)
        for _ in range(rounds):
            for name in speeds:
                c.stop()
                settle(True)
                c.start()
                rest(c.nodes)
                before = c.processor_seconds()
                speeds[name].append(read_all(os.path.join(c.nodes[0].dir, name)))
                used[name].append(difference(c.processor_seconds(), before))
    medians = {name: statistics.median(v) for name, v in speeds.items()}
    ratio = medians["remote"] / medians["local"]
    print(f"  cold restore of {size} MiB, {away:.1%} of it on the other of 2 nodes:".ljust(64) +
          f"{medians['remote']:.0f} MiB/s, of its own {medians['local']:.0f} MiB/s: {ratio:.2f} x "
          f"{judge(ratio, REMOTE_LIMIT, True)}", flush=True)
    print("    of processors " + "; ".join(f"{name} {told_seconds(medians_of(used[name]))}" for name in used), flush=True)
    return {"size_mib": size, "away": away, "mib_per_s": speeds, "processor_seconds": used, "ratio": ratio, "target": REMOTE_LIMIT}


PARTS = {"same": same_rows, "unique": unique_rows, "reduction": reduction_rows, "stencil": stencil_rows, "remote": remote_rows}


def run(base, size, rounds, parts):
    if not os.path.exists(program("reduce")):
        print("cluster: built without MPI", file=sys.stderr)
        return {}
    print("cluster", flush=True)
    return {name: PARTS[name](base, size, rounds) for name in PARTS if name in parts}
