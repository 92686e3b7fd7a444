"""Planes, centres, modes and filters for each sample, in PyTorch."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from compiling import compiled
from scipy import signal

import danaus
from danaus.torch import LongConv, LongConv2d, _conv_fft, freeze
from danaus.torch.functional import convolve, long_conv, long_conv2d
from danaus.torch.sequence_parallel import split_sequence

KINDS = ("causal", "circular", "centred")
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
UNIT = {
    torch.float64: 2.0**-50,
    torch.float32: 2.0**-20,
    torch.float16: 2.0**-10,
    torch.bfloat16: 2.0**-7,
}


def random_of(rng, *shape, dtype=torch.float64, device="cpu", grad=False):
    x = torch.tensor(rng.uniform(-1, 1, shape), device=device).to(dtype)
    return x.requires_grad_(grad)


def wide(x):
    return x.detach().cpu().double().numpy()


def expect_close(y, wanted, k):
    """Within some units of the sums of taps, which no number of y exceeds."""
    bound = UNIT[y.dtype] * (1 + np.abs(wide(k)).sum())
    assert y.shape == wanted.shape and np.abs(wide(y) - wanted).max() <= bound


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_planes_are_those_of_numpy(place, kind, dtype, rng):
    """danaus.convolve() is compared with SciPy in test_convolve.py."""
    for _ in range(8 if str(place) == "cpu" else 2):
        filters, share = rng.integers(1, 4, 2)
        size, taps = rng.integers(1, 30, 2), rng.integers(1, 40, 2)
        centre = [int(rng.integers(0, t)) for t in taps] if kind != "causal" else None
        u, gate_in, gate_out = (
            random_of(rng, 2, filters * share, *size, dtype=dtype, device=place)
            for _ in range(3)
        )
        k = random_of(rng, filters, *taps, dtype=dtype, device=place)
        skip = random_of(rng, filters, dtype=dtype, device=place)
        y = long_conv2d(u, k, skip, gate_in, gate_out, kind, centre)
        assert y.dtype == dtype and y.is_contiguous()
        gates = {"gate_in": wide(gate_in), "gate_out": wide(gate_out)}
        options = {"axes": 2, "kind": kind, "centre": centre, "skip": wide(skip)}
        wanted = danaus.convolve(wide(u), wide(k), **options, **gates)
        expect_close(y, wanted, torch.cat([k.flatten(1), skip[:, None]], 1))


@pytest.mark.parametrize("kind", KINDS)
def test_torch_fft_agrees(kind, rng):
    """The path of devices without kernels."""
    for _ in range(20):
        (height, width), taps = rng.integers(1, 12, 2), rng.integers(1, 20, 2)
        centre = [int(rng.integers(0, t)) for t in taps] if kind != "causal" else [0, 0]
        u = random_of(rng, 2, 6, height, width)
        k, skip = random_of(rng, 3, *taps), random_of(rng, 3)
        form = [height, int(taps[0]), *centre]
        rows = u.flatten(-2), k.flatten(-2), None, skip, None, None, kind, form
        y = _conv_fft._fft_long_conv(*rows).view(u.shape)
        torch.testing.assert_close(y, long_conv2d(u, k, skip, None, None, kind, centre))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_differences(kind, rng):
    u, gate = (random_of(rng, 2, 2, 3, 4, grad=True) for _ in range(2))
    k, skip = random_of(rng, 1, 2, 5, grad=True), random_of(rng, 1, grad=True)

    def function(u, k, skip, gate):
        return long_conv2d(u, k, skip, gate, gate, kind)

    assert torch.autograd.gradcheck(function, (u, k, skip, gate))
    assert torch.autograd.gradgradcheck(function, (u, k, skip, gate))


@pytest.mark.parametrize("kind", KINDS)
def test_modules_train_and_infer(place, kind, rng):
    torch.manual_seed(0)
    options = {"kind": kind, "filters": 2, "taps": (5, 7), "device": place}
    conv = LongConv2d(4, (12, 9), dtype=torch.float64, **options)
    u = random_of(rng, 3, 4, 12, 9, device=place)
    wanted = long_conv2d(u, conv.weight, conv.skip, kind=kind)
    torch.testing.assert_close(conv(u), wanted)
    conv(u).square().sum().backward()
    assert conv.weight.grad.shape == conv.weight.shape == (2, 5, 7)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(conv(u), wanted)
        other = u.transpose(2, 3).contiguous()  # as many numbers, another height
        torch.testing.assert_close(
            conv(other), long_conv2d(other, conv.weight, conv.skip, kind=kind)
        )
    freeze(conv)
    with torch.no_grad():
        torch.testing.assert_close(conv(u), wanted)
    assert "4, (12, 9)" in repr(conv) and "taps=(5, 7)" in repr(conv)


def test_modules_take_filters(rng):
    k = torch.tensor(rng.uniform(-1, 1, (3, 4, 4)), dtype=torch.float32)
    u = random_of(rng, 2, 3, 8, 8, dtype=torch.float32)
    given = LongConv2d(3, 8, "centred", taps=4, filter=k, skip=False)
    torch.testing.assert_close(given(u), long_conv2d(u, k, kind="centred"))

    class Made(torch.nn.Module):
        def forward(self, height, width):
            return k[:, :height, :width]

    made = LongConv2d(3, 8, "centred", filter=Made(), skip=False)
    torch.testing.assert_close(made(u), given(u))
    narrow = u[..., :3].contiguous()
    wanted = long_conv2d(narrow, k[..., :3], kind="centred")
    torch.testing.assert_close(made(narrow), wanted)


def test_modules_compile(rng):
    conv = LongConv2d(3, (6, 10), "centred", taps=3)
    u = random_of(rng, 2, 3, 6, 10, dtype=torch.float32)
    torch.testing.assert_close(compiled(conv)(u), conv(u))


def test_rows_take_a_centre(rng):
    u, k = random_of(rng, 2, 3, 40), random_of(rng, 3, 9)
    for kind in ("centred", "circular"):
        for centre in (None, 0, 3, 8):
            wanted = danaus.convolve(wide(u), wide(k), kind=kind, centre=centre)
            y = long_conv(u, k, kind=kind, centre=centre)
            assert np.allclose(wide(y), wanted, atol=1e-12)
            conv = LongConv(3, 40, kind, filter=k, taps=9, skip=False, centre=centre)
            with torch.no_grad():
                assert np.allclose(wide(conv.double()(u)), wanted, atol=1e-6)


@pytest.mark.parametrize("planes", (False, True))
def test_samples_have_filters_of_their_own(place, planes, rng):
    size, taps = ((6, 7), (3, 9)) if planes else ((20,), (11,))
    run = long_conv2d if planes else long_conv
    u = random_of(rng, 5, 4, *size, device=place, grad=True)
    k = random_of(rng, 5, 2, *taps, device=place, grad=True)
    skip = random_of(rng, 5, 2, device=place, grad=True)
    y = run(u, k, skip=skip, kind="centred")
    each = [
        run(a[None], b, skip=c, kind="centred") for a, b, c in zip(u, k, skip)
    ]
    torch.testing.assert_close(y, torch.cat(each))
    dy = random_of(rng, *u.shape, device=place)
    found = torch.autograd.grad(y, (u, k, skip), dy)
    wanted = torch.autograd.grad(torch.cat(each), (u, k, skip), dy)
    torch.testing.assert_close(found, wanted)
    assert run(u[:0], k[:0], kind="centred").shape == (0, 4, *size)


@pytest.mark.parametrize("mode", ("full", "same", "valid"))
@pytest.mark.parametrize(
    "front, behind", [((), ()), ((3,), (3,)), ((2, 3), (1, 1)), ((1, 4), (5, 1))]
)
def test_convolve_is_that_of_scipy(mode, front, behind, rng):
    for length, taps in ((30, 7), (7, 30), (12, 12), (1, 1)):
        u, k = random_of(rng, *front, length), random_of(rng, *behind, taps)
        y = convolve(u, k, mode)
        batch = np.broadcast_shapes(front, behind)
        rows = np.broadcast_to(wide(u), (*batch, length))
        filters = np.broadcast_to(wide(k), (*batch, taps))
        wanted = np.array([
            signal.convolve(rows[at], filters[at], mode) for at in np.ndindex(batch)
        ]).reshape(*batch, -1)
        assert np.allclose(wide(y), wanted, atol=1e-12)


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda u, k: long_conv2d(u[0], k), "batch, channels, height"),
        (lambda u, k: long_conv2d(u, k[0]), "filters, down"),
        (lambda u, k: long_conv2d(u, k, kind="bidirectional"), "reverse"),
        (lambda u, k: long_conv2d(u, k, kind="some"), "kind"),
        (lambda u, k: long_conv2d(u, k, centre=(1, 1)), "only centred"),
        (lambda u, k: long_conv2d(u, k, kind="centred", centre=(3, 0)), "no place"),
        (lambda u, k: long_conv2d(u, k, kind="centred", centre=1), "whole numbers"),
        (lambda u, k: long_conv2d(u, k, gate_in=u[..., 1:]), "gate_in"),
        (lambda u, k: long_conv2d(u, k[None]), "filters of shape"),
        (lambda u, k: long_conv2d(u[:, :1], k), "divide"),
        (lambda u, k: LongConv2d(3, (4, 0)), "a size of planes"),
        (lambda u, k: LongConv2d(3, 4, filter=k[:2]), "a filter"),
        (lambda u, k: LongConv2d(3, 4).stream(), "no streams"),
        (lambda u, k: split_sequence(LongConv2d(3, 4), None), "takes no group"),
        (lambda u, k: convolve(u, k[:2]), "broadcast"),
        (lambda u, k: convolve(u, k[..., :0]), "k has to be"),
        (lambda u, k: convolve(u, k, "some"), "mode"),
    ],
)
def test_bad_arguments_are_named(call, sentence, rng):
    u, k = random_of(rng, 2, 3, 5, 6), random_of(rng, 3, 3, 3)
    with pytest.raises(ValueError, match=sentence):
        call(u, k)
