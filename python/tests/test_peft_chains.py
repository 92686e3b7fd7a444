"""Monarch adapters of danaus.peft, and adapters of PEFT on layers of danaus."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import numpy as np
import pytest

from conftest import dense_chain

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft", reason="peft is not installed")

from torch import nn  # noqa: E402

from danaus.peft import MonarchConfig, on_chains  # noqa: E402
from danaus.torch import (  # noqa: E402
    InterpolatedLinear,
    KSLinear,
    MonarchLinear,
    SumLinear,
    apply_structure,
    structure_of,
)
from danaus.torch.parents import reason_to_keep  # noqa: E402

KINDS = {
    "dense": lambda: nn.Linear(12, 8),
    "chain": lambda: KSLinear(12, 8, "1,4,6,2 2,6,6,1"),
    "monarch": lambda: MonarchLinear(12, 8, 2, bias=False),
    "sum": lambda: SumLinear(
        MonarchLinear(12, 8, 2), KSLinear(12, 8, "1,8,12,1", bias=False)
    ),
    "interpolated": lambda: InterpolatedLinear(
        KSLinear(12, 3, "1,3,12,1"), KSLinear(3, 5, "1,5,3,1"), [1, 4, 6]
    ),
    "activated": lambda: KSLinear(12, 8, "1,8,12,1", activation="gelu"),
}
CHAINS = [kind for kind in KINDS if kind != "dense"]


@pytest.fixture(autouse=True)
def seed(rng):
    torch.manual_seed(int(rng.integers(1 << 31)))


def monarch(**more) -> MonarchConfig:
    given = {"nblocks": 2, "r": 3, "target_modules": ["0"], "init_weights": False}
    return MonarchConfig(**given | more)


def lora(**more) -> peft.LoraConfig:
    given = {"r": 3, "target_modules": ["0"], "init_lora_weights": False}
    return on_chains(peft.LoraConfig(**given | more))


def adapted(kind: str, config) -> tuple:
    """The base layer in f64, as a model, and one with an adapter."""
    base = nn.Sequential(KINDS[kind]()).double()
    model = peft.get_peft_model(
        copy.deepcopy(base), config, autocast_adapter_dtype=False
    )
    return base, model


def added(layer) -> np.ndarray:
    """The matrix that an adapter adds, by definition, in f64."""
    scaling = layer.scaling["default"]
    if hasattr(layer, "monarch_left"):
        chain = layer.monarch_left["default"], layer.monarch_right["default"]
        return scaling * dense_chain([w.detach().double().numpy() for w in chain])
    pair = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    return scaling * pair.detach().double().numpy()


def close(a, b, terms: int, scale: float, unit: float = 2.0**-53) -> None:
    """Sums of so many products, whose sizes add up to at most the scale."""
    error = (a.double() - b.double()).detach().norm()
    assert float(error) <= terms * unit * scale


def size(layer, x) -> float:
    """At least the norm of x times those of all matrices of a layer."""
    numbers = [p.detach().double().norm() + 1 for p in layer.parameters()]
    return float(x.double().norm() * torch.stack(numbers).prod())


CONFIGS = {"lora": lora, "monarch": monarch}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", CONFIGS)
def test_adapters_add_their_matrix(kind, method):
    base, model = adapted(kind, CONFIGS[method]())
    layer, x = model.base_model.model[0], torch.randn(3, 5, 12).double()
    scale, terms = size(layer, x), 100
    exact = base(x) + x @ torch.from_numpy(added(layer)).T
    found = model(x)
    close(found, exact, terms, scale)
    before = copy.deepcopy(layer.base_layer.state_dict())
    model.merge_adapter(safe_merge=True)
    close(model(x), exact, terms, scale)
    assert isinstance(layer.base_layer, SumLinear if kind in CHAINS else nn.Linear)
    model.unmerge_adapter()
    for name, value in layer.base_layer.state_dict().items():
        close(value, before[name], terms, 0 if kind in CHAINS else scale)
    with model.disable_adapter():
        close(model(x), base(x), terms, scale)
    merged = model.merge_and_unload()
    close(merged(x), exact, terms, scale)
    assert not any("adapter" in name for name, _ in merged.named_modules())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_sum(kind):
    base, model = adapted(kind, monarch())
    layer, x = model.base_model.model[0], torch.randn(4, 12).double()
    dy = torch.randn(4, 8).double()
    left, right = (getattr(layer, f"monarch_{w}")["default"] for w in ("left", "right"))
    inputs = x.clone().requires_grad_()
    model(inputs).backward(dy)

    def loss(left, right, x):
        h = torch.einsum("tqc,qrc->tqr", x.view(4, 2, 6), right[..., 0])
        h = h.reshape(4, 3, 2)  # number e of q r is (rank e / q, lane e % q)
        y = torch.einsum("tkd,mkd->tmd", h, left[0]).reshape(4, 8)
        return ((base(x) + 8 / 3 * y) * dy).sum()

    leaves = [v.detach().clone().requires_grad_() for v in (left, right, x)]
    exact = torch.autograd.grad(loss(*leaves), leaves)
    scale = size(layer, x) * float(dy.norm())
    for found, other in zip((left.grad, right.grad, inputs.grad), exact):
        close(found, other, 200, scale)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert all("monarch_" in name for name in trained) and len(trained) == 2


def test_monarch_begins_as_the_layer_and_learns():
    base, model = adapted("dense", monarch(init_weights=True))
    x = torch.randn(6, 12).double()
    assert torch.equal(model(x), base(x))
    steps = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    first = None
    for _ in range(5):
        loss = model(x).square().mean()
        first = first or loss.item()
        steps.zero_grad()
        loss.backward()
        steps.step()
    assert loss.item() < first


def test_the_rank_is_up_to_blocks_times_rank():
    layer = adapted("dense", monarch(nblocks=4, r=2))[1].base_model.model[0]
    delta = layer.get_delta_weight("default")
    assert torch.linalg.matrix_rank(delta) == 8
    assert sum(p.numel() for p in layer.parameters() if p.requires_grad) == 2 * 20


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_are_saved_and_loaded(kind, tmp_path):
    for method, config in CONFIGS.items():
        base, model = adapted(kind, config())
        x, folder = torch.randn(2, 12).double(), tmp_path / method
        model.save_pretrained(folder)
        again = None
        if method == "lora":
            again = on_chains(peft.LoraConfig.from_pretrained(folder))
        options = {"config": again, "autocast_adapter_dtype": False}
        loaded = peft.PeftModel.from_pretrained(base, folder, **options)
        assert torch.equal(loaded(x), model(x))


@pytest.mark.parametrize("method", CONFIGS)
def test_several_adapters_are_merged_one_by_one(method):
    base, model = adapted("sum", CONFIGS[method]())
    config = CONFIGS[method](r=1)
    model.add_adapter("more", config, autocast_adapter_dtype=False)
    layer, x = model.base_model.model[0], torch.randn(3, 12).double()
    one = model(x)
    model.set_adapter("more")
    other = model(x)
    scale = size(layer, x)
    model.base_model.set_adapter(["default", "more"])
    close(model(x), one + other - base(x), 200, scale)
    model.merge_adapter(adapter_names=["default", "more"])
    close(model(x), one + other - base(x), 200, scale)
    merged = copy.deepcopy(layer.base_layer)
    model.unmerge_adapter()
    assert type(layer.base_layer.first) is MonarchLinear
    # What was merged can be described, and built again.
    shapes = structure_of(nn.Sequential(merged))
    built = apply_structure(nn.Sequential(nn.Linear(12, 8)).double(), shapes)
    built.load_state_dict(nn.Sequential(merged).state_dict())
    close(built(x), merged(x), 200, scale)
    model.delete_adapter("more")
    close(model(x), one, 200, scale)


@pytest.mark.filterwarnings("ignore:`lora_bias=True`")
@pytest.mark.filterwarnings("ignore:`lora_bias=True`")
def test_biases_of_lora_are_merged_also_where_there_was_none():
    base, model = adapted("monarch", lora(lora_bias=True))
    layer, x = model.base_model.model[0], torch.randn(3, 12).double()
    layer.lora_B["default"].bias.data.normal_()
    found, scale = model(x), size(layer, x)
    model.merge_adapter()
    assert layer.base_layer.bias is not None
    close(model(x), found, 100, scale)


def test_conv1d_of_transformers_is_adapted():
    layers = pytest.importorskip("transformers.pytorch_utils")
    base = nn.Sequential(layers.Conv1D(8, 12)).double()
    model = peft.get_peft_model(base, monarch(), autocast_adapter_dtype=False)
    x = torch.randn(3, 12).double()
    found, scale = model(x), size(model.base_model.model[0], x)
    model.merge_adapter()
    close(model(x), found, 100, scale)


def test_dropout_drops_inputs_in_training_only():
    base, model = adapted("dense", monarch(monarch_dropout=0.5))
    x = torch.randn(3, 12).double()
    model.eval()
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


def test_16_bits_keep_their_type():
    for method in CONFIGS.values():
        base = nn.Sequential(nn.Linear(12, 8)).bfloat16()
        model = peft.get_peft_model(base, method())
        x = torch.randn(3, 12).bfloat16()
        assert model(x).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"nblocks": 5}, "nblocks .5. has to divide 12 inputs and 8 outputs"),
        ({"nblocks": 0}, "nblocks is 0"),
        ({"r": 1.5}, "r is 1.5"),
        ({"layers_pattern": "h"}, "layers_to_transform"),
    ],
)
def test_wrong_options_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        adapted("dense", monarch(**wrong))


def test_wrong_layers_are_refused():
    with pytest.raises(TypeError, match="Monarch adapters are for"):
        peft.get_peft_model(nn.Sequential(nn.Conv2d(4, 4, 2)), monarch())
    last = KSLinear(12, 8, "1,8,12,1", layout="batch_last")
    for config in CONFIGS.values():
        with pytest.raises(ValueError, match="batch_first"):
            peft.get_peft_model(nn.Sequential(copy.deepcopy(last)), config())


@pytest.mark.parametrize("method", CONFIGS)
@pytest.mark.parametrize("kind", ["dense", "chain"])
def test_what_is_not_finite_is_not_merged(kind, method):
    _, model = adapted(kind, CONFIGS[method]())
    for p in model.parameters():
        if p.requires_grad:
            p.data.view(-1)[0] = float("nan")
    with pytest.raises(ValueError, match="finite|NaN"):
        model.merge_adapter(safe_merge=True)
    assert not model.base_model.model[0].merged


def test_compression_leaves_adapted_layers_as_they_are():
    for config in CONFIGS.values():
        _, model = adapted("dense", config())
        assert "adapter" in reason_to_keep(model, "base_model.model.0.base_layer")


def test_what_changes_the_dense_weight_says_that_there_is_none():
    _, model = adapted("chain", lora(use_dora=True))
    x = torch.randn(2, 12).double()
    assert model(x).shape == (2, 8)
    with pytest.raises(NotImplementedError, match="has no dense weight"):
        model.merge_adapter()
    with pytest.raises(RuntimeError, match="read only"):
        layer = nn.Sequential(KINDS["chain"]())
        peft.get_peft_model(layer, lora(init_lora_weights="olora"))
