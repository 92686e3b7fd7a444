"""Convolutions of planes as functions of tensors."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from danaus._arrays import need_one_of
from danaus.torch._conv_fft import _fft_long_conv
from danaus.torch._conv_functions import (
    KINDS,
    accuracy_of,
    centre_of,
    check_tensor,
    fail,
    filters_of,
    rows_of,
    run_rows,
)
from danaus.torch._errors import refuse_proxy
from danaus.torch._ops import is_traced

_MOST = 1 << 16  # numbers of such a plane (bench/planes.py on an H200)


def flat(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.flatten(-2)


def check_plane_kind(kind: str) -> None:
    need_one_of(KINDS, kind, "kind")
    if kind == "bidirectional":
        fail("planes have no reverse filters: centred convolutions look both ways")


def planes_of(u, gate_in, gate_out) -> list[Tensor | None]:
    """u and its gates as rows that have both axes of a plane as one."""
    refuse_proxy(u)
    if not isinstance(u, Tensor) or u.dim() != 4 or 0 in u.shape[1:]:
        shape = list(u.shape) if isinstance(u, Tensor) else type(u).__name__
        fail(f"u is {shape}; [batch, channels, height, width] is needed")
    for name, gate in (("gate_in", gate_in), ("gate_out", gate_out)):
        if gate is not None:
            check_tensor(name, gate, tuple(u.shape), u.device)
    return [flat(x) for x in (u, gate_in, gate_out)]


def suits_fft(u: Tensor, taps: Sequence[int], kind: str) -> bool:
    """Says whether torch.fft is faster: it needs only the numbers of circular planes,
    and flat rows of wide filters twice as many along each axis. Tensor cores are
    faster even so up to some size."""
    if kind != "circular" or is_traced():
        return False
    width = u.shape[-1]
    numbers = u.shape[-2] * width
    if u.is_cuda and u.dtype.itemsize == 2 and width % 8 == 0 and numbers <= _MOST:
        return False
    return u.shape[-2] > 1 and 2 * (min(taps[1], width) - 1) > width


def long_conv2d(
    u: Tensor,
    k: Tensor,
    skip: Tensor | None = None,
    gate_in: Tensor | None = None,
    gate_out: Tensor | None = None,
    kind: str = "causal",
    centre: Sequence[int] | None = None,
    accuracy: str | None = None,
) -> Tensor:
    """``gate_out * (k (*) p + skip * p)`` with ``p = gate_in * u``, where `(*)` is a
    convolution along both axes of planes.

    ``(k (*) p)[t] = sum_s k[s] p[t + centre - s]`` for places t and s, which are
    (down, across). p is zero outside of its plane or, "circular", repeats along both
    axes. "causal" has the centre (0, 0). A "centred" convolution is causal along an
    axis where its centre is 0. Differentiable in all tensors.

    Parameters
    ----------
    u, gate_in, gate_out : Tensor [batch, channels, height, width]
        float32, float64, float16 or bfloat16, as for `long_conv`.
    k : Tensor [filters, taps down, taps across]
        Channel h has the filter ``h // (channels // filters)``. With one axis more,
        [batch, filters, down, across], each sample has filters of its own; skip has it,
        too.
    skip : Tensor [filters]
    centre : two numbers
        A place of the filter. None: the middle tap of centred ones, ``(taps - 1) // 2``
        along each axis, and (0, 0) of circular ones.
    accuracy : None, "accurate" or "fast", as for `long_conv`

    Returns
    -------
    Tensor [batch, channels, height, width], of u's type.

    Raises
    ------
    ValueError
        Shapes, types or devices that do not fit.
    """
    check_plane_kind(kind)
    rows, *gates = planes_of(u, gate_in, gate_out)
    if not isinstance(k, Tensor) or k.dim() not in (3, 4):
        fail("k needs the shape [filters, down, across], or samples in front of that")
    taps = k.shape[-2:]
    form = [u.shape[-2], taps[0], *centre_of(centre, taps, kind)]
    rows, *gates = rows_of(rows, *gates)
    if k.dim() == 3 and suits_fft(u, taps, kind):
        accuracy_of(accuracy)
        k, _, skip = filters_of(rows, flat(k), None, skip, kind)
        return _fft_long_conv(rows, k, None, skip, *gates, kind, form).view(u.shape)
    y = run_rows(rows, (flat(k), None, skip), gates, kind, form, None, accuracy)
    return y.view(u.shape)
