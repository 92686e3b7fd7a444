"""Models of danaus.torch with PyTorch's own products and torch.fft in place of danaus',
as the authors' code has them: transforms in f32 of twice the length."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from danaus.torch import BlockDiagonalLinear, LongConv, M2Mixer
from danaus.torch.implicit import HyenaFilter


def convolve(u: Tensor, k: Tensor, skip: Tensor) -> Tensor:
    """k [channels, twice the length of u] is circular."""
    n = u.shape[2]
    y = torch.fft.rfft(u.float(), 2 * n) * torch.fft.rfft(k.float(), 2 * n)
    y = torch.fft.irfft(y, 2 * n)[..., :n]
    return (y + u * skip[:, None]).to(u.dtype)


def around(k: Tensor, k_reverse: Tensor | None, n: int) -> Tensor:
    """A circular filter of 2 n values: k, and k_reverse for what comes after t."""
    k = F.pad(k, (0, n))
    return k if k_reverse is None else k + F.pad(k_reverse.flip(1), (n, 0))


def by_filter(filter: HyenaFilter, u: Tensor, taps: int | None = None) -> Tensor:
    n = u.shape[2]
    made = filter(n if taps is None else min(n, taps))
    k, k_reverse = made if isinstance(made, tuple) else (made, None)
    return convolve(u, around(k, k_reverse, n), filter.bias)


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
        y = x2 * by_filter(like.filter_fn, x1 * v)
        if like.filter_fn2 is not None:
            y = y + by_filter(like.filter_fn2, u.mT.to(y.dtype))
        return like.out_linear(y.mT)


class PlainHyenaMixer(nn.Module):
    def __init__(self, like: nn.Module):
        super().__init__()
        self.like = like

    def forward(self, x: Tensor, offsets: None, longest: int) -> Tensor:
        like = self.like
        x0, x1, v = few_taps(like.short_filter, like.in_proj(x).mT).chunk(3, 1)
        y = x0 * by_filter(like.filter_fn, x1 * v, like.filter_taps)
        return like.out_proj(y.mT)


class PlainLongConv(nn.Module):
    def __init__(self, like: LongConv):
        super().__init__()
        self.like = like

    def forward(self, u: Tensor) -> Tensor:
        n = u.shape[2]
        return convolve(u, around(*self.like.filters_for(n), n), self.like.skip)


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
        elif isinstance(module, LongConv):
            made.set_submodule(name, PlainLongConv(module))
        elif name.endswith(".mixer"):
            made.set_submodule(name, PlainHyenaMixer(module))
    return made


# ---- changes of a model ----


def implicit_filters(model: nn.Module) -> list[nn.Module]:
    """The modules that compute filters."""
    modules = list(model.modules())
    of_convs = [m.filter for m in modules if isinstance(m, LongConv) and m.filter]
    return [m for m in modules if isinstance(m, HyenaFilter)] + of_convs


def keep_filters(model: nn.Module) -> None:
    """Each implicit filter is computed once for each length, without gradients."""
    for module in implicit_filters(model):
        module.forward = functools.cache(module.forward)


def halve(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Weights in 16 bits; those of implicit filters stay in f32."""
    model.to(dtype)
    for module in implicit_filters(model):
        module.float()
    return model
