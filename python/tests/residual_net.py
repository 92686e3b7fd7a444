"""A network of residual blocks, whose linear layers tests change."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from plain_twin import exact, expect_close, outputs
from torch import nn

from danaus.torch import compress, replace_linear

WIDTH, HIDDEN = 12, 20


def batch(dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(96, WIDTH, generator=generator).to(device, dtype)


class Net(nn.Module):
    """Three residual blocks, whose layers cases below change."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN), nn.GELU(),
                nn.Linear(HIDDEN, WIDTH),
            )
            for _ in range(3)
        )  # fmt: skip
        self.to(dtype)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


LAYERS = [f"blocks.{i}.{n}" for i in range(3) for n in (1, 3)]


def expect_kept(model: nn.Module, x: torch.Tensor) -> None:
    """Both functions change no output if all numbers are kept."""
    with torch.no_grad():
        wanted = outputs(model.eval(), [x])
        for call, bound in (
            (lambda: replace_linear(model, exact), 1e-11),
            (lambda: compress(model, x, 1.0, ridge=1e-9), 1e-5),
        ):
            report = call()
            assert [layer.name for layer in report.layers] == LAYERS
            expect_close(outputs(model, [x]), wanted, bound)
            report.undo()
            expect_close(outputs(model, [x]), wanted, 0.0)
