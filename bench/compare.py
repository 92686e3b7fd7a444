#!/usr/bin/env python3
"""Compares two runs of `danaus-bench --csv`.

    compare.py OLD.csv NEW.csv

Prints the problems whose median time has changed by more than the spreads of both
runs together (a spread is half of p90 - p10), and the median of all changes. The
exit status is 1 when a problem has become slower that way, 2 when nothing can be
compared.
"""
# SPDX-License-Identifier: Apache-2.0
import csv
import statistics
import sys

KEY = ("operation", "problem", "dtype", "layout", "batch", "instructions", "threads")


def read(path):
    with open(path, newline="") as file:
        return {tuple(row[k] for k in KEY): row for row in csv.DictReader(file)}


def spread(row):
    return (float(row["p90_ns"]) - float(row["p10_ns"])) / 2


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    old, new = map(read, sys.argv[1:])
    common = [key for key in new if key in old]
    if not common:
        print("the two runs have no problem in common", file=sys.stderr)
        return 2
    changes, slower = [], 0
    for key in common:
        before, after = float(old[key]["median_ns"]), float(new[key]["median_ns"])
        changes.append(after / before)
        if abs(after - before) > spread(old[key]) + spread(new[key]):
            slower += after > before
            words = "slower" if after > before else "faster"
            _, problem, dtype, layout, batch, *_ = key
            print(
                f"{words}  {after / before:5.2f} x  {problem}  {dtype} {layout} {batch}: "
                f"{before / 1e3:.1f} -> {after / 1e3:.1f} us"
            )
    print(
        f"{len(common)} problems, {slower} slower; new time over old: "
        f"median {statistics.median(changes):.3f}, "
        f"least {min(changes):.3f}, greatest {max(changes):.3f}"
    )
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
