"""Layers of two `KSLinear`: sums of chains, and low rank by rows that are kept."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from danaus.torch._ops import in_transform
from danaus.torch.linear import KSLinear, wait


class SumLinear(nn.Module):
    """y = (A_1 ... A_L + B_1 ... B_K) x + bias, of two layers of equal sizes.

    Parameters
    ----------
    first, second : the two chains; the bias, if there is one, is that of the first.
    """

    def __init__(self, first: KSLinear, second: KSLinear):
        super().__init__()
        sizes = first.in_features, first.out_features
        if sizes != (second.in_features, second.out_features):
            raise ValueError(
                f"a sum of layers {sizes[1]} x {sizes[0]} and "
                f"{second.out_features} x {second.in_features} has no meaning"
            )
        self.in_features, self.out_features = sizes
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer to x[..., N]."""
        return self.first(x) + self.second(x)

    def to_dense(self) -> Tensor:
        """W as a matrix [M, N], without bias."""
        return self.first.to_dense() + self.second.to_dense()


class InterpolatedLinear(nn.Module):
    """A matrix of rank r whose rows are r of them, the others their combinations.

    With the rows in another order W is [B; T B]: B[r][N] has r rows of W, T[M-r][r]
    says how the others follow. Every matrix of rank r is one, with r (M + N - r)
    weights instead of the r (M + N) of two factors (the interpolative decomposition of
    Cheng, Gimbutas, Martinsson, Rokhlin, SIAM J. Sci. Comput. 26, 2005). It runs as two
    factors: outputs would have to be put in order otherwise, which takes longer.

    Parameters
    ----------
    basis : the layer of B, with bias.
    others : the layer of T, with bias; it is applied to the outputs of `basis`.
    rows : which r rows of W those of B are, in their order.
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
        self._held: tuple | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer to x[..., N]."""
        kept = self.basis(x)
        return F.linear(kept, *self._second(kept.dtype))

    def _second(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """The second factor and the bias, which are kept while nothing changes."""
        if torch.compiler.is_compiling() or in_transform():
            return self._make_second(dtype)
        weights = list(self.others.parameters())
        if torch.is_grad_enabled() and any(w.requires_grad for w in weights):
            self._held = None  # what comes next may change weights and leave no trace
            return self._make_second(dtype)
        if weights[0].is_cuda and torch.cuda.is_current_stream_capturing():
            return self._make_second(dtype)
        try:
            state = [dtype, torch.is_inference_mode_enabled()]
            state += [(w._version, w.data_ptr()) for w in weights]
        except RuntimeError:  # tensors of inference mode have no version
            return self._make_second(dtype)
        held = self._held  # which other threads may forget
        if held is None or held[0] != state:
            kept = [w.detach() for w in weights]  # whose addresses nothing else gets
            held = state, self._make_second(dtype), kept
            wait(weights[0])
            self._held = held
        return held[1]

    def _make_second(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        rest, bias = self.others.weights[0][0, :, :, 0], self.others.bias
        eye = torch.eye(rest.shape[1], dtype=rest.dtype, device=rest.device)
        left = torch.cat((eye, rest)).index_select(0, self.place)
        if bias is not None:
            bias = torch.cat((bias.new_zeros(len(eye)), bias))
            bias = bias.index_select(0, self.place).to(dtype)
        return left.to(dtype), bias

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_held": None}

    def to_dense(self) -> Tensor:
        """W as a matrix [M, N], without bias."""
        basis = self.basis.to_dense()
        return torch.cat((basis, self.others.to_dense() @ basis))[self.place]
