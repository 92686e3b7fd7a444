#!/usr/bin/env python3
"""Pathfinder: two dots lie on one dashed curve, or on two. M2-ViT reads squares of pixels.

    pathfinder.py OUT.csv [--data FOLDER] [--device cuda|cpu] [--seeds 0,1,2] [--steps N] [--small]
        [--sizes 32,64,128] [--patch N] [--pictures N]

scikit-image makes pictures of 32 x 32 to 128 x 128 pixels, which FOLDER keeps. A token is one
pixel, or N x N: 1,024 to 16,384 tokens. A tenth of the pictures is held out. Chance is 50 %.

Sources: Linsley et al., Learning long-range spatial dependencies (arXiv 1805.08315), for
the task; Fu et al., FlashFFTConv (arXiv 2311.05908), table 7 (96.9 % at 128 x 128).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import multiprocessing
import pathlib

import common
import numpy as np
import torch
from torch import Tensor, nn

from danaus.torch import models

APART = 3  # pixels between curves
NEAR = np.stack(np.mgrid[-APART : APART + 1, -APART : APART + 1], -1).reshape(-1, 2)


class Curves:
    """A picture into which dashed curves are drawn that do not meet."""

    def __init__(self, size: int, random: np.random.Generator):
        self.size, self.random = size, random
        self.picture = np.zeros((size, size), bool)
        self.taken = np.zeros((size, size), bool)  # by curves and what is near them

    def _is_inside(self, points: np.ndarray) -> bool:
        return points.min() >= 2 and points.max() < self.size - 2

    def draw(self, dashes: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The ends of a new curve; None if there was no room."""
        from skimage.draw import line

        dash = 3 if self.size < 64 else 5
        start = self.random.uniform(3, self.size - 3, 2)
        angles = self.random.uniform(0, 2 * np.pi) + self.random.normal(0, 0.35, dashes).cumsum()
        toward = np.stack([np.sin(angles), np.cos(angles)], 1)
        after = start + (dash + 2) * toward.cumsum(0)  # of each dash and the gap behind it
        at = np.concatenate([start[None], after[:-1]])
        if not self._is_inside(after.round()):
            return None
        pixels, all_points = [], []
        for begin, end, gap in np.stack([at, at + dash * toward, after], 1).round().astype(int):
            whole = np.stack(line(*begin, *gap), 1)
            if not self._is_inside(whole) or self.taken[tuple(whole.T)].any():
                return None
            pixels.append(np.stack(line(*begin, *end), 1))
            all_points.append(whole)
        last = at[-1] + dash * toward[-1]
        self.picture[tuple(np.concatenate(pixels).T)] = True
        near = np.concatenate(all_points)[:, None] + NEAR
        self.taken[tuple(near.clip(0, self.size - 1).reshape(-1, 2).T)] = True
        return start, last

    def dot(self, at: np.ndarray) -> None:
        from skimage.draw import disk

        self.picture[disk(at, 2.2, shape=self.picture.shape)] = True


def picture(size: int, number: int) -> tuple[np.ndarray, bool]:
    """Number `number` of this size, and True if one curve joins its dots."""
    random = np.random.default_rng((size, number))
    long, short, others = (5, 2, 3) if size < 64 else (size // 11, 3, 6 * size // 64)
    joined = bool(number % 2)
    while True:
        curves = Curves(size, random)
        ends = []
        for _ in range(40):
            found = curves.draw(long)
            if found:
                ends.append(found)
            if len(ends) == 2:
                break
        else:
            continue
        for _ in range(4 * others):
            curves.draw(short)
        (first, last), (other, _) = ends
        curves.dot(first)
        curves.dot(last if joined else other)
        return curves.picture, joined


def pictures(folder: str, size: int, count: int) -> tuple[Tensor, Tensor]:
    """[count, 1, size, size] and classes, made if the folder has none."""
    path = pathlib.Path(folder) / f"pathfinder_{size}_{count}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with multiprocessing.Pool() as pool:
            made = pool.map(functools.partial(picture, size), range(count), 64)
        bits = np.packbits(np.stack([x for x, _ in made]).reshape(count, -1), axis=1)
        np.savez_compressed(path, bits=bits, joined=np.array([y for _, y in made]))
    found = np.load(path)
    x = np.unpackbits(found["bits"], axis=1).reshape(count, 1, size, size)
    return torch.from_numpy(x), torch.from_numpy(found["joined"]).long()


def make(size: int, patch: int, small: bool) -> nn.Module:
    width, layers = (16, 1) if small else (128, 6)
    config = models.M2ViTConfig(
        hidden_size=width, num_hidden_layers=layers, intermediate_size=2 * width,
        image_size=size, patch_size=patch, num_channels=1, num_labels=2, hyena_emb_dim=33,
        residual_long_conv=True, drop_path_rate=0.0,
    )  # fmt: skip
    return models.M2ViTForImageClassification(config)


@torch.no_grad()
def accuracy(o, model: nn.Module, x: Tensor, labels: Tensor, batch: int) -> float:
    right = 0
    for some, wanted in zip(x.split(batch), labels.split(batch)):
        with common.halves(o):
            right += int((model(some.float()).logits.argmax(1) == wanted).sum())
    return 100 * right / len(x)


def main() -> None:
    parser = common.options(__doc__)
    parser.add_argument("--sizes", type=common.numbers, default="32,64,128")
    parser.add_argument("--patch", type=int, default=1)
    parser.add_argument("--pictures", type=int, default=8000)
    o = parser.parse_args()
    tokens, steps, count = (4096, 6, 40) if o.small else (65536, o.steps or 2000, o.pictures)
    record = common.Record(o, "size patch pictures steps parameters accuracy")
    for size in [32] if o.small else o.sizes:
        x, labels = (t.to(o.device) for t in pictures(o.data, size, count))
        held, batch = count // 10, max(1, tokens * o.patch**2 // size**2)
        for seed in o.seeds:
            torch.manual_seed(seed)
            model = make(size, o.patch, o.small)

            def loss(model=model, x=x, labels=labels) -> Tensor:
                some = torch.randint(held, len(x), (batch,), device=o.device)
                shown = x[some].float()
                for axis in (2, 3):
                    shown = shown.flip(axis) if torch.rand(()) < 0.5 else shown
                return model(shown, labels=labels[some]).loss

            def look(done: int, model=model, x=x, labels=labels, size=size, seed=seed) -> None:
                found = accuracy(o, model, x[:held], labels[:held], batch)
                numbers = {"pictures": count, "parameters": common.parameters(model)}
                record.add(
                    seed, size=size, patch=o.patch, steps=done, **numbers, accuracy=found
                )

            training = common.Training(o, model, 1e-3, decay=0.05)
            training.for_steps(steps, loss, max(1, steps // 10), look)
    common.summary(o, "size steps", "accuracy")
    common.draw(o, plot, "Pathfinder-like pictures")


def plot(axes, rows) -> None:
    for (size, seed), values in common.over_seeds(rows, "size seed", "accuracy").items():
        steps = [int(r["steps"]) for r in rows if (r["size"], r["seed"]) == (size, seed)]
        axes.plot(steps, values, label=f"{size} x {size}, seed {seed}")
    axes.axhline(50, color="gray", label="chance")
    axes.set(xlabel="steps", ylabel="right, %")


if __name__ == "__main__":
    main()
