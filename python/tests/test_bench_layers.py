"""bench/torch_layers.py at small sizes: all records are there, results are right."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest

from conftest import bench_records

pytest.importorskip("torch")


def test_the_benchmark_of_layers_and_networks_runs(device: str, tmp_path):
    records = bench_records(
        "torch_layers.py", tmp_path, "--device", device, "--rounds", "1"
    )
    layers = [r for r in records if r["kind"] == "layer"]
    networks = [r for r in records if r["kind"] == "network"]
    ways = 1 if device == "cpu" else 2
    # Three layers in two types, forward and training.
    assert len(layers) == 3 * 2 * 2 * ways
    # Forward of three networks; two of them are trained, eager.
    assert len(networks) == 3 * ways + 2
    for r in records:
        assert float(r["ratio"]) == float(r["danaus_ns"]) / float(r["dense_ns"]) > 0
    for r in layers:
        # Partial sums of n numbers grow as the root of how many there are so far, and
        # each is rounded: sqrt(n / 2) units. 16 bits are rounded in x, weights, between
        # and y.
        unit = 2**-11 if r["dtype"] == "f16" else 2**-24
        units = 4 if r["dtype"] == "f16" else math.sqrt(1536 / 2)
        assert 0 < float(r["error"]) < units * unit
        assert r["plan"].startswith("step 0: (")


def test_the_benchmark_of_training_steps_runs(device: str, tmp_path):
    models = "m2-bert:64,hyena:64,dna:48"
    records = bench_records(
        "model_steps.py", tmp_path, "--device", device, "--models", models,
        "--tokens", "128", "--ways", "eager", "--rounds", "1",
    )  # fmt: skip
    assert [r["model"] for r in records] == ["m2-bert", "hyena", "dna"]
    for r in records:
        assert min(float(r["seconds"]), float(r["torch_seconds"])) > 0
        # Both round rows to bf16 at the same places; the loss is a mean of f32.
        assert float(r["error"]) < 2**-8


def test_the_benchmark_of_packing_together_runs(device: str, tmp_path):
    records = bench_records(
        "torch_steps.py", tmp_path, "--device", device, "--rounds", "1"
    )
    ways = 1 if device == "cpu" else 2
    kinds = [r["kind"] for r in records]
    assert (kinds.count("network"), kinds.count("layer")) == (ways, 3 * ways)
    for r in records:
        assert float(r["packed_ratio"]) * float(r["dense_ns"]) == pytest.approx(
            float(r["packed_ns"])
        )
