"""The Hyena operator of the NumPy level: its definition, gradients, what is refused."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

import danaus


def direct(u, taps, bias, k, skip) -> np.ndarray:
    """By the definition, in f64."""
    u = u.astype(np.float64)
    length = u.shape[2]
    z = np.zeros_like(u) + (0 if bias is None else bias[:, None])
    for s in range(min(taps.shape[1], length)):
        z[:, :, s:] += taps[:, s, None] * u[:, :, : length - s]
    *gates, v = np.split(z, k.shape[0] + 2, axis=1)
    for o in range(k.shape[0]):
        p = gates[-1 - o] * v
        group = p.shape[1] // k.shape[1]
        v = np.empty_like(p)
        for b, h in np.ndindex(*p.shape[:2]):
            v[b, h] = np.convolve(p[b, h], k[o, h // group])[:length]
            v[b, h] += 0 if skip is None else skip[o, h // group] * p[b, h]
    return gates[0] * v


def random_case(rng, dtype="f8", order=2, batch=2, extras=True):
    filters, group = (int(n) for n in rng.integers(1, 4, 2))
    length, taps = int(rng.integers(1, 90)), int(rng.integers(1, 6))
    rows, long_taps = (
        (order + 1) * filters * group,
        int(rng.integers(1, 2 * length + 1)),
    )
    u = rng.standard_normal((batch, rows, length)).astype(dtype)
    few = rng.standard_normal((rows, taps))
    bias = rng.standard_normal(rows) if extras else None
    k = rng.standard_normal((order - 1, filters, long_taps))
    skip = rng.standard_normal((order - 1, filters)) if extras else None
    return u, few, bias, k, skip


def operator_of(case, dtype="f64", **options) -> danaus.Hyena:
    u, taps, bias, k, skip = case
    plan = danaus.HyenaPlan(
        u.shape[1] // (k.shape[0] + 2),
        u.shape[2],
        taps.shape[1],
        k.shape[0] + 1,
        filters=k.shape[1],
        long_taps=k.shape[2],
        dtype=dtype,
        **options,
    )
    return plan.operator(taps, k, bias=bias, skip=skip)


@pytest.mark.parametrize("order", [2, 3, 5])
def test_the_operator_is_its_definition(rng, device, order):
    for extras in (True, False):
        case = random_case(rng, order=order, extras=extras)
        y, exact = operator_of(case, device=device)(case[0]), direct(*case)
        assert np.abs(y - exact).max() <= 1e-11 * (1 + np.abs(exact).max())


def test_16_bits_lie_in_any_batch_shape(rng, device):
    case = random_case(rng, "f2")
    operator = operator_of(case, "f16", accuracy="accurate", device=device)
    y, exact = operator(case[0][:, None]), direct(*case)
    assert y.shape == (2, 1, *exact.shape[1:]) and y.dtype == np.float16
    assert np.abs(y[:, 0] - exact).max() <= 2e-2 * (1 + np.abs(exact).max())


def test_gradients_are_differences(rng, device):
    """y is linear in every operand but for u, of which it is a polynomial."""
    for order in (2, 3):
        case = random_case(rng, order=order)
        dy = rng.standard_normal(direct(*case).shape)
        found = operator_of(case, device=device).gradient(case[0], dy)
        for i, gradient in enumerate(found):
            step = rng.standard_normal(case[i].shape)
            sides = [
                (dy * direct(*case[:i], case[i] + e * step, *case[i + 1 :])).sum()
                for e in (1e-5, -1e-5)
            ]
            should, size = (sides[0] - sides[1]) / 2e-5, np.abs(gradient * step).sum()
            assert gradient.shape == case[i].shape
            assert abs((gradient * step).sum() - should) <= 1e-5 * (1 + size)


OFFSETS = (0, 7, 7, 30, 31, 50)


@pytest.mark.parametrize("order", [2, 3])
def test_packed_sequences_are_rows_alone(rng, device, order):
    u, taps, bias, k, skip = random_case(rng, order=order, batch=1)
    u = rng.standard_normal((u.shape[1], OFFSETS[-1]))
    channels = u.shape[0] // (order + 1)
    dy = rng.standard_normal((channels, OFFSETS[-1]))
    plan = danaus.HyenaPlan(
        channels, 23, taps.shape[1], order, long_taps=k.shape[2],
        filters=k.shape[1], dtype="f64", packed=True, device=device,
    )  # fmt: skip
    operator = plan.operator(taps, k, bias=bias, skip=skip)
    y = operator(u, offsets=OFFSETS)
    found = operator.gradient(u, dy, offsets=np.array(OFFSETS))
    sums = [np.zeros_like(g) for g in found[1:]]
    for a, b in zip(OFFSETS, OFFSETS[1:]):
        case = u[None, :, a:b], taps, bias, k, skip
        if a < b:
            exact = direct(*case)[0]
            assert np.abs(y[:, a:b] - exact).max() <= 1e-11 * (1 + np.abs(exact).max())
            alone = operator_of(case, device=device)
            own = alone.gradient(case[0].copy(), dy[None, :, a:b].copy())
            assert np.allclose(found.du[:, a:b], own.du[0], rtol=1e-9, atol=1e-11)
            for total, gradient in zip(sums, own[1:]):
                total += gradient
    for gradient, total in zip(found[1:], sums):
        assert np.allclose(gradient, total, rtol=1e-9, atol=1e-10)


def test_wrong_offsets_are_refused():
    plan = danaus.HyenaPlan(2, 8, packed=True)
    operator = plan.operator(np.ones((6, 3)), np.ones((2, 8)))
    u = np.ones((6, 10), np.float32)
    assert operator(u, offsets=(0, 4, 10)).shape == (2, 10)
    for offsets, sentence in (
        ((0, 10), "the plan is for 8"),
        ((1, 10), "begin with 1"),
        ((0, 6, 4, 10), "less than the 6"),
        ((0, 9), r"the offsets need \[6, 9\]"),
        (0.5, "whole numbers"),
    ):
        with pytest.raises(ValueError, match=sentence):
            operator(u, offsets=offsets)
    with pytest.raises(ValueError, match="offsets"):
        operator(np.ones((1, 6, 8), np.float32))


def test_only_what_is_asked_for_is_made(rng):
    case = random_case(rng)
    operator, dy = operator_of(case), np.ones(direct(*case).shape)
    whole = operator.gradient(case[0], dy)
    for name in ("u", "taps", "bias", "k", "skip"):
        found = operator.gradient(case[0], dy, wrt=name)
        given = {"d" + name: getattr(found, "d" + name)}
        assert [n for n, g in zip(found._fields, found) if g is not None] == list(given)
        assert np.array_equal(given["d" + name], getattr(whole, "d" + name))


def test_out_is_written_and_nothing_else(rng):
    case = random_case(rng)
    out = np.empty(direct(*case).shape)
    assert operator_of(case)(case[0], out=out) is out
    assert np.array_equal(out, operator_of(case)(case[0]))
    with pytest.raises(ValueError, match="overlap"):
        u = case[0]
        channels = out.shape[1]
        operator_of(case)(u[:1], out=u[:1, :channels])


def test_what_does_not_fit_is_refused(rng):
    plan = danaus.HyenaPlan(4, 16)
    operator = plan.operator(np.ones((12, 3)), np.ones((4, 16)))
    assert "order 2" in repr(plan) and plan.workspace_bytes(2)[1] > 0
    assert operator(np.ones((0, 12, 16), np.float32)).shape == (0, 4, 16)
    u, dy = np.ones((1, 12, 16), np.float32), np.ones((1, 4, 16), np.float32)
    for wrong in (
        lambda: danaus.HyenaPlan(4, 16, order=1),
        lambda: danaus.HyenaPlan(4, 16, order=9),
        lambda: danaus.HyenaPlan(4, 16, 129),
        lambda: danaus.HyenaPlan(4, 16, filters=3),
        lambda: plan.operator(np.ones((12, 4)), np.ones((4, 16))),
        lambda: plan.operator(np.ones((12, 3)), np.ones((3, 16))),
        lambda: plan.operator(np.ones((12, 3)), np.ones((4, 16)), skip=np.ones(3)),
        lambda: operator(u[:, :11]),
        lambda: operator(u.astype(np.float64)),
        lambda: operator.gradient(u, u),
        lambda: operator.gradient(u, dy, wrt="bias"),
        lambda: operator.gradient(u[:0], dy[:0]),
        lambda: danaus.Hyena("plan", np.ones((12, 3)), np.ones((4, 16))),
    ):
        with pytest.raises((TypeError, ValueError, NotImplementedError), match=" "):
            wrong()
