"""Packed sequences of NumPy arrays: each is what it is alone."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from conv_oracle import Case, Direct, random_case, wide
from hypothesis import given, settings, strategies

from danaus import ConvPlan, convolve

KINDS = ("causal", "bidirectional")
SIGNALS = ("u", "gate_in", "gate_out", "dy")


def packed_case(rng, kind, dtype, most=6):
    """Columns of a random row as sequences, some of them empty: a case and offsets."""
    case = random_case(rng, kind, dtype)
    case = case._replace(
        **{
            name: x.reshape(-1, *x.shape[-2:])[0].copy()
            for name in SIGNALS
            if (x := getattr(case, name)) is not None
        }
    )
    columns = case.u.shape[1]
    inner = np.sort(rng.integers(0, columns + 1, rng.integers(0, most)))
    return case, np.array([0, *inner, columns])


def parts_of(case, offsets):
    """Cases of the sequences that are not empty, each with where it is."""
    for begin, end in zip(offsets, offsets[1:]):
        if begin < end:
            cut = {
                name: None if x is None else np.ascontiguousarray(x[:, begin:end])
                for name in SIGNALS
                for x in [getattr(case, name)]
            }
            yield slice(begin, end), case._replace(**cut)


def plan_of(case, offsets, **options):
    filters, taps = case.k.shape
    return ConvPlan(
        case.u.shape[0],
        max(1, np.diff(offsets).max()),
        taps=taps,
        filters=filters,
        kind=case.kind,
        dtype=case.dtype,
        packed=True,
        **options,
    )


def expect_close(found, value, bound, what):
    off = np.abs(wide(found) - value) - bound
    assert found.shape == value.shape, what
    assert np.all(off <= 0), f"{what} is off by {off.max():.3g} more than its bound"


def expect_all(case: Case, offsets, y, gradients):
    sums = {}
    for where, part in parts_of(case, offsets):
        direct = Direct(part)
        for name, should in direct.results().items():
            array = y if name == "y" else gradients[name]
            if array is not None:
                expect_close(array[:, where], *should, name)
        for name, (value, bound) in direct.filter_gradients().items():
            more = sums.get(name, (0, 0))
            sums[name] = (more[0] + value, more[1] + 2 * bound)
    for name, should in sums.items():
        if gradients[name] is not None:
            expect_close(gradients[name], *should, name)


@pytest.mark.parametrize("dtype", ("f32", "f16", "bf16", "f64"))
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_and_gradients_are_their_definition(rng, device, kind, dtype):
    for _ in range(15 if device == "cpu" else 2):  # GPUs compile for each length
        case, offsets = packed_case(rng, kind, dtype)
        spectrum = plan_of(case, offsets, device=device).spectrum(
            case.k, k_reverse=case.k_reverse, skip=case.skip
        )
        gates = {"gate_in": case.gate_in, "gate_out": case.gate_out}
        y = spectrum(case.u, **gates, offsets=offsets)
        gradients = spectrum.gradient(case.u, case.dy, **gates, offsets=offsets)
        expect_all(case, offsets, y, gradients._asdict())


def test_one_call_gives_the_bits_of_a_plan(rng, device):
    case, offsets = packed_case(rng, "causal", "f32")
    spectrum = plan_of(case, offsets, device=device).spectrum(case.k, skip=case.skip)
    y = spectrum(case.u, offsets=offsets)
    for some in (offsets, offsets.tolist(), offsets.astype(np.int32)):
        once = convolve(case.u, case.k, skip=case.skip, offsets=some, device=device)
        assert np.array_equal(y, once)


def test_scratch_is_said_for_sequences(rng):
    case, offsets = packed_case(rng, "causal", "f32")
    plan = plan_of(case, offsets)
    assert plan.packed and plan.scratch_bytes(offsets=offsets).gradient > 0
    assert "sequences" in ConvPlan(2, 500, packed=True).describe()


@pytest.mark.parametrize(
    "change, error, sentence",
    [
        ({"offsets": [1, 6]}, ValueError, "begin with 1, not with 0"),
        ({"offsets": [0, 4, 3, 6]}, ValueError, "number 2 is 3, less than the 4"),
        ({"offsets": [0, 5]}, ValueError, r"need \[2, 5\]"),
        ({"offsets": []}, ValueError, "whole numbers"),
        ({"offsets": [[0, 6]]}, ValueError, "whole numbers"),
        ({"offsets": [0.0, 6.0]}, ValueError, "whole numbers"),
        ({"offsets": "06"}, ValueError, "whole numbers"),
        ({"offsets": [0, 6], "kind": "circular"}, NotImplementedError, "circular"),
        ({"offsets": [0, 6], "u": np.zeros((1, 2, 6))}, ValueError, "the shape"),
        ({"offsets": np.array([0, 2**64 - 1], np.uint64)}, ValueError, "the shape"),
    ],
)
def test_bad_arguments_are_named(change, error, sentence):
    arguments = {"u": np.zeros((2, 6)), "k": np.zeros((2, 4))} | change
    with pytest.raises(error, match=sentence):
        convolve(**arguments)


def test_plans_and_calls_go_together():
    u, k = np.zeros((2, 6), "f4"), np.zeros((2, 6))
    with pytest.raises(ValueError, match="offsets"):
        ConvPlan(2, 6, packed=True).spectrum(k)(u)
    with pytest.raises(ValueError, match="offsets"):
        ConvPlan(2, 6).spectrum(k)(u, offsets=[0, 6])
    with pytest.raises(ValueError, match="the plan is for 4 at most"):
        ConvPlan(2, 4, taps=6, packed=True).spectrum(k)(u, offsets=[0, 6])


NUMBER = strategies.one_of(
    strategies.integers(-3, 9), strategies.sampled_from([2**31, 2**63 - 1, -(2**63)])
)


@settings(deadline=None, max_examples=200)
@given(strategies.lists(NUMBER, max_size=6), strategies.integers(0, 9))
def test_no_offsets_crash(offsets, columns):
    spectrum = ConvPlan(2, 5, taps=3, packed=True).spectrum(np.zeros((2, 3)))
    u = np.zeros((2, columns), "f4")
    for call in (
        lambda: spectrum(u, offsets=offsets),
        lambda: spectrum.gradient(u, u, offsets=offsets),
        lambda: spectrum.plan.scratch_bytes(offsets=offsets),
        lambda: convolve(u, np.zeros((2, 3)), offsets=offsets),
    ):
        try:
            call()
        except (ValueError, NotImplementedError, MemoryError) as error:
            assert str(error)
