"""Deltas of device memory, on the GPU: how close they come to reading it once, or to copying the delta to the host."""
import json
import os
import subprocess
import sys

from common import BUILD


def case(c):
    if "ratio" not in c:
        return
    limit = f"  (goal: {c['limit']:.2f})" if c["limit"] else ""
    full = f"  {c['ratio_to_full']:.3f} x full" if "ratio_to_full" in c else ""
    print(f"  {c['case']:14} {c['method']:6} {c['chunk']:5} B  {c['seconds'] * 1e3:8.3f} ms = {c['ratio']:6.3f} x floor{limit}{full}"
          f"  delta {c['delta']:>11}  memory {c['memory']:.3f} x data", flush=True)


def run(size, rounds):
    program = os.path.join(BUILD, "tests/bench/bench_gpu")
    if not os.path.exists(program):
        print("gpu: built without CUDA", file=sys.stderr)
        return {}
    print("gpu", flush=True)
    cases = []
    with subprocess.Popen([program, str(size), str(rounds)], stdout=subprocess.PIPE, text=True) as p:
        for line in p.stdout:
            cases.append(json.loads(line))
            case(cases[-1])
    if p.returncode not in (0, 77):
        sys.exit(f"gpu: {program} failed")
    return {"size_mib": size, "cases": cases}
