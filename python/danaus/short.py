"""Convolutions of few taps along the length of rows, in both layouts."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from danaus._arrays import ElementType, operand
from danaus._conv_arguments import filter_rows, filters_of, result_like, signal_of
from danaus._exchange import device_for, exchanged, made
from danaus._library import check, ffi, lib
from danaus.device import Device, chosen


class ShortGradients(NamedTuple):
    """Gradients of a loss; None if not requested."""

    du: np.ndarray | None = None
    dk: np.ndarray | None = None
    dbias: np.ndarray | None = None


def _short(
    u: Any, k: Any, centred: bool, channels_last: bool, dtype: ElementType | None
) -> tuple[Any, int, int, Any, Any]:
    """The library's description, the batch, the element type, u and k."""
    u, code = signal_of(u, dtype)
    if u.ndim < 2:
        raise ValueError(f"u has the shape {u.shape}, but needs channels and length")
    channels, length = u.shape[:-3:-1] if channels_last else u.shape[-2:]
    taps = filter_rows(k)
    if taps.ndim != 2:
        raise ValueError(f"k has the shape {np.shape(k)}, not [channels][taps]")
    desc = ffi.new("danaus_short_desc *")
    desc.channels, desc.length, desc.taps = channels, length, taps.shape[1]
    desc.centred, desc.dtype = bool(centred), code
    desc.layout = (
        lib.DANAUS_CHANNELS_LAST if channels_last else lib.DANAUS_CHANNELS_FIRST
    )
    k = filters_of(taps, code, (channels, taps.shape[1]), "k")
    return desc, math.prod(u.shape[:-2]), code, u, k


@exchanged
def short_conv(
    u: np.ndarray,
    k: Any,
    bias: Any = None,
    *,
    centred: bool = False,
    channels_last: bool = False,
    dtype: ElementType | None = None,
    out: np.ndarray | None = None,
    device: Device | str | None = None,
) -> np.ndarray:
    """y[t] = bias + sum over s < taps of k[s] u[t + shift - s], for each channel.

    u is zero outside of its length; shift is 0, or (taps - 1) // 2 when `centred`.
    Sums are made in the order of s: the same bits for both layouts and any threads.

    Parameters
    ----------
    u : [..., channels, length], or [..., length, channels] if `channels_last`.
    k : [channels][taps], 1 to 128 taps.
    bias : [channels] or None.
    """
    desc, batch, code, u, k = _short(u, k, centred, channels_last, dtype)
    if bias is not None:
        bias = filters_of(bias, code, (desc.channels,), "bias")
    y = result_like(out, u, code)
    if not y.size:
        return y
    with chosen(device_for(u, device)).operands([k, bias, u], [y]) as (handle, x, to):
        check(lib.danaus_short_conv(handle, desc, batch, *x, *to))
    return y


@exchanged
def short_conv_gradient(
    u: np.ndarray,
    k: Any,
    dy: np.ndarray,
    *,
    centred: bool = False,
    channels_last: bool = False,
    dtype: ElementType | None = None,
    wrt: Iterable[str] = ("u", "k", "bias"),
    device: Device | str | None = None,
) -> ShortGradients:
    """Gradients of a loss with the gradient dy at `short_conv`'s y.

    du is like u; dk [channels][taps] and dbias [channels] are sums over the batch and
    the length, in the type of sums. wrt names the gradients to compute.
    """
    desc, batch, code, u, k = _short(u, k, centred, channels_last, dtype)
    dy = operand(dy, code, "dy", shape=u.shape)
    wanted = {wrt} if isinstance(wrt, str) else set(wrt)
    if wanted - {"u", "k", "bias"}:
        raise ValueError('wrt holds names among "u", "k" and "bias"')
    kinds = {"u": (u.shape, u.dtype), "k": (k.shape, k.dtype)}
    kinds["bias"] = (desc.channels,), k.dtype
    results = [made(*to, u) if name in wanted else None for name, to in kinds.items()]
    gradients = ffi.new("danaus_short_gradients *")
    with chosen(device_for(u, device)).operands([k, u, dy], results) as (handle, x, to):
        gradients.du, gradients.dk, gradients.dbias = to
        check(lib.danaus_short_conv_gradient(handle, desc, batch, *x, gradients))
    return ShortGradients(*results)
