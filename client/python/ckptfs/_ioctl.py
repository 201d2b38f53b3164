# SPDX-License-Identifier: BSD-3-Clause
"""The ioctls of client/ioctl.h that this package uses. tests/apps/python.sh compares sizes, offsets and numbers with the header."""
from __future__ import annotations

import ctypes
import fcntl
import os
from typing import Any

VERSION = 1
SEAL_SEAL, SEAL_UNSEAL, SEAL_NEXT, SEAL_CHECK = range(4)
SEAL_HAS_ROOT = 1


class _Argument(ctypes.Structure):
    """Base of all arguments: its size and version come first."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), version=VERSION, **fields)


_START = [("size", ctypes.c_uint32), ("version", ctypes.c_uint32)]


class Handle(_Argument):
    _fields_ = _START + [("handle", ctypes.c_uint64)]


class Clone(_Argument):
    # `source` is called from in the header, which is a keyword of Python.
    _fields_ = _START + [(name, ctypes.c_uint64) for name in ("source", "from_off", "to_off", "len", "done")]


class Sync(_Argument):
    _fields_ = _START


class Stat(_Argument):
    _fields_ = _START + [(name, ctypes.c_uint64) for name in ("file_size", "mapped", "extents", "frames")] + [
        ("fingerprint", ctypes.c_uint8 * 16), ("durable", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


class Seal(_Argument):
    _fields_ = _START + [("command", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("inode", ctypes.c_uint64), ("sealed_ns", ctypes.c_int64)] + [
        (name, ctypes.c_uint64) for name in ("files", "directories", "bytes", "new_bytes")] + [
        ("uid", ctypes.c_uint32), ("facts", ctypes.c_uint32), ("root", ctypes.c_uint8 * 32), ("root_now", ctypes.c_uint8 * 32),
        ("path", ctypes.c_char * 4096)]


def _number(reads: bool, number: int, argument: "type[_Argument]") -> int:
    """_IOWR or _IOW of type K, on x86_64 and aarch64."""
    return (3 if reads else 1) << 30 | ctypes.sizeof(argument) << 16 | ord("K") << 8 | number


HANDLE = _number(True, 1, Handle)
CLONE = _number(True, 2, Clone)
SYNC = _number(False, 3, Sync)
STAT = _number(True, 4, Stat)
SEAL = _number(True, 12, Seal)


def call(fd: int, number: int, argument: _Argument) -> None:
    """Raises OSError; the daemon's output is in `argument` even then."""
    room = bytearray(bytes(argument))
    try:
        fcntl.ioctl(fd, number, room, True)
    except OSError as e:
        assert e.errno is not None
        raise OSError(e.errno, os.strerror(e.errno)) from None
    finally:
        ctypes.memmove(ctypes.addressof(argument), bytes(room), ctypes.sizeof(argument))
