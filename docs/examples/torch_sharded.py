#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Usage: torchrun --nproc_per_node 4 torch_sharded.py DIRECTORY STEPS: each rank has a part of a tensor; all parts of a step are one checkpoint.

It goes on with as many ranks as it is started with, whatever they were before.
Needs PyTorch 1.13, or 2.1 or newer, built with torch.distributed and gloo.
"""
import sys

import ckptfs

try:
    import torch
except ImportError:
    sys.exit("torch_sharded.py: PyTorch is not installed; 1.13, or 2.1 or newer is needed")
try:
    import torch.distributed as dist
    from ckptfs.dcp import Reader, Writer
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    try:
        from torch.distributed.checkpoint import load, save
    except ImportError:  # before 2.2
        try:
            from torch.distributed.checkpoint import load_state_dict as load, save_state_dict as save
        except ImportError:  # 1.13
            from torch.distributed._shard.checkpoint import load_state_dict as load, save_state_dict as save
except ImportError as e:
    sys.exit(f"torch_sharded.py: this is PyTorch {torch.__version__}; 1.13, or 2.1 or newer is needed ({e})")

top, steps = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
spec = ChunkShardingSpec(dim=0, placements=[f"rank:{i}/cpu" for i in range(size)])
state = {"rows": sharded_tensor.zeros(spec, 1000, 300), "bias": torch.zeros(7), "step": 0}

last = [ckptfs.newest(top) if rank == 0 else None]  # all start from the same one, even if a rank has begun the next
dist.broadcast_object_list(last)
if last[0] is not None:
    load(state, storage_reader=Reader(last[0].path))

while state["step"] < steps:
    state["step"] += 1
    for shard in state["rows"].local_shards():
        for i in range(shard.tensor.shape[0]):
            row = shard.metadata.shard_offsets[0] + i
            if row % 100 == state["step"]:  # a hundredth of it
                shard.tensor[i] = torch.arange(300, dtype=torch.float32) * row
    state["bias"] += 0.5
    save(state, storage_writer=Writer(f"{top}/step.{state['step']:04}"))
total = sum((shard.tensor.double().sum() for shard in state["rows"].local_shards()), torch.zeros((), dtype=torch.float64))
dist.all_reduce(total)
if rank == 0:
    print(f"after step {state['step']}: {total.item():.1f} and {state['bias'].sum().item():.1f}")
