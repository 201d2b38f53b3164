# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of arrays, in GPU or host memory, into a ckptfs mount.

    import ckptfs_gpu

    with ckptfs_gpu.Lineage("/mnt/ckpt/run1/gpu0") as lineage:
        if lineage.steps():
            state = lineage.load(lineage.steps()[-1])
        ...
        lineage.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})

Changes since the last save are detected on the GPU and only they are copied and stored; nevertheless each step is a
complete file, LINEAGE/NNNNNN. Use one lineage per GPU and process.

A state is arrays in dicts, lists and tuples, with numbers, strings, booleans and None among them. Arrays are PyTorch
tensors, CuPy and NumPy arrays, bytes, whatever has __cuda_array_interface__, __array_interface__ or the buffer protocol, and
Memory(pointer, length).

Errors are OSError with the errno of ckptfs_gpu.h. Needs libckptfs-gpu, found by the linker or named by CKPTFS_GPU_LIBRARY, and only
those packages that the arrays come from.
"""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import itertools
import json
import operator
import os
import sys
import threading
import types
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type, Union

__all__ = ["Lineage", "Memory", "TREE", "LIST", "BASIC", "FULL"]

TREE, LIST, BASIC, FULL = range(4)
_DURABLE, _VERIFY, _COMPARE, _REQUIRE = 1, 2, 4, 8
_STRUCTURE = "~"  # an empty buffer with a description of the tree as info; no path has this name
_STEP_MAX = 2**32 - 1


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("method", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("chunk_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("table_limit", ctypes.c_uint64)]


class _Buffer(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("p", ctypes.c_void_p), ("len", ctypes.c_uint64), ("info", ctypes.c_void_p),
                ("info_len", ctypes.c_size_t)]


class _Version(ctypes.Structure):
    _fields_ = [("nr", ctypes.c_size_t), ("buffers", ctypes.POINTER(_Buffer)), ("offs", ctypes.POINTER(ctypes.c_uint64))]


class _Stats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("number", ctypes.c_uint32), ("on_gpu", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64) for name in ("content_bytes", "delta_bytes", "payload_bytes", "take_ns", "finish_ns",
                                             "write_ns", "commit_ns", "gpu_bytes", "gpu_bytes_max")]


_Done = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int)
_Info = Dict[str, Any]  # stored with an array, as JSON
_Node = Dict[str, Any]  # of the description of a tree
_Path = Tuple[Any, ...]  # keys and indices, from the root of a tree
_Callback = Callable[[int, Optional[OSError]], object]


def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL(os.environ.get("CKPTFS_GPU_LIBRARY", "libckptfs-gpu.so.0"))
    p, u32, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t
    ref = ctypes.POINTER
    for name, result, arguments in (
            ("open", ctypes.c_int, [ctypes.c_char_p, ref(_Options), ref(p)]),
            ("close", ctypes.c_int, [p]),
            ("checkpoint", ctypes.c_int, [p, u32, ref(_Buffer), size, p, _Done, p]),
            ("wait", ctypes.c_int, [p]),
            ("event_fd", ctypes.c_int, [p]),
            ("restore", ctypes.c_int, [p, u32, ref(_Buffer), size, p]),
            ("version_read", ctypes.c_int, [p, u32, ref(ref(_Version))]),
            ("version_free", None, [ref(_Version)]),
            ("versions", ctypes.c_int, [p, ref(ref(u32)), ref(size)]),
            ("delete", ctypes.c_int, [p, u32]),
            ("stats", ctypes.c_int, [p, ref(_Stats)]),
            ("strerror", ctypes.c_char_p, [ctypes.c_int])):
        function = getattr(lib, "ckptfs_gpu_" + name)
        function.restype, function.argtypes = result, arguments
    return lib


_lib: Any = None  # ctypes.CDLL, once a Lineage needs it
_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [ctypes.c_void_p], None


class Memory:
    """Bytes somewhere, on a GPU or in host memory. Keeps `owner` alive."""

    def __init__(self, pointer: int, length: int, owner: object = None) -> None:
        self.pointer, self.length, self.owner = pointer, length, owner


# --- arrays: for each kind, its bytes, the info to store, and how to create one


class _Array:
    """An array's contiguous bytes (pointer, length), its info, and the object that keeps them alive."""

    def __init__(self, pointer: Optional[int], length: int, info: _Info, owner: object, stream: Optional[int] = None) -> None:
        self.pointer, self.length, self.info, self.owner, self.stream = pointer, length, info, owner, stream
        self.given: Any = None  # what it was in the state


