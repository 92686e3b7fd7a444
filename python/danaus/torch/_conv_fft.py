"""Convolutions by PyTorch's own functions: second derivatives and forward mode
everywhere, devices that are neither CPUs nor NVIDIA GPUs, and a second opinion for
tests."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.torch._exporting import is_standard, refuse_onnx
from danaus.torch._standard import convolve_few, convolve_planes, convolve_rows


def _smooth(least: int) -> int:
    """The least product of powers of 2, 3, 5 and 7 that is at least that."""
    while True:
        rest = least
        for p in (2, 3, 5, 7):
            while rest % p == 0:
                rest //= p
        if rest == 1:
            return least
        least += 1


def _taps_by_lag(k: Tensor, k_reverse: Tensor | None, length: int, kind: str) -> Tensor:
    """Filters as one period in which nothing wraps that should not: [filters, n], taps
    at their lag mod n."""
    if kind == "circular":
        whole = torch.nn.functional.pad(k, (0, -k.shape[1] % length))
        return whole.unflatten(1, (-1, length)).sum(1)
    k = k[:, :length]
    n = _smooth(length + k.shape[1])
    by_lag = torch.nn.functional.pad(k, (0, n - k.shape[1]))
    if k_reverse is None:
        return by_lag
    back = k_reverse[:, :length].flip(1)
    return by_lag + torch.nn.functional.pad(back, (n - back.shape[1], 0))


def _half(window: Tensor) -> Tensor:
    """Values of rows of 2 n numbers, as polynomials mod Z^2n + 1, at Z = e^(2 pi i
    (f + 1/4) / n), 0 <= f < n (docs/conv.md (2))."""
    first, second = window.chunk(2, -1)
    return torch.fft.ifft(
        torch.complex(first, second) * _quarter(first), norm="forward"
    )


def _whole(values: Tensor) -> Tensor:
    """The rows that have these values."""
    z = torch.fft.fft(values, norm="forward") / _quarter(values.real)
    return torch.cat([z.real, z.imag], -1)


def _quarter(like: Tensor) -> Tensor:
    """e^(2 pi i j / (4 n)) for 0 <= j < n."""
    n = like.shape[-1]
    angle = torch.arange(n, device=like.device, dtype=torch.float64) * (
        torch.pi / 2 / n
    )
    return torch.polar(torch.ones_like(angle), angle).to(like.dtype.to_complex())


def _kept(n: int, sparse: Sequence[int], device) -> Tensor:
    """Which of n frequencies a sparse spectrum keeps (danaus/conv.h)."""
    f = torch.arange(n, device=device)
    kept = torch.ones_like(f, dtype=torch.bool)
    for axis, keep in zip(sparse[:4], sparse[4:]):
        kept &= f % axis < keep
        f = f // axis
    return kept


def _sparse_rows(rows: Tensor, k, k_reverse, skip, sparse: Sequence[int]) -> Tensor:
    """Rows [batch, filters, any, length] convolved with filters; a skip is one more
    tap. Only the filters' frequencies that `sparse` keeps count."""
    length, pad = rows.shape[-1], torch.nn.functional.pad
    k = k[:, :length]
    n = max(4096, math.prod(sparse[:4]))
    while 2 * n < length + k.shape[1]:
        n *= 2
    window = pad(k, (0, 2 * n - k.shape[1]))
    if skip is not None:
        window = window + pad(skip[:, None], (0, 2 * n - 1))
    if k_reverse is not None:
        back = k_reverse[:, :length].flip(1)
        window = window - pad(back, (2 * n - back.shape[1], 0))
    spectrum = _half(window) * _kept(n, sparse, rows.device)
    z = _half(pad(rows, (0, 2 * n - length))) * spectrum[:, None]
    return _whole(z)[..., :length]


def _dense_rows(rows: Tensor, k, k_reverse, skip, kind: str) -> Tensor:
    """Rows [batch, filters, any, length] convolved with filters, and the skip."""
    length = rows.shape[-1]
    taps = _taps_by_lag(k, k_reverse, length, kind)
    n = taps.shape[1]
    z = torch.fft.rfft(rows, n) * torch.fft.rfft(taps, n)[:, None]
    y = torch.fft.irfft(z, n)[..., :length]
    return y if skip is None else y + skip[:, None, None] * rows


