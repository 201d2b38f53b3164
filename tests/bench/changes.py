# SPDX-License-Identifier: GPL-3.0-or-later
"""./bench --compare: what changed between two reports, beyond the noise of their rounds.

Candidates take turns in each round, so what disturbs a round disturbs all of them: the figure of a round is ckptfs divided by
the reference of the same round. The change is the ratio of the geometric means of both runs. Its interval is that of Welch's
t test on logarithms, at a level of 95 % for all rows together (Bonferroni): of 20 comparisons of runs that are equal, one finds
a row that changed. The interval covers the noise within runs, not what differs between them and is constant in each: another
machine, a fuller disk.
"""
import dataclasses
import math
import statistics

import tables

LEVEL = 0.95
FEW = 0.10  # a median interval wider than this on a side: the rounds are too few for smaller changes
WORSE = 3  # exit status


# --- Student's distribution ---

def incomplete_beta(a, b, x):
    """I_x(a, b), regularized, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    f = d
    for m in range(1, 10000):
        for step in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1 + step * d
            c = 1 + step / c
            d, c = 1 / (d if abs(d) > tiny else tiny), c if abs(c) > tiny else tiny
            f *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * f / a


def t_below(t, dof):
    """Probability of less than t."""
    tail = incomplete_beta(dof / 2, 0.5, dof / (dof + t * t)) / 2
    return 1 - tail if t > 0 else tail


def t_quantile(p, dof):
    """The t with t_below(t, dof) = p, for p >= 1/2."""
    low, high = 0.0, 1.0
    while t_below(high, dof) < p and high < 1e12:
        high *= 2
    while high - low > 1e-12 * high:
        mid = (low + high) / 2
        low, high = (mid, high) if t_below(mid, dof) < p else (low, mid)
    return (low + high) / 2


# --- one row ---

def welch(old, new, level):
    """(difference of the means, half the width of its interval); the width is None with fewer than two of either."""
    difference = statistics.fmean(new) - statistics.fmean(old)
    if len(old) < 2 or len(new) < 2:
        return difference, None
    a, b = statistics.variance(old) / len(old), statistics.variance(new) / len(new)
    if a + b == 0:
        return difference, 0.0
    dof = (a + b) ** 2 / (a * a / (len(old) - 1) + b * b / (len(new) - 1))
    return difference, t_quantile((1 + level) / 2, dof) * math.sqrt(a + b)


@dataclasses.dataclass
class Change:
    """How many times the old figure the new one is. low and high: of the interval, or None."""

    before: float
    now: float
    factor: float
    low: float = None
    high: float = None

    def verdict(self, better):
        """better, worse, unchanged; or unjudged, without an interval."""
        if self.low is None:
            return "unjudged"
        if self.low <= 1 <= self.high:
            return "unchanged"
        return "better" if (self.low > 1) == (better == "more") else "worse"


def change(old, new, level):
    """Of positive samples of two runs."""
    old, new = [math.log(v) for v in old], [math.log(v) for v in new]
    difference, half = welch(old, new, level)
    found = Change(math.exp(statistics.fmean(old)), math.exp(statistics.fmean(new)), math.exp(difference))
    if half is not None:
        found.low, found.high = math.exp(difference - half), math.exp(difference + half)
    return found


def paired(subject, reference):
    """The subject of each round by the reference of that round."""
    return [s / r for s, r in zip(subject, reference)]


# --- reports ---

def pairs(old, new):
    """(title of the table, label of the row, better or worse which way, old samples, new samples, by which column divided) of all that
    both have; and what cannot be compared, with the reason."""
    found, refused = [], []
    before = {t.name: t for t in old}
    for t in new:
        o = before.get(t.name)
        if o is None:
            refused.append((t.title, "not in the old report"))
            continue
        if None not in (o.size, t.size) and o.size != t.size:
            refused.append((t.title, f"--size {o.size:g} then, {t.size:g} now"))
            continue
        for label, columns in t.rows.items():
            if label in t.others:
                continue
            for column in t.judged():
                shown = str(label) if t.x is None else f"{t.x}: {label:g}"
                shown += "" if len(t.judged()) == 1 else f", {column}"
                a, b, reference = o.rows.get(label, {}).get(column), columns.get(column), None
                if b is None:
                    continue
                if a is None:
                    refused.append((f"{t.title}: {shown}", "not in the old report"))
                    continue
                if t.reference and t.reference == o.reference and t.reference in columns and t.reference in o.rows[label]:
                    reference = t.reference
                    a, b = paired(a, o.rows[label][reference]) if min(o.rows[label][reference]) > 0 else [], paired(
                        b, columns[reference]) if min(columns[reference]) > 0 else []
                if not a or not b or min(a + b) <= 0:
                    refused.append((f"{t.title}: {shown}", "not all of its figures are above zero"))
                    continue
                found.append((t, shown, a, b, reference))
    return found, refused


def compare(old, new, level=LEVEL):
    """[(table, label, reference or None, Change)] at the level of all rows together; and what cannot be compared."""
    found, refused = pairs(tables.tables(old), tables.tables(new))
    judged = sum(len(a) > 1 and len(b) > 1 for _, _, a, b, _ in found)
    each = 1 - (1 - level) / max(judged, 1)
    return [(t, label, reference, change(a, b, each)) for t, label, a, b, reference in found], refused


SAID = {"better": {"speed": "faster", "bytes": "smaller", "else": "better"}, "worse": {"speed": "slower", "bytes": "larger", "else": "worse"}}


def said(verdict, unit):
    """In words."""
    if verdict in ("unchanged", "unjudged"):
        return {"unchanged": "unchanged within noise", "unjudged": "no interval"}[verdict]
    kind = "speed" if unit.endswith("/s") or unit in ("s", "ms") else "bytes" if unit in ("MiB", "KiB", "bytes") else "else"
    return SAID[verdict][kind]


def percent(factor):
    return f"{100 * (factor - 1):+.1f} %"


def conditions(old, new):
    """What differs between the machines."""
    return [f"{key} was {old['machine'].get(key)}, is {new['machine'].get(key)}" for key in new["machine"]
            if old["machine"].get(key) != new["machine"].get(key)]


def show(old, new, path):
    """Print the comparison; the exit status."""
    rows, refused = compare(old, new)
    print(f"compared with {path}")
    for words in conditions(old, new):
        print(f"  another machine: {words}")
    counts, head, halves = dict.fromkeys(("better", "worse", "unchanged", "unjudged"), 0), None, []
    for t, label, reference, c in rows:
        if (t.title, t.unit) != head:
            head = (t.title, t.unit)
            print(f"{', '.join(word for word in head if word):60}{'before':>10}{'now':>10}{'change':>10}   interval")
        verdict = c.verdict(t.better)
        counts[verdict] += 1
        interval = f"{percent(c.low)} to {percent(c.high)}" if c.low is not None else ""
        if c.low is not None:
            halves.append(math.sqrt(c.high / c.low) - 1)
        of = f" (x {reference})" if reference else ""
        print(f"  {label + of:58}{tables.figure(c.before):>10}{tables.figure(c.now):>10}{percent(c.factor):>10}   {interval:24}{said(verdict, t.unit)}")
    for what, why in refused:
        print(f"  not compared: {what}: {why}")
    if not rows:
        print("nothing to compare")
        return 2
    print(f"{counts['better']} better, {counts['worse']} worse, {counts['unchanged']} unchanged within noise, {counts['unjudged']} "
          f"without an interval (a single figure); intervals hold with {100 * LEVEL:g} % for all rows together")
    if any(not t.precise and reference is None for t, _, reference, _ in rows):
        print("rows without \"x\" are figures alone: the load of the machine at the time counts in them")
    if halves and statistics.median(halves) > FEW:
        print(f"half of the intervals are wider than {percent(1 + statistics.median(halves))} on either side: more --rounds show smaller changes")
    return WORSE if counts["worse"] else 0
