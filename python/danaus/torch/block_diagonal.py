"""Linear layers whose matrix is block-diagonal: Monarch matrices of order 1.

Source: Fu, Arora, Grogan, Johnson, Eyuboglu, Thomas, Spector, Poli, Rudra, Re, Monarch
Mixer, NeurIPS 2023 (arXiv 2310.12109), section 3, and the authors' BlockdiagLinear
(HazyResearch/m2).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from danaus.torch._conv_functions import check_rows, fail
from danaus.torch._ops import in_transform
from danaus.torch._packed import Packed
from danaus.torch.functional import autocast, ks_linear

__all__ = ["BlockDiagonalLinear"]


def _padded(x: Tensor, size: int) -> Tensor:
    """Zeros behind the last dimension."""
    return x if x.shape[-1] == size else F.pad(x, (0, size - x.shape[-1]))


class BlockDiagonalLinear(torch.nn.Module):
    """y = W x + bias with a block-diagonal W, used like torch.nn.Linear:

        y[g o + r] = bias[g o + r] + sum_s weight[g, r, s] x[g i + s],

    with blocks of o = ceil(out_features / blocks) rows and i = ceil(in_features /
    blocks) columns. Where these are more than the features, zeros are appended to x and
    the end of y is cut off. The product is `ks_linear` with the pattern (blocks, o, i,
    1). Without gradients a CPU keeps the weights packed until a number has changed.

    Parameters
    ----------
    in_features, out_features, blocks : int
        Any numbers from 1 on.
    bias : bool

    Attributes
    ----------
    weight : Parameter [blocks, o, i]
        Initial values are uniform in +-1 / sqrt(i), so that y has the variance that
        torch.nn.Linear gives it.
    bias : Parameter [out_features] or None
        Initial values are uniform in +-1 / sqrt(out_features), as the authors' are.

    Raises
    ------
    ValueError
        Sizes below 1; inputs of another number of features, type or device.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        blocks: int,
        bias: bool = True,
        *,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if min(in_features, out_features, blocks) < 1:
            fail(
                f"{blocks} blocks for {in_features} inputs and {out_features} outputs: "
                "all are at least 1"
            )
        self.in_features, self.out_features = in_features, out_features
        self.blocks = blocks
        made = {"device": device, "dtype": dtype}
        shape = blocks, -(-out_features // blocks), -(-in_features // blocks)
        self.weight = torch.nn.Parameter(torch.empty(shape, **made))
        self.bias = None
        if bias:
            self.bias = torch.nn.Parameter(torch.empty(out_features, **made))
        self._packed = Packed()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random numbers, as the class says."""
        bound = self.weight.shape[2] ** -0.5
        torch.nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            bound = self.out_features**-0.5
            torch.nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """x is [..., in_features], the result [..., out_features] of x's type, or of
        autocast's."""
        check_rows(x, self.in_features, self.weight.device)
        blocks, rows, columns = self.weight.shape
        x, weights, bias = _padded(x, blocks * columns), [self.weight[..., None]], None
        if self.bias is not None:
            bias = _padded(self.bias, blocks * rows)
        if self._keeps(x):
            question = [*weights[0].shape], "none", False, False
            y = self._packed.apply(autocast(x), weights, bias, question)
        else:
            y = ks_linear(x, weights, bias)
        return y[..., : self.out_features]

    def _keeps(self, x: Tensor) -> bool:
        """True if the packed weights can be kept: on a CPU, without gradients."""
        if torch.compiler.is_compiling() or in_transform():
            return False
        there = [x, *self.parameters()]
        if any(type(t) not in (Tensor, torch.nn.Parameter) for t in there):
            return False
        gradients = torch.is_grad_enabled() and any(t.requires_grad for t in there)
        return x.is_cpu and not gradients

    def to_dense(self) -> Tensor:
        """W as a matrix [out_features, in_features]."""
        dense = torch.block_diag(*self.weight)
        return dense[: self.out_features, : self.in_features]

    def extra_repr(self) -> str:
        sizes = f"{self.in_features}, {self.out_features}, blocks={self.blocks}"
        return f"{sizes}, bias={self.bias is not None}"
