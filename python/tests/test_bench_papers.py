"""bench/papers.sh at small sizes: all parts are there, right, and kept."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import importlib
import os
import subprocess
import sys

import pytest

from conftest import BENCH, run_bench

pytest.importorskip("torch")
pytest.importorskip("transformers")
UNIT = 2**-24  # of f32
PARTS = {  # the program of each part
    "flashfftconv_conv": "gpu_conv.py",
    "flashfftconv_cost": "paper_conv_cost.py",
    "flashfftconv_language": "paper_conv_models.py",
    "flashfftconv_models": "paper_conv_models.py",
    "flashfftconv_sparse": "reduced_conv.py",
    "flashfftconv_taps": "paper_conv_models.py",
    "m2_bert": "m2_bert_gpu.py",
    "m2_layers": "paper_m2_layers.py",
}


def run_all(paper, folder):
    environment = {"PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        ["sh", BENCH / "papers.sh", paper, folder, "--tiny"],
        env=os.environ | environment, stdin=subprocess.DEVNULL, text=True,
        capture_output=True,
    )  # fmt: skip


def records(folder, paper) -> dict:
    """The records of each part, which say where they come from."""
    found = {}
    for path in sorted(folder.glob("*.csv")):
        with open(path, newline="") as file:
            found[path.stem] = list(csv.DictReader(file))
        for r in found[path.stem]:
            assert r["commit"] and r["machine"] and r["device"] == "cpu"
            assert r["command"].startswith(f"{PARTS[path.stem]} {path.name}.part ")
            assert "--tiny" in r["command"]
    assert list(found) == [name for name in PARTS if name.startswith(paper)]
    return found


def check_models(rows):
    filters = ("computed", "kept")
    asked = [(name, way) for name in ("M2-BERT", "Hyena-s-4K") for way in filters]
    asked += [("Path-X", "explicit")]
    asked += [(name, way) for name in ("SaShiMi", "HyenaDNA-1M") for way in filters]
    assert [(r["model"], r["filters"]) for r in rows] == asked
    # Sums of two blocks of some hundred numbers, each rounded once or twice.
    assert all(float(r["error"]) < 100 * UNIT and float(r["ratio"]) > 0 for r in rows)


def check_sparse(rows):
    zeros = {r["form"]: 1 - float(r["kept"]) for r in rows if "zeros" in r["form"]}
    assert len(zeros) == 5
    for form, share in zeros.items():
        assert form == f"sparse, {share:.0%} zeros".replace("%", " %")


def test_every_part_of_flashfftconv(tmp_path):
    done = run_all("flashfftconv", tmp_path)
    assert done.returncode == 0, done.stderr
    found = records(tmp_path, "flashfftconv")
    check_models(found["flashfftconv_models"])
    check_sparse(found["flashfftconv_sparse"])
    for r in found["flashfftconv_language"]:
        assert min(float(r[f"{way}seconds"]) for way in ("", "torch_", "gpt_")) > 0
        assert float(r["error"]) < 100 * UNIT
    assert [r["taps"] for r in found["flashfftconv_taps"]] == ["64", "16"]
    cost = {r["constant"]: float(r["value"]) for r in found["flashfftconv_cost"]}
    assert list(cost) == ["matrix", "arithmetic", "chip", "memory"]
    assert min(cost.values()) > 0
    assert {r["kind"] for r in found["flashfftconv_conv"]} == {"circular", "causal"}
    pytest.importorskip("matplotlib")
    picture = tmp_path / "cost.png"
    out = str(tmp_path / "flashfftconv_cost.csv")
    run_bench("paper_conv_cost.py", out, "--plot", str(picture))
    assert picture.stat().st_size > 1000


def test_every_part_of_m2_is_kept_and_others_are_refused(tmp_path):
    assert run_all("m2", tmp_path).returncode == 0
    found = records(tmp_path, "m2")
    for r in found["m2_bert"]:
        assert min(float(r["bert_ratio"]), float(r["plain_ratio"])) > 0
        assert float(r["error"]) < 100 * UNIT
    assert [r["model"] for r in found["m2_bert"]] == ["80M", "80M", "260M", "260M"]
    for r in found["m2_layers"]:
        assert float(r["error"]) < 100 * UNIT and float(r["used"]) > 0
        size, width = int(r["size"]), int(r["width"])
        assert int(r["operations"]) == 8 * size**1.5 * width
    path = tmp_path / "m2_layers.csv"
    text = path.read_text()
    assert run_all("m2", tmp_path).returncode == 0
    assert path.read_text() == text
    path.write_text(text.replace(found["m2_layers"][0]["commit"], "0123456789"))
    done = run_all("m2", tmp_path)
    assert done.returncode and "another commit" in done.stderr


def test_sashimi_looks_at_no_later_sample(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH / "baselines"))
    torch = importlib.import_module("torch")
    sashimi = importlib.import_module("torch_sashimi")
    torch.manual_seed(3)
    net = sashimi.Sashimi(8, 64, 1).double()
    samples = torch.randint(256, (1, 64))
    changed = samples.clone()
    changed[0, 41] = (samples[0, 41] + 1) % 256
    with torch.no_grad():
        difference = (net(samples).logits - net(changed).logits).abs().amax((0, 2))
    assert difference[:41].max() < 1e-12 < difference[41:].min()


def test_filters_of_state_spaces_are_impulse_responses(monkeypatch):
    """x' = A x + B u with steps dt, zero-order hold: k[s] = 2 Re C e^(s dt A) (e^(dt A)
    - 1) / A, up to the factor dt of C."""
    monkeypatch.syspath_prepend(str(BENCH / "baselines"))
    torch = importlib.import_module("torch")
    made = importlib.import_module("torch_sashimi").Filter(3).double()
    step = made.log_step.exp()[:, None]
    a = torch.complex(-made.log_decay.exp(), made.turns)
    x, c = ((step * a).exp() - 1) / (step * a), torch.view_as_complex(made.c)
    k = made(9)
    for s in range(9):
        assert torch.allclose(k[:, s], 2 * (c * x).sum(1).real)
        x = (step * a).exp() * x


def test_a_paper_that_is_not_there(tmp_path):
    assert run_all("butterfly", tmp_path).returncode == 2
