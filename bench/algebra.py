#!/usr/bin/env python3
"""Times the algebra of chains: inverses beside LAPACK's, products beside lazylinop's, in turns.

    PYTHONPATH=build/python/tree algebra.py OUT.csv [--rounds 9] [--tiny]

The inverse is that of a dyadic chain of 4,096 in f64, `reference` LAPACK's of the dense
matrix (numpy.linalg.inv, all threads). Products are with sums, stacks, block diagonals and
Kronecker products of two chains and a batch of columns; `reference` is lazylinop's operator
of the same chains (`ksm` and `add`, `hstack`, ...). `two` is the time of the chains one
after the other; "sum unequal" has two Monarch chains whose patterns do not agree. Of
transforms `reference` is SciPy's (scipy.fft.dct), `two` the chain without its order. Medians
of rounds; `error` is the largest difference from the reference,
relative to its largest number.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import lazylinop
import numpy as np
import scipy.fft

from turns import time_all

import danaus
from danaus.lazylinop import as_ksm

sys.path.insert(0, str(Path(__file__).parent / "baselines"))
import origin  # noqa: E402

FIELDS = "version lazylinop name dtype size batch seconds reference speedup two error"


def dyadic(rng: np.random.Generator, n: int, dtype: str) -> danaus.Chain:
    """Random rotations and reflections nearby: well conditioned."""
    kind = danaus.patterns.make("dyadic", n, n)
    weights = [rng.standard_normal(p) * 0.2 for p in kind]
    for w in weights:
        w[:, [0, 1], [0, 1]] += 1
    return danaus.Chain.from_weights(weights, dtype=dtype)


def monarch(rng: np.random.Generator, n: int, dtype: str) -> danaus.Chain:
    kind = danaus.patterns.make("monarch", n, n)
    weights = [rng.standard_normal(p) / np.sqrt(p.c) for p in kind]
    return danaus.Chain.from_weights(weights, dtype=dtype)


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def inverse(rng: np.random.Generator, n: int, rounds: int) -> dict:
    chain = dyadic(rng, n, "f64")
    dense = chain.to_dense()
    seconds = time_all(
        {"chain": chain.inv, "dense": lambda: np.linalg.inv(dense)}, min(rounds, 3)
    )
    x = rng.standard_normal((n, 4))
    error = difference(chain.inv() @ x, np.linalg.solve(dense, x))
    return record("inverse", "f64", n, 0, seconds["chain"], seconds["dense"], error)


def record(name, dtype, n, batch, seconds, reference, error, two=None) -> dict:
    return {
        "version": danaus.__version__,
        "lazylinop": lazylinop.__version__,
        "name": name,
        "dtype": dtype,
        "size": n,
        "batch": batch,
        "seconds": f"{seconds:.6g}",
        "reference": f"{reference:.6g}",
        "speedup": f"{reference / seconds:.3g}",
        "two": "" if two is None else f"{two:.6g}",
        "error": f"{error:.2g}",
    }


def products(kind, a: danaus.Chain, b: danaus.Chain, batch: int, rounds: int):
    """Every combination of two chains, times `batch` columns."""
    left, right = as_ksm(a), as_ksm(b)
    small = np.random.default_rng(1).standard_normal((2, 2)).astype(a.dtype)
    made = {
        "sum": (a + b, left + right),
        "hstack": (danaus.hstack([a, b]), lazylinop.hstack((left, right))),
        "vstack": (danaus.vstack([a, b]), lazylinop.vstack((left, right))),
        "block_diag": (danaus.block_diag(a, b), lazylinop.block_diag(left, right)),
        "kron": (danaus.kron(a, small), lazylinop.kron(left, small)),
    }
    for name, (chain, operator) in made.items():
        x = np.random.default_rng(2).standard_normal((chain.shape[1], batch))
        x = x.astype(a.dtype)
        calls = {"chain": lambda: chain @ x, "lazylinop": lambda: operator @ x}
        if name == "sum":
            calls["two"] = lambda: (a @ x, b @ x)
        seconds = time_all(calls, rounds)
        yield record(
            f"{name} {kind}", a.element_type, a.shape[0], batch, seconds["chain"],
            seconds["lazylinop"], difference(chain @ x, operator @ x), seconds.get("two"),
        )  # fmt: skip


def unequal(rng, n: int, dtype: str, batch: int, rounds: int) -> dict:
    """The sum of two Monarch chains of which one has other sizes; n is a power of two."""
    a, r = monarch(rng, n, dtype), 2 ** (((n // 2).bit_length() - 1) // 2)
    kind = [(1, n // r, r, r), (r, r, n // r, 1)]
    weights = [rng.standard_normal(p) / np.sqrt(p[2]) for p in kind]
    b = danaus.Chain.from_weights(weights, dtype=dtype)
    both, operator = a + b, as_ksm(a) + as_ksm(b)
    x = rng.standard_normal((n, batch)).astype(a.dtype)
    calls = {"one": lambda: both @ x, "lazylinop": lambda: operator @ x}
    calls["two"] = lambda: (a @ x, b @ x)
    seconds = time_all(calls, rounds)
    error = difference(both @ x, operator @ x)
    return record(
        "sum unequal", dtype, n, batch, seconds["one"], seconds["lazylinop"], error,
        seconds["two"],
    )  # fmt: skip


def cosine(rng, n: int, dtype: str, batch: int, rounds: int) -> dict:
    """The DCT-II, as a plan of its chain and order."""
    transform = danaus.transforms.dct2(n, dtype)
    x = rng.standard_normal((n, batch)).astype(transform.dtype)
    calls = {"one": lambda: transform @ x, "scipy": lambda: scipy.fft.dct(x, axis=0)}
    calls["chain"] = lambda: transform.chain @ x
    seconds = time_all(calls, rounds)
    error = difference(transform @ x, scipy.fft.dct(x, axis=0) / 2)
    return record(
        "dct2", dtype, n, batch, seconds["one"], seconds["scipy"], error,
        seconds["chain"],
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tiny", action="store_true", help="small sizes, one round")
    o = parser.parse_args()
    rng, rounds = np.random.default_rng(0), 1 if o.tiny else o.rounds
    n, large, batch = (64, 128, 10) if o.tiny else (2048, 4096, 1000)
    rows = [inverse(rng, large, rounds)]
    for kind, make in ("monarch", monarch), ("dyadic", dyadic):
        for dtype in "f32", "f64":
            pair = make(rng, n, dtype), make(rng, n, dtype)
            rows += products(kind, *pair, batch, rounds)
    for dtype in "f32", "f64":
        rows.append(unequal(rng, n, dtype, batch, rounds))
        rows.append(cosine(rng, large, dtype, batch, rounds))
    with open(o.out, "w", newline="") as file:
        table = origin.Table(file, FIELDS.split())
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
