"""Products and convolutions by PyTorch's own operators, for graphs that other programs
run: `to_plain` and exports to ONNX.

torch.jit.script compiles these functions and torch.fx records them, so that they have
neither checks nor choices by what tensors are.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from danaus.torch._exporting import refuse_onnx


def activate(v: Tensor, name: str) -> Tensor:
    """The activation of that name."""
    if name == "relu":
        return F.relu(v)
    if name == "gelu":
        return F.gelu(v)
    if name == "silu":
        return F.silu(v)
    if name == "gelu_tanh":
        return F.gelu(v, approximate="tanh")
    return v


# ---- products ----


def _times_factor(x: Tensor, w: Tensor, sizes: list[int]) -> Tensor:
    """Rows x [B, a c d] times a factor: [B, a b d]. One product for each block."""
    a, b, c, d = sizes[0], sizes[1], sizes[2], sizes[3]
    if a == 1 and d == 1:
        return F.linear(x, w.reshape(b, c))
    y = x.reshape(-1, a, c, d).permute(1, 3, 0, 2) @ w.permute(0, 3, 2, 1)
    return y.permute(2, 0, 3, 1).reshape(-1, a * b * d)


def chain_product(
    x: Tensor,
    weights: list[Tensor],
    bias: Tensor | None,
    patterns: list[int],
    batch_last: bool,
) -> Tensor:
    """W x + bias of x[..., N] or, batch_last, x[N, ...]; weights are rounded to x's
    type. patterns: four numbers for each factor."""
    some = x.unsqueeze(-1 if batch_last else 0)  # has a dimension of samples
    end = len(weights) - 1
    features = patterns[4 * end] * patterns[4 * end + 2] * patterns[4 * end + 3]
    if batch_last:
        y = some.reshape(features, -1).t()
    else:
        y = some.reshape(-1, features)
    for n in range(end, -1, -1):
        y = _times_factor(y, weights[n].to(x.dtype), patterns[4 * n : 4 * n + 4])
    if bias is not None:
        y = y + bias.to(x.dtype)
    if batch_last:
        return y.t().unflatten(1, some.shape[1:]).squeeze(-1)
    return y.unflatten(0, some.shape[:-1]).squeeze(0)


# ---- convolutions ----


@torch.fx.wrap
def period_for(least: int) -> int:
    """The length of a transform for so many numbers: a power of two, since the
    transforms of ONNX programs have large errors at other lengths."""
    if not torch.jit.is_scripting():
        if torch.compiler.is_dynamo_compiling() or not isinstance(least, int):
            refuse_onnx("a long convolution whose length may vary, not only its batch,")
        if not isinstance(least, int):
            return least
    n = 1
    while n < least:
        n *= 2
    return n


@torch.fx.wrap
def in_sums(x: Tensor) -> Tensor:
    """x in the type in which sums come: f32 for 16 bits."""
    return x.float() if x.dtype == torch.float16 or x.dtype == torch.bfloat16 else x


def _folded(k: Tensor, size: int) -> Tensor:
    """Taps along the last axis, added up at their places mod size."""
    more = (size - k.shape[-1] % size) % size
    return F.pad(k, [0, more]).unflatten(-1, [-1, size]).sum(-2)


def _placed(y: Tensor, dim: int, size: int, centre: int, circular: bool) -> Tensor:
    """Results along an axis, of the sums at all lags."""
    if not circular:
        return y.narrow(dim, centre, size)
    y = y.narrow(dim, 0, size) + y.narrow(dim, size, size)
    return torch.roll(y, [-centre], [dim])


def convolve_rows(
    rows: Tensor, k: Tensor, back: Tensor | None, centre: int, circular: bool
) -> Tensor:
    """Rows [batch, filters, any, length] convolved with k [filters, taps], and with
    back, whose taps are for later numbers."""
    size = rows.shape[-1]
    if circular:
        k = _folded(k, size)
    n = period_for(size + k.shape[-1])
    taps = F.pad(k, [0, n - k.shape[-1]])
    if back is not None:
        taps = taps + F.pad(back.flip([-1]), [n - back.shape[-1], 0])
    z = torch.fft.rfft(rows, n) * torch.fft.rfft(taps.unsqueeze(1), n)
    return _placed(torch.fft.irfft(z, n), -1, size, centre, circular)


def convolve_planes(
    planes: Tensor, k: Tensor, centre: list[int], circular: bool
) -> Tensor:
    """Planes [batch, filters, any, height, width] convolved with k [filters, down,
    across]."""
    height, width = planes.shape[-2], planes.shape[-1]
    if circular:
        k = _folded(_folded(k, width).mT, height).mT
    n = [period_for(height + k.shape[-2]), period_for(width + k.shape[-1])]
    z = torch.fft.rfft2(planes, n) * torch.fft.rfft2(k.unsqueeze(1), n)
    y = _placed(torch.fft.irfft2(z, n), -1, width, centre[1], circular)
    return _placed(y, -2, height, centre[0], circular)


def long_conv(
    u: Tensor,
    k: Tensor,
    back: Tensor | None,
    skip: Tensor | None,
    gate_in: Tensor | None,
    gate_out: Tensor | None,
    centre: list[int],
    circular: bool,
) -> Tensor:
    """The function of that name for u [batch, channels, length], and that for planes of
    u [batch, channels, height, width]."""
    p = u if gate_in is None else gate_in * u
    wide = in_sums(p)
    rows = wide.unflatten(1, [k.shape[0], -1])
    k = k.to(wide.dtype)
    if back is not None:
        back = back.to(wide.dtype)
    if len(centre) == 2:
        y = convolve_planes(rows, k, centre, circular)
    else:
        y = convolve_rows(rows, k, back, centre[0], circular)
    if skip is not None:
        y = y + skip.to(wide.dtype).reshape([-1] + [1] * (1 + len(centre))) * rows
    y = y.flatten(1, 2).to(p.dtype)
    return y if gate_out is None else gate_out * y


def convolve_few(
    u: Tensor, k: Tensor, bias: Tensor | None, channels_last: bool, centred: bool
) -> Tensor:
    """`short_conv` of u, k and bias of one type, by conv1d."""
    channels, taps = k.shape[0], k.shape[1]
    after = (taps - 1) // 2 if centred else 0
    rows = u.mT if channels_last else u
    rows = F.pad(rows, [taps - 1 - after, after])
    y = F.conv1d(rows, k.flip([1]).unsqueeze(1), bias, groups=channels)
    return y.mT if channels_last else y


def short_conv(
    u: Tensor, k: Tensor, bias: Tensor | None, channels_last: bool, centred: bool
) -> Tensor:
    """The function of that name."""
    wide = in_sums(u)
    if bias is not None:
        bias = bias.to(wide.dtype)
    k = k.to(wide.dtype)
    return convolve_few(wide, k, bias, channels_last, centred).to(u.dtype)


# ---- systems ----


def triangular_inverse(x: Tensor) -> Tensor:
    """Inverses of lower triangular matrices [..., n, n], by those of their halves."""
    n = x.shape[-1]
    if n == 1:
        return 1 / x
    first = triangular_inverse(x[..., : n // 2, : n // 2])
    last = triangular_inverse(x[..., n // 2 :, n // 2 :])
    below = -(last @ x[..., n // 2 :, : n // 2] @ first)
    above = F.pad(first, [0, n - n // 2])
    return torch.cat([above, torch.cat([below, last], -1)], -2)
