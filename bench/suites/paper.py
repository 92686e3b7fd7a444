#!/usr/bin/env python3
"""Writes paper.csv: the patterns of Figure 7 of arXiv 2405.15013 (ICML 2025).

All (a, b, c, d) from the lists below with b = c, b = 4c or c = 4b; without the
pairs {b, c} that the paper leaves out because (b + c) / (b c) is near that of
another pair; and without products in which x, y (batch 25,088) or the weights
have 2^31 - 1 elements or more. That makes 595; the paper speaks of 600.
"""
# SPDX-License-Identifier: Apache-2.0
import itertools
import pathlib

A = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]
BC = [48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
D = [1, 4, 16, 64]
LEFT_OUT = [{256, 1024}, {128, 512}, {64, 256}]
BATCH = 25088  # 128 images of 196 tokens
LIMIT = 2**31 - 1


def patterns():
    for a, b, c, d in itertools.product(A, BC, BC, D):
        ratio = b == c or b == 4 * c or c == 4 * b
        largest = max(BATCH * a * c * d, BATCH * a * b * d, a * b * c * d)
        if ratio and {b, c} not in LEFT_OUT and largest < LIMIT:
            yield a, b, c, d


def main():
    found = list(patterns())
    path = pathlib.Path(__file__).with_name("paper.csv")
    with path.open("w") as out:
        print("# arXiv 2405.15013, Figure 7; written by paper.py", file=out)
        print("problem,batch", file=out)
        for p in found:
            print('"%d,%d,%d,%d",%d' % (*p, BATCH), file=out)
    print(len(found), "patterns")


if __name__ == "__main__":
    main()
