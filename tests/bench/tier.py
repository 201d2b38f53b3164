# SPDX-License-Identifier: GPL-3.0-or-later
"""The group tier of ./bench: sealed checkpoints beneath a store. Back ends (--parts): a directory on the disk, an S3 store in
memory, and the S3 gateway of a Ceph of one node.

Rivals of a flush are a plain client that puts objects of 64 MiB from memory, in a directory also cp with fsync of such files,
and rclone; of a restore a plain client that gets ranges of 4 MiB of the same objects into memory. A seal with a tier is
compared with one of a store without. What is sent is counted twice: by the daemon, and in the tier.
"""
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import time

from common import BUILD, REST, WORK, Rival, ckptfs, rest, settle, tool
from tier_places import PLACES, in_parallel, missing

PARTS = list(PLACES)
MIB = 1 << 20
OBJECT = 64 * MIB  # of a full pack
PUTS, GETS, RANGE = 4, 16, 4 * MIB  # of the plain client: requests at a time, and bytes of one
SEALS = 8  # in a turn: a single one is short
RATE = "64M"  # of flushes beside which seals are timed
CACHE = "512M"  # memory of a mounted tier
SEAL_MAX, FLUSH_MIN, RESTORE_MIN, SENT_MAX, PUTS_MORE, ROUND_TRIPS_MAX = 1.05, 0.8, 0.8, 1.02, 3, 2
WAIT = 600  # seconds for a flush


def idle(size):
    """Seconds of rest before a turn; a short rest with little data, as in tests."""
    return REST if size >= 64 else 0.1


def given(options):
    return {key: value for key, value in options.items() if value is not None}


def mount(base, name, url=None, **options):
    """A store, with a tier if there is a URL."""
    r = ckptfs(base, name, **given({"tier": url, **options}))
    r.start()
    if url:
        wait(r, lambda t: t["state"] == "idle")
    return r


def figures(rival):
    return json.loads(os.getxattr(rival.dir, "user.ckptfs.stat"))["tier"]


def wait(rival, condition):
    """Waits until the figures of its tier meet the condition, and returns these."""
    begin = time.monotonic()
    while True:
        t = figures(rival)
        if condition(t):
            return t
        if t.get("stopped") or t.get("failures") or time.monotonic() > begin + WAIT:
            raise RuntimeError(f"{rival.name}: the tier {t['where']} is not used: {t['state']}: {t['reason']}")
        time.sleep(max(0.01, (time.monotonic() - begin) / 50))  # each query takes processor time


def all_there(t):
    return t["known"] and t["waiting"] == 0


def write(rival, step, size, number, changed=100):
    """A checkpoint of one file in a directory of its own."""
    path = os.path.join(rival.dir, step)
    os.mkdir(path)
    subprocess.run([WORK, "write", path, "--size", str(size), "--changed", str(changed), "--step", str(number)], check=True,
                   stdout=subprocess.DEVNULL)
    return path


def seal(path):
    """Seconds."""
    begin = time.monotonic()
    subprocess.run([tool("ckptfs-seal"), "--quiet", path], check=True)
    return time.monotonic() - begin


def verdict(ok):
    return "" if ok else " MISSED"


# --- seals ---

