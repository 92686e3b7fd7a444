"""bench/gpu_conv.py, few_rows.py, planes.py, match.py, group.py, packed_conv.py,
hyena_layer.py, reduced_conv.py at small sizes: all records are there and right."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import pytest

from conftest import bench_records

pytest.importorskip("torch")

FORMS = ("forward", "fresh", "gated", "backward")
PEER = """
import torch

def fft_causal_conv1d(x, weight):
    n = 2 * x.shape[2]
    z = torch.fft.rfft(x.float(), n) * torch.fft.rfft(weight.float(), n)
    return torch.fft.irfft(z, n)[..., : x.shape[2]].to(x.dtype)
"""
# The stored result is rounded, and PyTorch's gradients are.
UNITS = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-20}


def test_the_benchmark_of_convolutions_runs(device: str, tmp_path, monkeypatch):
    peer = tmp_path / "peers" / "subquadratic_ops_torch"
    peer.mkdir(parents=True)
    (peer / "fft_causal_conv1d.py").write_text(PEER)
    monkeypatch.syspath_prepend(str(peer.parent))
    records = bench_records("gpu_conv.py", tmp_path, "--device", device)
    asked = [(r["length"], r["kind"], r["dtype"], r["form"]) for r in records]
    assert asked == list(
        itertools.product(
            ("60", "256"),
            ("circular", "causal"),
            ("f16", "bf16", "f32"),
            FORMS,
        )
    )
    for r in records:
        beside = r["kind"] == "causal" and r["form"] in ("fresh", "backward")
        assert bool(r["subquadratic_seconds"]) == beside
        if r["form"] == "forward":
            assert min(float(r["model_seconds"]), float(r["memory"])) > 0
        assert min(float(r["seconds"]), float(r["floor"]), float(r["ratio"])) > 0
        assert 0 < float(r["error"]) < 3 * UNITS[r["dtype"]]


def test_the_benchmark_of_few_rows_runs(device: str, tmp_path):
    records = bench_records("few_rows.py", tmp_path, "--device", device)
    asked = [(r["length"], r["batch"], r["kind"]) for r in records]
    kinds = ("causal", "circular")
    assert asked == list(itertools.product(("60", "256"), ("1", "2"), kinds))
    for r in records:
        assert min(float(r[f"{c}_ratio"]) for c in ("ready", "fresh", "step")) > 0
        assert 0 < float(r["error"]) < 3 * UNITS["bf16"]


def test_the_benchmark_of_templates_runs(tmp_path):
    (record,) = bench_records("match.py", tmp_path)
    assert (record["templates"], record["taps"], record["length"]) == ("3", "20", "500")
    assert min(float(record["seconds"]), float(record["scipy_ratio"])) > 0


def test_the_benchmark_of_planes_runs(device: str, tmp_path):
    records = bench_records("planes.py", tmp_path, "--device", device)
    asked = [(r["size"], r["kind"], r["taps"]) for r in records]
    kinds = ("causal", "centred", "circular")
    assert asked == [
        (size, kind, taps)
        for size in ("9", "16")
        for kind in kinds
        for taps in ("3", size)
    ]
    for r in records:
        assert min(float(r[f"{c}_ratio"]) for c in ("ready", "fresh", "step")) > 0
        assert float(r["own"]) > 0 and 0 < float(r["error"]) < 1e-5
        assert bool(r["scipy"]) == (device == "cpu" and r["kind"] != "circular")


def test_the_benchmark_of_groups_runs(tmp_path):
    pytest.importorskip("torch.distributed")
    options = "--ranks", "2", "--device", "cpu"
    (record,) = bench_records("group.py", tmp_path, *options)
    assert (record["ranks"], record["length"], record["ratio"]) == ("2", "120", "1.00")
    assert min(float(record[name]) for name in ("seconds", "local", "exchange")) > 0
    assert 0 < float(record["error"]) < 3 * UNITS["bf16"]


def test_the_benchmark_of_any_length_runs(device: str, tmp_path):
    records = bench_records("gpu_conv.py", tmp_path, "--any-length", "--device", device)
    asked = [(r["dtype"], r["kind"], r["length"], r["next"]) for r in records]
    lengths = (("causal", "60", "64"), ("causal", "100", "128"))
    lengths += (("circular", "60", ""), ("circular", "100", ""))
    assert asked == [(dtype, *of) for dtype in UNITS for of in lengths]
    for r in records:
        assert float(r["per_number"] if r["next"] else r["ratio"]) > 0
        assert 0 < float(r["error"]) < 3 * UNITS[r["dtype"]]


def test_the_benchmark_of_packed_sequences_runs(device: str, tmp_path):
    records = bench_records("packed_conv.py", tmp_path, "--device", device)
    asked = [(r["sequences"], r["dtype"], r["form"]) for r in records]
    assert asked == list(
        itertools.product(("1", "7"), ("f16", "f32"), ("forward", "gated", "backward"))
    )
    for r in records:
        assert min(float(r["seconds"]), float(r["equal_seconds"])) > 0
        assert 0 < float(r["error"]) < 3 * UNITS[r["dtype"]]


def test_the_benchmark_of_hyena_layers_runs(device: str, tmp_path):
    records = bench_records("hyena_layer.py", tmp_path, "--device", device)
    asked = [
        (r["form"], r["length"], r["dtype"], r["order"], r["part"], r["phase"])
        for r in records
    ]
    dtypes = ("f32",) if device == "cpu" else ("f16", "f32")
    assert asked == list(
        itertools.product(
            ("rows", "packed"),
            ("40", "64"),
            dtypes,
            ("2", "3"),
            ("layer", "operator"),
            ("forward", "training"),
        )
    )
    for r in records:
        assert min(float(r["seconds"]), float(r["torch_seconds"])) > 0
        assert 0 < float(r["error"]) < 8 * UNITS[r["dtype"]]


def test_the_benchmark_of_reduced_convolutions_runs(device: str, tmp_path):
    records = bench_records("reduced_conv.py", tmp_path, "--device", device)
    assert len(records) == 2 * 2 * 5
    for r in records:
        assert min(float(r["seconds"]), float(r["whole_seconds"])) > 0
        assert (float(r["kept"]) == 1) == (r["form"] == "whole")
