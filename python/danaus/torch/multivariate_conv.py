"""The multivariate causal Monarch map of any order (theorem 17).

A place j of N = m_0 .. m_{p-1} numbers has digits j_t below m_t; digit 0 is the
fastest. M = W_{p-1} .. W_0 evaluates sum_j x_j q_j on a grid of p axes, where

    q_j(X_0, .., X_{p-1}) = product over t of l_t(X_t).

The polynomial l_t belongs to the digit j_t. It may depend on the digits above t, too.

With h_t = ceil(m_t / 2) the map takes n = h_0 .. h_{p-1} numbers. Points are one of

"chebyshev"
    Real. l_t has the degree m_t - 1 - j_t in T_a. Digit j_t of n is put at
    j_t + floor(m_t / 2), and f is read at j_t, or j_t + 1 if m_t is even.
"roots"
    The roots of unity. l_t has powers from j_t on, and none from h_t on if j_t < h_t.
    Digits stay, and zeros follow. l_t = X_t^j_t make it a convolution of p axes.

f at digits o depends on u at digits o_t or less, in each digit. docs/ks.md, section 8,
compares these maps with those of `CausalMonarchConv`.

Source: Fu et al., Monarch Mixer, NeurIPS 2023 (arXiv 2310.12109), appendix D, theorem
17.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from danaus._arrays import need_one_of
from danaus.torch._conv_functions import fail
from danaus.torch._digits import near_equal
from danaus.torch._filter_conv import FilterConv, all_three, of_one_type, three
from danaus.torch._packed import Factors
from danaus.torch._precision import wide, without_autocast
from danaus.torch._triangular import triangular_inverse, with_ones
from danaus.torch.chebyshev import chebyshev_inverse_matrix, chebyshev_matrix
from danaus.torch.functional import ks_linear
from danaus.torch.monarch_matrix import check_numbers, may_read

__all__ = ["POINTS", "MultivariateConv", "multivariate_conv"]

POINTS = ("chebyshev", "roots")


@without_autocast
def multivariate_conv(
    u: Tensor,
    k: Tensor,
    m0: Sequence[Tensor],
    m1: Sequence[Tensor],
    m2: Sequence[Tensor],
    points: str = "chebyshev",
) -> Tensor:
    """f = M_0^-1 ((M_1 k) . (M_2 u)) with zeros between digits (theorem 17).

    Differentiable in all tensors.

    Parameters
    ----------
    u, k : Tensor [..., l] with l <= n, the product of all ceil(m_t / 2); other axes are
        broadcast
    m0, m1, m2 : coefficients of a matrix: for each digit t from 0 on a real tensor
        [1 or product of m above t, m_t, m_t]; [digits above, a, j_t] belongs to T_a, or
        X_t^a, in l_t. Entries that degrees exclude are not read and have no gradient.
    points : "chebyshev" or "roots"

    Returns
    -------
    Tensor [..., l]

    Raises
    ------
    ValueError
        Sizes or types that do not fit; a leading coefficient that is zero.
    """
    need_one_of(POINTS, points, "points")
    grid = _Grid(_sizes(m0), points)
    for name, m in (("M_0", m0), ("M_1", m1), ("M_2", m2)):
        grid.check(name, m)
    check_numbers("u, k and the matrices", u, k, m0[0], m1[0], m2[0])
    length = u.shape[-1]
    if k.shape[-1] != length:
        fail(f"k has {k.shape[-1]} numbers, u {length}")
    if length > grid.length:
        fail(f"u is {length} long; these matrices are enough for {grid.length}")
    k, u = grid.place(k), grid.place(u)
    values = grid.product(k, m1) * grid.product(u, m2)
    f = grid.read(grid.solve(values, m0))[..., :length]
    return f.real if f.is_complex() else f


class _Grid:
    """Sizes m_0, m_1, .. of digits and what points they stand for."""

    def __init__(self, sizes: Sequence[int], points: str):
        self.sizes, self.real = list(sizes), points == "chebyshev"
        self.halves = [(m + 1) // 2 for m in self.sizes]
        self.length = math.prod(self.halves)

    def check(self, name: str, matrix: Sequence[Tensor]) -> None:
        """ValueError unless it makes an invertible matrix of real numbers."""
        if _sizes(matrix) != self.sizes:
            fail(f"{name} has digits of {_sizes(matrix)}, M_0 of {self.sizes}")
        check_numbers(name, *matrix)
        for t, x in enumerate(matrix):
            above = math.prod(self.sizes[t + 1 :])
            if x.shape[0] not in (1, above) or x.shape[1] != x.shape[2]:
                m = self.sizes[t]
                fail(
                    f"coefficients {t} of {name} have the shape {list(x.shape)}; "
                    f"[1 or {above}, {m}, {m}] is needed"
                )
            if x.is_complex():
                fail(f"coefficients {t} of {name} are complex; real ones are needed")
            leading = self._triangle(x).diagonal(dim1=1, dim2=2)
            if may_read(x) and bool((leading == 0).any()):
                fail(f"coefficients {t} of {name} are singular: a leading one is zero")

    def place(self, x: Tensor) -> Tensor:
        """x [..., at most n] among zeros [..., N]."""
        x = torch.nn.functional.pad(x, (0, self.length - x.shape[-1]))
        x = x.unflatten(-1, self.halves[::-1])
        zeros = []
        for m, h in zip(self.sizes, self.halves):
            zeros += [m - h, 0] if self.real else [0, m - h]
        return torch.nn.functional.pad(x, zeros).flatten(-len(self.sizes))

    def read(self, x: Tensor) -> Tensor:
        """n numbers [..., n] of [..., N]."""
        x = x.unflatten(-1, self.sizes[::-1])
        for t, (m, h) in enumerate(zip(self.sizes, self.halves)):
            first = 1 - m % 2 if self.real else 0
            x = x.narrow(-1 - t, first, h)
        return x.flatten(-len(self.sizes))

    def product(self, x: Tensor, matrix: Sequence[Tensor]) -> Tensor:
        """W_{p-1} .. W_0 x."""
        blocks = [self._values(w) @ self._numbers(self._triangle(w)) for w in matrix]
        return ks_linear(self._numbers(x), self._spread(blocks)[::-1], tf32=False)

    def solve(self, y: Tensor, matrix: Sequence[Tensor]) -> Tensor:
        """W_0^-1 .. W_{p-1}^-1 y."""
        blocks = [
            self._numbers(triangular_inverse(self._triangle(w))) @ self._points(w)
            for w in matrix
        ]
        return ks_linear(y, self._spread(blocks), tf32=False)

    def _triangle(self, w: Tensor) -> Tensor:
        """Lower triangular coefficients; for Chebyshev points the highest degree comes
        first."""
        if self.real:
            return w.flip(1).tril()
        m, h = w.shape[1], (w.shape[1] + 1) // 2
        late = torch.arange(m, device=w.device) >= h
        return w.tril() * ~(late[:, None] & ~late)

    def _values(self, w: Tensor) -> Tensor:
        """The matrix of values of such coefficients at m points."""
        if self.real:
            return chebyshev_matrix(w.shape[1], like=w).flip(1)
        return torch.fft.fft(torch.eye(w.shape[1], dtype=w.dtype, device=w.device))

    def _points(self, w: Tensor) -> Tensor:
        """The inverse of `_values`."""
        if self.real:
            return chebyshev_inverse_matrix(w.shape[1], like=w).flip(0)
        return torch.fft.ifft(torch.eye(w.shape[1], dtype=w.dtype, device=w.device))

    def _numbers(self, x: Tensor) -> Tensor:
        if self.real:
            return x
        return x.to(torch.promote_types(x.dtype, torch.complex64))

    def _spread(self, blocks: list[Tensor]) -> list[Tensor]:
        """Weights [above, m, m, below] of the factors W_0, W_1, .. or inverses."""
        return [
            x[..., None].expand(
                math.prod(self.sizes[t + 1 :]), -1, -1, math.prod(self.sizes[:t])
            )
            for t, x in enumerate(blocks)
        ]


def _sizes(matrix: Sequence[Tensor]) -> list[int]:
    """m_0, m_1, .. of coefficients."""
    if not isinstance(matrix, (tuple, list)) or not matrix:
        fail("a matrix is a sequence of tensors, one for each digit")
    for t, x in enumerate(matrix):
        if not isinstance(x, Tensor) or x.dim() != 3 or not x.numel():
            fail(f"coefficients {t} have to be a tensor of three dimensions")
    return [x.shape[-1] for x in matrix]


class MultivariateConv(FilterConv):
    """y = M_0^-1 ((M_1 k) . (M_2 u)) + skip u of theorem 17, causal in each digit.

    M_i evaluate polynomials of p variables on the grid of N = m_0 .. m_{p-1} points,
    up to 2^p times the numbers of u. All channels share them. Their leading
    coefficients are ones, and others begin as zeros: with "roots" y is then a
    convolution of p axes. y[t] depends only on places in u[0..t] that have no digit
    above the same digit of t. No such map is the convolution of one axis (docs/ks.md,
    section 8).

    Parameters
    ----------
    channels : int
    length : int
        The greatest length of signals, and the length of filters without `taps`.
    order : int
        p, how many digits there are.
    sizes : m_0, m_1, .., the fastest digit's first
        The product of all ceil(m_t / 2) is at least length. Default: odd and about
        equal.
    points : "chebyshev", which is real, or "roots"
    shared : bool
        True: a polynomial of digit t depends on that digit alone.
    tied : bool
        True: M_0 = M_1 = M_2. The operation is then commutative in k and u.
    learn : bool
        False: the matrices stay as they begin.
    filters, taps, skip : as for `LongConv`.

    Attributes
    ----------
    weight : Parameter [filters, taps]
    matrices : one or three modules with parameters ``t`` for each digit t, of the shape
        [1 or product of sizes above, m_t, m_t]
        Entry [i, j] below the diagonal is the coefficient of T_{m-1-i} in the
        polynomial j, or of X^i with "roots". Other entries are not read.
    skip : Parameter [filters] or None
    """

    def __init__(
        self,
        channels: int,
        length: int,
        order: int = 2,
        *,
        sizes: Sequence[int] | None = None,
        points: str = "chebyshev",
        shared: bool = True,
        tied: bool = True,
        learn: bool = True,
        filters: int | None = None,
        taps: int | None = None,
        skip: bool = True,
        device=None,
        dtype=None,
    ):
        need_one_of(POINTS, points, "points")
        made = {"device": device, "dtype": dtype}
        super().__init__(channels, length, filters, taps, skip, made)
        if order < 1:
            fail(f"the order is {order}; it is at least 1")
        if sizes is None:
            sizes = [2 * h - 1 for h in near_equal(length, order)]
        grid = _Grid(sizes, points)
        if min(grid.sizes, default=0) < 1 or grid.length < length:
            fail(f"sizes {grid.sizes} are enough for {grid.length} numbers")
        self.sizes, self.points = grid.sizes, points
        above = [math.prod(grid.sizes[t + 1 :]) for t in range(len(grid.sizes))]

        def matrix() -> Factors:
            return Factors(
                torch.nn.Parameter(torch.zeros(1 if shared else a, m, m, **made))
                for a, m in zip(above, grid.sizes)
            )

        self.matrices = three(matrix, tied, learn)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random filters, polynomials of one term."""
        super().reset_parameters()
        for w in self.matrices.parameters():
            torch.nn.init.zeros_(w)

    def coefficients(self) -> list[list[Tensor]]:
        """Those of M_0, M_1 and M_2, as `multivariate_conv` takes them."""
        found = [[with_ones(wide(w)) for w in matrix()] for matrix in self.matrices]
        if self.points == "chebyshev":
            found = [[w.flip(1) for w in matrix] for matrix in found]
        return all_three(found)

    def _convolve(self, u: Tensor, k: Tensor) -> Tensor:
        found = of_one_type(u, self._of_channels(k), self.coefficients())
        return multivariate_conv(*found, self.points)

    def extra_repr(self) -> str:
        return (
            f"{self.channels}, {self.length}, sizes={self.sizes}, points={self.points}"
        )
