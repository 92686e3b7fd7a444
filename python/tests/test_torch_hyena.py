"""The Hyena operator for PyTorch: values, gradients, compilation, the layer."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from compiling import expect_compiles
from conv_cases import ERRORS, TYPES, numbers
from test_hyena_operator import direct

from danaus.torch import GatedLongConv, HyenaOperator, freeze
from danaus.torch._conv_fft import fft_hyena
from danaus.torch._ops import ops
from danaus.torch.functional import hyena

pytestmark = pytest.mark.filterwarnings("ignore:danaus has no kernels for convolutions")


def random_case(rng, dtype, device="cpu", order=2, batch=2, length=None, extras=True):
    """Arguments of hyena()."""
    filters, group = (int(n) for n in rng.integers(1, 4, 2))
    length = length or int(rng.integers(1, 200))
    rows, taps = (order + 1) * filters * group, int(rng.integers(1, 5))
    sums = torch.float64 if dtype == torch.float64 else torch.float32

    def make(*shape, to=sums):
        return torch.from_numpy(rng.standard_normal(shape)).to(device, to)

    u, few = make(batch, rows, length, to=dtype), make(rows, taps)
    k = make(order - 1, filters, int(rng.integers(1, 2 * length + 1)))
    skip = make(order - 1, filters) if extras else None
    return u, few, make(rows) if extras else None, k, skip


def expect_close(y, exact: np.ndarray) -> None:
    scale = np.abs(exact).max(initial=1e-300)
    assert y.shape == exact.shape
    error = np.abs(numbers(y) - exact).max(initial=0)
    assert error <= 8 * ERRORS[y.dtype] * scale  # z, v and y are stored


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("order", [2, 3])
def test_hyena_is_its_definition(place, dtype, order, rng):
    for extras in (True, False):
        case = random_case(rng, dtype, place, order, extras=extras)
        y = hyena(*case, accuracy="accurate")
        assert y.dtype == dtype and y.is_contiguous()
        expect_close(y, direct(*(numbers(x) for x in case)))


def test_order_2_takes_filters_of_two_dimensions(rng):
    u, taps, bias, k, skip = random_case(rng, torch.float64)
    assert torch.equal(
        hyena(u, taps, bias, k[0], skip[0]), hyena(u, taps, bias, k, skip)
    )


def test_u_may_lie_in_any_way(rng, device):
    u, *rest = random_case(rng, torch.float32, device)
    wide = torch.randn(u.shape[0], u.shape[2], u.shape[1], device=device)
    assert torch.equal(hyena(wide.mT, *rest), hyena(wide.mT.contiguous(), *rest))


def test_a_null_batch_has_null_gradients(rng, device):
    case = random_case(rng, torch.float32, device, batch=0)
    case = [x.requires_grad_() for x in case]
    y = hyena(*case)
    assert y.shape[0] == 0
    for gradient in torch.autograd.grad(y.sum(), case):
        assert not gradient.any()


@pytest.mark.parametrize("order", [2, 3])
def test_gradients_of_first_and_second_order(rng, device, order):
    case = random_case(rng, torch.float64, device, order, length=9)
    case = [x.requires_grad_() for x in case]
    assert torch.autograd.gradcheck(hyena, case, fast_mode=True)
    assert torch.autograd.gradgradcheck(hyena, case, fast_mode=True)


def test_gradients_in_16_bits_are_those_of_torch_fft(rng, device):
    case = random_case(rng, torch.float16, device, length=120)
    case = [x.requires_grad_() for x in case]
    y = hyena(*case)
    dy = torch.randn_like(y)
    found = torch.autograd.grad(y, case, dy)
    wide = [x.detach().double().requires_grad_() for x in case]
    should = torch.autograd.grad(fft_hyena(*wide), wide, dy.double())
    for a, b in zip(found, should):
        assert (a.double() - b).norm() <= 2e-2 * b.norm()


def test_opcheck(rng):
    case = random_case(rng, torch.float32)
    with_gradients = tuple(x.requires_grad_() for x in case)
    torch.library.opcheck(ops.hyena.default, with_gradients)
    y = ops.hyena(*case).detach()
    plain = tuple(x.detach() for x in case)
    torch.library.opcheck(ops.hyena_backward.default, (y, *plain, 31))
    some = ("test_schema", "test_faketensor")
    torch.library.opcheck(ops.hyena_pack.default, plain, test_utils=some)
    spectra = ops.hyena_pack(*plain)
    apply = (*plain[:3], spectra, 2, plain[3].shape[1], plain[3].shape[2])
    packed = [x[:1] if i == 0 else x for i, x in enumerate(plain)]
    length = packed[0].shape[2]
    offsets = torch.tensor([0, length // 3, length])
    torch.library.opcheck(ops.hyena.default, (*packed, offsets))
    y = ops.hyena(*packed, offsets)
    torch.library.opcheck(ops.hyena_backward.default, (y, *packed, 31, offsets))
    with pytest.raises(RuntimeError, match="offsets come with the length"):
        ops.hyena_apply(packed[0], *apply[1:], 0, offsets)
    torch.library.opcheck(ops.hyena_apply.default, apply, test_utils=some)
    assert torch.equal(ops.hyena_apply(*apply), ops.hyena(*plain))


def test_what_does_not_fit_is_refused(rng):
    u, taps, bias, k, skip = random_case(rng, torch.float32, order=3)
    for wrong in (
        (u[:, 1:], taps, bias, k, skip),
        (u, taps[1:], bias, k, skip),
        (u, taps, bias[1:], k, skip),
        (u, taps, bias, k[:1], skip),
        (u, taps, bias, k, skip[:1]),
        (u, taps, bias, k.expand(9, -1, -1, -1), skip),
        (u, taps, bias, None, skip),
        (u, taps, bias, k, 1.0),
        (u.int(), taps, bias, k, skip),
    ):
        with pytest.raises(ValueError, match="danaus: "):
            hyena(*wrong)
    with pytest.raises(ValueError, match="order"):
        HyenaOperator(8, 16, 1)
    with pytest.raises(ValueError, match="filters"):
        HyenaOperator(8, 16, 3, filter=[None])
    with pytest.raises(ValueError, match="shape"):
        HyenaOperator(8, 16)(torch.zeros(2, 16, 7))


# ---- the layer ----


@pytest.mark.parametrize("bias", [True, False])
def test_the_layer_of_order_2_is_a_gated_convolution(place, bias):
    torch.manual_seed(0)
    gated = GatedLongConv(12, 50, bias=bias).to(place, torch.float64)
    layer = HyenaOperator(12, 50, bias=bias).to(place, torch.float64)
    state = gated.state_dict()
    with torch.no_grad():
        for name, to in layer.state_dict().items():
            to.copy_(state[name.replace("long.0.", "long.")])
    x = torch.randn(3, 40, 12, device=place, dtype=torch.float64)
    torch.testing.assert_close(layer(x), gated(x))
    with torch.no_grad():
        torch.testing.assert_close(layer(x), gated(x))


def test_the_layer_is_causal_and_trains(device):
    torch.manual_seed(0)
    layer = HyenaOperator(8, 64, 3, filters=4).to(device)
    x = torch.randn(2, 64, 8, device=device)
    other = x.clone()
    other[:, 40:] = 0
    assert (layer(x) - layer(other))[:, :40].abs().max() < 1e-5
    layer(x).square().mean().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in layer.parameters())


def test_spectra_follow_the_filters(device):
    torch.manual_seed(0)
    layer = HyenaOperator(6, 30).to(device)
    x = torch.randn(2, 30, 6, device=device)
    with torch.no_grad():
        before = layer(x)
        assert torch.equal(layer(x), before)
        layer.long[0].weight.mul_(2)
        after = layer(x)
        short = layer(x[:, :7])
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, layer(x).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(short, layer(x[:, :7]).detach(), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(copy.deepcopy(layer)(x), after)


class Implicit(torch.nn.Module):
    """A filter that a module makes."""

    def __init__(self, filters: int):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.rand(filters, 1))

    def forward(self, length: int):
        return torch.exp(-self.rate * torch.arange(length, device=self.rate.device))


def test_modules_make_filters(device):
    torch.manual_seed(0)
    layer = HyenaOperator(4, 32, 3, filter=(Implicit(4), Implicit(4))).to(device)
    x = torch.randn(1, 20, 4, device=device)
    trained = layer(x)
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(x), trained)
    trained.sum().backward()
    assert layer.long[1].filter.rate.grad.any()


@pytest.mark.parametrize("kind", [GatedLongConv, HyenaOperator])
def test_the_layer_compiles(kind):
    torch.manual_seed(0)
    expect_compiles(kind(4, 32), torch.randn(2, 32, 4))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [GatedLongConv, HyenaOperator])
def test_all_but_the_projections_are_one_call(kind, packed, device):
    layer = kind(6, 40).to(device)
    x = torch.randn(1 if packed else 2, 30, 6, device=device)
    offsets = (0, 7, 30) if packed else None
    for training in (True, False):
        layer = layer if training else freeze(layer)
        with torch.profiler.profile() as seen, torch.set_grad_enabled(training):
            y = layer(x, offsets)
            if training:
                y.sum().backward()
        calls = {e.key: e.count for e in seen.key_averages()}
        ours = {name: n for name, n in calls.items() if name.startswith("danaus::")}
        assert ours == (
            {"danaus::_hyena": 1, "danaus::_hyena_backward": 1}
            if training
            else {"danaus::hyena_pack": 1, "danaus::hyena_apply": 1}
        )
        assert not {"aten::clone", "aten::cat"} & set(calls) or training


@pytest.mark.parametrize("kind", [GatedLongConv, HyenaOperator])
def test_projections_that_are_changed_count(kind, device):
    torch.manual_seed(0)
    layer, x = kind(6, 40).to(device), torch.randn(2, 30, 6, device=device)
    y, seen = layer(x), []
    for name in ("in_proj", "out_proj"):
        hook = getattr(layer, name).register_forward_hook(
            lambda module, inputs, output: seen.append(inputs[0].shape)
        )
        torch.testing.assert_close(layer(x), y)
        hook.remove()
    assert seen == [x.shape, x.shape]
    for name in ("in_proj", "out_proj"):  # as libraries that offload weights do it
        projection = getattr(layer, name)

        def forward(x, forward=projection.forward):
            seen.append(x.shape)
            return forward(x)

        projection.forward = forward
    torch.testing.assert_close(layer(x), y)
    assert seen == [x.shape] * 4
    layer.in_proj = torch.nn.Sequential(layer.in_proj, torch.nn.Identity())
    layer.out_proj = torch.nn.Sequential(layer.out_proj, torch.nn.Identity())
    torch.testing.assert_close(layer(x), y)


# ---- packed sequences ----

OFFSETS = (0, 3, 3, 40, 41, 77)


@pytest.mark.parametrize("order", [2, 3])
def test_packed_sequences_are_rows_alone(place, order):
    torch.manual_seed(0)
    layer = HyenaOperator(6, 40, order, filters=2).to(place, torch.float64)
    x = torch.randn(1, OFFSETS[-1], 6, device=place, dtype=torch.float64)
    x = x.requires_grad_()
    inputs = [x, *layer.parameters()]
    ends = zip(OFFSETS, OFFSETS[1:])
    should = torch.cat([layer(x[:, a:b]) for a, b in ends if a < b], 1)
    dy = torch.randn_like(should)
    exact = torch.autograd.grad(should, inputs, dy)
    for offsets in (OFFSETS, torch.tensor(OFFSETS, dtype=torch.int32)):
        y = layer(x, offsets)
        torch.testing.assert_close(y, should)
        for a, b in zip(torch.autograd.grad(y, inputs, dy), exact):
            torch.testing.assert_close(a, b)
        with torch.no_grad():
            torch.testing.assert_close(layer(x, offsets), should)


@pytest.mark.parametrize("order", [2, 3])
def test_gradients_of_packed_sequences(rng, device, order):
    case = random_case(rng, torch.float64, device, order, batch=1, length=12)
    case = [x.requires_grad_() for x in case]

    def packed(*case):
        return hyena(*case, offsets=(0, 5, 5, 6, 12))

    assert torch.autograd.gradcheck(packed, case, fast_mode=True)
    assert torch.autograd.gradgradcheck(packed, case, fast_mode=True)
    y = packed(*case)
    dy = torch.randn_like(y)
    should = fft_hyena(*case, torch.tensor((0, 5, 5, 6, 12)))
    torch.testing.assert_close(y, should)
    found, exact = (torch.autograd.grad(x, case, dy) for x in (y, should))
    for a, b in zip(found, exact):
        torch.testing.assert_close(a, b)


@torch.no_grad()
def test_spectra_serve_similar_lengths(device, monkeypatch):
    layer = HyenaOperator(4, 64).to(device).freeze()
    x, calls, pack = torch.randn(1, 77, 4, device=device), [], ops.hyena_pack
    monkeypatch.setattr(ops, "hyena_pack", lambda *a: calls.append(1) or pack(*a))
    for offsets in (OFFSETS, (0, 40, 77), OFFSETS):
        with torch.enable_grad():
            u = torch.randn(1, 12, 77, device=device)
            k, skip = layer.filters_for(40)
            short = layer.short.weight, layer.short.bias
            should = hyena(u, *short, k, skip, offsets=offsets)
        torch.testing.assert_close(layer.mix(u, offsets), should, rtol=1e-4, atol=1e-5)
    assert len(calls) == 1
    layer(x)
    assert len(calls) == 2


def test_modules_make_filters_for_the_longest(device):
    layer = HyenaOperator(4, 32, 3, filter=(Implicit(4), Implicit(4))).to(device)
    x = torch.randn(1, OFFSETS[-1], 4, device=device)
    rows = [layer(x[:, a:b]) for a, b in zip(OFFSETS, OFFSETS[1:]) if a < b]
    for training in (True, False):
        y = layer.train(training)(x, OFFSETS)
        torch.testing.assert_close(y, torch.cat(rows, 1), rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(layer(x, OFFSETS), y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "offsets, sentence",
    [
        ((0, 7), "ascend from 0 to the 8 numbers"),
        ((1, 8), "ascend from 0 to the 8 numbers"),
        ((0, 5, 4, 8), "ascend from 0 to the 8 numbers"),
        ((8,), "at least one"),
        ("08", "whole numbers"),
        (torch.tensor([0.0, 8.0]), "int32 or int64"),
    ],
)
def test_wrong_offsets_are_refused(offsets, sentence):
    with pytest.raises(ValueError, match=sentence):
        HyenaOperator(4, 8)(torch.randn(1, 8, 4), offsets)
    with pytest.raises(ValueError, match="a batch of 1"):
        HyenaOperator(4, 8)(torch.randn(2, 8, 4), (0, 8))


@pytest.mark.parametrize(
    "x", [np.ones((1, 8, 4)), torch.ones(8, 4), torch.ones(1, 8, 5)]
)
def test_wrong_inputs_are_refused(x):
    for layer in HyenaOperator(4, 8), GatedLongConv(4, 8):
        with pytest.raises(ValueError, match="danaus: x "):
            layer(x)
