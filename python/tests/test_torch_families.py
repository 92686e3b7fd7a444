"""replace_linear and compress on small models of ten families of transformers."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from plain_twin import exact, expect_close, outputs, plain_twin  # noqa: E402
from small_models import FAMILIES  # noqa: E402

from danaus.torch import compress, replace_linear  # noqa: E402
from danaus.torch.parents import is_linear  # noqa: E402

transformers.logging.set_verbosity_error()
families = pytest.mark.parametrize("family", FAMILIES)
# Heads that have the embedding's weight, by family; all other layers are replaced.
TIED = {
    "RoBERTa": "lm_head.decoder", "GPT-2": "lm_head", "Qwen2": "lm_head",
    "Whisper": "proj_out", "T5": "lm_head", "Mamba": "lm_head",
}  # fmt: skip
CALIBRATED = {"kinds": ("interpolated", "monarch", "sum"), "budgets": "uniform"}


def made(family):
    """A model of f64, and its inputs."""
    model, inputs = FAMILIES[family]()
    wide = {n: x.double() if x.is_floating_point() else x for n, x in inputs.items()}
    return model.double(), wide


@families
def test_all_numbers_kept_are_the_same_model(family):
    model, inputs = made(family)
    linear = {name for name, module in model.named_modules() if is_linear(module)}
    with torch.no_grad():
        wanted = outputs(model, inputs)
        report = replace_linear(model, exact, heads=True)
        assert {layer.name for layer in report.layers} == linear - report.left.keys()
        assert list(report.left) == ([TIED[family]] if family in TIED else [])
        assert all("shared" in reason for reason in report.left.values())
        expect_close(outputs(model, inputs), wanted)
        report.undo()
        for x, y in zip(outputs(model, inputs), wanted):
            assert torch.equal(x, y)


@families
def test_calibrated_layers_compute_what_their_matrices_say(family):
    """Outputs, and gradients of all that stays dense."""
    model, inputs = made(family)
    dense = copy.deepcopy(model)
    report = compress(model, [inputs], 0.6, heads=True, **CALIBRATED)
    left = set(report.left) - {TIED.get(family)}
    # Mamba multiplies by the matrix itself; its layer is not called.
    assert all(family == "Mamba" and name.endswith("dt_proj") for name in left)
    twin = plain_twin(dense, model)
    for one in model, twin:
        sum(y.square().sum() for y in outputs(one, inputs)).backward()
    with torch.no_grad():
        expect_close(outputs(model, inputs), outputs(twin, inputs))
    wanted, found = dict(twin.named_parameters()), dict(model.named_parameters())
    both = [name for name in wanted.keys() & found.keys() if "bias" not in name]
    both = [n for n in both if wanted[n].grad is not None]
    assert both
    expect_close([found[n].grad for n in both], [wanted[n].grad for n in both], 1e-9)


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "Whisper", "T5", "Mamba"])
def test_texts_are_generated_by_replaced_layers(family):
    model, inputs = made(family)
    inputs = {n: x[:2] for n, x in inputs.items() if not n.startswith("decoder")}
    if "input_ids" in inputs:
        inputs["input_ids"] = inputs["input_ids"][:, :8]
    options = {"max_new_tokens": 4, "do_sample": False}
    dense = copy.deepcopy(model)
    replace_linear(model, 0.7)
    found = model.generate(**inputs, **options)
    assert torch.equal(found, plain_twin(dense, model).generate(**inputs, **options))
