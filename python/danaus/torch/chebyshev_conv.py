"""The causal Monarch map in real numbers, on Chebyshev points.

A structured causal matrix (definition 6) has the entries q_j(w_{N,i}) with

    q_j(Z) = l_{j1}(Z) r_{j1,j0}(T_c(Z)),   j = j0 c + j1,   N = b c,

where l_{j1} has the degree c - 1 - j1 and r_{j1,j0} the degree b - 1 - j0, so that q_j
has the degree N - 1 - j (lemma 9). A pair (lt, rt) of tensors [c, c] and [c, b, b]
stands for it: lt[a, j1] is the coefficient of T_a in l_{j1}, rt[j1, a, j0] that of T_a
in r_{j1,j0}. Coefficients above the degree are neither read nor have a gradient.

Products of Chebyshev polynomials have low degrees too, T_a T_b = (T_{a+b} + T_{|a-b|})
/ 2, so that degrees descend and zeros are put in front (theorem 13).

Source: Fu et al., Monarch Mixer, NeurIPS 2023 (arXiv 2310.12109), appendix D.5:
theorems 12 to 14, algorithm 4.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.torch._conv_functions import fail
from danaus.torch._digits import near_equal
from danaus.torch._filter_conv import FilterConv, all_three, of_one_type, three
from danaus.torch._precision import wide, without_autocast
from danaus.torch._triangular import TriangularBasis, triangular_inverse
from danaus.torch.chebyshev import chebyshev_matrix, chebyshev_transform, signs
from danaus.torch.functional import ks_linear
from danaus.torch.monarch_matrix import (
    Pair,
    check_numbers,
    may_read,
    monarch_product,
    swap_digits,
)

__all__ = [
    "ChebyshevConv",
    "chebyshev_conv",
    "structured_causal_factors",
    "structured_causal_product",
    "structured_causal_solve",
]


@without_autocast
def structured_causal_factors(pair: Pair) -> tuple[Tensor, Tensor, Tensor]:
    """L [b, c, c] and two R [c, b, b] (algorithm 4): from even a and from odd a in rt.

    r is evaluated at T_c(w_{N,i}) = (-1)^i1 w_{b,i0}, and T_a(-x) = (-1)^a T_a(x). So
    the structured causal matrix is M(L, R_even) + S M(L, R_odd), S = diag((-1)^i1).
    """
    lt, rt = _checked(pair)
    c, b = rt.shape[:2]
    values = chebyshev_matrix(b * c, c, lt) @ _degrees(lt)
    of_r, rt = chebyshev_matrix(b, like=rt), _degrees(rt)
    left = values.unflatten(0, (c, b)).transpose(0, 1)
    return left, of_r[:, ::2] @ rt[:, ::2], of_r[:, 1::2] @ rt[:, 1::2]


@without_autocast
def structured_causal_product(x: Tensor, pair: Pair) -> Tensor:
    """sum_j x_j q_j at the N Chebyshev points, in two Monarch products.

    Parameters
    ----------
    x : Tensor [..., N] of the pair's type
    pair : lt [c, c] and rt [c, b, b] with b c = N

    Raises
    ------
    ValueError
        Sizes or types that do not fit; a leading coefficient that is zero.
    """
    left, even, odd = structured_causal_factors(pair)
    b, c = left.shape[:2]
    _check_size(x, b * c, left)
    x = swap_digits(x, b, c)
    y = signs(c, b, left) * monarch_product(x, (left, odd))
    return monarch_product(x, (left, even)) + y


@without_autocast
def structured_causal_solve(y: Tensor, pair: Pair) -> Tensor:
    """The x that `structured_causal_product` makes y of, its arguments being as there.

    The matrix is C_N E K: K takes x to the basis T_a(Z) T_d(T_c(Z)) and has triangular
    blocks, E takes that to T_0, T_1, .., C_N is inverted by four Monarch products.
    """
    lt, rt = _checked(pair)
    c, b = rt.shape[:2]
    _check_size(y, b * c, lt)
    y = _unmix(chebyshev_transform(y, (c, b), inverse=True), b, c)
    # Rows in reverse make the blocks lower triangular.
    lt, rt = (triangular_inverse(_degrees(x).flip(-2)).flip(-1) for x in (lt, rt))
    weights = [rt.permute(1, 2, 0)[None], lt.expand(b, c, c)[..., None]]
    return ks_linear(y, weights, tf32=False)


@without_autocast
def chebyshev_conv(u: Tensor, k: Tensor, m0: Pair, m1: Pair, m2: Pair) -> Tensor:
    """f = M_0^-1 ((M_1 (0, k)) . (M_2 (0, u))) of structured causal matrices.

    f[t] depends on k[0..t] and u[0..t] alone (theorem 13, corollary 7). floor(N / 2)
    zeros are put in front; if N is even the map is late by one, so that f is read from
    place 1. Differentiable in all tensors.

    Parameters
    ----------
    u, k : Tensor [..., n] of the matrices' type with n <= ceil(N / 2), whose other axes
        are broadcast
    m0, m1, m2 : pairs lt [c, c] and rt [c, b, b] with b c = N

    Returns
    -------
    Tensor [..., n]

    Raises
    ------
    ValueError
        Sizes or types that do not fit; a leading coefficient that is zero.
    """
    sizes = sorted(math.prod(_checked(m)[1].shape[:2]) for m in (m0, m1, m2))
    if sizes[0] != sizes[-1]:
        fail(f"the matrices have {sorted({*sizes})} rows; these have to be equal")
    size, length = sizes[0], u.shape[-1]
    check_numbers("u, k and the matrices", u, k, m0[0], m1[0], m2[0])
    if k.shape[-1] != length:
        fail(f"k has {k.shape[-1]} numbers, u {length}")
    if length > (size + 1) // 2:
        fail(f"u is {length} long; {size} points are enough for {(size + 1) // 2}")
    zeros = size // 2, size - size // 2 - length
    k, u = (torch.nn.functional.pad(x, zeros) for x in (k, u))
    values = structured_causal_product(k, m1) * structured_causal_product(u, m2)
    first = 1 - size % 2
    return structured_causal_solve(values, m0)[..., first : first + length]


def _degrees(x: Tensor) -> Tensor:
    """Column j of n without its coefficients above n - 1 - j."""
    return x.flip(-2).tril().flip(-2)


def _unmix(y: Tensor, b: int, c: int) -> Tensor:
    """E^-1 y. Column (d, a) of E is T_a T_{dc} = (T_{dc+a} + T_{dc-a}) / 2, or T_{dc+a}
    where a or d is 0.

    With rows Y_d of y and F their reversal, without a = 0, X_d = 2 Y_d - F X_{d+1} for
    d > 0 and X_0 = Y_0 - F X_1 / 2: sums from the last row on with signs.
    """
    rows = y.unflatten(-1, (b, c))
    turned = _turn(2 * rows[..., 1:])
    sums = _turn(turned.flip(-2).cumsum(-2).flip(-2))
    rest = torch.cat([sums[..., :1, :] / 2, sums[..., 1:, :]], -2)
    return torch.cat([rows[..., :1], rest], -1).flatten(-2)


def _turn(rows: Tensor) -> Tensor:
    """(-F)^d of row d, which undoes itself."""
    odd = (torch.arange(rows.shape[-2], device=rows.device) % 2 == 1)[:, None]
    return torch.where(odd, -rows.flip(-1), rows)


def _checked(pair: Pair) -> Pair:
    """The pair; ValueError unless it makes an invertible matrix of real numbers."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        fail("a structured causal matrix is a pair of tensors, lt and rt")
    lt, rt = pair
    check_numbers("a structured causal matrix", lt, rt)
    c, b = rt.shape[:2] if rt.dim() == 3 else (0, 0)
    if lt.shape != (c, c) or rt.shape != (c, b, b) or b * c == 0 or lt.is_complex():
        fail(
            f"coefficients have the shapes {list(lt.shape)} and {list(rt.shape)}; real "
            "ones [c, c] and [c, b, b] are needed"
        )
    for name, x in (("lt", lt), ("rt", rt)):
        leading = x.flip(-2).diagonal(dim1=-2, dim2=-1)
        if may_read(x) and bool((leading == 0).any()):
            fail(f"{name} is singular: a leading coefficient is zero")
    return lt, rt


