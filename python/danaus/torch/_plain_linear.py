"""Linear layers of danaus as modules of PyTorch's own operators: what `to_plain` makes.

Each takes the layer that it stands for, and has its parameters under the same names.
torch.jit.script compiles these modules, so that a module with other results than
another is another class.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from danaus.torch._standard import activate, chain_product
from danaus.torch.composed import InterpolatedLinear, SumLinear
from danaus.torch.weight import LinearLike


class PlainLinear(LinearLike):
    """What has in_features, out_features and a matrix that others may read."""

    __jit_unused_properties__ = ["weight", "bias"]

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features


class PlainKSLinear(PlainLinear):
    """activation(K_1 ... K_L x + bias), a batched matrix product for each factor."""

    def __init__(self, layer: nn.Module):
        super().__init__(layer)
        self.patterns = list(layer._sizes)
        self.activation, self.layout = layer.activation, layer.layout
        self.batch_last = layer._batch_last
        self.weights = nn.ParameterList(layer.weights.parameters())
        self.bias = layer.bias

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        weights: list[Tensor] = []
        for w in self.weights:
            weights.append(w)
        y = chain_product(input, weights, self.bias, self.patterns, self.batch_last)
        y = activate(y, self.activation)
        return y if residual is None else residual + y

    def factors(self) -> list[Tensor]:
        """The weights, the leftmost factor first."""
        return list(self.weights)

    def to_dense(self) -> Tensor:
        """W as a matrix [M, N], without bias."""
        weights = self.factors()
        kind = {"dtype": weights[0].dtype, "device": weights[0].device}
        eye = torch.eye(self.in_features, **kind)
        return chain_product(eye, weights, None, self.patterns, True)


class PlainSumLinear(PlainLinear):
    """first(x) + second(x)."""

    bias, factors, to_dense = SumLinear.bias, SumLinear.factors, SumLinear.to_dense

    def __init__(self, layer: nn.Module):
        super().__init__(layer)
        self.first, self.second = layer.first, layer.second

    def forward(self, input: Tensor) -> Tensor:
        return self.first(input) + self.second(input)


class PlainInterpolatedLinear(PlainLinear):
    """Outputs of the basis, and others made of these, in their order."""

    bias, factors = InterpolatedLinear.bias, InterpolatedLinear.factors
    to_dense = InterpolatedLinear.to_dense
    _make_second = InterpolatedLinear._make_second

    def __init__(self, layer: nn.Module):
        super().__init__(layer)
        self.basis, self.others = layer.basis, layer.others
        self.register_buffer("place", layer.place)

    def forward(self, input: Tensor) -> Tensor:
        kept = self.basis(input)
        return torch.cat([kept, self.others(kept)], -1).index_select(-1, self.place)


class PlainBlockDiagonalLinear(nn.Module):
    """One product for each block, with zeros where blocks are larger than x."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        blocks, rows, columns = layer.weight.shape
        self.pattern = [blocks, rows, columns, 1]
        self.more_in = blocks * columns - layer.in_features
        self.more_out = blocks * rows - layer.out_features
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        if self.more_in > 0:
            x = F.pad(x, [0, self.more_in])
        bias = self.bias
        if bias is not None:
            bias = F.pad(bias, [0, self.more_out])
        weights = [self.weight.unsqueeze(-1)]
        y = chain_product(x, weights, bias, self.pattern, False)
        return y[..., : self.out_features]


class PlainFusedLinear(nn.Module):
    """Outputs of all layers, beside each other."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.sizes, self.features = layer.sizes, layer._features
        self.layer, self.layers = layer.layer, layer.layers

    def forward(self, x: Tensor) -> Tensor:
        if self.layer is not None:
            return self.layer(x)
        found: list[Tensor] = []
        for layer in self.layers:
            found.append(layer(x))
        return torch.cat(found, self.features)

    @torch.jit.unused
    def split(self, y: Tensor):
        """The output of each layer, as views."""
        return torch.split(y, self.sizes, dim=self.features)


class PlainGatedMLP(nn.Module):
    """wo(dropout(activation(q_1) q_2)), or without q_2."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.gated, self.activation = layer.gated, layer.activation
        self.gated_layers, self.wo = layer.gated_layers, layer.wo
        self.dropout, self.layernorm = layer.dropout, layer.layernorm

    def forward(self, x: Tensor) -> Tensor:
        q = self.gated_layers(x)
        if self.gated:
            halves = q.chunk(2, -1)
            q = activate(halves[0], self.activation) * halves[1]
        else:
            q = activate(q, self.activation)
        y = self.wo(self.dropout(q))
        return y if self.layernorm is None else self.layernorm(y + x)


class PlainMonarch(nn.Module):
    """A square Monarch matrix of a `MonarchMixerLayer`."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.is_complex, self.high_first = layer.is_complex, layer.high_first
        order = range(len(layer.digits))
        order = order if layer.high_first else order[::-1]
        self.patterns = [size for t in order for size in layer._pattern(t)]
        self.weights = nn.ParameterList(layer.weights.parameters())

    def forward(self, x: Tensor) -> Tensor:
        weights: list[Tensor] = []
        for w in self.weights:
            w = as_complex(w) if self.is_complex else w
            if self.high_first:
                weights.append(w)
            else:
                weights.insert(0, w)
        return chain_product(x, weights, None, self.patterns, False)


@torch.fx.wrap
def as_complex(x: Tensor) -> Tensor:
    """Complex numbers of pairs of real ones; f32 is the narrowest type."""
    return torch.view_as_complex(x if x.dtype == torch.float64 else x.float())


class PlainMonarchMixerLayer(nn.Module):
    """norm(y + z), with z mixed along the sequence and y along its features."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.width = layer.width
        self.sequence_activation = layer.sequence_activation
        self.activation = layer.activation
        self.is_complex = layer.m1.is_complex
        self.points, self.features = layer.n_kernel.shape[1], layer.d_kernel.shape[1]
        self.m1, self.m2, self.m3, self.m4 = layer.m1, layer.m2, layer.m3, layer.m4
        self.n_kernel, self.d_kernel = layer.n_kernel, layer.d_kernel
        self.layer_norm = layer.layer_norm

    def forward(self, x: Tensor) -> Tensor:
        z = self.mix_sequence(x)
        v = self.m3(F.pad(z, [0, self.features - self.width]))
        y = self.m4(activate(self.d_kernel * v, self.activation))
        return self.layer_norm(y[..., : self.width] + z)

    def mix_sequence(self, x: Tensor) -> Tensor:
        """z of x, both [..., length, width]."""
        length = x.shape[-2]
        u = F.pad(x.mT, [0, self.points - length])
        if self.is_complex:
            kernel = as_complex(self.n_kernel)
            z = torch.real(self.m2(kernel * self.m1(u.to(kernel.dtype))))
        else:
            v = activate(self.n_kernel * self.m1(u), self.sequence_activation)
            z = self.m2(v)
        return z[..., :length].mT.to(x.dtype)
