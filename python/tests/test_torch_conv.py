"""Convolutions as functions of tensors: results and gradients."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import concurrent.futures
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from conv_cases import (
    KINDS,
    TYPES,
    direct,
    direct_short,
    expect_close,
    numbers,
    random_long,
)
from torch.autograd import forward_ad

from danaus.torch import _conv_fft, _conv_ops
from danaus.torch.functional import hyena, long_conv, short_conv

LAYOUTS = ("channels_first", "channels_last")
pytestmark = pytest.mark.filterwarnings("ignore:danaus has no kernels for convolutions")


# ---- results ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_long_conv_is_its_definition(place, kind, dtype, rng):
    for length in (1, 2, 3, 31, 64, 97, 256, 331, 1024):
        filters = int(rng.integers(1, 4))
        channels = filters * int(rng.integers(1, 4))
        taps = int(rng.integers(1, 2 * length + 1))
        extras = int(rng.integers(8))
        case = random_long(
            rng, 2, channels, length, filters, taps, kind, dtype, extras, place
        )
        y = long_conv(*case)
        assert y.dtype == dtype and y.is_contiguous()
        expect_close(y, direct(*case))


@pytest.mark.parametrize("kind", KINDS)
def test_torch_fft_agrees(place, kind, rng):
    """The path of devices without kernels, on every device."""
    for length, taps in ((1, 1), (5, 9), (100, 100), (127, 40), (64, 200)):
        case = random_long(
            rng, 2, 6, length, 3, taps, kind, torch.float64, device=place
        )
        expect_close(_conv_fft._fft_long_conv(*case), direct(*case))
        if kind != "bidirectional":
            case = (*case[:3], None, None, None, kind)
            expect_close(_conv_fft._fft_long_conv(*case), direct(*case))


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(0, 3),
    filters=st.integers(1, 3),
    group=st.integers(1, 3),
    length=st.integers(1, 400),
    taps=st.integers(1, 500),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(TYPES),
    extras=st.integers(0, 7),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape_is_right(
    batch, filters, group, length, taps, kind, dtype, extras, seed
):
    rng = np.random.default_rng(seed)
    case = random_long(
        rng, batch, filters * group, length, filters, taps, kind, dtype, extras
    )
    expect_close(long_conv(*case), direct(*case))


def direct_sparse(case, n: int, axes, keep) -> np.ndarray:
    """long_conv by a table of the values that a filter has at (f + 1/4) / n."""
    u, k, k_reverse, skip, gate_in, gate_out, kind = case
    p, k = numbers(u) * numbers(gate_in), numbers(k)
    length, f = p.shape[2], np.arange(n)
    kept, rest = np.ones(n, bool), f
    for axis, count in zip(axes, keep):
        kept &= rest % axis < count
        rest = rest // axis
    taps = {s: k[:, s] for s in range(k.shape[1])}
    taps[0] = taps[0] + numbers(skip)
    if kind == "bidirectional":
        taps |= {-1 - s: numbers(k_reverse)[:, s] for s in range(k.shape[1])}
    wave = np.exp(
        2j * np.pi * (f[kept] + 0.25)[:, None] * np.arange(-length, length) / n
    )
    values = sum(t[:, None] * wave[:, lag + length] for lag, t in taps.items())
    remains = (values @ wave.conj() / n).real  # [filter][lag + length]
    lags = np.subtract.outer(np.arange(length), np.arange(length)) + length
    group = p.shape[1] // k.shape[0]
    y = np.einsum("hts,bhs->bht", np.repeat(remains, group, 0)[:, lags], p)
    return y * numbers(gate_out)


@pytest.mark.parametrize("kind", ("causal", "bidirectional"))
@pytest.mark.parametrize(
    "axes, keep, n",
    (
        (None, (4, 4), 4096),
        ((16, 8, 4), (5, 0, 3, 7), 4096),
        ((32, 16, 4, 4), (32, 1), 8192),
    ),
)
def test_sparse_spectra(place, kind, axes, keep, n, rng):
    case = random_long(rng, 2, 4, 40, 2, 30, kind, torch.float64, device=place)
    whole_axes = [*(axes or ()), 8, 8, 8, 8][:4]
    whole_keep = [a or b for a, b in zip([*keep, 0, 0, 0, 0], whole_axes)]
    exact = direct_sparse(case, n, whole_axes, whole_keep)
    y = long_conv(*case, axes, keep)
    assert np.abs(numbers(y) - exact).max() < 1e-12 * np.abs(exact).max() + 1e-13
    by_fft = _conv_fft._fft_long_conv(*case, [*whole_axes, *whole_keep])
    assert np.abs(numbers(by_fft) - exact).max() < 1e-12 * np.abs(exact).max() + 1e-13


def test_gradcheck_of_sparse_spectra(place, rng):
    case = random_long(rng, 1, 2, 5, 1, 4, "bidirectional", torch.float64, device=place)
    case = (*with_gradients(case), None, (4, 4))
    assert torch.autograd.gradcheck(long_conv, case, fast_mode=True)
    assert torch.autograd.gradgradcheck(long_conv, case, fast_mode=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("centred", (False, True))
@pytest.mark.parametrize("dtype", TYPES)
def test_short_conv_is_its_definition(place, layout, centred, dtype, rng):
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    for batch, channels, length, taps in (
        (2, 3, 50, 4),
        (1, 17, 9, 128),
        (3, 1, 1, 1),
        (0, 4, 5, 3),
        (1, 33, 130, 7),
    ):
        shape = (batch, channels, length)
        if layout == "channels_last":
            shape = (batch, length, channels)
        u = torch.from_numpy(rng.standard_normal(shape)).to(place, dtype)
        k = torch.from_numpy(rng.standard_normal((channels, taps))).to(place, sums)
        bias = torch.from_numpy(rng.standard_normal(channels)).to(place, sums)
        for b in (bias, None):
            y = short_conv(u, k, b, layout, centred)
            assert y.dtype == dtype and y.is_contiguous()
            expect_close(y, direct_short(u, k, b, layout, centred))


def test_strides_and_types_are_brought_together(place, rng):
    case = random_long(rng, 3, 4, 60, 4, 60, "causal", torch.float32, device=place)
    u, k, _, skip, gate_in, gate_out, _ = case
    exact = direct(*case)
    loose = u.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    flipped = k.flip(1).contiguous().flip(1)
    assert not loose.is_contiguous()
    wide = gate_in.repeat_interleave(2, 2)[..., ::2]
    y = long_conv(loose, flipped, None, skip, wide, gate_out)
    expect_close(y, exact)
    double = long_conv(loose, k.double(), None, skip, gate_in.double(), gate_out)
    assert double.dtype == torch.float64
    expect_close(double, exact, torch.float32)
    half = long_conv(u.half(), k.bfloat16(), None, None)
    assert half.dtype == torch.float16
    again = long_conv(u.half(), k.bfloat16().float())
    assert torch.equal(half, again)
    last = short_conv(loose, k[:, :5].double(), layout="channels_first")
    assert torch.equal(last, short_conv(u, k[:, :5]))


def test_results_do_not_depend_on_threads_or_batch(rng, device):
    case = random_long(rng, 4, 16, 300, 16, 300, "causal", torch.float32, device=device)
    u, k, _, skip, gate_in, gate_out, _ = case
    whole = long_conv(*case)
    threads = torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    try:
        torch.set_num_threads(2)
        assert torch.equal(long_conv(*case), whole)
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
    one = long_conv(u[3:4], k, None, skip, gate_in[3:4], gate_out[3:4])
    assert torch.equal(one, whole[3:4])


def test_threads_of_python_run_beside_each_other(rng):
    cases = [
        random_long(rng, 2, 4, 50 + 7 * i, 2, 30 + i, KINDS[i % 3], torch.float32)
        for i in range(24)
    ]
    expected = [long_conv(*case) for case in cases]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for y, exact in zip(pool.map(lambda c: long_conv(*c), cases), expected):
                assert torch.equal(y, exact)


def test_more_lengths_than_plans_are_kept(rng):
    k = torch.from_numpy(rng.standard_normal((2, 20)))
    for length in range(1, 200):
        u = torch.from_numpy(rng.standard_normal((1, 2, length)))
        expect_close(long_conv(u, k), direct(u, k, None, None, None, None, "causal"))


# ---- gradients ----


def with_gradients(case) -> list:
    return [x.requires_grad_() if torch.is_tensor(x) else x for x in case]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shape", ((2, 4, 9, 2, 9), (1, 3, 7, 3, 12), (2, 2, 1, 1, 3), (1, 1, 16, 1, 4))
)
def test_gradcheck_of_long_conv(place, kind, shape, rng):
    for extras in (7, 0, 2):
        case = random_long(
            rng, *shape, kind, torch.float64, extras=extras, device=place
        )
        assert torch.autograd.gradcheck(long_conv, with_gradients(case))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("centred", (False, True))
def test_gradcheck_of_short_conv(place, layout, centred, rng):
    for taps in (1, 4, 11):
        shape = (2, 3, 8) if layout == "channels_first" else (2, 8, 3)
        made = [
            torch.from_numpy(rng.standard_normal(s)).to(place).requires_grad_()
            for s in (shape, (3, taps), (3,))
        ]
        assert torch.autograd.gradcheck(
            lambda u, k, b: short_conv(u, k, b, layout, centred), made
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_gradients_are_those_of_torch_fft(kind, dtype, rng):
    """Every type, with sums over a batch; autograd differentiates torch.fft in f64."""
    case = with_gradients(random_long(rng, 4, 6, 300, 3, 200, kind, dtype))
    wide = with_gradients(
        [x.detach().double() if torch.is_tensor(x) else x for x in case]
    )
    dy = torch.from_numpy(rng.standard_normal(case[0].shape)).to(dtype)
    long_conv(*case).backward(dy)
    _conv_fft._fft_long_conv(*wide).backward(dy.double())
    for x, exact in zip(case, wide):
        if torch.is_tensor(x):
            assert x.grad.dtype == x.dtype
            expect_close(x.grad, numbers(exact.grad), dtype)


def test_only_wanted_gradients_are_made(rng):
    case = random_long(rng, 2, 4, 50, 2, 50, "causal", torch.float64)
    for i in (0, 1, 3, 4, 5):
        alone = [x.detach().clone() if torch.is_tensor(x) else x for x in case]
        alone[i].requires_grad_()
        long_conv(*alone).sum().backward()
        every = with_gradients(
            [x.detach().clone() if torch.is_tensor(x) else x for x in case]
        )
        long_conv(*every).sum().backward()
        assert torch.allclose(alone[i].grad, every[i].grad, rtol=1e-12, atol=1e-12)
        assert all(
            x.grad is None for j, x in enumerate(alone) if torch.is_tensor(x) and j != i
        )


def test_an_empty_batch_has_zero_gradients(place):
    u = torch.empty(0, 4, 10, device=place, requires_grad=True)
    k = torch.randn(2, 10, device=place, requires_grad=True)
    long_conv(u, k).sum().backward()
    assert u.grad.shape == u.shape and not k.grad.any()
    k = torch.randn(4, 3, device=place, requires_grad=True)
    bias = torch.randn(4, device=place, requires_grad=True)
    short_conv(u, k, bias).sum().backward()
    assert not k.grad.any() and not bias.grad.any()


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind, rng):
    case = with_gradients(random_long(rng, 2, 4, 5, 2, 6, kind, torch.float64))
    assert torch.autograd.gradgradcheck(long_conv, case, fast_mode=True)
    made = [torch.from_numpy(rng.standard_normal(s)) for s in ((2, 6, 3), (3, 4), (3,))]
    assert torch.autograd.gradgradcheck(
        lambda u, k, b: short_conv(u, k, b, "channels_last", True),
        with_gradients(made),
    )


def test_third_derivatives():
    u = torch.randn(1, 1, 4, dtype=torch.float64, requires_grad=True)
    k = torch.randn(1, 4, dtype=torch.float64, requires_grad=True)

    def cube(convolve):
        made = u
        for _ in range(3):
            made = made * convolve(u, k)
        found = made.sum()
        for _ in range(3):
            found = torch.autograd.grad(found, u, create_graph=True)[0].square().sum()
        return found

    def through_fft(u, k):
        return _conv_fft._fft_long_conv(u, k, None, None, None, None, "causal")

    assert torch.allclose(cube(long_conv), cube(through_fft), rtol=1e-9)


def test_torch_func(rng):
    case = random_long(rng, 2, 4, 9, 2, 7, "bidirectional", torch.float64)
    u, k, *rest = case
    k.requires_grad_()
    long_conv(u, k, *rest).sin().sum().backward()

    def loss(k):
        return long_conv(u, k, *rest).sin().sum()

    assert torch.allclose(torch.func.grad(loss)(k.detach()), k.grad)
    per_sample = torch.func.vmap(torch.func.grad(loss))(
        torch.stack([k, 2 * k]).detach()
    )
    assert torch.allclose(per_sample[0], k.grad)
    tangent = torch.randn_like(k)
    _, along = torch.func.jvp(loss, (k.detach(),), (tangent,))
    assert torch.allclose(along, (k.grad * tangent).sum())


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # aten::index_copy_
@pytest.mark.parametrize("name", ("long", "short", "hyena"))
def test_torch_func_again(name):
    """Second derivatives by torch.func are autograd's, those of forward mode, too."""
    u = torch.randn(1, 6, 5, dtype=torch.float64)
    offsets = [0, 2, 5]
    functions = {
        "long": lambda k: long_conv(u, k, None, k[:, 0], u, u, offsets=offsets),
        "short": lambda k: short_conv(u, k, k[:, 0], offsets=offsets),
        "hyena": lambda k: hyena(u, k, None, k[:2] + 1, k[:2, 1], offsets=offsets),
    }
    k = torch.randn(6, 3, dtype=torch.float64)

    def loss(k):
        return functions[name](k).sin().sum()

    wanted = torch.autograd.functional.hessian(loss, k)
    assert torch.allclose(torch.func.jacrev(torch.func.jacrev(loss))(k), wanted)
    two = torch.stack([k, 2 * k]).requires_grad_()
    torch.func.vmap(loss)(two).sum().backward()
    first = torch.autograd.functional.jacobian(loss, k)
    assert torch.allclose(two.grad[0], first)
    assert torch.allclose(torch.func.hessian(loss)(k), wanted)
    for mode in torch.no_grad, torch.enable_grad:
        with mode(), forward_ad.dual_level():
            along = loss(forward_ad.make_dual(k, two[1].detach()))
            assert torch.allclose(
                forward_ad.unpack_dual(along)[1], (2 * k * first).sum()
            )


