# SPDX-License-Identifier: BSD-3-Clause
"""Sharded checkpoints of torch.distributed.checkpoint as sealed checkpoints: complete, durable and immutable, or absent.

    import torch.distributed.checkpoint as dcp
    from ckptfs.dcp import Reader, Writer

    dcp.save(state, storage_writer=Writer("/mnt/ckpt/run1/step.0200"))     # by all ranks
    last = ckptfs.newest("/mnt/ckpt/run1")
    dcp.load(state, storage_reader=Reader(last.path))                      # by any number of ranks

Every rank writes one file, in which each tensor has its layout in memory and starts on a page boundary: unchanged pages are found from
step to step, and holes between tensors take no space. The coordinator creates the directory, and seals it when all ranks have written.
All ranks must use the same mount, on one node; if a rank does not see the directory, saving fails on all.

For torch 2.1 and newer; with 1.13, for its predecessor torch.distributed._shard.checkpoint. As in torch itself, the metadata is a
pickle: load only checkpoints from trusted sources.
"""
from __future__ import annotations

import array
import dataclasses
import fcntl
import io
import os
import pathlib
import pickle
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch.futures import Future

from . import Path, _create, _require_ckptfs, seal

try:
    from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
    from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItemType
    from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
except ImportError:
    from torch.distributed._shard.checkpoint.metadata import Metadata, MetadataIndex
    from torch.distributed._shard.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItemType
    from torch.distributed._shard.checkpoint.storage import StorageReader, StorageWriter, WriteResult

__all__ = ["Reader", "Writer"]

_METADATA = ".metadata"
_PAGE = 4096  # the default chunk size of mounts
_GETFLAGS, _IMMUTABLE = 0x80086601, 0x10  # FS_IOC_GETFLAGS, FS_IMMUTABLE_FL


@dataclasses.dataclass(frozen=True)
class _Place:
    """The place of a tensor, or of the bytes of another object."""

    file: str
    offset: int
    length: int
    dtype: Optional[torch.dtype] = None  # None: bytes
    shape: Tuple[int, ...] = ()


def _done(value: Any) -> "Future[Any]":
    future: "Future[Any]" = Future()
    future.set_result(value)
    return future


class Writer(StorageWriter):  # type: ignore[misc]
    """Writes a state into a new directory, or one left by a crashed writer, and seals it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = pathlib.Path(path)
        self._is_coordinator = False

    def reset(self, checkpoint_id: Optional[Path] = None) -> None:
        if checkpoint_id is not None:
            self.path = pathlib.Path(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        try:
            _require_ckptfs(checkpoint_id)
        except OSError:
            return False
        return True

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._is_coordinator = is_coordinator

    init = set_up_storage_writer  # its name in 1.13

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if self._is_coordinator:  # no rank writes before all have returned from here
            _require_ckptfs(self.path.parent)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _create(self.path)
        return plan

    def prepare_global_plan(self, plans: List[SavePlan]) -> List[SavePlan]:
        return [dataclasses.replace(plan, storage_data=f"rank{i:05}") for i, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[List[WriteResult]]":
        results, name = [], plan.storage_data
        with open(self.path / name, "xb", buffering=0) as f:
            offset = 0
            for item in plan.items:
                data = planner.resolve_data(item)
                dtype: Optional[torch.dtype] = None
                shape: Tuple[int, ...] = ()
                if item.type == WriteItemType.BYTE_IO:
                    view = data.getbuffer()
                else:
                    tensor = data.detach().cpu().contiguous()
                    dtype, shape = tensor.dtype, tuple(tensor.shape)
                    view = memoryview(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() > 0 else memoryview(b"")
                _write_all(f.fileno(), view, offset)
                results.append(WriteResult(item.index, len(view), _Place(name, offset, len(view), dtype, shape)))
                offset = -(-(offset + len(view)) // _PAGE) * _PAGE
        return _done(results)

    def finish(self, metadata: Metadata, results: List[List[WriteResult]]) -> None:
        metadata.storage_data = {r.index: r.storage_data for of_rank in results for r in of_rank}
        with open(self.path / _METADATA, "xb") as f:
            pickle.dump(metadata, f)
        seal(self.path)


def _write_all(fd: int, view: memoryview, offset: int) -> None:
    while len(view) > 0:
        n = os.pwrite(fd, view, offset)
        view, offset = view[n:], offset + n


class Reader(StorageReader):  # type: ignore[misc]
    """Reads a directory written by a Writer; unsealed ones are incomplete and are refused."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = pathlib.Path(path)
        self._places: Dict[MetadataIndex, _Place] = {}

    def reset(self, checkpoint_id: Optional[Path] = None) -> None:
        self._places = {}
        if checkpoint_id is not None:
            self.path = pathlib.Path(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        return Writer.validate_checkpoint_id(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = array.array("L", [0])
            fcntl.ioctl(fd, _GETFLAGS, flags)
        finally:
            os.close(fd)
        if not flags[0] & _IMMUTABLE:
            raise RuntimeError(f"{self.path}: not sealed, and perhaps incomplete; ckptfs.newest() returns a complete one")
        with open(self.path / _METADATA, "rb") as f:
            return pickle.load(f)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._places = metadata.storage_data

    init = set_up_storage_reader  # its name in 1.13

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "Future[None]":
        by_file: Dict[str, List[Any]] = {}
        for item in plan.items:
            by_file.setdefault(self._places[item.storage_index].file, []).append(item)
        for name, items in by_file.items():
            with open(self.path / name, "rb", buffering=0) as f:
                for item in sorted(items, key=lambda i: self._places[i.storage_index].offset):
                    self._read_item(f.fileno(), item, planner)
        return _done(None)

    def _read_item(self, fd: int, item: Any, planner: LoadPlanner) -> None:
        place = self._places[item.storage_index]
        data = _read_all(fd, place)
        if item.type == LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(data))
            return
        if place.dtype is None:
            raise RuntimeError(f"{self.path}: {item.storage_index.fqn} is not a tensor there")
        stored = torch.frombuffer(data, dtype=place.dtype) if data else torch.empty(0, dtype=place.dtype)
        stored = stored.reshape(place.shape)
        for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
            stored = stored.narrow(dim, start, length)
        target = planner.resolve_tensor(item).detach()
        if target.shape != stored.shape:
            raise RuntimeError(f"{self.path}: {item.storage_index.fqn} is {tuple(stored.shape)}, not {tuple(target.shape)}")
        target.copy_(stored)
        planner.commit_tensor(item, target)


def _read_all(fd: int, place: _Place) -> bytearray:
    data = bytearray(place.length)
    view, offset = memoryview(data), place.offset
    while len(view) > 0:
        n = os.preadv(fd, [view], offset)
        if n == 0:
            raise RuntimeError(f"{place.file}: ends before byte {place.offset + place.length}")
        view, offset = view[n:], offset + n
    return data
