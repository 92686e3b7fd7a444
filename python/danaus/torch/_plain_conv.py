"""Convolutions of danaus as modules of PyTorch's own operators, which `to_plain` makes:
see `danaus.torch._plain_linear`."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor, nn

from danaus.torch._standard import activate, long_conv, short_conv


class PlainShortConv(nn.Module):
    """A depthwise conv1d whose taps are reversed, then an activation."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.channels, self.taps, self.layout = layer.channels, layer.taps, layer.layout
        self.channels_last = layer.layout == "channels_last"
        self.activation, self.centred = layer.activation, layer.centred
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, u: Tensor) -> Tensor:
        y = short_conv(u, self.weight, self.bias, self.channels_last, self.centred)
        return activate(y, self.activation)


class PlainShortFilter(nn.Module):
    """A causal depthwise conv1d."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, u: Tensor) -> Tensor:
        taps = self.weight.squeeze(1).flip([1])
        return short_conv(u, taps, self.bias, False, False)


class PlainLongConv(nn.Module):
    """A long convolution by torch.fft."""

    __constants__ = ["looks_back"]  # scripts leave out what it excludes

    def __init__(self, layer: nn.Module):
        super().__init__()
        if len(layer._form) == 8:
            raise NotImplementedError("sparse spectra (axes, keep) have no such form")
        self.channels, self.length = layer.channels, layer.length
        self.kind, self.filters = layer.kind, layer.filters
        self.centre = [layer._form[3] if layer._form else 0]
        self.circular = layer.kind == "circular"
        self.looks_back = layer.kind == "bidirectional"
        self.weight, self.weight_reverse = layer.weight, layer.weight_reverse
        self.skip, self.filter = layer.skip, layer.filter

    def filters_for(self, length: int) -> tuple[Tensor, Tensor | None]:
        """k and k_reverse for signals of that length."""
        if self.filter is None:
            return self.weight, self.weight_reverse
        if self.looks_back:
            k, back = self.filter(length)
            return k, back
        return self.filter(length), None

    def forward(
        self,
        u: Tensor,
        gate_in: Tensor | None = None,
        gate_out: Tensor | None = None,
    ) -> Tensor:
        k, back = self.filters_for(u.shape[2])
        return long_conv(
            u, k, back, self.skip, gate_in, gate_out, self.centre, self.circular
        )


class PlainLongConv2d(nn.Module):
    """The same along both axes of planes."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.channels, self.length = layer.channels, layer.length
        self.kind, self.filters = layer.kind, layer.filters
        self.centre, self.circular = list(layer._place), layer.kind == "circular"
        self.weight, self.skip, self.filter = layer.weight, layer.skip, layer.filter

    def forward(
        self,
        u: Tensor,
        gate_in: Tensor | None = None,
        gate_out: Tensor | None = None,
    ) -> Tensor:
        if self.filter is None:
            k = self.weight
        else:
            k = self.filter(u.shape[2], u.shape[3])
        return long_conv(
            u, k, None, self.skip, gate_in, gate_out, self.centre, self.circular
        )


# ---- filters ----


class _Held(nn.Module):
    """The tensors of a module, under their names."""

    def __init__(self, module: nn.Module):
        super().__init__()
        for name, parameter in module.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in module.named_buffers(recurse=False):
            self.register_buffer(name, buffer)

    def forward(self, x: Tensor) -> Tensor:
        return x


class PlainHyenaFilter(nn.Module):
    """Filters k [channels, length] of a network of sines."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.channels, self.length = layer.channels, layer.length
        self.factor, self.bias = layer.factor, layer.bias
        self.pos_emb = _Held(layer.pos_emb)
        self.implicit_filter = layer.implicit_filter
        self.implicit_filter[1] = _Held(self.implicit_filter[1])
        self.implicit_filter_rev = layer.implicit_filter_rev
        self.modulation, self.shift = None, 0.0
        if layer.modulation is not None:
            self.modulation = _Held(layer.modulation)
            self.shift = float(layer.modulation.shift)

    def inputs(self, length: int) -> tuple[Tensor, Tensor]:
        """Positions [1, length, features], and the frequencies of all sines."""
        z = torch.narrow(self.pos_emb.z, 1, 0, length)
        return z, self.factor * self.implicit_filter[1].freq

    def windowed(self, k: Tensor, length: int) -> Tensor:
        """k [channels, length] of the network's outputs [1, length, channels]."""
        k = k.squeeze(0).t()
        if self.modulation is None:
            return k
        t = torch.narrow(self.pos_emb.t, 1, 0, length).reshape(1, -1)
        rates = self.modulation.deltas[0].abs().t()
        return k * (torch.exp(-rates * t) + self.shift)

    def forward(self, length: int | None = None) -> Tensor:
        length = self.length if length is None else length
        x, f = self.inputs(length)
        for n, layer in enumerate(self.implicit_filter):
            x = layer(x)
            if n % 2 == 1:
                x = torch.sin(f * x)
        return self.windowed(x, length)


