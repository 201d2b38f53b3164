"""What a program can ask of a ckptfs mount beyond reading and writing files.

    with ckptfs.epoch("/mnt/ckpt/run1/step.0200") as where:   # a directory: complete, or not there at all
        torch.save(state, where / "state.pt")

    last = ckptfs.newest("/mnt/ckpt/run1")                    # where a restart begins, or None
    for e in ckptfs.epochs("/mnt/ckpt"):
        print(e.path, e.files, e.bytes, e.sealed)

    ckptfs.clone("/mnt/ckpt/a", "/mnt/ckpt/b")                # shares all bytes, copies none
    ckptfs.sync("/mnt/ckpt")                                  # everything that was written there is durable
    ckptfs.stat("/mnt/ckpt/a").fingerprint                    # equal for equal content in one store
    ckptfs.figures("/mnt/ckpt")["stored_bytes"]               # what ckptfs-stat --json tells

Errors are OSError. What is not on a ckptfs is errno ENOTTY. Everything may be called from any thread.
"""
from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import json
import os
import pathlib
import re
import shutil
from typing import Any, Iterator, Optional, Union

from . import _ioctl

__all__ = ["Epoch", "FileStat", "SealError", "clone", "epoch", "epochs", "figures", "mountpoint", "newest", "seal", "stat", "sync", "unseal"]
__version__ = "0.1.0"

Path = Union[str, "os.PathLike[str]"]


class SealError(OSError):
    """A directory cannot be sealed or unsealed. `culprit`: what in it, or around it, is in the way, if that is known."""

    culprit: Optional[pathlib.Path] = None


@dataclasses.dataclass(frozen=True)
class Epoch:
    """A sealed directory: a checkpoint that is complete, durable and cannot be changed."""

    path: pathlib.Path
    inode: int
    sealed_ns: int  # since 1970
    files: int  # all that is no directory, each once
    directories: int  # with itself
    bytes: int
    uid: int  # who sealed it
    new_bytes: int  # as stored, that nothing else referred to when it was sealed
    root: Optional[str]  # SHA-256 over names, attributes and content; None: sealed by an earlier version

    @property
    def sealed(self) -> datetime.datetime:
        """When it was sealed, in local time."""
        return datetime.datetime.fromtimestamp(self.sealed_ns / 1e9).astimezone()


@dataclasses.dataclass(frozen=True)
class FileStat:
    """Figures about one regular file."""

    size: int
    mapped: int  # bytes that are no hole
    extents: int
    frames: int  # places that a full read visits
    fingerprint: bytes  # equal for equal content in one store
    durable: bool  # everything written is committed


@contextlib.contextmanager
def _opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


def mountpoint(path: Path) -> pathlib.Path:
    """Where the filesystem that `path` lies on is mounted."""
    p = pathlib.Path(path).resolve(strict=True)
    while not os.path.ismount(p):
        p = p.parent
    return p


_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")  # as /proc writes what would end a field


def _place(fd: int) -> "tuple[pathlib.Path, pathlib.PurePath]":
    """Where the mount that `fd` was opened on is, and what of its filesystem is there: containers are given a part."""
    with open(f"/proc/self/fdinfo/{fd}", "rb") as f:
        mount = next(line.split()[1] for line in f if line.startswith(b"mnt_id:"))
    with open("/proc/self/mountinfo", "rb") as f:
        for line in f:
            fields = line.split(b" ")
            if fields[0] == mount:
                root, point = (_ESCAPED.sub(lambda m: bytes([int(m[1], 8)]), name) for name in fields[3:5])
                return pathlib.Path(os.fsdecode(point)), pathlib.PurePath(os.fsdecode(root)).relative_to("/")
    raise OSError(errno.ENOENT, "where it is mounted cannot be found in /proc/self/mountinfo")


def _seen(place: "tuple[pathlib.Path, pathlib.PurePath]", path: bytes) -> Optional[pathlib.Path]:
    """Where a path in the filesystem is for this process. None: nowhere."""
    try:
        return place[0] / pathlib.PurePath(os.fsdecode(path)).relative_to(place[1])
    except ValueError:
        return None


