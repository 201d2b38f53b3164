# SPDX-License-Identifier: GPL-3.0-or-later
"""Usage: train.py make|check DIR EXPECT

A model with a frozen base and trained low-rank adapters: checkpoints have the base, the adapters and the optimizer's state.
"""
import torch

import workload

WIDTH, LAYERS, RANK, STEPS = 2048, 24, 16, 12


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16).requires_grad_(False)
        self.down = torch.nn.Linear(WIDTH, RANK, bias=False)
        self.up = torch.nn.Linear(RANK, WIDTH, bias=False)

    def forward(self, x):
        return x + torch.tanh(self.base(x.bfloat16()).float() + self.up(self.down(x)))


def states():
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(Layer() for _ in range(LAYERS))).cuda()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    for step in range(1, STEPS + 1):
        x = torch.randn(64, WIDTH, device="cuda")
        loss = (model(x) - x.roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
                     "random": torch.cuda.get_rng_state()}


workload.main(states)
