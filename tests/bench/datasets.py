#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Usage: datasets.py NAME DIR --size MIB

Make one of the data sets of ./bench space: DIR/step-N/FILE, a directory per step. --size is that of a file, about; sets with a
single file per step have one of twice the size.
All but the memory images are the same bytes in every run. Exit status 77: something is missing; the output says what.

The packages of the system's Python are used (numpy, h5py, torch), so this is a program of its own for /usr/bin/python3,
whichever Python ./bench runs with.
"""
import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time

PAGE = 4096
MIB = 1 << 20
RANKS = 4


def missing(what, package):
    print(f"{what} is not installed: apt-get install {package}")
    sys.exit(77)


def need(*programs):
    for program, package in programs:
        if not shutil.which(program):
            missing(program, package)


def module(name, package):
    try:
        return __import__(name)
    except ImportError:
        missing(f"the Python module {name}", package)


def step_dir(top, step):
    path = os.path.join(top, f"step-{step}")
    os.makedirs(path, exist_ok=True)
    return path


def noise(rng, length):
    return rng.randbytes(length)


def doubles(rng, length):
    """Noise with the precision of floats, as doubles: three bytes of every eight are zero."""
    data = bytearray(rng.randbytes(length))
    for i in range(3):
        data[i::8] = bytes(len(data[i::8]))
    return bytes(data)


# --- ranks x steps with page changes ---

def make_ranks(top, size):
    """4 ranks, 5 steps. Of a rank's pages one in ten is zero, two are common to all ranks, the others its own, half of them
    noise and half doubles; one in ten of them changes with each step, where it is."""
    pages = size // PAGE
    rng = random.Random(1)
    common = [noise(rng, PAGE) for _ in range(pages // 5)]
    for rank in range(RANKS):
        rng = random.Random(100 + rank)
        image = bytearray(pages * PAGE)
        kinds = [rng.random() for _ in range(pages)]
        for i, kind in enumerate(kinds):
            if kind >= 0.1:
                page = common[i % len(common)] if kind < 0.3 else (noise if kind < 0.65 else doubles)(rng, PAGE)
                image[i * PAGE:(i + 1) * PAGE] = page
        for step in range(5):
            for i, kind in enumerate(kinds):
                if step > 0 and kind >= 0.3 and rng.random() < 0.1:
                    image[i * PAGE:(i + 1) * PAGE] = (noise if kind < 0.65 else doubles)(rng, PAGE)
            with open(os.path.join(step_dir(top, step), f"ckpt.rank{rank}"), "wb") as f:
                f.write(image)


# --- a shifted series ---

def make_shifted(top, size):
    """2 ranks with a file of records each, 6 steps. One change per MiB with every step: 1 to 170 records of 24 bytes put in or
    taken out."""
    for rank in range(2):
        rng = random.Random(200 + rank)
        data = noise(rng, size // 2) + doubles(rng, size // 2)
        for step in range(6):
            if step > 0:
                data = shift(rng, data)
            with open(os.path.join(step_dir(top, step), f"particles.rank{rank}"), "wb") as f:
                f.write(data)


def shift(rng, data):
    pieces, at = [], 0
    for where in sorted(rng.randrange(len(data)) // 24 * 24 for _ in range(len(data) // MIB)):
        length = 24 * rng.randrange(1, 171)
        if where < at:
            continue
        pieces.append(data[at:where])
        if rng.random() < 0.5:
            pieces.append(noise(rng, length))
            at = where
        else:
            at = where + length
    return b"".join(pieces + [data[at:]])


# --- LAMMPS, its restart files and its memory ---

# A Lennard-Jones solid of which the lower part is held and the upper part is molten: atoms wander from one processor's part
# to another's, so that what the restart file says of the held ones shifts.
LAMMPS = """units lj
atom_style atomic
newton on
lattice fcc 0.8442
region box block 0 {x} 0 {x} 0 {z}
create_box 1 box
create_atoms 1 box
mass 1 1.0
region low block INF INF INF INF INF {held}
group held region low
group free subtract all held
velocity free create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 5 delay 0 check no
fix move free nve
thermo {every}
thermo_modify flush yes
{restart}
run {steps}
"""


def lammps_input(work, atoms, every, steps, restart):
    x = max(4, round((atoms / 16) ** (1 / 3)))  # 4 atoms per cell, four times as high as wide
    path = os.path.join(work, "in")
    with open(path, "w") as f:
        f.write(LAMMPS.format(x=x, z=4 * x, held=2 * x, every=every, steps=steps, restart=restart))
    return path


def mpirun(work, script):
    command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "--mca", "btl_vader_single_copy_mechanism", "none",
               "--mca", "mpi_yield_when_idle", "1", "-np", str(RANKS), "lmp", "-in", script, "-log", os.path.join(work, "log")]
    return subprocess.Popen(command, cwd=work, stdout=open(os.path.join(work, "out"), "w"), stderr=subprocess.STDOUT,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})


def make_lammps(top, size):
    """8 restart files of a run of 4 processes, 5 time steps apart. An atom takes 88 bytes."""
    need(("lmp", "lammps"), ("mpirun", "openmpi-bin"))
    work = os.path.join(top, "work")
    os.makedirs(work)
    restart = f"restart 5 {work}/restart.*\nwrite_restart {work}/restart.0"
    process = mpirun(work, lammps_input(work, 2 * size // 88, 5, 35, restart))
    if process.wait() != 0:
        sys.exit(f"lmp failed: {open(os.path.join(work, 'out')).read()[-2000:]}")
    for step in range(8):
        os.rename(os.path.join(work, f"restart.{5 * step}"), os.path.join(step_dir(top, step), "restart"))
    shutil.rmtree(work)


def ranks_of(process):
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as f:
        return sorted(int(pid) for pid in f.read().split())


def wait_for_step(work, process, step):
    for _ in range(6000):
        if os.path.exists(os.path.join(work, "log")):
            with open(os.path.join(work, "log")) as f:
                if re.search(rf"^ *{step} ", f.read(), re.M):
                    return
        if process.poll() is not None:
            sys.exit(f"lmp ended too early: {open(os.path.join(work, 'out')).read()[-2000:]}")
        time.sleep(0.1)
    sys.exit("lmp is too slow")


def make_images(top, size):
    """Memory images (gcore) of the 4 processes of LAMMPS at 4 times, 20 time steps apart; not the same bytes in every run.
    A process has 250 MiB before it has any atoms."""
    need(("lmp", "lammps"), ("mpirun", "openmpi-bin"), ("gcore", "gdb"))
    work = os.path.join(top, "work")
    os.makedirs(work)
    process = mpirun(work, lammps_input(work, RANKS * size // 700, 20, 1000000, ""))
    try:
        for step in range(4):
            wait_for_step(work, process, 20 * (step + 1))
            for rank, pid in enumerate(ranks_of(process)):
                subprocess.run(["gcore", "-o", os.path.join(work, "core"), str(pid)], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                os.rename(os.path.join(work, f"core.{pid}"), os.path.join(step_dir(top, step), f"core.rank{rank}"))
    finally:
        process.terminate()
        process.wait()
    shutil.rmtree(work)


# --- CRIU, and core files ---

NOTHING = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

# A Python program that grows: small objects, of which some are replaced with every step, arrays of floats, and noise.
GROWS = """
import array, math, os, random, sys, time
table, arrays = {}, []
for step in range(int(sys.argv[3])):
    rng = random.Random(step)
    size = int(sys.argv[2]) // 16
    for i in range(size // 512):
        table[len(table)] = (rng.random(), "name-%d" % rng.randrange(10**6), [i, step])
    for i in range(0, len(table), 7):
        table[i] = (rng.random(), *table[i][1:])
    arrays.append(array.array("d", (math.sin(x / 500) * step + rng.random() * 1e-6 for x in range(size // 32))))
    arrays.append(rng.randbytes(size // 4))
    open(sys.argv[1], "w").close()
    while os.path.exists(sys.argv[1]):
        time.sleep(0.02)
"""
GROWS_STEPS = 6


def dump_grown(top, size, dump):
    """Runs the program; `dump(pid, step_dir)` is called at 6 times, while it waits."""
    ready = os.path.join(top, "ready")
    process = subprocess.Popen(["/usr/bin/python3", "-c", GROWS, ready, str(size), str(GROWS_STEPS)], start_new_session=True, **NOTHING)
    try:
        for step in range(GROWS_STEPS):
            while not os.path.exists(ready):
                if process.poll() is not None:
                    sys.exit("the program that is to be dumped has ended")
                time.sleep(0.02)
            dump(process.pid, step_dir(top, step))
            os.remove(ready)
    finally:
        process.kill()
        process.wait()


def make_criu(top, size):
    """CRIU's images of a Python program at 6 times; not the same bytes in every run."""
    need(("criu", "criu"))
    check = subprocess.run(["criu", "check"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check.returncode != 0:
        print(f"criu check: {check.stdout.strip().splitlines()[-1]}")
        sys.exit(77)

    def dump(pid, to):
        subprocess.run(["criu", "dump", "-t", str(pid), "-D", to, "-o", "log", "--leave-running"], check=True, **NOTHING)
        os.remove(os.path.join(to, "log"))

    dump_grown(top, size, dump)


def make_python(top, size):
    """Core files (gcore) of the same program; not the same bytes in every run."""
    need(("gcore", "gdb"))

    def dump(pid, to):
        subprocess.run(["gcore", "-o", os.path.join(to, "core"), str(pid)], check=True, **NOTHING)
        os.rename(os.path.join(to, f"core.{pid}"), os.path.join(to, "core"))

    dump_grown(top, size, dump)


# --- PyTorch ---

def make_torch(top, size):
    """6 checkpoints, by torch.save, of a model of which the base, half of the file, is frozen: the head and its moments of
    Adam change from step to step."""
    torch = module("torch", "python3-torch")
    torch.manual_seed(5)
    torch.set_num_threads(1)
    width = 512
    layers = max(1, size // (4 * width * width))
    base = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)])
    for p in base.parameters():
        p.requires_grad = False
    head = torch.nn.Linear(width, max(1, size // 3 // (4 * width)))  # weights and two moments
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    for step in range(6):
        x = torch.randn(16, width)
        loss = head(base[0](x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.save({"step": step, "loss": loss.item(), "model": {"base": base.state_dict(), "head": head.state_dict()},
                    "optimizer": optimizer.state_dict()}, os.path.join(step_dir(top, step), "checkpoint.pt"))


def make_training(top, size):
    """6 checkpoints of a network all of whose weights are trained, with Adam's two moments: in float32, and beside them the weights in
    bfloat16, as one would use them. What it learns is a function of its input, so that it converges as networks do."""
    torch = module("torch", "python3-torch")
    torch.manual_seed(7)
    torch.set_num_threads(1)
    width = max(32, round((size / (2 * 14)) ** 0.5))  # two layers; weights, two moments, and half of the weights once more
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.GELU(), torch.nn.Linear(width, width), torch.nn.GELU(),
                                torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    teacher = torch.randn(64, 8)
    for step in range(6):
        for _ in range(20):
            x = torch.randn(128, 64)
            loss = (model(x) - torch.tanh(x @ teacher)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        small = {name: p.to(torch.bfloat16) for name, p in model.state_dict().items()}
        torch.save({"step": step, "model": model.state_dict(), "bf16": small, "optimizer": optimizer.state_dict()},
                   os.path.join(step_dir(top, step), "checkpoint.pt"))


# --- HDF5 ---

def make_hdf5(top, size):
    """8 files with a mesh that stays, a field that changes where a front passes, one that changes everywhere but in 16 bits of
    precision, and a table that grows."""
    np = module("numpy", "python3-numpy")
    h5py = module("h5py", "python3-h5py")
    n = max(16, round((2 * size / 8 / 5) ** (1 / 3)))  # 3 for the mesh, 2 fields
    rng = np.random.default_rng(6)
    mesh = np.stack(np.meshgrid(*[np.arange(n) / n] * 3, indexing="ij"), -1) + rng.normal(0, 1e-3, (n, n, n, 3))
    temperature = rng.normal(300, 1, (n, n, n))
    table = rng.normal(0, 1, (0, 8))
    for step in range(8):
        front = slice(n * step // 8, n * (step + 1) // 8)
        temperature[front] = rng.normal(900, 20, temperature[front].shape)
        pressure = np.sin(6 * mesh[..., 0] + step).astype(np.float16).astype(np.float64)
        table = np.concatenate([table, rng.normal(0, 1, (size // 25 // 64, 8))])
        with h5py.File(os.path.join(step_dir(top, step), "fields.h5"), "w", track_order=False) as f:
            f.attrs["step"] = step
            f.create_dataset("mesh/coordinates", data=mesh)
            f.create_dataset("probes", data=table, chunks=(1024, 8), maxshape=(None, 8), track_times=False)
            f.create_dataset("fields/temperature", data=temperature, chunks=(min(n, 16), n, n), track_times=False)
            f.create_dataset("fields/pressure", data=pressure, track_times=False)


# --- ten checkpoints of three workloads ---

def make_finetune(top, size):
    """A fine-tuning run with a frozen base, 10 steps. Each step writes the base, which stays, and an adapter and its optimizer state,
    which change: 0.355 and 0.71 % of it, as in a run that is published (Soup, issue 352: 36981, 131 and 262 MB)."""
    rng = random.Random(900)
    base = noise(rng, 2 * size)
    for step in range(10):
        path = step_dir(top, step)
        for name, data in (("base", base), ("adapter", noise(rng, len(base) * 131 // 36981)), ("optimizer", noise(rng, len(base) * 262 // 36981))):
            with open(os.path.join(path, name), "wb") as f:
                f.write(data)


def make_changed(top, size, share):
    """A file, 10 steps, of which a share of the pages changes with each step, anywhere."""
    rng = random.Random(901)
    data = bytearray(noise(rng, 2 * size))
    pages = len(data) // PAGE
    for step in range(10):
        for page in rng.sample(range(pages), round(pages * share)) if step > 0 else []:
            data[page * PAGE:(page + 1) * PAGE] = noise(rng, PAGE)
        with open(os.path.join(step_dir(top, step), "state"), "wb") as f:
            f.write(data)


def make_velocity(top, size):
    """8 files with the three velocities of a Taylor-Green vortex, computed with Fourier transforms: a field of doubles is symmetric in
    several directions but for its last bits, and no chunk of it is known."""
    np = module("numpy", "python3-numpy")
    h5py = module("h5py", "python3-h5py")
    n = max(16, 2 * round((2 * size / 24) ** (1 / 3) / 2))
    viscosity, dt = 1 / 400, 0.4 / n
    x, y, z = np.meshgrid(*[np.arange(n) * 2 * np.pi / n] * 3, indexing="ij")
    k = np.stack(np.meshgrid(*[np.fft.fftfreq(n, 1 / n)] * 2, np.fft.rfftfreq(n, 1 / n), indexing="ij"))
    k2 = np.sum(k * k, 0)
    inside = np.max(np.abs(k), 0) < n / 3  # two thirds, so that products have no aliases
    unit = k / np.where(k2 > 0, k2, 1)

    def transform(u):
        return np.fft.rfftn(u, axes=(1, 2, 3))

    def inverse(v):
        return np.fft.irfftn(v, s=(n, n, n), axes=(1, 2, 3))

    def change(v):
        curl = inverse(1j * np.cross(k, v, axis=0))
        v_new = transform(np.cross(inverse(v), curl, axis=0)) * inside
        return v_new - unit * np.sum(k * v_new, 0) - viscosity * k2 * v

    v = transform(np.stack([np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), np.zeros_like(x)]))
    for step in range(8):
        for _ in range(10):
            half = v + dt / 2 * change(v)
            v = v + dt * change(half)
        u = inverse(v)
        with h5py.File(os.path.join(step_dir(top, step), "velocity.h5"), "w") as f:
            for i, name in enumerate("uvw"):
                f.create_dataset(f"velocity/{name}", data=u[i], track_times=False)


SETS = {"ranks": make_ranks, "shifted": make_shifted, "images": make_images, "criu": make_criu, "python": make_python, "lammps": make_lammps,
        "torch": make_torch, "hdf5": make_hdf5, "velocity": make_velocity, "training": make_training, "finetune": make_finetune,
        "simulation": lambda top, size: make_changed(top, size, 0.05), "dense": lambda top, size: make_changed(top, size, 1.0)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("name", choices=SETS)
    p.add_argument("dir")
    p.add_argument("--size", type=int, required=True)
    a = p.parse_args()
    os.makedirs(a.dir)
    SETS[a.name](a.dir, a.size * MIB)


if __name__ == "__main__":
    main()
