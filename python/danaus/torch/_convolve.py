"""Convolutions of all that broadcasts, in the modes of SciPy."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor

from danaus._arrays import need_one_of
from danaus.torch._conv_functions import fail, long_conv

MODES = ("full", "same", "valid")


def convolve(u: Tensor, k: Tensor, mode: str = "full") -> Tensor:
    """Convolutions along the last axis, like torchaudio.functional.fftconvolve.

    Parameters
    ----------
    u, k : Tensor [..., length], Tensor [..., taps]
        The axes in front broadcast: one k for all rows, or one for each sample.
    mode : "full", "same" or "valid"
        All ``length + taps - 1`` results; the middle ones, as many as u has; or those
        that need no zeros: ``max(length, taps) - min(length, taps) + 1``.

    Raises
    ------
    ValueError
        Shapes, types or devices that do not fit.
    """
    need_one_of(MODES, mode, "mode")
    for name, x in (("u", u), ("k", k)):
        if not isinstance(x, Tensor) or not x.dim() or not x.shape[-1]:
            fail(f"{name} has to be a tensor with numbers along its last axis")
    try:
        batch = torch.broadcast_shapes(u.shape[:-1], k.shape[:-1])
    except RuntimeError as error:
        fail(f"u {list(u.shape)} and k {list(k.shape)} do not broadcast: {error}")
    length, taps = u.shape[-1], k.shape[-1]
    rows = u.expand(*batch, length).reshape(1, -1, length)
    filters = k if k.numel() == taps else k.expand(*batch, taps)
    filters = filters.reshape(-1, taps)
    if not rows.numel():
        return u.new_empty(*batch, _count(mode, length, taps))
    kind = "causal"
    if mode == "same":
        kind = "centred"
    elif mode == "full" or taps > length:
        rows = torch.nn.functional.pad(rows, (0, taps - 1))
    y = long_conv(rows, filters, kind=kind)
    if mode == "valid":
        y = y.narrow(-1, min(length, taps) - 1, _count(mode, length, taps))
    return y.reshape(*batch, -1)


def _count(mode: str, length: int, taps: int) -> int:
    """Results along the last axis."""
    counts = length + taps - 1, length, abs(length - taps) + 1
    return counts[MODES.index(mode)]
