"""Programs of bench that documents name and no other test runs, at small sizes."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import importlib
import itertools

import pytest

from conftest import BENCH, run_bench, run_program

pytest.importorskip("torch")


def records(path) -> list[dict]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_sentences_of_two_files_differ(tmp_path):
    found = []
    for seed in "3", "3", "4":
        paths = [tmp_path / "fit.txt", tmp_path / "held.txt"]
        script = BENCH.parent / "scripts/sentences.py"
        done = run_program(script, paths[0], "30", paths[1], "20", "--seed", seed)
        assert done.returncode == 0, done.stderr
        found.append([path.read_text().splitlines() for path in paths])
    assert found[0] == found[1] != found[2]
    for fit, held in found:
        assert 0 < len(fit) <= 30 and 0 < len(held) <= 20
        assert len({*fit, *held}) == len(fit) + len(held)


def test_convolutions_beside_torch(tmp_path):
    out = tmp_path / "records.csv"
    run_bench(
        "baselines/torch_conv.py", str(out), "64,2,3", "--threads", "1",
        "--seconds", "0.01", "--cpu-time",
    )  # fmt: skip
    found = records(out)
    assert [r["length"] for r in found] == ["64"] * len(found)
    assert {r["form"] for r in found} == {"forward", "cached", "train"}
    assert all(float(r["ratio"]) > 0 for r in found)


def test_few_taps_beside_torch(tmp_path):
    out = tmp_path / "records.csv"
    run_bench(
        "baselines/torch_short.py", str(out), "64", "--dtypes", "f32", "--taps", "3",
        "--layouts", "first", "--bytes", "1000000",
    )  # fmt: skip
    found = records(out)
    assert [r["form"] for r in found] == ["forward", "gradient"]
    assert all(0 < float(r["error"]) < 1e-5 for r in found)


def test_what_a_call_of_a_layer_costs():
    said = run_bench("torch_overhead.py", "--runs", "2")
    assert "without gradients" in said and "forward and backward" in said


def test_a_model_of_hyenas_kind_beside_torch(tmp_path):
    out = tmp_path / "records.csv"
    run_bench("hyena.py", "token", str(out), "--size", "tiny-1k", "--at", "600",
              "--rounds", "1")  # fmt: skip
    assert all(float(r["seconds"]) > 0 for r in records(out))


def test_monarch_mixer_beside_torch(tmp_path):
    out = tmp_path / "records.csv"
    run_bench("m2_bert.py", str(out), "--lengths", "32", "--layers", "1",
              "--rounds", "1")  # fmt: skip
    (record,) = records(out)
    assert record["tokens"] == "32" and float(record["error"]) < 1e-4


class Counter:
    """A library whose energy counter goes up by a joule each time it is read."""

    def __init__(self):
        self.joules = itertools.count().__next__


def test_energy_is_measured_of_every_method_that_is_not_hopeless(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH / "baselines"))
    torch_ks = importlib.import_module("torch_ks")
    cpu = torch_ks.Processor()
    cpu.energy_window = 0
    case = torch_ks.Case(cpu, "2,16,16,2", "f32", True, 5)
    times = {"bmm": 1e-4, "einsum": 2e-4, "bsr": 1e-3, "dense": 1e-4}
    found = torch_ks.energy_of_methods(cpu, Counter(), case, times)
    assert set(found) == {"bmm_joules", "einsum_joules"}
    assert all(joules > 0 for joules in found.values())
