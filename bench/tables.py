#!/usr/bin/env python3
"""Prints what records say of danaus against other methods.

    tables.py RECORDS.csv...

Records of `danaus-bench ks --baselines --csv` or of baselines/torch_ks.py: time over the
limit, and the aims of the project; how often danaus wins and by how much, over the best
method and over each; by sparsity 1 - 1 / (a d); batch-first over batch-last; and energy.
Chains are left out. The tables of arXiv 2405.15013 are those of paper_ks.py.
"""
# SPDX-License-Identifier: Apache-2.0
import sys

import numpy as np

import records as files

BINS = 4
NEAR = 0.97  # of the best method's speed
DENSE = 1.05  # times the dense product's time


def speeds(rows, method):
    found = [row.speed_over(method) for row in rows]
    return np.array([value for value in found if value is not None])


def percent(truths):
    return "%4.0f%%" % (100 * np.mean(truths)) if len(truths) else "    -"


def median(values, text="%6.2f"):
    return text % np.median(values) if len(values) else "     -"


def title(words):
    print("\n" + words)


def line(key, *fields):
    print("%-5s %-6s" % key, *fields)


def limits(key, rows):
    ratio = np.array([row.ratio for row in rows if row.ratio is not None])
    best = speeds(rows, "best")
    dense = speeds(rows, "dense")
    if len(ratio):
        line(key, "%4d" % len(rows), median(ratio), "%6.2f" % np.percentile(ratio, 90),
             percent(best >= NEAR), percent(dense >= 1 / DENSE))


def wins(key, rows):
    """The share of wins, and medians over all and over the won ones."""
    best = speeds(rows, "best")
    if not len(best):
        return
    line(key, "%4d" % len(best), percent(best > 1), median(best), median(best[best > 1]),
         median(best[best <= 1]))


def against_each(key, rows):
    """The share of wins and the median speed against each method."""
    fields = []
    if not len(speeds(rows, "best")):
        return
    for method in files.METHODS:
        speed = speeds(rows, method)
        fields.append(percent(speed > 1) + median(speed, " %5.1f"))
    line(key, *fields)


def by_sparsity(key, rows):
    """As many records in a bin as in any other, dense ones first."""
    rows = sorted(rows, key=lambda row: -row.density)
    for part in np.array_split(np.arange(len(rows)), BINS):
        some = [rows[i] for i in part]
        best, bmm = speeds(some, "best"), speeds(some, "bmm")
        if len(best):
            line(key, "%8.4f .. %6.4f" % (1 - some[0].density, 1 - some[-1].density),
                 percent(best > 1), median(best), median(bmm))


def layouts(rows):
    """Batch-first over batch-last, of ours and of bmm, for the problems that have both."""
    pairs = {}
    for row in rows:
        pairs.setdefault((row.row["problem"], row.dtype, row.batch), {})[row.layout] = row
    both = [p for p in pairs.values() if len(p) == 2]
    for dtype in dict.fromkeys(p["first"].dtype for p in both):
        some = [p for p in both if p["first"].dtype == dtype]
        ours = np.array([p["first"].seconds / p["last"].seconds for p in some])
        theirs = np.array([p["first"].methods["bmm"] / p["last"].methods["bmm"] for p in some
                           if p["first"].methods["bmm"] and p["last"].methods["bmm"]])
        line((dtype, ""), "%4d" % len(some), median(ours), median(theirs))


def energy(key, rows):
    ratio = np.array([row.energy_ratio() for row in rows if row.energy_ratio()])
    if len(ratio):
        line(key, "%4d" % len(ratio), median(ratio), "%6.2f" % ratio.max())


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    rows = files.read(sys.argv[1:])
    of = files.groups(rows)

    def table(words, one):
        title(words)
        for key, some in of.items():
            one(key, some)

    print("time over the limit: median, 90th percentile; at least %.2f of the best method's"
          " speed;\nat most %.2f of the dense product's time" % (NEAR, DENSE))
    for key, some in of.items():
        limits(key, some)
    table("Wins over the best method; median speed: of all, won, lost", wins)
    table("Wins and median speed over: " + ", ".join(files.METHODS), against_each)
    table("By sparsity 1 - 1 / (a d): wins, median speed over the best, over bmm",
          by_sparsity)
    title("Time of batch-first over batch-last: ours, bmm's")
    layouts(rows)
    if any(row.field("joules") for row in rows):
        table("Energy of a product, ours over the least of bmm's, einsum's and BSR's:"
              " median, greatest", energy)


if __name__ == "__main__":
    main()
