"""bench/sums.py at small sizes: all records are there, no error is above suksd's."""

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

PROGRAM = pathlib.Path(__file__).parents[2] / "bench" / "sums.py"


def test_the_benchmark_of_sums_runs(tmp_path):
    out = tmp_path / "sums.csv"
    subprocess.run(
        [sys.executable, PROGRAM, out, "--tiny"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
    )
    with open(out, newline="") as file:
        records = list(csv.DictReader(file))
    # Two kinds of chains, one and two terms, of three matrices.
    assert len(records) == 2 * 2 * 3
    for r in records:
        error, greedy, reference = (
            float(r[key]) for key in ("error", "greedy", "reference")
        )
        assert error <= greedy * (1 + 1e-9) + 1e-12
        assert greedy == pytest.approx(reference, rel=1e-5, abs=1e-9)
