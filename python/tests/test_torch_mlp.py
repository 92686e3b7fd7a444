"""Block-diagonal layers and MLPs with gates, against plain loops in f64."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from compiling import expect_compiles
from conv_cases import numbers

from danaus.torch import BlockDiagonalLinear, GatedMLP, freeze
from danaus.torch._ops import ops

# In, out, blocks; the last ones pad, and have blocks without any feature.
SIZES = [(12, 20, 4), (6, 6, 1), (7, 5, 3), (10, 9, 4), (3, 2, 7), (1, 1, 1)]


def blockwise(x: np.ndarray, weight: np.ndarray, bias, outputs: int) -> np.ndarray:
    """The layer of rows x by its definition."""
    blocks, rows, columns = weight.shape
    y = np.zeros((len(x), outputs)) if bias is None else np.tile(bias, (len(x), 1))
    for g, r, s in np.ndindex(blocks, rows, columns):
        if g * rows + r < outputs and g * columns + s < x.shape[1]:
            y[:, g * rows + r] += weight[g, r, s] * x[:, g * columns + s]
    return y


def linear(x: np.ndarray, layer) -> np.ndarray:
    """A layer of either kind."""
    weight, bias = numbers(layer.weight), numbers(layer.bias)
    if weight.ndim == 2:
        return x @ weight.T + (0 if bias is None else bias)
    return blockwise(x, weight, bias, layer.out_features)


def gelu(v: np.ndarray) -> np.ndarray:
    return v / 2 * (1 + np.vectorize(math.erf, otypes=[float])(v / math.sqrt(2)))


def direct(mlp, x: np.ndarray) -> np.ndarray:
    q = linear(x, mlp.gated_layers)
    inner = mlp.inner
    m = gelu(q[:, :inner]) * q[:, inner:] if mlp.gated else gelu(q)
    y = linear(m, mlp.wo)
    if mlp.layernorm is None:
        return y
    s = y + x
    s = s - s.mean(1, keepdims=True)
    s = s / np.sqrt((s**2).mean(1, keepdims=True) + mlp.layernorm.eps)
    return s * numbers(mlp.layernorm.weight) + numbers(mlp.layernorm.bias)


def expect_close(found, exact: np.ndarray, relative: float) -> None:
    assert found.shape == exact.shape
    error = np.linalg.norm(numbers(found) - exact)
    assert error <= relative * np.linalg.norm(exact)


def random_rows(rng, *shape, device="cpu", dtype=torch.float64):
    return torch.from_numpy(rng.standard_normal(shape)).to(device, dtype)


# ---- the layer ----


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_layer_is_its_definition(rng, device, sizes, bias):
    layer = BlockDiagonalLinear(*sizes, bias, device=device, dtype=torch.float64)
    x = random_rows(rng, 5, sizes[0], device=device)
    exact = blockwise(
        numbers(x), numbers(layer.weight), numbers(layer.bias), layer.out_features
    )
    expect_close(layer(x), exact, 1e-13)
    with torch.no_grad():
        expect_close(layer(x), exact, 1e-13)
    dense = layer.to_dense()
    assert dense.shape == (sizes[1], sizes[0])
    expect_close(torch.nn.functional.linear(x, dense, layer.bias), exact, 1e-13)


def test_rows_may_have_any_shape_and_layout(rng, device):
    layer = BlockDiagonalLinear(7, 5, 3, device=device)
    x = random_rows(rng, 7, 2, 3, device=device, dtype=torch.float32).permute(2, 1, 0)
    rows = layer(x.reshape(-1, 7))
    torch.testing.assert_close(layer(x), rows.view(3, 2, 5))
    assert layer(x[:0]).shape == (0, 2, 5)
    torch.testing.assert_close(layer(x[1, 0]), rows[2])


@pytest.mark.parametrize("sizes", SIZES[2:4])
def test_gradients_of_the_layer(rng, device, sizes):
    layer = BlockDiagonalLinear(*sizes, device=device, dtype=torch.float64)
    x = random_rows(rng, 3, sizes[0], device=device).requires_grad_()

    def run(x, weight, bias):
        named = {"weight": weight, "bias": bias}
        return torch.func.functional_call(layer, named, (x,))

    assert torch.autograd.gradcheck(run, (x, layer.weight, layer.bias))
    assert torch.autograd.gradgradcheck(run, (x, layer.weight, layer.bias))


@torch.no_grad()
def test_calls_use_the_current_weights(rng, device, monkeypatch):
    layer = BlockDiagonalLinear(8, 6, 2, device=device)
    x = random_rows(rng, 4, 8, device=device, dtype=torch.float32)
    calls, pack = [], ops.ks_pack
    monkeypatch.setattr(ops, "ks_pack", lambda *a: calls.append(1) or pack(*a))
    y = layer(x)
    assert torch.equal(layer(x), y) and len(calls) <= 1
    layer.weight.data.mul_(2)
    torch.testing.assert_close(layer(x) - layer.bias, 2 * (y - layer.bias))
    again = copy.deepcopy(layer).double()
    torch.testing.assert_close(again(x.double()).float(), layer(x))
    layer.load_state_dict(BlockDiagonalLinear(8, 6, 2).state_dict())
    exact = blockwise(numbers(x), numbers(layer.weight), numbers(layer.bias), 6)
    expect_close(layer(x), exact, 1e-6)


def test_frozen_layers_pack_once(rng, device, monkeypatch):
    mlp = GatedMLP(8, 12, 3, device=device)
    x = random_rows(rng, 4, 8, device=device, dtype=torch.float32)
    y, calls, pack = mlp(x).detach(), [], ops.ks_pack
    monkeypatch.setattr(ops, "ks_pack", lambda *a: calls.append(1) or pack(*a))
    frozen = freeze(copy.deepcopy(mlp), batch=4)
    for rows in (x, x[:1], x):
        torch.testing.assert_close(frozen(rows), y[: len(rows)], rtol=1e-5, atol=1e-6)
    assert len(calls) == 2  # one for each of its layers
    state = {name: 2 * tensor for name, tensor in mlp.state_dict().items()}
    for layer in (frozen, mlp):
        layer.load_state_dict(state)
    torch.testing.assert_close(frozen(x), mlp(x).detach(), rtol=1e-5, atol=1e-5)
    x.requires_grad_()
    found, exact = (torch.autograd.grad(f(x).sum(), x)[0] for f in (frozen, mlp))
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)
    frozen.wo.unfreeze()
    assert (
        frozen.wo.weight.requires_grad and not frozen.gated_layers.weight.requires_grad
    )
    wide = frozen.double()(x.detach().double())
    torch.testing.assert_close(wide.float(), mlp(x), rtol=1e-5, atol=1e-5)


def test_initial_values_are_the_authors():
    torch.manual_seed(0)
    layer = BlockDiagonalLinear(400, 80, 4)
    for values, bound in ((layer.weight, 100**-0.5), (layer.bias, 80**-0.5)):
        assert 0.9 * bound < values.abs().max() <= bound
        assert abs(values.mean()) < 0.2 * bound


@pytest.mark.parametrize(
    "sizes", [(0, 4, 2), (4, 0, 2), (4, 4, 0), (4, -4, 2)], ids=str
)
def test_wrong_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="danaus: .* at least 1"):
        BlockDiagonalLinear(*sizes)


WRONG = [
    (np.ones((2, 8)), "has to be a tensor"),
    (torch.ones(2, 7), r"shape \[2, 7\]; \[2, 8\]"),
    (torch.ones(()), "shape"),
    (torch.ones(2, 8, dtype=torch.int64), "numbers of type"),
    (torch.ones(2, 8, dtype=torch.complex64), "numbers of type"),
    (torch.ones(2, 8).to_sparse(), "dense tensor"),
]


@pytest.mark.parametrize("layer", [BlockDiagonalLinear(8, 4, 2), GatedMLP(8, 16, 2)])
@pytest.mark.parametrize("x, sentence", WRONG, ids=range(len(WRONG)))
def test_wrong_inputs_are_refused(layer, x, sentence):
    with pytest.raises(ValueError, match=f"danaus: x .*{sentence}"):
        layer(x)


def test_another_device_is_refused():
    with pytest.raises(ValueError, match="danaus: x lies on meta"):
        BlockDiagonalLinear(8, 4, 2)(torch.ones(2, 8, device="meta"))


# ---- the MLP ----

OPTIONS = [
    {},
    {"gated": False},
    {"blocks": None},
    {"blocks": 1, "gated": False, "bias": True},
    {"blocks": 3, "bias": True, "norm": 1e-12},  # pads
    {"norm": 1e-5, "gated": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_mlp_is_its_definition(rng, device, options):
    torch.manual_seed(0)
    mlp = GatedMLP(8, 20, device=device, dtype=torch.float64, **options)
    x = random_rows(rng, 2, 3, 8, device=device)
    exact = direct(mlp, numbers(x.flatten(0, 1))).reshape(x.shape)
    expect_close(mlp(x), exact, 1e-12)
    with torch.no_grad():
        expect_close(mlp(x), exact, 1e-12)


def test_names_and_shapes_are_those_of_checkpoints():
    def shapes(**options):
        mlp = GatedMLP(16, 64, **options)
        return {name: tuple(p.shape) for name, p in mlp.state_dict().items()}

    first, last = {"gated_layers.weight": (4, 32, 4)}, {"wo.bias": (16,)}
    last["wo.weight"] = (4, 4, 16)
    norm = {"layernorm.weight": (16,), "layernorm.bias": (16,)}
    assert shapes() == first | last
    assert shapes(norm=1e-12) == first | last | norm
    assert shapes(gated=False) == {"gated_layers.weight": (4, 16, 4)} | last
    dense = {"gated_layers.weight": (128, 16), "wo.weight": (16, 64)}
    assert shapes(blocks=None) == shapes(blocks=1) == dense | {"wo.bias": (16,)}


def test_the_published_sizes():
    """An MLP of M2-BERT-80M has 3 I H / 4 + H numbers beside layernorm's."""
    with torch.device("meta"):
        mlp = GatedMLP(768, 3072)
    assert sum(p.numel() for p in mlp.parameters()) == 3 * 768 * 3072 // 4 + 768


