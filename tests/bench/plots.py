# SPDX-License-Identifier: GPL-3.0-or-later
"""./bench --plot: every table of a report as a picture. A table of named rows has bars, with a line from the lowest round to the
highest; a curve has a line per column. Names of columns stand at their bars or lines, so that colours are not needed to read them."""
import math
import os
import statistics

import tables
from picture import WIDTH, Picture

PALETTE = [("#0969da", "#4493f8"), ("#afb8c1", "#656c76"), ("#bc4c00", "#f0883e"), ("#1a7f37", "#3fb950"), ("#8250df", "#ab7df8"),
           ("#9a6700", "#d29922"), ("#cf222e", "#f85149"), ("#1b7c83", "#39c5cf")]
BAR, GAP = 15, 10


def rules(shade):
    return "".join(f"\n    .k{i} {{ fill: {c[shade]} }} .s{i} {{ stroke: {c[shade]}; stroke-width: 2; fill: none }}" for i, c in enumerate(PALETTE))


STYLE = rules(0) + "\n    @media (prefers-color-scheme: dark) {" + rules(1) + "\n    }"


def colours(t):
    """Column -> number of its colour: ckptfs blue, the reference grey, as in the pictures of the README."""
    ours, rest = t.judged(), [c for c in t.columns if c not in t.judged()]
    taken = {ours[0]: 0} if ours else {}
    if rest:
        taken[t.reference if t.reference in rest else rest[0]] = 1
    free = list(range(2 if rest else 1, len(PALETTE)))
    for c in [c for c in ours + rest if c not in taken]:
        taken[c] = (free.pop(0) if c in ours else free.pop()) if free else 1
    return taken


def marks(highest, nr=5):
    """Round figures from 0 to at least the highest."""
    raw = highest / nr
    step = 10 ** math.floor(math.log10(raw))
    step *= next(m for m in (1, 2, 5, 10) if m * step >= raw * 0.999)
    return [i * step for i in range(math.ceil(highest / step - 1e-9) + 1)]


def value(samples):
    return statistics.median(samples)


def wide(text):
    """Pixels of small text, roughly."""
    return 6.6 * len(text)


def says(t):
    """The text alternative: all figures of bars; of lines where they begin and end, and their extremes."""
    unit = f" {t.unit}" if t.unit else ""
    if t.x is None:
        return "; ".join(f"{label}: " + ", ".join(f"{c} {tables.figure(value(v))}" for c, v in row.items()) + unit for label, row in t.rows.items()) + "."
    parts = []
    for c in t.columns:
        points = [(x, value(row[c])) for x, row in sorted(t.rows.items()) if c in row]
        ys = [y for _, y in points]
        parts.append(f"{c}: {tables.figure(points[0][1])} at {points[0][0]:g}, {tables.figure(points[-1][1])} at {points[-1][0]:g}, "
                     f"from {tables.figure(min(ys))} to {tables.figure(max(ys))}{unit}")
    return f"By {t.x}: " + "; ".join(parts) + "."


def caption(t):
    return f"{t.title}, {t.unit}" if t.unit else t.title


def bars(t):
    p, kind = Picture(caption(t), STYLE), colours(t)
    columns = t.columns
    named = len(columns) > 1
    left = min(max(wide(str(label)) for label in t.rows) + 12, 330)
    names = max(wide(c) for c in columns) + 10 if named else 0
    highest = max(max(v) for row in t.rows.values() for v in row.values())
    right = WIDTH - 80
    scale = (right - left - names) / highest if highest > 0 else 0
    p.text(0, 18, caption(t), "head")
    y, zero = 34, left + names
    for label, row in t.rows.items():
        p.text(0, y + 12, str(label), "small")
        for c in columns:
            if c not in row:
                continue
            v = value(row[c])
            if named:
                p.text(left, y + 12, c, "small faint")
            p.rect(zero, y + 1, max(v, 0) * scale, BAR - 2, f"k{kind[c]}")
            if len(row[c]) > 1:
                p.path(f"M{zero + max(min(row[c]), 0) * scale:.1f},{y + BAR / 2:.1f} H{zero + max(max(row[c]), 0) * scale:.1f}")
            p.text(zero + max(max(row[c]), 0) * scale + 6, y + 12, tables.figure(v), "small")
            if label in t.targets and c in t.judged()[:1] and zero + t.targets[label] * scale <= WIDTH:
                p.path(f"M{zero + t.targets[label] * scale:.1f},{y - 4} V{y + BAR + 4}")
            y += BAR
        y += GAP
    if t.targets:
        p.text(0, y + 8, "Vertical line: the target. Horizontal line: from the lowest round to the highest.", "small faint")
        y += 16
    return p.svg(round(y + 4), says(t))


def curve(t):
    p, kind = Picture(caption(t), STYLE), colours(t)
    left, right, top, height = 56, WIDTH - 150, 40, 240
    xs = sorted(t.rows)
    ys = [v for row in t.rows.values() for c in row for v in [value(row[c])]]
    ticks = marks(max(ys)) if max(ys) > 0 else [0, 1]
    by_doubling = xs[0] > 0 and xs[-1] / xs[0] >= 8 and all(abs(math.log2(x / xs[0]) % 1) < 1e-9 for x in xs)

    def across(x):
        if len(xs) == 1:
            return (left + right) / 2
        share = math.log(x / xs[0]) / math.log(xs[-1] / xs[0]) if by_doubling else (x - xs[0]) / (xs[-1] - xs[0])
        return left + 8 + share * (right - left - 16)

    def down(y):
        return top + height * (1 - max(y, 0) / ticks[-1])

    p.text(0, 18, caption(t), "head")
    for tick in ticks:
        p.path(f"M{left},{down(tick):.1f} H{right}", "grid line")
        p.text(left - 6, down(tick) + 4, tables.figure(tick), "small faint end")
    shown = xs if len(xs) <= 12 else xs[::math.ceil(len(xs) / 10)]
    for x in shown:
        p.text(across(x), top + height + 18, f"{x:g}", "small faint mid")
    p.text((left + right) / 2, top + height + 36, t.x, "small faint mid")
    ends = []
    for c in t.columns:
        points = [(across(x), down(value(t.rows[x][c]))) for x in xs if c in t.rows[x]]
        p.path("M" + " L".join(f"{a:.1f},{b:.1f}" for a, b in points), f"s{kind[c]}")
        if len(points) <= 40:
            for a, b in points:
                p.rect(a - 2.5, b - 2.5, 5, 5, f"k{kind[c]}")
        ends.append((points[-1][1], c))
    at = 0
    for y, c in sorted(ends):  # one below the other, where lines end together
        at = max(y + 4, at + 15)
        p.rect(right + 8, at - 9, 9, 9, f"k{kind[c]}")
        p.text(right + 22, at, c, "small")
    return p.svg(top + height + 46, says(t))


def draw(t):
    return curve(t) if t.x is not None else bars(t)


def plot(report, where):
    """Paths of what was drawn."""
    os.makedirs(where, exist_ok=True)
    paths = []
    for t in tables.tables(report):
        paths.append(os.path.join(where, t.name + ".svg"))
        with open(paths[-1], "w", encoding="utf-8") as f:
            f.write(draw(t))
    return paths