class PlainHyenaFilters(PlainHyenaFilter):
    """The pair of k and k_reverse."""

    def forward(self, length: int | None = None) -> tuple[Tensor, Tensor]:
        length = self.length if length is None else length
        z, f = self.inputs(length)
        x, back = z, z
        for n, layer in enumerate(self.implicit_filter):
            x = layer(x)
            if n % 2 == 1:
                x = torch.sin(f * x)
        for n, layer in enumerate(self.implicit_filter_rev):
            back = layer(back)
            if n % 2 == 1:
                back = torch.sin(f * back)
        return self.windowed(x, length), self.windowed(back, length)


def plain_filter(layer: nn.Module) -> nn.Module:
    """The form of a HyenaFilter."""
    one_way = layer.implicit_filter_rev is None
    return PlainHyenaFilter(layer) if one_way else PlainHyenaFilters(layer)


# ---- mixers ----


class PlainGatedLongConv(nn.Module):
    """out_proj(q * conv(k * v)) of short(in_proj(x))."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.width, self.head_dim = layer.width, layer.head_dim
        self.order = layer.short.channels // layer.width - 1
        self.in_proj, self.out_proj = layer.in_proj, layer.out_proj
        self.short, self.long = layer.short, layer.long

    def forward(self, x: Tensor) -> Tensor:
        z = self.short(self.in_proj(x)).mT
        return self.out_proj(self.mix(z.unflatten(1, [3, self.width])).mT)

    def mix(self, z: Tensor) -> Tensor:
        """Rows [batch, width, length] of [batch, 3, width, length]."""
        if self.head_dim == 1:
            return self.long(z.select(1, 2), z.select(1, 1), z.select(1, 0))
        y = self.long(pairs(z, self.head_dim))
        return pairs_mixed(z, y, self.head_dim)


class PlainHyenaOperator(PlainGatedLongConv):
    """The same of any order."""

    def forward(self, x: Tensor) -> Tensor:
        z = self.short(self.in_proj(x).mT)
        return self.out_proj(self.mix(z.unflatten(1, [-1, self.width])).mT)

    def mix(self, z: Tensor) -> Tensor:
        if self.head_dim > 1:
            return pairs_mixed(z, self.long[0](pairs(z, self.head_dim)), self.head_dim)
        v = z.select(1, self.order)
        for n, conv in enumerate(self.long):
            v = conv(v, z.select(1, self.order - 1 - n))
        return z.select(1, 0) * v


def pairs(z: Tensor, head_dim: int) -> Tensor:
    """Rows x_1[h, i] v[h, j] of the gates x_0, x_1 and v."""
    heads = z.unflatten(2, [-1, head_dim])
    x_1, v = heads.select(1, 1), heads.select(1, 2)
    return (x_1.unsqueeze(3) * v.unsqueeze(2)).flatten(1, 3)


def pairs_mixed(z: Tensor, w: Tensor, head_dim: int) -> Tensor:
    """sum over i of x_0[h, i] w[h, i, j]."""
    x_0 = z.select(1, 0).unflatten(1, [-1, head_dim])
    w = w.unflatten(1, [-1, head_dim, head_dim])
    return (x_0.unsqueeze(3) * w).sum(2).flatten(1, 2)


class PlainM2Mixer(nn.Module):
    """out_linear(x2 * conv(x1 * v) + conv2(u)) of the sequence mixer of M2-BERT."""

    __constants__ = ["looks_back"]

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.width, self.looks_back = layer.width, layer.kind == "bidirectional"
        self.in_linear, self.out_linear = layer.in_linear, layer.out_linear
        self.short_filter, self.layernorm = layer.short_filter, layer.layernorm
        self.filter_fn, self.filter_fn2 = layer.filter_fn, layer.filter_fn2

    def forward(self, x: Tensor) -> Tensor:
        u = x if self.layernorm is None else self.layernorm(x)
        parts = self.short_filter(self.in_linear(u).mT).chunk(3, 1)
        k, back = self.taps(u.shape[1])
        skip, first = self.filter_fn.bias, [0]
        y = long_conv(parts[2], k, back, skip, parts[0], parts[1], first, False)
        if self.filter_fn2 is not None:
            k, back = self.more_taps(u.shape[1])
            skip = self.filter_fn2.bias
            y = y + long_conv(u.mT, k, back, skip, None, None, first, False)
        return self.out_linear(y.mT)

    def taps(self, length: int) -> tuple[Tensor, Tensor | None]:
        """k and k_reverse of the gated convolution."""
        if self.looks_back:
            k, back = self.filter_fn(length)
            return k, back
        return self.filter_fn(length), None

    def more_taps(self, length: int) -> tuple[Tensor, Tensor | None]:
        """The same of the other one."""
        if self.looks_back:
            k, back = self.filter_fn2(length)
            return k, back
        return self.filter_fn2(length), None
