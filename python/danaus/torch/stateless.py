"""Layers without state: each computes with the tensors of the module that it runs for.

A tool that replaces a module's ``forward``, as ``kernelize`` of Hugging Face's
``kernels`` does, runs ``Layer.forward(module, ...)``. The module has the attributes
that its layer names, as the modules of `danaus.torch.to_plain` do. Nothing is kept
between calls: weights are packed and filters transformed at each.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from danaus.torch._hyena_functions import hyena, mix_heads, stacked
from danaus.torch.functional import ACTIVATIONS, ks_linear, long_conv, short_conv
from danaus.torch.projections import from_rows, to_rows

__all__ = ["GatedLongConv", "HyenaOperator", "KSLinear", "LongConv", "ShortConv"]


class KSLinear(nn.Module):
    """activation(K_1 ... K_L x + bias) with the module's `weights`, `bias`,
    `activation` and `layout`, which are those of `danaus.torch.functional.ks_linear`.
    Monarch matrices are such chains."""

    has_backward = can_torch_compile = True

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        options = {"activation": self.activation, "layout": self.layout}
        y = ks_linear(input, list(self.weights), self.bias, **options)
        return y if residual is None else residual + y


class ShortConv(nn.Module):
    """A convolution with the module's `weight`, `bias`, `layout` and `centred`, as
    `danaus.torch.functional.short_conv` has them, then its `activation`."""

    has_backward = can_torch_compile = True

    def forward(self, u: Tensor) -> Tensor:
        y = short_conv(u, self.weight, self.bias, self.layout, self.centred)
        return ACTIVATIONS[self.activation](y)


class LongConv(nn.Module):
    """A long convolution of the module's `kind`, with its `skip` and, if they are not
    computed by its module `filter`, its filters `weight` and `weight_reverse`, which
    are those of `danaus.torch.LongConv`. `centre` is a list of one number."""

    has_backward = can_torch_compile = True

    def forward(
        self,
        u: Tensor,
        gate_in: Tensor | None = None,
        gate_out: Tensor | None = None,
    ) -> Tensor:
        k, k_reverse = _filters(self, u.shape[2])
        placed = self.kind in ("centred", "circular")
        options = {"kind": self.kind, "centre": self.centre[0] if placed else None}
        return long_conv(u, k, k_reverse, self.skip, gate_in, gate_out, **options)


class GatedLongConv(nn.Module):
    """The Hyena operator of order 2 with the module's `in_proj`, `short`, `long`,
    `out_proj` and `head_dim`, which are those of `danaus.torch.GatedLongConv`."""

    has_backward = can_torch_compile = True

    def forward(self, x: Tensor) -> Tensor:
        u = to_rows(self.in_proj, x)
        y = _mix(u, self.short, [self.long], self.head_dim)
        return from_rows(self.out_proj, y)


class HyenaOperator(nn.Module):
    """The Hyena operator of any order: `long` has the long convolutions in the order in
    which they are applied, and the rest is as `GatedLongConv` has it."""

    has_backward = can_torch_compile = True

    def forward(self, x: Tensor) -> Tensor:
        u = to_rows(self.in_proj, x)
        y = _mix(u, self.short, list(self.long), self.head_dim)
        return from_rows(self.out_proj, y)


def _filters(conv: nn.Module, length: int) -> tuple[Tensor, Tensor | None]:
    """k and k_reverse of a long convolution for signals of that length."""
    if conv.filter is None:
        return conv.weight, conv.weight_reverse
    k = conv.filter(length)
    return (k, None) if isinstance(k, Tensor) else k


def _mix(
    u: Tensor, short: nn.Module, convs: Sequence[nn.Module], head_dim: int
) -> Tensor:
    """`hyena` of u [batch, (order + 1) width, length] with the modules' filters."""
    if head_dim > 1:
        (conv,) = convs
        return mix_heads(short_conv(u, short.weight, short.bias), head_dim, conv)
    k = stacked([_filters(conv, u.shape[2])[0] for conv in convs])
    skip = stacked([conv.skip for conv in convs])
    return hyena(u, short.weight, short.bias, k, skip)
