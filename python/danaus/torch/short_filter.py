"""Short convolutions whose taps lie as checkpoints of other projects have them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor

from danaus.torch._conv_functions import short_conv
from danaus.torch._split import Splittable

__all__ = ["ShortFilter"]


class ShortFilter(torch.nn.Module, Splittable):
    """A short causal depthwise convolution, with the parameters of Conv1d:
    ``weight[h, 0, j]`` multiplies ``u[h, t - (taps - 1) + j]``. u is [batch, channels,
    length]; with offsets it is packed."""

    def __init__(self, channels: int, taps: int = 3, *, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(channels, 1, taps, **made))
        self.bias = torch.nn.Parameter(torch.empty(channels, **made))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform numbers, as in Conv1d."""
        bound = self.weight.shape[2] ** -0.5
        for x in (self.weight, self.bias):
            torch.nn.init.uniform_(x, -bound, bound)

    def taps(self) -> Tensor:
        """[channels, taps] as `short_conv` has them: the one of u[t] first."""
        return self.weight[:, 0].flip(1)

    def forward(self, u: Tensor, offsets=None) -> Tensor:
        options = {"offsets": offsets, "group": self.group}
        return short_conv(u, self.taps(), self.bias, **options)
