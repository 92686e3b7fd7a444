"""Transformers whose layers are dense or chains: ViT-S/16, with the chains of arXiv
2405.15013, section 5, and GPT-2 medium with Monarch down-projections. Blocks alone,
without embeddings and heads."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import dataclasses
import pathlib

import torch
from torch import Tensor, nn

from danaus.torch import KSLinear
from danaus.torch.functional import ACTIVATIONS

SUITES = pathlib.Path(__file__).resolve().parent / "suites"
# What follows layers that widen, and whether there is a bias, by suite.
STYLES = {"vit": ("gelu", True), "gpt2": ("gelu_tanh", True), "llama": ("silu", False)}


def read_suite(name: str) -> list[str]:
    with open(SUITES / f"{name}.csv", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [row["problem"] for row in rows]


def sizes_of(problem: str) -> tuple[int, int]:
    """Rows and columns of a chain."""
    patterns = [tuple(map(int, p.split(","))) for p in problem.split()]
    (a, b, _, d), (e, _, g, h) = patterns[0], patterns[-1]
    return a * b * d, e * g * h


@dataclasses.dataclass(frozen=True)
class Shape:
    """A transformer, and which of its layers have the sizes of chains of the suite."""

    name: str
    suite: str
    width: int
    heads: int
    hidden: int
    blocks: int
    tokens: int
    images: int
    replaced: tuple[str, ...]
    causal: bool = False


NETWORKS = (
    Shape("ViT-S/16", "vit", 384, 6, 1536, 12, 196, 128, ("square", "up", "down")),
    Shape("GPT-2 medium", "gpt2", 1024, 16, 4096, 24, 1024, 8, ("down",), True),
)


class Norm(nn.Module):
    """LayerNorm over features, which come first or last."""

    def __init__(self, width: int, last: bool):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.ones(width)),
            nn.Parameter(torch.zeros(width)),
        )
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        if not self.last:
            width = self.weight.numel()
            return nn.functional.layer_norm(x, (width,), self.weight, self.bias)
        variance, mean = torch.var_mean(x.float(), 0, correction=0, keepdim=True)
        y = (x - mean) * torch.rsqrt(variance + 1e-5)
        return (y * self.weight[:, None] + self.bias[:, None]).to(x.dtype)


class Block(nn.Module):
    """x is [tokens][features] or, last, [features][tokens]."""

    def __init__(self, s: Shape, make, last: bool):
        super().__init__()
        self.s, self.last = s, last
        self.norms = nn.ModuleList(Norm(s.width, last) for _ in range(2))
        fused = make(3 * s.width, s.width)  # None: as three
        three = (make(s.width, s.width) for _ in range(3))
        self.qkv = nn.ModuleList(three if fused is None else [fused])
        self.out = make(s.width, s.width)
        self.up = make(s.hidden, s.width, STYLES[s.suite][0])
        self.down = make(s.width, s.hidden)

    def attend(self, x: Tensor) -> Tensor:
        s, last = self.s, self.last
        axis = 0 if last else -1
        parts = [layer(x) for layer in self.qkv]
        q, k, v = parts if len(parts) == 3 else parts[0].chunk(3, axis)
        inner = (s.heads, s.width // s.heads)
        images = x.shape[1 if last else 0] // s.tokens
        outer = (images, s.tokens)

        def apart(t: Tensor) -> Tensor:  # [image][head][token][feature]
            if last:
                return t.reshape(*inner, *outer).permute(2, 0, 3, 1).contiguous()
            return t.reshape(*outer, *inner).transpose(1, 2)

        y = nn.functional.scaled_dot_product_attention(
            apart(q), apart(k), apart(v), is_causal=s.causal
        )
        y = y.permute(1, 3, 0, 2) if last else y.transpose(1, 2)
        return self.out(y.reshape(x.shape))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norms[0](x))
        return x + self.down(self.up(self.norms[1](x)))


class Activated(nn.Module):
    def __init__(self, rows: int, cols: int, activation: str):
        super().__init__()
        self.linear, self.after = nn.Linear(cols, rows), ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.linear(x))


def chains_of(s: Shape) -> dict[tuple[int, int], str]:
    """The chain of each size of layers that has one."""
    known = {sizes_of(p): p for p in read_suite(s.suite)}
    parts = {"square": (s.width, s.width), "up": (s.hidden, s.width)}
    parts["down"] = s.width, s.hidden
    return {parts[name]: known[parts[name]] for name in s.replaced}


def maker(chosen: dict[tuple[int, int], str], **options):
    """What makes a Block's layers: KSLinear of the chosen sizes, else nn.Linear; q, k
    and v are one layer where none of them is a chain."""

    def make(rows: int, cols: int, activation: str = "none"):
        if rows == 3 * cols and (cols, cols) in chosen:
            return None
        if (rows, cols) not in chosen:
            return Activated(rows, cols, activation)
        chain = chosen[rows, cols]
        return KSLinear(cols, rows, chain, activation=activation, **options)

    return make


def network(s: Shape, replace: bool, last: bool, tf32: bool) -> nn.Module:
    """Without `replace` all layers are nn.Linear."""
    layout = "batch_last" if last else "batch_first"
    make = maker(chains_of(s) if replace else {}, layout=layout, tf32=tf32)
    return nn.Sequential(*(Block(s, make, last) for _ in range(s.blocks)))
