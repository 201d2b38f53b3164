#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Usage: tests/torch/frameworks.py GUIDES MOUNT

The Python that docs/guides/pytorch.md prints for FSDP2, the Hugging Face Trainer and Lightning, as it is printed, with these libraries
themselves: two processes train with fully_shard on the CPU, and one on a GPU, if there is one; a trainer of each library is resumed from
its last sealed checkpoint and ends where one that was not interrupted ends. Libraries that are not installed are named.
(tests/docs/test-guide-classes runs the same with stand-ins.)
"""
import copy
import os
import pathlib
import re
import shutil
import sys
import tempfile

import ckptfs
import torch

guides, mnt = (pathlib.Path(p) for p in sys.argv[1:])
missing = []


def printed(section):
    """The Python of a section, on this mount."""
    text = (guides / "pytorch.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.search(r"```python\n(.*?)```", text, re.S)[1].replace("/mnt/ckpt", str(mnt))


def sealed(top):
    return [c.path.name for c in ckptfs.checkpoints(top)]


def needs(module):
    try:
        __import__(module)
        return True
    except ImportError:
        missing.append(f"{module} is not installed")
        return False


# --- FSDP2: the printed code saves and loads in one go; between the two halves the weights are spoilt ---


def sharded_rank(rank, ranks, device, meeting):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("nccl" if device == "cuda" else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    try:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 7)).to(device)
        fully_shard(model, mesh=init_device_mesh(device, (ranks,)))
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(4, 64, device=device)).sum().backward()
        optimizer.step()
        before = [p.detach().to_local().clone() for p in model.parameters()]
        moments = copy.deepcopy([s["exp_avg"].to_local() for s in optimizer.state.values()])

        names = {"model": model, "optimizer": optimizer, "step": 7}
        save, load = printed("FSDP2 and DCP").replace("/run", f"/fsdp-{device}").split("\nlast = ")
        exec(save, names)
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(-1)
            for s in optimizer.state.values():
                s["exp_avg"].fill_(-1)
        exec("\nlast = " + load, names)
        for p, b in zip(model.parameters(), before):
            assert torch.equal(p.detach().to_local(), b)
        for s, m in zip(optimizer.state.values(), moments):
            assert torch.equal(s["exp_avg"].to_local(), m)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def fsdp2():
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except ImportError:
        missing.append(f"PyTorch {torch.__version__} has no fully_shard")
        return
    for ranks, device in [(2, "cpu")] + [(1, "cuda")] * torch.cuda.is_available():
        with tempfile.TemporaryDirectory() as d:
            torch.multiprocessing.start_processes(sharded_rank, (ranks, device, f"{d}/meeting"), nprocs=ranks, start_method="spawn")
        assert sealed(mnt / f"fsdp-{device}") == ["step.000007"], sealed(mnt / f"fsdp-{device}")
        files = sorted(f.name for f in (mnt / f"fsdp-{device}" / "step.000007").iterdir())
        print(f"ok FSDP2 of PyTorch {torch.__version__}, {ranks} x {device}: {' '.join(files)}", flush=True)


# --- Hugging Face: four steps with a checkpoint at each; then again from what a run that ended inside a checkpoint has left ---


def weights(model):
    return {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def hugging_face():
    if not needs("transformers"):
        return
    import transformers

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, x, labels):
            out = self.layer(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    data = [{"x": torch.full((8,), i / 10.0), "labels": torch.tensor([float(i)])} for i in range(16)]

    def run(top, steps):
        model = Net()
        args = transformers.TrainingArguments(output_dir=str(top), max_steps=steps, save_steps=1, save_strategy="steps", report_to=[],
                                              per_device_train_batch_size=4, disable_tqdm=True, logging_strategy="no", seed=3,
                                              lr_scheduler_type="constant")
        exec(printed("Hugging Face Trainer"), {"model": model, "args": args, "data": data})
        return weights(model)

    top = mnt / "hf"
    whole = run(mnt / "hf-whole", 6)
    run(top, 3)
    assert sealed(top) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"], sealed(top)
    # As a trainer leaves it that is killed inside its next checkpoint: newer, and incomplete.
    partial = top / "checkpoint-4"
    shutil.copytree(top / "checkpoint-3", partial)
    (partial / "optimizer.pt").write_bytes(b"")
    resumed = run(top, 6)
    assert sealed(top) == [f"checkpoint-{n}" for n in range(1, 7)], sealed(top)
    assert equal(whole, resumed)
    print(f"ok Trainer of transformers {transformers.__version__}", flush=True)


# --- Lightning: two of the checkpoints are kept; a trainer that resumes from one ends where the other ended ---


def lightning():
    try:
        import lightning.pytorch  # noqa: F401
    except ImportError:
        if not needs("pytorch_lightning"):  # the same code under another name
            return
        import pytorch_lightning
        import pytorch_lightning.plugins.io
        import types
        parent = types.ModuleType("lightning")
        parent.pytorch = pytorch_lightning
        sys.modules["lightning"] = parent
        for name, module in list(sys.modules.items()):
            if name == "pytorch_lightning" or name.startswith("pytorch_lightning."):
                sys.modules["lightning.pytorch" + name[len("pytorch_lightning"):]] = module
    import lightning.pytorch as L

    class Net(L.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(4)
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, index):
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    names = {}
    exec(printed("Lightning"), names)
    io, top = names["trainer"].strategy.checkpoint_io, mnt / "lightning"
    data = torch.utils.data.DataLoader(torch.ones(4, 8), batch_size=4)

    def run(where, epochs, resume=None):
        model = Net()
        keep = L.callbacks.ModelCheckpoint(dirpath=str(where), filename="{epoch}", save_top_k=2, monitor="epoch", mode="max")
        trainer = L.Trainer(plugins=[type(io)()], default_root_dir=str(where), max_epochs=epochs, callbacks=[keep], logger=False,
                            enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
        trainer.fit(model, data, ckpt_path=resume and str(resume))
        return weights(model)

    whole = run(mnt / "lightning-whole", 5)
    run(top, 3)
    assert sealed(top) == ["epoch=1.ckpt", "epoch=2.ckpt"], sealed(top)
    resumed = run(top, 5, ckptfs.newest(top, verify=True).path)
    assert sealed(top)[-1] == "epoch=4.ckpt", sealed(top)
    assert equal(whole, resumed)
    print(f"ok Lightning {L.__version__}", flush=True)


if __name__ == "__main__":
    fsdp2()
    hugging_face()
    lightning()
    if missing:
        print("skipped in part:", "; ".join(missing))
