"""`.weight` and `.bias` of layers that stand for torch.nn.Linear, inside of parents."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from danaus.torch import (  # noqa: E402
    InterpolatedLinear,
    KSLinear,
    MonarchLinear,
    SumLinear,
)

CHAIN = "1,4,4,3 2,6,6,1"  # 12 x 12


def sum_layer() -> nn.Module:
    return SumLinear(KSLinear(12, 12, CHAIN), KSLinear(12, 12, CHAIN))


def interpolated(bias: bool = True) -> nn.Module:
    basis = KSLinear(12, 5, "1,5,12,1", bias=bias)
    return InterpolatedLinear(basis, KSLinear(5, 7, "1,7,5,1"), [0, 3, 4, 9, 11])


LAYERS = {
    "chain": lambda: KSLinear(12, 12, CHAIN),
    "no bias": lambda: KSLinear(12, 12, CHAIN, bias=False),
    "batch last": lambda: KSLinear(12, 12, CHAIN, layout="batch_last"),
    "monarch": lambda: MonarchLinear(12, 12, 3),
    "sum": sum_layer,
    "interpolated": interpolated,
    "half a bias": lambda: interpolated(bias=False),
}


@pytest.fixture(params=list(LAYERS))
def layer(request) -> nn.Module:
    torch.manual_seed(0)
    return LAYERS[request.param]()


def test_the_weight_is_the_matrix(layer):
    weight, x = layer.weight, torch.randn(5, 12)
    last = getattr(layer, "layout", "batch_first") == "batch_last"
    y = layer(x.T).T if last else layer(x)
    torch.testing.assert_close(F.linear(x, weight, layer.bias), y)
    assert weight.shape == (12, 12) == tuple(weight.size())
    assert (weight.dtype, weight.device) == (torch.float32, torch.device("cpu"))
    assert weight.requires_grad and isinstance(weight, torch.Tensor)
    assert "weight" not in dict(layer.named_parameters())
    assert "weight" not in layer.state_dict()


def test_facts_about_the_weight_compute_nothing(layer, monkeypatch):
    monkeypatch.setattr(type(layer), "to_dense", None)
    weight = layer.weight
    assert weight.dim() == weight.ndim == 2 and weight.numel() == len(weight) * 12
    assert not weight.is_cuda and weight.is_floating_point() and not weight.is_meta
    assert weight.grad is None and not weight.detach().requires_grad
    assert weight.data.dtype == weight.dtype
    assert layer.double().weight.dtype == torch.float64


def test_the_weight_has_gradients_for_the_factors(layer):
    x = torch.randn(5, 12)
    wanted = torch.autograd.grad(layer.to_dense().square().sum(), layer.factors())
    found = torch.autograd.grad(layer.weight.square().sum(), layer.factors())
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b)
    assert not F.linear(x, layer.weight.detach()).requires_grad
    layer.requires_grad_(False)
    assert not layer.weight.requires_grad


def test_the_weight_can_be_read_only(layer):
    before = layer.to_dense()
    weight = layer.weight
    for write in (
        lambda: weight.data.copy_(torch.zeros(12, 12)),
        lambda: weight.mul_(2),
        lambda: nn.init.zeros_(weight),
        lambda: weight.__setitem__(0, 1.0),
        lambda: setattr(weight, "data", torch.zeros(12, 12)),
        lambda: weight.requires_grad_(False),
        lambda: torch.add(before, 1, out=weight),
    ):
        with torch.no_grad(), pytest.raises(RuntimeError, match="can be read only"):
            write()
    with pytest.raises(TypeError, match="factors instead of a weight"):
        layer.weight = nn.Parameter(torch.zeros(12, 12))
    assert torch.equal(layer.to_dense(), before)


# ---- how they are made ----


def test_wrong_arguments_are_named():
    linear = nn.Linear(12, 12)
    for message, call in {
        "chain has to be a danaus.Chain, not 0.3": lambda: KSLinear.from_linear(
            linear, 0.3
        ),
        "blocks has to be a whole number, not False": lambda: MonarchLinear(
            12, 12, False
        ),
        "blocks has to be a whole number, not 0.5": lambda: MonarchLinear.from_linear(
            linear, 0.5
        ),
        "patterns have to name the factors, not True": lambda: KSLinear(12, 12, True),
        "patterns have to name the factors, not 0.3": lambda: KSLinear(12, 12, 0.3),
        "unexpected keyword argument 'layuot'": lambda: MonarchLinear(
            12, 12, layuot="batch_last"
        ),
        "unexpected keyword argument 'param'": lambda: KSLinear.from_linear(
            linear, param=0.3
        ),
        "unexpected keyword argument 'budget'": lambda: MonarchLinear(
            12, 12, budget=0.3
        ),
    }.items():
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "make",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        lambda layer: nn.utils.prune.random_unstructured(layer, "weight", 0.3),
        lambda layer: nn.utils.prune.random_unstructured(layer, "bias", 0.3),
    ],
)
def test_from_linear_takes_the_effective_matrix(make):
    linear, x = make(nn.Linear(12, 6)), torch.randn(5, 12)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.mul_(1.5)
    layer = KSLinear.from_linear(linear, patterns="1,6,12,1")
    torch.testing.assert_close(layer(x), linear.eval()(x))


class Scaled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def test_from_linear_refuses_what_is_more_than_a_matrix():
    for linear, message in (
        (Scaled(12, 12), "Scaled, has a forward"),
        (nn.Linear(12, 12, device="meta"), "no numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            KSLinear.from_linear(linear, params=0.5)


def test_monarch_layers_come_of_linear_ones():
    linear, x = nn.Linear(12, 6), torch.randn(5, 12)
    layer = MonarchLinear.from_linear(linear, 3, activation="relu")
    assert type(layer) is MonarchLinear and layer.activation == "relu"
    assert layer.patterns == MonarchLinear(12, 6, 3).patterns
    whole = MonarchLinear.from_linear(linear, order=1)
    torch.testing.assert_close(whole(x), linear(x))


# ---- parents ----


def replaced(model: nn.Module, *names: str) -> nn.Module:
    """The model with chains of all numbers in place of some linear layers."""
    model = copy.deepcopy(model)
    for name in names:
        linear = model.get_submodule(name)
        sizes = linear.out_features, linear.in_features
        layer = KSLinear.from_linear(linear, patterns=f"1,{sizes[0]},{sizes[1]},1")
        model.set_submodule(name, layer)
    return model


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layers_call_the_layers_in_them(gradients, norm_first, monkeypatch):
    options = {"batch_first": True, "norm_first": norm_first}
    dense = nn.TransformerEncoderLayer(16, 2, 32, **options).eval()
    model = replaced(dense, "linear1", "linear2")
    x, mask = torch.randn(2, 5, 16), torch.zeros(2, 5, dtype=torch.bool)
    monkeypatch.setattr(KSLinear, "to_dense", None)  # else slow without a word
    with torch.set_grad_enabled(gradients):
        torch.testing.assert_close(model(x), dense(x))
        stacks = [
            nn.TransformerEncoder(m, 2, enable_nested_tensor=not norm_first).eval()
            for m in (model, dense)
        ]
        found, wanted = (stack(x, src_key_padding_mask=mask) for stack in stacks)
        torch.testing.assert_close(found, wanted)


def test_decoder_layers_and_compiled_encoder_layers():
    dense = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    model = replaced(dense, "linear1", "linear2")
    torch.testing.assert_close(model(x, x), dense(x, x))
    dense = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    model = replaced(dense, "linear1", "linear2")
    fast = torch.compile(model, backend="aot_eager")
    for mode in (torch.no_grad, torch.enable_grad):
        with mode():
            torch.testing.assert_close(fast(x), dense(x))


class Tied(nn.Module):
    """Computes with the matrix of its layer, as some models do."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(16, 16, bias=False)

    def forward(self, x):
        return F.linear(
            F.relu(self.proj(x.to(self.proj.weight.dtype))), self.proj.weight.T
        )


def test_parents_that_compute_with_the_matrix_are_right():
    dense, x = Tied(), torch.randn(3, 16)
    model = replaced(dense, "proj")
    torch.testing.assert_close(model(x), dense(x))
    model(x).sum().backward(), dense(x).sum().backward()
    (found,) = model.proj.parameters()
    torch.testing.assert_close(found.grad.view(16, 16), dense.proj.weight.grad)


def test_t5_layers_read_the_type_of_the_weight():
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2
    )
    dense = transformers.T5EncoderModel(config).eval()
    names = [n for n, m in dense.named_modules() if isinstance(m, nn.Linear)]
    model = replaced(dense, *names)
    ids = torch.arange(8)[None]
    with torch.no_grad():
        found, wanted = (m(ids).last_hidden_state for m in (model, dense))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_a_copy_of_the_weight_is_a_matrix_of_its_own():
    layer = KSLinear(12, 24, "2,6,5,2 4,5,3,1")
    copied = copy.deepcopy(layer.weight)
    assert type(copied) is torch.Tensor and copied.is_leaf and copied.requires_grad
    assert torch.equal(copied, layer.to_dense())
    with torch.no_grad():
        copied.zero_()
    assert layer.weight.abs().max() > 0
