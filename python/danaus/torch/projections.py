"""Linear layers from tokens, [batch, length, any], to rows, [batch, any, length]."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor, nn

from danaus.torch._packed import is_hooked


def is_usual(layer: nn.Module) -> bool:
    """True for a Linear whose call does nothing but multiply and add a bias: without
    hooks and with no forward() of its own."""
    hooks = layer._backward_hooks, layer._backward_pre_hooks
    return type(layer) is nn.Linear and not (is_hooked(layer) or any(hooks))


def to_rows(layer: nn.Module, x: Tensor) -> Tensor:
    """layer(x) of x [batch, length, any], as [batch, any, length]; a usual layer's
    row-major, without copies of x or the result."""
    if not is_usual(layer):
        return layer(x).mT
    return rows_by(layer.weight, layer.bias, x)


def rows_by(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """The same of a weight and a bias."""
    matrix = weight.expand(x.shape[0], -1, -1)
    if bias is None:
        return torch.bmm(matrix, x.mT)
    return torch.baddbmm(bias[:, None], matrix, x.mT)


def from_rows(layer: nn.Module, y: Tensor) -> Tensor:
    """layer() of y [batch, any, length], as [batch, length, any]; a usual layer's
    without copies."""
    if not is_usual(layer):
        return layer(y.mT)
    matrix = layer.weight.mT.expand(y.shape[0], -1, -1)
    if layer.bias is None:
        return torch.bmm(y.mT, matrix)
    return torch.baddbmm(layer.bias, y.mT, matrix)
