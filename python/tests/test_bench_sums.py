"""bench/sums.py at small sizes: all records are there, no error is above suksd's."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from conftest import bench_records

pytest.importorskip("pandas")  # without it lazylinop 1.24 cannot be imported
pytest.importorskip("lazylinop")


def test_the_benchmark_of_sums_runs(tmp_path):
    records = bench_records("sums.py", tmp_path)
    # Two kinds of chains, one and two terms, of three matrices.
    assert len(records) == 2 * 2 * 3
    for r in records:
        error, greedy, reference = (
            float(r[key]) for key in ("error", "greedy", "reference")
        )
        assert error <= greedy * (1 + 1e-9) + 1e-12
        assert greedy == pytest.approx(reference, rel=1e-5, abs=1e-9)
