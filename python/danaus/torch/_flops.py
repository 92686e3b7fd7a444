"""What the operators count in torch.utils.flop_counter.FlopCounterMode.

Products count 2 for each weight and row, factor by factor, as matrices do in PyTorch.
Long convolutions count transforms of real rows of n numbers, 5/2 n log2 n each, and the
products of their spectra, 3 n, with n the power of two that holds signal and filter,
or the length of a circular one. Short ones count 2 for each tap and number. Complex
numbers count as real ones, packed sequences as one, and planes as rows. Backward passes
count what they compute again.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from danaus.torch._later import when_loaded

_FORMULAS: dict[str, Callable[..., int]] = {}  # by names of operators


def _counts(*names: str) -> Callable:
    """Makes a function the formula of these operators."""

    def keep(formula: Callable[..., int]) -> Callable[..., int]:
        _FORMULAS.update(dict.fromkeys(names, formula))
        return formula

    return keep


def _register(counter: Any) -> None:
    from danaus.torch._ops import ops

    for name, formula in _FORMULAS.items():
        counter.register_flop_formula(getattr(ops, name))(formula)


def install() -> None:
    """Registers the formulas as soon as the counter is imported, which takes long."""
    when_loaded("torch.utils.flop_counter", _register)


# ---- products ----


def _factors(patterns: Sequence[int]) -> list[int]:
    """Weights of each factor."""
    return [math.prod(patterns[n : n + 4]) for n in range(0, len(patterns), 4)]


def _rows(x: Sequence[int], patterns: Sequence[int]) -> int:
    a, _, c, d = patterns[-4:]
    return math.prod(x) // (a * c * d)


@_counts("ks_linear", "_ks_linear", "_ks_linear_train")
def _product(x, weights, bias, patterns, *rest, out_shape=None, **options) -> int:
    return 2 * _rows(x, patterns) * sum(_factors(patterns))


@_counts("ks_apply")
def _packed_product(x, packed, has_bias, batch, patterns, *rest, **options) -> int:
    return _product(x, None, None, patterns)


@_counts("_ks_linear_packed")
def _trained_product(x, packed, has_bias, patterns, *rest, **options) -> int:
    return _product(x, None, None, patterns)


@_counts("ks_linear_backward", "_ks_linear_backward")
def _product_backward(dy, x, weights, patterns, *rest, out_shape=None, **options):
    want_x, want_weights = rest[4:6]
    sizes = _factors(patterns)
    found = sum(sizes) if want_x else sum(sizes[:-1]) if want_weights else 0
    if want_weights:  # and what was between the factors
        found += sum(sizes) + sum(sizes[1:])
    return 2 * _rows(x, patterns) * found


@_counts("_ks_linear_return")
def _product_return(dy, x, packed, patterns, *rest, out_shape=None, **options) -> int:
    return _product_backward(dy, x, None, patterns, *rest)


# ---- convolutions ----


class _Rows:
    """Rows [batch, channels, length] and filters [filters, taps]."""

    def __init__(self, u: Sequence[int], filters: int, taps: int, kind: str):
        self.rows, self.filters = u[0] * u[1], filters
        n = u[2] if kind == "circular" else 1 << (u[2] + taps - 1).bit_length()
        self.transform, self.product = round(2.5 * n * math.log2(max(n, 1))), 3 * n

    def forward(self, made: int = 1) -> int:
        """With so many transforms of each filter."""
        count = 2 * self.rows + made * self.filters
        return count * self.transform + self.rows * self.product

    def backward(self, signal: bool, filters: int, again: bool) -> int:
        """Gradients of the signal and of so many filters; again: y, too."""
        rows = signal + bool(filters) + again  # products, and results
        signals = bool(signal or filters) + bool(filters or again)
        count = self.rows * (signals + signal + again)
        count += self.filters * ((signal or again) + filters)
        return count * self.transform + rows * self.rows * self.product


@_counts("long_conv", "_long_conv")
def _long(u, k, k_reverse, skip, gate_in, gate_out, kind, *rest, **options) -> int:
    return _Rows(u, *k, kind).forward(1 if k_reverse is None else 2)


@_counts("long_conv_backward", "_long_conv_backward")
def _long_backward(dy, u, k, k_reverse, *rest, out_shape=None, **options) -> int:
    kind, wanted = rest[3], rest[5]
    filters = (wanted >> 1 & 1) + (wanted >> 2 & 1)
    return _Rows(u, *k, kind).backward(
        bool(wanted & 0b010001), filters, bool(wanted & 0b100000)
    )


@_counts("long_conv_apply")
def _long_apply(u, spectrum, gate_in, gate_out, filters, taps, kind, *rest, **options):
    return _Rows(u, filters, taps, kind).forward(made=0)


@_counts("long_conv_pack")
def _long_pack(like, k, k_reverse, skip, kind, *rest, **options) -> int:
    found = _Rows((0, *like[1:]), *k, kind)
    return found.forward(1 if k_reverse is None else 2)


@_counts("short_conv", "_short_conv")
def _short(u, k, *rest, out_shape=None, **options) -> int:
    return 2 * math.prod(u) * k[1]


@_counts("short_conv_backward", "_short_conv_backward")
def _short_backward(dy, u, k, last, centred, wanted, out_shape=None, **options) -> int:
    return (wanted & 3).bit_count() * _short(u, k)


# ---- the Hyena operator ----


def _inner(u: Sequence[int], groups: int) -> tuple[int, int, int]:
    """The signal of its long convolutions."""
    return u[0], u[1] // groups, u[2]


@_counts("hyena", "_hyena")
def _hyena(u, taps, bias, k, skip, *rest, out_shape=None, **options) -> int:
    long = _Rows(_inner(u, k[0] + 2), k[1], k[2], "causal")
    return _short(u, taps) + k[0] * long.forward()


@_counts("hyena_backward", "_hyena_backward")
def _hyena_backward(dy, u, taps, bias, k, skip, wanted, *rest, **options) -> int:
    long = _Rows(_inner(u, k[0] + 2), k[1], k[2], "causal")
    signal, filters = bool(wanted & 7), wanted >> 3 & 1
    short = (1 + (wanted & 3).bit_count()) * _short(u, taps)
    return short + k[0] * long.backward(signal, filters, signal)


@_counts("hyena_apply")
def _hyena_apply(u, taps, bias, spectra, order, filters, long_taps, *rest, **options):
    long = _Rows(_inner(u, order + 1), filters, long_taps, "causal")
    return _short(u, taps) + (order - 1) * long.forward(made=0)


@_counts("hyena_pack")
def _hyena_pack(u, taps, bias, k, skip, *rest, out_shape=None, **options) -> int:
    return k[0] * _Rows((0, *u[1:]), k[1], k[2], "causal").forward()
