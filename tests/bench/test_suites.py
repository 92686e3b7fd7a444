#!/usr/bin/python3
"""bench/suites/paper.py lists the patterns that arXiv 2405.15013 prints: their number in
all, with each sparsity, and beside the grid of all a with d = 1, 4, 16 and 64."""

# SPDX-License-Identifier: Apache-2.0
import collections
import csv
import pathlib
import sys

SUITES = pathlib.Path("bench/suites").resolve()
sys.path.insert(0, str(SUITES))
import paper  # noqa: E402

BY_AD = {  # patterns with each a d, whose sparsity is 1 - 1 / (a d)
    1: 22,
    2: 22,
    3: 22,
    4: 22,
    6: 22,
    8: 38,
    12: 38,
    16: 38,
    24: 38,
    32: 54,
    48: 54,
    64: 54,
    96: 49,
    128: 52,
    192: 33,
    256: 24,
    384: 21,
    512: 12,
    768: 6,
    1024: 4,
    1536: 2,
}


def listed(name):
    with open(SUITES / name, newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [tuple(map(int, row["problem"].split(","))) for row in rows]


def check_counts():
    found = paper.patterns()
    assert len(found) == len(set(found)) == 627
    assert collections.Counter(a * d for a, _, _, d in found) == BY_AD
    plain = {
        (a, b, c, d)
        for a, b, c, d in paper.fitting(paper.A, [1, 4, 16, 64])
        if {b, c} not in paper.LEFT_OUT
    }
    assert len(plain) == 595
    assert len(plain & set(found)) == 392
    assert len(set(found) - plain) == 235
    assert len(plain - set(found)) == 203
    assert all(a > 1 and d == 1 for a, _, _, d in plain - set(found))


def check_energy():
    every, kept = paper.energy_patterns(), listed("paper_energy.csv")
    assert len(every) == 651
    assert len(kept) == len(set(kept)) == 120 and set(kept) <= set(every)


def check_files():
    assert listed("paper.csv") == paper.patterns()
    assert listed("paper_energy.csv") == paper.stratified(paper.energy_patterns(), 120)


if __name__ == "__main__":
    check_counts()
    check_energy()
    check_files()
