#!/usr/bin/env python3
"""Prints a suite of shapes that nobody chose: `any.py SEED [--factors N] [--batches N,N,...] > FILE.csv`.

100 patterns (a, b, c, d) with a and d from 1 to 128, b and c from 1 to 1,024, and 60
chains of 2 to 4 factors of such sizes that can be factorised, each at four batches.
Sizes are drawn evenly by logarithm, and are odd as often as even. What is too large for
a small GPU is drawn again: more than 40,000 numbers of x, y or between two factors, or
2^25 weights. The same seed gives the same suite everywhere. --factors has 40 chains of so many
factors and nothing else.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import math
import random

BATCHES = [25000, 1000, 196, 16]
MOST_NUMBERS = 40000
MOST_WEIGHTS = 2**25


def size(draw, most):
    """1 to most, by logarithm; the neighbour below is taken for half of those of the other parity."""
    found = int(math.exp(draw.uniform(0, math.log(most + 1))))
    odd = draw.random() < 0.5
    return max(1, min(found, most)) if found % 2 == odd else max(1, found - 1)


def pattern(draw):
    return [(size(draw, 128), size(draw, 1024), size(draw, 1024), size(draw, 128))]


def chain(draw, count=None):
    """From left to right a grows by q and d shrinks by p; r is the block rank between two factors."""
    count = count or draw.randint(2, 4)
    most = round(4096 ** (1 / count))
    q, p, r = ([size(draw, m) for _ in range(count)] for m in (most, most, 8))
    found, a = [], 1
    for n in range(count):
        b = p[n] * (r[n - 1] if n else 1)
        c = q[n] * (r[n] if n < count - 1 else 1)
        found.append((a, b, c, math.prod(p[n + 1 :])))
        a *= q[n]
    return found


def is_fit(factors):
    vectors = [a * c * d for a, b, c, d in factors] + [math.prod(factors[0]) // factors[0][2]]
    weights = [a * b * c * d for a, b, c, d in factors]
    return max(vectors) <= MOST_NUMBERS and sum(weights) <= MOST_WEIGHTS


def suite(seed, count=None):
    draw = random.Random(seed)
    kinds = [(lambda d: chain(d, count), 40)] if count else [(pattern, 100), (chain, 60)]
    for make, wanted in kinds:
        found = 0
        while found < wanted:
            factors = make(draw)
            if is_fit(factors):
                found += 1
                yield " ".join("%d,%d,%d,%d" % f for f in factors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--factors", type=int)
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    o = parser.parse_args()
    print(f"# any.py {o.seed}")
    print("problem,batch")
    for problem in suite(o.seed, o.factors):
        for batch in o.batches.split(","):
            print(f'"{problem}",{batch}')


if __name__ == "__main__":
    main()
