"""Monarch Mixer BERT, run by the C library, beside PyTorch on the same weights."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import pathlib
import sys

import numpy as np
import pytest

import danaus
from conftest import run_program

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench" / "baselines"))
from torch_m2_bert import Shape, random_model, tensors  # noqa: E402

SMALL = dict(width=48, inner=96, layers=2, vocabulary=61, length=150, order=24)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write(folder, shape: Shape, more: dict | None = None):
    model = random_model(shape)
    safetensors.save_file(tensors(model) | (more or {}), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(shape.config()))
    return model


def head(shape: Shape) -> dict:
    """Random weights of a head for masked words."""
    n, place = shape.width, "cls.predictions."
    return {
        f"{place}transform.dense.weight": torch.randn(n, n) / n**0.5,
        f"{place}transform.dense.bias": torch.randn(n),
        f"{place}transform.LayerNorm.weight": torch.rand(n) + 0.5,
        f"{place}transform.LayerNorm.bias": torch.randn(n),
        f"{place}decoder.bias": torch.randn(shape.vocabulary),
    }


def scores(model, weights: dict, rows):
    place = "cls.predictions."
    part = {name.removeprefix(place): x.double() for name, x in weights.items()}
    x = torch.nn.functional.gelu(
        rows @ part["transform.dense.weight"].T + part["transform.dense.bias"]
    )
    x = torch.nn.functional.layer_norm(
        x, x.shape[-1:], part["transform.LayerNorm.weight"],
        part["transform.LayerNorm.bias"], 1e-12,
    )  # fmt: skip
    return x @ model.embeddings.word_embeddings.weight.T + part["decoder.bias"]


@pytest.mark.parametrize("normed", [False, True])
def test_embeddings_are_those_of_pytorch(normed, tmp_path, rng):
    model = write(tmp_path, Shape(**SMALL, normed=normed)).double()
    lengths = [1, 2, 3, 31, 32, 33, 64, 127, 150, 5]
    sequences = [rng.integers(0, 61, n).tolist() for n in lengths]
    found = danaus.Model(tmp_path).embed_tokens(sequences)
    with torch.inference_mode():
        for ids, embedding in zip(sequences, found):
            mean = model(torch.tensor([ids]))[0].mean(0)
            wanted = torch.nn.functional.normalize(mean, dim=0)
            np.testing.assert_allclose(embedding, wanted, rtol=0, atol=1e-5)


def test_words_are_those_of_pytorch(tmp_path, rng):
    shape = Shape(**SMALL)
    weights = head(shape)
    model = write(tmp_path, shape, weights).double()
    words = SPECIAL + [f"w{i}" for i in range(55)]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer"})
    )
    encoder = danaus.Model(tmp_path)
    text = "w3 w1 [MASK] w4 w1 w5 [MASK] w9"
    ids = encoder.tokenizer.encode(text)
    with torch.inference_mode():
        rows = model(torch.tensor(ids[None].astype("i8")))[0][[3, 7]]
        wanted = scores(model, weights, rows)
    found = encoder.fill_tokens(ids, [3, 7])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    likely = wanted.softmax(1).topk(4)
    filled = encoder.fill(text, top=4)
    assert [[w.id for w in mask] for mask in filled] == likely.indices.tolist()
    for mask, row in zip(filled, likely.values):
        np.testing.assert_allclose([w.probability for w in mask], row, rtol=1e-4)
        named = [words[w.id] if w.id < 60 else str(w.id) for w in mask]
        assert [w.word for w in mask] == named
    assert encoder.fill("w3") == []
    with pytest.raises(ValueError, match=r"1 of its 1 \[MASK\] are cut off"):
        encoder.fill("w3 " * encoder.describe().max_length + "[MASK]")
    padded = [*encoder.tokenizer.encode("w3 w7"), *[0] * 96]
    same = encoder.embed_tokens([padded])
    np.testing.assert_array_equal(encoder.embed(["w3 w7"], pad=100), same)
    with pytest.raises(ValueError, match="place 0"):
        encoder.fill_tokens(ids, [len(ids)])


def test_costs_and_layers(tmp_path):
    write(tmp_path, Shape(**SMALL))
    model = danaus.Model(tmp_path)
    cost = model.estimate(3, 100)
    weights = sum(layer.parameters for layer in model.layers())
    assert cost.linear == 2 * 3 * 100 * weights
    assert cost.memory > 0 and cost.kept > 0 and cost.filters > 0
    patterns = [layer.patterns for layer in model.layers()[:4]]
    assert patterns[2:] == [((4, 48, 12, 1),), ((4, 12, 24, 1),)]
    with pytest.raises(ValueError, match="at most 150"):
        model.estimate(1, 151)


CONVERT = ROOT / "scripts" / "convert_m2_bert.py"


def convert(*args):
    return run_program(CONVERT, *args)


def test_checkpoints_are_converted(tmp_path, rng):
    """A training framework adds prefixes, copies and tensors that are no weights."""
    shape = Shape(**SMALL, normed=True)
    model, weights = random_model(shape), head(shape)
    state = {f"model.bert.{name}": x for name, x in model.state_dict().items()}
    state |= {f"model.{name}": x for name, x in weights.items()}
    words = model.embeddings.word_embeddings.weight
    state["model.cls.predictions.decoder.weight"] = words
    state["model.bert.embeddings.position_ids"] = torch.arange(150)[None]
    state["model.bert.encoder.flashfft.f_16_fft"] = torch.ones(4, dtype=torch.bfloat16)
    torch.save({"state": {"model": state, "step": 3}}, tmp_path / "checkpoint.pt")
    done = convert(tmp_path / "checkpoint.pt", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    wanted = shape.config()
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert {key: config[key] for key in wanted} == wanted
    write(tmp_path, shape, weights)
    ids = rng.integers(0, 61, 77).tolist()
    found = danaus.Model(tmp_path / "new")
    assert found.describe() == danaus.Model(tmp_path).describe()
    same = danaus.Model(tmp_path).fill_tokens(ids, [5])
    np.testing.assert_array_equal(found.fill_tokens(ids, [5]), same)


class Code:
    """What a checkpoint must not bring along."""

    def __reduce__(self):
        return print, ("this must not run",)


def test_other_checkpoints_are_refused(tmp_path):
    torch.save({"state": Code()}, tmp_path / "code.pt")
    done = convert(tmp_path / "code.pt", tmp_path / "new")
    assert done.returncode == 1 and "more than weights" in done.stderr
    assert "must not run" not in done.stdout
    torch.save({"a": torch.ones(3)}, tmp_path / "other.pt")
    done = convert(tmp_path / "other.pt", tmp_path / "new")
    assert done.returncode == 1 and "word_embeddings" in done.stderr
    assert not (tmp_path / "new").exists()
