"""HyenaDNA in PyTorch with random weights of the true shape, and its folder for danaus.

The convolutions are products of real transforms, as PyTorch's users write them. Their
filters and the transforms of these are made once, which flatters PyTorch: its published
formulation makes them anew each time.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Name: width, layers, tokens.
SIZES = {
    "tiny-1k": (128, 2, 1026),
    "tiny-16k": (128, 2, 16386),
    "small-32k": (256, 4, 32770),
    "medium-160k": (256, 8, 160002),
    "large-1m": (256, 8, 1000002),
}
SHIFT, FEATURES, ORDER, BASES = 0.05, 5, 64, "ACGTN"


class Filter(nn.Module):
    def __init__(self, width: int, length: int):
        super().__init__()
        t = torch.linspace(0, 1, length)[:, None]
        angle = 2 * math.pi * torch.arange(length)[:, None] / length
        bands = torch.linspace(1e-4, (FEATURES - 3) / 2, (FEATURES - 1) // 2)
        z = torch.cat([t, torch.cos(bands * angle), -torch.sin(bands * angle)], 1)
        self.register_buffer("z", z)
        self.register_buffer("t", t)
        self.decay = torch.linspace(math.log(0.01) / 1.5, math.log(0.01) / 0.3, width)
        self.bias = nn.Parameter(torch.randn(width))
        self.frequency = nn.Parameter(torch.full((1, ORDER), 10.0))
        sizes = [FEATURES, ORDER, ORDER, ORDER]
        self.layers = nn.ModuleList(map(nn.Linear, sizes[:-1], sizes[1:]))
        self.last = nn.Linear(ORDER, width, bias=False)
        self.made: dict[int, Tensor] = {}

    def spectrum(self, length: int) -> Tensor:
        if length not in self.made:
            x = self.z[:length]
            for layer in self.layers:
                x = torch.sin(self.frequency * layer(x))
            window = torch.exp(-self.t[:length] * self.decay.abs()) + SHIFT
            k = (self.last(x) * window).T
            self.made[length] = torch.fft.rfft(k, 2 * length)
        return self.made[length]


class Block(nn.Module):
    def __init__(self, width: int, length: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)
        self.short = nn.Conv1d(3 * width, 3 * width, 3, padding=2, groups=3 * width)
        self.filter = Filter(width, length)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, r: Tensor) -> Tensor:
        length = r.shape[1]
        p = self.in_proj(self.norm1(r)).transpose(1, 2)
        x0, x1, v = self.short(p)[..., :length].chunk(3, 1)
        u = v * x1
        product = torch.fft.rfft(u, 2 * length) * self.filter.spectrum(length)
        y = torch.fft.irfft(product, 2 * length)[..., :length]
        y = (y + u * self.filter.bias[:, None]) * x0
        r = r + self.out_proj(y.transpose(1, 2))
        return r + self.fc2(F.gelu(self.fc1(self.norm2(r)), approximate="tanh"))


class HyenaDNA(nn.Module):
    def __init__(self, width: int, layers: int, length: int):
        super().__init__()
        self.size = width, layers, length
        self.word = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width, length) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 16, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Logarithms of the probabilities of ids[..., 1:]."""
        r = self.word(ids)
        for block in self.blocks:
            r = block(r)
        likely = F.log_softmax(self.head(self.norm(r))[:, :-1], -1)
        return likely.gather(-1, ids[:, 1:, None])[..., 0]


def make(name: str, seed: int = 0) -> HyenaDNA:
    torch.manual_seed(seed)
    return HyenaDNA(*SIZES[name]).eval()


def tensors(model: HyenaDNA) -> dict[str, Tensor]:
    """By the names of the published checkpoints."""
    found = {
        "backbone.embeddings.word_embeddings.weight": model.word.weight,
        "backbone.ln_f.weight": model.norm.weight,
        "backbone.ln_f.bias": model.norm.bias,
    }
    for i, block in enumerate(model.blocks):
        place, f = f"backbone.layers.{i}", block.filter
        parts = {"norm1": block.norm1, "norm2": block.norm2, "mlp.fc1": block.fc1}
        parts |= {"mlp.fc2": block.fc2, "mixer.in_proj": block.in_proj}
        parts |= {"mixer.out_proj": block.out_proj, "mixer.short_filter": block.short}
        network = "mixer.filter_fn.implicit_filter"
        parts |= {f"{network}.{2 * n}": layer for n, layer in enumerate(f.layers)}
        for name, part in parts.items():
            found[f"{place}.{name}.weight"] = part.weight
            found[f"{place}.{name}.bias"] = part.bias
        found[f"{place}.{network}.6.weight"] = f.last.weight
        found[f"{place}.{network}.1.freq"] = f.frequency
        found[f"{place}.mixer.filter_fn.bias"] = f.bias
        found[f"{place}.mixer.filter_fn.pos_emb.z"] = f.z[None]
        found[f"{place}.mixer.filter_fn.pos_emb.t"] = f.t[None]
        found[f"{place}.mixer.filter_fn.modulation.deltas"] = f.decay[None, None]
    found = {f"hyena.{name}": tensor for name, tensor in found.items()}
    return found | {"lm_head.weight": model.head.weight}


def write(model: HyenaDNA, folder: Path) -> None:
    """config.json, tokenizer_config.json and model.safetensors."""
    from safetensors.torch import save_file

    width, layers, length = model.size
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "hyenadna", "d_model": width, "n_layer": layers}
    config |= {"d_inner": 4 * width, "vocab_size": 12, "max_seq_len": length}
    config |= {"pad_vocab_size_multiple": 8, "emb_dim": FEATURES, "filter_order": ORDER}
    config |= {"hyena_order": 2, "num_inner_mlps": 2, "short_filter_order": 3}
    config |= {"layer_norm_epsilon": 1e-5, "activation_freq": 10}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = {"tokenizer_class": "HyenaDNATokenizer", "model_max_length": length}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    clean = {name: t.detach().contiguous() for name, t in tensors(model).items()}
    save_file(clean, folder / "model.safetensors")
