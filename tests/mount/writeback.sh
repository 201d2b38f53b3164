#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What -o writeback promises: small writes collect in the kernel; each request that needs them finds them; fsync, close and
# CKPTFS_IOC_SYNC leave nothing behind.
. "$(dirname "$0")/lib.sh"
need_mount

fs_mount writeback,commit=60
"$CKPTFS_BUILD/tools/ckptfs-stat" -v "$MNT" | grep -q 'write-back cache on' || fail "ckptfs-stat does not tell of the write-back cache"

# 20,000 writes of 10 bytes are a few requests.
"$PYTHON" - "$MNT" <<'PY'
import os, sys
fd = os.open(sys.argv[1] + "/small", os.O_WRONLY | os.O_CREAT)
for i in range(20000):
    os.write(fd, b"%09d\n" % i)
PY
cmp "$MNT/small" <(seq -f %09.0f 0 19999) || fail "small writes: other bytes"
[ "$(figure requests.write.count)" -lt 200 ] || fail "20,000 small writes became $(figure requests.write.count) requests"

# Requests on a file with data that was not written back yet; all of them while it is open for writing.
"$PYTHON" - "$MNT" "$HERE/../../client" <<'PY'
import ctypes, fcntl, os, struct, sys
os.chdir(sys.argv[1])
SIZE = 1 << 20

def ioc(way, number, size):
    return way << 30 | size << 16 | ord("K") << 8 | number

def ask(fd, number, way, *fields):
    size = 8 + 8 * len(fields)
    arg = bytearray(struct.pack("II%dQ" % len(fields), size, 1, *fields))
    fcntl.ioctl(fd, ioc(way, number, size), arg)
    return struct.unpack_from("%dQ" % len(fields), arg, 8)

def check(ok, what):
    if not ok:
        sys.exit("FAILED: " + what)

data = os.urandom(SIZE)
source = os.open("source", os.O_RDWR | os.O_CREAT)
os.ftruncate(source, 3 * SIZE)
os.pwrite(source, data, SIZE)
check(os.lseek(source, 0, os.SEEK_DATA) == SIZE, "SEEK_DATA does not find data in the page cache")
check(os.lseek(source, SIZE, os.SEEK_HOLE) == 2 * SIZE, "SEEK_HOLE ends before data in the page cache")

os.pwrite(source, b"dirty", SIZE + 4000)
handle = ask(source, 1, 3, 0)[0]
to = os.open("to", os.O_RDWR | os.O_CREAT)
os.pwrite(to, b"older" * 1000, 0)  # dirty, and older than the clone that is to replace it
done = ask(to, 2, 3, handle, SIZE, 0, SIZE, 0)[4]
wanted = data[:4000] + b"dirty" + data[4005:]
check(done == SIZE and os.fstat(to).st_size == SIZE, "clone: wrong length")
check(os.pread(to, SIZE + 1, 0) == wanted, "clone: not what had been written, in its order")
os.close(to)
check(open("to", "rb").read() == wanted, "clone: another content after close")

# A part of a page, through a descriptor that cannot read.
fd = os.open("to", os.O_WRONLY)
os.pwrite(fd, b"part", 100)
os.close(fd)
check(open("to", "rb").read() == wanted[:100] + b"part" + wanted[104:], "a part of a page written through O_WRONLY")

# Appended by two processes in turns.
pid = os.fork()
fd = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for i in range(2000):
    os.write(fd, b"child \n" if pid == 0 else b"parent\n")
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
lines = open("log", "rb").read().split(b"\n")
check(len(lines) == 4001 and lines.count(b"child ") == 2000 and lines.count(b"parent") == 2000, "O_APPEND")
PY

# Bytes that are appended to a page that is dirty through a mapping. See append.c: other mounts may lose them.
for how in rdwr wronly; do
	"$(program append)" "$MNT/appended" 1000 "$how" || fail "appended bytes were lost, $how"
done

# The kernel sends the first writes of a file at the same time. All of them are compared with the previous version.
noise 1 4 >"$WORK/data"
for i in $(seq 0 8); do
	[ "$i" != 1 ] || before=$(figure written_by_cause.previous_bytes)
	cp "$WORK/data" "$MNT/series.$i"
done
same=$(($(figure written_by_cause.previous_bytes) - before))
[ "$same" = $((32 << 20)) ] || fail "only $same of $((32 << 20)) bytes were compared with the previous version"

# Times, and sizes, are the same after a remount: changes within one tick of the kernel's clock, after which it sends none.
"$PYTHON" - "$MNT" <<'PY'
import ctypes, mmap, os, sys, time
libc = ctypes.CDLL(None)
os.mkdir(sys.argv[1] + "/times")
os.chdir(sys.argv[1] + "/times")

def write(fd):
    os.pwrite(fd, b"x" * 5000, 0)
    os.close(os.dup(fd))  # flushes

def path(fd):
    return os.readlink("/proc/self/fd/%d" % fd)

def write_mapped(fd):
    os.ftruncate(fd, 8192)
    m = mmap.mmap(fd, 8192)
    for at in 0, 5000:
        m[at] = 1
        m.flush()
    m.close()