def sync(path: Path) -> None:
    """Make everything durable that was written to the mount which `path` lies on. sync(2) does not reach it."""
    with _opened(path) as fd:
        _ioctl.call(fd, _ioctl.SYNC, _ioctl.Sync())


def clone(source: Path, target: Path, *, offset: int = 0, target_offset: int = 0, length: Optional[int] = None) -> int:
    """Have `target`, which is made if it is missing, share bytes of `source` instead of copying them. Both are on one mount.

    Without a length it is the rest of the source, and without a target_offset either the target then ends there: cloning a whole file
    replaces what was in the target. Returns how many bytes are shared.
    """
    if min(offset, target_offset, length or 0) < 0:
        raise ValueError("offsets and lengths are not negative")
    if length == 0:
        return 0
    with _opened(source) as from_fd, _opened(target, os.O_RDWR | os.O_CREAT) as to_fd:
        if os.path.sameopenfile(from_fd, to_fd) and length is None and offset == target_offset:
            raise OSError(errno.EINVAL, "a file cannot be cloned to itself", os.fspath(target))
        if length is None and target_offset == 0:
            os.ftruncate(to_fd, 0)
        if offset >= os.fstat(from_fd).st_size:
            return 0
        handle = _ioctl.Handle()
        _ioctl.call(from_fd, _ioctl.HANDLE, handle)
        request = _ioctl.Clone(source=handle.handle, from_off=offset, to_off=target_offset, len=length or 0)
        _ioctl.call(to_fd, _ioctl.CLONE, request)
        return int(request.done)


def stat(path: Path) -> FileStat:
    """Figures about a regular file."""
    with _opened(path) as fd:
        s = _ioctl.Stat()
        _ioctl.call(fd, _ioctl.STAT, s)
    return FileStat(s.file_size, s.mapped, s.extents, s.frames, bytes(s.fingerprint), bool(s.durable))


def figures(path: Path) -> "dict[str, Any]":
    """What `ckptfs-stat --json` tells of a mount (its mountpoint), a file or a directory."""
    try:
        text = os.getxattr(path, "user.ckptfs.stat", follow_symlinks=False)
    except OSError as e:
        if e.errno in (errno.EOPNOTSUPP, errno.ENODATA, errno.EPERM):
            raise OSError(errno.ENOTTY, "not on a ckptfs", os.fspath(path)) from None
        raise
    result = json.loads(text)
    assert isinstance(result, dict)
    return result


def _seal(path: Path, command: int) -> "tuple[_ioctl.Seal, Optional[OSError]]":
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        s = _ioctl.Seal(command=command)
        try:
            _ioctl.call(fd, _ioctl.SEAL, s)
        except OSError as e:
            return s, e
    return s, None


_WHY = {
    errno.EBUSY: "something in it is open for writing",
    errno.EEXIST: "it lies in a sealed directory, or something in it is sealed",
    errno.EPERM: "it, or something in it, belongs to somebody else",
    errno.E2BIG: "too many files in it; seal directories below it",
    errno.ENODATA: "it lies in a directory that is sealed; unseal that",
    errno.ENOTTY: "not on a ckptfs",
}


def _refusal(path: Path, s: _ioctl.Seal, e: OSError) -> SealError:
    assert e.errno is not None
    error = SealError(e.errno, _WHY.get(e.errno, os.strerror(e.errno)), os.fspath(path))
    if s.path:
        with _opened(path) as fd:
            error.culprit = _seen(_place(fd), s.path)
    return error


def _epoch_of(s: _ioctl.Seal, path: pathlib.Path) -> Epoch:
    return Epoch(path, s.inode, s.sealed_ns, s.files, s.directories, s.bytes, s.uid, s.new_bytes,
                 bytes(s.root).hex() if s.facts & _ioctl.SEAL_HAS_ROOT else None)


