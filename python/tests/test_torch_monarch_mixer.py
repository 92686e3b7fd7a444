"""The layer of Monarch Mixer against dense matrices, the paper's listing and
convolutions by definition, in f64."""

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

from conftest import dense_chain
from danaus.torch import MonarchMixerLayer
from danaus.torch.monarch_mixer import digits_for


def layer_of(rng, *sizes, scale=1.0, device="cpu", **options):
    """A layer of f64 with random numbers everywhere."""
    layer = MonarchMixerLayer(*sizes, device=device, dtype=torch.float64, **options)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(p.shape) * scale))
    return layer


def signal(rng, *shape, device="cpu", dtype=torch.float64):
    return torch.from_numpy(rng.standard_normal(shape)).to(device, dtype)


# ---- oracles ----


def value(parameter) -> np.ndarray:
    """Its numbers, complex ones of pairs."""
    x = numbers(parameter)
    return x[..., 0] + 1j * x[..., 1] if x.ndim in (3, 5) else x


def matrix(m) -> np.ndarray:
    """By the definition of factors: the one that is applied first is the last."""
    factors = [value(w) for w in m.weights]
    return dense_chain(factors if m.high_first else factors[::-1])


FUNCTIONS = {
    "none": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "silu": lambda v: v / 2 * (1 + np.tanh(v / 2)),
}


def normalised(layer, s: np.ndarray) -> np.ndarray:
    s = s - s.mean(1, keepdims=True)
    s = s / np.sqrt((s**2).mean(1, keepdims=True) + layer.layer_norm.eps)
    return s * value(layer.layer_norm.weight) + value(layer.layer_norm.bias)


def mixed(layer, x: np.ndarray) -> np.ndarray:
    """Equation 2 for x [length, width]."""
    act = FUNCTIONS[layer.sequence_activation]
    places, m1, m2 = math.prod(layer.blocks), matrix(layer.m1), matrix(layer.m2)
    padded = np.zeros((places, layer.width))
    padded[: len(x)] = x
    return (m2 @ act(value(layer.n_kernel).T * (m1 @ padded)))[: len(x)].real


def direct(layer, x: np.ndarray) -> np.ndarray:
    """Equations 2 and 3, and the end of the listing."""
    z, act = mixed(layer, x), FUNCTIONS[layer.activation]
    m3, m4, y = matrix(layer.m3), matrix(layer.m4), np.zeros_like(x)
    for t, row in enumerate(z):
        padded = np.concatenate((row, np.zeros(len(m3) - layer.width)))
        y[t] = (m4 @ act(value(layer.d_kernel)[0] * (m3 @ padded)))[: layer.width]
    return normalised(layer, y + z)


def listing(layer, x: np.ndarray) -> np.ndarray:
    """Appendix A for x [length, width], both squares, with its permutations."""

    def swapped(x):  # "... (m n) -> ... (n m)"
        root = math.isqrt(x.shape[-1])
        return x.reshape(*x.shape[:-1], root, root).swapaxes(-1, -2).reshape(x.shape)

    def blocks(x, w):
        rows = x.reshape(*x.shape[:-1], len(w), -1)
        return np.einsum("bnm,...bm->...bn", w, rows).reshape(x.shape)

    def monarch(x, left, right):
        return swapped(blocks(swapped(blocks(swapped(x), left)), right))

    def pair(m):
        low = value(m.weights[0])[..., 0]  # [block][out][in]
        high = value(m.weights[1])[0].transpose(2, 0, 1)
        return (high, low) if m.high_first else (low, high)

    relu = FUNCTIONS["relu"]
    n_kernel, d_kernel = swapped(value(layer.n_kernel)), swapped(value(layer.d_kernel))
    v = relu(n_kernel * monarch(x.T, *pair(layer.m1)))
    z = monarch(v, *pair(layer.m2)).T
    y = monarch(relu(d_kernel * monarch(z, *pair(layer.m3))), *pair(layer.m4))
    return normalised(layer, y + z)


def expect_close(found, exact: np.ndarray, relative: float) -> None:
    assert found.shape == exact.shape
    error = np.linalg.norm(numbers(found) - exact)
    assert error <= relative * np.linalg.norm(exact)


# ---- results ----


