"""Linear layers that share what they have, and those that are left with a reason."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from plain_twin import exact, expect_close, outputs, plain_twin  # noqa: E402
from residual_net import (  # noqa: E402
    HIDDEN,
    LAYERS,
    WIDTH,
    Net,
    batch,
    expect_kept,
)
from torch import nn  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402

from danaus.torch import replace_linear  # noqa: E402

# ---- layers in several places ----


def test_a_module_with_two_names_is_one():
    model, x = Net(), batch()
    model.alias = model.blocks
    expect_kept(model, x)
    replace_linear(model, exact)
    assert model.alias[1][3] is model.blocks[1][3]


def tie_layers(model):
    model.blocks[2][1] = model.blocks[0][1]


def tie_weights(model):
    model.blocks[2][1].weight = model.blocks[0][1].weight


def tie_biases(model):
    model.blocks[2][1].bias = model.blocks[0][1].bias


def tie_to_an_embedding(model):
    model.embedding = nn.Embedding(HIDDEN, WIDTH)
    model.blocks[0][1].weight = model.embedding.weight
    model.embedding.double()


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, weight):
        return weight * self.scale


def tie_parametrizations(model):
    scale = Scale()
    for layer in (model.blocks[0][1], model.blocks[2][1]):
        parametrize.register_parametrization(layer, "weight", scale)


# ---- layers that are left ----


def patch_forward(layer):
    forward = layer.forward
    layer.forward = lambda x: 2 * forward(x)


def observe(layer):
    """As torch.ao.quantization.prepare does."""
    layer.activation_post_process = nn.Identity()
    layer.register_forward_hook(
        lambda module, args, y: module.activation_post_process(y)
    )


def set_weight(layer):
    """As networks do that compute weights of others."""
    weight = layer.weight.detach()
    del layer.weight
    layer.weight = 2 * weight


def as_other_numbers(dtype):
    def change(layer):
        layer.weight = nn.Parameter(layer.weight.detach().to(dtype), False)

    return change


def of_first(change):
    return lambda model: change(model.blocks[0][1])


LEFT = {
    "one layer twice": (tie_layers, "several places"),
    "tied weight": (tie_weights, "its weight is shared with another module"),
    "tied bias": (tie_biases, "its bias is shared"),
    "tied to an embedding": (tie_to_an_embedding, "its weight is shared"),
    "shared parametrization": (tie_parametrizations, "its weight is shared"),
    "forward of its own": (of_first(patch_forward), "forward.. has been replaced"),
    "observed": (of_first(observe), "a weight and a bias: activation_post_process"),
    "more numbers": (
        of_first(lambda layer: layer.register_buffer("scale", torch.ones(1))),
        "a weight and a bias: scale",
    ),
    "weight of another": (of_first(set_weight), "something else sets its weight"),
    "hook on a gradient": (
        of_first(lambda layer: layer.weight.register_hook(lambda g: 2 * g)),
        "its weight has hooks on its gradient",
    ),
    "hook after a gradient": (
        of_first(
            lambda layer: layer.bias.register_post_accumulate_grad_hook(lambda p: None)
        ),
        "its bias has hooks on its gradient",
    ),
    "hook on the state": (
        of_first(
            lambda layer: layer.register_state_dict_post_hook(lambda *given: None)
        ),
        "hooks on its state dict",
    ),
    "hook on loading": (
        of_first(
            lambda layer: layer.register_load_state_dict_pre_hook(lambda *given: None)
        ),
        "hooks on its state dict",
    ),
    "no numbers": (of_first(lambda layer: layer.to("meta")), "device meta"),
    "narrow numbers": (
        of_first(as_other_numbers(torch.float8_e4m3fn)), "float8_e4m3fn"
    ),
    "complex numbers": (of_first(as_other_numbers(torch.complex128)), "complex"),
}  # fmt: skip
NO_RUN = "no numbers", "narrow numbers", "complex numbers"


@pytest.mark.parametrize("case", LEFT)
def test_what_cannot_be_replaced_is_left_and_said_so(case):
    change, sentence = LEFT[case]
    model, x = Net(), batch()
    change(model)
    layer, runs = model.blocks[0][1], case not in NO_RUN
    wanted = outputs(model, [x]) if runs else []
    report = replace_linear(model, exact)
    assert model.blocks[0][1] is layer and LAYERS[0] in report.left
    shared = {LAYERS[4]}  # the other layer of tied ones
    done = {row.name for row in report.layers}
    assert done | shared == set(LAYERS[1:]) and done.isdisjoint(report.left)
    assert report.left.keys() <= {LAYERS[0]} | shared
    for reason in report.left.values():
        assert re.search(sentence, reason) and f"left, {reason}" in str(report)
    if runs:
        expect_close(outputs(model, [x]), wanted)


def test_layers_without_inputs_or_outputs_are_left():
    model = nn.Sequential(nn.Linear(4, 0), nn.Linear(0, 4), nn.Linear(4, 4)).double()
    x = batch()[:, :4]
    with torch.no_grad():
        wanted = outputs(model, [x])
        report = replace_linear(model, exact)
        assert report.left == {"0": "its weight is 0 x 4", "1": "its weight is 4 x 0"}
        expect_close(outputs(model, [x]), wanted)


def test_layers_with_adapters_of_peft():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        target_modules=["blocks.0.1", "blocks.2.3"], modules_to_save=["blocks.1.1"],
        r=2, init_lora_weights=False,
    )  # fmt: skip
    model, x = peft.get_peft_model(Net(), config).double(), batch()
    state = {n: p.requires_grad for n, p in model.named_parameters() if "lora" in n}
    wanted = outputs(model, [x])
    with model.disable_adapter():
        dense = outputs(model, [x])
    report = replace_linear(model, exact)
    assert len(report.layers) == 5 and len(report.left) == 6
    assert all("its adapter" in reason for reason in report.left.values())
    expect_close(outputs(model, [x]), wanted)
    with model.disable_adapter():
        expect_close(outputs(model, [x]), dense)
    trained = dict(model.named_parameters())
    assert all(trained[name].requires_grad == given for name, given in state.items())
    merged = model.merge_and_unload()
    expect_close(outputs(merged, [x]), wanted)
    expect_kept(Merged(merged), x)


class Merged(Net):
    """The network that is left once adapters are merged, all dense again."""

    def __init__(self, merged):
        super().__init__()
        self.blocks = plain_twin(merged, merged).blocks
