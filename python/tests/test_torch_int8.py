"""Weights of 8 bits in PyTorch: the numbers, files of both sides, compression."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import json

import numpy as np
import pytest

import danaus

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from danaus.torch import (  # noqa: E402
    FusedLinear,
    InterpolatedLinear,
    KSLinear,
    SumLinear,
    compress,
    load_compressed,
    save_compressed,
)
from danaus.torch.int8 import narrow, round_weights, widen  # noqa: E402


@pytest.fixture(autouse=True)
def seed(rng):
    torch.manual_seed(int(rng.integers(1 << 31)))


def network() -> nn.Sequential:
    """Layers of all kinds, and one that stays."""
    chain = KSLinear(24, 36, "2,9,6,2 6,2,2,2", activation="relu")
    left, right = KSLinear(36, 12, "1,12,3,1 1,3,36,1"), KSLinear(36, 12, "12,1,3,1")
    basis, others = KSLinear(12, 3, "1,3,12,1"), KSLinear(3, 7, "1,7,3,1")
    low = InterpolatedLinear(basis, others, [4, 0, 9])
    return nn.Sequential(chain, SumLinear(left, right), low, nn.Linear(10, 4))


def dense_twin() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(24, 36), nn.Linear(36, 12), nn.Linear(12, 10), nn.Linear(10, 4)
    )


# ---- numbers ----


def test_rounded_numbers_are_within_half_a_step_and_stay_so(rng):
    for exponent in (-30, -3, 0, 20):
        a, b, c, d = rng.integers(1, 9, 4).tolist()
        w = torch.randn(a, b, c, d) * 10.0**exponent
        w[0, 0] *= float(rng.integers(2))  # perhaps a row of zeros
        integers, scale = narrow(w)
        assert integers.dtype == torch.int8 and scale.shape == (a, b, 1, d)
        found = widen(integers, scale)
        most = w.abs().amax(2, keepdim=True)
        # A scale is rounded to 17 bits: the greatest number may need 127.5 of it.
        assert bool(((found - w).abs() <= most / 127 * (0.5 + 2**-9)).all())
        again = narrow(found)
        assert torch.equal(again[0], integers) and torch.equal(again[1], scale)


def test_numbers_are_those_of_c(rng, tmp_path):
    folder = encoder_folder(tmp_path)
    model = danaus.Model(folder)
    sequences = [rng.integers(0, 61, 20).tolist() for _ in range(60)]
    model.compress(sequences, params=0.8, weights="int8")
    model.save(tmp_path / "small")
    from safetensors.torch import load_file

    tensors = load_file(tmp_path / "small" / "model.safetensors")
    names = [name for name, t in tensors.items() if t.dtype == torch.int8]
    assert names
    for name in names:
        wide = widen(tensors[name], tensors[f"{name}_scale"])
        integers, scale = narrow(wide)
        assert torch.equal(integers, tensors[name])
        assert torch.equal(scale, tensors[f"{name}_scale"])


# ---- files ----


def test_folders_keep_integers_and_scales(tmp_path):
    from safetensors.torch import load_file

    model = network()
    for layer in model[:3]:
        round_weights(layer)
    save_compressed(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    names = [name for name in tensors if ".weights." in name]
    kinds = {n: tensors[n].dtype for n in names}
    assert all((kinds[n] == torch.int8) != n.endswith("_scale") for n in names)
    assert tensors["3.weight"].dtype == torch.float32
    x = torch.randn(5, 24)
    for made in (dense_twin, dense_twin(), network()):
        found = load_compressed(made, tmp_path)
        assert torch.equal(found(x), model(x))
        assert found[0].int8 and found[1].first.int8 and found[2].others.int8


def test_what_is_no_scale_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    model = network()
    round_weights(model[0])
    save_compressed(model, tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    for change in (None, torch.ones(2, 9, 1, 1)):
        wrong = dict(tensors)
        wrong.pop("0.weights.0_scale")
        wrong |= {} if change is None else {"0.weights.0_scale": change}
        save_file(wrong, path)
        with pytest.raises(ValueError, match="0.weights.0_scale is no scale for it"):
            load_compressed(dense_twin, tmp_path)


def encoder_folder(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=40, max_position_embeddings=48, initializer_range=0.3,
    )  # fmt: skip
    model = transformers.BertModel(config, add_pooling_layer=False)
    model.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def embeddings(model, sequences) -> np.ndarray:
    found = []
    for ids in sequences:
        with torch.no_grad():
            rows = model(torch.tensor([ids])).last_hidden_state[0]
        found.append(nn.functional.normalize(rows.mean(0), dim=0))
    return torch.stack(found).numpy()


def test_encoders_of_c_load_in_pytorch_and_back(rng, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = danaus.Model(encoder_folder(tmp_path))
    sequences = [rng.integers(0, 61, n).tolist() for n in rng.integers(4, 30, 60)]
    model.compress(sequences, params=0.8, weights="int8")
    model.save(tmp_path / "c")
    wanted = model.embed_tokens(sequences)
    loaded = transformers.AutoModel.from_pretrained(tmp_path / "c").eval()
    layers = [m for m in loaded.modules() if isinstance(m, KSLinear)]
    assert layers and all(layer.int8 for layer in layers)
    found = embeddings(loaded, sequences)
    # C rounds rows to 8 bits, too.
    assert (found * wanted).sum(1).min() > 0.995
    loaded.save_pretrained(tmp_path / "torch")
    again = danaus.Model(tmp_path / "torch")
    np.testing.assert_allclose(again.embed_tokens(sequences), wanted, atol=1e-6)
    config = json.loads((tmp_path / "torch" / "config.json").read_text())
    entries = config["quantization_config"]["layers"].values()
    assert all(e.get("int8") or e["kind"] != "chain" for e in entries)


# ---- compression ----


@pytest.mark.parametrize("kinds", [["interpolated"], ["monarch", "sum"], ["low_rank"]])
def test_compressed_layers_have_rounded_weights(rng, tmp_path, kinds):
    dense = dense_twin()
    x = torch.randn(300, 24)
    model, plain = copy.deepcopy(dense), copy.deepcopy(dense)
    report = compress(model, x, 0.6, kinds=kinds, weights="int8", heads=True)
    other = compress(plain, x, 0.6, kinds=kinds, heads=True)
    assert report.layers
    for row in report.layers:
        for part in model.get_submodule(row.name).modules():
            if isinstance(part, KSLinear):
                assert part.int8
                for w in part.weights:
                    assert torch.equal(widen(*narrow(w)), w)
    errors = [sum(row.error for row in r.layers) for r in (report, other)]
    assert errors[0] == pytest.approx(errors[1], abs=0.1)
    save_compressed(model, tmp_path)
    assert torch.equal(load_compressed(dense_twin, tmp_path)(x), model(x))


def test_errors_are_those_of_rounded_weights():
    linear = nn.Sequential(nn.Linear(30, 20))
    x = torch.randn(400, 30)
    y = linear(x).detach()
    report = compress(linear, x, 0.5, weights="int8", heads=True, budgets="uniform")
    found = linear(x).detach()
    error = float((y - found).norm() / (y - y.mean(0)).norm())
    assert report.layers[0].error == pytest.approx(error, rel=1e-3)


def test_layers_train_and_are_rounded_in_files(tmp_path):
    model = network()
    round_weights(model[0])
    x = torch.randn(6, 24, requires_grad=True)
    model(x).square().sum().backward()
    assert x.grad is not None and model[0].weights[0].grad is not None
    with torch.no_grad():
        model[0].weights[0].add_(model[0].weights[0].grad, alpha=-1e-3)
    save_compressed(model, tmp_path)
    loaded = load_compressed(network(), tmp_path)
    w = model[0].weights[0]
    assert torch.equal(loaded[0].weights[0], widen(*narrow(w)))


def test_layers_say_so_and_fuse_with_their_like():
    layers = [KSLinear(6, 4, "1,4,6,1", int8=flag) for flag in (True, True, False)]
    assert [", int8=True" in repr(layer) for layer in layers] == [True, True, False]
    assert FusedLinear(layers[:2]).layer.int8
    assert FusedLinear(layers).layer is None


def test_what_is_wrong_has_a_sentence():
    with pytest.raises(ValueError, match="weights is None or 'int8', not 'int4'"):
        compress(dense_twin(), torch.randn(9, 24), weights="int4")
    with pytest.raises(ValueError, match="8 bits are real numbers"):
        KSLinear(4, 4, "1,4,4,1", dtype=torch.complex64, int8=True)
