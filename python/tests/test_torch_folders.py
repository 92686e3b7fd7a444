"""Folders of compressed models between PyTorch and the C library, both ways."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import small_models  # noqa: E402
from small_models import IDS, bert  # noqa: E402

import danaus  # noqa: E402
from danaus.torch import (  # noqa: E402
    MonarchLinear,
    compress,
    load_compressed,
    structure_of,
)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
IMAGES = torch.sin(torch.arange(4 * 3 * 16 * 16, dtype=torch.float32))
IMAGES = IMAGES.reshape(4, 3, 16, 16)


def vit():
    return small_models.vit(add_pooling_layer=False)


def of_pytorch(model):
    with torch.no_grad():
        if model.config.model_type == "vit":
            return model(IMAGES).last_hidden_state[:, 0].numpy()
        mean = model(IDS).last_hidden_state.mean(1)
        return torch.nn.functional.normalize(mean, dim=1).numpy()


def of_c(folder):
    model = danaus.Model(folder)
    if model.describe().image_size:
        return model.embed_images(IMAGES.numpy())
    return model.embed_tokens(IDS.tolist())


def near(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("make", [bert, vit])
@pytest.mark.parametrize("kind", ["interpolated", "low_rank", "monarch", "sum"])
def test_the_library_runs_what_pytorch_has_compressed(make, kind, tmp_path):
    model = make()
    data = IMAGES if make is vit else IDS
    options = {"budgets": "uniform", "permute": False, "layers": "*layer*"}
    compress(model, [data], 0.7, kinds=kind, **options)
    model.save_pretrained(tmp_path / "a", max_shard_size="30KB")
    wanted = of_pytorch(model)
    near(of_c(tmp_path / "a"), wanted)
    # What the library writes again is the same model, for PyTorch, too.
    danaus.Model(tmp_path / "a").save(tmp_path / "b")
    near(of_c(tmp_path / "b"), wanted)
    again = type(model).from_pretrained(tmp_path / "b")
    assert structure_of(again).keys() == structure_of(model).keys()
    near(of_pytorch(again), wanted)
    folders = [json.loads((tmp_path / n / "config.json").read_text()) for n in "ab"]
    entries = [folder["quantization_config"] for folder in folders]
    assert entries[0]["layers"].keys() == entries[1]["layers"].keys()
    if kind != "interpolated":
        assert entries[0] == entries[1]


KIND_OF = {"": "interpolated", "monarch": "chain", "sum": "sum"}


def plant(model, candidates, blocks=4):
    """Matrices become block-diagonal, or Monarch matrices of block rank 1."""
    with torch.no_grad():
        for layer in model.modules():
            if not isinstance(layer, torch.nn.Linear):
                continue
            w = layer.weight
            rows, cols = w.shape[0] // blocks, w.shape[1] // blocks
            if candidates == "sum":
                w *= torch.block_diag(*[torch.ones(rows, cols)] * blocks)
                continue
            for i in range(blocks):
                for part in w[i::blocks].split(cols, 1):
                    part.copy_(part[:, :1] @ part[:1] / part[0, 0])


@pytest.mark.parametrize("candidates", KIND_OF)
@pytest.mark.parametrize("make", [bert, vit])
def test_pytorch_runs_what_the_library_has_compressed(
    make, candidates, tmp_path, monkeypatch
):
    from transformers.quantizers import auto

    made = make()
    kind = type(made)
    if candidates:
        plant(made, candidates)
    made.save_pretrained(tmp_path / "a")
    model = danaus.Model(tmp_path / "a")
    more = {"candidates": [candidates] if candidates else []}
    more["params"] = 0.35 if candidates == "sum" else 0.5  # little is left for low rank
    if make is vit:
        model.compress(images=IMAGES.numpy(), **more)
    else:
        model.compress(IDS.tolist(), **more)
    model.save(tmp_path / "b")
    wanted = of_c(tmp_path / "b")
    for found in (
        kind.from_pretrained(tmp_path / "b", add_pooling_layer=False),
        load_compressed(kind, tmp_path / "b", add_pooling_layer=False),
    ):
        kinds = {layer["kind"] for layer in structure_of(found).values()}
        assert KIND_OF[candidates] in kinds
        near(of_pytorch(found), wanted)
    monkeypatch.delitem(auto.AUTO_QUANTIZER_MAPPING, "danaus")
    monkeypatch.delitem(auto.AUTO_QUANTIZATION_CONFIG_MAPPING, "danaus")
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        kind.from_pretrained(tmp_path / "b")


def test_layers_that_the_library_does_not_run_are_named(tmp_path):
    model = bert()
    name = "encoder.layer.0.intermediate.dense"
    model.set_submodule(name, MonarchLinear(32, 64, 4, activation="gelu"))
    model.save_pretrained(tmp_path)
    with pytest.raises(NotImplementedError, match=f'{name} has the activation "gelu"'):
        danaus.Model(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for entry, sentence in (
        ({"quant_method": "gptq"}, 'quant_method "gptq"'),
        ({}, 'quant_method ""'),
        ({"quant_method": "danaus", "version": 2}, "version 2; up to 1 are read"),
    ):
        path.write_text(json.dumps(config | {"quantization_config": entry}))
        with pytest.raises(NotImplementedError, match=sentence):
            danaus.Model(tmp_path)


def test_layers_that_are_chains_are_left_when_the_library_compresses(tmp_path):
    """A chain of one factor is no matrix of the file, though it is dense."""
    model = vit()
    torch.manual_seed(0)
    compress(model, [IMAGES], 1.0, layers="*fc1")
    model.save_pretrained(tmp_path)
    found = danaus.Model(tmp_path)
    found.compress(images=IMAGES.numpy(), params=0.9)
    assert np.isfinite(found.embed_images(IMAGES.numpy())).all()


def test_a_plain_model_is_saved_with_its_own_configuration(tmp_path):
    bert().save_pretrained(tmp_path / "a")
    danaus.Model(tmp_path / "a").save(tmp_path / "b")
    texts = [(tmp_path / n / "config.json").read_bytes() for n in "ab"]
    assert texts[0] == texts[1]
