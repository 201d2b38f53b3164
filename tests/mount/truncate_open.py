# SPDX-License-Identifier: GPL-3.0-or-later
"""O_TRUNC while mapped pages are on their way to the daemon: none of them comes back."""
import mmap
import os
import sys

SIZE = 256 << 10
path = sys.argv[1] + "/truncated"
keep = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(keep, SIZE)
pages = mmap.mmap(keep, SIZE)
for i in range(int(sys.argv[2])):
    os.ftruncate(keep, SIZE)
    pages[:] = bytes([i % 255 + 1]) * SIZE
    os.posix_fadvise(keep, 0, 0, os.POSIX_FADV_DONTNEED)  # starts writing back and does not wait for it
    os.close(os.open(path, (os.O_WRONLY, os.O_RDWR)[i % 2] | os.O_TRUNC))
    os.fsync(keep)
    size, bytes_left = os.stat(path).st_size, os.pread(keep, SIZE, 0)
    if size or bytes_left:
        sys.exit(f"round {i}: {size} bytes in a file that was truncated, {len(bytes_left)} can be read")
