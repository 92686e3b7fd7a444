"""Checkpoints of HyenaDNA as its authors' trainer writes them, to folders of models."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import danaus
from conftest import run_program

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench" / "baselines"))
torch_hyena = pytest.importorskip("torch_hyena")

CONVERT = ROOT / "scripts" / "convert_hyena_dna.py"
LENGTH = 90


class Options:
    """What a trainer puts beside the weights, whose code must not run."""

    def __reduce__(self):
        return print, ("this must not run",)


def convert(*args):
    return run_program(CONVERT, *args)


def original(network, nested: bool) -> OrderedDict:
    """The names of the trainer's checkpoints, of activations too if they are nested."""
    found = OrderedDict()
    for name, tensor in torch_hyena.tensors(network).items():
        name = "model." + name.removeprefix("hyena.")
        if nested:
            name = re.sub(r"\.(mixer|mlp)\.", r".\1.layer.", name)
        found[name] = tensor.detach().clone()
        if name.endswith(".1.freq"):
            for other in ".3.freq", ".5.freq":
                found[name.removesuffix(".1.freq") + other] = found[name]
    found["model.lm_head.weight"] = network.word.weight.detach()
    return found


@pytest.mark.parametrize("nested", [True, False])
def test_models_are_those_of_pytorch(tmp_path, rng, nested):
    torch.manual_seed(7)
    network = torch_hyena.HyenaDNA(16, 2, LENGTH).eval()
    network.head.weight = network.word.weight
    checkpoint = {"epoch": 3, "state_dict": original(network, nested)}
    checkpoint |= {"hyper_parameters": {"model": Options()}, "loops": [Options()]}
    torch.save(checkpoint, tmp_path / "weights.ckpt")
    done = convert(tmp_path / "weights.ckpt", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert "must not run" not in done.stdout
    model = danaus.Model(tmp_path / "new")
    info = model.describe()
    sizes = info.layers, info.width, info.vocabulary, info.max_length
    assert sizes == (2, 16, 12, LENGTH)
    ids = rng.integers(7, 12, LENGTH).tolist()
    with torch.inference_mode():
        wanted = network(torch.tensor([ids]))[0].numpy()
    (scores,) = model.score_tokens([ids])
    np.testing.assert_allclose(scores[1:], wanted, rtol=0, atol=2e-5)
    assert model.score(["ACGT"])[0].shape == (4,)


def test_the_vocabulary_is_that_of_the_authors_configuration(tmp_path):
    network = torch_hyena.HyenaDNA(8, 1, 20).eval()
    torch.save({"state_dict": original(network, False)}, tmp_path / "weights.ckpt")
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 14}))
    for options, wanted in ([], 14), (["--vocabulary", "16"], 16):
        done = convert(tmp_path / "weights.ckpt", tmp_path / "new", *options)
        assert done.returncode == 0, done.stderr
        assert danaus.Model(tmp_path / "new").describe().vocabulary == wanted
    done = convert(tmp_path / "weights.ckpt", tmp_path / "no", "--vocabulary", "17")
    assert done.returncode == 1 and "16 words" in done.stderr


def test_other_files_are_refused(tmp_path):
    torch.save({"state_dict": {"a": torch.ones(3)}}, tmp_path / "other.ckpt")
    done = convert(tmp_path / "other.ckpt", tmp_path / "new")
    assert done.returncode == 1 and "word_embeddings" in done.stderr
    (tmp_path / "text.ckpt").write_text("no checkpoint")
    done = convert(tmp_path / "text.ckpt", tmp_path / "new")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert not (tmp_path / "new").exists()
