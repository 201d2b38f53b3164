# SPDX-License-Identifier: GPL-3.0-or-later
"""The group images of ./bench: what is stored of images of processes, by what memory was, and how long they take.

The measure of Chen et al. (2016), "Optimizing Checkpoint Restart with Data Deduplication": redundancy of heaps and stacks, and how much smaller whole images get, of
single programs and of distributed ones. Theirs are of DMTCP; these are core files (gcore -a) of programs that were started as DMTCP starts them, without randomised
addresses and with the stack as large as it may be; where DMTCP is installed ($DMTCP, or in PATH), of distributed programs also its own images. Then how long CRIU takes to dump and restore a program into ckptfs, beside the plain filesystem.
"""
import json
import os
import pty
import shutil
import signal
import statistics
import subprocess
import time

import datasets
from common import BUILD, Rival, ckptfs, rest, settle, tool

PRELOAD = os.path.join(BUILD, "tests/bench/libgrow_stack.so")
KERNELS = os.path.join(BUILD, "tests/bench/kernels")
WORKER = os.path.join(BUILD, "tests/mount/worker")
RANKS = 2  # as many as in the paper
DUMPS = 5
RESTORES = 5
LONG = 120  # seconds
RATE, RATE_MIB = "500M", 500  # bytes per second that the store may be written with
LIMITED = "ckptfs-limited"
STORES = {"page": {"chunking": "page"}, "cdc": {"chunking": "cdc"}, "auto": {"chunking": "auto"}}  # with compress=zstd:3
# The paper's figures, in percent: heap and stack of single programs after dedup and gzip, of distributed ones after dedup; whole images.
SINGLE = {"base": (99.6, 99.95, 35), "python3": (85.0, 99.93, 25), "vim": (87.0, 99.93, 24), "bc": (96.7, 99.93, 31), "perl": (90.9, 99.94, 29),
          "emacs": (None, None, 10)}
DISTRIBUTED = {"base": (61.52, 99.5, 47.7), "cg": (37.54, 99.45, 49.8), "ep": (43.53, 99.5, 47.7), "is": (51.13, 99.53, 50), "lammps": (None, None, None)}
SETS = list(dict.fromkeys([*SINGLE, *DISTRIBUTED]))  # programs
COMMANDS = {"base": [WORKER, "{dir}/count", "1", "0", "0"], "python3": ["python3", "-q"], "vim": ["vim", "-n", os.path.abspath(__file__)], "bc": ["bc", "-q"],
            "perl": ["perl", "-e", "my @seen; push @seen, $_ while <STDIN>;"], "emacs": ["emacs", "-nw", "-Q", os.path.abspath(__file__)]}