def _is_torch(x: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _of_torch(x: Any, writable: bool) -> _Array:
    torch = sys.modules["torch"]
    x = x.detach()
    if x.layout != torch.strided or x.is_quantized:
        raise TypeError("is a sparse or quantized tensor; save its parts")
    if x.device.type not in ("cuda", "cpu"):
        raise TypeError(f"is on {x.device}, not on a GPU or in host memory")
    if x.is_conj() or x.is_neg():  # by a flag: its memory is that of another tensor
        if writable:
            raise ValueError("is a conjugate or negative view")
        x = x.resolve_conj().resolve_neg()
    if not x.is_contiguous():
        if writable:
            raise ValueError("is not contiguous")
        x = x.contiguous()
    stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
    info = {"type": "torch", "dtype": str(x.dtype).split(".")[1], "shape": list(x.shape), "device": x.device.type}
    return _Array(x.data_ptr(), x.numel() * x.element_size(), info, x, stream)


def _strides_contiguous(strides: Sequence[int], shape: Sequence[int], itemsize: int) -> bool:
    expected = itemsize
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n > 1 and stride != expected:
            return False
        expected *= n
    return True


def _check_typestr(typestr: str) -> None:
    if typestr[1] not in "biufcmMSU":
        raise TypeError(f"has elements of type {typestr}, which are not plain numbers")


def _of_cuda_interface(x: Any, writable: bool) -> _Array:
    interface = x.__cuda_array_interface__
    shape, typestr = interface["shape"], interface["typestr"]
    _check_typestr(typestr)
    itemsize = int(typestr[2:]) * (4 if typestr[1] == "U" else 1)
    strides = interface.get("strides")
    if strides is not None and not _strides_contiguous(strides, shape, itemsize):
        if writable or not hasattr(x, "copy"):
            raise ValueError("is not contiguous")
        return _of_cuda_interface(x.copy(order="C"), writable)
    pointer, read_only = interface["data"]
    if writable and read_only:
        raise ValueError("is read-only")
    length = itemsize
    for n in shape:
        length *= n
    stream = interface.get("stream")
    if stream == 1:  # that interface's name of the default stream
        stream = 0
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(x, cupy.ndarray):
        stream = cupy.cuda.get_current_stream().ptr
    info = {"type": "cupy", "dtype": typestr, "shape": list(shape)}
    return _Array(pointer, length, info, x, stream)


def _of_numpy(x: Any, writable: bool) -> _Array:
    import numpy
    if isinstance(x, numpy.ma.MaskedArray):
        raise TypeError("is a masked array; save its data and its mask")
    array = numpy.asarray(x)
    _check_typestr(array.dtype.str)
    if not array.flags.c_contiguous:
        if writable:
            raise ValueError("is not contiguous")
        array = numpy.ascontiguousarray(array).reshape(array.shape)
    if writable and not array.flags.writeable:
        raise ValueError("is read-only")
    info = {"type": "numpy", "dtype": array.dtype.str, "shape": list(array.shape)}
    return _Array(array.ctypes.data, array.nbytes, info, array)


def _of_bytes(view: memoryview, writable: bool) -> _Array:
    if not view.c_contiguous:
        raise ValueError("is not contiguous")
    if view.readonly:
        if writable:
            raise ValueError("is read-only")
        data = bytes(view)
        return _Array(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, len(data), {"type": "bytes"}, data)
    memory = (ctypes.c_char * view.nbytes).from_buffer(view if view.nbytes else bytearray(0))
    return _Array(ctypes.addressof(memory), view.nbytes, {"type": "bytes"}, memory)


def _array_of(x: Any, writable: bool = False) -> Optional[_Array]:
    """x as an array; None: it is not an array."""
    if isinstance(x, Memory):
        return _Array(x.pointer, x.length, {"type": "bytes"}, x)
    if _is_torch(x):
        return _of_torch(x, writable)
    if hasattr(x, "__cuda_array_interface__"):
        return _of_cuda_interface(x, writable)
    if hasattr(x, "__array_interface__"):
        return _of_numpy(x, writable)
    try:
        view = memoryview(x)
    except TypeError:
        return None
    return _of_bytes(view, writable)


def _numpy_like(info: _Info) -> Any:
    import numpy
    return numpy.empty(info["shape"], numpy.dtype(info["dtype"]))


def _new_array(info: _Info, length: int, device: Any) -> Any:
    """Memory for a saved array: on `device`, or on its original device if that exists."""
    if info["type"] == "torch":
        import torch
        if device is None:
            device = info["device"] if info["device"] != "cuda" or torch.cuda.is_available() else "cpu"
        return torch.empty(info["shape"], dtype=getattr(torch, info["dtype"]), device=device)
    if info["type"] == "cupy" and device != "cpu":
        try:
            import cupy
            return cupy.empty(info["shape"], info["dtype"])
        except ImportError:
            return _numpy_like(info)
    if info["type"] in ("numpy", "cupy"):
        return _numpy_like(info)
    return bytearray(length)


# --- states: from a tree to named arrays and a description of the tree, and back


def _name(path: _Path) -> str:
    return "/".join(str(part).replace("~", "~0").replace("/", "~1").replace("\0", "~2") for part in path)


class _Flattener:
    def __init__(self, writable: bool) -> None:
        self.arrays: Dict[str, _Array] = {}
        self.writable = writable

    def add_array(self, array: _Array, path: _Path) -> _Node:
        name = _name(path) or "array"
        while name in self.arrays:  # keys 1 and "1" of a dict
            name += "~"
        self.arrays[name] = array
        return {"a": name}

    def node(self, x: Any, path: _Path) -> _Node:
        if x is None or type(x) in (bool, int, float, str):
            return {"v": x}
        if isinstance(x, dict):
            for key in x:
                if type(key) not in (str, int, float, bool):
                    raise TypeError(f"{_name(path) or 'the state'} has a key {key!r}: neither text nor a number")
            return {"d": [[key, self.node(value, path + (key,))] for key, value in x.items()]}
        if isinstance(x, (list, tuple)):
            nodes = [self.node(value, path + (i,)) for i, value in enumerate(x)]
            return {"t" if isinstance(x, tuple) else "l": nodes}
        try:
            array = _array_of(x, self.writable)
        except (TypeError, ValueError) as e:
            raise type(e)(f"{_name(path) or 'the state'} {e}") from None
        if array is None:
            raise TypeError(f"{_name(path) or 'the state'} is of type {type(x).__name__}: neither an array nor plain data")
        array.given = x
        return self.add_array(array, path)


def _build(node: _Node, array_of: Callable[[str], Any]) -> Any:
    (kind, value), = node.items()
    if kind == "v":
        return value
    if kind == "a":
        return array_of(value)
    if kind == "d":
        return {key: _build(child, array_of) for key, child in value}
    parts = [_build(child, array_of) for child in value]
    return tuple(parts) if kind == "t" else parts


def _fill(wanted: _Node, saved: Optional[_Node], fill: Callable[[str, Optional[str]], Any], make: Callable[[str], Any]) -> Any:
    """The tree `wanted` with the saved content: fill(name, saved name) for its arrays, make(saved name) where it has
    none."""
    (kind, value), = wanted.items()
    (saved_kind, there), = saved.items() if saved else [(None, None)]
    if kind == "a":
        return fill(value, there if saved_kind == "a" else None)
    if kind == "d":
        children = {json.dumps(key): child for key, child in there} if saved_kind == "d" else {}
        return {key: _fill(child, children.get(json.dumps(key)), fill, make) for key, child in value}
    if kind in "lt":
        items = there if saved_kind in ("l", "t") else []
        parts = [_fill(w, s, fill, make) for w, s in itertools.zip_longest(value, items[:len(value)])]
        return tuple(parts) if kind == "t" else parts
    return _build(saved, make) if saved else value


def _same_kind(a: _Info, b: _Info) -> bool:
    """Whether two infos are of arrays of the same shape and elements, as far as these can be compared."""
    a, b = ({**info, "type": info["type"].replace("cupy", "numpy")} for info in (a, b))
    return a["type"] != b["type"] or all(a.get(key) == b.get(key) for key in ("dtype", "shape"))


def _info_of(info: bytes) -> _Info:
    """The info of an array; programs in other languages may store any."""
    try:
        described = json.loads(info)
    except ValueError:
        described = None
    return described if isinstance(described, dict) and "type" in described else {"type": "bytes"}


def _buffers(arrays: Dict[str, _Array], infos: List[bytes]) -> Tuple[ctypes.Array[_Buffer], List[Any]]:
    """The C array of buffers for arrays by name, and the objects that must live as long."""
    buffers = (_Buffer * len(arrays))()
    alive = []
    for b, (name, array), info in zip(buffers, arrays.items(), infos):
        data = ctypes.create_string_buffer(info, len(info)) if info else None
        alive.append((array, data))
        b.name, b.p, b.len = name.encode("utf-8", "surrogateescape"), array.pointer, array.length
        b.info, b.info_len = ctypes.cast(data, ctypes.c_void_p) if data is not None else None, len(info)
    return buffers, alive


def _stream_of(arrays: Dict[str, _Array]) -> Optional[int]:
    """The stream that orders these arrays; they must have the same."""
    streams = {a.stream for a in arrays.values() if a.stream is not None}
    if len(streams) > 1:
        raise ValueError("arrays are ordered by different CUDA streams: synchronize them and pass stream=0")
    return streams.pop() if streams else None


class _Callbacks:
    """Callbacks of saves. Holds no reference to its Lineage, and frees nothing on the library's thread: a destructor that
    runs there cannot wait for that thread."""

    def __init__(self, path: str) -> None:
        self.path, self.keys = path, itertools.count(1)
        self.waiting: Dict[int, _Callback] = {}
        self.called: List[_Callback] = []
        self.thread: Optional[int] = None
        self.function = _Done(self.call)

    def add(self, callback: _Callback) -> int:
        key = next(self.keys)
        self.waiting[key] = callback
        return key

    def call(self, key: int, number: int, error: int) -> None:
        self.thread = threading.get_ident()
        callback = self.waiting.pop(key)
        self.called.append(callback)
        callback(number, _error_of(error, self.path) if error < 0 else None)

    def take_called(self) -> List[_Callback]:
        called, self.called = self.called, []
        return called


def _error_of(r: int, path: str) -> OSError:
    return OSError(-r, _lib.ckptfs_gpu_strerror(r).decode(), path)


def _number_of(step: Any) -> int:
    number = operator.index(step)
    if not 1 <= number <= _STEP_MAX:
        raise ValueError(f"step {step} is not between 1 and {_STEP_MAX}")
    return number


_lineages: weakref.WeakSet[Lineage] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Runs while callbacks can still be called."""
    for lineage in list(_lineages):
        with contextlib.suppress(OSError):  # the library has logged it
            lineage.close()


class Lineage:
    """A directory of a ckptfs mount with the versions of a state as files. Created if it is missing; its parent must exist.

    `durable`: a step is complete when it is durable, not already when it is visible. `verify`: the mount reads each file and
    compares it with the fingerprint computed by the GPU. `compare`: compare bytes, not only digests, of chunks that equal one of the
    same step. `require_gpu`: raise an error instead of using the CPU. `table_limit`: bytes of GPU memory for the table of known
    chunks; None: as many as all chunks of the first step need.
    """

    def __init__(self, path: Union[str, os.PathLike[str]], method: int = TREE, chunk_size: int = 128,
                 table_limit: Optional[int] = None, durable: bool = True, verify: bool = False, compare: bool = False,
                 require_gpu: bool = False) -> None:
        global _lib
        self._handle: Optional[ctypes.c_void_p] = None
        self._pid = os.getpid()
        self._users, self._unused = 0, threading.Condition()
        if _lib is None:
            _lib = _library()
        self.path = os.fspath(path)
        self._callbacks = _Callbacks(self.path)
        options = _Options(size=ctypes.sizeof(_Options), method=method, chunk_size=chunk_size, table_limit=table_limit or 0,
                           flags=_DURABLE * bool(durable) | _VERIFY * bool(verify) | _COMPARE * bool(compare) |
                           _REQUIRE * bool(require_gpu))
        handle = ctypes.c_void_p()
        self._check(_lib.ckptfs_gpu_open(os.fsencode(self.path), ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle
        _lineages.add(self)

    def _check(self, r: int) -> None:
        if r < 0:
            raise _error_of(r, self.path)

    @contextlib.contextmanager
    def _open(self) -> Iterator[ctypes.c_void_p]:
        """The handle, which is not closed during the block."""
        if self._pid != os.getpid():
            raise ValueError(f"lineage {self.path} belongs to process {self._pid}; open it again after fork()")
        with self._unused:
            if self._handle is None:
                raise ValueError(f"lineage {self.path} is closed")
            handle = self._handle
            self._users += 1
        try:
            yield handle
        finally:
            with self._unused:
                self._users -= 1
                self._unused.notify_all()

    def __enter__(self) -> Lineage:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[types.TracebackType]) -> None:
        try:
            self.close()
        except OSError:
            if kind is None:  # otherwise the first error is the one to raise
                raise

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and _lib is not None and self._pid == os.getpid():
            _lib.ckptfs_gpu_close(self._handle)

    def close(self) -> None:
        """Waits for all calls and saves in progress; raises what wait() would."""
        if self._pid != os.getpid():
            return  # there is no thread to wait for after fork()
        if self._callbacks.thread == threading.get_ident():
            raise _error_of(-errno.EDEADLK, self.path)
        with self._unused:
            handle, self._handle = self._handle, None
            self._unused.wait_for(lambda: self._users == 0)
        if handle is not None:
            self._check(_lib.ckptfs_gpu_close(handle))

    def save(self, step: int, tensors: Any, stream: Optional[int] = None, callback: Optional[_Callback] = None) -> None:
        """Takes `tensors` as version `step`, 1 or more and higher than the last.

        On return they may be overwritten. wait() returns when the file exists; or callback(step, error) is called then from
        another thread, with None or an OSError; it must not call this lineage. `stream`: the CUDA stream that orders the
        arrays, if it is not the current one.
        """
        step = _number_of(step)
        flattener = _Flattener(writable=False)
        structure = flattener.node(tensors, ())
        arrays = flattener.arrays
        if stream is None:
            stream = _stream_of(arrays)
        infos = [json.dumps(a.info, separators=(",", ":")).encode() for a in arrays.values()]
        arrays = {**arrays, _STRUCTURE: _Array(None, 0, {}, None)}
        infos.append(json.dumps(structure, separators=(",", ":")).encode())
        buffers, alive = _buffers(arrays, infos)
        callbacks, key = self._callbacks, None
        done = ctypes.cast(0, _Done)  # NULL
        with self._open() as handle:
            called = callbacks.take_called()
            if callback is not None:
                done, key = callbacks.function, callbacks.add(callback)
            r = _lib.ckptfs_gpu_checkpoint(handle, step, buffers, len(buffers), stream, done, key)
            del called, alive
            if r < 0 and key is not None:
                del callbacks.waiting[key]
        self._check(r)

    def wait(self) -> None:
        """Waits until all saves are complete; raises the first error since the last call."""
        with self._open() as handle:
            called = self._callbacks.take_called()
            r = _lib.ckptfs_gpu_wait(handle)
            del called
        self._check(r)

    def fileno(self) -> int:
        """Readable when a save has been completed or has failed, for select() and event loops."""
        with self._open() as handle:
            return int(_lib.ckptfs_gpu_event_fd(handle))

    def load(self, step: int, into: Any = None, device: Any = None, stream: Optional[int] = None) -> Any:
        """The state of a step.

        `into`: a state with arrays of the same shape and dtype to overwrite, instead of creating new ones; it may be a part of
        what was saved. `device`: the device of new PyTorch tensors (with "cpu" CuPy arrays become NumPy arrays); None: their
        original one. Numbers, strings and None come from the step either way; bytes are returned as a bytearray, a NumPy scalar as
        an array without dimensions.
        """
        step = _number_of(step)
        structure, saved = self._describe(step)
        arrays: Dict[str, _Array] = {}
        wanted = _Flattener(writable=True)

        def make(name: str) -> Any:
            length, info = saved[name]
            array = _new_array(info, length, device)
            if length > 0:
                taken = _array_of(array, writable=True)
                assert taken is not None, array
                arrays[name] = taken
            return array

        def fill(name: str, saved_name: Optional[str]) -> Any:
            if structure is None and name in saved:
                saved_name = name
            if saved_name is None:
                raise KeyError(f"step {step} has no array {name}")
            array, (length, info) = wanted.arrays[name], saved[saved_name]
            if array.length == length and not _same_kind(info, array.info):
                raise ValueError(f"{name} is {info['dtype']} {info['shape']} in step {step}, not {array.info['dtype']} "
                                 f"{array.info['shape']}")
            arrays[saved_name] = array
            return array.given

        tree = structure or {"d": [[name, {"a": name}] for name in saved]}
        state = _build(tree, make) if into is None else _fill(wanted.node(into, ()), tree, fill, make)
        if stream is None:
            stream = _stream_of(arrays)
        buffers, alive = _buffers(arrays, [b""] * len(arrays))
        with self._open() as handle:
            r = _lib.ckptfs_gpu_restore(handle, step, buffers, len(buffers), stream)
        del alive
        self._check(r)
        return state

    def _describe(self, step: int) -> Tuple[Optional[_Node], Dict[str, Tuple[int, _Info]]]:
        """The tree of a step's arrays (None: written by a program in another language), and (length, info) of each."""
        version = ctypes.POINTER(_Version)()
        with self._open() as handle:
            self._check(_lib.ckptfs_gpu_version_read(handle, step, ctypes.byref(version)))
        try:
            saved: Dict[str, Tuple[int, _Info]] = {}
            structure: Optional[_Node] = None
            for b in version.contents.buffers[:version.contents.nr]:
                info = ctypes.string_at(b.info, b.info_len)
                name = b.name.decode("utf-8", "surrogateescape")
                if name == _STRUCTURE:
                    structure = json.loads(info)
                else:
                    saved[name] = (b.len, _info_of(info))
        finally:
            _lib.ckptfs_gpu_version_free(version)
        return structure, saved

    def steps(self) -> List[int]:
        """All existing steps, ascending."""
        numbers, nr = ctypes.POINTER(ctypes.c_uint32)(), ctypes.c_size_t()
        with self._open() as handle:
            self._check(_lib.ckptfs_gpu_versions(handle, ctypes.byref(numbers), ctypes.byref(nr)))
        try:
            return numbers[:nr.value]
        finally:
            _free(numbers)

    def delete(self, step: int) -> None:
        """Deletes a step; the others do not depend on it."""
        with self._open() as handle:
            self._check(_lib.ckptfs_gpu_delete(handle, _number_of(step)))

    def stats(self) -> Dict[str, int]:
        """Statistics of the last completed save: a dict with the fields of struct ckptfs_gpu_stats."""
        s = _Stats(size=ctypes.sizeof(_Stats))
        with self._open() as handle:
            self._check(_lib.ckptfs_gpu_stats(handle, ctypes.byref(s)))
        return {name: getattr(s, name) for name, _ in _Stats._fields_ if name != "size"}
