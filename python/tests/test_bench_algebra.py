"""bench/algebra.py at small sizes: all records are there, results are right."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("pandas")  # without it lazylinop 1.24 cannot be imported
pytest.importorskip("lazylinop")

PROGRAM = pathlib.Path(__file__).parents[2] / "bench" / "algebra.py"


def test_the_benchmark_of_algebra_runs(tmp_path):
    out = tmp_path / "algebra.csv"
    subprocess.run(
        [sys.executable, PROGRAM, out, "--tiny"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
    )
    with open(out, newline="") as file:
        records = list(csv.DictReader(file))
    # The inverse; five combinations of two kinds of chains, an unequal sum and a
    # transform, in two types.
    assert len(records) == 1 + (5 * 2 + 2) * 2
    for r in records:
        assert float(r["error"]) <= (1e-5 if r["dtype"] == "f32" else 1e-13)
        assert float(r["seconds"]) > 0 < float(r["reference"])
