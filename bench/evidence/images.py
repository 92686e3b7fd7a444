#!/usr/bin/env python3
"""Images: 5,000 digits by ViT, with Monarch layers, with Hyena operators, by Monarch Mixer.

    images.py OUT.csv [--data FOLDER] [--device cuda|cpu] [--seeds 0,1,2] [--steps N] [--small]
        [--models vit,m2-vit,...]

All have width 128, six blocks and patches of 4 x 4; 4,000 digits are for training, the other
thousand for the accuracy. "mixer" is blocks of equations 2 and 3 of Monarch Mixer, whose
Monarch matrices are Fourier transforms that stay ("fixed") or begin as such and are learned.

Source: Fu et al., Monarch Mixer, NeurIPS 2023 (arXiv 2310.12109), tables 14 and 15.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import pathlib

import common
import numpy as np
import torch
from torch import Tensor, nn

from danaus.torch import MonarchMixerLayer, models

SIZE, PATCH, CLASSES = 28, 4, 10


class Mixer(nn.Module):
    """Rows of patches through layers of Monarch Mixer."""

    def __init__(self, width: int, layers: int, learned: bool):
        super().__init__()
        tokens = (SIZE // PATCH) ** 2
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        side = math.isqrt(2 * tokens - 2) + 1  # no pixel wraps around
        more = {"start": "dft", "learn_sequence": learned, "blocks": (side, side)}
        made = [MonarchMixerLayer(width, tokens, activation="gelu", **more) for _ in range(layers)]
        self.layers = nn.Sequential(*made)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).mT
        return self.head(self.norm(self.layers(h)).mean(1))


def make(kind: str, width: int, layers: int) -> nn.Module:
    size = {
        "hidden_size": width, "num_hidden_layers": layers, "intermediate_size": 4 * width,
        "image_size": SIZE, "patch_size": PATCH, "num_channels": 1, "num_labels": CLASSES,
    }  # fmt: skip
    heads = {"num_attention_heads": 4}
    if kind == "vit":
        return models.MonarchViTForImageClassification(models.MonarchViTConfig(**size, **heads))
    if kind == "monarch-vit":
        config = models.MonarchViTConfig(**size, **heads, monarch_blocks=4)
        return models.MonarchViTForImageClassification(config)
    if kind == "hyena-vit":
        return models.HyenaViTForImageClassification(models.HyenaViTConfig(**size))
    if kind == "m2-vit":
        return models.M2ViTForImageClassification(models.M2ViTConfig(**size))
    return Mixer(width, layers, learned=kind == "mixer-learned")


KINDS = "vit", "monarch-vit", "hyena-vit", "m2-vit", "mixer-fixed", "mixer-learned"


def digits(folder: str) -> tuple[Tensor, Tensor]:
    numbers = np.loadtxt(pathlib.Path(folder) / "digits.csv", delimiter=",", dtype=np.float32)
    x = torch.from_numpy(numbers[:, :-1]).view(-1, 1, SIZE, SIZE) / 255
    return (x - x.mean()) / x.std(), torch.from_numpy(numbers[:, -1]).long()


def shifted(x: Tensor) -> Tensor:
    """By up to two pixels along both sides."""
    right, down = (int(n) for n in torch.randint(-2, 3, (2,)))
    return x.roll((down, right), (2, 3))


def scores(model: nn.Module, x: Tensor) -> Tensor:
    found = model(x)
    return (found if isinstance(found, Tensor) else found.logits).float()


def main() -> None:
    parser = common.options(__doc__)
    parser.add_argument("--models", default=",".join(KINDS))
    o = parser.parse_args()
    x, labels = (t.to(o.device) for t in digits(o.data))
    width, layers, batch, steps = (32, 2, 16, 3) if o.small else (128, 6, 128, o.steps or 1000)
    record = common.Record(o, "model steps parameters accuracy")
    for seed in o.seeds:
        torch.manual_seed(seed)
        order = torch.randperm(len(x)).to(o.device)
        held, seen = order[:1000], order[1000:]
        for kind in o.models.split(","):
            torch.manual_seed(seed)
            model = make(kind, width, layers)

            def loss(model=model) -> Tensor:
                some = seen[torch.randint(len(seen), (batch,), device=o.device)]
                found = scores(model, shifted(x[some]))
                return nn.functional.cross_entropy(found, labels[some], label_smoothing=0.1)

            common.Training(o, model, 1e-3, decay=0.05).for_steps(steps, loss)
            with torch.no_grad():
                right = (scores(model, x[held]).argmax(1) == labels[held]).float().mean()
            numbers = {"steps": steps, "parameters": common.parameters(model)}
            record.add(seed, model=kind, **numbers, accuracy=100 * float(right))
    common.summary(o, "model", "accuracy")
    common.draw(o, plot, "5,000 digits, a fifth held out")


def plot(axes, rows) -> None:
    found = common.over_seeds(rows, "model parameters", "accuracy")
    for (model, parameters), values in found.items():
        axes.plot([int(parameters)] * len(values), values, "o", label=model)
    axes.set(xlabel="parameters", ylabel="right, %", xscale="log")


if __name__ == "__main__":
    main()