def gcore(pid, path):
    subprocess.run(["gcore", "-a", "-o", path, str(pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.rename(f"{path}.{pid}", path)


def as_dmtcp(command):
    return ["setarch", "-R", "env", f"LD_PRELOAD={PRELOAD}", *command]


def reader(fd):
    """A terminal that nobody looks at: whoever writes to it must not wait."""
    pid = os.fork()
    if pid == 0:
        try:
            while os.read(fd, 65536):
                pass
        finally:
            os._exit(0)
    return pid


def single_image(name, where):
    """A core file of a program that has been started on a terminal and waits there; a reason if it is not installed."""
    command = [part.format(dir=where) for part in COMMANDS[name]]
    if not shutil.which(command[0]):
        return f"{command[0]} is not installed"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(["setsid", "-c", *as_dmtcp(command)], stdin=theirs, stdout=theirs, stderr=theirs, cwd=where,
                               env={**os.environ, "TERM": "vt100"})
    os.close(theirs)
    terminal = reader(ours)
    try:
        time.sleep(2)
        gcore(process.pid, os.path.join(where, "core"))
    finally:
        process.kill()
        process.wait()
        os.kill(terminal, signal.SIGKILL)
        os.waitpid(terminal, 0)
        os.close(ours)
    return None


def wait_for(paths, process):
    for _ in range(600):
        if all(os.path.exists(p) for p in paths):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError("an MPI program does not begin")


def distributed_images(name, where, size):
    """Core files of all processes of an MPI program; a reason if it cannot be run."""
    if name == "lammps":
        command = ["lmp", "-in", datasets.lammps_input(where, RANKS * size * 2**20 // 700, 5, 1000000, ""), "-log", os.path.join(where, "log")]
    else:
        command = [KERNELS, name, str(size), where]
    if not shutil.which(command[0]) or not shutil.which("mpirun"):
        return f"{command[0]} or mpirun is not there"
    process = subprocess.Popen(["setarch", "-R", "mpirun", "--oversubscribe", "--allow-run-as-root", "--mca", "btl_vader_single_copy_mechanism", "none",
                                "--mca", "mpi_yield_when_idle", "1", "-np", str(RANKS), "-x", f"LD_PRELOAD={PRELOAD}", *command], cwd=where,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        if name == "lammps":
            datasets.wait_for_step(where, process, 5)
        else:
            wait_for([os.path.join(where, str(rank)) for rank in range(RANKS)], process)
        for rank, pid in enumerate(datasets.ranks_of(process)):
            gcore(pid, os.path.join(where, f"core.{rank}"))
    finally:
        process.terminate()
        process.wait()
    return None


def dmtcp_images(name, where, size):
    """What DMTCP writes of an MPI program, mpirun's image apart; a reason if it cannot be run."""
    path = os.pathsep.join([os.path.join(top, "bin") for top in [os.environ.get("DMTCP")] if top] + [os.environ["PATH"]])
    if not shutil.which("dmtcp_launch", path=path) or not shutil.which("mpirun"):
        return "dmtcp_launch or mpirun is not there"
    if name == "lammps":
        return "not of this one"
    port = os.path.join(where, "port")
    # As tests/mount/dmtcp.sh says: what DMTCP cannot bring back is left out.
    env = {**os.environ, "PATH": path, "DMTCP_GZIP": "0", "DMTCP_TMPDIR": where, "OMP_NUM_THREADS": "1", "OMPI_MCA_memory": "^patcher", "OMPI_MCA_pml": "ob1",
           "OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_oob": "tcp", "HWLOC_COMPONENTS": "-linux:io"}
    quiet = {"cwd": where, "env": env, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    plainly = ["chrt", "-o", "0"]  # DMTCP waits for its own processes in loops: with real-time priority these may never run
    subprocess.run([*plainly, "dmtcp_coordinator", "--daemon", "--exit-on-last", "-q", "-p", "0", "--port-file", port], check=True, **quiet)
    while not os.path.exists(port) or os.path.getsize(port) == 0:
        time.sleep(0.1)
    with open(port) as f:
        number = f.read().strip()
    process = subprocess.Popen([*plainly, "dmtcp_launch", "-q", "-j", "-p", number, "--ckptdir", where, "mpirun", "--oversubscribe", "--allow-run-as-root", "-np", str(RANKS),
                                KERNELS, name, str(size), where], start_new_session=True, **quiet)
    try:
        wait_for([os.path.join(where, str(rank)) for rank in range(RANKS)], process)
        subprocess.run(["dmtcp_command", "-p", number, "-bc"], check=True, timeout=LONG, **quiet)
    except (RuntimeError, subprocess.TimeoutExpired):
        return f"no checkpoint within {LONG} s"
    finally:
        subprocess.run(["dmtcp_command", "-p", number, "-q"], timeout=LONG, **quiet)
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what has not ended with its coordinator
        except ProcessLookupError:
            pass
        process.wait()
    for file in os.listdir(where):
        if file.startswith("ckpt_kernels") and file.endswith(".dmtcp"):  # beside them are directories with copies of files
            os.rename(os.path.join(where, file), os.path.join(where, "core." + file))
    return None


def analyze(files):
    out = subprocess.run([tool("ckptfs-analyze"), "-q", "--no-compact", "--chunking", "page", "--compress", "none", "--images", "--json", *files], check=True, stdout=subprocess.PIPE).stdout
    return {k["kind"]: k for k in json.loads(out)["images"]["together"]}


def store_bytes(base, files):
    """What a store takes for them, beyond an empty one, in each way of cutting."""
    taken = {}
    for name, options in STORES.items():
        store = ckptfs(base, f"store-{name}", compress="zstd:3", **options)
        sizes = []
        for what in [[], files]:
            store.start()
            for f in what:
                shutil.copy(f, store.dir)
            store.unmount()
            out = subprocess.run(["du", "-s", "-B1", os.path.join(store.base, "store")], check=True, stdout=subprocess.PIPE, text=True).stdout
            sizes.append(int(out.split()[0]))
            store.stop()
        os.rmdir(store.base)
        taken[name] = sizes[1] - sizes[0]
    return taken


WAYS = ("by_content_bytes", "new_bytes", "new_zstd_bytes")  # blocks of 512 B to 32 KiB, 4 KiB on average, as in the paper; pages; pages and zstd


def percent(stored, original):
    return 100 * (1 - stored / original)


def held(kinds, stored, paper):
    """Which of the paper's figures these reach, as they are stored: each page once, compressed."""
    ours = {kind: percent(kinds[kind]["new_zstd_bytes"], kinds[kind]["original_bytes"]) for kind in ("heap", "stack") if kind in kinds}
    ours["image"] = percent(stored["page"], kinds["all"]["original_bytes"])
    return {kind: ours[kind] >= p for kind, p in zip(("heap", "stack", "image"), paper) if p is not None and kind in ours}


def show_row(name, kinds, stored, paper):
    def cell(kind):
        k = kinds.get(kind)
        if not k:
            return f"{'':>34}"
        return f"{k['original_bytes'] / 1024:9.0f} " + "".join(f"{percent(k[how], k['original_bytes']):7.2f} " for how in WAYS) + " "

    whole = kinds["all"]["original_bytes"]
    given = " ".join(f"{p:6.2f}" if p is not None else "     -" for p in paper)
    ours = " ".join(f"{percent(stored[way], whole):6.2f}" for way in STORES)
    missed = [kind for kind, is_held in held(kinds, stored, paper).items() if not is_held]
    print(f"  {name:9}{cell('heap')}{cell('stack')}{whole / 2**20:8.1f} {percent(kinds['all']['new_bytes'], whole):7.2f}   {ours}   {given}  "
          + (f"less: {', '.join(missed)}" if missed else "held"), flush=True)


def show_heads(title):
    print(f"  {title}, % smaller: blocks cut by content as in the paper, each once; pages once; and with zstd:3; whole images also in stores of three kinds; "
          "then the paper's heap, stack, image")
    print(f"  {'':9}{'heap KiB':>9} {'blocks':>7} {'pages':>7} {'+ zstd':>7}  {'stack KiB':>9} {'blocks':>7} {'pages':>7} {'+ zstd':>7}  {'all MiB':>8} {'pages':>7}   "
          + " ".join(f"{way:>6}" for way in STORES))


def reduction(base, size, names):
    result = {}
    sets = [("single", "single programs", SINGLE, lambda name, where: single_image(name, where)),
            ("distributed", "distributed programs", DISTRIBUTED, lambda name, where: distributed_images(name, where, size)),
            ("dmtcp", "distributed programs, images of DMTCP", DISTRIBUTED, lambda name, where: dmtcp_images(name, where, size))]
    for key, title, programs, take in sets:
        show_heads(title)
        for name, paper in ((n, p) for n, p in programs.items() if n in names):
            where = os.path.join(base, "programs")
            os.mkdir(where)
            why = take(name, where)
            if why:
                print(f"  {name:9}skipped: {why}")
                result[f"{key}/{name}"] = {"skipped": why}
            else:
                files = sorted(os.path.join(where, f) for f in os.listdir(where) if f.startswith("core"))
                kinds, stored = analyze(files), store_bytes(base, files)
                show_row(name, kinds, stored, paper)
                result[f"{key}/{name}"] = {"kinds": kinds, "stored_bytes": stored, "paper_percent": paper, "held": held(kinds, stored, paper)}
            shutil.rmtree(where)
    return result


# --- how long it takes ---

def criu_runs():
    """A reason if not."""
    if not shutil.which("criu"):
        return "criu is not installed"
    out = subprocess.run(["criu", "check"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return None if out.returncode == 0 else f"criu check: {out.stdout.strip().splitlines()[-1]}"


class Worker:
    """A program that has `size` MiB, of which pages change all the time, a few dozen a second."""

    def __init__(self, base, size):
        self.said = os.path.join(base, "count")
        out = subprocess.run(["sh", "-c", '(setsid "$0" "$@" </dev/null >/dev/null 2>&1 & echo $!)', WORKER, self.said, str(size), "2", "0"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        self.pid = int(out)
        while not os.path.exists(self.said + ".0") or os.path.getsize(self.said + ".0") == 0:
            time.sleep(0.1)

    def await_end(self):
        while subprocess.run(["ps", "-o", "pid=", "-s", str(self.pid)], stdout=subprocess.PIPE).stdout.strip():
            time.sleep(0.02)

    def end(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # a dump or a restore has failed
            pass
        self.await_end()


class Criu:
    name = "criu"

    def __init__(self, worker):
        self.worker = worker

    def run(self, what, where, *options):
        start = time.monotonic()
        subprocess.run(["criu", what, "-D", where, "-o", f"{what}.log", *options], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.monotonic() - start

    def dump(self, where):
        return self.run("dump", where, "-t", str(self.worker.pid), "--leave-running")

    def restore(self, where, is_cold):
        """Of the step that was dumped last: the program goes on from there. On a busy machine its number may just be somebody else's."""
        self.worker.end()
        for is_last in [False] * 20 + [True]:
            settle(is_cold)
            try:
                return self.run("restore", where, "-d")
            except subprocess.CalledProcessError:
                with open(os.path.join(where, "restore.log"), errors="replace") as f:
                    said = f.read()
                if "File exists" not in said or is_last:
                    raise SystemExit(f"bench: criu restore: {said}")
            time.sleep(1)


class Gcore:
    name = "gcore and cat"

    def __init__(self, worker):
        self.worker = worker

    def dump(self, where):
        start = time.monotonic()
        gcore(self.worker.pid, os.path.join(where, "core"))
        return time.monotonic() - start

    def restore(self, where, is_cold):
        settle(is_cold)
        start = time.monotonic()
        subprocess.run(["cat", os.path.join(where, "core")], check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - start


def make_durable(where):
    start = time.monotonic()
    for name in os.listdir(where) + ["."]:
        fd = os.open(os.path.join(where, name), os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    return time.monotonic() - start


def measure(checkpointer, r):
    """Dumps of the program as it goes on, each as a whole, and back to the last of them, again and again: first with nothing cached, then with what the restores before have read."""
    taken, synced = [], []
    for step in range(DUMPS):
        where = os.path.join(r.dir, f"step-{step}")
        os.mkdir(where)
        settle(False)
        taken.append(checkpointer.dump(where))
        synced.append(taken[-1] + make_durable(where))
    rest([r])
    cold, warm = ([checkpointer.restore(where, is_cold) for _ in range(RESTORES)] for is_cold in (True, False))
    return {"rival": r.name, "first_s": taken[0], "first_durable_s": synced[0], "next_s": statistics.median(taken[1:]), "next_durable_s": statistics.median(synced[1:]),
            "restore_s": statistics.median(cold), "restores_s": cold, "restore_cached_s": statistics.median(warm)}


def times(base, size, rounds, plain):
    why = criu_runs()
    worker = Worker(base, size)
    checkpointer = Gcore(worker) if why else Criu(worker)
    rows = []
    print(f"  {checkpointer.name}, a program of {size} MiB, seconds" + (f" ({why})" if why else "") +
          f": first dump, with fsync; median of {DUMPS - 1} more, with fsync; restore, nothing cached, median of {RESTORES}; cached")
    os.mkdir(os.path.join(base, plain))
    rivals = [Rival(plain, os.path.join(base, plain)), ckptfs(base, "ckptfs"), ckptfs(base, LIMITED, write_rate=RATE)]
    try:
        for _ in range(rounds):
            for r in rivals:
                r.start()
                try:
                    rows.append(measure(checkpointer, r))
                finally:
                    r.stop()
    finally:
        worker.end()
    medians = show_times(rows, plain)
    return {"checkpointer": checkpointer.name, "size_mib": size, "rows": rows, "median": medians, "asked": show_asked(medians, plain, size)}


def show_times(rows, plain):
    keys = ["first_s", "first_durable_s", "next_s", "next_durable_s", "restore_s", "restore_cached_s"]
    medians = {}
    for name in dict.fromkeys(r["rival"] for r in rows):
        medians[name] = {k: statistics.median(r[k] for r in rows if r["rival"] == name) for k in keys}
        cold = [t for r in rows if r["rival"] == name for t in r["restores_s"]]
        print(f"  {name:16}" + " ".join(f"{medians[name][k]:8.3f} s {medians[name][k] / medians[plain][k]:5.2f} x" for k in keys) +
              f"   restores {min(cold):.3f} to {max(cold):.3f} s", flush=True)
    return medians


def show_asked(medians, plain, size):
    """What is asked for, against a plain filesystem that nobody limits. The limit is for what repeats: all of a first dump is new, and takes what the limit takes, whoever writes it."""
    asked = {"first dump": ("ckptfs", "first_s", 1.3), f"later dumps at {RATE}B/s": (LIMITED, "next_s", 1.0), "restore": ("ckptfs", "restore_s", 1.3)}
    result = {}
    for what, (name, key, most) in asked.items():
        ratio = medians[name][key] / medians[plain][key]
        result[what] = {"ratio": ratio, "asked": most, "held": ratio <= most}
        print(f"  {what}: {ratio:.2f} x {plain}, at most {most:.1f} asked for: {'held' if ratio <= most else 'missed'}")
    print(f"  first dump at {RATE}B/s: {medians[LIMITED]['first_durable_s']:.3f} s with fsync, where the limit alone takes {size / RATE_MIB:.3f} s; {plain} is not limited", flush=True)
    return result


def run(base, size, rounds, plain, names):
    if not shutil.which("gcore"):
        raise SystemExit("bench: images needs gdb")
    print("images", flush=True)
    return {"reduction": reduction(base, max(1, size // 16), names), "times": times(base, size, rounds, plain)}