# ---- what PyTorch asks of operators ----


def operator_cases(rng):
    for kind, extras in (("bidirectional", 7), ("causal", 0)):
        case = random_long(rng, 2, 4, 11, 2, 13, kind, torch.float32, extras)
        yield torch.ops.danaus.long_conv.default, (*case, [])
    u, k, b = torch.randn(2, 6, 9), torch.randn(6, 3), torch.randn(6)
    yield torch.ops.danaus.short_conv.default, (u.mT.contiguous(), k, b, True, True)


def test_opcheck(rng):
    for operator, arguments in operator_cases(rng):
        torch.library.opcheck(operator, tuple(with_gradients(arguments)))


def test_opcheck_of_backward_and_inference(rng):
    u, k, *rest = random_long(rng, 2, 4, 11, 2, 13, "causal", torch.float32)
    some = ("test_schema", "test_faketensor")
    operators = torch.ops.danaus
    torch.library.opcheck(
        operators.long_conv_backward.default,
        (torch.randn_like(u), u, k, *rest, [], 0b111011),
        test_utils=some,
    )
    torch.library.opcheck(
        operators.short_conv_backward.default,
        (u, torch.randn_like(u), torch.randn(4, 3), False, False, 0b101),
        test_utils=some,
    )
    filters = (u, k, None, None, "causal", [], 2)
    torch.library.opcheck(operators.long_conv_pack.default, filters, test_utils=some)
    packed = operators.long_conv_pack(*filters)
    torch.library.opcheck(
        operators.long_conv_apply.default,
        (u, packed, None, None, 2, 13, "causal", [], 2),
        test_utils=some,
    )
    y = operators.long_conv_apply(u, packed, None, None, 2, 13, "causal", [], 2)
    assert torch.equal(y, operators.long_conv(u, k, *[None] * 4, "causal", []))


@pytest.mark.filterwarnings("default:danaus has no kernels for convolutions")
def test_devices_without_kernels_say_so_once(monkeypatch):
    monkeypatch.setattr(_conv_ops, "_warned", False)
    place = torch.device("xpu")
    with pytest.warns(UserWarning, match="no kernels for convolutions on xpu"):
        assert not _conv_ops.has_kernels(place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not _conv_ops.has_kernels(place)
        for place in "cpu", "cuda":
            assert _conv_ops.has_kernels(torch.device(place))
