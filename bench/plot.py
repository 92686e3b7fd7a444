#!/usr/bin/env python3
"""Draws records of products against other methods, as arXiv 2405.15013 does.

    plot.py RECORDS.csv... FIGURE.png

A row of panels for each element type, of those for which the records have numbers:
time over the limit, and speed over the best method, against h = (b + c) / (b c); that
speed against size, the longer side of the matrix, and against a d; speed over the dense
product against a d; the share of bmm's time that goes into permutations; the time of
batch-first over that of batch-last, ours and bmm's; energy of ours over the least of bmm,
einsum and BSR against d h. A dot is a record; boxes are quartiles, whiskers the extremes,
one box for each group of neighbouring values. Chains are left out.
"""
# SPDX-License-Identifier: Apache-2.0
import sys

import matplotlib
import numpy as np

import records as files

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib import ticker

GROUPS = 8  # boxes in a panel, at most
COLOURS = {"first": "tab:blue", "last": "tab:orange", "ours": "tab:blue", "bmm": "tab:grey"}


# ---- what a panel shows: (x, y, whose) ----


def of_limit(rows):
    return [(r.h, r.ratio, r.layout) for r in rows if r.ratio]


def of_speed(rows):
    return [(r.h, r.speed_over("best"), r.layout) for r in rows if r.speed_over("best")]


def of_size(rows):
    return [(r.size, r.speed_over("best"), r.layout) for r in rows if r.speed_over("best")]


def of_lanes(rows):
    return [(r.a * r.d, r.speed_over("best"), r.layout) for r in rows if r.speed_over("best")]


def of_dense(rows):
    return [(r.a * r.d, r.speed_over("dense"), r.layout) for r in rows if r.speed_over("dense")]


def of_permutations(rows):
    return [(r.h, r.field("bmm_permutations"), r.layout) for r in rows
            if r.field("bmm_permutations") is not None]


def of_layouts(rows):
    pairs = {}
    for r in rows:
        pairs.setdefault((r.row["problem"], r.batch), {})[r.layout] = r
    points = []
    for pair in pairs.values():
        if len(pair) < 2:
            continue
        first, last = pair["first"], pair["last"]
        points.append((first.h, first.seconds / last.seconds, "ours"))
        if first.methods["bmm"] and last.methods["bmm"]:
            points.append((first.h, first.methods["bmm"] / last.methods["bmm"], "bmm"))
    return points


def of_energy(rows):
    return [(r.d * r.h, r.energy_ratio(), r.layout) for r in rows if r.energy_ratio()]


H = "h = (b + c) / (b c)"
AD = "a d, of sparsity 1 - 1 / (a d)"
PANELS = [  # points, words below, words beside, a line, whether y is logarithmic
    (of_limit, H, "time / limit", 1, True),
    (of_speed, H, "speed over the best method", 1, True),
    (of_size, "longer side of the matrix", "speed over the best method", 1, True),
    (of_lanes, AD, "speed over the best method", 1, True),
    (of_dense, AD, "speed over the dense product", 1, True),
    (of_permutations, H, "share of permutations in bmm", None, False),
    (of_layouts, H, "batch-first time / batch-last", 1, True),
    (of_energy, "d h", "energy / the best method's", 1, True),
]


# ---- drawing ----


def cut(values):
    """Edges of groups of neighbouring values, as many in each, on a logarithmic axis."""
    values = np.unique(values)
    parts = np.array_split(values, min(GROUPS, len(values)))
    inner = [np.sqrt(p[-1] * q[0]) for p, q in zip(parts, parts[1:])]
    step = (values[-1] / values[0]) ** (0.5 / max(1, len(parts))) if len(values) > 1 else 1.2
    return np.array([values[0] / step, *inner, values[-1] * step])


def boxes(axis, points):
    edges = cut([x for x, _, _ in points])
    names = [name for name in COLOURS if any(name == own for _, _, own in points)]
    for place, name in enumerate(names):
        for low, high in zip(edges, edges[1:]):
            some = [y for x, y, own in points if own == name and low <= x < high]
            if not some:
                continue
            width = np.log(high / low) / (len(names) + 1)
            left = low * np.exp(width * (place + 0.5))
            drawn = axis.boxplot(
                [some], positions=[left * np.exp(width / 2)],
                widths=[left * (np.exp(width) - 1)], whis=(0, 100), patch_artist=True,
                manage_ticks=False, medianprops={"color": "black"})
            drawn["boxes"][0].set(facecolor=COLOURS[name], alpha=0.4)
            axis.plot(
                [left * np.exp(width / 2)] * len(some), some, ".", color=COLOURS[name])
        axis.plot([], [], "s", color=COLOURS[name], label=name)
    axis.set_xlim(edges[0], edges[-1])


def logarithmic(axis):
    """Ticks at 1, 2 and 5 times powers of ten, in plain numbers."""
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))


def draw(axis, panel, points, dtype):
    _, below, beside, level, is_log = panel
    axis.set_xscale("log")
    boxes(axis, points)
    logarithmic(axis.xaxis)
    if is_log:
        axis.set_yscale("log")
        logarithmic(axis.yaxis)
    if level is not None:
        axis.axhline(level, color="black", linewidth=0.8)
    axis.set_xlabel(below)
    axis.set_ylabel(f"{beside} ({dtype})")
    axis.grid(alpha=0.3, which="both")
    axis.legend(fontsize=8)


def main():
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    rows = files.read(sys.argv[1:-1])
    by_type = {}
    for row in rows:
        by_type.setdefault(row.dtype, []).append(row)
    panels = [panel for panel in PANELS if panel[0](rows)]
    if not panels:
        sys.exit("the records have nothing to draw: neither limits nor other methods")
    figure, axes = plt.subplots(
        len(by_type), len(panels), figsize=(4.6 * len(panels), 4 * len(by_type)),
        squeeze=False)
    for line, (dtype, some) in zip(axes, by_type.items()):
        for axis, panel in zip(line, panels):
            points = panel[0](some)
            if points:
                draw(axis, panel, points, dtype)
            else:
                axis.set_axis_off()
    facts = rows[0].row
    batches = sorted({int(row.batch) for row in rows})
    figure.suptitle(
        ", ".join(filter(None, [facts.get("device"), facts.get("instructions"),
                                "batch " + ", ".join(map(str, batches))])))
    figure.tight_layout()
    figure.savefig(sys.argv[-1], dpi=110)


if __name__ == "__main__":
    main()
