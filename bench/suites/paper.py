#!/usr/bin/env python3
"""Writes paper.csv and paper_energy.csv: the patterns that arXiv 2405.15013 measures.

Time: 627 patterns (a, b, c, d) with b = c, b = 4c or c = 4b and sizes from the lists below.
With a = 1, d takes every value of A. With a > 1, d is 4, 16 or 64, and the pairs {b, c} of
LEFT_OUT are missing, whose (b + c) / (b c) is near that of another pair. Products in which
x, y (batch 25,088) or the weights have 2^31 - 1 elements or more are left out.

The grid is derived, since the printed listing could not be copied: every pattern is one
of `patterns.in` of the authors' repository, github.com/PascalCarrivain/ksmm, and of the
values and rules of its `scripts/0_benchmark_ksmm_time.sh`. The other 101 lines of that file
belong to other experiments, among them 21 with {b, c} = {64, 256} and a > 1.

Energy: the 651 patterns of `scripts/1_benchmark_ksmm_energy.sh`, of which paper_energy.csv
has 120. They are sorted by d h, h = (b + c) / (b c), cut into 120 parts of equal number, and
the middle one of each part is taken.
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
import pathlib

A = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]
BC = [48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
D_BESIDE_A = [4, 16, 64]  # with a > 1
LEFT_OUT = [{256, 1024}, {128, 512}, {64, 256}]
ENERGY_A = [1, 4, 16, 32, 64]
ENERGY_D = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
ENERGY_KEPT = 120
BATCH = 25088  # 128 images of 196 tokens
LIMIT = 2**31 - 1


def fitting(all_a, all_d):
    """Patterns with b / c = 1, 4 or 1/4 that 32-bit indices reach."""
    for a, b, c, d in itertools.product(all_a, BC, BC, all_d):
        largest = max(BATCH * a * c * d, BATCH * a * b * d, a * b * c * d)
        if (b == c or b == 4 * c or c == 4 * b) and largest < LIMIT:
            yield a, b, c, d


def patterns():
    return [
        (a, b, c, d)
        for a, b, c, d in fitting(A, A)
        if a == 1 or d in D_BESIDE_A and {b, c} not in LEFT_OUT
    ]


def energy_patterns():
    return [
        (a, b, c, d)
        for a, b, c, d in fitting(ENERGY_A, ENERGY_D)
        if {b, c} not in LEFT_OUT
    ]


def stratified(found, count):
    """As many patterns, spread evenly over d (b + c) / (b c)."""
    ordered = sorted(found, key=lambda p: (p[3] * (p[1] + p[2]) / (p[1] * p[2]), p))
    return [ordered[(2 * k + 1) * len(ordered) // (2 * count)] for k in range(count)]


def write(name, head, found):
    with pathlib.Path(__file__).with_name(name).open("w") as out:
        print(f"# {head}; written by paper.py", file=out)
        print("problem,batch", file=out)
        for p in found:
            print('"%d,%d,%d,%d",%d' % (*p, BATCH), file=out)
    print(name, len(found), "patterns")


def main():
    write(
        "paper.csv", "arXiv 2405.15013: the patterns whose time it measures", patterns()
    )
    write(
        "paper_energy.csv",
        f"arXiv 2405.15013: {ENERGY_KEPT} of the patterns whose energy it measures",
        stratified(energy_patterns(), ENERGY_KEPT),
    )


if __name__ == "__main__":
    main()
