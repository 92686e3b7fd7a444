"""What convolutions of tensors refuse, and that no argument crashes them."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from conv_cases import KINDS, TYPES

from danaus.torch.functional import long_conv, short_conv

LAYOUTS = ("channels_first", "channels_last")

GOOD = {"u": torch.zeros(2, 4, 8), "k": torch.zeros(2, 8)}
BAD = (
    ({"u": None}, "u has to be a tensor, not NoneType"),
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
    ({"k": [1.0]}, "k has to be a tensor, not list"),
    ({"kind": "casual"}, "kind has to be 'causal'"),
    ({"kind": None}, "kind has to be 'causal'"),
    ({"kind": "bidirectional"}, "k_reverse is given with bidirectional"),
    ({"k_reverse": torch.zeros(2, 8)}, "k_reverse is given with bidirectional"),
    (
        {"k_reverse": torch.zeros(2, 7), "kind": "bidirectional"},
        "k_reverse has the shape .2, 7.; .2, 8. is needed",
    ),
    ({"skip": torch.zeros(4)}, "skip has the shape"),
    ({"keep": (9,)}, "9 of an axis of 8"),
    ({"keep": (1,), "axes": (12,)}, "1 of an axis of 12: powers of two"),
    ({"keep": (1, 1, 1, 1, 1)}, "keep has 5 entries"),
    ({"keep": (-1,)}, "keep"),
    ({"keep": (1,), "axes": (1 << 20, 1 << 20)}, "axes of"),
    ({"keep": (1,), "kind": "circular"}, "circular convolutions keep whole spectra"),
    ({"accuracy": "exact"}, "accuracy has to be .* or 'fast', not 'exact'"),
    ({"accuracy": True}, "accuracy has to be None, 'accurate' or 'fast', not True"),
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
        ({"layout": "last"}, "layout has to be"),
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
            assert str(error).startswith(("danaus: ", "kind has to be", "layout has"))
        else:
            assert y.shape == arguments[0].shape


@settings(max_examples=150, deadline=None)
@given(
    st.lists(ANY, min_size=7, max_size=7),
    st.sampled_from((*KINDS, "")),
    st.integers(-2, 70),
    st.integers(-1, 70),
    st.sampled_from(
        ([], [8] * 8, [8] * 4 + [4] * 4, [3] * 8, [1], [-1] * 8, [9**15] * 8)
    ),
    st.sampled_from(("by_type", "accurate", "fast", "")),
)
def test_no_argument_crashes_the_operators(
    tensors, kind, batch, number, sparse, accuracy
):
    dy, u, k, *rest = tensors
    some = torch.ops.danaus
    for call in (
        lambda: some.long_conv(u, k, *rest, kind, sparse, None, accuracy),
        lambda: some.long_conv_backward(dy, u, k, *rest, kind, sparse, number),
        lambda: some.long_conv_pack(u, k, *rest[:2], kind, sparse, batch),
        lambda: some.long_conv_apply(u, k, *rest[2:], number, batch, kind, sparse, 0),
        lambda: some.long_conv_apply(
            u, torch.zeros(4096, dtype=torch.uint8), *rest[2:], 1, number, kind, [], 0
        ),
        lambda: some.short_conv(u, k, rest[0], True, False),
        lambda: some.short_conv_backward(dy, u, k, False, True, number),
    ):
        try:
            call()
        except (RuntimeError, ValueError, TypeError) as error:
            assert str(error)
