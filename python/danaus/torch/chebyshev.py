"""Values of Chebyshev polynomials at Chebyshev points, by matrices and fast.

T_a(cos t) = cos(a t), and the N points are w_{N,i} = cos(pi (i + 1/2) / N). Where
N = b c and i = i1 b + i0, T_c(w_{N,i}) = (-1)^i1 w_{b,i0} (lemma 11).

Source: Fu et al., Monarch Mixer, NeurIPS 2023 (arXiv 2310.12109), appendix D.5.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.torch._conv_functions import fail
from danaus.torch._digits import two_blocks
from danaus.torch._precision import without_autocast
from danaus.torch.monarch_matrix import (
    Pair,
    check_numbers,
    monarch_product,
    monarch_product_reversed,
    swap_digits,
    transposed,
)

__all__ = ["chebyshev_inverse_matrix", "chebyshev_matrix", "chebyshev_transform"]


def chebyshev_matrix(points: int, columns: int | None = None, like=None) -> Tensor:
    """C [points, columns], C[i, a] = T_a(w_{points,i}), of the type of `like`, or f64.

    Columns are as many as points unless said otherwise.
    """
    degrees = torch.arange(points if columns is None else columns)
    return _real(torch.cos(_angles(torch.arange(points), degrees, points)), like)


def chebyshev_inverse_matrix(points: int, like=None) -> Tensor:
    """C^-1 = diag(1, 2, .., 2) C^T / points of the square matrix C (lemma 15)."""
    return _weights(points, like)[:, None] * chebyshev_matrix(points, like=like).mT


@without_autocast
def chebyshev_transform(
    x: Tensor,
    blocks: Sequence[int] | None = None,
    *,
    inverse: bool = False,
    transpose: bool = False,
) -> Tensor:
    """C x, C^T x, C^-1 x or C^-T x along the last axis, in four Monarch products.

    Theorem 14: with j = j0 c + j1 and the angles t_i = pi (i + 1/2) / N and
    p_{i0} = pi (i0 + 1/2) / b,

        T_j(w_{N,i}) = (-1)^(i1 j0) (cos(j0 p_{i0}) cos(j1 t_i)
                                   - sin(j0 p_{i0}) sin(j1 t_i)).

    Each term without its sign is a Monarch matrix, and the sign is one on even j0 and
    depends on i alone on odd ones. The transposes have the same factors; lemma 15
    makes the inverses of them.

    Parameters
    ----------
    x : Tensor [..., N] of float32 or float64
    blocks : c and b with c b = N. Default: as near each other as can be.
    inverse, transpose : which of the four matrices

    Raises
    ------
    ValueError
        Blocks that do not make N, another type.
    """
    check_numbers("x", x)
    if x.is_complex() or x.dim() < 1 or x.shape[-1] < 1:
        fail("x has to have real numbers, and at least one along its last axis")
    size = x.shape[-1]
    c, b = two_blocks(blocks, size)
    weights = _weights(size, x) if inverse else None
    if transpose != inverse:
        y = _transposed_product(x, c, b)
        return y if weights is None else weights * y
    return _forward_product(x if weights is None else weights * x, c, b)


def signs(c: int, b: int, like: Tensor) -> Tensor:
    """S: (-1)^i1 at i = i1 b + i0."""
    return (
        (1 - 2 * (torch.arange(c, device=like.device) % 2))
        .to(like.dtype)
        .repeat_interleave(b)
    )


def _forward_product(x: Tensor, c: int, b: int) -> Tensor:
    even = _even(c, b, x.device)
    parts = torch.stack([x.where(even, 0), x.where(~even, 0)])
    parts = swap_digits(parts, b, c)
    cosines, sines = _waves(c, b, x)
    even_part, odd_part = monarch_product(parts, cosines) - monarch_product(
        parts, sines
    )
    return even_part + signs(c, b, x) * odd_part


def _transposed_product(x: Tensor, c: int, b: int) -> Tensor:
    parts = torch.stack([x, signs(c, b, x) * x])
    cosines, sines = (transposed(pair) for pair in _waves(c, b, x))
    parts = monarch_product_reversed(parts, cosines) - monarch_product_reversed(
        parts, sines
    )
    for_even, for_odd = swap_digits(parts, c, b)
    return for_even.where(_even(c, b, x.device), for_odd)


def _even(c: int, b: int, device) -> Tensor:
    """True at j = j0 c + j1 with an even j0."""
    return (torch.arange(b, device=device) % 2 == 0).repeat_interleave(c)


def _waves(c: int, b: int, like: Tensor) -> tuple[Pair, Pair]:
    """The Monarch matrices of cosines and of sines, in columns j1 b + j0."""
    slow = _angles(torch.arange(c * b), torch.arange(c), c * b)
    slow = slow.unflatten(0, (c, b)).transpose(0, 1)
    fast = _angles(torch.arange(b), torch.arange(b), b).expand(c, b, b)
    return tuple(
        (_real(wave(slow), like), _real(wave(fast), like))
        for wave in (torch.cos, torch.sin)
    )


def _angles(i: Tensor, j: Tensor, points: int) -> Tensor:
    """pi j (i + 1/2) / points in f64, reduced to one turn before it is rounded."""
    turns = torch.outer(2 * i + 1, j) % (4 * points)
    return turns.double() * (math.pi / (2 * points))


def _weights(points: int, like) -> Tensor:
    weights = torch.full((points,), 2 / points, dtype=torch.float64)
    weights[0] = 1 / points
    return _real(weights, like)


def _real(x: Tensor, like) -> Tensor:
    return x if like is None else x.to(like.device, like.dtype)
