#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The Python package: installed from a wheel, its structs are those of the header, and each call does what it says on a mount; the examples run, are
# killed, and go on.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
need_root
need cc
[ -x "$PYTHON" ] || skip "$PYTHON is not installed"
"$PYTHON" -c 'import pip' 2>/dev/null || skip "pip is not installed for $PYTHON"
top=$HERE/../..

cp -rL "$top/client/python" "$WORK/source" # building leaves things there
# As a user types it, where there is no network.
pip() { "$PYTHON" -m pip --no-cache-dir "$@" --quiet --no-index >"$WORK/said" 2>&1 || fail_showing "pip $1"; }
pip install --target "$WORK/site" "$WORK/source"
pip wheel --wheel-dir "$WORK/wheel" "$WORK/source"
pip install --target "$WORK/of-wheel" "$WORK"/wheel/ckptfs-*-py3-none-any.whl
(cd "$WORK/source" && "$PYTHON" -c 'import backend; backend.build_sdist("'"$WORK"'/sdist")') && pip install --target "$WORK/of-sdist" "$WORK"/sdist/*.tar.gz
for other in of-wheel of-sdist; do diff -r -x __pycache__ -x 'direct_url.json' -x RECORD "$WORK/site" "$WORK/$other" || fail "another package $other"; done
pip install --target "$WORK/edited" --editable "$WORK/source"
[ "$(cat "$WORK/edited/ckptfs.pth")" = "$WORK/source" ] || fail "an editable installation is not of its source"
for name in "$WORK/source"/ckptfs/*.*; do cmp "$name" "$WORK/site/ckptfs/${name##*/}" || fail "${name##*/} is not in it"; done
[ -e "$WORK/site/ckptfs/py.typed" ] || fail "the wheel says nothing of its types"
cmp "$top"/LICENSES/BSD-3-Clause.txt "$WORK"/site/ckptfs-*.dist-info/licenses/LICENSE || fail "its licence is not in the wheel"
export PYTHONPATH=$WORK/site PYTHONDONTWRITEBYTECODE=1
cd "$WORK"
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$top/meson.build")
[ "$("$PYTHON" -c 'import ckptfs, importlib.metadata as m; print(ckptfs.__version__, m.version("ckptfs"))')" = "$version $version" ] ||
	fail "another version than $version"
# An environment of its own, as users have it: pip shows what pyproject.toml says, and removes all of it.
"$PYTHON" -m venv "$WORK/venv" >"$WORK/said" 2>&1 || fail_showing "venv"
in_venv() { (cd / && env -u PYTHONPATH "$WORK/venv/bin/python" "$@" 2>&1); }
in_venv -m pip --no-cache-dir install --quiet --no-index "$WORK"/wheel/*.whl >"$WORK/said" || fail_showing "pip install in a fresh environment"
[ "$(in_venv -c 'import ckptfs; print(ckptfs.__version__, ckptfs.__file__)')" = "$version $("$WORK/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ckptfs/__init__.py" ] ||
	fail "the environment has another ckptfs"
in_venv -c 'import importlib.metadata as m
have = m.metadata("ckptfs")
assert have["License-Expression"] == "BSD-3-Clause" and have.get_all("License-File") == ["LICENSE"], have
assert have["Requires-Python"] == ">=3.9" and "Typing :: Typed" in have.get_all("Classifier") and have["Keywords"], have
assert "ckptfs" in m.metadata("ckptfs").get_payload()' >"$WORK/said" || fail_showing "what the wheel says of itself"
in_venv -m pip uninstall --quiet --yes ckptfs >"$WORK/said" || fail_showing "pip uninstall"
! in_venv -c 'import ckptfs' >"$WORK/said" || fail "it is there after pip uninstall"

# --- the header ---
cat >"$WORK/print.py" <<'PY'
from ckptfs import _ioctl
print('#include <stddef.h>\n#include <stdio.h>\n#include "client/ioctl.h"\nint main(void) {')
for name, renamed in (("Handle", {}), ("Clone", {"source": "from"}), ("Sync", {}), ("Stat", {}), ("Seal", {})):
    struct = f"struct ckptfs_{name.lower()}"
    kind = getattr(_ioctl, name)
    print(f'printf("{name} %lu %zu\\n", (unsigned long)CKPTFS_IOC_{name.upper()}, sizeof({struct}));')
    for field, _ in kind._fields_:
        print(f'printf("{field} %zu %zu\\n", offsetof({struct}, {renamed.get(field, field)}), sizeof((({struct} *)0)->{renamed.get(field, field)}));')
print("return 0; }")
PY
"$PYTHON" "$WORK/print.py" >"$WORK/header.c"
cc -I "$top" -o "$WORK/header" "$WORK/header.c" || fail "what the package knows is not in the header"
"$PYTHON" - >"$WORK/ours" <<'PY'
import ctypes
from ckptfs import _ioctl
for name in ("Handle", "Clone", "Sync", "Stat", "Seal"):
    kind = getattr(_ioctl, name)
    print(name, getattr(_ioctl, name.upper()), ctypes.sizeof(kind))
    for field, _ in kind._fields_:
        print(field, getattr(kind, field).offset, getattr(kind, field).size)
PY
diff "$WORK/ours" <("$WORK/header") || fail "the header has other structs or numbers"

# --- each call ---
fs_mount
cat >"$WORK/calls.py" <<'PY'
import errno, glob, logging, os, pathlib, pwd, random, subprocess, sys
import ckptfs

mnt, outside = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def refused(number, kind, call, *args, **named):
    try:
        call(*args, **named)
    except kind as e:
        assert e.errno == number, e
        assert e.strerror != os.strerror(errno.ENOTTY) and (e.errno != errno.ENOTTY or "mount the store" in e.strerror and e.filename), e
        return e
    raise AssertionError(f"{call} {args} was done")


# clone
data = random.Random(1).randbytes(3_000_000)
(mnt / "a").write_bytes(data)
before = ckptfs.figures(mnt)["written_bytes"]
assert ckptfs.clone(mnt / "a", mnt / "b") == len(data)
assert (mnt / "b").read_bytes() == data
assert ckptfs.figures(mnt)["written_bytes"] == before, "bytes were written"
(mnt / "long").write_bytes(data + data)
assert ckptfs.clone(mnt / "a", mnt / "long") == len(data)
assert (mnt / "long").read_bytes() == data, "the target does not end where the source does"
assert ckptfs.clone(str(mnt / "a"), str(mnt / "b"), offset=5, target_offset=1000, length=70000) == 70000
assert (mnt / "b").read_bytes() == data[:1000] + data[5:70005] + data[71000:]
assert ckptfs.clone(mnt / "a", mnt / "none", length=0) == 0 and not (mnt / "none").exists()
(mnt / "empty").touch()
assert ckptfs.clone(mnt / "empty", mnt / "b") == 0 and (mnt / "b").read_bytes() == b""
refused(errno.EINVAL, OSError, ckptfs.clone, mnt / "a", mnt / "a")
assert (mnt / "a").read_bytes() == data
refused(errno.ENOENT, FileNotFoundError, ckptfs.clone, mnt / "nowhere", mnt / "b")
(mnt / "b").write_bytes(b"as it was")
(outside / "there").write_bytes(b"as it was")
for source, target, culprit in ((outside / "there", mnt / "b", 0), (mnt / "a", outside / "there", 1), (outside / "there", mnt / "new", 0),
                                (mnt / "a", outside / "new", 1)):
    e = refused(errno.ENOTTY, OSError, ckptfs.clone, source, target)
    assert e.filename == str((source, target)[culprit]), e
    assert not (mnt / "new").exists() and not (outside / "new").exists(), "a refused clone has left its target"
    assert (mnt / "b").read_bytes() == (outside / "there").read_bytes() == b"as it was", "a refused clone has changed its target"
assert refused(errno.EISDIR, IsADirectoryError, ckptfs.clone, mnt, mnt / "new").strerror == "a directory; give a regular file"
assert refused(errno.EISDIR, IsADirectoryError, ckptfs.stat, mnt).filename == str(mnt)
try:
    ckptfs.clone(mnt / "a", mnt / "b", offset=-1)
    raise SystemExit("a negative offset")
except ValueError:
    pass

# stat, figures, sync, mountpoint
ckptfs.sync(mnt)
s = ckptfs.stat(mnt / "a")
assert (s.size, s.mapped, s.durable) == (len(data), len(data), True) or s.mapped >= len(data), s
assert s.fingerprint == ckptfs.stat(mnt / "long").fingerprint != ckptfs.stat(mnt / "empty").fingerprint
assert ckptfs.figures(mnt)["kind"] == "mount" and ckptfs.figures(mnt / "a")["size_bytes"] == len(data)
(mnt / "deep/er").mkdir(parents=True)
assert ckptfs.mountpoint(mnt / "deep/er") == mnt
for call in (ckptfs.figures, ckptfs.stat, ckptfs.sync, ckptfs.seal, ckptfs.unseal, ckptfs.checkpoints):
    refused(errno.ENOTTY, OSError, call, outside if call is not ckptfs.stat else __file__)

# seal, unseal, checkpoints, newest
assert ckptfs.checkpoints(mnt) == [] and ckptfs.newest(mnt) is None
assert ckptfs.newest(mnt / "not/there/yet") is None  # a first run
refused(errno.ENOTTY, OSError, ckptfs.newest, outside / "not/there/yet")  # its mount is missing
refused(errno.ENOENT, FileNotFoundError, ckptfs.checkpoints, mnt / "not/there/yet")
(mnt / "run/one").mkdir(parents=True)
(mnt / "run/one/file").write_bytes(b"12345")
e = ckptfs.seal(mnt / "run/one")
assert (e.path, e.files, e.directories, e.bytes, e.uid) == (mnt / "run/one", 1, 1, 5, os.getuid()), e
assert e.inode == (mnt / "run/one").stat().st_ino and abs(e.sealed.timestamp() - e.sealed_ns / 1e9) < 1e-3
assert ckptfs.seal(mnt / "run/one") == e, "sealed again it is another one"
refused(errno.EPERM, PermissionError, (mnt / "run/one/file").write_bytes, b"other")
(mnt / "run/two").mkdir()
with open(mnt / "run/two/open", "w"):
    e_busy = refused(errno.EBUSY, ckptfs.SealError, ckptfs.seal, mnt / "run/two")
assert e_busy.culprit == mnt / "run/two/open" and e_busy.strerror == f"{e_busy.culprit} is open for writing; close it first", e_busy
assert refused(errno.EEXIST, ckptfs.SealError, ckptfs.seal, mnt / "run").culprit == mnt / "run/one"
assert "force=True" in refused(errno.EBUSY, ckptfs.SealError, ckptfs.seal, mnt).strerror
two = ckptfs.seal(mnt / "run/two")
os.mkdir(mnt / "other")
three = ckptfs.seal(mnt / "other")
assert ckptfs.checkpoints(mnt) == [e, two, three] and ckptfs.checkpoints(mnt / "run") == [e, two]
assert ckptfs.newest(mnt / "run") == two and ckptfs.checkpoints(mnt / "run/one") == [e] and ckptfs.newest(mnt / "deep") is None
part = outside / "a part"  # as containers are given one
part.mkdir()
subprocess.run(["mount", "--bind", mnt / "run", part], check=True)
assert [x.path for x in ckptfs.checkpoints(part)] == [part / "one", part / "two"] and ckptfs.newest(part).inode == two.inode
refused(errno.EBUSY, ckptfs.SealError, ckptfs.seal, part)
assert refused(errno.EEXIST, ckptfs.SealError, ckptfs.seal, part, force=True).culprit in (part / "one", part / "two")
subprocess.run(["umount", part], check=True)
assert ckptfs.unseal(mnt / "other") is True and ckptfs.unseal(mnt / "other") is False
refused(errno.ENOTDIR, NotADirectoryError, ckptfs.seal, mnt / "a")
refused(errno.ENOENT, FileNotFoundError, ckptfs.seal, mnt / "nowhere")

# checkpoint
with ckptfs.checkpoint(mnt / "series/x/1") as where:
    (where / "state").write_text("one")
assert [x.path for x in ckptfs.checkpoints(mnt / "series")] == [mnt / "series/x/1"]
refused(errno.EEXIST, FileExistsError, ckptfs.checkpoint(mnt / "series/x/1").__enter__)
assert (mnt / "series/x/1/state").read_text() == "one"
try:
    with ckptfs.checkpoint(mnt / "series/x/2") as where:
        (where / "state").write_text("half")
        raise KeyboardInterrupt
except KeyboardInterrupt:
    assert not (mnt / "series/x/2").exists()
pid = os.fork()
if pid == 0:
    with ckptfs.checkpoint(mnt / "series/x/2") as where:
        (where / "state").write_text("half")
        os.kill(os.getpid(), 9)
os.waitpid(pid, 0)
assert (mnt / "series/x/2/state").exists()
with ckptfs.checkpoint(mnt / "series/x/2") as where:
    assert os.listdir(where) == [], "what a crash has left is in it"
assert ckptfs.newest(mnt / "series").path.name == "2"
(mnt / "series/x/3").mkdir()
(mnt / "series/x/3/precious").touch()
assert "remove it" in refused(errno.EEXIST, FileExistsError, ckptfs.checkpoint(mnt / "series/x/3").__enter__).strerror
refused(errno.ENOTTY, OSError, ckptfs.checkpoint(outside / "series/1").__enter__)  # its mount is missing
assert not (outside / "series").exists(), "a checkpoint was begun where it cannot be sealed"
assert (mnt / "series/x/3/precious").exists(), "a directory that checkpoint() has not created was removed"

# verify, newest(verify=True)
refused(errno.ENOTTY, OSError, ckptfs.verify, outside)
assert refused(errno.ENODATA, ckptfs.SealError, ckptfs.verify, mnt / "deep").strerror == "not sealed"
for step in range(3):
    with ckptfs.checkpoint(mnt / f"proof/{step}") as where:
        (where / "below").mkdir()
        (where / "below/state").write_bytes(random.Random(f"proof {step}").randbytes(300_000 + step))
        with open(where / "sparse", "wb") as f:
            f.truncate(1 << 40)
            f.seek((1 << 39) + 5)
            f.write(b"between holes")
        (where / "dangling").symlink_to("nowhere")
for c in ckptfs.checkpoints(mnt / "proof"):
    ckptfs.verify(c.path)
assert ckptfs.newest(mnt / "proof", verify=True).path.name == "2"
struck = []
for step in (1, 2):
    needle = (mnt / f"proof/{step}/below/state").read_bytes()[8192:8256]
    for pack in glob.glob(sys.argv[2] + "/store/packs/*.pack"):
        content = pathlib.Path(pack).read_bytes()
        if needle in content:
            with open(pack, "r+b") as f:
                f.seek(content.find(needle))
                f.write(bytes([needle[0] ^ 1]))
                f.flush()
                os.fsync(f.fileno())
            struck.append((pack, content.find(needle), needle[:1]))
pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
reports = []
logging.getLogger("ckptfs").addFilter(lambda r: reports.append(r.getMessage()) and False)
for step in (1, 2):
    ckptfs.verify(mnt / f"proof/{step}", quick=True)  # reads no bytes
    e = refused(errno.EBADMSG, ckptfs.SealError, ckptfs.verify, mnt / f"proof/{step}")
    assert e.culprit == mnt / f"proof/{step}/below/state" and e.strerror == f"damaged: {e.culprit} cannot be read", e
assert ckptfs.newest(mnt / "proof").path.name == "2" and reports == []
assert ckptfs.newest(mnt / "proof", verify=True).path.name == "0"
assert [r.split(":")[0] for r in reports] == [f"{mnt}/proof/2", f"{mnt}/proof/1"] and "skipped: damaged" in reports[0], reports
for pack, at, byte in struck:
    with open(pack, "r+b") as f:
        f.seek(at)
        f.write(byte)
        f.flush()
        os.fsync(f.fileno())
assert len(struck) == 2
pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
subprocess.run([os.environ["CKPTFS_BUILD"] + "/tools/ckptfs-scrub", "--quiet", mnt], check=True)
assert ckptfs.newest(mnt / "proof", verify=True).path.name == "2"
PY
"$PYTHON" -W error "$WORK/calls.py" "$MNT" "$WORK" || fail "a call"
# Each function of the modules has types, which a user's own mypy reads, and they agree. torch, CuPy and NumPy count as untyped, installed or not.
if "$PYTHON" -m mypy --version >/dev/null 2>&1; then
	"$PYTHON" -m mypy --strict --ignore-missing-imports --follow-imports skip --cache-dir "$WORK/types" "$WORK"/site/ckptfs/{__init__,_ioctl,dcp}.py "$top/gpu/lib/ckptfs_gpu.py" >"$WORK/said" ||
		fail_showing "types"
else
	skip_part "mypy is not installed"
fi

# --- the examples: killed in the middle, they end where one that was not ends ---
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
run_example() { # NAME DIRECTORY STEPS [LAUNCHER...]
	"${@:4}" "$PYTHON" -W error "$top/docs/examples/$1" "$2" "$3" 2>"$WORK/said"
}
goes_on() { # NAME [LAUNCHER...]
	local whole parts
	whole=$(run_example "$1" "$MNT/$1.whole" 6 "${@:2}") || fail_showing "$1"
	run_example "$1" "$MNT/$1.parts" 4 "${@:2}" >/dev/null || fail_showing "$1"
	mkdir "$MNT/$1.parts/step.0005" # as a crash leaves it
	setfattr -n user.ckptfs_checkpoint "$MNT/$1.parts/step.0005"
	echo half >"$MNT/$1.parts/step.0005/state"
	parts=$(run_example "$1" "$MNT/$1.parts" 6 "${@:2}") || fail_showing "$1, after a crash"
	[ "$whole" = "$parts" ] || fail "$1: $whole and, in parts, $parts"
	[ "$("$PYTHON" -c 'import ckptfs, sys; print(len(ckptfs.checkpoints(sys.argv[1])))' "$MNT/$1.parts")" = 6 ] || fail "$1: not 6 checkpoints"
	echo "$1: $parts"
}
goes_on plain.py
if "$PYTHON" -c 'import h5py' 2>/dev/null; then goes_on h5.py; else skip_part "h5py is not installed"; fi
if "$PYTHON" -c 'import mpi4py' 2>/dev/null && command -v mpirun >/dev/null; then
	goes_on mpi.py mpirun --oversubscribe -n 3
else
	skip_part "mpi4py or mpirun is not installed"
fi
if "$PYTHON" -c 'import torch' 2>/dev/null; then OMP_NUM_THREADS=1 goes_on torch_save.py; else skip_part "torch is not installed"; fi

# --- torch.distributed.checkpoint, or what it was called in 1.13: Debian 12 has that, and a Python that refuses one of its classes unless it has a hash ---
mkdir "$WORK/mended"
cat >"$WORK/mended/sitecustomize.py" <<'PY'
import dataclasses
real = dataclasses.dataclass
dataclasses.dataclass = lambda cls=None, **named: real(cls, **{**named, **({"unsafe_hash": True} if getattr(cls, "__name__", "") == "TensorProperties" else {})})
PY
cat >"$WORK/ranks.py" <<'PY'
"""SIZE COMMAND...: torchrun without what it needs from the rest of torch."""
import os, socket, subprocess, sys
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(s.getsockname()[1]), "WORLD_SIZE": sys.argv[1],
             "USE_LIBUV": "0"}  # Debian 13 builds torch without
ranks = [subprocess.Popen(sys.argv[2:], env={**os.environ, **place, "RANK": str(i)}) for i in range(int(sys.argv[1]))]
sys.exit(max(abs(r.wait()) for r in ranks))
PY
cat >"$WORK/shards.py" <<'PY'
import os, pathlib, sys
import ckptfs, torch
from ckptfs.dcp import Reader, Writer
try:
    from torch.distributed.checkpoint import load_state_dict, save_state_dict
except ImportError:
    from torch.distributed._shard.checkpoint import load_state_dict, save_state_dict
top, outside = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def state(seed):
    torch.manual_seed(seed)
    return {"f": torch.randn(100, 7), "h": torch.randn(5).to(torch.bfloat16), "i": torch.randint(9, (3, 4, 5)), "b": torch.rand(11) > 0.5, "c": torch.randn(2, dtype=torch.complex64),
            "none": torch.zeros(0, 3), "one": torch.randn(()), "turned": torch.randn(6, 8).t(), "of": torch.randn(1000)[10:20], "text": f"of {seed}", "deep": [seed, {"a": 1.5}]}


def refused(call, *args):
    try:
        call(*args, no_dist=True)
    except BaseException as e:
        return e
    raise AssertionError(f"{call} {args} was done")


save_state_dict(state(1), Writer(top / "dcp/one"), no_dist=True)
assert [e.path.name for e in ckptfs.checkpoints(top / "dcp")] == ["one"]
got = state(2)
load_state_dict(got, Reader(top / "dcp/one"), no_dist=True)
for name, value in state(1).items():
    assert torch.equal(value, got[name]) if isinstance(value, torch.Tensor) else value == got[name], name
place = Reader(top / "dcp/one").read_metadata().storage_data
assert all(p.offset % 4096 == 0 for p in place.values()) and len({p.offset for p in place.values() if p.length}) == sum(p.length > 0 for p in place.values())
refused(save_state_dict, state(3), Writer(top / "dcp/one"))  # it is sealed
refused(save_state_dict, state(3), Writer(outside / "new"))  # no ckptfs
assert not (outside / "new").exists()
ckptfs.unseal(top / "dcp/one")
assert "not sealed" in repr(refused(load_state_dict, got, Reader(top / "dcp/one")))
PY
cat >"$WORK/newer.py" <<'PY'
"""What torch has had since 2.5: tensors divided among ranks, in the background, with a name at each call."""
import pathlib, sys
import ckptfs, torch
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from ckptfs.dcp import Reader, Writer

top = pathlib.Path(sys.argv[1])
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
whole = torch.arange(1001 * 7, dtype=torch.float32).reshape(1001, 7)


def state(tensor, placements, rest):
    a, b = (distribute_tensor(tensor, mesh, [p]) for p in placements)
    return {"a": a, "b": b, "deep": {"rate": rest, "list": [torch.full((2,), rest), rest]}}


saved = state(whole, (Shard(0), Replicate()), 0.5)
dcp.save(saved, storage_writer=Writer(top / "unused"), checkpoint_id=top / "step.1")
dcp.async_save(saved, storage_writer=Writer(top / "step.2")).result()
dist.barrier()
for step in ("step.1", "step.2"):
    got = state(torch.zeros(1001, 7), (Shard(1), Shard(0)), 0.0)
    dcp.load(got, storage_reader=Reader(top / "unused"), checkpoint_id=top / step)
    assert torch.equal(got["a"].full_tensor(), whole) and torch.equal(got["b"].full_tensor(), whole) and got["deep"]["rate"] == got["deep"]["list"][1] == 0.5
    assert torch.equal(got["deep"]["list"][0], torch.full((2,), 0.5))
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(4)).sum().backward()
optimizer.step()
both = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
dcp.save(both, storage_writer=Writer(top / "step.3"))
dcp.load(both, storage_reader=Reader(top / "step.3"))
assert [e.path.name for e in ckptfs.checkpoints(top)] == ["step.1", "step.2", "step.3"] and not (top / "unused").exists()
assert Writer.validate_checkpoint_id(top / "new") and not Reader.validate_checkpoint_id("/")
dist.barrier()
PY
export OMP_NUM_THREADS=1
"$PYTHON" -c 'import ckptfs.dcp' 2>/dev/null || PYTHONPATH=$WORK/mended:$PYTHONPATH
if "$PYTHON" -c 'import ckptfs.dcp' 2>"$WORK/said"; then
	"$PYTHON" "$WORK/shards.py" "$MNT" "$WORK" 2>"$WORK/said" || fail_showing "a state that is saved and loaded"
	sharded() { # RANKS DIRECTORY STEPS
		"$PYTHON" "$WORK/ranks.py" "$1" "$PYTHON" "$top/docs/examples/torch_sharded.py" "$MNT/$2" "$3" 2>"$WORK/said" || fail_showing "torch_sharded.py with $1 ranks"
	}
	sharded 3 sharded.parts 2 >/dev/null
	parts=$(sharded 2 sharded.parts 4) # other shards than were saved
	whole=$(sharded 1 sharded.whole 4)
	[ "$whole" = "$parts" ] || fail "torch_sharded.py: $whole and, in parts, $parts"
	[ "$(ls "$MNT/sharded.parts/step.0002" "$MNT/sharded.parts/step.0004" | grep -c rank)" = 5 ] || fail "not a file of each rank"
	"$CKPTFS_BUILD/tools/ckptfs-stat" --verify "$MNT"/sharded.parts/step.* >"$WORK/out" || fail_showing "sharded checkpoints cannot be verified"
	echo "torch_sharded.py: $parts"
	if "$PYTHON" -c 'import torch.distributed.tensor, torch.distributed.device_mesh' 2>/dev/null; then
		"$PYTHON" "$WORK/ranks.py" 2 "$PYTHON" "$WORK/newer.py" "$MNT/newer" >"$WORK/out" 2>"$WORK/said" || fail_showing "what newer torch can do"
		echo "newer.py: ok"
	else
		echo "newer.py: torch is older than 2.5"
	fi
else
	echo "torch_sharded.py: torch is not installed, or older than 1.13, or newer than 1.13 and older than 2.1: $(tail -1 "$WORK/said")"
fi
cd /
fs_umount
fs_sound "after all"