def seal(path: Path) -> Epoch:
    """Make a directory with all in it durable, then immutable, and listed: all or nothing. One that is sealed is left as it is."""
    s, e = _seal(path, _ioctl.SEAL_SEAL)
    if e is not None and e.errno != errno.EALREADY:
        raise _refusal(path, s, e)
    return _epoch_of(s, pathlib.Path(path).resolve())


def unseal(path: Path) -> bool:
    """Let a sealed directory be changed again. False: it was not sealed."""
    s, e = _seal(path, _ioctl.SEAL_UNSEAL)
    if e is not None and e.errno == errno.ENODATA and not s.path:
        return False
    if e is not None:
        raise _refusal(path, s, e)
    return True


def _next_seal(fd: int, s: _ioctl.Seal, path: Path) -> bool:
    """The one after `s`, into it. False: there is none."""
    try:
        _ioctl.call(fd, _ioctl.SEAL, s)
    except OSError as e:
        if e.errno != errno.ENOENT:
            raise OSError(e.errno, _WHY.get(e.errno or 0, e.strerror), os.fspath(path)) from None
        return False
    return True


def _require_ckptfs(path: Path) -> None:
    """ENOTTY unless `path`, or of the directories above it the first that is there, is on a ckptfs."""
    top = pathlib.Path(path).absolute()
    there = next(p for p in (top, *top.parents) if p.exists())
    with _opened(there, os.O_RDONLY | os.O_DIRECTORY) as fd:
        _next_seal(fd, _ioctl.Seal(command=_ioctl.SEAL_NEXT), there)


def epochs(path: Path) -> "list[Epoch]":
    """The sealed directories at and below a directory of a mount, the oldest first: those that the caller may know of."""
    top, found = pathlib.Path(path).resolve(strict=True), []
    with _opened(top, os.O_RDONLY | os.O_DIRECTORY) as fd:
        place = _place(fd)
        s = _ioctl.Seal(command=_ioctl.SEAL_NEXT)
        while _next_seal(fd, s, path):
            where = _seen(place, s.path)
            if where is not None:
                found.append(_epoch_of(s, where))
    return sorted((e for e in found if e.path == top or top in e.path.parents), key=lambda e: (e.sealed_ns, e.inode))


def newest(path: Path) -> Optional[Epoch]:
    """The last one that was sealed at or below a directory: where a restart begins. None: there is none.

    A directory that is not there yet, since the first epoch() in it makes it, has none. What is not on a ckptfs is an error there, too:
    where the mount is missing, nothing is to begin anew.
    """
    if pathlib.Path(path).exists():
        return max(epochs(path), key=lambda e: (e.sealed_ns, e.inode), default=None)
    _require_ckptfs(path)
    return None


_MARK = "user.ckptfs_epoch"  # of directories that epoch() has made: unsealed, they are what a crash has left


def _make_anew(where: pathlib.Path) -> None:
    try:
        where.mkdir()
    except FileExistsError:
        if not where.is_dir() or _MARK not in os.listxattr(where) or any(e.path == where.resolve() for e in epochs(where)):
            raise
        shutil.rmtree(where)
        where.mkdir()
    os.setxattr(where, _MARK, b"")


@contextlib.contextmanager
def epoch(path: Path) -> Iterator[pathlib.Path]:
    """A directory to be filled, then sealed. If the block raises, or sealing fails, the directory is removed.

    Directories above it are made, on a ckptfs; elsewhere it is ENOTTY before anything is written. A directory that an earlier epoch()
    was filling when its process died, and that is not sealed therefore, is removed first; any other that is there is FileExistsError.
    For one process: where several fill a directory, one of them calls seal() when all have closed their files.
    """
    where = pathlib.Path(path)
    _require_ckptfs(where.parent)
    where.parent.mkdir(parents=True, exist_ok=True)
    _make_anew(where)
    try:
        yield where
        seal(where)
    except BaseException:
        shutil.rmtree(where, ignore_errors=True)
        raise
