#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small files of every format that ckptfs-classify reads by itself, into a directory. Without numpy, torch and netCDF: byte by byte."""
import io
import os
import pickle
import struct
import sys
import types
import zipfile


def npy(descr, shape, data, fortran=False, version=1):
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    head = 10 if version == 1 else 12
    text += b" " * (-(head + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def npz(entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        for name, data in entries:
            z.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def netcdf(version, records=3):
    """x(5), y(4); time is the record dimension: t(time), field(time, x, y), name as text, grid(x) as short."""
    count = (lambda n: struct.pack(">q", n)) if version == 5 else (lambda n: struct.pack(">i", n))
    where = (lambda n: struct.pack(">q", n)) if version > 1 else (lambda n: struct.pack(">i", n))
    name = lambda s: count(len(s)) + s.encode() + bytes(-len(s) % 4)
    dims = [("time", 0), ("x", 5), ("y", 4)]
    variables = [("grid", [1], 3, 10), ("title", [2], 2, 4), ("t", [0], 6, 8), ("field", [0, 1, 2], 5, 80), ("flag", [0, 1], 3, 10)]

    def header(begins):
        h = b"CDF" + bytes([version]) + count(records)
        h += struct.pack(">i", 10) + count(len(dims)) + b"".join(name(n) + count(d) for n, d in dims)
        h += struct.pack(">i", 12) + count(1) + name("history") + struct.pack(">i", 2) + count(5) + b"made\0\0\0\0"
        h += struct.pack(">i", 11) + count(len(variables))
        for (n, ids, kind, size), begin in zip(variables, begins):
            h += name(n) + count(len(ids)) + b"".join(count(i) for i in ids)
            h += struct.pack(">i", 0) + count(0) + struct.pack(">i", kind) + count(size + -size % 4) + where(begin)
        return h

    start = len(header([0] * len(variables)))
    begins, at = [], start
    for n, ids, kind, size in variables:
        begins.append(at)
        at += size + -size % 4
    whole = header(begins)
    fixed = sum(s + -s % 4 for n, ids, k, s in variables if 0 not in ids)
    record = sum(s + -s % 4 for n, ids, k, s in variables if 0 in ids)
    return whole + bytes(i % 251 for i in range(fixed + records * record))


def safetensors(tensors, metadata=True):
    parts, at = ['"__metadata__":{"format":"pt","note":"a \\"quoted\\" one"}'] if metadata else [], 0
    data = b""
    for name, dtype, shape, content in tensors:
        parts.append(f'"{name}":{{"dtype":"{dtype}","shape":{list(shape)},"data_offsets":[{at},{at + len(content)}]}}')
        data += content
        at += len(content)
    head = ("{" + ",".join(parts) + "}").encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + data


class Storage:
    def __init__(self, kind, key, nr, data):
        self.kind, self.key, self.nr, self.data = kind, key, nr, data


class Tensor:
    def __init__(self, storage, offset, size):
        self.storage, self.offset, self.size = storage, offset, size

    def __reduce__(self):
        stride = tuple(1 for _ in self.size)
        return sys.modules["torch._utils"]._rebuild_tensor_v2, (self.storage, self.offset, self.size, stride, False, {})


def fake_torch():
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for kind in ("FloatStorage", "BFloat16Storage", "LongStorage", "DoubleStorage"):
        setattr(torch, kind, type(kind, (), {"__module__": "torch"}))
    exec("def _rebuild_tensor_v2(*a): pass", utils.__dict__)
    utils._rebuild_tensor_v2.__module__ = "torch._utils"
    sys.modules["torch"], sys.modules["torch._utils"] = torch, utils
    torch._utils = utils
    return torch


def torch_file(state, storages):
    torch = sys.modules.get("torch") or fake_torch()

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            if isinstance(obj, Storage):
                return ("storage", getattr(torch, obj.kind), obj.key, "cpu", obj.nr)
            return None

    out = io.BytesIO()
    Pickler(out, protocol=2).dump(state)
    return npz([("archive/data.pkl", out.getvalue())] + [(f"archive/data/{s.key}", s.data) for s in storages] +
               [("archive/version", b"3\n")])


def some(n):
    return bytes(i * 7 % 256 for i in range(n))


def files():
    a, b = Storage("FloatStorage", "0", 24, some(96)), Storage("BFloat16Storage", "1", 10, some(20))
    c = Storage("LongStorage", "2", 3, some(24))
    state = {"model": {"layer.weight": Tensor(a, 0, (4, 6)), "layer.tied": Tensor(a, 0, (4, 6)), "part": Tensor(b, 2, (3,))},
             "optimizer": {"state": {0: {"step": Tensor(c, 0, (3,))}}, "groups": [{"lr": 0.1, "on": True, "params": [0, 1]}]},
             "epoch": 70000, "big": 1 << 40}
    yield "array.npy", npy("<f8", "(2, 3)", some(48))
    yield "fortran.npy", npy(">i4", "(2, 3, 4)", some(96), fortran=True)
    yield "complex-v2.npy", npy("<c16", "(5,)", some(80), version=2)
    yield "scalar.npy", npy("|b1", "()", some(1))
    yield "objects.npy", npy("|O", "(3,)", some(30))
    yield "arrays.npz", npz([("u.npy", npy("<f4", "(7,)", some(28))), ("readme.txt", b"text"), ("grp/k.npy", npy("<u2", "(2, 2)", some(8)))])
    yield "text.zip", npz([("readme.txt", b"text")])
    for version in (1, 2, 5):
        yield f"cdf{version}.nc", netcdf(version)
    yield "empty.nc", b"CDF\1" + bytes(28)
    yield "model.safetensors", safetensors([("w", "F32", (2, 5), some(40)), ("b", "BF16", (8,), some(16)), ("q", "F8_E4M3", (4,), some(4)),
                                            ("n", "I64", (), some(8))])
    yield "none.safetensors", safetensors([], metadata=False)
    yield "state.pt", torch_file(state, [a, b, c])


if __name__ == "__main__":
    for name, data in files():
        with open(os.path.join(sys.argv[1], name), "wb") as f:
            f.write(data)
