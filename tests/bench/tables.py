# SPDX-License-Identifier: GPL-3.0-or-later
"""A report of ./bench --json as tables, for --plot and --compare. A group of ./bench that is not in GROUPS cannot be drawn or
compared; test-bench-tables refuses it."""
from __future__ import annotations

import dataclasses
import re

MIB = 2**20


@dataclasses.dataclass
class Table:
    """rows: label -> column -> samples, one per round. In a curve labels are numbers, and `x` says of what."""

    name: str
    title: str
    unit: str
    rows: dict
    better: str = "more"  # or less
    reference: str | None = None  # the column measured in the same rounds, by which others are divided
    x: str | None = None
    subjects: list | None = None  # the columns that are ckptfs; all but the reference if None
    others: frozenset = frozenset()  # the rows that are other programs
    targets: dict = dataclasses.field(default_factory=dict)  # label -> figure
    size: float | None = None  # --size of the run
    precise: bool = True  # False: depends on the machine's load

    @property
    def columns(self):
        return list(dict.fromkeys(c for row in self.rows.values() for c in row))

    def judged(self):
        return [c for c in self.columns if c != self.reference and (self.subjects is None or c in self.subjects)]


def slug(text):
    return re.sub(r"[^a-z0-9+]+", "-", text.lower()).strip("-")


def figure(x):
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def samples(value):
    return [float(v) for v in (value if isinstance(value, list) else [value])]


def row(source, **columns):
    """Column -> samples, of the keys of `source` that are there."""
    return {shown: [v * scale for v in samples(source[key])] for shown, (key, scale) in columns.items() if key in source}


def table(name, title, unit, rows, *args, **options):
    """At most one table: none without figures."""
    rows = {label: r for label, r in rows.items() if r}
    return [Table(name, title, unit, rows, *args, **options)] if rows else []


# --- groups that report cases: the times of ckptfs and of its rivals in each round ---

SUBJECTS = ["ckptfs", "auto", "lz4", "zstd", "cdc"]


def reference_of(columns, disk):
    return next((c for c in (disk, "sink+fp", "sink", "none", "page") if c in columns), None)


def target_of(case, disk):
    """What the subject must reach, in the unit of the case: the strictest of its targets."""
    return max((ratio * case["median"][rival] for rival, ratio in case["target"].items()), default=None)


def cases(group, those, disk, size):
    """One table per unit; of cores, a curve per kind of data."""
    found = {}
    for c in those:
        title, unit, label = group, c["unit"], c["case"]
        name, x = group if unit == "GB/s" else f"{group}-{slug(unit)}", None
        processes = re.fullmatch(r"(.*), (\d+) (?:writer|reader)s?", label)
        if group == "cores" and processes:
            title, label, x = f"cores: {processes[1]}", int(processes[2]), "processes"
            name = f"cores-{slug(processes[1])}"
        t = found.setdefault(name, Table(name, title, unit, {}, x=x, size=size, precise=False, subjects=SUBJECTS,
                                         reference=reference_of(c["figures"], disk)))
        t.rows[label] = {column: samples(v) for column, v in c["figures"].items()}
        if (target := target_of(c, disk)) is not None:
            t.targets[label] = target
    return list(found.values())


# --- groups with tables of their own ---

def by_unit(name, title, fields):
    """Figures of a program that names each with its unit: field -> (unit, better)."""
    units = [("_per_s", "1/s", "more"), ("_gb_s", "GB/s", "more"), ("_mib", "MiB", "less"), ("_ms", "ms", "less"), ("_s", "s", "less")]
    found = {}
    for field, value in fields.items():
        unit, better = next(((u, b) for end, u, b in units if re.search(end + r"(_vector)?$", field)), ("", "more"))
        if field in ("entries", "cache_mib"):  # what was asked for
            continue
        if "saved" in field:
            unit = "saved"
        elif "bytes" in field or "mean" in field:
            unit, better = "bytes", "less"
        elif field.startswith("tables"):
            unit, better = "tables", "less"
        found.setdefault((unit, better), {})[field.replace("_", " ")] = {name: samples(value)}
    result = []
    for (unit, better), rows in found.items():
        result += table(f"{name}-{slug(unit)}" if unit else name, title, unit, rows, better, precise=unit in ("bytes", "saved", "tables"))
    return result


