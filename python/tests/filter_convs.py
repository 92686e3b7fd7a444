"""What tests of convolutions by learned matrices share."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import torch

from danaus.torch import MonarchConv


def random(rng, *shape):
    return torch.from_numpy(np.asarray(rng.standard_normal(shape)))


def random_module(rng, kind, *args, scale=0.3, **options):
    """A module of f64; matrices of a MonarchConv are near those it begins with, so that
    they have inverses."""
    conv = kind(*args, dtype=torch.float64, **options)
    with torch.no_grad():
        for p in conv.parameters():
            start = p if kind is MonarchConv else 0
            p.copy_(start + scale * random(rng, *p.shape))
    return conv


def digits(i, sizes) -> list[int]:
    """Digits of a place, the fastest first."""
    found = []
    for m in sizes:
        i, digit = divmod(i, m)
        found.append(digit)
    return found
