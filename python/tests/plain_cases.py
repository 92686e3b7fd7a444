"""Layers of every kind and many shapes for other programs, beside their f64 results."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import numpy as np
import torch
from every_module import CHAIN

from conftest import dense_chain, random_patterns
from danaus.torch import (
    GatedLongConv,
    HyenaFilter,
    HyenaOperator,
    KSLinear,
    LongConv,
    LongConv2d,
    M2Mixer,
    MonarchMixerLayer,
    ShortConv,
)

ROUNDOFF = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


def random_layer(rng, factors: int, **options) -> KSLinear:
    """A chain of random patterns with normal weights."""
    patterns = random_patterns(rng, factors)
    (a, b, _, d), (e, _, c, f) = patterns[0], patterns[-1]
    layer = KSLinear(e * c * f, a * b * d, patterns, **options)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape))))
    return layer


def exact_product(layer: KSLinear, x: torch.Tensor):
    """W x + bias in f64, and a bound of the error of any order of sums in x's type.

    A sum of n products has an error of at most n u / (1 - n u) times that of their
    absolute values, and so has a chain for the sum of its factors' n.
    """
    weights = [w.detach().double().numpy() for w in layer.weights]
    bias = np.zeros(layer.out_features)
    if layer.bias is not None:
        bias = layer.bias.detach().double().numpy()
    rows = x.double().numpy()
    terms = sum(pattern.c + 1 for pattern in layer.patterns) + 2
    part = terms * ROUNDOFF[x.dtype]
    size = abs(rows) @ dense_chain([abs(w) for w in weights]).T + abs(bias)
    return rows @ dense_chain(weights).T + bias, part / (1 - part) * size


def expect_within(found: torch.Tensor, exact, bound) -> None:
    """Number by number."""
    assert tuple(found.shape) == exact.shape
    assert (abs(found.detach().double().numpy() - exact) <= bound).all()


def reference(module: torch.nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
    """The module's result in f64, by danaus."""
    wide = copy.deepcopy(module).double()
    return wide(*(x.double() for x in inputs)).detach()


def expect_near(found, exact, terms: int, transforms: bool) -> None:
    """Errors like those of sums of so many products, of random signs.

    With transforms each number of a row gets an error that the row's norm scales, u
    log2 n on average (Schatzman, SIAM J. Sci. Comput. 17, 1996), so that more is
    allowed.
    """
    unit = ROUNDOFF[found.dtype] * terms**0.5 * (8 if transforms else 4)
    assert found.shape == exact.shape
    norm = exact.abs().max() + 1
    assert (found.double() - exact).abs().max() <= unit * norm


# Rows of these modules are [batch, 8, 12]; those of mixers [batch, 12, 8].
CONVOLUTIONS = {
    "causal, few filters": lambda: LongConv(8, 12, filters=2, taps=5),
    "causal, long filters": lambda: LongConv(8, 12, taps=31, skip=False),
    "circular": lambda: LongConv(8, 12, "circular", taps=17),
    "circular with a centre": lambda: LongConv(8, 12, "circular", taps=7, centre=5),
    "bidirectional": lambda: LongConv(8, 12, "bidirectional", taps=17),
    "centred": lambda: LongConv(8, 12, "centred", taps=7, filters=4),
    "implicit": lambda: LongConv(8, 12, filter=HyenaFilter(8, 12, shift=0.1)),
    "implicit, both ways": lambda: LongConv(
        8, 12, "bidirectional", filter=HyenaFilter(8, 12, reverse=True, window=False)
    ),
    "short": lambda: ShortConv(8, 5, activation="silu", centred=True),
    "short without bias": lambda: ShortConv(8, 4, bias=False, activation="gelu_tanh"),
}
MIXERS = {
    "order 3": lambda: HyenaOperator(8, 12, 3, taps=2, filters=4),
    "heads": lambda: HyenaOperator(8, 12, head_dim=2),
    "gated heads": lambda: GatedLongConv(8, 12, head_dim=4, bias=False, skip=False),
    "gated": lambda: GatedLongConv(8, 12, filters=2),
    "causal M2": lambda: M2Mixer(8, 12, bidirectional=False, normed=True),
    "M2 without residual": lambda: M2Mixer(8, 12, residual=False),
    "Monarch, order 3": lambda: MonarchMixerLayer(8, 12, 3, sequence_activation="relu"),
    "short, channels last": lambda: ShortConv(8, 3, "channels_last"),
    "chain with activation": lambda: KSLinear(8, 8, CHAIN, activation="gelu"),
}
PLANES = {
    "causal planes": lambda: LongConv2d(8, (3, 4), taps=(2, 7)),
    "circular planes": lambda: LongConv2d(
        8, (3, 4), "circular", taps=(5, 2), centre=(1, 1)
    ),
    "centred planes": lambda: LongConv2d(8, (3, 4), "centred", filters=2),
}


def shaped(name: str, x: torch.Tensor) -> torch.Tensor:
    """What a module of these takes, of x [batch, 12, 8]."""
    if name in MIXERS:
        return x
    x = x.mT.contiguous()
    return x.unflatten(-1, (3, 4)) if name in PLANES else x


EVERY = CONVOLUTIONS | MIXERS | PLANES
