# SPDX-License-Identifier: BSD-3-Clause
"""Requests to a ckptfs mount beyond reading and writing files.

    with ckptfs.checkpoint("/mnt/ckpt/run1/step.0200") as where:  # a directory: complete, or absent
        torch.save(state, where / "state.pt")

    last = ckptfs.newest("/mnt/ckpt/run1", verify=True)           # to restart from, every byte compared; or None
    for c in ckptfs.checkpoints("/mnt/ckpt"):
        print(c.path, c.files, c.bytes, c.sealed)

    ckptfs.clone("/mnt/ckpt/a", "/mnt/ckpt/b")                    # shares all bytes, copies none
    ckptfs.sync("/mnt/ckpt")                                      # makes everything written there durable
    ckptfs.stat("/mnt/ckpt/a").fingerprint                        # equal for equal content in one store
    ckptfs.figures("/mnt/ckpt")["stored_bytes"]                   # the output of ckptfs-stat --json

Errors are OSError, with errno ENOTTY outside of a ckptfs mount; their text says what to do. All functions are thread-safe.
"""
from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import json
import logging
import mmap
import os
import pathlib
import re
import shutil
import stat as _stat
from typing import Any, Iterator, Optional, Union

from . import _ioctl

__all__ = ["Checkpoint", "FileStat", "SealError", "checkpoint", "checkpoints", "clone", "figures", "mountpoint", "newest", "seal", "stat",
           "sync", "unseal", "verify"]
__version__ = "0.1.0"

Path = Union[str, "os.PathLike[str]"]


