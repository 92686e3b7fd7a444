"""Convolutions as functions of tensors: results, gradients, what they refuse."""

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
    whole_f32,  # noqa: F401  for every test
)

from danaus.torch import _conv_ops
from danaus.torch.functional import long_conv, short_conv

LAYOUTS = ("channels_first", "channels_last")
pytestmark = pytest.mark.filterwarnings("ignore:danaus has no kernels for convolutions")


# ---- results ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_long_conv_is_its_definition(device, kind, dtype, rng):
    for length in (1, 2, 3, 31, 64, 97, 256, 331, 1024):
        filters = int(rng.integers(1, 4))
        channels = filters * int(rng.integers(1, 4))
        taps = int(rng.integers(1, 2 * length + 1))
        extras = int(rng.integers(8))
        case = random_long(
            rng, 2, channels, length, filters, taps, kind, dtype, extras, device
        )
        y = long_conv(*case)
        assert y.dtype == dtype and y.is_contiguous()
        expect_close(y, direct(*case))


@pytest.mark.parametrize("kind", KINDS)
def test_torch_fft_agrees(device, kind, rng):
    """The path of devices without kernels, on every device."""
    for length, taps in ((1, 1), (5, 9), (100, 100), (127, 40), (64, 200)):
        case = random_long(
            rng, 2, 6, length, 3, taps, kind, torch.float64, device=device
        )
        expect_close(_conv_ops._fft_long_conv(*case), direct(*case))
        if kind != "bidirectional":
            case = (*case[:3], None, None, None, kind)
            expect_close(_conv_ops._fft_long_conv(*case), direct(*case))


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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("centred", (False, True))
@pytest.mark.parametrize("dtype", TYPES)
def test_short_conv_is_its_definition(device, layout, centred, dtype, rng):
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
        u = torch.from_numpy(rng.standard_normal(shape)).to(device, dtype)
        k = torch.from_numpy(rng.standard_normal((channels, taps))).to(device, sums)
        bias = torch.from_numpy(rng.standard_normal(channels)).to(device, sums)
        for b in (bias, None):
            y = short_conv(u, k, b, layout, centred)
            assert y.dtype == dtype and y.is_contiguous()
            expect_close(y, direct_short(u, k, b, layout, centred))


def test_strides_and_types_are_brought_together(device, rng):
    case = random_long(rng, 3, 4, 60, 4, 60, "causal", torch.float32, device=device)
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


def test_results_do_not_depend_on_threads_or_batch(rng):
    case = random_long(rng, 4, 16, 300, 16, 300, "causal", torch.float32)
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
def test_gradcheck_of_long_conv(device, kind, shape, rng):
    for extras in (7, 0, 2):
        case = random_long(
            rng, *shape, kind, torch.float64, extras=extras, device=device
        )
        assert torch.autograd.gradcheck(long_conv, with_gradients(case))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("centred", (False, True))
def test_gradcheck_of_short_conv(device, layout, centred, rng):
    for taps in (1, 4, 11):
        shape = (2, 3, 8) if layout == "channels_first" else (2, 8, 3)
        made = [
            torch.from_numpy(rng.standard_normal(s)).to(device).requires_grad_()
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
    _conv_ops._fft_long_conv(*wide).backward(dy.double())
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


def test_an_empty_batch_has_zero_gradients(device):
    u = torch.empty(0, 4, 10, device=device, requires_grad=True)
    k = torch.randn(2, 10, device=device, requires_grad=True)
    long_conv(u, k).sum().backward()
    assert u.grad.shape == u.shape and not k.grad.any()
    k = torch.randn(4, 3, device=device, requires_grad=True)
    bias = torch.randn(4, device=device, requires_grad=True)
    short_conv(u, k, bias).sum().backward()
    assert not k.grad.any() and not bias.grad.any()


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind, rng):
    case = with_gradients(random_long(rng, 2, 4, 5, 2, 6, kind, torch.float64))
    assert torch.autograd.gradgradcheck(long_conv, case)
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
        return _conv_ops._fft_long_conv(u, k, None, None, None, None, "causal")

    assert torch.allclose(cube(long_conv), cube(through_fft), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
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
    with pytest.raises(RuntimeError, match="jvp"):
        torch.func.jvp(loss, (k.detach(),), (k.detach(),))


# ---- what PyTorch asks of operators ----


def operator_cases(rng):
    for kind, extras in (("bidirectional", 7), ("causal", 0)):
        case = random_long(rng, 2, 4, 11, 2, 13, kind, torch.float32, extras)
        yield torch.ops.danaus.long_conv.default, case
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
        (torch.randn_like(u), u, k, *rest, 0b111011),
        test_utils=some,
    )
    torch.library.opcheck(
        operators.short_conv_backward.default,
        (u, torch.randn_like(u), torch.randn(4, 3), False, False, 0b101),
        test_utils=some,
    )
    filters = (u, k, None, None, "causal", 2)
    torch.library.opcheck(operators.long_conv_pack.default, filters, test_utils=some)
    packed = operators.long_conv_pack(*filters)
    torch.library.opcheck(
        operators.long_conv_apply.default,
        (u, packed, None, None, 2, 13, "causal", 2),
        test_utils=some,
    )
    y = operators.long_conv_apply(u, packed, None, None, 2, 13, "causal", 2)
    assert torch.equal(y, operators.long_conv(u, k, *[None] * 4, "causal"))


