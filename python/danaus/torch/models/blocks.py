"""Blocks of a model, one after the other, and branches that training leaves out."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Blocks(nn.ModuleList):
    """Runs blocks one after the other. With `gradient_checkpointing`, training saves
    memory: gradients recompute what is inside of a block."""

    gradient_checkpointing = False

    def forward(self, h: Tensor, *rest: Any) -> Tensor:
        for block in self:
            if self.gradient_checkpointing and self.training:
                h = checkpoint(block, h, *rest, use_reentrant=False)
            else:
                h = block(h, *rest)
        return h


class DropPath(nn.Module):
    """In training a share of the samples loses this branch, the others grow for it.

    Source: Huang et al., Deep networks with stochastic depth (arXiv 1603.09382).
    """

    def __init__(self, share: float):
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return x
        kept = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device)
        return x * ((kept >= self.share).to(x) / (1 - self.share))
