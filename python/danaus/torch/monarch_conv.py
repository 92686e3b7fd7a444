"""Monarch convolutions f = M_0^-1 ((M_1 k) . (M_2 u)) with Monarch matrices that are
learned.

A Monarch matrix evaluates polynomials (theorem 1), so f is a product of polynomials,
each in a basis of its own (theorem 2). `BASES` names the polynomials:

"univariate"
    q_j(Z) = l_{j0}(Z) r_{j0,j1}(Z^c) for the column j = j1 c + j0, at the N-th roots of
    unity. Products are modulo Z^N - 1. The matrix is M Q, where Q transposes the b x c
    view of a vector. l_{j0} = Z^j0 and r_{j0,j1} = Z^(c j1) make it the Fourier
    transform (corollary 6).
"bivariate"
    q_j(X, Y) = l_{j1}(X, Y) r_{j1,j0}(Y) for j = j1 b + j0, X being the c-th and Y the
    b-th roots of unity. Products are modulo X^c - 1 and Y^b - 1 (theorem 2).
"chebyshev"
    The same polynomials at Chebyshev points, with real numbers. Products are modulo
    T_c(X) and T_b(Y).

Source: Fu et al., Monarch Mixer, NeurIPS 2023 (arXiv 2310.12109), section 4: theorems 1
and 2; appendix D: algorithm 2 and theorem 9.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from danaus._arrays import need_one_of
from danaus.torch._conv_functions import fail
from danaus.torch._digits import two_blocks
from danaus.torch._filter_conv import FilterConv, all_three, three
from danaus.torch._packed import Factors
from danaus.torch._precision import wide, without_autocast
from danaus.torch.chebyshev import chebyshev_inverse_matrix, chebyshev_matrix
from danaus.torch.monarch_matrix import (
    Pair,
    check_numbers,
    checked_pair,
    monarch_inverse,
    monarch_product,
    monarch_product_reversed,
    swap_digits,
)

__all__ = [
    "BASES",
    "MonarchConv",
    "monarch_coefficients",
    "monarch_conv",
    "monarch_factors",
]

BASES = ("univariate", "bivariate", "chebyshev")


@without_autocast
def monarch_conv(
    u: Tensor, k: Tensor, m0: Pair, m1: Pair, m2: Pair, *, univariate: bool = False
) -> Tensor:
    """f = M_0^-1 ((M_1 k) . (M_2 u)) along the last axis (theorem 2).

    M_0 is inverted block by block. Differentiable in all tensors.

    Parameters
    ----------
    u, k : Tensor [..., N], real or complex, whose other axes are broadcast
    m0, m1, m2 : pairs L [b, c, c] and R [c, b, b] with b c = N, real or complex; three
        may have three splits unless they are univariate
    univariate : bool
        Matrices are M_i Q, for bases in the order of their degrees.

    Returns
    -------
    Tensor [..., N], complex if one of the operands is.

    Raises
    ------
    ValueError
        Sizes that do not fit; a block of M_0 is singular.
    """
    check_numbers("u", u)
    check_numbers("k", k)
    size = u.shape[-1]
    if k.shape[-1] != size:
        fail(f"k has {k.shape[-1]} numbers, u {size}")
    pairs = [
        checked_pair(name, pair, size)
        for name, pair in (("M_0", m0), ("M_1", m1), ("M_2", m2))
    ]
    if univariate and any(p[0].shape != pairs[0][0].shape for p in pairs):
        fail("univariate matrices have to have the same blocks")
    inverse = monarch_inverse(pairs[0], "M_0")
    b, c = pairs[0][0].shape[:2]
    if univariate:
        k, u = swap_digits(k, b, c), swap_digits(u, b, c)
    values = monarch_product(k, pairs[1]) * monarch_product(u, pairs[2])
    f = monarch_product_reversed(values, inverse)
    return swap_digits(f, c, b) if univariate else f


@without_autocast
def monarch_factors(lt: Tensor, rt: Tensor, basis: str = "univariate") -> Pair:
    """L [b, c, c] and R [c, b, b] from coefficients of polynomials (algorithm 2).

    Parameters
    ----------
    lt : Tensor
        Univariate: [D, c], D <= N; lt[a, j0] is the coefficient of Z^a in l_{j0}.
        Others: [b, c, c]; lt[d, a, j1] is the coefficient of X^a Y^d in l_{j1}.
    rt : Tensor [c, b, b]
        Univariate: rt[j0, e, j1] is the coefficient of Z^(c e) in r_{j0,j1}.
        Others: rt[j1, d, j0] is the coefficient of Y^d in r_{j1,j0}.
        "chebyshev" has T_a and T_d instead of powers.
    basis : one of BASES

    Raises
    ------
    ValueError
        Shapes that do not fit, another basis.
    """
    need_one_of(BASES, basis, "basis")
    check_numbers("the coefficients", lt, rt)
    c, b = _check_coefficients(lt, rt, basis)
    if basis == "univariate":
        values = torch.fft.fft(lt, n=b * c, dim=0)
        return values.unflatten(0, (c, b)).transpose(0, 1), torch.fft.fft(rt, dim=1)
    if basis == "bivariate":
        return torch.fft.fft2(lt, dim=(0, 1)), torch.fft.fft(rt, dim=1)
    of_x, of_y = (chebyshev_matrix(n, like=lt) for n in (c, b))
    return _at_points(lt, rt, of_x, of_y)


@without_autocast
def monarch_coefficients(pair: Pair, basis: str = "univariate") -> Pair:
    """The coefficients lt, rt that `monarch_factors` makes this pair of.

    There is exactly one such pair (theorem 9); univariate lt have all N rows.
    """
    need_one_of(BASES, basis, "basis")
    left, right = checked_pair("the matrix", pair, None)
    b, c = left.shape[:2]
    if basis == "univariate":
        values = left.transpose(0, 1).flatten(0, 1)
        return torch.fft.ifft(values, dim=0), torch.fft.ifft(right, dim=1)
    if basis == "bivariate":
        return torch.fft.ifft2(left, dim=(0, 1)), torch.fft.ifft(right, dim=1)
    of_x, of_y = (chebyshev_inverse_matrix(n, like=left) for n in (c, b))
    return _at_points(left, right, of_x, of_y)


def monomials(c: int, b: int, basis: str, made: dict) -> Pair:
    """Coefficients of the basis in which polynomials are given: q_j has one, which is
    1."""
    ones = torch.eye(c, **made)
    if basis == "univariate":
        return ones, torch.eye(b, **made).expand(c, b, b)
    lt = torch.zeros(b, c, c, **made)
    lt[0] = ones
    return lt, torch.eye(b, **made).expand(c, b, b)


def _at_points(lt: Tensor, rt: Tensor, of_x: Tensor, of_y: Tensor) -> Pair:
    return torch.einsum("yd,xa,daj->yxj", of_y, of_x, lt), of_y @ rt


def _check_coefficients(lt: Tensor, rt: Tensor, basis: str) -> tuple[int, int]:
    shapes = f"{list(lt.shape)} and {list(rt.shape)}"
    if rt.dim() == 3 and rt.shape[1] == rt.shape[2] and rt.numel():
        c, b = rt.shape[:2]
        if basis != "univariate" and lt.shape == (b, c, c):
            return c, b
        few = lt.dim() == 2 and lt.shape[1] == c and 1 <= lt.shape[0] <= b * c
        if basis == "univariate" and few:
            return c, b
    wanted = "[D, c] with D <= b c" if basis == "univariate" else "[b, c, c]"
    fail(f"coefficients have the shapes {shapes}; {wanted} and [c, b, b] are needed")


class _Matrix(torch.nn.Module):
    """Factors L and R as parameters; complex ones have a last axis of their parts."""

    def __init__(self, c: int, b: int, is_complex: bool, made: dict):
        super().__init__()
        parts = (2,) if is_complex else ()
        self.is_complex = is_complex
        self.factors = Factors(
            torch.nn.Parameter(torch.empty(n, m, m, *parts, **made))
            for n, m in ((b, c), (c, b))
        )

    def set(self, pair: Pair) -> None:
        with torch.no_grad():
            for parameter, x in zip(self.factors, pair):
                parameter.copy_(torch.view_as_real(x) if self.is_complex else x)

    def pair(self) -> Pair:
        left, right = (wide(x).contiguous() for x in self.factors())
        if not self.is_complex:
            return left, right
        return torch.view_as_complex(left), torch.view_as_complex(right)


class MonarchConv(FilterConv):
    """y = M_0^-1 ((M_1 k) . (M_2 u)) + skip u with learned Monarch matrices M_i.

    All channels share the matrices. They begin as a transform: "univariate" ones as the
    Fourier transform of the length (corollary 6), so that y is a circular convolution;
    "bivariate" ones as the Fourier transform of two axes, [c, b], and "chebyshev" ones,
    which are real, as the transform to Chebyshev points of two axes. Learning may
    change them to any others. If y is complex, its real part is returned. Nothing is
    causal here: see `CausalMonarchConv` and `ChebyshevConv`.

    Parameters
    ----------
    channels : int
    length : int
        The exact length of signals.
    blocks : c and b with c b = length
        Sizes of the blocks of L and of R. Default: as near each other as possible.
    basis : "univariate", "bivariate" or "chebyshev"
    tied : bool
        True: M_0 = M_1 = M_2. The operation is then commutative in k and u.
    learn : bool
        False: the matrices stay as they begin.
    filters, taps, skip : as for `LongConv`.

    Attributes
    ----------
    weight : Parameter [filters, taps]
        k, to which zeros are appended.
    matrices : one or three modules with parameters ``factors.0`` [b, c, c, 2], which is
        L, and ``factors.1`` [c, b, b, 2], which is R
        The last axis has real and imaginary parts; "chebyshev" has no such axis.
    skip : Parameter [filters] or None
    """

    def __init__(
        self,
        channels: int,
        length: int,
        *,
        blocks: Sequence[int] | None = None,
        basis: str = "univariate",
        tied: bool = True,
        learn: bool = True,
        filters: int | None = None,
        taps: int | None = None,
        skip: bool = True,
        device=None,
        dtype=None,
    ):
        need_one_of(BASES, basis, "basis")
        made = {"device": device, "dtype": dtype}
        super().__init__(channels, length, filters, taps, skip, made)
        c, b = two_blocks(blocks, length)
        self.blocks, self.basis = (c, b), basis
        is_complex = basis != "chebyshev"
        self.matrices = three(lambda: _Matrix(c, b, is_complex, made), tied, learn)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random filters, and matrices that are transforms."""
        super().reset_parameters()
        made = {"device": self.weight.device, "dtype": torch.float64}
        start = monarch_factors(*monomials(*self.blocks, self.basis, made), self.basis)
        for matrix in self.matrices:
            matrix.set(start)

    def pairs(self) -> list[Pair]:
        """L and R of M_0, M_1 and M_2."""
        return all_three(matrix.pair() for matrix in self.matrices)

    def _convolve(self, u: Tensor, k: Tensor) -> Tensor:
        if u.shape[2] != self.length:
            fail(f"u is {u.shape[2]} long; this module is made for {self.length}")
        u, k = wide(u), wide(self._of_channels(k))
        univariate = self.basis == "univariate"
        y = monarch_conv(u, k, *self.pairs(), univariate=univariate)
        return y.real if y.is_complex() else y

    def extra_repr(self) -> str:
        return (
            f"{self.channels}, {self.length}, blocks={self.blocks}, basis={self.basis}"
        )
