"""The layer of Monarch Mixer: Monarch matrices along a sequence, then along features.

Source: Fu, Arora, Grogan, Johnson, Eyuboglu, Thomas, Spector, Poli, Rudra, Re, Monarch
Mixer, NeurIPS 2023 (arXiv 2310.12109), equations 1 to 3 and the listing of appendix A.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from danaus._arrays import need_one_of
from danaus.torch._conv_functions import check_rows, fail
from danaus.torch._digits import divided, near_equal
from danaus.torch._packed import Factors, Traceable
from danaus.torch.functional import ACTIVATIONS, activation_name, ks_linear

__all__ = ["MonarchMixerLayer"]

STARTS = ("orthogonal", "dft")


def digits_for(size: int, order: int) -> list[int]:
    """Sizes of the digits of an index below `size`, nearly equal: with that product, or
    a larger one where such sizes would differ much."""
    exact, more = divided(size, order), near_equal(size, order)
    return exact if max(exact) <= 2 * max(more) else more


def _checked(digits: Sequence[int] | None, size: int, order: int) -> list[int]:
    digits = digits_for(size, order) if digits is None else list(digits)
    if min(digits, default=0) < 1 or math.prod(digits) < size:
        fail(f"blocks {digits} make {math.prod(digits)} numbers, not {size}")
    return digits


def _as_complex(x: Tensor) -> Tensor:
    """Complex numbers of pairs of real ones; f32 is the narrowest type."""
    return torch.view_as_complex(x if x.dtype == torch.float64 else x.float())


class _Monarch(torch.nn.Module):
    """A square Monarch matrix, whose factor t replaces digit t of an index.

    Digit 0 is the fastest. Factor t is Kronecker-sparse with the pattern (product of
    digits above, b_t, b_t, product of digits below). The highest digit is replaced
    first, or the lowest: `high_first`. Complex weights are pairs of real ones, so that
    conversions of a module keep both.
    """

    def __init__(
        self, digits: Sequence[int], high_first: bool, is_complex: bool, made: dict
    ):
        super().__init__()
        self.digits, self.high_first = list(digits), high_first
        self.is_complex = is_complex
        pair = (2,) if is_complex else ()
        self.weights = Factors(
            torch.nn.Parameter(torch.empty(*self._pattern(t), *pair, **made))
            for t in range(len(self.digits))
        )

    def _pattern(self, t: int) -> tuple[int, int, int, int]:
        b, sizes = self.digits[t], self.digits
        return math.prod(sizes[t + 1 :]), b, b, math.prod(sizes[:t])

    def forward(self, x: Tensor) -> Tensor:
        """x and the result are [..., product of digits]."""
        factors = self.weights()
        if self.is_complex:
            factors = [_as_complex(w) for w in factors]
        return ks_linear(x, factors if self.high_first else factors[::-1])

    @torch.no_grad()
    def make_orthogonal(self) -> None:
        """Random blocks, uniform among the orthogonal ones."""
        for t, w in enumerate(self.weights):
            a, b, _, d = self._pattern(t)
            q, r = torch.linalg.qr(torch.randn(a, d, b, b, dtype=torch.float64))
            q = q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
            w.copy_(q.permute(0, 2, 3, 1))

    @torch.no_grad()
    def make_dft(self) -> None:
        """The unitary Fourier transform, whose frequencies have reversed digits (high
        digits first), or its inverse, which takes these (low digits first): decimation
        in frequency, factor t being exp(-2 pi i (o j / b + r o / (b d))) / sqrt(b) for
        the output o and the input j of the digit and the number r of those below."""
        for t, w in enumerate(self.weights):
            _, b, _, d = self._pattern(t)
            o, r = (torch.arange(n, dtype=torch.float64) for n in (b, d))
            turns = (o[:, None] * o / b)[..., None] + (o[:, None] * r / (b * d))[
                :, None
            ]
            sign = -1 if self.high_first else 1
            made = torch.polar(torch.full_like(turns, b**-0.5), sign * math.tau * turns)
            if not self.high_first:
                made = made.transpose(0, 1)
            w.copy_(torch.view_as_real(made.contiguous()))


class MonarchMixerLayer(Traceable):
    """Mixes a sequence, then the features of each of its tokens, by Monarch matrices:

        z = M_2 s(K^T * (M_1 x)),   y^T = M_4 a(k^T * (M_3 z^T)),   norm(y + z),

    for x [length, width], kernels K [width, length] and k [1, width], and the product *
    number by number.

    M_1 to M_4 have one Kronecker-sparse factor for each digit of an index, `order` of
    them. A matrix of N rows has about order N^(1 + 1 / order) weights. M_1 and M_3
    replace the highest digit first, M_2 and M_4 the lowest. At order 2 this is the
    paper's M = P R P L P. The permutations P at its ends, which reverse digits, cancel:
    the kernels' numbers are in the order of reversed digits here.

    Parameters
    ----------
    width, length : int
        Zeros are appended to shorter sequences, and count as numbers of x.
    order : int
        Number of factors of each of the four matrices; 2 in the paper's listing.
    start : "orthogonal" or "dft"
        "orthogonal": the matrices begin with random orthogonal blocks. "dft": M_1
        begins as the complex Fourier transform and M_2 as its inverse; z is the real
        part, a circular convolution of each channel. It does not wrap around if the
        product of `blocks` is at least 2 length - 1.
    learn_sequence, learn_features : bool
        True to learn M_1 and M_2, or M_3 and M_4. False: they stay as they begin, and
        only the kernels are learned.
    sequence_activation, activation : None, "relu", "gelu", "silu" or "gelu_tanh"
        s and a. The listing has "relu" for both; its authors call s a leftover.
    blocks, width_blocks : sequences of int
        Sizes of digits of places and of features, the fastest first. Zeros are appended
        to x if their product is larger. Default: as equal as possible.
    eps : float
        The epsilon of the normalisation.

    Attributes
    ----------
    m1, m2, m3, m4 : modules with parameters ``weights.t``
        [product of blocks above, b_t, b_t, product of blocks below]; with "dft" m1 and
        m2 have a last dimension of 2, for real and imaginary parts.
    n_kernel : Parameter [width, product of blocks]
        K; begins normal with variance 1. With "dft" it has a last dimension of 2, and
        begins as the Fourier transform of real filters with variance 1 / product of
        blocks.
    d_kernel : Parameter [1, product of width_blocks]
        k; begins normal with variance 1, as in the listing.
    layer_norm : LayerNorm

    Raises
    ------
    ValueError
        Sizes below 1, blocks whose product is too small, an activation of complex
        numbers; inputs of another width or type, or longer ones.
    """

    needs_whole_rows = True

    def __init__(
        self,
        width: int,
        length: int,
        order: int = 2,
        *,
        start: str = "orthogonal",
        learn_sequence: bool = True,
        learn_features: bool = True,
        sequence_activation: str | None = None,
        activation: str | None = "relu",
        blocks: Sequence[int] | None = None,
        width_blocks: Sequence[int] | None = None,
        eps: float = 1e-5,
        device=None,
        dtype=None,
    ):
        super().__init__()
        need_one_of(STARTS, start, "start")
        if min(width, length, order) < 1:
            fail(
                f"a width of {width}, a length of {length}, order {order}: all are at "
                "least 1"
            )
        self.width, self.length, self.start = width, length, start
        self.blocks = _checked(blocks, length, order)
        self.width_blocks = _checked(width_blocks, width, order)
        self.sequence_activation = activation_name(sequence_activation)
        self.activation = activation_name(activation)
        is_complex = start == "dft"
        if is_complex and self.sequence_activation != "none":
            fail(f"complex numbers have no {self.sequence_activation}")
        made = {"device": device, "dtype": dtype}
        self.m1 = _Monarch(self.blocks, True, is_complex, made)
        self.m2 = _Monarch(self.blocks, False, is_complex, made)
        self.m3 = _Monarch(self.width_blocks, True, False, made)
        self.m4 = _Monarch(self.width_blocks, False, False, made)
        for matrices, learn in (
            ((self.m1, self.m2), learn_sequence),
            ((self.m3, self.m4), learn_features),
        ):
            for m in matrices:
                m.requires_grad_(learn)
        shape = (width, math.prod(self.blocks), *((2,) if is_complex else ()))
        self.n_kernel = torch.nn.Parameter(torch.empty(shape, **made))
        shape = 1, math.prod(self.width_blocks)
        self.d_kernel = torch.nn.Parameter(torch.empty(shape, **made))
        self.layer_norm = torch.nn.LayerNorm(width, eps=eps, **made)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Random numbers and transforms, as the class says."""
        for m in (self.m1, self.m2, self.m3, self.m4):
            m.make_dft() if m.is_complex else m.make_orthogonal()
        torch.nn.init.normal_(self.d_kernel)
        torch.nn.init.normal_(self.n_kernel)
        if self.m1.is_complex:
            real = self.n_kernel * self.n_kernel.new_tensor((1, 0))
            self.n_kernel.copy_(torch.view_as_real(self.m1(_as_complex(real))))
        self.layer_norm.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """x and the result are [..., at most length, width]."""
        check_rows(x, self.width, self.n_kernel.device)
        if x.dim() < 2 or x.shape[-2] > self.length:
            fail(
                f"x has the shape {list(x.shape)}; [..., at most {self.length}, "
                f"{self.width}] is needed"
            )
        z = self.mix_sequence(x)
        v = self.m3(F.pad(z, (0, self.d_kernel.shape[1] - self.width)))
        y = self.m4(ACTIVATIONS[self.activation](self.d_kernel * v))
        return self.layer_norm(y[..., : self.width] + z)

    def mix_sequence(self, x: Tensor) -> Tensor:
        """z of x, both [..., length, width]."""
        length = x.shape[-2]
        u = F.pad(x.mT, (0, self.n_kernel.shape[1] - length))
        if not self.m1.is_complex:
            v = ACTIVATIONS[self.sequence_activation](self.n_kernel * self.m1(u))
            return self.m2(v)[..., :length].mT
        kernel = _as_complex(self.n_kernel)
        z = self.m2(kernel * self.m1(u.to(kernel.dtype))).real
        return z[..., :length].mT.to(x.dtype)

    def extra_repr(self) -> str:
        sizes = f"{self.width}, {self.length}, start={self.start!r}"
        blocks = f"blocks={self.blocks}, width_blocks={self.width_blocks}"
        return f"{sizes}, {blocks}, activation={self.activation!r}"
