"""Layers of models that stay dense, and matrices of layers that are more than one."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

from danaus.torch.parents import effective, reason_to_keep  # noqa: E402


class Scaled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Renamed(nn.Linear):
    pass


def test_layers_that_parents_call_can_be_replaced():
    model = nn.TransformerEncoderLayer(8, 2, 16)
    assert reason_to_keep(model, "linear1") is None
    assert reason_to_keep(nn.Sequential(Renamed(4, 4)), "0") is None


BLOCKS = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer


@pytest.mark.parametrize("kind", BLOCKS)
def test_the_projection_of_attention_stays(kind):
    why = reason_to_keep(kind(8, 2, 16), "self_attn.out_proj")
    assert why is not None and "MultiheadAttention" in why


def test_a_linear_layer_that_computes_something_else_stays():
    why = reason_to_keep(nn.Sequential(Scaled(4, 4)), "0")
    assert why is not None and "Scaled" in why


def test_a_layer_without_numbers_stays():
    model = nn.Sequential(nn.Linear(4, 4, device="meta"))
    assert "meta" in reason_to_keep(model, "0")


def test_layers_with_adapters_stay():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["0"], r=2)
    model = peft.get_peft_model(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), config)
    linear = [n for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    kept = [name for name in linear if reason_to_keep(model, name)]
    assert kept == [name for name in linear if not name.endswith(".1")]
    assert len(kept) == 3


MAKERS = {
    "plain": lambda layer: layer,
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "hook weight_norm": nn.utils.weight_norm,
    "hook spectral_norm": nn.utils.spectral_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    "pruned bias": lambda layer: prune.l1_unstructured(layer, "bias", 2),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("maker", MAKERS)
def test_the_effective_matrix_is_that_of_the_next_call(maker):
    layer = MAKERS[maker](nn.Linear(6, 4))
    with torch.no_grad():
        for parameter in layer.parameters():  # what hooks made before is stale
            parameter.mul_(1.5)
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    weight, bias = effective(layer), effective(layer, "bias")
    x = torch.randn(3, 6)
    assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items())
    assert layer.training and not weight.requires_grad
    y = layer.eval()(x)
    torch.testing.assert_close(nn.functional.linear(x, weight, bias), y)
