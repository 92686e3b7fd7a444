"""Blocks of a model, one after the other."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Blocks(nn.ModuleList):
    """h goes through all; with `gradient_checkpointing`, in training, going back makes
    what a block keeps again, for memory."""

    gradient_checkpointing = False

    def forward(self, h: Tensor, *rest: Any) -> Tensor:
        for block in self:
            if self.gradient_checkpointing and self.training:
                h = checkpoint(block, h, *rest, use_reentrant=False)
            else:
                h = block(h, *rest)
        return h
