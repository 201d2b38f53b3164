# SPDX-License-Identifier: GPL-3.0-or-later
"""Deltas of device memory, on the GPU: how close they come to reading it once, or to copying the delta to the host; and from there
to durable files of a mount, beside a plain file of as many bytes."""
import json
import os
import subprocess
import sys

from common import BUILD, ckptfs


def case(c):
    if "ratio" not in c:
        return
    limit = f"  (goal: {c['limit']:.2f})" if c["limit"] else ""
    full = f"  {c['ratio_to_full']:.3f} x full" if "ratio_to_full" in c else ""
    print(f"  {c['case']:14} {c['method']:6} {c['chunk']:5} B  {c['seconds'] * 1e3:8.3f} ms = {c['ratio']:6.3f} x floor{limit}{full}"
          f"  delta {c['delta']:>11}  memory {c['memory']:.3f} x data", flush=True)


def lines(*command):
    """Objects of JSON, as a program prints them, a line each. A program that finds no GPU says so, and prints none."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as p:
        for line in p.stdout:
            yield json.loads(line)
    if p.returncode not in (0, 77):
        sys.exit(f"gpu: {command[0]} failed")


def file(c):
    mount = c["write"] + c["commit"]
    print(f"  {c['changed']:.1%} of {c['chunk']} B: {c['delta']} bytes to a durable file in"
          f" {(c['take'] + c['finish'] + mount) * 1e3:.2f} ms: taken {c['take'] * 1e3:.2f}, in host memory {c['finish'] * 1e3:.2f},"
          f" written {c['write'] * 1e3:.2f}, committed {c['commit'] * 1e3:.2f} = {mount / c['plain']:.2f} x write and fsync"
          f"  (goal: 2.00); first {c['first'] * 1e3:.2f}, last {c['last'] * 1e3:.2f}", flush=True)


def run(base, size, rounds):
    program = os.path.join(BUILD, "tests/bench/bench_gpu")
    if not os.path.exists(program):
        print("gpu: built without CUDA", file=sys.stderr)
        return {}
    print("gpu", flush=True)
    cases, files = [], []
    for c in lines(program, str(size), str(rounds)):
        cases.append(c)
        case(c)
    if cases:
        rival = ckptfs(base, "ckptfs")
        rival.start()
        try:
            for c in lines(program + "_file", rival.dir, os.path.join(base, "plain"), str(size)):
                files.append(c)
                file(c)
        finally:
            rival.stop()
    return {"size_mib": size, "cases": cases, "files": files}
