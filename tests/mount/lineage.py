# SPDX-License-Identifier: GPL-3.0-or-later
"""Usage: lineage.py [--again|--exit|--restart|--read-only] DIR

What gpu/lib/ckptfs_gpu.py promises, with NumPy arrays; $STORE is that of the mount. Others are for another process, after it was done without: --again looks
at what is there, --exit ends with a save under way, --restart says "now" and goes on when it is told that the mount was
killed and is back, --read-only does what can be done on a mount that is.
"""
import array
import collections
import errno
import gc
import glob
import os
import sys
import threading
import time

import numpy

import ckptfs_gpu


def state_of(step):
    random = numpy.random.default_rng(1)  # the same each time: what changes is what the step changes
    weights = random.standard_normal((300, 200), dtype=numpy.float32)
    weights[step % 300] += step
    return {
        "model": collections.OrderedDict(weights=weights, bias=numpy.arange(step * 10, dtype=numpy.int64)),
        "optimizer": {"state": {0: {"step": numpy.float64(step), "moment": weights.astype(numpy.float16)},
                                1: {"step": None, "moment": numpy.empty((0, 3))}},
                      "groups": [{"lr": 0.1 / step, "betas": (0.9, 0.999), "on": True, "name": "a/b~c"}]},
        "a/b": [numpy.asfortranarray(weights), weights[::2, ::3], b"bytes %d" % step, bytearray(b"more")],
        1: numpy.array(step), "1": numpy.array("ü" * step),
        "step": step,
    }