def _plane_rows(rows: Tensor, k, skip, kind: str, form: Sequence[int]) -> Tensor:
    """Planes [batch, filters, any, numbers] convolved with filters [filters, taps], and
    the skip. form: the heights of planes and filters, and the centre."""
    height, tap_rows, *centre = form
    planes = rows.unflatten(-1, (max(height, 1), -1))
    taps = k.unflatten(-1, (max(tap_rows, 1), -1))
    sizes = planes.shape[-2:]
    if kind == "circular":
        room = [-many % size for many, size in zip(taps.shape[-2:], sizes)]
        taps = torch.nn.functional.pad(taps, (0, room[1], 0, room[0]))
        taps = taps.unflatten(-1, (-1, sizes[1])).unflatten(-3, (-1, sizes[0]))
        taps = taps.sum((-4, -2)).roll([-c for c in centre], (-2, -1))
        period, centre = list(sizes), [0, 0]
    else:
        period = [_smooth(n + t) for n, t in zip(sizes, taps.shape[-2:])]
    z = torch.fft.rfft2(planes, period) * torch.fft.rfft2(taps, period)[:, None]
    y = torch.fft.irfft2(z, period)
    for dim, (first, size) in enumerate(zip(centre, sizes), -2):
        y = y.narrow(dim, first, size)
    y = y.flatten(-2)
    return y if skip is None else y + skip[:, None, None] * rows


def _standard_rows(rows: Tensor, k, k_reverse, skip, kind: str, form) -> Tensor:
    """All of these for an exporter."""
    if len(form) == 8:
        refuse_onnx("a long convolution with a sparse spectrum")
        y = _sparse_rows(rows, k, k_reverse, None, form)
    elif len(form) == 4 and form[0]:
        height, tap_rows, *centre = form
        planes, k = rows.unflatten(-1, (height, -1)), k.unflatten(-1, (tap_rows, -1))
        y = convolve_planes(planes, k, centre, kind == "circular").flatten(-2)
    else:
        centre = form[3] if form else 0
        y = convolve_rows(rows, k, k_reverse, centre, kind == "circular")
    return y if skip is None else y + skip[:, None, None] * rows


def _fft_long_conv(
    u: Tensor,
    k: Tensor,
    k_reverse: Tensor | None,
    skip: Tensor | None,
    gate_in: Tensor | None,
    gate_out: Tensor | None,
    kind: str,
    form: Sequence[int] = (),
    offsets: Tensor | None = None,
) -> Tensor:
    """danaus::long_conv through torch.fft, with sums in the type of k: for devices
    without kernels, and a second opinion for tests. Autograd differentiates it."""
    if offsets is not None:
        lengths = offsets.diff().tolist()
        rows = [
            () if x is None else x.split(lengths, 2)
            for x in (u, gate_in, gate_out)
        ]
        parts = [
            _fft_long_conv(p, k, k_reverse, skip, *gates, kind, form)
            for p, *gates in itertools.zip_longest(*rows)
        ]
        return torch.cat(parts, 2)
    filters, channels = k.shape[0], u.shape[1]
    p = u.to(k.dtype)
    if gate_in is not None:
        p = p * gate_in
    rows = p.unflatten(1, (filters, channels // filters))
    if is_standard():
        y = _standard_rows(rows, k, k_reverse, skip, kind, form)
    elif not rows.numel():  # transforms of nothing are refused by some libraries
        y = rows * sum(t.sum() for t in (k, k_reverse, skip) if t is not None)
    elif len(form) == 8:
        y = _sparse_rows(rows, k, k_reverse, skip, form)
    elif len(form) == 4:
        y = _plane_rows(rows, k, skip, kind, form)
    else:
        y = _dense_rows(rows, k, k_reverse, skip, kind)
    y = y.flatten(1, 2)
    if gate_out is not None:
        y = y * gate_out
    return y.to(u.dtype).contiguous()


def _conv1d_short_conv(
    u: Tensor, k: Tensor, bias: Tensor | None, channels_last: bool, centred: bool
) -> Tensor:
    """danaus::short_conv through conv1d, with sums in the type of k."""
    with torch.autocast(u.device.type, enabled=False):
        y = convolve_few(u.to(k.dtype), k, bias, channels_last, centred)
    return y.to(u.dtype).contiguous()


def fft_hyena(u: Tensor, taps: Tensor, bias, k: Tensor, skip, offsets=None) -> Tensor:
    """danaus::hyena through conv1d and torch.fft, with sums in the type of k: for
    devices without kernels, and a second opinion for tests. Autograd differentiates
    it."""
    if offsets is not None:
        parts = [p for p in u.split(offsets.diff().tolist(), 2) if p.shape[2]]
        return torch.cat([fft_hyena(p, taps, bias, k, skip) for p in parts], 2)
    z = _conv1d_short_conv(u, taps, bias, False, False)
    *gates, v = z.unflatten(1, (k.shape[0] + 2, -1)).unbind(1)
    for o in range(k.shape[0]):
        jump = None if skip is None else skip[o]
        v = _fft_long_conv(v, k[o], None, jump, gates[-1 - o], None, "causal")
    return gates[0] * v
