"""bench/paper_ks_models.py at small sizes: every part, its errors and shares."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from conftest import bench_records

pytest.importorskip("torch")
LAYERS = [
    name + bias for name in ("N x N", "4N x N", "N x 4N") for bias in ("", ", bias")
]


def test_parts_of_transformers_are_measured(tmp_path):
    records = bench_records(
        "paper_ks_models.py", tmp_path, "--device", "cpu", "--dtypes", "f32"
    )
    shares = [r for r in records if r["part"] == "share"]
    assert [r["model"] for r in shares] == ["ViT-S/16", "ViT-B/16"]
    assert all(float(r["share"]) > 0 for r in shares)
    parts = [r for r in records if r["part"] != "share"]
    of_vit = [*LAYERS, "FFN", "MHA", "block", "whole"]
    assert [r["part"] for r in parts] == [*of_vit, "blocks"]
    for r in parts:
        assert float(r["error"]) < 1e-4 and float(r["bmm_error"]) < 1e-4, r
        assert float(r["ratio"]) > 0 and float(r["bmm_ratio"]) > 0, r
