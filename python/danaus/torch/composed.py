"""Layers of two others: sums of chains, and low rank with stored rows."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from danaus.torch._ops import is_traced
from danaus.torch._packed import Freezable, is_hooked, wait
from danaus.torch.linear import KSLinear
from danaus.torch.weight import LinearLike


class SumLinear(LinearLike):
    """y = (A_1 ... A_L + B_1 ... B_K) x + bias, of two layers of equal sizes.

    Parameters
    ----------
    first, second : `KSLinear`, or sums and interpolations of them; the bias is the sum
        of theirs.
    """

    def __init__(self, first: LinearLike, second: LinearLike):
        super().__init__()
        sizes = first.in_features, first.out_features
        if sizes != (second.in_features, second.out_features):
            raise ValueError(
                f"a sum of layers {sizes[1]} x {sizes[0]} and "
                f"{second.out_features} x {second.in_features} has no meaning"
            )
        self.in_features, self.out_features = sizes
        self.first, self.second = first, second

    def forward(self, input: Tensor) -> Tensor:
        """Applies the layer to x[..., N]."""
        return self.first(input) + self.second(input)

    @property
    def bias(self) -> Tensor | None:
        """That of the sum."""
        biases = [x.bias for x in (self.first, self.second) if x.bias is not None]
        return biases[0] + biases[1] if len(biases) > 1 else next(iter(biases), None)

    def factors(self) -> list[Tensor]:
        """The weights of both chains."""
        return [*self.first.factors(), *self.second.factors()]

    def to_dense(self) -> Tensor:
        """W as a matrix [M, N], without bias."""
        return self.first.to_dense() + self.second.to_dense()


class InterpolatedLinear(LinearLike, Freezable):
    """A matrix of rank r: r of its rows, and the coefficients of the others.

    With permuted rows W is [B; T B]: B[r][N] has r rows of W, T[M-r][r] the
    coefficients of the others. Every matrix of rank r has this form, with r (M + N - r)
    weights instead of the r (M + N) of two factors (the interpolative decomposition of
    Cheng, Gimbutas, Martinsson, Rokhlin, SIAM J. Sci. Comput. 26, 2005). It runs as two
    factors: the other way, outputs would have to be put in order, which takes longer.
    Batch-invariant layers run the other way, since PyTorch makes the second factor.

    Parameters
    ----------
    basis : the layer of B, with bias.
    others : the layer of T, with bias; it is applied to the outputs of `basis`.
    rows : indices in W of the r rows of B, in B's order.
    """

    def __init__(self, basis: KSLinear, others: KSLinear, rows: Sequence[int]):
        super().__init__()
        if others.in_features != basis.out_features or len(rows) != others.in_features:
            raise ValueError(
                f"{basis.out_features} outputs of the basis, {len(rows)} rows and "
                f"{others.in_features} inputs of the others have to be as many"
            )
        self.in_features = basis.in_features
        self.out_features = basis.out_features + others.out_features
        self.basis, self.others = basis, others
        order = list(rows) + sorted(set(range(self.out_features)) - set(rows))
        if sorted(order) != list(range(self.out_features)):
            raise ValueError(f"rows are different numbers below {self.out_features}")
        device = basis.weights[0].device
        self.register_buffer("place", torch.tensor(order, device=device).argsort())
        self._options: tuple = 0, None
        self._held: tuple | None = None  # the second factor and the bias, frozen

    def forward(self, input: Tensor) -> Tensor:
        """Applies the layer to x[..., N]."""
        kept = self.basis(input)
        if is_hooked(self.others) or self.others.batch_invariant:
            y = torch.cat((kept, self.others(kept)), dim=-1)
            return y.index_select(-1, self.place)
        return F.linear(kept, *self._second(kept.dtype))

    def freeze(
        self, batch: int = 0, dtype: torch.dtype | None = None
    ) -> InterpolatedLinear:
        """Packs once: see `KSLinear.freeze`."""
        super().freeze()
        self.basis.freeze(batch, dtype)
        with torch.no_grad():
            found = self.others.weights[0].dtype if dtype is None else dtype
            self._held = self._make_second(found)
        wait(self._held[0])
        self._options = batch, dtype
        return self

    def _forget(self) -> None:
        self._held = None

    def _renew(self) -> None:
        if self._trained is not None and not self.place.is_meta:
            self.freeze(*self._options)

    def _second(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """The second factor and the bias."""
        if self._held is not None and self._held[0].dtype == dtype:
            if is_traced() or self._is_frozen():
                return self._held
        return self._make_second(dtype)

    def _make_second(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        rest, bias = self.others.factors()[0][0, :, :, 0], self.others.bias
        eye = torch.eye(rest.shape[1], dtype=rest.dtype, device=rest.device)
        left = torch.cat((eye, rest)).index_select(0, self.place)
        if bias is not None:
            bias = torch.cat((bias.new_zeros(len(eye)), bias))
            bias = bias.index_select(0, self.place).to(dtype)
        return left.to(dtype), bias

    @property
    def bias(self) -> Tensor | None:
        """That of all outputs."""
        kept = self.basis.bias
        if kept is None and self.others.bias is None:
            return None
        if kept is None:
            kept = self.others.bias.new_zeros(self.basis.out_features)
        return F.linear(kept, *self._make_second(kept.dtype))

    def factors(self) -> list[Tensor]:
        """The weights of B and T."""
        return [*self.basis.factors(), *self.others.factors()]

    def to_dense(self) -> Tensor:
        """W as a matrix [M, N], without bias."""
        basis = self.basis.to_dense()
        return torch.cat((basis, self.others.to_dense() @ basis))[self.place]
