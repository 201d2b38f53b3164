# SPDX-License-Identifier: GPL-3.0-or-later
"""Usage: arrays.py DIR

Arrays of every kind that ckptfs_gpu.py takes, in one state, on a GPU: what is loaded is what was saved, of the same kind, and into arrays that
are there. Kinds that are not installed are left out.
"""
import sys

import numpy

import ckptfs_gpu

kinds = []


def torch_arrays():
    import torch
    torch.manual_seed(3)
    base = torch.randn(300, 200, device="cuda")
    return {"matrix": base, "turned": base.t(), "part": base[::3, 5:], "empty": base[:0], "one": base[0, 0],
            "half": base.bfloat16(), "host": torch.arange(1000), "flags": base > 0, "eighth": base.to(torch.float8_e4m3fn),
            "conjugate": torch.complex(base, base).conj()}


def cupy_arrays():
    import cupy
    base = cupy.random.default_rng(4).standard_normal((500, 70), dtype=cupy.float32)
    return {"matrix": base, "turned": base.T, "part": base[::2, 1:], "complex": base.astype(cupy.complex64), "empty": base[:0]}


def jax_arrays():
    import jax
    return {"vector": jax.numpy.arange(12345, dtype=jax.numpy.float32)}


def state():
    result = {"numpy": {"vector": numpy.arange(9999), "text": numpy.array(["a", "bc"])}, "bytes": b"plain", "number": 7}
    for kind in (torch_arrays, cupy_arrays, jax_arrays):
        try:
            result[kind.__name__] = kind()
            kinds.append(kind.__name__)
        except ImportError:
            pass
    return result


def host(x):
    """Its bytes, type and shape, wherever it is."""
    if hasattr(x, "detach"):
        import torch
        return x.detach().resolve_conj().contiguous().cpu().flatten().view(torch.uint8).numpy().tobytes(), str(x.dtype), tuple(x.shape)
    if hasattr(x, "get"):
        x = x.get()
    if isinstance(x, (bytes, bytearray)):
        return bytes(x)
    x = numpy.asarray(x)
    return numpy.ascontiguousarray(x).tobytes(), x.dtype.str, x.shape


def check(a, b, path=""):
    if isinstance(a, dict):
        assert list(a) == list(b), (path, list(a), list(b))
        for key in a:
            check(a[key], b[key], f"{path}/{key}")
        return
    assert host(a) == host(b), path
    if not path.startswith("/jax"):  # whose arrays cannot be written to: they come back as CuPy's or NumPy's
        assert type(a) is type(b) or isinstance(a, bytes), (path, type(a), type(b))


def main():
    saved = state()
    with ckptfs_gpu.Lineage(sys.argv[1], verify=True, require_gpu=True) as lineage:
        lineage.save(1, saved)
        check(saved, lineage.load(1))
        if "torch_arrays" in kinds:
            import torch
            into = torch.zeros(300, 200, device="cuda")
            lineage.load(1, into={"torch_arrays": {"matrix": into}})
            assert torch.equal(into, saved["torch_arrays"]["matrix"])
            assert lineage.load(1, device="cpu")["torch_arrays"]["matrix"].device.type == "cpu"
            saved["torch_arrays"]["matrix"].add_(1)  # and what shares its memory
            memory = ckptfs_gpu.Memory(into.data_ptr(), into.numel() * into.element_size(), into)
            lineage.save(2, {"raw": memory})
            lineage.save(3, saved)
            check(saved, lineage.load(3))
            assert bytes(lineage.load(2)["raw"]) == host(into)[0]
    print("arrays of", ", ".join(kinds))


main()
