# SPDX-License-Identifier: GPL-3.0-or-later
"""Usage: graph.py make|check DIR EXPECT

Counts, vertex by vertex, how often each occurs in each place of small subgraphs (graphlet degree vectors, by sampling) of a
large sparse graph: batches of vertices add to counters all over the array.
"""
import torch

import workload

VERTICES, EDGES, ORBITS, BATCH, STEPS = 1 << 21, 1 << 24, 32, 4096, 15


def graph():
    """Edges sorted by (from, to) as one number each, where each vertex's begin, and their ends."""
    ends = (torch.rand(2, EDGES, device="cuda", dtype=torch.float64) ** 2 * VERTICES).long()  # some have many
    both = torch.cat([ends[0] * VERTICES + ends[1], ends[1] * VERTICES + ends[0]]).unique()
    begins = torch.searchsorted(both, torch.arange(VERTICES + 1, device="cuda") * VERTICES)
    return both, begins, both % VERTICES


def neighbours(vertices, begins, to):
    """One of each vertex, by chance; itself where it has none."""
    nr = begins[vertices + 1] - begins[vertices]
    chosen = begins[vertices] + (torch.rand(len(vertices), device="cuda") * nr).long().clamp(max=nr.clamp(min=1) - 1)
    return torch.where(nr > 0, to[chosen.clamp(max=len(to) - 1)], vertices)


def states():
    torch.manual_seed(2)
    both, begins, to = graph()
    counters = torch.zeros(VERTICES, ORBITS, dtype=torch.int32, device="cuda")
    one = torch.ones(1, dtype=torch.int32, device="cuda")

    def adjacent(a, b):
        key = a * VERTICES + b
        return both[torch.searchsorted(both, key).clamp(max=len(both) - 1)] == key

    def count(vertices, orbit):
        counters.index_put_((vertices, orbit), one.expand(len(vertices)), accumulate=True)

    for step in range(1, STEPS + 1):
        for _ in range(8):
            a = torch.randint(VERTICES, (BATCH,), device="cuda")
            b, c = neighbours(a, begins, to), neighbours(a, begins, to)
            d = neighbours(c, begins, to)
            shape = adjacent(b, c).long() + 2 * adjacent(a, d).long() + 4 * adjacent(b, d).long()  # of the four
            for place, vertex in enumerate((a, b, c, d)):
                count(vertex, shape * 4 + place)
        yield step, {"counters": counters, "step": step}


workload.main(states)