@pytest.mark.parametrize("start", ["orthogonal", "dft"])
@pytest.mark.parametrize(
    "sizes, options",
    [
        ((6, 12), {}),
        ((8, 16, 1), {"activation": None}),
        ((12, 24, 3), {"activation": "silu"}),
        ((5, 13), {}),  # padded
        ((6, 7), {"blocks": (3, 1, 5), "width_blocks": (2, 4)}),
        ((1, 1), {}),
    ],
    ids=str,
)
def test_the_layer_is_its_definition(rng, device, start, sizes, options):
    layer = layer_of(rng, *sizes, start=start, device=device, **options)
    for length in {sizes[1], (sizes[1] + 1) // 2}:
        x = signal(rng, 2, length, sizes[0], device=device)
        exact = np.stack([direct(layer, numbers(row)) for row in x])
        expect_close(layer(x), exact, 1e-10)
        with torch.no_grad():
            expect_close(layer(x[1]), exact[1], 1e-10)


@pytest.mark.parametrize("roots", [(2, 3), (4, 2), (3, 3)])
def test_it_is_the_papers_listing(rng, device, roots):
    width, length = (root**2 for root in roots)
    options = {"sequence_activation": "relu", "device": device}
    layer = layer_of(rng, width, length, **options)
    x = signal(rng, length, width, device=device)
    expect_close(layer(x), listing(layer, numbers(x)), 1e-10)


# ---- beginnings ----


@pytest.mark.parametrize("sizes", [(8, 12), (8, 30, 3), (6, 16, 4), (5, 7, 1)])
def test_it_begins_as_a_circular_convolution(rng, device, sizes):
    made = {"device": device, "dtype": torch.float64}
    layer = MonarchMixerLayer(*sizes, start="dft", **made)
    size = math.prod(layer.blocks)
    transform = np.fft.fft(np.eye(size)) / math.sqrt(size)
    reverse = np.arange(size).reshape(layer.blocks).transpose().ravel()
    np.testing.assert_allclose(matrix(layer.m1), transform[reverse], atol=1e-12)
    unit = matrix(layer.m2) @ matrix(layer.m1)
    np.testing.assert_allclose(unit, np.eye(size), atol=1e-12)
    kernel = np.empty((sizes[0], size), complex)
    kernel[:, reverse] = value(layer.n_kernel)
    filters = np.fft.ifft(kernel)
    assert np.abs(filters.imag).max() < 1e-12  # real ones, of variance 1 / size
    assert 0.5 < (filters.real**2).mean() * size < 2
    x = signal(rng, size, sizes[0], device=device)[: sizes[1]]
    padded = np.zeros((size, sizes[0]))
    padded[: sizes[1]] = numbers(x)
    exact = sum(filters.real[:, s] * np.roll(padded, s, 0) for s in range(size))
    expect_close(layer.mix_sequence(x), exact[: sizes[1]], 1e-12)


def test_twice_the_length_has_no_period(rng):
    layer = layer_of(rng, 2, 6, start="dft", blocks=(3, 4))
    again = MonarchMixerLayer(2, 6, start="dft", blocks=(3, 4), dtype=torch.float64)
    layer.m1, layer.m2 = again.m1, again.m2
    first, other = torch.eye(12, dtype=torch.float64)[:6, 0], torch.zeros(6)
    other[3] = 1
    a, b = (
        layer.mix_sequence(u[:, None].expand(6, 2).double()) for u in (first, other)
    )
    torch.testing.assert_close(a[:3], b[3:])  # shifted by three places
    assert not torch.allclose(a[3:], b[:3])  # what would come round


def test_it_begins_orthogonal(device):
    torch.manual_seed(0)
    layer = MonarchMixerLayer(12, 18, 3, device=device, dtype=torch.float64)
    found = [matrix(m) for m in (layer.m1, layer.m2, layer.m3, layer.m4)]
    for m in found:
        np.testing.assert_allclose(m @ m.T, np.eye(len(m)), atol=1e-12)
    assert not np.allclose(found[0], found[1].T)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_default_blocks_are_nearly_equal(order):
    for size in [*range(1, 130), 196, 197, 768, 1160, 4096, 10007]:
        digits = digits_for(size, order)
        assert len(digits) == order and size <= math.prod(digits)
        assert max(digits) <= 2 * math.ceil(size ** (1 / order) - 1e-9)
    assert digits_for(768, 2) == [24, 32] and digits_for(196, 2) == [14, 14]
    assert digits_for(64, 3) == [4, 4, 4]


# ---- training ----


@pytest.mark.parametrize("start", ["orthogonal", "dft"])
def test_gradients(rng, start, device):
    options = {"start": start, "activation": "silu", "blocks": (2, 3), "scale": 0.5}
    layer = layer_of(rng, 4, 5, device=device, **options)
    x = signal(rng, 2, 5, 4, device=device).requires_grad_()
    names, values = zip(*layer.named_parameters())

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values)), (x,))

    assert torch.autograd.gradcheck(run, (x, *values), fast_mode=True)


