"""bench/algebra.py at small sizes: all records are there, results are right."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from conftest import bench_records

pytest.importorskip("pandas")  # without it lazylinop 1.24 cannot be imported
pytest.importorskip("lazylinop")


def test_the_benchmark_of_algebra_runs(tmp_path):
    records = bench_records("algebra.py", tmp_path)
    # The inverse; five combinations of two kinds of chains, an unequal sum and a
    # transform, in two types.
    assert len(records) == 1 + (5 * 2 + 2) * 2
    for r in records:
        assert float(r["error"]) <= (1e-5 if r["dtype"] == "f32" else 1e-13)
        assert float(r["seconds"]) > 0 < float(r["reference"])
