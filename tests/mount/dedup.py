# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes data with known duplicates into a mount and compares what ckptfs-stat says is stored with what must be.

dedup.py MOUNT CKPTFS-STAT STATE first|again
STATE keeps the set of pages between the two, which are separated by a remount.
"""
import hashlib, json, mmap, os, pickle, random, subprocess, sys

PAGE = 4096
mount, tool, state_path, phase = sys.argv[1:]
rng = random.Random(20240607)
distinct = set()
cases = failures = 0
before = (0, 0)  # stored and wanted pages after the last case


def pages(n):
    data = rng.randbytes(n * PAGE)
    return [data[i * PAGE:(i + 1) * PAGE] for i in range(n)]


def note(data):
    """Remember the pages of a file that has this content; a short last page counts as filled up with zeros."""
    for i in range(0, len(data), PAGE):
        page = data[i:i + PAGE].ljust(PAGE, b"\0")
        if page.count(0) != PAGE:
            distinct.add(hashlib.blake2b(page, digest_size=16).digest())


def path(name):
    return os.path.join(mount, name)


def write(name, data, call=1 << 20, flags=os.O_WRONLY, sync=True):
    fd = os.open(path(name), flags | os.O_CREAT | os.O_TRUNC, 0o644)
    for i in range(0, len(data), call):
        assert os.write(fd, data[i:i + call]) == len(data[i:i + call])
    if sync:
        os.fsync(fd)
    os.close(fd)
    note(data)


def overwrite(name, off, data, flags=os.O_WRONLY):
    """In place; the file's pages before and after both count."""
    fd = os.open(path(name), flags)
    os.pwrite(fd, data, off)
    os.fsync(fd)
    os.close(fd)
    with open(path(name), "rb") as f:
        note(f.read())


def stats():
    return json.loads(subprocess.run([tool, "--json", mount], check=True, stdout=subprocess.PIPE).stdout)


def check(case):
    global cases, failures, before
    s = stats()
    stored, want = s["stored_chunks"], len(distinct)
    good = stored - before[0] == want - before[1] and s["stored_bytes"] == stored * PAGE
    print("ok" if good else "not ok", f"{case}: {stored - before[0]} pages stored of {want - before[1]} distinct new ones")
    before = (stored, want)
    cases += 1
    failures += not good


def first():
    check("an empty mount stores nothing")
    a = pages(300)

    write("inside", b"".join(a[i % 50] for i in range(200)))
    check("duplicates inside a file")
    write("b", b"".join(a[:100]))
    write("c", b"".join(reversed(a[20:120])))
    check("duplicates across files, in another order")
    write("zeros", bytes(5000000))
    check("zeros are not stored")
    write("mixed", b"".join(p if i % 3 else bytes(PAGE) for i, p in enumerate(a)))
    check("zeros between data")

    for n in (1, 100, 4095, 4096, 4097, 12345, (1 << 20) - 1, (1 << 20) + 1, 3000001):
        write(f"odd.{n}", b"".join(a)[:n] if n < 1200000 else rng.randbytes(n))
        write(f"odd.{n}.again", open(path(f"odd.{n}"), "rb").read())
    check("odd sizes, twice")
    tail = rng.randbytes(1000)
    write("short", tail)
    write("filled", tail + bytes(PAGE - 1000))
    write("behind", a[0] + tail)
    check("a short last page is the page filled up with zeros")

    data = b"".join(pages(700)) + rng.randbytes(123)
    write("calls.1m", data)
    for call in (10007, 65536, 100000):
        write(f"calls.{call}", data, call=call)
    write("calls.cached", data, call=10007, flags=os.O_RDWR)
    check("the same bytes by calls of odd sizes")

    step = pages(2000)
    for i in range(6):
        for k in range(i, len(step), 20):
            step[k] = pages(1)[0]
        write(f"ckpt.{i:04}", b"".join(step))
    check("steps of a series, 5 % of the pages new in each")

    overwrite("ckpt.0005", 10 * PAGE, b"".join(a[:40]))
    check("overwritten with pages that are known")
    overwrite("ckpt.0005", 100 * PAGE, b"".join(pages(40)))
    check("overwritten with new pages")
    overwrite("ckpt.0005", 200 * PAGE + 1000, rng.randbytes(3 * PAGE + 5))
    check("overwritten at an odd place")
    overwrite("ckpt.0005", 100 * PAGE, open(path("ckpt.0004"), "rb").read()[100 * PAGE:140 * PAGE], flags=os.O_RDWR)
    check("overwritten with what was there a step ago")
    write("ckpt.0003", open(path("ckpt.0003"), "rb").read())
    check("truncated and written again")

    with open(path("ckpt.0000"), "rb") as f, open(path("clone"), "wb") as t:
        size, off = os.fstat(f.fileno()).st_size, 0
        while off < size:
            off += os.copy_file_range(f.fileno(), t.fileno(), size - off, off, off)
        os.fsync(t.fileno())
    check("copy_file_range")
    fd = os.open(path("mapped"), os.O_RDWR | os.O_CREAT, 0o644)
    data = b"".join(a) + b"".join(pages(50))
    os.ftruncate(fd, len(data))
    with mmap.mmap(fd, len(data)) as m:
        m[:] = data
        m.flush()
    os.fsync(fd)
    os.close(fd)
    note(data)
    check("written through a map")

    fresh = b"".join(pages(4000)) # 16 MB
    children = []
    for i in range(4):
        pid = os.fork()
        if pid == 0:
            write(f"same.{i}", fresh, sync=True)
            os._exit(0)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    note(fresh)
    check("the same new bytes by 4 processes at once")
    os.unlink(path("same.0"))
    os.unlink(path("same.1"))
    write("same.0", fresh)
    check("removed and written again")
    pickle.dump((before, distinct, fresh, step, rng.getstate()), open(state_path, "wb"))


def again():
    global before, distinct
    before, distinct, fresh, step, state = pickle.load(open(state_path, "rb"))
    rng.setstate(state)
    check("nothing changes by a remount")
    write("cold", fresh)
    check("known pages are found in a cold store")
    write("cold.odd", fresh[PAGE * 7:PAGE * 900] + fresh[:100])
    check("known pages in another order, cold")
    step[5] = pages(1)[0]
    write("ckpt.0006", b"".join(step))
    check("the next step of a series, cold")
    for i in range(4):
        with open(path(f"same.{i}") if i in (0, 2, 3) else path("cold"), "rb") as f:
            assert f.read() == fresh, i


first() if phase == "first" else again()
print(f"{cases} cases, {failures} not ok")
sys.exit(failures > 0)
