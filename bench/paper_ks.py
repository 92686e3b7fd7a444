#!/usr/bin/env python3
"""Prints the tables of arXiv 2405.15013 from records of one run of baselines/torch_ks.py.

    paper_ks.py RECORDS.csv...

A pattern counts by each method's least time over both layouts ("both"), and by the times of
each layout alone. Wins are the share of patterns where the left methods' least time is below
the right ones'; speeds are medians over these wins, and over all patterns. `ours` is danaus;
dense and CSR are what the paper calls generic. Density is 1 / (a d), h = (b + c) / (b c).
The regression is log(speed) = k0 + k1 log(density) + k2 log(h), by least squares, with
the test of Shapiro and Wilk on its residuals. Energy is ours over the least of bmm, einsum
and BSR; records that have it count for nothing else. Records of more than one commit, device or machine are refused.
"""

# SPDX-License-Identifier: Apache-2.0
import math
import sys
from typing import NamedTuple

import numpy as np
from scipy import stats

import median
import records as files

VIEWS = {"both": ("first", "last"), "first": ("first",), "last": ("last",)}
BASELINES = ("bmm", "einsum", "bsr")
GENERIC = ("dense", "csr")
COMPARED = {  # name: methods that win, methods that they win over
    "ours over dense, CSR": (("ours",), GENERIC),
    "bmm over all others": (("bmm",), ("einsum", "bsr", *GENERIC)),
    "ours over bmm, einsum, BSR": (("ours",), BASELINES),
}
EACH = {f"ours over {method}": (("ours",), (method,)) for method in BASELINES + GENERIC}
REGRESSIONS = {
    "bmm": (("ours",), ("bmm",)),
    "bmm, einsum, BSR": (("ours",), BASELINES),
    "all": (("ours",), BASELINES + GENERIC),
}
SPARSITIES = 4  # groups
BINS = 6  # of h


class Product(NamedTuple):
    """A pattern with the least seconds and joules of each method."""

    density: float
    h: float
    d: int
    seconds: dict
    energy: float  # ours over the least of the others; None: not measured


# ---- from records to products ----


def least(values):
    return min((v for v in values if v), default=None)


def product_of(some):
    """The records of a pattern, one for each layout."""
    one = some[0]
    seconds = {m: least(row.methods[m] for row in some) for m in files.METHODS}
    seconds["ours"] = least(row.seconds for row in some)
    ours = least(row.field("joules") for row in some)
    theirs = least(row.field(f"{m}_joules") for row in some for m in files.ENERGY)
    return Product(
        one.density, one.h, one.d, seconds, ours / theirs if ours and theirs else None
    )


def products(rows, layouts):
    """The patterns that have records for all layouts."""
    found = {}
    for row in rows:
        if row.layout in layouts:
            found.setdefault(row.row["problem"], {})[row.layout] = row
    return [
        product_of(list(some.values()))
        for some in found.values()
        if len(some) == len(layouts)
    ]


def views(rows):
    """(dtype, view): products, those views that have any."""
    found = {}
    for dtype in dict.fromkeys(row.dtype for row in rows):
        for name, layouts in VIEWS.items():
            some = products([row for row in rows if row.dtype == dtype], layouts)
            if some:
                found[dtype, name] = some
    return found


# ---- what tables say ----


def speeds(some, methods):
    """Pairs of a product and its speed, of those whose both sides were timed."""
    left, right = methods
    for product in some:
        ours, theirs = (
            least(product.seconds[m] for m in side) for side in (left, right)
        )
        if ours and theirs:
            yield product, theirs / ours


class Wins(NamedTuple):
    count: int  # of patterns
    share: float
    won: float  # median speed of the wins; nan without any
    speed: float  # median of all


def wins(some, methods):
    """None where no pattern was timed by both sides."""
    found = np.array([speed for _, speed in speeds(some, methods)])
    if not len(found):
        return None
    won = found[found > 1]
    of_won = np.median(won) if len(won) else math.nan
    return Wins(len(found), np.mean(found > 1), of_won, np.median(found))


def by_sparsity(some, methods):
    """Least and greatest sparsity, and wins, of groups with as many patterns, dense ones
    first."""
    ordered = sorted(some, key=lambda p: -p.density)
    for part in np.array_split(np.arange(len(ordered)), SPARSITIES):
        group = [ordered[k] for k in part]
        found = wins(group, methods)
        if found:
            yield 1 - group[0].density, 1 - group[-1].density, found


