#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Data that could not be stored after write(2) had returned: fsync of every open file reports it once, whichever file reported it before;
# and a store whose log cannot be written takes a bounded part of it, and all again when there is room.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

small_disk 200m

fs_mount commit=60,cache=32M,dirty=32M
echo first >"$MNT/first"
sync "$MNT/first"
"$PYTHON" - "$MNT" "$disk/filler" <<'PY'
import errno, os, subprocess, sys
mnt, filler = sys.argv[1:]

def fill():
    fd = os.open(filler, os.O_CREAT | os.O_WRONLY)
    size = 1 << 20
    while size >= 4096:
        try:
            os.write(fd, bytes(size))
        except OSError:
            size //= 16
    os.close(fd)

def give_back():
    os.truncate(filler, 0)  # at once, even if a process that drops caches holds the file when it is deleted
    os.unlink(filler)

def attempt(call, *args):
    try:
        call(*args)
        return 0
    except OSError as e:
        return e.errno

others = {
    "nobody else": lambda path, fd: None,
    "a child that ends": lambda path, fd: subprocess.run(["true"]),
    "another's close": lambda path, fd: attempt(os.close, os.open(path, os.O_RDWR)),
    "another's fsync": lambda path, fd: attempt(os.fsync, os.open(path, os.O_RDWR)),
    "a link": lambda path, fd: attempt(os.link, path, path + ".link"),
    "a rename": lambda path, fd: attempt(os.rename, path, path + ".renamed"),
}
for n, (name, other) in enumerate(others.items()):
    path = f"{mnt}/victim{n}"
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    for piece in range(30):
        os.write(fd, os.urandom(32768))
    fill()
    other(path, fd)
    told = attempt(os.fsync, fd), attempt(os.fsync, fd)
    give_back()
    os.close(fd)
    if told != (errno.ENOSPC, 0):
        sys.exit(f"FAILED: after {name}, fsync says {told}")
    print(f"ok the writer's fsync hears of it after {name}")

# Far more log than may wait for a commit.
fd = os.open(mnt + "/attributes", os.O_CREAT | os.O_RDWR)
os.fsync(fd)
fill()
told = {attempt(os.setxattr, fd, f"user.{i % 50}", os.urandom(60000)) for i in range(6000)}
if told != {0, errno.ENOSPC}:
    sys.exit(f"FAILED: 360 MB of attributes on a full disk: {told}")
if attempt(os.unlink, mnt + "/first") != 0:
    sys.exit("FAILED: a file cannot be deleted any more")
give_back()
if attempt(os.fsync, fd) != 0:
    sys.exit("FAILED: there is room, but nothing can be made durable")
print("ok the log takes a bounded part, and goes on when there is room")
PY
fs_remount
[ ! -e "$MNT/first" ] || fail "a deleted file is back"
[ -e "$MNT/attributes" ] || fail "a file made durable is not there"
fs_umount