def _check_size(x: Tensor, size: int, like: Tensor) -> None:
    check_numbers("x and the matrix", x, like)
    if x.shape[-1] != size:
        fail(f"the matrix has {size} rows; {x.shape[-1]} numbers are multiplied")


class ChebyshevConv(FilterConv):
    """y = M_0^-1 ((M_1 (0, k)) . (M_2 (0, u))) + skip u, causal and of real numbers.

    M_i are structured causal matrices on N = b c Chebyshev points (definition 6), with
    leading coefficients of ones. All channels share them. As they begin, q_j(Z) =
    T_{c-1-j1}(Z) T_{b-1-j0}(T_c(Z)). y[t] depends on u[0..t] alone (theorem 13).

    Parameters
    ----------
    channels : int
    length : int
        The greatest length of signals, and the length of filters without `taps`.
    blocks : c and b with c b >= 2 length - 1
        Sizes of blocks. Default: about equal.
    tied : bool
        True: M_0 = M_1 = M_2. The operation is then commutative in k and u.
    learn : bool
        False: the matrices stay as they begin.
    filters, taps, skip : as for `LongConv`.

    Attributes
    ----------
    weight : Parameter [filters, taps]
    bases : one or three modules with parameters ``below.0`` [1, c, c, 1] and
        ``below.1`` [1, b, b, c]
        below.0[0, i, j, 0] with i > j is the coefficient of T_{c-1-i} in l_j, and
        below.1[0, i, j, j1] of T_{b-1-i} in r_{j1,j}. Other entries are not read.
    skip : Parameter [filters] or None
    """

    def __init__(
        self,
        channels: int,
        length: int,
        *,
        blocks: Sequence[int] | None = None,
        tied: bool = True,
        learn: bool = True,
        filters: int | None = None,
        taps: int | None = None,
        skip: bool = True,
        device=None,
        dtype=None,
    ):
        made = {"device": device, "dtype": dtype}
        super().__init__(channels, length, filters, taps, skip, made)
        points = 2 * length - 1
        blocks = near_equal(points, 2) if blocks is None else blocks
        if len(blocks) != 2 or min(blocks) < 1 or math.prod(blocks) < points:
            fail(f"blocks {list(blocks)} are not two that make {points} points or more")
        self.blocks = tuple(blocks)
        self.bases = three(
            lambda: TriangularBasis(self.blocks, True, made), tied, learn
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random filters, and products of two Chebyshev polynomials."""
        super().reset_parameters()
        for w in self.bases.parameters():
            torch.nn.init.zeros_(w)

    def pairs(self) -> list[Pair]:
        """lt and rt of M_0, M_1 and M_2."""
        return all_three(map(_pair, self.bases))

    def _convolve(self, u: Tensor, k: Tensor) -> Tensor:
        return chebyshev_conv(*of_one_type(u, self._of_channels(k), self.pairs()))

    def extra_repr(self) -> str:
        return f"{self.channels}, {self.length}, blocks={self.blocks}"


def _pair(basis: TriangularBasis) -> Pair:
    lt, rt = (wide(w[0]).permute(2, 0, 1).flip(-2) for w in basis.blocks())
    return lt[0], rt
