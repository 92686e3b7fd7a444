"""Rotations of BOFT: products of block butterflies whose blocks are orthogonal.

With blocks of b numbers, factor i reads n features as (a, g, p, t): g < 2, p < 2^i and
t < b / 2. Its block (a, p) multiplies the b numbers (g, t). A rotation is

    Q = F_(m-1) ... F_1 F_0,    applied to rows, x Q.

k neighbours F_i ... F_(i+k-1) together are block-diagonal, too, with blocks of
b 2^(k-1) numbers, which lie side by side if i = 0. They are multiplied out where such
blocks are small: x is then read and written once instead of k times.

Source: Liu, Qiu, Feng, Xiu, Xue, Yu, Feng, Liu, Heo, Peng, Wen, Black, Weller,
Schoelkopf, Parameter-Efficient Orthogonal Finetuning via Butterfly Factorization, ICLR
2024 (arXiv 2311.06243), and PEFT's BOFT, whose order of blocks this is.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from danaus.torch._cayley import cayley
from danaus.torch.functional import ks_linear

MOST = 256  # numbers of a block that is multiplied out
_BMM = 64  # from this size on PyTorch is faster on a CPU, in f32 and f64


class Group(NamedTuple):
    """Neighbours F_i ... F_(i+k-1), multiplied out."""

    blocks: Tensor  # [n / size, size, size, 1], transposed: y = block x
    lanes: int  # 2^i
    half: int  # b / 2, or b where there is one factor


def groups_of(
    r: Tensor, dropout: Callable[[Tensor], Tensor] | None = None, most: int = MOST
) -> list[Group]:
    """The groups of a rotation, from parameters [m, n / b, b, b] of its factors.

    dropout puts the identity in place of some blocks, which are transposed ones here.
    """
    m, count, b, _ = r.shape
    drops = not (dropout is None or isinstance(dropout, nn.Identity))
    if m == 1 and not drops:
        return [Group(cayley(r, transposed=True, shape=(count, b, b, 1)), 1, b)]
    factors = cayley(r, transposed=True)
    factors = dropout(factors) if drops else factors
    together = max(1, (most // b).bit_length())
    count = -(-m // together)
    ends = [m * i // count for i in range(count + 1)]
    half = b // 2 if m > 1 else b
    return [_multiplied(factors[i:j], 1 << i, half) for i, j in zip(ends, ends[1:])]


def _multiplied(factors: Tensor, lanes: int, half: int) -> Group:
    """The product of transposed factors, the first of them leftmost."""
    b = factors.shape[-1]
    made = factors[0].reshape(-1, lanes, b, b)
    for factor in factors[1:]:
        size = made.shape[-1]
        left = made.view(-1, 2, lanes, size, size // half, half)
        right = factor.reshape(-1, size // half, lanes, 2, half, 2, half)
        made = torch.einsum("aglxpt,aplgthu->algxhpu", left, right)
        made = made.reshape(-1, lanes, 2 * size, 2 * size)
    return Group(made.flatten(0, 1).unsqueeze(-1), lanes, half)


def rotate(x: Tensor, groups: list[Group], back: bool = False) -> Tensor:
    """x Q, or x Q^T with `back`, of x[..., n]."""
    for blocks, lanes, half in groups if back else reversed(groups):
        blocks = blocks.transpose(1, 2) if back else blocks
        if lanes == 1:
            x = _product(x, blocks)
            continue
        inside = blocks.shape[1] // half
        x = _product(_exchanged(x, inside, lanes, half), blocks)
        x = _exchanged(x, lanes, inside, half)
    return x


def _exchanged(x: Tensor, p: int, q: int, half: int) -> Tensor:
    """(a, p, q, t) in the order (a, q, p, t)."""
    return x.unflatten(-1, (-1, p, q, half)).transpose(-3, -2).flatten(-4)


def _product(x: Tensor, blocks: Tensor) -> Tensor:
    """Block-diagonal blocks times x[..., n]."""
    size, wide = blocks.shape[1], x.dtype in (torch.float32, torch.float64)
    if x.device.type != "cuda" and (not x.is_cpu or wide and size >= _BMM):
        x = x.unflatten(-1, (-1, size))
        square = blocks.squeeze(-1).to(x.dtype)
        return torch.einsum("...ds,des->...de", x, square).flatten(-2)
    return ks_linear(x, [blocks])
