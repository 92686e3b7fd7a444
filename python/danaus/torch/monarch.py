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

from danaus.torch._conv_functions import (
    check_signal,
    check_tensor,
    fail,
    long_conv,
)
from danaus.torch._packed import Factors
from danaus.torch.functional import ks_linear

__all__ = ["CausalMonarchConv"]


def _blocks_for(length: int, order: int) -> list[int]:
    """So many sizes, nearly equal, whose product is at least length."""
    blocks, left = [], length
    for more in range(order, 0, -1):
        block = math.ceil(left ** (1 / more) - 1e-9)
        blocks.append(max(1, block))
        left = math.ceil(left / block)
    return blocks


class _Basis(torch.nn.Module):
    """A lower triangular matrix C = K_0 ... K_{p-1} with ones on its diagonal.

    Factor K_a replaces digit a of an index, digit 0 being the fastest. It is
    Kronecker-sparse, of the pattern (product of blocks above a, b_a, b_a, product of
    blocks below a), with lower triangular blocks; if shared, they do not depend on the
    digits above. What a parameter says is below the diagonals: zeros are C = I.
    """

    def __init__(self, blocks: Sequence[int], shared: bool, made: dict):
        super().__init__()
        sizes = list(blocks)
        self.above = [math.prod(sizes[a + 1 :]) for a in range(len(sizes))]
        self.below = Factors(
            torch.nn.Parameter(
                torch.zeros(
                    1 if shared else self.above[a], b, b, math.prod(sizes[:a]), **made
                )
            )
            for a, b in enumerate(sizes)
        )

    def factors(self) -> list[Tensor]:
        """Weights [a, b, b, d] of K_0, K_1, ..."""
        return self._spread([_with_ones(w) for w in self.below()])

    def inverse(self) -> list[Tensor]:
        """Weights of the factors of the inverse, the leftmost first."""
        return self._spread([_inverse(_with_ones(w)) for w in self.below()])[::-1]

    def _spread(self, weights: list[Tensor]) -> list[Tensor]:
        return [w.expand(a, -1, -1, -1) for w, a in zip(weights, self.above)]


def _with_ones(w: Tensor) -> Tensor:
    blocks = w.permute(0, 3, 1, 2)
    ones = torch.eye(w.shape[1], dtype=w.dtype, device=w.device)
    return (blocks.tril(-1) + ones).permute(0, 2, 3, 1)


def _inverse(w: Tensor) -> Tensor:
    """Block by block; of 16 bits in f32."""
    wide = w if w.dtype == torch.float64 else w.float()
    blocks = wide.permute(0, 3, 1, 2)
    ones = torch.eye(w.shape[1], dtype=wide.dtype, device=w.device)
    solved = torch.linalg.solve_triangular(
        blocks, ones.expand_as(blocks), upper=False, unitriangular=True
    )
    return solved.permute(0, 2, 3, 1).to(w.dtype)


class CausalMonarchConv(torch.nn.Module):
    """y = C_0^-1 (C_1 k * C_2 u) + skip u, * the causal convolution of each channel.

    C_0, C_1 and C_2 are lower triangular products of Kronecker-sparse factors, Monarch
    matrices of any order, so that y[t] depends on u[0..t] alone. This is the paper's
    causal Monarch map M_0^-1((M_1 k) . (M_2 u)) with zeros appended to k and u, without
    its complex numbers: M_i is the Fourier transform times C_i. With C_i = I, as they
    begin, it is a convolution.

    Parameters
    ----------
    channels : int
    length : int
        Of signals at most, and of filters unless `taps` says otherwise.
    order : int
        How many factors a matrix has; an application costs about
        order length^(1 + 1 / order) products for each channel.
    blocks : sequence of int
        Sizes of the factors' blocks, of the fastest digit first, whose product is at
        least length. Default: as equal as can be.
    shared : bool
        Whether blocks are the same for all digits above theirs, as in the paper.
    tied : bool
        Whether C_0 = C_1 = C_2. The operation is then commutative in k and u.
    learn : bool
        Whether the matrices are learned.
    filters, taps, skip : as of `LongConv`.

    Attributes
    ----------
    weight : Parameter [filters, taps]
        k; begins as that of a `LongConv`.
    bases : one or three modules with parameters ``below.a`` of shape
        [1 or product of blocks above, b_a, b_a, product of blocks below]
        What is below the diagonals of blocks counts, the rest is neither read nor has a
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
        super().__init__()
        filters = channels if filters is None else filters
        taps = length if taps is None else taps
        if min(channels, length, order, filters, taps) < 1 or channels % filters:
            fail(
                f"{filters} filters of {taps} taps for {channels} channels of length "
                f"{length}, order {order}: all are at least 1, and filters divides "
                "channels"
            )
        if taps > length:
            fail(f"filters have {taps} taps; signals have {length} numbers at most")
        blocks = _blocks_for(length, order) if blocks is None else list(blocks)
        if min(blocks, default=0) < 1 or math.prod(blocks) < length:
            fail(f"blocks {blocks} make {math.prod(blocks)} numbers, not {length}")
        self.channels, self.length, self.blocks = channels, length, blocks
        self.filters, self.taps = filters, taps
        made = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(filters, taps, **made))
        self.skip = torch.nn.Parameter(torch.empty(filters, **made)) if skip else None
        self.bases = torch.nn.ModuleList(
            _Basis(blocks, shared, made) for _ in range(1 if tied else 3)
        )
        self.bases.requires_grad_(learn)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random filters, matrices that are the identity."""
        torch.nn.init.normal_(self.weight, std=self.taps**-0.5)
        if self.skip is not None:
            torch.nn.init.normal_(self.skip)
        for basis in self.bases:
            for w in basis.below:
                torch.nn.init.zeros_(w)

    def forward(self, u: Tensor) -> Tensor:
        """u and the result are [batch, channels, length], or shorter ones."""
        check_signal(u)
        check_tensor("the module's weight", self.weight, (None, None), u.device)
        if u.shape[1] != self.channels:
            fail(f"u has {u.shape[1]} channels; {self.channels} are needed")
        if u.shape[2] > self.length:
            fail(f"u is {u.shape[2]} long; this module is made for {self.length}")
        of_y, of_k, of_u = (self.bases[i % len(self.bases)] for i in range(3))
        k = self._change(self.weight.to(u.dtype), of_k.factors(), u.shape[2])
        v = self._change(u, of_u.factors(), u.shape[2])
        y = self._change(long_conv(v, k), of_y.inverse(), u.shape[2])
        if self.skip is None:
            return y
        skip = self.skip.repeat_interleave(self.channels // self.filters)
        return y + skip.to(u.dtype)[:, None] * u

    def _change(self, x: Tensor, factors: list[Tensor], length: int) -> Tensor:
        """The first rows and columns of a triangular matrix are one themselves: zeros
        are appended to x, and what they become is cut off."""
        x = x[..., :length]
        more = math.prod(self.blocks) - x.shape[-1]
        y = ks_linear(torch.nn.functional.pad(x, (0, more)), factors, tf32=False)
        return y[..., :length]

    def extra_repr(self) -> str:
        return f"{self.channels}, {self.length}, blocks={self.blocks}"