ways = {
    "write": write,
    "fsync": os.fsync,
    "extend": lambda fd: os.ftruncate(fd, 1 << 20),
    "keep": lambda fd: os.truncate(fd, os.fstat(fd).st_size),
    "empty": lambda fd: os.close(os.open(path(fd), os.O_WRONLY | os.O_TRUNC)),
    "allocate": lambda fd: os.posix_fallocate(fd, 0, 100000),
    "mode": lambda fd: os.fchmod(fd, 0o640),
    "copy": lambda fd: os.copy_file_range(fd, fd, 4096, 0, 8192),
    "link": lambda fd: os.link(path(fd), path(fd) + ".link"),
    "map": write_mapped,
    "utime": lambda fd: os.utime(fd, ns=(10**18, 10**18)),
}
for i in range(10):  # nothing was ever written to these
    fd = os.open("keep-size.%d" % i, os.O_RDWR | os.O_CREAT)
    time.sleep(0.01)
    if libc.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(4096)) < 0:  # FALLOC_FL_KEEP_SIZE
        sys.exit("FAILED: fallocate")
    os.close(fd)
    os.truncate("keep-size.%d" % i, 0)
for way, change in ways.items():
    for i in range(10):
        fd = os.open("%s.%d" % (way, i), os.O_RDWR | os.O_CREAT)
        write(fd)
        change(fd)
        if i % 2:
            write(fd)
        os.close(fd)
PY
look() { find "$MNT/times" -type f -printf '%f %s %T@ %C@\n' | sort; }
look >"$WORK/before"
fs_remount writeback,commit=60
look >"$WORK/after"
diff "$WORK/before" "$WORK/after" >&2 || fail "times or sizes have changed by a remount"

# fsync, close and CKPTFS_IOC_SYNC, each followed by kill -9; the last one also without a write-back cache.
fs_umount
while read -r how options; do
	fs_mount "$options,commit=60"
	"$PYTHON" - "$MNT" "$how" <<'PY' &
import fcntl, os, struct, sys, time
os.chdir(sys.argv[1])
name = sys.argv[2]
fd = os.open(name, os.O_RDWR | os.O_CREAT)
for i in range(3000):
    os.write(fd, b"%09d\n" % i)
if name == "fsync":
    os.fsync(fd)
elif name == "close":
    os.close(fd)
if name != "fsync":
    other = os.open(".", os.O_RDONLY)
    fcntl.ioctl(other, 1 << 30 | 8 << 16 | ord("K") << 8 | 3, struct.pack("II", 8, 1))
open(name + ".done", "w").close()
time.sleep(600)
PY
	pid=$!
	await test -e "$MNT/$how.done"
	fs_kill
	kill "$pid" 2>/dev/null || true # it may have ended: closing the last file fails without the daemon
	wait "$pid" || true
	fs_mount
	cmp "$MNT/$how" <(seq -f %09.0f 0 2999) || fail "$how with $options: something is missing after kill -9"
	rm "$MNT/$how"
	fs_umount
done <<'HOW'
fsync writeback
close writeback
ioctl writeback
ioctl async
HOW
fs_sound "after all of it"

# A program that writes until the disk is full ends, and loses nothing without an error.
if [ "$(id -u)" != 0 ]; then
	skip_part "a full disk needs root"
	exit 0
fi
small_disk 64m
fs_mount writeback
"$PYTHON" - "$MNT" <<'PY'
import errno, os, sys
os.chdir(sys.argv[1])
MIB = 1 << 20

def failure(call, *args):
    try:
        call(*args)
    except OSError as e:
        return e.errno

for flags in os.O_WRONLY, os.O_RDWR:
    fd = os.open("filler", flags | os.O_CREAT)
    error, written = None, 0
    while not error and written < 1024 * MIB:
        error = failure(os.write, fd, os.urandom(MIB))
        written += MIB
    if error != errno.ENOSPC:
        sys.exit("FAILED: %d MiB were accepted on a disk of 64 MiB: %s" % (written // MIB, error))
    if failure(os.fsync, fd) != errno.ENOSPC:
        sys.exit("FAILED: fsync succeeds although data was lost")
    if failure(os.lseek, fd, 0, os.SEEK_END) or failure(os.close, fd):
        sys.exit("FAILED: the error was reported by more than the next write and fsync")
    os.unlink("filler")
PY

# An error that programs have received is not reported again, neither to later writers nor by unmounting.
"$PYTHON" - "$MNT" <<'PY'
import errno, os, sys
os.chdir(sys.argv[1])
MIB = 1 << 20
errors = []

def call(f, *args):
    try:
        f(*args)
    except OSError as e:
        errors.append(e.errno)

small = os.open("small", os.O_WRONLY | os.O_CREAT)
filler = os.open("filler", os.O_WRONLY | os.O_CREAT)
while not errors:
    call(os.write, filler, os.urandom(MIB))
call(os.write, small, os.urandom(4 * MIB))
for fd in small, filler:
    call(os.fsync, fd)
    call(os.close, fd)
if set(errors) != {errno.ENOSPC} or len(errors) < 3:
    sys.exit("FAILED: errors on a full disk: %s" % errors)
os.truncate("filler", 0)
PY
collect
"$PYTHON" - "$MNT/small" <<'PY' || fail "a writer got the error of an earlier one"
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.ioctl(fd, 3 << 30 | 16 << 16 | ord("K") << 8 | 1, bytearray(struct.pack("IIQ", 16, 1, 0)))  # CKPTFS_IOC_HANDLE
os.pwrite(fd, b"after", 0)
os.fsync(fd)
PY
exits 0 "$CKPTFS_BUILD/tools/umount.ckptfs" "$MNT"
says_not "not unmounted"
wait "$DAEMON" || fail "the daemon ended with exit code $? after umount"
DAEMON=
