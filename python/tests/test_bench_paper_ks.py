"""bench/paper_ks.sh and paper_ks_models.py at small sizes: records, errors, shares."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import os
import subprocess
import sys

import pytest

from conftest import BENCH, run_bench
from danaus._library import FOLDER

pytest.importorskip("torch")
LAYERS = [
    name + bias for name in ("N x N", "4N x N", "N x 4N") for bias in ("", ", bias")
]


def run_all(folder):
    environment = {"PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        ["sh", BENCH / "paper_ks.sh", FOLDER / "libdanaus.so", folder, "--tiny"],
        env=os.environ | environment, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def records_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_one_command_measures_everything_and_keeps_what_it_has(tmp_path):
    run_all(tmp_path)
    files = [tmp_path / f"paper_ks{part}.csv" for part in ("", "_models")]
    check_parts(records_of(files[1]))
    products = records_of(files[0])
    assert len(products) == 5 * 2
    assert all(float(r["error"]) < 1e-5 and float(r["csr_ns"]) > 0 for r in products)
    texts = [path.read_text() for path in files]
    run_all(tmp_path)
    assert texts == [path.read_text() for path in files]
    pytest.importorskip("scipy")
    printed = run_bench("paper_ks.py", str(files[0]))
    assert "Table 2" in printed and "Tables 9 and 10" in printed


def check_parts(records):
    shares = [r for r in records if r["part"] == "share"]
    assert [r["model"] for r in shares] == ["ViT-S/16", "ViT-B/16"]
    assert all(float(r["share"]) > 0 for r in shares)
    parts = [r for r in records if r["part"] != "share"]
    of_vit = [*LAYERS, "FFN", "MHA", "block", "whole"]
    assert [r["part"] for r in parts] == [*of_vit, "blocks"]
    for r in parts:
        assert float(r["error"]) < 1e-4 and float(r["bmm_error"]) < 1e-4, r
        assert float(r["ratio"]) > 0 and float(r["bmm_ratio"]) > 0, r
