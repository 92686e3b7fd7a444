"""Layers that read the same input, as one."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from danaus.torch.linear import KSLinear


def _stacked(layers: list[KSLinear]) -> tuple[list[Tensor], Tensor | None] | None:
    """Weights and bias of one chain for all rows of n layers; None if there is none.

    If the last factor of each is (1, b, c, d), their rows are put below each other,
    (1, n b, c, d), and the other factors beside each other, (n a, b, c, d).
    """
    first = layers[0]
    if first.patterns[-1].a != 1 or any(
        layer.patterns != first.patterns
        or layer.activation != first.activation
        or layer.batch_invariant != first.batch_invariant
        or layer.int8 != first.int8
        or (layer.bias is None) != (first.bias is None)
        or layer.weights[0].dtype != first.weights[0].dtype
        or layer.weights[0].device != first.weights[0].device
        for layer in layers
    ):
        return None
    last = len(first.patterns) - 1
    weights = [
        torch.cat([layer.weights[n] for layer in layers], dim=1 if n == last else 0)
        for n in range(last + 1)
    ]
    bias = None if first.bias is None else torch.cat([layer.bias for layer in layers])
    return weights, bias


class FusedLinear(nn.Module):
    """Several `KSLinear` of the same input as one call; outputs are concatenated.

    If the patterns allow it they are one chain, `layer`, that reads the input once;
    else `layers` run one after the other. `split` separates the outputs.
    """

    def __init__(self, layers: Iterable[KSLinear]):
        super().__init__()
        layers = list(layers)
        if not layers or any(not isinstance(layer, KSLinear) for layer in layers):
            raise TypeError("layers of the kind KSLinear are needed")
        first = layers[0]
        for layer in layers:
            if (layer.in_features, layer.layout) != (first.in_features, first.layout):
                raise ValueError("the layers have different inputs or layouts")
        self.sizes = [layer.out_features for layer in layers]
        self._features = 0 if first.layout == "batch_last" else -1
        with torch.no_grad():
            stacked = _stacked(layers)
        self.layer = self.layers = None
        if stacked is None:
            self.layers = nn.ModuleList(layers)
            return
        weights, bias = stacked
        self.layer = KSLinear(
            first.in_features,
            sum(self.sizes),
            [tuple(w.shape) for w in weights],
            bias=bias is not None,
            activation=first.activation,
            layout=first.layout,
            tf32=first.tf32,
            batch_invariant=first.batch_invariant,
            int8=first.int8,
            device="meta",
        )
        for n, w in enumerate(weights):
            self.layer.weights[n] = nn.Parameter(w, first.weights[n].requires_grad)
        if bias is not None:
            self.layer.bias = nn.Parameter(bias, first.bias.requires_grad)

    def forward(self, x: Tensor) -> Tensor:
        """[..., sum of M] or, "batch_last", [sum of M, ...]."""
        if self.layer is not None:
            return self.layer(x)
        return torch.cat([layer(x) for layer in self.layers], dim=self._features)

    def split(self, y: Tensor) -> tuple[Tensor, ...]:
        """The output of each layer, as views."""
        return torch.split(y, self.sizes, dim=self._features)


def fuse_qkv(*layers: KSLinear) -> FusedLinear:
    """Layers that read the same input, such as q, k and v, as one call."""
    return FusedLinear(layers)
