"""bench/select_rule.py at small sizes: patterns, budgets and errors."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from conftest import bench_records


def test_the_rule_is_measured_beside_fit(tmp_path):
    records = bench_records("select_rule.py", tmp_path)
    assert [r["pattern"] for r in records] == ["24,1,2,1", "4,6,12,1"] * 2
    for r in records:
        least = int(r["rows"]) + int(r["cols"])
        assert int(r["chain_parameters"]) <= max(int(r["parameters"]), least)
        assert 0 < float(r["chain_error"]) <= float(r["error"]) < 1
        assert float(r["ratio"]) > 0
