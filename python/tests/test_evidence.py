"""The programs of bench/evidence in their small form, on made-up data."""
# SPDX-License-Identifier: Apache-2.0

import csv
import math

import numpy as np
import pytest

from conftest import BENCH, run_bench

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

PROGRAMS = BENCH / "evidence"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH / "baselines"))
    monkeypatch.syspath_prepend(str(PROGRAMS))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(5)
    (folder / "genomes").mkdir()
    for name in ("ecoli_x", "cholerae_o395"):
        bases = "".join(random.choice(list("ACGTN"), 3000))
        (folder / "genomes" / f"{name}.fa").write_text(f">{name}\n{bases}\n")
    (folder / "text.txt").write_bytes(bytes(random.integers(97, 123, 9000, "u1")))
    digits = random.integers(0, 256, (1100, 785))
    digits[:, -1] %= 10
    np.savetxt(folder / "digits.csv", digits, "%d", ",")
    return folder


def run(name, data, tmp_path, *more):
    out = tmp_path / "record.csv"
    usual = ["--data", data, "--device", "cpu", "--seeds", "1", "--small"]
    run_bench(f"evidence/{name}", out, *usual, *more)
    assert out.with_suffix(".png").stat().st_size > 1000
    with open(out, newline="") as file:
        return list(csv.DictReader(file))


def test_recall(data, tmp_path):
    rows = run("recall.py", data, tmp_path)
    assert {(r["taps"], r["length"]) for r in rows} == {
        (taps, length) for taps in ("128", "257") for length in ("64", "256")
    }
    assert all(0 <= float(r["accuracy"]) <= 100 for r in rows)


def test_recall_asks_for_what_was_shown():
    import recall

    for length in (30, 31, 400):
        ids, asked = (x.tolist() for x in recall.sequences(3, length, "cpu"))
        for row, wanted in zip(ids, asked):
            assert len(row) == length and row[-1] < recall.KEYS <= wanted[-1]
            pairs = {}
            for t, answer in enumerate(wanted):
                if row[t] < recall.KEYS and t + 1 < length:
                    pairs.setdefault(row[t], row[t + 1])
                if answer != -100 and row[t] in pairs:
                    assert answer == pairs[row[t]]


def test_dna(data, tmp_path):
    rows = run("dna.py", data, tmp_path)
    assert {r["what"] for r in rows} == {"cut", "sparse", "trained", "longer"}
    assert all(1 < float(r["perplexity"]) < 30 for r in rows)


def test_images(data, tmp_path):
    rows = run("images.py", data, tmp_path)
    assert len({r["model"] for r in rows}) == 6


def test_text(data, tmp_path):
    rows = run("text.py", data, tmp_path)
    names = {"hyena", "hyena-torch.fft", "m2-gpt", "transformer", "m2-bert", "bert"}
    assert {r["model"] for r in rows} == names
    assert all(math.isfinite(float(r["perplexity"])) for r in rows)
    import text

    line = [("hyena", 1, 9), ("hyena", 2, 5), ("hyena-torch.fft", 4, 7)]
    made = [
        {"seed": "0", "model": m, "seconds": s, "perplexity": p} for m, s, p in line
    ]
    assert text.share_of_time(made, 0) == 1.5 / 4


def test_pathfinder(data, tmp_path):
    pytest.importorskip("skimage")
    rows = run("pathfinder.py", data, tmp_path)
    assert [(r["size"], r["seed"], r["steps"]) for r in rows] == [
        ("32", "1", str(n)) for n in range(1, 7)
    ]
    import pathfinder

    x, joined = pathfinder.pictures(str(data), 32, 40)
    assert joined.tolist() == [0, 1] * 20
    assert (x.flatten(1).sum(1) > 20).all()
