#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What fallocate promises: space for the bytes of an open file, which nothing else can take, until they are written.
. "$(dirname "$0")/lib.sh"
need_root
need_mount

small_disk 96m
fs_mount
"$PYTHON" - "$MNT" <<'PY'
import errno, os, sys, time
os.chdir(sys.argv[1])
MIB = 1 << 20

def free():
    s = os.statvfs(".")
    return s.f_bavail * s.f_frsize

def check(ok, what):
    if not ok:
        sys.exit("FAILED: " + what)

def becomes(low, high, what):
    """Free space comes to lie between these. It is known for a moment, and of a close the daemon hears a little later."""
    for _ in range(600):
        if low <= free() < high:
            return
        time.sleep(0.1)
    sys.exit("FAILED: %s: %d bytes are free" % (what, free()))

def fill(name):
    """As much as there is room for; how much that was."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT)
    written = 0
    try:
        while True:
            written += os.write(fd, os.urandom(MIB))
    except OSError as e:
        check(e.errno == errno.ENOSPC, "filling the disk: %s" % e)
    try:
        os.close(fd)
    except OSError as e:  # with -o writeback, for data that a write had accepted
        check(e.errno == errno.ENOSPC, "filling the disk: %s" % e)
    return written

def refused(fd, length):
    try:
        os.posix_fallocate(fd, 0, length)
    except OSError as e:
        return e.errno == errno.ENOSPC
    return False

fd = os.open("kept", os.O_RDWR | os.O_CREAT)
before = free()
os.posix_fallocate(fd, 0, 10 * MIB)
os.posix_fallocate(fd, 10 * MIB, 10 * MIB)
os.posix_fallocate(fd, 5 * MIB, 10 * MIB)  # nothing new
check(os.fstat(fd).st_size == 20 * MIB, "the size is not that of the allocation")
becomes(before - 23 * MIB, before - 20 * MIB, "20 MiB of %d allocated" % before)
other = os.open("other", os.O_RDWR | os.O_CREAT)
check(refused(other, before - 10 * MIB), "the same space was promised twice")
check(os.fstat(other).st_size == 0, "a refused allocation has changed the size")

check(fill("filler") > MIB, "nothing fitted beside the allocation")
for i in range(20):
    check(os.pwrite(fd, os.urandom(MIB), i * MIB) == MIB, "short write")
os.fsync(fd)

PY
fs_umount
rm -r "$STORE"

# Truncating and closing give back what was not written.
fs_mount
"$PYTHON" - "$MNT" <<'PY'
import os, sys, time
os.chdir(sys.argv[1])
MIB = 1 << 20

def free():
    s = os.statvfs(".")
    return s.f_bavail * s.f_frsize

def becomes(low, high, what):
    for _ in range(600):
        if low <= free() < high:
            return
        time.sleep(0.1)
    sys.exit("FAILED: %s: %d bytes are free" % (what, free()))

before = free()
fd = os.open("again", os.O_RDWR | os.O_CREAT)
for give_back in (lambda: os.ftruncate(fd, 0)), (lambda: os.close(fd)):
    os.posix_fallocate(fd, 0, 20 * MIB)
    becomes(0, before - 20 * MIB, "20 MiB of %d allocated" % before)
    give_back()
    becomes(before - 10 * MIB, before + MIB, "given back")
PY
fs_umount

# Overwriting one part leaves the space of the others; zeroing a range reserves it, or fails and leaves its bytes.
rm -r "$STORE"
fs_mount
"$PYTHON" - "$MNT" <<'PY'
import ctypes, errno, os, sys
os.chdir(sys.argv[1])
MIB = 1 << 20
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
libc = ctypes.CDLL(None, use_errno=True)

def fallocate(fd, mode, off, length):
    """0 or the error."""
    r = libc.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(length))
    return 0 if r == 0 else ctypes.get_errno()

def check(ok, what):
    if not ok:
        sys.exit("FAILED: " + what)

def fill(name):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(fd, os.urandom(MIB))
    except OSError as e:
        check(e.errno == errno.ENOSPC, "filling the disk: %s" % e)
    try:
        os.close(fd)
    except OSError as e:  # with -o writeback
        check(e.errno == errno.ENOSPC, "filling the disk: %s" % e)

def write_all(fd, first, what):
    for i in range(first, 20):
        try:
            os.pwrite(fd, os.urandom(MIB), i * MIB)
        except OSError as e:
            sys.exit("FAILED: %s: MiB %d of 20: %s" % (what, i, e))
    os.fsync(fd)

fd = os.open("kept", os.O_RDWR | os.O_CREAT)
other = os.open("other", os.O_RDWR | os.O_CREAT)
data = os.urandom(MIB)
os.pwrite(other, data, 0)
check(fallocate(fd, 0, 0, 20 * MIB) == 0, "allocating")
for i in range(20):
    os.pwrite(fd, os.urandom(MIB), 0)
fill("filler")
for mode, what in (ZERO_RANGE, "zero range"), (ZERO_RANGE | KEEP_SIZE, "zero range with its size kept"):
    check(fallocate(other, mode, 0, 20 * MIB) == errno.ENOSPC, "a %s on a full disk" % what)
    check(os.fstat(other).st_size == MIB and os.pread(other, MIB, 0) == data, "a refused %s has changed something" % what)
write_all(fd, 1, "overwriting the first MiB has used the space")
os.close(other)
os.close(fd)
PY
fs_umount
for mode in "ZERO_RANGE" "ZERO_RANGE | KEEP_SIZE" "PUNCH_HOLE | KEEP_SIZE"; do # what was written before is reserved again
	rm -r "$STORE"
	fs_mount
	"$PYTHON" - "$MNT" "$mode" <<'PY'
import ctypes, errno, os, sys
os.chdir(sys.argv[1])
MIB = 1 << 20
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
mode = eval(sys.argv[2])
fallocate = ctypes.CDLL(None, use_errno=True).fallocate

def allocate(mode):
    if fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(20 * MIB)) != 0:
        sys.exit("FAILED: %s: %s" % (sys.argv[2], os.strerror(ctypes.get_errno())))

fd = os.open("kept", os.O_RDWR | os.O_CREAT)
allocate(0)
for i in range(20):
    os.pwrite(fd, os.urandom(MIB), i * MIB)
os.fsync(fd)
allocate(mode)
if mode & PUNCH_HOLE:
    allocate(KEEP_SIZE)
if os.pread(fd, 20 * MIB, 0) != bytes(20 * MIB):
    sys.exit("FAILED: not zeros after %s" % sys.argv[2])
filler = os.open("filler", os.O_WRONLY | os.O_CREAT)
try:
    while True:
        os.write(filler, os.urandom(MIB))
except OSError as e:
    if e.errno != errno.ENOSPC:
        raise
for i in range(20):
    if os.pwrite(fd, os.urandom(MIB), i * MIB) != MIB:
        sys.exit("FAILED: short write")
os.fsync(fd)
PY
	fs_umount
done

# The promise holds on real filesystems, whatever else fills the disk: other files of the store, names, other programs.
keeps_its_promise() { # NAME
	fs_mount
	"$PYTHON" - "$MNT" "$disk${within:-}" "${within:+quota}" <<'PY' || fail "$1: a write into reserved space failed"
import errno, os, sys
MIB = 1 << 20
FULL = errno.ENOSPC, errno.EDQUOT

def until_full(write, most=1 << 30):
    for i in range(most):
        try:
            write(i)
        except OSError as e:
            if e.errno not in FULL:
                raise
            return

def write_all(fd, data):
    while data:
        data = data[os.write(fd, data):]

os.chdir(sys.argv[1])
kept = os.open("kept", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(kept, 0, 20 * MIB)
filler = os.open("filler", os.O_WRONLY | os.O_CREAT)
outside = os.open(sys.argv[2] + "/outside", os.O_WRONLY | os.O_CREAT)
def fill_from_outside():
    until_full(lambda i: (write_all(outside, bytes(MIB)), os.fsync(outside)))
    until_full(lambda i: (write_all(outside, bytes(4096)), os.fsync(outside)), 1000)

at_quota = sys.argv[3] == "quota"
if at_quota:  # what the store frees at its quota is its own: ckptfs(5) has the exception
    write_all(outside, bytes(64 * MIB))
    os.fsync(outside)
until_full(lambda i: (write_all(filler, os.urandom(MIB)), os.fsync(filler)))
until_full(lambda i: os.symlink("x" * 4000, "link.%d" % i), 300)
if not at_quota:
    fill_from_outside()
data = os.urandom(20 * MIB)
for at in range(0, len(data), 64 << 10):
    if os.pwrite(kept, data[at:at + (64 << 10)], at) != 64 << 10:
        sys.exit("short write at %d" % at)
    if at % MIB == 0:  # others go on trying
        until_full(lambda i: write_all(filler, os.urandom(64 << 10)), 4)
    if at % (5 * MIB) == 0:
        os.fsync(kept)
os.fsync(kept)
if os.pread(kept, len(data), 0) != data:
    sys.exit("other bytes")
PY
	rm "$disk${within:-}/outside"
	fs_umount
	fs_sound "$1: after a reservation on a full disk"
	umount "$disk"
	disk='' within=''
	echo "ok $1: reserved space holds on a full disk"
}
umount "$disk"
rmdir "$disk"
small_disk 96m
keeps_its_promise tmpfs
for fs in "ext4 160M" "xfs 320M" "btrfs 256M"; do
	read -r type size <<<"$fs"
	if small_filesystem "$size" "$type" -q; then keeps_its_promise "$type"; else skip_part "$type: $(tail -n 1 "$WORK/why")"; fi
done
if small_filesystem 512M btrfs -q && btrfs quota enable "$disk" 2>"$WORK/why"; then
	btrfs subvolume create "$disk/sub" >/dev/null
	btrfs quota rescan -w "$disk" >/dev/null 2>&1 || true
	btrfs qgroup limit 128M "$disk/sub"
	within=/sub STORE=$disk/sub/store
	keeps_its_promise "btrfs quota"
else
	skip_part "btrfs quota: $(tail -n 1 "$WORK/why")"
fi