def test_blocks_make_the_halves(rng):
    """The first two of four blocks compute the activated half, from half of x."""
    mlp = GatedMLP(8, 16, dtype=torch.float64)
    x = random_rows(rng, 1, 8)
    mlp.wo = torch.nn.Identity()
    first, second = mlp.gated_layers(x).chunk(2, -1)
    torch.testing.assert_close(mlp(x), torch.nn.functional.gelu(first) * second)
    x[:, 4:] = 0
    assert mlp(x).abs().max() == 0  # since second is


@pytest.mark.parametrize("options", OPTIONS[4:5], ids=str)
def test_gradients_of_the_mlp(rng, device, options):
    mlp = GatedMLP(4, 6, device=device, dtype=torch.float64, **options)
    x = random_rows(rng, 3, 4, device=device).requires_grad_()
    names, values = zip(*mlp.named_parameters())

    def run(x, *values):
        return torch.func.functional_call(mlp, dict(zip(names, values)), (x,))

    assert torch.autograd.gradcheck(run, (x, *values), fast_mode=True)


def test_dropout_is_of_the_hidden_numbers_in_training(rng):
    torch.manual_seed(0)
    mlp = GatedMLP(8, 400, dropout=0.25, dtype=torch.float64)
    x = random_rows(rng, 2, 8)
    kept = GatedMLP(8, 400, dtype=torch.float64)
    kept.load_state_dict(mlp.state_dict())
    seen = []
    mlp.wo.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    assert not torch.equal(mlp(x), kept(x))
    assert 0.15 < (seen[0] == 0).double().mean() < 0.35
    assert torch.equal(mlp.eval()(x), kept(x))


def test_autocast(device):
    """Both layers round operands and results to 16 bits, as the product of gates."""
    torch.manual_seed(0)
    mlp = GatedMLP(16, 32, norm=1e-12, device=device)
    x = torch.randn(5, 16, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        assert mlp.gated_layers(x).dtype == torch.bfloat16
        y = mlp(x)
    assert y.dtype == torch.float32  # of the normalisation
    expect_close(y, direct(mlp, numbers(x)), 8 * 2**-8)
    y.square().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in mlp.parameters())


@pytest.mark.parametrize("blocks", [2, 3])
def test_it_compiles_whole(blocks):
    torch.manual_seed(0)
    expect_compiles(GatedMLP(8, 12, blocks, norm=1e-12), torch.randn(2, 3, 8))


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"width": 0}, "at least 1"),
        ({"inner": 0}, "at least 1"),
        ({"blocks": 0}, "at least 1"),
        ({"dropout": 1.0}, "dropout of 1.0"),
        ({"dropout": -0.1}, "dropout of -0.1"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=f"danaus: .*{sentence}"):
        GatedMLP(**{"width": 8, "inner": 16} | options)