@pytest.mark.parametrize("start", ["orthogonal", "dft"])
@pytest.mark.parametrize("sequence", [True, False])
@pytest.mark.parametrize("features", [True, False])
def test_fixed_matrices_are_not_learned(start, sequence, features):
    flags = {"learn_sequence": sequence, "learn_features": features}
    layer = MonarchMixerLayer(4, 6, start=start, **flags)
    layer(torch.randn(2, 6, 4)).square().sum().backward()
    learned = {name for name, p in layer.named_parameters() if p.grad is not None}
    expected = {"n_kernel", "d_kernel", "layer_norm.weight", "layer_norm.bias"}
    for m, learn in (("m1", sequence), ("m2", sequence), ("m3", features)):
        expected |= {f"{m}.weights.{t}" for t in range(2) if learn}
    expected |= {f"m4.weights.{t}" for t in range(2) if features}
    assert learned == expected


@pytest.mark.parametrize("start", ["orthogonal", "dft"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_types(rng, device, start, dtype):
    """Six results, three of them sums of order 2, are rounded with their operands."""
    torch.manual_seed(0)
    wide = MonarchMixerLayer(8, 12, start=start, device=device, dtype=torch.float64)
    layer = copy.deepcopy(wide).to(dtype)
    assert all(p.dtype == dtype for p in layer.parameters())
    x = signal(rng, 2, 12, 8, device=device)
    with torch.no_grad():
        y, exact = layer(x.to(dtype)), numbers(wide(x))
    assert y.dtype == dtype
    expect_close(y, exact, 32 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("start", ["orthogonal", "dft"])
def test_autocast(rng, device, start):
    torch.manual_seed(0)
    layer = MonarchMixerLayer(8, 12, start=start, device=device)
    x = signal(rng, 2, 12, 8, device=device, dtype=torch.float32).requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        y = layer(x)
    expect_close(y, numbers(layer(x)), 32 * 2**-8)
    y.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("start", ["orthogonal", "dft"])
def test_it_compiles_whole(rng, start):
    torch.manual_seed(0)
    x = signal(rng, 2, 8, 6, dtype=torch.float32)
    expect_compiles(MonarchMixerLayer(6, 8, start=start), x)


# ---- what does not fit ----


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"width": 0}, "danaus: a width of 0"),
        ({"length": 0}, "danaus: .* length of 0"),
        ({"order": 0}, "danaus: .*order 0"),
        ({"blocks": (2, 3)}, r"danaus: blocks \[2, 3\] make 6 numbers, not 8"),
        ({"blocks": ()}, "danaus: .*make 1 numbers"),
        ({"width_blocks": (0, 9)}, "danaus: .*make 0 numbers"),
        ({"start": "fft"}, "start"),
        ({"activation": "tanh"}, "activation"),
        ({"start": "dft", "sequence_activation": "relu"}, "danaus: complex .* relu"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        MonarchMixerLayer(**{"width": 4, "length": 8} | options)


@pytest.mark.parametrize(
    "x",
    [
        np.ones((8, 4)),
        torch.ones(9, 4),
        torch.ones(8, 5),
        torch.ones(4),
        torch.ones(8, 4, dtype=torch.int32),
        torch.ones(8, 4, dtype=torch.complex64),
        torch.ones(8, 4, device="meta"),
    ],
    ids=range(7),
)
def test_wrong_inputs_are_refused(x):
    with pytest.raises(ValueError, match="danaus: x "):
        MonarchMixerLayer(4, 8)(x)
