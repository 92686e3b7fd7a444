"""Packed sequences of tensors: each is what it is alone."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from compiling import compiled
from conv_cases import TYPES, expect_close, numbers, random_long

from danaus.torch import GatedLongConv, LongConv, ShortConv, _conv_fft
from danaus.torch.functional import long_conv, short_conv

KINDS = ("causal", "bidirectional")
OFFSETS = (0, 3, 3, 40, 41, 200)
LAYOUTS = ("channels_first", "channels_last")


def parts(offsets):
    return [slice(a, b) for a, b in zip(offsets, offsets[1:]) if a < b]


def random_packed(rng, kind, dtype, extras=7, device="cpu", offsets=OFFSETS):
    return random_long(
        rng, 1, 6, offsets[-1], 3, 50, kind, dtype, extras, device=device
    )


def alone(function, case, offsets=OFFSETS):
    """Every sequence by itself, one behind the other."""
    u, k, k_reverse, skip, gate_in, gate_out, *rest = case

    def cut(x, where):
        return None if x is None else x[..., where]

    return torch.cat(
        [
            function(
                cut(u, s), k, k_reverse, skip, cut(gate_in, s), cut(gate_out, s), *rest
            )
            for s in parts(offsets)
        ],
        -1,
    )


def leaves(case):
    return [x.requires_grad_() if isinstance(x, torch.Tensor) else x for x in case]


# ---- functions ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_sequences_are_rows_alone(place, kind, dtype, rng):
    for extras in (0, 7):
        case = random_packed(rng, kind, dtype, extras, place)
        y = long_conv(*case, offsets=OFFSETS)
        assert y.dtype == dtype and y.is_contiguous()
        expect_close(y, numbers(alone(long_conv, case)))
        for offsets in (
            torch.tensor(OFFSETS, device=place),
            torch.tensor(OFFSETS, dtype=torch.int32),
        ):
            assert torch.equal(y, long_conv(*case, offsets=offsets))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_gradients_are_sums_of_those_alone(place, kind, dtype, rng):
    case = leaves(random_packed(rng, kind, dtype, 7, place))
    inputs = [x for x in case if isinstance(x, torch.Tensor)]
    y, should = long_conv(*case, offsets=OFFSETS), alone(long_conv, case)
    dy = torch.from_numpy(rng.standard_normal(y.shape)).to(y)
    found = torch.autograd.grad(y, inputs, dy)
    for a, b in zip(found, torch.autograd.grad(should, inputs, dy)):
        expect_close(a, numbers(b), dtype)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 90), min_size=1, max_size=7),
    st.integers(1, 120),
    st.sampled_from(KINDS),
    st.randoms(use_true_random=False),
)
def test_any_lengths_are_right(lengths, taps, kind, random):
    import numpy as np

    if not sum(lengths):
        lengths.append(1)
    offsets = [0, *np.cumsum(lengths).tolist()]
    rng = np.random.default_rng(random.randrange(1 << 32))
    case = random_long(rng, 1, 2, offsets[-1], 2, taps, kind, torch.float64)
    y = long_conv(*case, offsets=offsets)
    expect_close(y, numbers(alone(long_conv, case, offsets)))
    fft = _conv_fft._fft_long_conv(*case, [], torch.tensor(offsets))
    expect_close(fft, numbers(y))


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(place, kind, rng):
    offsets = (0, 2, 2, 9, 14)
    case = leaves(random_packed(rng, kind, torch.float64, 7, place, offsets))
    inputs = case[:6]

    def function(*inputs):
        return long_conv(*inputs, kind, offsets=offsets)

    inputs[1:3] = [None if x is None else x.detach()[:, :4] for x in inputs[1:3]]
    inputs = leaves(inputs)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


def test_opcheck(rng):
    offsets = torch.tensor(OFFSETS)
    operators = torch.ops.danaus
    for kind, extras in (("bidirectional", 7), ("causal", 0)):
        case = leaves(random_packed(rng, kind, torch.float32, extras))
        torch.library.opcheck(operators.long_conv.default, (*case, [], offsets))
    u, k, *rest = random_packed(rng, "causal", torch.float32)
    some = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        operators.long_conv_backward.default,
        (torch.randn_like(u), u, k, *rest, [], 0b111011, offsets),
        test_utils=some,
    )
    filters = (u, k, None, None, "causal", [], 0, 159)
    torch.library.opcheck(operators.long_conv_pack.default, filters, test_utils=some)
    packed = operators.long_conv_pack(*filters)
    apply = (u, packed, None, None, 3, 50, "causal", [], 0, 159, offsets)
    torch.library.opcheck(operators.long_conv_apply.default, apply, test_utils=some)
    y = operators.long_conv(u, k, *[None] * 4, "causal", [], offsets)
    assert torch.equal(operators.long_conv_apply(*apply), y)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("centred", (False, True))
@pytest.mark.parametrize("dtype", TYPES)
def test_short_sequences_are_rows_alone(place, layout, centred, dtype, rng):
    offsets, dim = (0, 0, 1, 4, 4, 6, 30, 31), 1 + (layout == "channels_first")
    for taps in (1, 2, 3, 7, 40):
        sums = torch.float64 if dtype == torch.float64 else torch.float32
        u = torch.from_numpy(rng.standard_normal((1, 31, 4))).to(place, dtype)
        u = (u.mT if dim == 2 else u).contiguous().requires_grad_()
        k = torch.from_numpy(rng.standard_normal((4, taps))).to(place, sums)
        bias = torch.from_numpy(rng.standard_normal(4)).to(place, sums)
        inputs = [u, k.requires_grad_(), bias.requires_grad_()]
        rest = layout, centred
        y = short_conv(*inputs, *rest, offsets=offsets)
        rows = [
            short_conv(u.narrow(dim, s.start, s.stop - s.start), k, bias, *rest)
            for s in parts(offsets)
        ]
        should = torch.cat(rows, dim)
        expect_close(y, numbers(should))
        dy = torch.from_numpy(rng.standard_normal(y.shape)).to(y)
        found = torch.autograd.grad(y, inputs, dy)
        for a, b in zip(found, torch.autograd.grad(should, inputs, dy)):
            expect_close(a, numbers(b), dtype)


# ---- modules ----


def test_gated_sequences_are_rows_alone(place):
    torch.manual_seed(0)
    layer = GatedLongConv(8, 64).to(place)
    x = torch.randn(1, OFFSETS[-1], 8, device=place)
    for context in (torch.enable_grad(), torch.no_grad()):
        with context:
            y = layer(x, offsets=OFFSETS)
            should = torch.cat([layer(x[:, s]) for s in parts(OFFSETS)], 1)
            assert torch.allclose(y, should, rtol=1e-4, atol=1e-5)


class Growing(torch.nn.Module):
    """Filters as long as signals are, and different for each length."""

    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(0.1))

    def forward(self, length):
        t = torch.arange(length, device=self.rate.device)
        return torch.exp(-self.rate * t)[None] / length


def test_filter_modules_are_asked_for_the_longest(place):
    layer = LongConv(4, 64, filters=1, filter=Growing()).to(place)
    u = torch.randn(1, 4, OFFSETS[-1], device=place)
    for train in (True, False):
        layer.train(train)
        y = layer(u, offsets=OFFSETS)
        k = layer.filter(159).detach()
        should = long_conv(u, k, skip=layer.skip, offsets=OFFSETS)
        assert torch.allclose(y, should, atol=1e-5)
        with torch.no_grad():
            assert torch.allclose(layer(u, offsets=OFFSETS), should, atol=1e-5)


@torch.no_grad()
def test_transformed_filters_serve_similar_lengths(device, monkeypatch):
    layer = LongConv(4, 64).to(device).eval()
    u = torch.randn(1, 4, OFFSETS[-1], device=device)
    calls = []
    pack = torch.ops.danaus.long_conv_pack
    monkeypatch.setattr(
        torch.ops.danaus, "long_conv_pack", lambda *a: calls.append(1) or pack(*a)
    )
    for offsets in (OFFSETS, (0, 70, 200), OFFSETS):
        y = layer(u, offsets=offsets)
        should = long_conv(u, layer.weight, skip=layer.skip, offsets=offsets)
        assert torch.allclose(y, should, atol=1e-5)
    assert len(calls) == 1
    layer(u)
    assert len(calls) == 2


@pytest.mark.parametrize("module", ("long", "gated", "short"))
def test_compile_without_graph_breaks(module):
    layer, x = {
        "long": lambda: (LongConv(8, 32), torch.randn(1, 8, OFFSETS[-1])),
        "gated": lambda: (GatedLongConv(8, 32), torch.randn(1, OFFSETS[-1], 8)),
        "short": lambda: (ShortConv(8, 3), torch.randn(1, 8, OFFSETS[-1])),
    }[module]()
    fast = compiled(layer)
    for offsets in (torch.tensor(OFFSETS), torch.tensor((0, 100, 150, 180, 190, 200))):
        found, expected = [], []
        for run, to in ((fast, found), (layer, expected)):
            layer.zero_grad()
            y = run(x, offsets=offsets)
            y.square().mean().backward()
            to += [y, *(p.grad for p in layer.parameters())]
        for a, b in zip(found, expected):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


# ---- what is refused ----


@pytest.mark.parametrize(
    "change, sentence",
    (
        ({"offsets": (0, 7)}, "ascend from 0 to the 8 numbers"),
        ({"offsets": (1, 8)}, "ascend from 0 to the 8 numbers"),
        ({"offsets": (0, 5, 4, 8)}, "ascend from 0 to the 8 numbers"),
        ({"offsets": (8,)}, "at least one"),
        ({"offsets": "08"}, "whole numbers"),
        ({"offsets": 8}, "whole numbers"),
        ({"offsets": (0, 2**70)}, "whole numbers"),
        ({"offsets": torch.tensor([0.0, 8.0])}, "int32 or int64"),
        ({"offsets": torch.tensor([[0, 8]])}, "one dimension"),
        ({"offsets": (0, 8), "kind": "circular"}, "causal or bidirectional"),
        ({"offsets": (0, 8), "keep": (4,)}, "with whole spectra"),
        ({"offsets": (0, 8), "u": torch.zeros(2, 4, 8)}, "a batch of 1"),
    ),
)
def test_wrong_offsets_are_named(change, sentence):
    good = {"u": torch.zeros(1, 4, 8), "k": torch.zeros(2, 8)}
    with pytest.raises(ValueError, match=sentence):
        long_conv(**{**good, **change})


NUMBER = st.one_of(st.integers(-2, 9), st.sampled_from([2**31, 2**63 - 1, -(2**63)]))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(NUMBER, max_size=5),
    st.sampled_from((torch.int64, torch.int32, torch.float32)),
    st.integers(1, 2),
    st.integers(-1, 40),
)
@example([0, 2**63 - 1, -2, 8], torch.int64, 1, 0)
def test_no_offsets_crash_the_operators(offsets, dtype, batch, longest):
    u, k = torch.zeros(batch, 2, 8), torch.zeros(2, 3)
    offsets = torch.tensor(offsets, dtype=torch.int64).to(dtype)
    some, options = torch.ops.danaus, ("causal", [])
    memory = torch.zeros(1 << 16, dtype=torch.uint8)
    for call in (
        lambda: some.long_conv(u, k, *[None] * 4, *options, offsets),
        lambda: some.long_conv_backward(u, u, k, *[None] * 4, *options, 3, offsets),
        lambda: some.long_conv_pack(u, k, None, None, *options, 0, longest),
        lambda: some.long_conv_apply(
            u, memory, None, None, 2, 3, *options, 0, longest, offsets
        ),
        lambda: long_conv(u, k, offsets=offsets),
        lambda: short_conv(u, k, offsets=offsets),
    ):
        try:
            call()
        except (RuntimeError, ValueError) as error:
            assert str(error)
