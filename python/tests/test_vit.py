"""Vision transformers against those of PyTorch, with the same weights."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import json

import numpy as np
import pytest

import danaus
from conftest import run_bench
from danaus import records

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def folder_of(tmp_path, seed=0, headless=False, **sizes):
    """A random transformer and its folder."""
    sizes = {
        "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
        "intermediate_size": 40, "image_size": 12, "patch_size": 4, "num_labels": 7,
        **sizes,
    }  # fmt: skip
    torch.manual_seed(seed)
    config = transformers.ViTConfig(initializer_range=0.3, **sizes)
    kind = "ViTModel" if headless else "ViTForImageClassification"
    model = getattr(transformers, kind)(config).eval()
    for p in model.parameters():
        if p.dim() == 1:
            torch.nn.init.normal_(p, mean=0.5)
    model.save_pretrained(tmp_path)
    return model, tmp_path


def images(rng, count, channels=3, size=12):
    return rng.standard_normal((count, channels, size, size)).astype(np.float32)


def expect_close(found, wanted):
    wanted = wanted.double().numpy()
    assert found.shape == wanted.shape and found.dtype == np.float32
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert error < 2e-6, error


@pytest.mark.parametrize("sizes", [
    dict(), dict(num_labels=1000), dict(image_size=13), dict(patch_size=12),
    dict(num_channels=1), dict(hidden_act="relu"), dict(hidden_act="gelu_new"),
    dict(num_hidden_layers=5, hidden_size=36, num_attention_heads=1),
    dict(image_size=40, patch_size=1, num_hidden_layers=1),
])  # fmt: skip
def test_scores_and_embeddings_are_pytorchs(rng, tmp_path, sizes):
    reference, folder = folder_of(tmp_path, **sizes)
    model = danaus.Model(folder)
    c = reference.config
    x = images(rng, 3, c.num_channels, c.image_size)
    reference = reference.double()
    with torch.no_grad():
        scores = reference(torch.from_numpy(x).double()).logits
        rows = reference.vit(torch.from_numpy(x).double()).last_hidden_state
    expect_close(model.classify(x), scores)
    expect_close(model.embed_images(x), rows[:, 0])
    info = model.describe()
    assert info.architecture == "vit" and info.classes == c.num_labels
    assert (info.image_channels, info.image_size) == (c.num_channels, c.image_size)
    assert info.parameters == sum(p.numel() for p in reference.parameters())


def test_many_images_are_as_one(rng, tmp_path):
    _, folder = folder_of(tmp_path, image_size=32, patch_size=2)
    model, x = danaus.Model(folder), images(rng, 11, size=32)
    found = model.classify(x)
    for i in range(11):
        np.testing.assert_allclose(
            model.classify(x[i : i + 1])[0], found[i], rtol=1e-4, atol=1e-5
        )
    assert model.classify(x[:0]).shape == (0, 7)
    np.testing.assert_array_equal(model.classify(x.astype(np.float64)), found)


@pytest.mark.parametrize("headless", [False, True])
def test_compressed_by_images_or_weights_alone(rng, tmp_path, headless):
    """A share of the weights remains, and the saved model is the same."""
    _, folder = folder_of(tmp_path, headless=headless)
    x = images(rng, 60)
    dense = danaus.Model(folder).embed_images(x)
    for samples in x, None:
        model, done = danaus.Model(folder), []
        model.compress(params=0.6, images=samples, progress=done.append)
        assert done == sorted(done) and done[-1] == 1
        info, found = model.describe(), model.embed_images(x)
        assert info.linear_parameters <= 0.6 * info.dense_parameters
        assert 1e-4 < np.linalg.norm(found - dense) / np.linalg.norm(dense) < 0.9
        model.save(tmp_path / "new")
        again = danaus.Model(tmp_path / "new").embed_images(x)
        np.testing.assert_allclose(again, found, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="are needed"):
        model.compress(images=x[:, :1])


def test_layers_may_be_chains(rng, tmp_path):
    """The product of factors as a dense layer gives the same."""
    from safetensors.numpy import load_file, save_file

    reference, folder = folder_of(tmp_path)
    arrays = load_file(folder / "model.safetensors")
    name = "vit.encoder.layer.1.intermediate.dense"
    factors = [
        rng.standard_normal(s).astype(np.float32) for s in ((1, 10, 3, 4), (4, 3, 6, 1))
    ]
    arrays[f"{name}.weight"] = danaus.Chain.from_weights(factors).to_dense()
    save_file(arrays, folder / "model.safetensors")
    x = images(rng, 2)
    dense = danaus.Model(folder).classify(x)
    del arrays[f"{name}.weight"]
    arrays.update({f"{name}.weights.{i}": w for i, w in enumerate(factors)})
    save_file(arrays, folder / "model.safetensors")
    model = danaus.Model(folder)
    np.testing.assert_allclose(model.classify(x), dense, rtol=1e-4, atol=1e-5)
    info = model.describe()
    assert info.dense_parameters - info.linear_parameters == 40 * 24 - 120 - 72


def test_without_a_classifier(rng, tmp_path):
    reference, folder = folder_of(tmp_path, headless=True)
    model, x = danaus.Model(folder), images(rng, 2)
    with torch.no_grad():
        rows = reference.double()(torch.from_numpy(x).double()).last_hidden_state
    expect_close(model.embed_images(x), rows[:, 0])
    with pytest.raises(NotImplementedError, match="no classifier"):
        model.classify(x)


def change(folder, name, **fields):
    config = json.loads((folder / name).read_text())
    config.update(fields)
    (folder / name).write_text(json.dumps(config))


@pytest.mark.parametrize("fields, words", [
    (dict(patch_size=13), "patch_size"),
    (dict(patch_size=0), "patch_size"),
    (dict(patch_size=3), "projection.weight is \\[.*not"),
    (dict(image_size=16), "position_embeddings is"),
    (dict(image_size=2**40), "image_size"),
    (dict(image_size=2**20, patch_size=1), "too many"),
    (dict(num_attention_heads=5), "no multiple"),
    (dict(qkv_bias=False), "qkv_bias"),
    (dict(num_hidden_layers=3), "layer.2.attention.attention.query.weight is missing"),
    (dict(num_hidden_layers=1), "has no place"),
    (dict(hidden_act="tanh"), "hidden_act"),
])  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path, fields, words):
    _, folder = folder_of(tmp_path)
    change(folder, "config.json", **fields)
    with pytest.raises((ValueError, NotImplementedError), match=words):
        danaus.Model(folder)


def test_the_benchmark_runs(tmp_path):
    run_bench("vit.py", tmp_path / "out.csv", "--tiny", "--batch", "1")
    rows = records.read(tmp_path / "out.csv")
    names = [f"danaus {kind}" for kind in ("dense", "chains", "compressed")]
    assert [r["name"] for r in rows] == [*names, "PyTorch", "PyTorch chains"]
    assert all(float(row["error"]) < 1e-5 for row in rows[:2])
    dense, *fewer = (int(r["linear_parameters"]) for r in rows[:3])
    assert max(fewer) < dense


def test_wrong_images_and_calls(rng, tmp_path):
    _, folder = folder_of(tmp_path)
    model = danaus.Model(folder)
    for x in (
        np.zeros((1, 3, 12, 13)),
        np.zeros((3, 12, 12)),
        np.zeros((1, 3, 12, 12), int),
    ):
        with pytest.raises(ValueError, match="are needed"):
            model.classify(x)
    with pytest.raises(NotImplementedError, match="takes no tokens"):
        model.embed_tokens([[1, 2]])