def correlation(x, y):
    """Pearson's; nan where a side is constant or too short."""
    if len(x) < 3 or not np.ptp(x) or not np.ptp(y):
        return math.nan
    return stats.pearsonr(x, y)[0]


def by_h(some, methods):
    """Least and greatest h, wins, and the correlation of log h and log speed, of BINS groups;
    products of one h stay together."""
    pairs = sorted(speeds(some, methods), key=lambda pair: pair[0].h)
    h = np.array([product.h for product, _ in pairs])
    edges = np.quantile(h, np.arange(1, BINS) / BINS) if len(h) else []
    place = np.searchsorted(edges, h)
    for k in range(BINS):
        group = [pair for pair, at in zip(pairs, place) if at == k]
        if group:
            own = [product.h for product, _ in group]
            speed = [value for _, value in group]
            yield (
                own[0],
                own[-1],
                wins([product for product, _ in group], methods),
                correlation(np.log(own), np.log(speed)),
            )


class Regression(NamedTuple):
    count: int
    constant: float
    of_density: float
    of_h: float
    r2: float
    adjusted_r2: float
    normality: float  # p of Shapiro and Wilk's test of the residuals
    pearson_density: float  # log density with log speed
    pearson_h: float


def regression(some, methods):
    """None where the products do not determine it."""
    pairs = list(speeds(some, methods))
    logs = np.log([(p.density, p.h, speed) for p, speed in pairs]).reshape(-1, 3)
    density, h, speed = logs.T
    columns = np.column_stack([np.ones(len(pairs)), density, h])
    if len(pairs) < 5 or np.linalg.matrix_rank(columns) < 3 or not np.ptp(speed):
        return None
    found = np.linalg.lstsq(columns, speed, rcond=None)[0]
    rest = speed - columns @ found
    r2 = 1 - rest @ rest / np.sum((speed - speed.mean()) ** 2)
    adjusted = 1 - (1 - r2) * (len(pairs) - 1) / (len(pairs) - 3)
    return Regression(
        len(pairs),
        *found,
        r2,
        adjusted,
        stats.shapiro(rest)[1],
        correlation(density, speed),
        correlation(h, speed),
    )


def energy(some):
    """Patterns, share that ours improves, median ratio, correlation of log(d h) and log
    ratio; None where none was measured."""
    known = [p for p in some if p.energy]
    if not known:
        return None
    ratio = np.array([p.energy for p in known])
    of = correlation(np.log([p.d * p.h for p in known]), np.log(ratio))
    return len(known), np.mean(ratio < 1), np.median(ratio), of


# ---- the program ----


def show(title, head, lines):
    lines = [
        [f"{value:.4g}" if isinstance(value, float) else str(value) for value in line]
        for line in lines
        if line
    ]
    if not lines:
        return
    print("\n" + title)
    table = [head, *lines]
    widths = [max(map(len, column)) for column in zip(*table)]
    for line in table:
        print("  ".join(field.rjust(width) for field, width in zip(line, widths)))


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    rows = files.read(sys.argv[1:])
    median.refuse_mixtures([row.row for row in rows])
    of = views([row for row in rows if not row.field("joules")])
    of_energy = views([row for row in rows if row.field("joules")])
    of_wins = Wins._fields

    def each(function, choices):
        return [
            (*key, name, *found)
            for name, methods in choices.items()
            for key, some in of.items()
            if (found := function(some, methods))
        ]

    def grouped(function, methods):
        return [
            (*key, low, high, *found, *more)
            for key, some in of.items()
            for low, high, found, *more in function(some, methods)
        ]

    key = ["type", "layout"]
    show("Table 2: wins", [*key, "methods", *of_wins], each(wins, COMPARED))
    show(
        "Table 5: wins over each method", [*key, "methods", *of_wins], each(wins, EACH)
    )
    ours = COMPARED["ours over bmm, einsum, BSR"]
    ranges = [*key, "from", "to", *of_wins]
    show(
        "Table 6: by sparsity, over bmm, einsum, BSR",
        ranges,
        grouped(by_sparsity, ours),
    )
    show("By h, over bmm, einsum, BSR", [*ranges, "Pearson"], grouped(by_h, ours))
    show(
        "Tables 9 and 10: regressions of log(speed)",
        [*key, "over", *Regression._fields],
        each(regression, REGRESSIONS),
    )
    show(
        "Energy over the least of bmm, einsum, BSR",
        [*key, "count", "improved", "ratio", "Pearson, d h"],
        [(*key, *found) for key, some in of_energy.items() if (found := energy(some))],
    )


if __name__ == "__main__":
    main()
