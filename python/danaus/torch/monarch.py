"""Causal Monarch convolutions for PyTorch, in a basis that is learned.

Source: Fu, Arora, Grogan, Johnson, Eyuboglu, Thomas, Spector, Poli, Rudra, Re, Monarch
Mixer, NeurIPS 2023 (arXiv 2310.12109), section 4 and appendix D.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.torch._conv_functions import fail, long_conv
from danaus.torch._digits import near_equal
from danaus.torch._filter_conv import FilterConv, all_three, three
from danaus.torch._precision import without_autocast
from danaus.torch._triangular import TriangularBasis
from danaus.torch.functional import ks_linear

__all__ = ["CausalMonarchConv"]


class CausalMonarchConv(FilterConv):
    """y = C_0^-1 (C_1 k * C_2 u) + skip u, with a causal convolution * of each channel.

    C_0, C_1 and C_2 are lower triangular products of Kronecker-sparse factors, Monarch
    matrices of any order, so that y[t] depends on u[0..t] alone. This is the paper's
    causal Monarch map M_0^-1((M_1 k) . (M_2 u)) with zeros appended to k and u, without
    its complex numbers: M_i is the Fourier transform times C_i. With C_i = I, as they
    begin, it is a convolution.

    Parameters
    ----------
    channels : int
    length : int
        The greatest length of signals, and the length of filters without `taps`.
    order : int
        How many factors a matrix has; an application costs about
        order length^(1 + 1 / order) products for each channel.
    blocks : sequence of int
        Sizes of the factors' blocks, the fastest digit's first; their product is at
        least length. Default: as equal as possible.
    shared : bool
        True: blocks are the same for all digits above theirs, as in the paper.
    tied : bool
        True: C_0 = C_1 = C_2. The operation is then commutative in k and u.
    learn : bool
        True: the matrices are learned.
    filters, taps, skip : as for `LongConv`.

    Attributes
    ----------
    weight : Parameter [filters, taps]
        k; begins as in a `LongConv`.
    bases : one or three modules with parameters ``below.a`` of shape
        [1 or product of blocks above, b_a, b_a, product of blocks below]
        Entries below the diagonals of blocks count; others are not read and have no
        gradient. Diagonals are ones, so that there always is an inverse. Its condition
        grows with these numbers: with a standard deviation of 0.35 / sqrt(b_a) it was
        below 4 for 1,152 numbers and two factors, with 1 / sqrt(b_a) 30.
    skip : Parameter [filters] or None
    """

    def __init__(
        self,
        channels: int,
        length: int,
        order: int = 2,
        *,
        blocks: Sequence[int] | None = None,
        shared: bool = True,
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
        if order < 1:
            fail(f"the order is {order}; it is at least 1")
        blocks = near_equal(length, order) if blocks is None else list(blocks)
        if min(blocks, default=0) < 1 or math.prod(blocks) < length:
            fail(f"blocks {blocks} make {math.prod(blocks)} numbers, not {length}")
        self.blocks = blocks
        self.bases = three(lambda: TriangularBasis(blocks, shared, made), tied, learn)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random filters, matrices that are the identity."""
        super().reset_parameters()
        for w in self.bases.parameters():
            torch.nn.init.zeros_(w)

    @without_autocast
    def _convolve(self, u: Tensor, k: Tensor) -> Tensor:
        of_y, of_k, of_u = all_three(self.bases)
        k = self._change(k, of_k.factors(), u.shape[2])
        v = self._change(u, of_u.factors(), u.shape[2])
        return self._change(long_conv(v, k), of_y.inverse(), u.shape[2])

    def _change(self, x: Tensor, factors: list[Tensor], length: int) -> Tensor:
        """The first rows and columns of a triangular matrix are one, too: zeros are
        appended to x, and their results are cut off."""
        x = x[..., :length]
        more = math.prod(self.blocks) - x.shape[-1]
        y = ks_linear(torch.nn.functional.pad(x, (0, more)), factors, tf32=False)
        return y[..., :length]

    def extra_repr(self) -> str:
        return f"{self.channels}, {self.length}, blocks={self.blocks}"
