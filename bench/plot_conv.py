#!/usr/bin/env python3
"""Draws records of gpu_conv.py: long convolutions against their length.

    plot_conv.py RECORDS.csv... FIGURE.png

A row of panels for each element type, of those for which the records have numbers: the
time of 64 x 768 rows, with the memory's floor dotted; the time of torch.fft, and of
NVIDIA's kernels, over it; memory, u and y included, over u and y; the error in L2; the
cost model's time over the measured one. A line is a kind of convolution and a form.
"""
# SPDX-License-Identifier: Apache-2.0
import csv
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib import ticker

SIZES = {"f16": 2, "bf16": 2, "f32": 4}
PEERS = {"torch": "-", "subquadratic": "--", "cudnn": ":"}


# ---- what a panel shows: a record's numbers, by the style of their line ----


def number(row, name):
    """A field's number; None where there is none."""
    return float(row[name]) if row.get(name) else None


def over(row, upper, lower="seconds"):
    a, b = number(row, upper), number(row, lower)
    return a / b if a and b else None


def of_time(row):
    return {"-": number(row, "seconds"), ":": number(row, "floor")}


def of_speed(row):
    return {style: over(row, f"{peer}_seconds") for peer, style in PEERS.items()}


def of_memory(row):
    sizes = (int(row[name]) for name in ("batch", "channels", "length"))
    array = SIZES[row["dtype"]]
    for size in sizes:
        array *= size
    ours, theirs = number(row, "memory"), number(row, "torch_memory")
    return {
        "-": 1 + ours / (2 * array) if ours else None,
        ":": (array + theirs) / (2 * array) if ours and theirs else None,
    }


def of_error(row):
    return {"-": number(row, "error")}


def of_model(row):
    return {"-": over(row, "model_seconds")}


# what, its axis, a level to draw
PANELS = (
    (of_time, "seconds (dotted: floor)", None),
    (of_speed, "torch.fft / danaus (-- subquadratic-ops, .. cuDNN)", 1),
    (of_memory, "memory / (u + y) (dotted: torch.fft)", 1),
    (of_error, "error", None),
    (of_model, "time by the model / measured", 1),
)


# ---- drawing ----


def read(paths):
    rows = []
    for path in paths:
        with open(path, newline="") as file:
            rows += csv.DictReader(file)
    if not rows or not {"over_floor", "form"} <= set(rows[0]):
        raise SystemExit("these are no records of gpu_conv.py: " + ", ".join(paths))
    return sorted(rows, key=lambda row: int(row["length"]))


def lines(rows, panel):
    """Points by line and style, of those that there are."""
    found = {}
    for row in rows:
        name = f"{row['kind']}, {row['form']}"
        for style, value in panel(row).items():
            if value is not None:
                found.setdefault((name, style), []).append((int(row["length"]), value))
    return found


def draw(axis, rows, panel, colours):
    what, label, level = panel
    for (name, style), points in lines(rows, what).items():
        legend = name if style == "-" else None
        axis.plot(*zip(*points), style, marker=".", color=colours[name], label=legend)
    axis.set(xscale="log", yscale="log", xlabel="length", ylabel=label, title=rows[0]["dtype"])
    axis.xaxis.set_major_locator(ticker.LogLocator(base=8))
    axis.xaxis.set_minor_locator(ticker.NullLocator())
    axis.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    axis.tick_params(axis="x", labelsize=7)
    axis.grid(alpha=0.3)
    if level is not None:
        axis.axhline(level, color="black", linewidth=0.8)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=8)


def main():
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    rows = read(sys.argv[1:-1])
    panels = [panel for panel in PANELS if lines(rows, panel[0])]
    names = sorted({f"{row['kind']}, {row['form']}" for row in rows})
    colours = {name: f"C{place}" for place, name in enumerate(names)}
    dtypes = [name for name in SIZES if any(row["dtype"] == name for row in rows)]
    figure, axes = plt.subplots(
        len(dtypes), len(panels), figsize=(5 * len(panels), 4 * len(dtypes)), squeeze=False)
    for line, dtype in zip(axes, dtypes):
        some = [row for row in rows if row["dtype"] == dtype]
        for axis, panel in zip(line, panels):
            draw(axis, some, panel, colours)
    figure.suptitle(rows[0]["device"].replace("_", " "))
    figure.tight_layout()
    figure.savefig(sys.argv[-1], dpi=110)


if __name__ == "__main__":
    main()
