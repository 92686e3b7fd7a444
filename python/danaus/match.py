"""Matched filters: where templates are found in a signal."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from typing import Any

import numpy as np

from danaus._arrays import ElementType, converted, element_code, sums_code
from danaus._conv_arguments import filter_rows, signal_of
from danaus._exchange import exchanged
from danaus.conv import ConvPlan
from danaus.device import Device

# A window counts as constant if its variance is below this share of its mean square.
_CONSTANT = 1e-13


def _window_sums(x: np.ndarray, taps: int) -> np.ndarray:
    """Sums of all windows of `taps` numbers along the last axis, in f64.

    The row is cut into blocks of `taps`, and a window is the end of one and the
    beginning of the next: sums of squares have no differences, so a loud part of the
    signal leaves a quiet one exact.
    """
    length = x.shape[-1]
    blocks = -(-length // taps)
    padded = np.zeros((*x.shape[:-1], (blocks + 1) * taps), x.dtype)
    padded[..., :length] = x
    cut = padded.reshape(*x.shape[:-1], blocks + 1, taps)
    begin = np.cumsum(cut, -1).reshape(padded.shape)
    end = np.cumsum(cut[..., ::-1], -1)[..., ::-1].reshape(padded.shape)
    count = length - taps + 1
    sums = end[..., :count].copy()
    inside = np.arange(count) % taps != 0  # a window at a block's begin is the block
    sums += np.where(inside, begin[..., taps - 1 : taps - 1 + count], 0)
    return sums


def _window_norms(u: np.ndarray, taps: int, subtract_mean: bool) -> np.ndarray:
    """Lengths of all windows of u, without their mean if that is subtracted; 0 for
    those that are zero or constant."""
    wide = u.astype(np.complex128 if u.dtype.kind == "c" else np.float64)
    squares = _window_sums(wide.real**2 + wide.imag**2, taps)
    if not subtract_mean:
        return np.sqrt(squares)
    rest = squares - np.abs(_window_sums(wide, taps)) ** 2 / taps
    return np.sqrt(np.where(rest > _CONSTANT * squares, rest, 0))


def _unit(templates: np.ndarray, subtract_mean: bool) -> np.ndarray:
    """Templates of length 1; those without energy are zero."""
    wide = templates.astype(np.complex128 if templates.dtype.kind == "c" else float)
    if subtract_mean:
        squares = np.mean(np.abs(wide) ** 2, -1, keepdims=True)
        wide = wide - wide.mean(-1, keepdims=True)
        rest = np.mean(np.abs(wide) ** 2, -1, keepdims=True)
        wide = np.where(rest > _CONSTANT * squares, wide, 0)
    norms = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0)


@exchanged
def match_templates(
    u: np.ndarray,
    templates: Any,
    *,
    subtract_mean: bool = False,
    dtype: ElementType | None = None,
    device: Device | str | None = None,
) -> np.ndarray:
    """Normalised correlations of all windows of signals with templates.

        y[..., i, t] = sum over s of conj(k_i[s]) u[..., t + s] / (norm k_i norm u_t),

    where u_t is the window of u that begins at t, and norms are Euclidean. No y is
    larger than 1, which it is where a window is a multiple of the template. Windows and
    templates without energy give 0.

    Parameters
    ----------
    u : [..., length], real or complex; integers are taken as f64, 16 bits as f32.
    templates : [templates][taps], or [taps]; taps is at most length.
    subtract_mean : subtract the means of windows and templates first: y is then
        Pearson's coefficient of correlation. Constant windows, whose variance is below
        1e-13 of their mean square, give zero.
    dtype : u's element type, if its dtype does not give it.

    Returns
    -------
    [..., templates, length - taps + 1], f32, f64, c64 or c128: a view of an array that
    is longer.
    """
    u, code = signal_of(u, dtype, element_code)
    u, k = np.asarray(u), np.asarray(filter_rows(templates, what="templates"))
    taps = k.shape[-1]
    if k.ndim != 2 or not k.size or not u.ndim or taps > u.shape[-1]:
        raise ValueError(
            f"u has the shape {u.shape} and templates {np.shape(templates)}: they are "
            "[..., length] and [templates][taps], with at most as many taps as numbers"
        )
    wide = converted(u, sums_code(code), code, what="u")
    norms = _window_norms(wide, taps, subtract_mean)
    gate = np.zeros_like(wide)
    inverse = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    gate[..., : norms.shape[-1]] = inverse
    k = _unit(converted(k, sums_code(code), what="templates"), subtract_mean)
    y = _correlate(wide, k, gate, device)
    return y[..., : norms.shape[-1]]


def _correlate(
    u: np.ndarray, k: np.ndarray, gate: np.ndarray, device: Any
) -> np.ndarray:
    """Correlations [..., filters, length] of every signal with every filter, times
    gates [..., length]."""
    count, options = math.prod(u.shape[:-1]), {"taps": k.shape[-1], "correlate": True}
    options |= {"dtype": u.dtype.name, "batch": count, "device": device}
    u, gate = u[..., None, :], gate[..., None, :]
    try:
        plan = ConvPlan(k.shape[0], u.shape[-1], signals=1, **options)
    except NotImplementedError:  # no filter banks there
        plan = ConvPlan(k.shape[0], u.shape[-1], **options)
        u, gate = (np.repeat(x, k.shape[0], -2) for x in (u, gate))
    return plan.spectrum(k)(u, gate_out=gate)
