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
from danaus.torch._ops import ops
from danaus.torch._packed import Freezable, Packed, Prepared, wait
from danaus.torch.conv import keeps
from danaus.torch.functional import allows_tf32, autocast, ks_linear

__all__ = ["BlockDiagonalLinear"]


def _padded(x: Tensor, size: int) -> Tensor:
    """Zeros behind the last dimension."""
    return x if x.shape[-1] == size else F.pad(x, (0, size - x.shape[-1]))


class BlockDiagonalLinear(Freezable):
    """y = W x + bias with a block-diagonal W, used like torch.nn.Linear:

        y[g o + r] = bias[g o + r] + sum_s weight[g, r, s] x[g i + s],

    with blocks of o = ceil(out_features / blocks) rows and i = ceil(in_features /
    blocks) columns. Where these are more than the features, zeros are appended to x and
    the end of y is cut off. The product is `ks_linear` with the pattern (blocks, o, i,
    1). Without gradients a CPU keeps the weights packed until a number has changed, and
    `freeze` packs once.

    Parameters
    ----------
    in_features, out_features, blocks : int
        Any numbers from 1 on.
    bias : bool
    batch_invariant : bool
        As `KSLinear` has it.

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
        batch_invariant: bool = False,
    ):
        super().__init__()
        if min(in_features, out_features, blocks) < 1:
            fail(
                f"{blocks} blocks for {in_features} inputs and {out_features} outputs: "
                "all are at least 1"
            )
        self.in_features, self.out_features = in_features, out_features
        self.blocks, self.batch_invariant = blocks, bool(batch_invariant)
        made = {"device": device, "dtype": dtype}
        shape = blocks, -(-out_features // blocks), -(-in_features // blocks)
        self.weight = torch.nn.Parameter(torch.empty(shape, **made))
        self.bias = None
        if bias:
            self.bias = torch.nn.Parameter(torch.empty(out_features, **made))
        self._packed, self._prepared, self._batch = Packed(), Prepared(), 0
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
        if keeps(self, [x]):
            y = self._infer(autocast(x), weights, bias)
        else:
            y = ks_linear(x, weights, bias, batch_invariant=self.batch_invariant)
        return y[..., : self.out_features]

    def _infer(self, x: Tensor, weights: list[Tensor], bias: Tensor | None) -> Tensor:
        options = False, allows_tf32(None, x), self.batch_invariant
        question = [*weights[0].shape], "none", *options
        if not self._is_frozen():
            return self._packed.apply(x, weights, bias, question)
        asked = x.dtype, x.device, *options
        packed = self._prepared.find(asked)
        if packed is None:

            def pack(weight, bias):
                made = ops.ks_pack([weight], bias, x.dtype, self._batch, *question)
                wait(made)
                return made

            packed = self._prepared.get(asked, [*weights, bias], True, pack)
        if x.is_cuda:  # it may be forgotten while this stream reads it
            packed.record_stream(torch.cuda.current_stream(x.device))
        return ops.ks_apply(x, packed, bias is not None, self._batch, *question)

    def freeze(self, batch: int = 0):
        """Packs once, for the latest type of inputs: weights have no gradients, and
        later changes have no effect, as with `KSLinear.freeze`.

        Parameters
        ----------
        batch : rows of inputs to plan for, 0: many; calls may have any number.
        """
        super().freeze()
        self._batch = batch
        return self

    def _forget(self) -> None:
        self._packed = Packed()
        self._prepared.forget()

    def to_dense(self) -> Tensor:
        """W as a matrix [out_features, in_features]."""
        dense = torch.block_diag(*self.weight)
        return dense[: self.out_features, : self.in_features]

    def extra_repr(self) -> str:
        sizes = f"{self.in_features}, {self.out_features}, blocks={self.blocks}"
        text = f"{sizes}, bias={self.bias is not None}"
        return text + ", batch_invariant=True" if self.batch_invariant else text