def seal_turn(rival, size, number):
    """Seconds of one of several seals, one after the other, beside the flush of a checkpoint sealed before them."""
    first = write(rival, f"a{number}", size, (SEALS + 1) * number)
    those = [write(rival, f"b{number}-{i}", max(1, size // SEALS), (SEALS + 1) * number + i) for i in range(1, SEALS + 1)]
    seal(first)
    seconds = sum(seal(path) for path in those)
    if rival.has_tier:
        wait(rival, all_there)
    return seconds / SEALS


def seal_rows(base, size, rounds, places):
    seconds = {}
    with contextlib.ExitStack() as stack:
        rivals = []
        for p in [None, *places]:
            url, options = p.prefix("seal") if p else (None, {})
            r = mount(base, f"seal-{p.name}" if p else "local", url, **options, **({"tier_rate": RATE} if p else {}))
            stack.callback(r.stop)
            r.has_tier = p is not None
            rivals.append((p.name if p else "local", r))
        for number in range(rounds):
            for name, r in rivals:
                settle(True)
                rest([r for _, r in rivals], idle(size))
                seconds.setdefault(name, []).append(seal_turn(r, size, number))
    local = statistics.median(seconds["local"])
    print(f"  seal beside a flush at {RATE}/s, without a tier:".ljust(64) + f"{1e3 * local:8.1f} ms", flush=True)
    ratio = {}
    for p in places:
        ratio[p.name] = statistics.median(t / l for t, l in zip(seconds[p.name], seconds["local"]))
        target = "reported only" if p.name == "s3" else f"<= {SEAL_MAX}{verdict(ratio[p.name] <= SEAL_MAX)}"
        print(f"    {p.name}:".ljust(64) + f"{1e3 * statistics.median(seconds[p.name]):8.1f} ms  {ratio[p.name]:5.2f} x ({target})", flush=True)
    return {"seconds": seconds, "ratio": ratio, "target": SEAL_MAX, "rate": RATE}


# --- flushes ---

def sizes_of(total):
    return [min(OBJECT, total - at) for at in range(0, total, OBJECT)]


def timed(work):
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def plain_files(base, size):
    """As many bytes as a checkpoint, in files of the size of a pack."""
    path = os.path.join(base, "plain")
    os.mkdir(path)
    for i, length in enumerate(sizes_of(size * MIB)):
        with open(os.path.join(path, f"{i:04}"), "wb") as f:
            f.write(os.urandom(length))
    return path


def put_seconds(place, key, size, content):
    those = [(f"{key}/{i:04}", memoryview(content)[:length]) for i, length in enumerate(sizes_of(size * MIB))]
    seconds = timed(lambda: in_parallel(PUTS, lambda one: place.put(*one), those))
    place.remove(key)
    return seconds


def cp_seconds(place, key, source):
    into = os.path.join(place.top, key)
    os.mkdir(into)

    def copy(name):
        with open(os.path.join(source, name), "rb") as f, open(os.path.join(into, name), "wb") as to:
            while os.copy_file_range(f.fileno(), to.fileno(), 64 * MIB):
                pass
            os.fsync(to.fileno())
    seconds = timed(lambda: in_parallel(PUTS, copy, sorted(os.listdir(source))))
    place.remove(key)
    return seconds


def rclone_seconds(place, key, source):
    target, environment = place.rclone(key)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    command = ["rclone", "copy", "--quiet", "--config", "/dev/null", "--transfers", str(PUTS), "--ignore-times", source, target]
    seconds = timed(lambda: (subprocess.run(command, check=True, env={**inherited, **environment}),
                             os.sync() if place.name == "dir" else None))
    sent = sum(place.objects(key).values())
    place.remove(key)
    return seconds, sent


def flush_turn(rival, size, path):
    """Seconds from the end of the seal, and bytes sent."""
    before = figures(rival)["sent_bytes"]
    settle(True)
    rest([rival], idle(size))
    seal(path)
    begin = time.monotonic()
    t = wait(rival, all_there)
    return time.monotonic() - begin, t["sent_bytes"] - before


FLUSHES = {"all pages new": 100, "5 % of pages changed": 5}


def flush_rows(base, size, rounds, place):
    """GB/s of checkpoint, of each rival in each round."""
    result = {title: {"GB/s": {}, "bytes": {}} for title in FLUSHES}
    url, options = place.prefix("flush")
    source, content = plain_files(base, size), os.urandom(min(OBJECT, size * MIB))

    def note(title, rival, seconds, sent):
        result[title]["GB/s"].setdefault(rival, []).append(size * MIB / 1e9 / seconds)
        result[title]["bytes"].setdefault(rival, []).append(sent)
    rival = mount(base, f"flush-{place.name}", url, **options)
    try:
        base_step = write(rival, "base", size, 0, 5)
        seal(base_step)
        wait(rival, all_there)
        for number in range(1, rounds + 1):
            for title, changed in FLUSHES.items():
                path = write(rival, f"{changed}-{number}", size, 1000 * (changed == 100) + number, changed)
                note(title, "ckptfs", *flush_turn(rival, size, path))
                if changed == 100:
                    settle(True)
                    note(title, "put", put_seconds(place, "plain", size, content), size * MIB)
                if changed == 100 and place.name == "dir":
                    settle(True)
                    note(title, "cp", cp_seconds(place, "plain", source), size * MIB)
                if shutil.which("rclone") and place.rclone("plain"):
                    settle(True)
                    note(title, "rclone", *rclone_seconds(place, "plain", source))
    finally:
        rival.stop()
        shutil.rmtree(source)
    for title, r in result.items():
        show(place, f"flush, {title}", r, "cp" if place.name == "dir" else "put", FLUSH_MIN)
    if not shutil.which("rclone"):
        print("    rclone is not installed", flush=True)
    return result


def show(place, title, r, reference, least):
    """A row; adds the ratio to the reference, round by round."""
    medians = {rival: statistics.median(v) for rival, v in r["GB/s"].items()}
    row = f"  {place.name}: {title}:".ljust(48) + "".join(f"  {rival} {m:.3g}" for rival, m in medians.items()) + " GB/s"
    if reference in medians:
        r["ratio"] = statistics.median(o / t for o, t in zip(r["GB/s"]["ckptfs"], r["GB/s"][reference]))
        r["reference"], r["target"] = reference, least
        row += f"  {r['ratio']:5.2f} x {reference} (>= {least}{verdict(r['ratio'] >= least)})"
    for rival, sent in r.get("bytes", {}).items():
        row += f"; {rival} sent {statistics.median(sent) / MIB:.1f} MiB" if rival in ("ckptfs", "rclone") else ""
    print(row, flush=True)


# --- requests and bytes ---

def new_pages(path, known):
    """Bytes of distinct pages that are not known yet; they are then."""
    before = len(known)
    for name in os.listdir(path):
        with open(os.path.join(path, name), "rb") as f:
            while page := f.read(4096):
                if page.count(0) < len(page):
                    known.add(hash(page))
    return 4096 * (len(known) - before)


def sent_rows(base, size, place):
    """Two nodes are mounted, as at the start of a job, and flush one after the other: for each checkpoint what is new to the tier,
    what is sent, and what is stored."""
    key = os.path.join(base, "cluster.key")
    with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
        f.write(os.urandom(32))
    counter = place.counter()
    port = {"port": counter.port} if counter else {}
    known, rows = set(), []
    steps = [(0, "first", 0), (0, "5 % of pages changed", 1), (0, "5 % of pages changed again", 2), (1, "the same on another node", 2),
             (1, "5 % of pages changed there", 3)]
    nodes = {}
    url, options = place.prefix("sent", **port)
    try:
        for node in sorted({node for node, _, _ in steps}):
            nodes[node] = mount(base, f"sent-{place.name}-{node}", url, cluster=key, **options)
        for node, title, number in steps:
            r = nodes[node]
            path = write(r, f"step{number}", size, number, 5)
            new = new_pages(path, known)
            before, there = figures(r), place.objects("sent")
            puts = counter.seen("PUT") if counter else 0
            requests = counter.seen("*") if counter else 0
            seal(path)
            t = wait(r, all_there)
            puts, requests = (counter.seen("PUT") - puts, counter.seen("*") - requests) if counter else (None, None)
            added = {k: v for k, v in place.objects("sent").items() if k not in there}
            row = {"case": title, "node": node, "new_bytes": new, "sent_bytes": t["sent_bytes"] - before["sent_bytes"],
                   "sent_packs": t["sent_packs"] - before["sent_packs"], "tier_bytes": sum(added.values()), "tier_objects": len(added),
                   "puts": puts, "requests": requests}
            row["puts_max"] = -(-new // OBJECT) + PUTS_MORE
            rows.append(row)
            show_sent(place, row)
    finally:
        with contextlib.ExitStack() as stack:
            if counter and place.name == "s3":
                stack.callback(counter.close)
            for r in nodes.values():
                stack.callback(r.stop)
    return rows


def show_sent(place, row):
    puts = row["puts"] if row["puts"] is not None else row["tier_objects"]
    text = f"  {place.name}: {row['case']}:".ljust(48) + f"  new {row['new_bytes'] / MIB:8.2f}, sent {row['sent_bytes'] / MIB:8.2f} MiB"
    if row["new_bytes"]:
        x = row["sent_bytes"] / row["new_bytes"]
        text += f"  {x:6.4f} x (<= {SENT_MAX}{verdict(x <= SENT_MAX)})"
    text += f"; {puts} PUTs (<= {row['puts_max']}{verdict(puts <= row['puts_max'])})"
    if row["tier_bytes"] != row["sent_bytes"] or row["tier_objects"] != row["sent_packs"] + 1:
        raise RuntimeError(f"the figures of the daemon differ from the objects in the tier: {row}")
    print(text, flush=True)


# --- restore ---

def tier_mount(base, place, url, options, number):
    program = os.path.join(BUILD, "fs/mount.ckptfs")
    given = ",".join(f"{k}={v}" for k, v in {"log_level": "warning", "cache": CACHE, **options}.items())
    where = os.path.join(base, f"any-{place.name}-{number}")
    os.mkdir(where)
    r = Rival("any", where, lambda _, mountpoint: [program, "--foreground", "-o", given, url, mountpoint])
    r.start()
    return r


def read_all(path):
    """Bytes; sequentially, in calls of 1 MiB, into memory."""
    into, total = bytearray(MIB), 0
    fd = os.open(path, os.O_RDONLY)
    try:
        while n := os.readv(fd, [into]):
            total += n
    finally:
        os.close(fd)
    return total


def get_all(place, objects):
    """Bytes; all of the objects in ranges, several at a time."""
    memory = [bytearray(RANGE) for _ in range(GETS)]
    ranges = [(key, off, min(RANGE, size - off)) for key, size in objects for off in range(0, size, RANGE)]

    def get(one):
        key, off, length = one
        into = memory.pop()
        place.get(key, off, memoryview(into)[:length])
        memory.append(into)
        return length
    return sum(in_parallel(GETS, get, ranges))


def first_byte(base, place, url, options, path):
    """Requests that the first page of a file takes once the manifest is known."""
    r = tier_mount(base, place, url, options, "first")
    try:
        os.stat(os.path.join(r.dir, path))
        before = figures(r)["requests"]
        with open(os.path.join(r.dir, path), "rb", buffering=0) as f:
            os.pread(f.fileno(), 4096, 0)
        return figures(r)["requests"] - before
    finally:
        r.stop()


def restore_rows(base, size, rounds, place):
    url, options = place.prefix("restore")
    rival = mount(base, f"restore-{place.name}", url, **options)
    try:
        path = write(rival, "step", size, 0)
        seal(path)
        wait(rival, all_there)
    finally:
        rival.stop()
    packs = [(key, length) for key, length in sorted(place.objects("restore").items()) if "/packs/" in key]
    result = {"GB/s": {"ckptfs": [], "get": []}}
    for number in range(rounds):
        r = tier_mount(base, place, url, options, number)
        try:
            settle(True)
            begin = time.monotonic()
            got = read_all(os.path.join(r.dir, "step/ckpt-0.0000"))
            result["GB/s"]["ckptfs"].append(got / 1e9 / (time.monotonic() - begin))
        finally:
            r.stop()
        if got != size * MIB:
            raise RuntimeError(f"{got} bytes read of {size * MIB}")
        settle(True)
        begin = time.monotonic()
        got = get_all(place, packs)
        result["GB/s"]["get"].append(got / 1e9 / (time.monotonic() - begin))
    show(place, "restore, cold", result, "get", RESTORE_MIN)
    result["first_byte_requests"] = first_byte(base, place, url, options, "step/ckpt-0.0000")
    print(f"  {place.name}: requests to the first byte, one after the other:".ljust(64) + f"{result['first_byte_requests']} "
          f"(<= {ROUND_TRIPS_MAX}{verdict(result['first_byte_requests'] <= ROUND_TRIPS_MAX)})", flush=True)
    return result


def run(base, size, rounds, parts):
    print("tier", flush=True)
    skipped = {name: why for name in PARTS if name in parts and (why := missing(name))}
    for name, why in skipped.items():
        print(f"  {name}: not measured: {why}", flush=True)
    with contextlib.ExitStack() as stack:
        places = []
        for name in PARTS:
            if name in parts and name not in skipped:
                place = PLACES[name](base)
                stack.callback(place.close)
                places.append(place)
        result = {"skipped": skipped, "seal": seal_rows(base, size, rounds, places)}
        for what, rows in ("sent", lambda p: sent_rows(base, size, p)), ("flush", lambda p: flush_rows(base, size, rounds, p)), \
                ("restore", lambda p: restore_rows(base, size, rounds, p)):
            result[what] = {p.name: rows(p) for p in places}
    return result
