"""Layers that mix the features of each token, with gates and block-diagonal matrices.

Source: Fu, Arora, Grogan, Johnson, Eyuboglu, Thomas, Spector, Poli, Rudra, Re, Monarch
Mixer, NeurIPS 2023 (arXiv 2310.12109), and the authors' BertGatedLinearUnitMLP
(HazyResearch/m2).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor

from danaus.torch._conv_functions import check_rows, fail
from danaus.torch._packed import is_hooked
from danaus.torch.block_diagonal import BlockDiagonalLinear
from danaus.torch.conv import keeps
from danaus.torch.functional import ACTIVATIONS, activation_name, ks_linear

__all__ = ["GatedMLP"]


def _linear(
    in_features: int, out_features: int, blocks: int | None, bias: bool, made: dict
) -> torch.nn.Module:
    if blocks in (None, 1):
        return torch.nn.Linear(in_features, out_features, bias=bias, **made)
    return BlockDiagonalLinear(in_features, out_features, blocks, bias, **made)


class GatedMLP(torch.nn.Module):
    """The MLP of M2-BERT:

        q = gated_layers(x),   y = wo(dropout(activation(q[:inner]) * q[inner:])),

    or, without gates, y = wo(dropout(activation(gated_layers(x)))). With `norm` it is
    the end of the authors' block, layernorm(y + x). Parameters have the names of the
    authors' checkpoints: ``mlp.gated_layers.weight``, ..., ``mlp.layernorm.bias``.

    Parameters
    ----------
    width, inner : int
        Sizes of x and y, and of the hidden layer.
    blocks : int or None
        Blocks of both block-diagonal matrices. 1 or None: dense matrices, in
        torch.nn.Linear.
    gated : bool
    bias : bool
        True for a bias of the first layer, which the checkpoints do not have; the last
        one always has a bias.
    activation : None, "relu", "gelu", "silu" or "gelu_tanh"
    dropout : float
        The share of the hidden numbers that is zeroed in training.
    norm : float or None
        The epsilon of layernorm, 1e-12 in M2-BERT. None: neither the normalisation nor
        the sum, for models that have them elsewhere.

    Attributes
    ----------
    gated_layers, wo : BlockDiagonalLinear or Linear
        Weights [blocks, 2 inner / blocks, width / blocks] (without gates inner) and
        [blocks, width / blocks, inner / blocks], or matrices if dense. Since q is
        halved after the blocks, the first blocks compute the half that is activated.
    layernorm : LayerNorm or None

    Raises
    ------
    ValueError
        Sizes below 1, a dropout outside of [0, 1); inputs of another number of
        features, type or device.
    """

    def __init__(
        self,
        width: int,
        inner: int,
        blocks: int | None = 4,
        *,
        gated: bool = True,
        bias: bool = False,
        activation: str | None = "gelu",
        dropout: float = 0.0,
        norm: float | None = None,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if min(width, inner, 1 if blocks is None else blocks) < 1:
            fail(
                f"{blocks} blocks for a width of {width} and {inner} inside: all are "
                "at least 1"
            )
        if not 0 <= dropout < 1:
            fail(f"a dropout of {dropout}; it is at least 0 and below 1")
        self.width, self.inner, self.gated = width, inner, gated
        self.activation = activation_name(activation)
        made = {"device": device, "dtype": dtype}
        hidden = 2 * inner if gated else inner
        self.gated_layers = _linear(width, hidden, blocks, bias, made)
        self.dropout = torch.nn.Dropout(dropout)
        self.wo = _linear(inner, width, blocks, True, made)
        self.layernorm = None
        if norm is not None:
            self.layernorm = torch.nn.LayerNorm(width, eps=norm, **made)

    def forward(self, x: Tensor) -> Tensor:
        """x and the result are [..., width]."""
        check_rows(x, self.width)
        if self.gated:
            first, second = self._halves(x)
            m = first * second
        else:
            m = ACTIVATIONS[self.activation](self.gated_layers(x))
        y = self.wo(self.dropout(m))
        return y if self.layernorm is None else self.layernorm(y + x)

    def _halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both halves of q, the first one activated. Where no block has rows of both,
        training makes one after the other, so that numbers of each lie side by side."""
        layer = self.gated_layers
        blocks = getattr(layer, "blocks", 0)
        whole = blocks and x.shape[-1] % blocks == 0 and 2 * self.inner % blocks == 0
        if blocks % 2 or not whole or is_hooked(layer) or keeps(layer, [x]):
            first, second = layer(x).chunk(2, -1)
            return ACTIVATIONS[self.activation](first), second
        bias = (None, None) if layer.bias is None else layer.bias.chunk(2)
        x1, x2 = x.chunk(2, -1)
        w1, w2 = layer.weight[..., None].chunk(2)
        first = ks_linear(x1, [w1], bias[0], activation=self.activation)
        return first, ks_linear(x2, [w2], bias[1])

    def extra_repr(self) -> str:
        return f"{self.width}, {self.inner}, activation={self.activation!r}"
