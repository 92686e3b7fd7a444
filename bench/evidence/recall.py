#!/usr/bin/env python3
"""Associative recall: a key is shown again, and its value is asked for.

    recall.py OUT.csv [--device cuda|cpu] [--seeds 0,1,2] [--steps N] [--small]

A sequence is pairs of one of 20 keys and its value, which is drawn for the sequence, then a
key. A Hyena model of two layers is trained on lengths of 512 to 8,192 tokens, on all keys
that were seen before, and evaluated at the last token of lengths up to 131,072, with its
whole filters and with their first taps alone, as many as were trained.

Source: Fu et al., Monarch Mixer, NeurIPS 2023 (arXiv 2310.12109), table 16 (98.7 to 99.4 %).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import common
import torch
from torch import Tensor, nn

from danaus.torch import models

KEYS = 20


def sequences(batch: int, length: int, device: str) -> tuple[Tensor, Tensor]:
    """ids [batch, length] that end with a key, and what follows each token, or -100 if
    nothing told it before."""
    pairs = length // 2 + 1
    values = torch.randint(KEYS, 2 * KEYS, (batch, KEYS), device=device)
    keys = torch.randint(KEYS, (batch, pairs), device=device)
    answers = values.gather(1, keys)
    known = nn.functional.one_hot(keys, KEYS).cumsum(1).gather(2, keys[..., None])[..., 0] > 1
    known[:, -1] = True
    nothing = keys.new_full(keys.shape, -100)
    ids = torch.stack([keys, answers], 2).flatten(1)
    asked = torch.stack([answers.masked_fill(~known, -100), nothing], 2).flatten(1)
    end = 2 * pairs - 1
    return ids[:, end - length : end], asked[:, end - length : end]


def loss(model: nn.Module, batch: int, length: int, device: str) -> Tensor:
    ids, asked = sequences(batch, length, device)
    logits = model(ids).logits
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), asked.flatten())


@torch.no_grad()
def accuracy(o, model: nn.Module, length: int, tokens: int) -> float:
    batch, right, seen = max(1, tokens // length), 0, 0
    while seen < (16 if o.small else 256):
        ids, asked = sequences(batch, length, o.device)
        with common.halves(o):
            found = model(ids).logits[:, -1].argmax(1)
        right += int((found == asked[:, -1]).sum())
        seen += batch
    return 100 * right / seen


def main() -> None:
    o = common.options(__doc__).parse_args()
    trained = [64, 128] if o.small else [512, 1024, 2048, 4096, 8192]
    asked = [64, 256] if o.small else [512, 2048, 8192, 32768, 131072]
    tokens, steps = (1024, 5) if o.small else (65536, o.steps or 2500)
    size = {"d_model": 16, "filter_order": 16} if o.small else {"d_model": 128}
    size |= {"n_layer": 2, "d_inner": 4 * size["d_model"], "vocab_size": 2 * KEYS}
    config = models.HyenaConfig(**size, max_seq_len=asked[-1] + 1, embed_dropout=0.0)
    record = common.Record(o, "steps parameters taps length accuracy")
    for seed in o.seeds:
        torch.manual_seed(seed)
        model = models.HyenaForCausalLM(config).to(o.device)

        def step() -> Tensor:
            length = trained[int(torch.randint(len(trained), ()))]
            return loss(model, tokens // length, length, o.device)

        common.Training(o, model, 1e-3).for_steps(steps, step)
        for taps in (trained[-1], config.max_seq_len):
            with common.changed_filters(model, lambda k: k[..., :taps]):
                for length in asked:
                    found = accuracy(o, model, length, tokens)
                    numbers = {"steps": steps, "parameters": common.parameters(model)}
                    record.add(seed, **numbers, taps=taps, length=length, accuracy=found)
    common.summary(o, "taps length", "accuracy")
    common.draw(o, plot, "Associative recall")


def plot(axes, rows) -> None:
    found = common.over_seeds(rows, "taps length", "accuracy")
    for taps in sorted({int(t) for t, _ in found}):
        points = [(int(n), v) for (t, n), v in found.items() if int(t) == taps]
        lengths = [n for n, _ in points]
        means = [sum(v) / len(v) for _, v in points]
        axes.semilogx(lengths, means, "-o", base=2, label=f"{taps} taps")
        low, high = [min(v) for _, v in points], [max(v) for _, v in points]
        axes.fill_between(lengths, low, high, alpha=0.2)
    axes.set(xlabel="tokens", ylabel="right answers, %")


if __name__ == "__main__":
    main()
