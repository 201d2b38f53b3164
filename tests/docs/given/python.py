# SPDX-License-Identifier: GPL-3.0-or-later
# What the blocks of client/python/README.md take as given.
import dataclasses
import importlib.util
import os
import sys
import types

states = [os.urandom(5000) for _ in range(2)]


class Absent:
    """Ends the program at the first import of PyTorch where there is none."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] == "torch":
            print("skipped in part: PyTorch is not installed")
            sys.exit(0)


if importlib.util.find_spec("torch") is None:
    sys.meta_path.append(Absent)
else:
    import torch

    state = {"weight": torch.arange(1000.0)}
    if importlib.util.find_spec("torch.distributed.checkpoint") is None:  # 1.13 has it under another name
        # Python 3.11 refuses one of its classes unless that has a hash.
        real = dataclasses.dataclass
        dataclasses.dataclass = lambda cls=None, **named: real(cls, **{
            **named, **({"unsafe_hash": True} if getattr(cls, "__name__", "") == "TensorProperties" else {})})
        import torch.distributed._shard.checkpoint as old

        new = types.ModuleType("torch.distributed.checkpoint")
        new.save = lambda state, storage_writer: old.save_state_dict(state, storage_writer, no_dist=True)
        new.load = lambda state, storage_reader: old.load_state_dict(state, storage_reader, no_dist=True)
        sys.modules[new.__name__] = torch.distributed.checkpoint = new