class SealError(OSError):
    """A directory cannot be sealed, unsealed or verified. `culprit`: the entry in it, or the directory around it, that prevents it, if known."""

    culprit: Optional[pathlib.Path] = None


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A sealed checkpoint: a directory that is complete, durable and immutable."""

    path: pathlib.Path
    inode: int
    sealed_ns: int  # since 1970
    files: int  # all entries that are not directories, each once
    directories: int  # including itself
    bytes: int
    uid: int  # of the user that sealed it
    new_bytes: int  # stored bytes that nothing else referred to when it was sealed
    root: Optional[str]  # SHA-256 over names, attributes and content; None: a replica

    @property
    def sealed(self) -> datetime.datetime:
        """When it was sealed, in local time."""
        return datetime.datetime.fromtimestamp(self.sealed_ns / 1e9).astimezone()


@dataclasses.dataclass(frozen=True)
class FileStat:
    """Statistics of a regular file."""

    size: int
    mapped: int  # bytes without holes
    extents: int
    frames: int  # distinct frames that a full read accesses
    fingerprint: bytes  # equal for equal content in one store
    durable: bool  # everything written is committed


_NOT_CKPTFS = "not on a ckptfs mount; mount the store, or give a path below its mountpoint"
_REFUSALS = {
    errno.ENOTTY: _NOT_CKPTFS,
    errno.EISDIR: "a directory; give a regular file",
    errno.EXDEV: "on another mount than the source; copy it instead",
    errno.ENOTCONN: "the daemon of this mount has died; unmount and mount it again",
    errno.ECONNABORTED: "the daemon of this mount has died; unmount and mount it again",
}


def _call(fd: int, number: int, argument: _ioctl._Argument, path: Path) -> None:
    """_ioctl.call() with errors that name the path and say what to do."""
    try:
        _ioctl.call(fd, number, argument)
    except OSError as e:
        raise OSError(e.errno, _REFUSALS.get(e.errno or 0, e.strerror), os.fspath(path)) from None


@contextlib.contextmanager
def _opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


def mountpoint(path: Path) -> pathlib.Path:
    """The mountpoint of the filesystem with `path`."""
    p = pathlib.Path(path).resolve(strict=True)
    while not os.path.ismount(p):
        p = p.parent
    return p


_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")  # how /proc writes characters that would end a field


def _mount_of(fd: int) -> "tuple[pathlib.Path, pathlib.PurePath]":
    """The mountpoint of `fd`, and the directory of the filesystem that is mounted there: containers may see only a part."""
    with open(f"/proc/self/fdinfo/{fd}", "rb") as f:
        mount = next(line.split()[1] for line in f if line.startswith(b"mnt_id:"))
    with open("/proc/self/mountinfo", "rb") as f:
        for line in f:
            fields = line.split(b" ")
            if fields[0] == mount:
                root, point = (_ESCAPED.sub(lambda m: bytes([int(m[1], 8)]), name) for name in fields[3:5])
                return pathlib.Path(os.fsdecode(point)), pathlib.PurePath(os.fsdecode(root)).relative_to("/")
    raise OSError(errno.ENOENT, "mountpoint not found in /proc/self/mountinfo")


def _visible_path(mount: "tuple[pathlib.Path, pathlib.PurePath]", path: bytes) -> Optional[pathlib.Path]:
    """The path of this process to a path in the filesystem. None: it is not visible."""
    try:
        return mount[0] / pathlib.PurePath(os.fsdecode(path)).relative_to(mount[1])
    except ValueError:
        return None


def sync(path: Path) -> None:
    """Makes everything durable that was written to the mount of `path`, which sync(2) does not do."""
    with _opened(path) as fd:
        _call(fd, _ioctl.SYNC, _ioctl.Sync(), path)


def clone(source: Path, target: Path, *, offset: int = 0, target_offset: int = 0, length: Optional[int] = None) -> int:
    """Shares bytes of `source` with `target` instead of copying them; creates `target` if it is missing. Both must be on one mount.

    The default length is the rest of the source. If target_offset is 0, too, the target is truncated first: cloning a whole file
    replaces the target. Returns the number of shared bytes.
    """
    if min(offset, target_offset, length or 0) < 0:
        raise ValueError("offsets and lengths must not be negative")
    if length == 0:
        return 0
    handle, target_is_new = _ioctl.Handle(), not os.path.lexists(target)
    with _opened(source) as from_fd:
        _call(from_fd, _ioctl.HANDLE, handle, source)
        try:
            with _opened(target, os.O_RDWR | os.O_CREAT) as to_fd:
                return _clone_opened(from_fd, to_fd, handle, target, offset, target_offset, length)
        except OSError:
            if target_is_new:
                with contextlib.suppress(OSError):
                    os.unlink(target)
            raise


def _clone_opened(from_fd: int, to_fd: int, handle: _ioctl.Handle, target: Path, offset: int, target_offset: int,
                  length: Optional[int]) -> int:
    """Changes nothing of the target unless both are on one mount."""
    if os.path.sameopenfile(from_fd, to_fd) and length is None and offset == target_offset:
        raise OSError(errno.EINVAL, "a file cannot be cloned to itself", os.fspath(target))
    _call(to_fd, _ioctl.HANDLE, _ioctl.Handle(), target)  # is it on a ckptfs mount?
    if os.fstat(from_fd).st_dev != os.fstat(to_fd).st_dev:
        raise OSError(errno.EXDEV, _REFUSALS[errno.EXDEV], os.fspath(target))
    if length is None and target_offset == 0:
        os.ftruncate(to_fd, 0)
    if offset >= os.fstat(from_fd).st_size:
        return 0
    request = _ioctl.Clone(source=handle.handle, from_off=offset, to_off=target_offset, len=length or 0)
    _call(to_fd, _ioctl.CLONE, request, target)
    return int(request.done)


def stat(path: Path) -> FileStat:
    """Statistics of a regular file."""
    with _opened(path) as fd:
        s = _ioctl.Stat()
        _call(fd, _ioctl.STAT, s, path)
    return FileStat(s.file_size, s.mapped, s.extents, s.frames, bytes(s.fingerprint), bool(s.durable))


def figures(path: Path) -> "dict[str, Any]":
    """The output of `ckptfs-stat --json` for a mount (its mountpoint), a file or a directory."""
    try:
        text = os.getxattr(path, "user.ckptfs.stat", follow_symlinks=False)
    except OSError as e:
        if e.errno in (errno.EOPNOTSUPP, errno.ENODATA, errno.EPERM):
            raise OSError(errno.ENOTTY, _NOT_CKPTFS, os.fspath(path)) from None
        raise
    result = json.loads(text)
    assert isinstance(result, dict)
    return result


def _seal_request(path: Path, command: int) -> "tuple[_ioctl.Seal, Optional[OSError]]":
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        s = _ioctl.Seal(command=command)
        try:
            _ioctl.call(fd, _ioctl.SEAL, s)
        except OSError as e:
            return s, e
    return s, None


_MESSAGES = {
    errno.EBUSY: "a file in it is open for writing; close it first",
    errno.EEXIST: "it is in a sealed directory, or contains one; unseal that first",
    errno.EPERM: "it, or an entry in it, belongs to another user; root can seal it",
    errno.E2BIG: "too many files in it; seal its subdirectories",
    errno.ENODATA: "it is in a sealed directory; unseal that one",
    errno.ENOTTY: _NOT_CKPTFS,
    errno.ENOTCONN: _REFUSALS[errno.ENOTCONN],
    errno.ECONNABORTED: _REFUSALS[errno.ENOTCONN],
}
# With the entry that prevents it.
_MESSAGES_OF_CULPRIT = {
    errno.EBUSY: "{} is open for writing; close it first",
    errno.EEXIST: "{} is sealed; unseal it first",
    errno.EPERM: "{} belongs to another user; root can seal it",
    errno.ENODATA: "it is in the sealed directory {}; unseal that one",
}


def _seal_error(path: Path, s: _ioctl.Seal, e: OSError) -> SealError:
    assert e.errno is not None
    culprit, text = None, _MESSAGES.get(e.errno, os.strerror(e.errno))
    if s.path:
        with _opened(path) as fd:
            culprit = _visible_path(_mount_of(fd), s.path)
    if culprit is not None and e.errno in _MESSAGES_OF_CULPRIT:
        text = _MESSAGES_OF_CULPRIT[e.errno].format(culprit)
    error = SealError(e.errno, text, os.fspath(path))
    error.culprit = culprit
    return error


def _checkpoint_of(s: _ioctl.Seal, path: pathlib.Path) -> Checkpoint:
    return Checkpoint(path, s.inode, s.sealed_ns, s.files, s.directories, s.bytes, s.uid, s.new_bytes,
                      bytes(s.root).hex() if s.facts & _ioctl.SEAL_HAS_ROOT else None)


def _refuse_mountpoint(path: Path) -> None:
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        _next_seal(fd, _ioctl.Seal(command=_ioctl.SEAL_NEXT), path)
        if _mount_of(fd)[0] == pathlib.Path(path).resolve():
            raise SealError(errno.EBUSY, "it is a mountpoint, and nothing in it could be changed any more; seal a directory below it, "
                            "or use force=True", os.fspath(path))


def seal(path: Path, *, force: bool = False) -> Checkpoint:
    """Makes a directory with its content durable, then immutable, and listed: all or nothing. A sealed one is unchanged.

    A mountpoint is refused without `force`.
    """
    if not force:
        _refuse_mountpoint(path)
    s, e = _seal_request(path, _ioctl.SEAL_SEAL)
    if e is not None and e.errno != errno.EALREADY:
        raise _seal_error(path, s, e)
    return _checkpoint_of(s, pathlib.Path(path).resolve())


def unseal(path: Path) -> bool:
    """Makes a sealed directory changeable again. False: it was not sealed."""
    s, e = _seal_request(path, _ioctl.SEAL_UNSEAL)
    if e is not None and e.errno == errno.ENODATA and not s.path:
        return False
    if e is not None:
        raise _seal_error(path, s, e)
    return True


def _next_seal(fd: int, s: _ioctl.Seal, path: Path) -> bool:
    """Replaces `s` by the next sealed directory. False: there is none."""
    try:
        _ioctl.call(fd, _ioctl.SEAL, s)
    except OSError as e:
        if e.errno != errno.ENOENT:
            raise OSError(e.errno, _MESSAGES.get(e.errno or 0, e.strerror), os.fspath(path)) from None
        return False
    return True


def _require_ckptfs(path: Path) -> None:
    """Raises ENOTTY unless `path`, or its nearest existing parent directory, is on a ckptfs mount."""
    top = pathlib.Path(path).absolute()
    existing = next(p for p in (top, *top.parents) if p.exists())
    with _opened(existing, os.O_RDONLY | os.O_DIRECTORY) as fd:
        _next_seal(fd, _ioctl.Seal(command=_ioctl.SEAL_NEXT), existing)


def checkpoints(path: Path) -> "list[Checkpoint]":
    """The sealed checkpoints at and below a directory that the caller may see, the oldest first."""
    top, found = pathlib.Path(path).resolve(strict=True), []
    with _opened(top, os.O_RDONLY | os.O_DIRECTORY) as fd:
        mount = _mount_of(fd)
        s = _ioctl.Seal(command=_ioctl.SEAL_NEXT)
        while _next_seal(fd, s, path):
            where = _visible_path(mount, s.path)
            if where is not None:
                found.append(_checkpoint_of(s, where))
    return sorted((c for c in found if c.path == top or top in c.path.parents), key=lambda c: (c.sealed_ns, c.inode))


def newest(path: Path, *, verify: bool = False) -> Optional[Checkpoint]:
    """The last checkpoint that was sealed at or below a directory, to restart from. None: there is none.

    With `verify`, the last one that verify() accepts: every byte is read. Others are skipped, and reported by the logger "ckptfs".
    A directory that does not exist has none: the first checkpoint() in it creates it. Outside of a ckptfs mount this is an error
    nevertheless, so that a program does not start from scratch because the mount is missing.
    """
    if not pathlib.Path(path).exists():
        _require_ckptfs(path)
        return None
    for c in reversed(checkpoints(path)):
        try:
            if verify:
                _verify(c.path)
            return c
        except SealError as e:
            logging.getLogger("ckptfs").warning("%s: skipped: %s", c.path, e.strerror)
    return None


def _check(path: Path) -> _ioctl.Seal:
    """The seal of a directory if names and attributes are as sealed, and content has the sealed fingerprints."""
    s, e = _seal_request(path, _ioctl.SEAL_CHECK)
    if e is None and s.facts & _ioctl.SEAL_HAS_ROOT and bytes(s.root) != bytes(s.root_now):
        raise SealError(errno.EBADMSG, "damaged: its root differs from the sealed root", os.fspath(path))
    if e is None:
        return s
    if e.errno in (errno.ENODATA, errno.ESTALE):
        raise SealError(errno.ENODATA, "not sealed", os.fspath(path))
    if e.errno == errno.EIO:
        raise SealError(errno.EBADMSG, "damaged: cannot look up its content; see the daemon's log", os.fspath(path))
    if e.errno == errno.EPERM:
        raise OSError(e.errno, "only its owner, root and the mounting user may verify it", os.fspath(path))
    raise OSError(e.errno, _MESSAGES.get(e.errno or 0, e.strerror), os.fspath(path))


def _read_file(path: str, buffer: mmap.mmap) -> None:
    """Reads the data of a file past all caches, so that the daemon compares what is on the disk."""
    with _opened(path, os.O_RDONLY | os.O_DIRECT | os.O_NOFOLLOW) as fd:
        at, end = 0, os.fstat(fd).st_size
        while at < end:
            try:
                at = max(at, os.lseek(fd, at, os.SEEK_DATA) & -mmap.PAGESIZE)
            except OSError as e:
                if e.errno != errno.ENXIO:
                    raise
                break  # the rest is a hole
            nr = os.preadv(fd, [buffer], at)
            if nr == 0:
                raise OSError(errno.EBADMSG, "shorter than it was sealed", path)
            at += nr


def _all_below(top: str) -> "Iterator[os.DirEntry[str]]":
    with os.scandir(top) as entries:
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _all_below(entry.path)


def verify(path: Path, *, quick: bool = False) -> None:
    """Compares a sealed directory with what was sealed, and reads every byte of it from the disk.

    Raises SealError with errno EBADMSG if it is damaged, and with ENODATA if it is not sealed. Any other OSError means that this
    could not be found out. `quick` compares names, attributes and fingerprints, and reads no bytes.
    """
    s = _check(path)
    top, buffer = os.fspath(path), mmap.mmap(-1, 1 << 20)
    device = os.stat(top).st_dev
    for entry in () if quick else _all_below(top):
        try:
            st = entry.stat(follow_symlinks=False)
            if st.st_dev != device:
                raise OSError(errno.EXDEV, "another filesystem is mounted there; unmount it", entry.path)
            if _stat.S_ISREG(st.st_mode):
                _read_file(entry.path, buffer)
        except OSError as e:
            if e.errno not in (errno.EIO, errno.EBADMSG):
                raise
            cluster = figures(mountpoint(path)).get("cluster", {})
            if cluster.get("member") and not cluster.get("agent"):
                raise OSError(errno.ENOLINK, "cannot be read; it may be on other nodes, and no ckptfs-agent runs here", entry.path) from None
            error = SealError(errno.EBADMSG, f"damaged: {entry.path} cannot be read", top)
            error.culprit = pathlib.Path(entry.path)
            raise error from None
    if _check(path).sealed_ns != s.sealed_ns:
        raise SealError(errno.ENODATA, "no longer sealed", top)


_verify = verify  # for newest(), which has an argument of that name


_MARK = "user.ckptfs_checkpoint"  # of directories created by checkpoint(): an unsealed one was left by a crash


def _create(where: pathlib.Path) -> None:
    """Creates a directory, replacing one that a crashed checkpoint() has left."""
    try:
        where.mkdir()
    except FileExistsError:
        if not where.is_dir() or _MARK not in os.listxattr(where) or any(c.path == where.resolve() for c in checkpoints(where)):
            raise FileExistsError(errno.EEXIST, "exists, and is not what a crashed checkpoint() left; remove it, or choose another name",
                                  os.fspath(where)) from None
        shutil.rmtree(where)
        where.mkdir()
    os.setxattr(where, _MARK, b"")


@contextlib.contextmanager
def checkpoint(path: Path) -> Iterator[pathlib.Path]:
    """A directory that the block fills, and that is sealed at its end. If the block raises, or sealing fails, it is removed.

    Parent directories are created on a ckptfs mount; elsewhere this raises ENOTTY before anything is written. An unsealed directory
    that a checkpoint() of a crashed process has left is removed first; any other existing one is a FileExistsError.
    For one process: where several fill a directory, one of them calls seal() after all have closed their files.
    """
    where = pathlib.Path(path)
    _require_ckptfs(where.parent)
    where.parent.mkdir(parents=True, exist_ok=True)
    _create(where)
    try:
        yield where
        seal(where)
    except BaseException:
        shutil.rmtree(where, ignore_errors=True)
        raise