def space_set(group, name, one):
    """Bytes of stores and archives of one data set."""
    programs = [r for r in one.get("rows", []) + one.get("others", []) if "bytes" in r] if isinstance(one.get("rows", []), list) else []
    if not programs:
        programs = [r for r in one.get("others", []) if "bytes" in r]
    rows = {r["program"]: {"bytes": [r["bytes"] / MIB]} for r in programs}
    others = {r["program"] for r in programs if not r.get("ours", False)}
    rows |= {f"ckptfs, {r['chunking']}, {r['compress']}, compacted": {"bytes": [r["after"] / MIB]} for r in one.get("compacted", [])}
    rows |= {f"{r['program']}, half deleted, collected": {"bytes": [r["bytes"] / MIB]} for r in one.get("collected", {}).get("rows", [])}
    return table(f"{group}-{slug(name)}", f"{group}: {name}", "MiB", rows, "less", others=frozenset(others))


def space(group, g):
    return [t for name, one in g["sets"].items() for t in space_set(group, name, one)]


def ten(group, g):
    result = []
    for name, one in g["sets"].items():
        if "skipped" not in one:
            rows = {i + 1: {"files": [plain / MIB], "ckptfs": [ours / MIB]} for i, (plain, ours) in enumerate(zip(one["plain"], one["ckptfs"]))}
            result += table(f"ten-{name}", f"ten: {one['title']}", "MiB", rows, "less", x="checkpoints", subjects=["ckptfs"])
    return result


def gc(group, g):
    rates, seconds, memory = {}, {}, {}
    for size, found in g.get("rates", {}).items():
        for where, whats in found.items():
            for what, told in whats.items():
                label = f"{what}, {where}, {size.replace('_mib', '')} MiB"
                rates[label] = row(told.get("rates", {}), **{"GB/s": ("GB/s", 1)})
                seconds[label] = row(told, seconds=("seconds", 1))
                memory[label] = row(told, peak=("peak_bytes", 1 / MIB))
    calls = {kind: row(c, **{"with gc": ("with_ms", 1), "without": ("without_ms", 1)}) for kind, c in g.get("stalls", {}).get("calls", {}).items()}
    series = {title: row(s, newest=("newest", 1), first=("first", 1)) for title, s in g.get("series", {}).items()}
    places = {title: row(s.get("fragmentation", {}), newest=("newest", 1), first=("first", 1)) for title, s in g.get("series", {}).items()}
    return (table("gc-rate", "gc: rate", "GB/s", rates, precise=False) + table("gc-seconds", "gc: duration", "s", seconds, "less", precise=False)
            + table("gc-memory", "gc: peak memory", "MiB", memory, "less")
            + table("gc-stall", "gc: longest calls", "ms", calls, "less", reference="without", precise=False)
            + table("gc-series", "gc: cold reads of a series", "GB/s", series, reference="first", precise=False)
            + table("gc-places", "gc: places per MiB", "places per MiB", places, "less")
            + [dataclasses.replace(t, name=f"gc-chunking-{t.name}", title="gc: writing, by chunking") for t in cases("gc", g.get("chunking", []), None, None)])


def cluster(group, g):
    same = {f"replicas={r['replicas']}": row(r, copies=("copies", 1)) for r in g.get("same", [])}
    u = g.get("unique", {}).get("seconds", {})
    unique = {name: {"seconds": samples(v)} for name, v in u.items()}
    reduction = {r["ranks"]: row(r, ms=("seconds", 1e3)) for r in g.get("reduction", {}).get("rows", [])}
    stencil = {r["ranks"]: row(r, full=("full", 1 / 1024), local=("local", 1 / 1024), collective=("collective", 1 / 1024))
               for r in g.get("stencil", {}).get("rows", [])}
    remote = {"cold restore": row(g.get("remote", {}).get("mib_per_s", {}), remote=("remote", 1), local=("local", 1))}
    return (table("cluster-same", "cluster: copies of what all nodes have", "copies", same, "less")
            + table("cluster-unique", "cluster: a checkpoint of new pages", "s", unique, "less", precise=False)
            + table("cluster-reduction", "cluster: a reduction", "ms", reduction, "less", x="ranks", precise=False)
            + table("cluster-stencil", "cluster: stencil, stored per rank", "KiB", stencil, "less", x="ranks", subjects=["local", "collective"])
            + table("cluster-remote", "cluster: remote restore", "MiB/s", remote, reference="local", precise=False))


