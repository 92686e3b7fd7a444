#!/usr/bin/env python3
"""Prints what records say about a GPU, against the best of PyTorch's methods.

    tables.py RECORDS.csv

Records of baselines/torch_ks.py, or any with its fields. For each type and layout: how
often danaus is fastest, or within 3 %; medians and 90th percentiles of time over the
limit; median speed over each method and over the best (Tables 2 and 5 of arXiv
2405.15013, for our GPU); speed by h = (b + c) / (b c); and the least-squares fit
log(speed) = k0 + k1 log(h) + k2 log(d) (its Tables 9 and 10). Chains are left out.
"""
# SPDX-License-Identifier: Apache-2.0
import collections
import csv
import sys

import numpy as np

METHODS = ("bmm", "einsum", "dense")
BINS = 4


def read(path):
    """Records of single factors by (dtype, layout)."""
    groups = collections.defaultdict(list)
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if " " in row["problem"]:
                continue
            _, b, c, d = map(int, row["problem"].split(","))
            row |= {"h": (b + c) / (b * c), "d": d}
            groups[row["dtype"], row["layout"]].append(row)
    return groups


def numbers(rows, key):
    return np.array([float(row[key]) for row in rows])


def overview(key, rows):
    ratio, speed = numbers(rows, "ratio"), numbers(rows, "speedup")
    print(
        "%-5s %-6s %4d  %5.2f %5.2f  %5.0f%% %5.0f%%  %6.2f"
        % (*key, len(rows), np.median(ratio), np.percentile(ratio, 90),
           100 * np.mean(speed >= 1), 100 * np.mean(speed >= 0.97), np.median(speed)),
        end="",
    )
    for method in METHODS:
        timed = [row for row in rows if row[method + "_us"]]
        ours, theirs = numbers(timed, "median_us"), numbers(timed, method + "_us")
        print("  %6.2f" % np.median(theirs / ours) if timed else "       -", end="")
    print()


def by_h(key, rows):
    """Medians over as many records each, from small h (large blocks) to large h."""
    rows = sorted(rows, key=lambda row: row["h"])
    print("%-5s %-6s" % key, end="")
    for part in np.array_split(np.arange(len(rows)), BINS):
        some = [rows[i] for i in part]
        if some:
            print(
                "  %.3f..%.3f: %5.2f"
                % (some[0]["h"], some[-1]["h"], np.median(numbers(some, "speedup"))),
                end="",
            )
    print()


def fit(key, rows):
    columns = [np.ones(len(rows)), np.log(numbers(rows, "h")), np.log(numbers(rows, "d"))]
    answer = np.linalg.lstsq(
        np.stack(columns, 1), np.log(numbers(rows, "speedup")), rcond=None
    )[0]
    print("%-5s %-6s" % key, "  %6.3f  %6.3f  %6.3f" % tuple(answer))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    groups = read(sys.argv[1])
    print("dtype layout  no  ratio   p90  wins  in 3%  speed  " + "     ".join(METHODS))
    for key, rows in groups.items():
        overview(key, rows)
    print("\nmedian speed over the best, by h")
    for key, rows in groups.items():
        by_h(key, rows)
    print("\nlog(speed) = k0 + k1 log(h) + k2 log(d)")
    for key, rows in groups.items():
        if len(rows) > 3:
            fit(key, rows)


if __name__ == "__main__":
    main()
