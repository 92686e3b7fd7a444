"""Models of danaus.torch with PyTorch's own products and torch.fft in place of danaus',
as the authors' code has them: transforms in f32 of twice the length."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from danaus.torch import BlockDiagonalLinear, M2Mixer


def convolve(u: Tensor, k: Tensor, skip: Tensor) -> Tensor:
    """k [channels, twice the length of u] is circular."""
    n = u.shape[2]
    y = torch.fft.rfft(u.float(), 2 * n) * torch.fft.rfft(k, 2 * n)
    y = torch.fft.irfft(y, 2 * n)[..., :n]
    return (y + u * skip[:, None]).to(u.dtype)


def both_ways(filter: nn.Module, u: Tensor) -> Tensor:
    n = u.shape[2]
    k, k_reverse = filter(n)
    k = F.pad(k, (0, n)) + F.pad(k_reverse.flip(1), (n, 0))
    return convolve(u, k, filter.bias)


def few_taps(short: nn.Module, p: Tensor) -> Tensor:
    taps = short.weight.shape[2]
    channels = p.shape[1]
    bias = short.bias.to(p.dtype)
    p = F.conv1d(p, short.weight.to(p.dtype), bias, padding=taps - 1, groups=channels)
    return p[..., : 1 - taps]


class PlainM2Mixer(nn.Module):
    def __init__(self, like: M2Mixer):
        super().__init__()
        self.like = like

    def forward(self, x: Tensor, offsets: None) -> Tensor:
        like = self.like
        u = x if like.layernorm is None else like.layernorm(x)
        x1, x2, v = few_taps(like.short_filter, like.in_linear(u).mT).chunk(3, 1)
        y = x2 * both_ways(like.filter_fn, x1 * v)
        y = y + both_ways(like.filter_fn2, u.mT.to(y.dtype))
        return like.out_linear(y.mT)


class PlainHyenaMixer(nn.Module):
    def __init__(self, like: nn.Module):
        super().__init__()
        self.like = like

    def forward(self, x: Tensor, offsets: None, longest: int) -> Tensor:
        like = self.like
        x0, x1, v = few_taps(like.short_filter, like.in_proj(x).mT).chunk(3, 1)
        k, n = like.filter_fn(longest), longest
        v = convolve(x1 * v, F.pad(k, (0, n)), like.filter_fn.bias)
        return like.out_proj((x0 * v).mT)


class PlainBlocks(nn.Module):
    def __init__(self, like: BlockDiagonalLinear):
        super().__init__()
        self.like = like

    def forward(self, x: Tensor) -> Tensor:
        blocks, _, cols = self.like.weight.shape
        rows = x.reshape(-1, blocks, cols).transpose(0, 1)
        y = torch.bmm(rows, self.like.weight.mT).transpose(0, 1).flatten(1)
        y = y if self.like.bias is None else y + self.like.bias
        return y.view(*x.shape[:-1], -1)


def plain(model: nn.Module) -> nn.Module:
    """A copy of a model of danaus.torch.models with none of danaus' kernels."""
    made = copy.deepcopy(model)
    for name, module in list(made.named_modules()):
        if isinstance(module, M2Mixer):
            made.set_submodule(name, PlainM2Mixer(module))
        elif isinstance(module, BlockDiagonalLinear):
            made.set_submodule(name, PlainBlocks(module))
        elif name.endswith(".mixer"):
            made.set_submodule(name, PlainHyenaMixer(module))
    return made