def equal(a, b):
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))
    if isinstance(a, (numpy.ndarray, numpy.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    return a == b


def refused(kind, call, *words, **options):
    try:
        call(**options)
    except kind as e:
        assert all(word in str(e) for word in words), (str(e), words)
        return e
    raise AssertionError(f"{words} was not refused")


def fresh(path):
    told = []
    with ckptfs_gpu.Lineage(path, verify=True) as lineage:
        for step in range(1, 11):
            state = state_of(step)
            lineage.save(step, state, callback=lambda number, error: told.append((number, error)))
            for array in state["model"].values():
                array.fill(0)  # it has been taken
        lineage.wait()
        assert told == [(step, None) for step in range(1, 11)], told
        assert lineage.steps() == list(range(1, 11))
        stats = lineage.stats()
        assert stats["number"] == 10 and stats["on_gpu"] == 0 and stats["delta_bytes"] < stats["content_bytes"], stats
        for step in range(1, 11):
            assert equal(state_of(step), lineage.load(step)), step
        lineage.delete(4)
        assert 4 not in lineage.steps()

        into = {"model": {"weights": numpy.zeros((300, 200), numpy.float32)}, "step": 0}
        got = lineage.load(7, into=into)
        assert (into["model"]["weights"] == state_of(7)["model"]["weights"]).all()
        assert got["model"]["weights"] is into["model"]["weights"] and got["step"] == 7

        refused(FileNotFoundError, lambda: lineage.load(4))
        refused(OSError, lambda: lineage.load(7, into={"model": {"weights": numpy.zeros(5, numpy.float32)}}))
        refused(KeyError, lambda: lineage.load(7, into={"none": numpy.zeros(5)}), "none")
        refused(ValueError, lambda: lineage.load(7, into={"model": {"weights": numpy.zeros((200, 300)).T}}), "model/weights")
        refused(ValueError, lambda: lineage.save(0, {}))
        refused(TypeError, lambda: lineage.save(11, {"a": [object()]}), "a/0")
        refused(TypeError, lambda: lineage.save(11, {"a": numpy.array([None])}), "a")
        refused(TypeError, lambda: lineage.save(11, {(1, 2): 3}), "key")
        refused(OSError, lambda: lineage.save(3, {}))
        assert lineage.steps()[-1] == 10
    refused(ValueError, lineage.steps, "closed")
    assert refused(OSError, lambda: ckptfs_gpu.Lineage("/proc/self")).errno in (errno.ENOTTY, errno.EACCES, errno.EPERM, errno.EOPNOTSUPP,
                                                                               errno.ENOENT)


def names(path):
    """Each array has a name of its own, and is found by where it is, not by a name that looks the same."""
    a, b = numpy.arange(3), numpy.arange(3) + 10
    with ckptfs_gpu.Lineage(path + "/names") as lineage:
        lineage.save(numpy.int64(7), {1: a, "1": b, "nul\0x": a, "nul\0y": b})
        assert equal(lineage.load(7), {1: a, "1": b, "nul\0x": a, "nul\0y": b})
        into = {"1": numpy.zeros(3, int)}
        assert equal(lineage.load(7, into=into), {"1": b}) and equal(into, {"1": b})
        assert equal(lineage.load(7, into={"1": None}), {"1": b})
        refused(KeyError, lambda: lineage.load(7, into={"nul~2x": numpy.zeros(3, int)}), "nul")
        for step in (2**32 + 7, 0, -1):  # none of them is 7 in 32 bits
            refused(ValueError, lambda: lineage.load(step), str(step))
            refused(ValueError, lambda: lineage.delete(step), str(step))
        assert lineage.steps() == [7]


def kinds(path):
    with ckptfs_gpu.Lineage(path + "/kinds") as lineage:
        lineage.save(1, {"f": numpy.ones(4, numpy.float32), "b": bytearray(b"hello"), "a": array.array("d", [1, 2])})
        assert lineage.load(1)["a"] == array.array("d", [1, 2]).tobytes()
        into = {"b": bytearray(5), "a": array.array("d", [0, 0])}
        got = lineage.load(1, into=into)
        assert got["b"] is into["b"] and got["b"] == b"hello" and into["a"].tolist() == [1, 2]
        refused(ValueError, lambda: lineage.load(1, into={"f": numpy.zeros(4, numpy.int32)}), "f is <f4 [4]", "<i4")
        refused(ValueError, lambda: lineage.load(1, into={"f": numpy.zeros((2, 2), numpy.float32)}), "[2, 2]")
        refused(TypeError, lambda: lineage.save(2, {"m": numpy.ma.masked_array([1, 2], [0, 1])}), "m is a masked")


def callbacks(path):
    """Whatever a callback does or knows, and whoever ends meanwhile."""
    big = {"x": numpy.random.default_rng(2).integers(0, 255, 20_000_000, dtype=numpy.uint8)}
    told = []

    def tell(number, error):
        told.append((number, error))

    with ckptfs_gpu.Lineage(path + "/callbacks") as lineage:
        lineage.save(1, big, callback=tell)
        refused(OSError, lambda: lineage.save(1, big, callback=tell))
        lineage.wait()
        assert told == [(1, None)], told

        def call(number, error):
            for method in (lineage.steps, lineage.wait, lineage.close):
                tell(number, refused(OSError, method).errno)

        told.clear()
        lineage.save(2, big, callback=call)
        lineage.wait()
        assert told == [(2, errno.EDEADLK)] * 3, told

    told.clear()
    ckptfs_gpu.Lineage(path + "/dropped").save(1, big, callback=tell)
    assert told == [(1, None)], told

    def drop():
        mine = ckptfs_gpu.Lineage(path + "/knows")
        mine.save(1, big, callback=lambda number, error: tell(mine.path, error))

    drop()
    while len(told) < 2:
        time.sleep(0.01)
    gc.collect()
    assert told[1] == (path + "/knows", None), told


def close_waits_for_others(path):
    lineage = ckptfs_gpu.Lineage(path + "/others")
    go_on, ended = threading.Event(), []
    lineage.save(1, {}, callback=lambda number, error: go_on.wait())
    thread = threading.Thread(target=lambda: ended.append(lineage.wait()))
    thread.start()
    while lineage._users == 0:
        time.sleep(0.01)
    threading.Timer(0.2, go_on.set).start()
    lineage.close()
    thread.join()
    assert ended == [None]
    refused(ValueError, lineage.wait, "closed")


def damage_ends_with_a_complete_version(path):
    x = numpy.random.default_rng(3).integers(0, 255, 4_000_000, dtype=numpy.uint8)
    with ckptfs_gpu.Lineage(path + "/damage", verify=True) as lineage:
        lineage.save(1, {"x": x})
        lineage.wait()
        flip(x[2_000_000:2_000_064].tobytes())
        x[0] ^= 1
        lineage.save(2, {"x": x})
        assert refused(OSError, lineage.wait).errno == errno.EIO
        for step in (3, 4):
            lineage.save(step, {"x": x})
            assert equal(lineage.load(step), {"x": x})


def flip(content):
    """Changes a byte of this in a pack of the store."""
    for pack in glob.glob(os.environ["STORE"] + "/packs/*.pack"):
        with open(pack, "r+b") as f:
            at = f.read().find(content)
            if at >= 0:
                f.seek(at)
                f.write(bytes([content[0] ^ 1]))
                f.flush()
                os.fsync(f.fileno())
                return
    raise AssertionError("no pack has it")


def fork_leaves_the_parents(path):
    with ckptfs_gpu.Lineage(path + "/fork") as lineage:
        pid = os.fork()
        if pid == 0:
            try:
                refused(ValueError, lineage.steps, "fork")
                lineage.close()
                del lineage
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        lineage.save(1, {})


def leave(path):
    lineage = ckptfs_gpu.Lineage(path + "/exit")
    lineage.save(1, {"x": numpy.zeros(20_000_000)}, callback=lambda number, error: print("told", number, error, flush=True))
    globals()["lineage"] = lineage


def restart(path):
    with ckptfs_gpu.Lineage(path + "/restart", verify=True) as lineage:
        lineage.save(1, state_of(1))
        lineage.wait()
        print("now", flush=True)
        sys.stdin.readline()
        lineage.save(2, state_of(2))
        lineage.wait()
        assert lineage.stats()["delta_bytes"] < lineage.stats()["content_bytes"] / 2  # 1 is known still
        for step in (1, 2):
            assert equal(state_of(step), lineage.load(step)), step


def read_only(path):
    with ckptfs_gpu.Lineage(path) as lineage:
        assert equal(state_of(12), lineage.load(lineage.steps()[-1]))
        lineage.save(13, state_of(13))
        assert refused(OSError, lineage.wait).errno == errno.EROFS
        assert refused(OSError, lambda: lineage.delete(12)).errno == errno.EROFS


def again(path):
    with ckptfs_gpu.Lineage(path) as lineage:
        assert lineage.steps() == [1, 2, 3, 5, 6, 7, 8, 9, 10]
        for step in lineage.steps():
            assert equal(state_of(step), lineage.load(step)), step
        assert refused(OSError, lambda: lineage.save(10, state_of(10))).errno == errno.EEXIST
        lineage.save(11, state_of(11))
        lineage.save(12, state_of(12))
        lineage.wait()
        assert equal(state_of(12), lineage.load(12))
        os.stat(os.path.join(path, "000012"))


def main():
    tests = {"--again": [again], "--exit": [leave], "--restart": [restart], "--read-only": [read_only],
             "all": [fresh, names, kinds, damage_ends_with_a_complete_version, callbacks, close_waits_for_others,
                     fork_leaves_the_parents]}
    for test in tests[sys.argv[1] if len(sys.argv) > 2 else "all"]:
        test(sys.argv[-1])


main()