def gpu(group, g):
    deltas = {f"{c['case']}, {c['method']}, {c['chunk']} B": row(c, ckptfs=("ratio", 1)) for c in g.get("cases", []) if "ratio" in c}
    files = {f"{c['changed']:.1%} of {c['chunk']} B": {"ckptfs": [1e3 * (c["write"] + c["commit"])], "plain": [1e3 * c["plain"]]}
             for c in g.get("files", [])}
    return (table("gpu", "gpu: deltas", "x floor", deltas, "less", precise=False)
            + table("gpu-files", "gpu: deltas to a durable file", "ms", files, "less", reference="plain", precise=False))


def client(group, g):
    result = []
    for part, title in ("limited", "limited disk"), ("unlimited", "no limit"):
        rows = {}
        for r in g.get(part, []):
            rows.setdefault(r["order"], {})[r["mode"]] = samples(r["more_s"])
        result += table(f"client-{part}", f"client: seconds more than without checkpoints, {title}", "s", rows, "less", precise=False)
    cow = {r["cow_mib"]: {mode: [r[mode]["more_s"]] for mode in ("async", "adaptive")} for r in g.get("cow", {}).get("rows", [])}
    passes = {f"{r['order']}, {r['pages']}, {r['kind']}": row(r, first=("first_s", 1e3), steady=("steady_s", 1e3), untracked=("plain_s", 1e3))
              for r in g.get("tracking", [])}
    scaling = {r["ranks"]: {k: samples(v) for k, v in r.items() if k != "ranks"} for r in g.get("scaling") or []}
    unaligned = {"random": {mode: samples(r["more_s"]) for mode, r in g.get("unaligned", {}).items()}}
    return (result + table("client-cow", "client: seconds more, by room for copies", "s", cow, "less", x="MiB for copies", precise=False)
            + table("client-unaligned", "client: seconds more, unaligned", "s", unaligned, "less", precise=False)
            + table("client-tracking", "client: a pass over 256 MiB", "ms", passes, "less", reference="untracked", precise=False)
            + table("client-scaling", "client: stencil", "s", scaling, "less", x="ranks", reference="none", precise=False))


def aware(group, g):
    result = []
    for name, one in g["sets"].items():
        if "skipped" in one:
            continue
        ours = [scheme for scheme in one["rows"] if not scheme.startswith(("gzip", "zstd", "lz4", "xz"))]
        for key, unit, what in ("ratio", "x", "plain by coded bytes"), ("in_mb_s", "MB/s", "coding"):
            rows = {scheme: {key: samples(r[key])} for scheme, r in one["rows"].items()}
            result += table(f"aware-{name}-{slug(unit)}", f"aware: {name}, {what}", unit, rows, others=frozenset(set(rows) - set(ours)),
                            precise=key == "ratio")
        for key, x in ("by_group", "ranks"), ("by_block", "KiB"):
            rows = {float(value): {scheme: samples(v) for scheme, v in r.items()} for value, r in one.get(key, {}).items()}
            result += table(f"aware-{name}-{slug(key)}", f"aware: {name}, plain by coded bytes", "x", rows, x=x)
        result += space_set("aware", name, {k: one[k] for k in ("others", "compacted") if k in one})
        for key, what in ("restore", ""), ("restore_small", ", small files"):
            rows = {limit: row(r, coded=("coded", 1e-6), plain=("plain", 1e-6)) for limit, r in one.get(key, {}).get("rates", {}).items()}
            result += table(f"aware-{name}-{slug(key)}", f"aware: {name}, restore{what}", "MB/s", rows, reference="plain", precise=False)
    return result


