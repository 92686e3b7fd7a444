"""SaShiMi with random weights: convolutions of sound at three rates, with danaus' LongConv.

Sources: Goel, Gu, Donahue, Ré, It's raw! Audio generation with state-space models, ICML
2022 (arXiv 2202.09729), section 4, for the model; Gu, Gupta, Goel, Ré, On the
parameterization and initialization of diagonal state space models, NeurIPS 2022 (arXiv
2206.11893), for filters of diagonal state spaces in place of those of S4.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from danaus.torch import LongConv
from danaus.torch.models.outputs import LogitsOutput

STATES, POOL, WIDER = 64, 4, 2
WORDS = 256  # values of a sample


class Filter(nn.Module):
    """k[h, s] = 2 Re sum over n of C[h, n] exp(s dt[h] A[h, n])."""

    def __init__(self, width: int):
        super().__init__()
        half = STATES // 2
        self.c = nn.Parameter(torch.randn(width, half, 2))
        steps = torch.rand(width) * math.log(100) + math.log(1e-3)
        self.log_step = nn.Parameter(steps)
        self.log_decay = nn.Parameter(torch.full((width, half), math.log(0.5)))
        self.turns = nn.Parameter(math.pi * torch.arange(half).repeat(width, 1))

    def forward(self, length: int) -> Tensor:
        step = self.log_step.exp()[:, None]
        rate = torch.complex(-self.log_decay.exp() * step, self.turns * step)
        scale = torch.view_as_complex(self.c) * (rate.exp() - 1) / rate
        s = torch.arange(length, device=step.device)
        return 2 * torch.einsum("hn,hns->hs", scale, (rate[..., None] * s).exp()).real


class Block(nn.Module):
    """x + GLU(linear(GELU(conv(norm(x))))), then the same with an MLP."""

    def __init__(self, width: int, length: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.conv = LongConv(width, length, filter=Filter(width))
        self.out = nn.Linear(width, 2 * width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.conv(self.norms[0](x).mT)).mT
        x = x + F.glu(self.out(y))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Stage(nn.Module):
    """Blocks at a rate, after the stages inside, which have a lower one."""

    def __init__(self, width: int, length: int, blocks: int, inner: int):
        super().__init__()
        self.lower = None
        if inner:
            self.down = nn.Linear(POOL * width, WIDER * width)
            self.lower = Stage(WIDER * width, length // POOL, blocks, inner - 1)
            self.up = nn.Linear(WIDER * width, POOL * width)
        self.blocks = nn.Sequential(*(Block(width, length) for _ in range(blocks)))

    def forward(self, x: Tensor) -> Tensor:
        if self.lower is not None:
            y = self.up(self.lower(self.down(x.unflatten(1, (-1, POOL)).flatten(2))))
            y = F.pad(y, (0, 0, 1, -1))  # no sample depends on later ones
            x = x + y.unflatten(2, (POOL, -1)).flatten(1, 2)
        return self.blocks(x)


class Sashimi(nn.Module):
    """Scores of the next sample; the length is a multiple of POOL for each inner stage."""

    def __init__(self, width: int, length: int, blocks: int, inner: int = 2):
        super().__init__()
        self.word, self.norm = nn.Embedding(WORDS, width), nn.LayerNorm(width)
        self.stages = Stage(width, length, blocks, inner)
        self.head = nn.Linear(width, WORDS)

    def forward(self, samples: Tensor) -> LogitsOutput:
        x = self.norm(self.stages(self.word(samples)))
        return LogitsOutput(None, self.head(x))