@pytest.mark.filterwarnings("default:danaus has no kernels for convolutions")
def test_devices_without_kernels_say_so_once(monkeypatch):
    monkeypatch.setattr(_conv_ops, "_warned", False)
    place = torch.device("cuda")
    with pytest.warns(UserWarning, match="no kernels for convolutions on cuda"):
        assert not _conv_ops.has_kernels(place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not _conv_ops.has_kernels(place)
        assert _conv_ops.has_kernels(torch.device("cpu"))


# ---- what is refused ----

GOOD = {"u": torch.zeros(2, 4, 8), "k": torch.zeros(2, 8)}
BAD = (
    ({"u": None}, "u is no tensor but NoneType"),
    ({"u": torch.zeros(4, 8)}, "u has the shape .4, 8."),
    ({"u": torch.zeros(2, 4, 0)}, "only the batch may be empty"),
    ({"u": torch.zeros(2, 0, 8)}, "only the batch may be empty"),
    ({"u": torch.zeros(2, 4, 8, dtype=torch.int32)}, "type torch.int32"),
    ({"u": torch.zeros(2, 4, 8, dtype=torch.complex64)}, "type torch.complex64"),
    ({"u": torch.zeros(2, 4, 8).to_sparse()}, "layout torch.sparse_coo"),
    ({"u": torch.zeros(2, 4, 8, device="meta")}, "k lies on cpu, u on meta"),
    ({"k": torch.zeros(3, 8)}, "has to divide the 4 channels"),
    ({"k": torch.zeros(8)}, "k has the shape .8."),
    ({"k": torch.zeros(2, 0)}, "a filter needs a tap"),
    ({"k": torch.zeros(0, 8)}, "has to divide"),
    ({"k": [1.0]}, "k is no tensor but list"),
    ({"kind": "casual"}, "no kind of convolution"),
    ({"kind": None}, "no kind of convolution"),
    ({"kind": "bidirectional"}, "k_reverse is given with bidirectional"),
    ({"k_reverse": torch.zeros(2, 8)}, "k_reverse is given with bidirectional"),
    (
        {"k_reverse": torch.zeros(2, 7), "kind": "bidirectional"},
        "k_reverse has the shape .2, 7.; .2, 8. is needed",
    ),
    ({"skip": torch.zeros(4)}, "skip has the shape"),
    ({"gate_in": torch.zeros(2, 4, 7)}, "gate_in has the shape"),
    ({"gate_out": torch.zeros(1, 4, 8)}, "gate_out has the shape"),
)


@pytest.mark.parametrize("change, sentence", BAD)
def test_wrong_arguments_of_long_conv_are_named(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        long_conv(**{**GOOD, **change})


@pytest.mark.parametrize(
    "change, sentence",
    (
        ({"layout": "last"}, "no layout"),
        ({"k": torch.zeros(8, 3)}, "k has the shape"),
        ({"k": torch.zeros(4, 129)}, "129 taps; 1 to 128"),
        ({"k": torch.zeros(4, 0)}, "0 taps"),
        ({"bias": torch.zeros(3)}, "bias has the shape"),
        ({"u": torch.zeros(4, 8)}, "u has the shape"),
        ({"u": torch.zeros(2, 4, 8, dtype=torch.int8)}, "type torch.int8"),
    ),
)
def test_wrong_arguments_of_short_conv_are_named(change, sentence):
    good = {"u": torch.zeros(2, 4, 8), "k": torch.zeros(4, 3)}
    with pytest.raises(ValueError, match=sentence):
        short_conv(**{**good, **change})


ANY = st.one_of(
    st.none(),
    st.integers(-3, 3),
    st.tuples(
        st.lists(st.integers(0, 5), max_size=4),
        st.sampled_from((*TYPES, torch.int64, torch.complex128, torch.bool)),
    ).map(lambda made: torch.ones(made[0], dtype=made[1])),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(ANY, min_size=6, max_size=6),
    st.sampled_from((*KINDS, "", None)),
    st.lists(ANY, min_size=3, max_size=3),
    st.sampled_from((*LAYOUTS, "?")),
    st.booleans(),
)
def test_no_argument_crashes_the_functions(long, kind, short, layout, centred):
    for function, arguments in (
        (long_conv, (*long, kind)),
        (short_conv, (*short, layout, centred)),
    ):
        try:
            y = function(*arguments)
        except ValueError as error:
            assert str(error).startswith("danaus: ")
        else:
            assert y.shape == arguments[0].shape


@settings(max_examples=150, deadline=None)
@given(
    st.lists(ANY, min_size=7, max_size=7),
    st.sampled_from((*KINDS, "")),
    st.integers(-2, 70),
    st.integers(-1, 70),
)
def test_no_argument_crashes_the_operators(tensors, kind, batch, number):
    dy, u, k, *rest = tensors
    some = torch.ops.danaus
    for call in (
        lambda: some.long_conv(u, k, *rest, kind),
        lambda: some.long_conv_backward(dy, u, k, *rest, kind, number),
        lambda: some.long_conv_pack(u, k, *rest[:2], kind, batch),
        lambda: some.long_conv_apply(u, k, *rest[2:], number, batch, kind, 0),
        lambda: some.long_conv_apply(
            u, torch.zeros(4096, dtype=torch.uint8), *rest[2:], 1, number, kind, 0
        ),
        lambda: some.short_conv(u, k, rest[0], True, False),
        lambda: some.short_conv_backward(dy, u, k, False, True, number),
    ):
        try:
            call()
        except (RuntimeError, ValueError, TypeError) as error:
            assert str(error)