def images(group, g):
    smaller = {}
    for name, one in g.get("reduction", {}).items():
        if "skipped" not in one:
            whole = one["kinds"]["all"]["original_bytes"]
            smaller[name] = {way: [100 * (1 - taken / whole)] for way, taken in one["stored_bytes"].items()}
    times = {}
    for key, shown in ("first_durable_s", "first dump, durable"), ("next_durable_s", "later dumps, durable"), ("restore_s", "restore, cold"), ("restore_cached_s", "restore, cached"):
        for r in g.get("times", {}).get("rows", []):
            times.setdefault(shown, {}).setdefault(r["rival"], []).append(r[key])
    disk = next(iter(next(iter(times.values()), {})), None)  # the first is the disk's filesystem
    return (table("images", "images: smaller in a store", "%", smaller)
            + table("images-seconds", "images: dump and restore", "s", times, "less", reference=disk, precise=False))


def users(group, g):
    rows = {name: row(f, **{"median": ("p50_us", 1e-3), "99th percentile": ("p99_us", 1e-3)}) for name, f in g.items() if isinstance(f, dict)}
    return table("users", "users: rounds of one user beside requests of another", "ms", rows, "less", precise=False)


def tier(group, g):
    seconds = g.get("seal", {}).get("seconds", {})
    seals = {place: {"with a tier": [1e3 * s for s in taken], "without": [1e3 * s for s in seconds["local"]]}
             for place, taken in seconds.items() if place != "local"}
    flushes = {f"{place}, {title}": {rival: samples(v) for rival, v in r["GB/s"].items()}
               for place, those in g.get("flush", {}).items() for title, r in those.items()}
    sent = {f"{place}, {r['case']}": row(r, new=("new_bytes", 1 / MIB), sent=("sent_bytes", 1 / MIB))
            for place, those in g.get("sent", {}).items() for r in those}
    puts = {f"{place}, {r['case']}": {"puts": samples(r["tier_objects"] if r["puts"] is None else r["puts"])}
            for place, those in g.get("sent", {}).items() for r in those}
    restores = {place: {rival: samples(v) for rival, v in r["GB/s"].items()} for place, r in g.get("restore", {}).items()}
    return (table("tier-seal", "tier: seal beside a flush", "ms", seals, "less", reference="without", precise=False)
            + table("tier-flush", "tier: flush", "GB/s", flushes, reference="put", precise=False, subjects=["ckptfs"])
            + table("tier-sent", "tier: sent for a checkpoint", "MiB", sent, "less", subjects=["sent"])
            + table("tier-puts", "tier: PUTs for a checkpoint", "PUTs", puts, "less")
            + table("tier-restore", "tier: cold restore", "GB/s", restores, reference="get", precise=False))


SPEED = ["write", "restore", "small", "meta", "compress", "cores"]
OTHERS = {"index": lambda group, g: by_unit(group, "index", g), "chunk": lambda group, g: by_unit(group, "chunk", g), "space": space,
          "ten": ten, "mixes": space, "gc": gc, "cluster": cluster, "gpu": gpu, "client": client, "aware": aware, "images": images,
          "tier": tier, "users": users}
GROUPS = SPEED + list(OTHERS)


def groups_in(report):
    """Names of groups, as ./bench takes them."""
    those = {c["group"] for c in report["cases"]}
    return [name for name in GROUPS if name in those or report.get(name)]


def size_of(report, group):
    """MiB that --size was, or None where a report does not say."""
    value = report.get("sizes", {}).get(group)
    return value if value is not None else report.get(group, {}).get("size_mib")


def tables(report):
    result = []
    for name in groups_in(report):
        size = size_of(report, name)
        if name in OTHERS:
            result += [dataclasses.replace(t, size=size) for t in OTHERS[name](name, report[name])]
        else:
            result += cases(name, [c for c in report["cases"] if c["group"] == name], report["machine"]["filesystem"], size)
    return result
