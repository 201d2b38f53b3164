#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Usage: torch_save.py DIRECTORY STEPS: a network that is trained, stopped at any moment, and goes on from its last checkpoint."""
import sys

import ckptfs
import torch

top, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(7)
data = torch.randn(256, 16)
target = data.sum(dim=1, keepdim=True).sin()
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

step, last = 0, ckptfs.newest(top)
if last is not None:
    state = torch.load(last.path / "state.pt", map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]

while step < steps:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(data), target)
    loss.backward()
    optimizer.step()
    step += 1
    with ckptfs.checkpoint(f"{top}/step.{step:04}") as where:  # complete, or absent
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, where / "state.pt")
with torch.no_grad():
    print(f"after step {step}: loss {torch.nn.functional.mse_loss(model(data), target):.6f}")
