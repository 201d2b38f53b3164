# SPDX-License-Identifier: GPL-3.0-or-later
"""What the workloads of this folder share: each makes versions of a state through ckptfs_gpu.py, writes down digests of what
they must be, and compares them, in another process, with what a plain read of the file gives and with load()."""
import hashlib
import json
import os
import struct
import sys

import numpy
import torch

import ckptfs_gpu


def arrays(state, path=()):
    """(name, array) for all arrays of a state, named as docs/format.md says."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield from arrays(value, path + (key,))
    elif isinstance(state, (list, tuple)):
        for i, value in enumerate(state):
            yield from arrays(value, path + (i,))
    elif isinstance(state, (torch.Tensor, numpy.ndarray)):
        yield "/".join(str(p).replace("~", "~0").replace("/", "~1") for p in path), state


def digest(data):
    return hashlib.sha256(data).hexdigest()


def bytes_of(array):
    if isinstance(array, torch.Tensor):
        return array.detach().contiguous().cpu().flatten().view(torch.uint8).numpy().data
    return numpy.ascontiguousarray(array).data.cast("B")


def digests(state):
    return {name: digest(bytes_of(array)) for name, array in arrays(state)}


def plain_digests(path):
    """By plain read, with docs/format.md at hand and nothing of ours."""
    result = {}
    with open(path, "rb") as f:
        f.seek(-64, os.SEEK_END)
        footer = f.read()
        assert footer[:8] == b"ckptMANI", footer
        off, nr = struct.unpack_from("<QQ", footer, 24)
        f.seek(off)
        entries = f.read()[:-64]
        at = 0
        for _ in range(nr):
            data_off, data_len, name_len, info_len = struct.unpack_from("<QQII", entries, at)
            name = entries[at + 24:at + 24 + name_len].decode()
            at += (24 + name_len + info_len + 7) // 8 * 8
            f.seek(data_off)
            if name != "~":
                result[name] = digest(f.read(data_len))
    return result


def make(directory, expect, states):
    """`states`: an iterator of (step, state) whose arrays it changes in place from one to the next."""
    moved = content = 0
    with ckptfs_gpu.Lineage(directory, verify=True, require_gpu=True) as lineage:
        for step, state in states:
            with open(os.path.join(expect, f"{step:06}.json"), "w") as f:
                json.dump(digests(state), f)
            lineage.save(step, state)
            lineage.wait()
            stats = lineage.stats()
            assert stats["on_gpu"] == 1, stats
            moved, content = moved + stats["delta_bytes"], content + stats["content_bytes"]
            print(f"step {step}: {stats['delta_bytes']} of {stats['content_bytes']} bytes moved,"
                  f" {stats['take_ns'] / 1e6:.3f} ms until the program went on", flush=True)
    print(f"all steps: {moved / content:.2%} of {content} bytes moved")


def check(directory, expect):
    with ckptfs_gpu.Lineage(directory) as lineage:
        steps = lineage.steps()
        for step in steps:
            with open(os.path.join(expect, f"{step:06}.json")) as f:
                want = json.load(f)
            assert plain_digests(os.path.join(directory, f"{step:06}")) == want, f"step {step}, plain read"
            assert digests(lineage.load(step)) == want, f"step {step}, load"
    print(f"{len(steps)} steps")


def main(states):
    if not torch.cuda.is_available():
        print("no GPU here, or none that PyTorch can use")
        sys.exit(77)
    command, directory, expect = sys.argv[1:]
    make(directory, expect, states()) if command == "make" else check(directory, expect)
