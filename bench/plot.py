#!/usr/bin/env python3
"""Draws the records of `danaus bench ks --baselines --csv`.

    plot.py RECORDS.csv FIGURE.png

Three panels against h = (b + c) / (b c), the ratio of bytes to operations of a
single factor: time over the limit, speed over the best baseline, and the share of
time that bmm spends in permutations (Figure 4 of arXiv 2405.15013). Chains are left
out. One colour for each d, circles for batch-first, crosses for batch-last.
"""
# SPDX-License-Identifier: Apache-2.0
import csv
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib import ticker

PANELS = [
    ("ratio", "time / limit", 1.0),
    ("speedup", "best baseline / danaus, time", 1.0),
    ("bmm_permutations", "share of permutations in bmm", None),
]


def read(path):
    """(record, h, d) of every single factor."""
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if " " in row["problem"]:
                continue
            _, b, c, d = map(int, row["problem"].split(","))
            yield row, (b + c) / (b * c), d


def logarithmic(axis):
    """Ticks at 1, 2 and 5 times powers of ten, in plain numbers."""
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    records = list(read(sys.argv[1]))
    if not records:
        sys.exit("there is no single factor in " + sys.argv[1])
    depths = sorted({d for _, _, d in records})
    colours = plt.get_cmap("viridis", max(len(depths), 2))
    figure, axes = plt.subplots(1, len(PANELS), figsize=(15, 4.6))
    for axis, (key, label, line) in zip(axes, PANELS):
        for place, d in enumerate(depths):
            for layout, mark in (("first", "o"), ("last", "x")):
                points = [
                    (h, float(row[key]))
                    for row, h, depth in records
                    if depth == d and row["layout"] == layout and row[key]
                ]
                name = f"d = {d}" if layout == "first" else None
                axis.plot(
                    *(zip(*points) if points else ([], [])), mark, label=name,
                    color=colours(place), markersize=6, markerfacecolor="none",
                )
        if line:
            axis.axhline(line, color="grey", linewidth=0.8)
            axis.set_yscale("log")
            logarithmic(axis.yaxis)
        axis.set_xscale("log")
        logarithmic(axis.xaxis)
        axis.set_xlabel("h = (b + c) / (b c)")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3, which="both")
    axes[0].legend(fontsize=9)
    facts = records[0][0]
    figure.suptitle(
        f"{facts['device']}, {facts['instructions']}, {facts['threads']} threads, "
        f"{facts['dtype']}; circles: batch first, crosses: batch last"
    )
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=110)


if __name__ == "__main__":
    main()
