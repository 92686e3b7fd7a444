"""Monarch Mixer BERT in PyTorch, as its authors formulate it: filters are made by their
networks in every pass, long convolutions are products of transforms of twice the length.
Names of weights are those of published checkpoints."""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; by default those of the base model of 80 million numbers."""

    width: int = 768
    inner: int = 3072
    layers: int = 12
    blocks: int = 4
    vocabulary: int = 30528
    length: int = 128
    order: int = 128
    features: int = 5
    normed: bool = False  # hyena_training_additions

    def config(self) -> dict:
        """config.json of such a model."""
        return {
            "model_type": "m2_bert", "hidden_size": self.width,
            "intermediate_size": self.inner, "num_hidden_layers": self.layers,
            "vocab_size": self.vocabulary, "type_vocab_size": 2,
            "max_position_embeddings": self.length, "long_conv_l_max": self.length,
            "hyena_filter_order": self.order, "hyena_emb_dim": self.features,
            "hidden_act": "gelu", "layer_norm_eps": 1e-12, "bidirectional": True,
            "residual_long_conv": True, "use_glu_mlp": True, "use_monarch_mlp": True,
            "monarch_mlp_nblocks": self.blocks,
            "hyena_training_additions": self.normed,
        }  # fmt: skip


class Sine(nn.Module):
    """sin(freq x), whose frequencies all sines of a filter share."""

    def __init__(self, freq: nn.Parameter):
        super().__init__()
        self.freq = freq

    def forward(self, x):
        return torch.sin(self.freq * x)


class Positions(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        bands = (shape.features - 1) // 2
        s = torch.arange(shape.length, dtype=torch.float64)[:, None]
        angle = torch.linspace(1e-4, bands - 1, bands, dtype=torch.float64) * s
        angle = angle * 2 * math.pi / shape.length
        t = s / (shape.length - 1)
        z = torch.cat([t, angle.cos(), -angle.sin()], 1)
        self.z = nn.Parameter(z[None].float())
        self.register_buffer("t", t[None].float())


class Window(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        ends = math.log(0.01) / 1.5, math.log(0.01) / 0.3
        self.register_buffer("deltas", torch.linspace(*ends, width)[None, None])

    def forward(self, t, k):
        return k * torch.exp(-t * self.deltas.abs())


class Filter(nn.Module):
    """A bidirectional long convolution, channels last, with its implicit filters."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(shape.width))
        self.pos_emb, self.modulation = Positions(shape), Window(shape.width)
        freq = nn.Parameter(torch.full((1, shape.order), 10.0))
        self.implicit_filter = self._network(shape, freq)
        self.implicit_filter_rev = self._network(shape, freq)

    @staticmethod
    def _network(shape: Shape, freq: nn.Parameter) -> nn.Sequential:
        inner = (nn.Linear(shape.order, shape.order), Sine(freq))
        return nn.Sequential(
            nn.Linear(shape.features, shape.order), Sine(freq), *inner,
            nn.Linear(shape.order, shape.order), Sine(freq),
            nn.Linear(shape.order, shape.width, bias=False),
        )  # fmt: skip

    def values(self, network, length: int):
        z, t = self.pos_emb.z[:, :length], self.pos_emb.t[:, :length]
        return self.modulation(t, network(z))[0].T

    def forward(self, x):
        n = x.shape[-1]
        forward = self.values(self.implicit_filter, n)
        reverse = self.values(self.implicit_filter_rev, n)
        k = F.pad(forward, (0, n)) + F.pad(reverse.flip(-1), (n, 0))
        y = torch.fft.rfft(x, 2 * n) * torch.fft.rfft(k, 2 * n)
        return torch.fft.irfft(y, 2 * n)[..., :n] + x * self.bias[:, None]


class Mixer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        width = shape.width
        self.in_linear = nn.Linear(width, 3 * width)
        self.out_linear = nn.Linear(width, width)
        self.short_filter = nn.Conv1d(3 * width, 3 * width, 3, groups=3 * width, padding=2)
        self.filter_fn, self.filter_fn2 = Filter(shape), Filter(shape)
        if shape.normed:
            self.layernorm = nn.LayerNorm(width)

    def forward(self, h):
        u = self.layernorm(h) if hasattr(self, "layernorm") else h
        p = self.short_filter(self.in_linear(u).mT)[..., : h.shape[1]]
        x1, x2, v = p.chunk(3, 1)
        y = x2 * self.filter_fn(x1 * v) + self.filter_fn2(u.mT)
        return self.out_linear(y.mT)


class BlockDiagonal(nn.Module):
    def __init__(self, blocks: int, rows: int, cols: int, bias: bool):
        super().__init__()
        shape = blocks, rows // blocks, cols // blocks
        bound = (cols // blocks) ** -0.5
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(rows)) if bias else None

    def forward(self, x):
        blocks, _, cols = self.weight.shape
        x = x.reshape(-1, blocks, cols).transpose(0, 1)
        y = torch.bmm(x, self.weight.mT).transpose(0, 1).flatten(1)
        return y if self.bias is None else y + self.bias


class Mlp(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        blocks, width, inner = shape.blocks, shape.width, shape.inner
        self.gated_layers = BlockDiagonal(blocks, 2 * inner, width, bias=False)
        self.wo = BlockDiagonal(blocks, width, inner, bias=True)
        self.layernorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, a):
        q1, q2 = self.gated_layers(a.flatten(0, 1)).chunk(2, 1)
        return self.layernorm(self.wo(F.gelu(q1) * q2).view_as(a) + a)


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.attention, self.mlp = Mixer(shape), Mlp(shape)

    def forward(self, h):
        return self.mlp(self.attention(h))


class Embeddings(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.word_embeddings = nn.Embedding(shape.vocabulary, shape.width)
        self.position_embeddings = nn.Embedding(shape.length, shape.width)
        self.token_type_embeddings = nn.Embedding(2, shape.width)
        self.LayerNorm = nn.LayerNorm(shape.width, eps=1e-12)

    def forward(self, ids):
        h = self.word_embeddings(ids) + self.token_type_embeddings.weight[0]
        return self.LayerNorm(h + self.position_embeddings.weight[: ids.shape[1]])


class M2Bert(nn.Module):
    """Rows [batch][length][width] of tokens [batch][length]."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.embeddings = Embeddings(shape)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(Layer(shape) for _ in range(shape.layers))

    def forward(self, ids):
        h = self.embeddings(ids)
        for layer in self.encoder.layer:
            h = layer(h)
        return h


def random_model(shape: Shape, seed: int = 0) -> M2Bert:
    """A model with the authors' initial numbers, but filters whose sums fit into f16."""
    torch.manual_seed(seed)
    model = M2Bert(shape)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for name, weight in model.named_parameters():
        if re.search(r"implicit_filter(_rev)?\.6\.weight", name):
            weight.data /= math.sqrt(shape.length)
    return model.eval()


def tensors(model: M2Bert) -> dict[str, torch.Tensor]:
    """What a file of weights holds: shared numbers once."""
    found, seen = {}, set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            found[f"bert.{name}"] = tensor.contiguous()
        seen.add(tensor.data_ptr())
    return found
