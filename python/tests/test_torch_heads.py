"""Heads of the Hyena operator for PyTorch, against plain loops in f64."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from compiling import expect_compiles
from conv_cases import numbers

from danaus.torch import GatedLongConv, HyenaOperator, freeze
from danaus.torch._ops import ops

pytestmark = pytest.mark.filterwarnings("ignore:danaus has no kernels for convolutions")
KINDS = [GatedLongConv, HyenaOperator]


def long_of(layer):
    (conv,) = layer.convolutions()
    return conv


def direct(layer, x: np.ndarray) -> np.ndarray:
    """The layer of x [length, width] by its definition."""
    p = {name: numbers(value) for name, value in layer.named_parameters()}
    zeros = np.zeros(4 * layer.width)
    u = x @ p["in_proj.weight"].T + p.get("in_proj.bias", zeros[: 3 * layer.width])
    z = np.zeros_like(u) + p["short.bias"]
    for t, s in np.ndindex(len(x), p["short.weight"].shape[1]):
        if s <= t:
            z[t] += p["short.weight"][:, s] * u[t - s]
    q, k, v = np.split(z, 3, axis=1)
    taps, d = numbers(long_of(layer).weight), layer.head_dim
    skip = None if long_of(layer).skip is None else numbers(long_of(layer).skip)
    shared = layer.width // d // len(taps)
    r = np.zeros_like(x)
    for n in range(layer.width // d):
        for i, j in np.ndindex(d, d):
            u = k[:, n * d + i] * v[:, n * d + j]
            w = np.convolve(taps[n // shared], u)[: len(x)]
            w += 0 if skip is None else skip[n // shared] * u
            r[:, n * d + j] += q[:, n * d + i] * w
    return r @ p["out_proj.weight"].T + p.get("out_proj.bias", zeros[: layer.width])


def expect_close(found, exact: np.ndarray, relative: float) -> None:
    assert found.shape == exact.shape
    error = np.linalg.norm(numbers(found) - exact)
    assert error <= relative * np.linalg.norm(exact)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_their_definition(place, kind, rng):
    torch.manual_seed(0)
    for bias, skip in ((True, True), (False, False)):
        d, heads, length = (int(n) for n in rng.integers((2, 1, 1), (5, 4, 40)))
        options = {"head_dim": d, "bias": bias, "skip": skip}
        layer = kind(heads * d, 23, **options).to(place, torch.float64)
        assert long_of(layer).weight.shape == (heads, 23)
        x = torch.randn(2, length, heads * d, device=place, dtype=torch.float64)
        should = np.stack([direct(layer, numbers(row)) for row in x])
        expect_close(layer(x), should, 1e-12)
        with torch.no_grad():
            expect_close(layer(x), should, 1e-12)


def test_neighbouring_heads_may_share_a_filter(device):
    torch.manual_seed(0)
    layer = HyenaOperator(12, 20, head_dim=2, filters=3).to(device, torch.float64)
    x = torch.randn(1, 20, 12, device=device, dtype=torch.float64)
    expect_close(layer(x)[0], direct(layer, numbers(x[0])), 1e-12)


def test_heads_of_one_channel_are_the_operator_without(device):
    torch.manual_seed(0)
    layer = HyenaOperator(6, 20, head_dim=1).to(device)
    torch.manual_seed(0)
    plain = HyenaOperator(6, 20).to(device)
    x = torch.randn(2, 20, 6, device=device)
    assert torch.equal(layer(x), plain(x))


@pytest.mark.parametrize("packed", [False, True])
def test_gradients(packed, device):
    torch.manual_seed(0)
    layer = HyenaOperator(4, 6, head_dim=2).to(device, torch.float64)
    x = torch.randn(1, 9, 4, device=device, dtype=torch.float64, requires_grad=True)
    names, values = zip(*layer.named_parameters())

    def run(x, *values):
        arguments = (x, (0, 4, 4, 9)) if packed else (x,)
        named = dict(zip(names, values))
        return torch.func.functional_call(layer, named, arguments)

    assert torch.autograd.gradcheck(run, (x, *values), fast_mode=True)
    assert torch.autograd.gradgradcheck(run, (x, *values), fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_are_rows_alone(place, kind):
    torch.manual_seed(0)
    layer = kind(6, 40, head_dim=3).to(place, torch.float64)
    ends = (0, 3, 3, 40, 41, 60)
    x = torch.randn(1, ends[-1], 6, device=place, dtype=torch.float64)
    rows = [layer(x[:, a:b]) for a, b in zip(ends, ends[1:]) if a < b]
    torch.testing.assert_close(layer(x, ends), torch.cat(rows, 1))
    with torch.no_grad():
        torch.testing.assert_close(layer(x, ends), torch.cat(rows, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_heads_keep_their_spectrum(kind, device, monkeypatch):
    torch.manual_seed(0)
    layer = kind(6, 30, head_dim=2).to(device)
    x = torch.randn(2, 30, 6, device=device)
    trained, calls, pack = layer(x).detach(), [], ops.long_conv_pack
    monkeypatch.setattr(ops, "long_conv_pack", lambda *a: calls.append(1) or pack(*a))
    for frozen in (copy.deepcopy(layer).freeze(), freeze(copy.deepcopy(layer))):
        calls.clear()
        for _ in range(2):
            torch.testing.assert_close(frozen(x), trained, rtol=1e-4, atol=1e-5)
        assert len(calls) == 1
        frozen.unfreeze()
        assert all(p.requires_grad for p in frozen.parameters())
        with torch.no_grad():
            long_of(frozen).weight.mul_(2)
            assert not torch.allclose(frozen(x), trained)


def test_streams_have_heads(device):
    torch.manual_seed(0)
    layer = GatedLongConv(6, 30, head_dim=3).to(device)
    x = torch.randn(2, 30, 6, device=device)
    stream = layer.stream(2)
    y = torch.cat([stream(block) for block in x.split((1, 7, 22), 1)], 1)
    torch.testing.assert_close(y, layer(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_convolutions_with_hooks_are_called(kind, device):
    torch.manual_seed(0)
    layer, seen = kind(6, 30, head_dim=2).to(device), []
    x = torch.randn(2, 30, 6, device=device)
    y = layer(x)
    for module in (layer.short, long_of(layer)):
        module.register_forward_hook(lambda module, *_: seen.append(module))
    torch.testing.assert_close(layer(x), y)
    assert seen == [layer.short, long_of(layer)]


def test_heads_compile_whole():
    torch.manual_seed(0)
    expect_compiles(HyenaOperator(4, 16, head_dim=2), torch.randn(2, 16, 4))


def test_autocast(device):
    """Four stored results of 16 bits: u, z, p and w, and the projections' operands."""
    torch.manual_seed(0)
    layer = HyenaOperator(8, 40, head_dim=4).to(device)
    x = torch.randn(2, 40, 8, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    expect_close(y, numbers(layer(x)), 16 * 2**-8)
    y.float().square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in layer.parameters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"head_dim": 4}, "danaus: heads of 4 channels do not divide a width of 6"),
        ({"head_dim": 0}, "danaus: heads of 0 channels"),
        ({"head_dim": 2, "filters": 6}, "danaus: 6 filters do not divide 3 heads"),
        ({"filters": 0}, "danaus: 0 filters"),
    ],
)
def test_what_does_not_fit_is_refused(kind, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        kind(6, 16, **options)


def test_heads_need_the_order_2():
    with pytest.raises(ValueError, match="danaus: heads of 2 channels need the order"):
        HyenaOperator(6, 16, 3, head_dim=2)
