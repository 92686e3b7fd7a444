#!/usr/bin/env python3
"""Text at a fixed time, and models of text at equal parameters.

    text.py OUT.csv [--data FOLDER] [--device cuda|cpu] [--seeds 0,1,2] [--minutes M] [--small]
        [--models hyena,m2-gpt,transformer,m2-bert,bert]

Bytes of text.txt, the last twentieth held out; perplexities are those of a byte.

    hyena                      and hyena-torch.fft: the same Hyena with the convolutions of danaus and of torch.fft,
                               for the same time
    m2-gpt, transformer        for the same steps
    m2-bert, bert              masked bytes, for the same steps

Sources: Fu et al., FlashFFTConv (arXiv 2311.05908), table 1; Monarch Mixer, NeurIPS 2023
(arXiv 2310.12109), tables 2 and 8.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import pathlib

import common
import numpy as np
import torch
from torch import Tensor, nn
from torch_models import plain

from danaus.torch import models

MODELS = "hyena m2-gpt transformer m2-bert bert".split()
WORDS, MASK = 256, 1  # the byte 1 is in no text


class Attention(nn.Module):
    """A transformer of pre-norm blocks with learned positions; causal or not."""

    def __init__(self, width: int, layers: int, length: int, causal: bool):
        super().__init__()
        self.word = nn.Embedding(WORDS, width)
        self.place = nn.Embedding(length, width)
        usual = {"batch_first": True, "norm_first": True, "dropout": 0.0}
        heads = max(1, width // 64)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", **usual)
            for _ in range(layers)
        )
        self.norm, self.causal = nn.LayerNorm(width), causal
        for table in (self.word, self.place):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        n = ids.shape[1]
        h = self.word(ids) + self.place.weight[:n]
        mask = nn.Transformer.generate_square_subsequent_mask(n, device=ids.device)
        for layer in self.layers:
            h = layer(h, src_mask=mask if self.causal else None, is_causal=self.causal)
        return self.norm(h) @ self.word.weight.T


def hyena(width: int, layers: int, length: int, **more: int) -> nn.Module:
    return models.HyenaForCausalLM(
        models.HyenaConfig(
            vocab_size=WORDS, d_model=width, n_layer=layers, max_seq_len=length,
            embed_dropout=0.0, **more,
        )  # fmt: skip
    )


def m2_bert(width: int, layers: int, length: int) -> nn.Module:
    return models.M2BertForMaskedLM(
        models.M2BertConfig(
            vocab_size=WORDS, hidden_size=width, num_hidden_layers=layers,
            intermediate_size=4 * width, long_conv_l_max=length, hidden_dropout_prob=0.0,
        )  # fmt: skip
    )


def logits(model: nn.Module, ids: Tensor) -> Tensor:
    found = model(ids)
    return found if isinstance(found, Tensor) else found.logits


class Text:
    def __init__(self, o, tokens: int, length: int):
        found = np.fromfile(pathlib.Path(o.data) / "text.txt", np.uint8)
        self.ids = torch.from_numpy(found).to(o.device)
        self.batch, self.length, self.o = tokens // length, length, o
        self.seen = int(0.95 * len(found))

    def cut(self, places: Tensor) -> Tensor:
        at = places[:, None] + torch.arange(self.length + 1, device=places.device)
        return self.ids[at].long()

    def some(self) -> Tensor:
        most = self.seen - self.length - 1
        return self.cut(torch.randint(most, (self.batch,), device=self.ids.device))

    def held(self) -> list[Tensor]:
        batches = 2 if self.o.small else 8
        last = len(self.ids) - self.length - 1
        places = torch.linspace(self.seen, last, batches * self.batch).long()
        return [self.cut(part) for part in places.to(self.ids.device).chunk(batches)]


def next_loss(model: nn.Module, ids: Tensor) -> Tensor:
    found = logits(model, ids[:, :-1]).flatten(0, 1).float()
    return nn.functional.cross_entropy(found, ids[:, 1:].flatten())


def masked_loss(model: nn.Module, ids: Tensor) -> Tensor:
    ids = ids[:, :-1]
    asked = torch.rand(ids.shape, device=ids.device) < 0.15
    found = logits(model, ids.masked_fill(asked, MASK))
    return nn.functional.cross_entropy(found[asked].float(), ids[asked])


@torch.no_grad()
def perplexity(text: Text, model: nn.Module, loss) -> float:
    state = torch.get_rng_state(), torch.cuda.get_rng_state() if text.ids.is_cuda else None
    torch.manual_seed(1)  # the same masks
    with common.halves(text.o):
        found = [float(loss(model, ids)) for ids in text.held()]
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])
    return math.exp(sum(found) / len(found))


def train_for(o, record, seed: int, name: str, model: nn.Module, text: Text) -> None:
    training = common.Training(o, model, 6e-4)
    training.for_steps(3, lambda: next_loss(model, text.some()))  # kernels compile
    look = lambda: perplexity(text, model, next_loss)  # noqa: E731
    seconds = 1 if o.small else 60 * o.minutes
    seen = training.for_seconds(
        seconds, lambda: next_loss(model, text.some()), seconds / 20, look
    )
    for spent, found, steps in seen:
        numbers = {"steps": steps, "parameters": common.parameters(model)}
        record.add(seed, model=name, **numbers, seconds=spent, perplexity=found)


def main() -> None:
    parser = common.options(__doc__)
    parser.add_argument("--minutes", type=float, default=0.6)
    parser.add_argument("--models", default=",".join(MODELS))
    o = parser.parse_args()
    chosen = o.models.split(",")
    if unknown := set(chosen) - set(MODELS):
        parser.error(f"--models knows {', '.join(MODELS)}, not {', '.join(sorted(unknown))}")
    width, layers, length, tokens, steps = 512, 6, 8192, 65536, o.steps or 200
    if o.small:
        width, layers, length, tokens, steps = 32, 2, 128, 512, 3
    record = common.Record(o, "model steps parameters seconds perplexity")
    long, short = Text(o, tokens, length), Text(o, tokens, min(length, 1024))
    for seed in o.seeds:
        if "hyena" in chosen:
            torch.manual_seed(seed)
            model = hyena(width, layers, length, d_inner=4 * width)
            other = plain(model)
            train_for(o, record, seed, "hyena", model, long)
            train_for(o, record, seed, "hyena-torch.fft", other, long)
        n = short.length
        compared = {
            "m2-gpt": (lambda: hyena(width, 3 * layers, n, head_dim=16), next_loss),
            "transformer": (lambda: Attention(width, layers, n, True), next_loss),
            "m2-bert": (lambda: m2_bert(width, layers + layers // 3, n), masked_loss),
            "bert": (lambda: Attention(width, layers, n, False), masked_loss),
        }
        for name in [x for x in compared if x in chosen]:
            make, loss = compared[name]
            torch.manual_seed(seed)
            model = make()
            training = common.Training(o, model, 6e-4)
            training.for_steps(steps, lambda m=model, f=loss: f(m, short.some()))
            numbers = {"steps": steps, "parameters": common.parameters(model), "seconds": 0}
            found = perplexity(short, model, loss)
            record.add(seed, model=name, **numbers, perplexity=found)
    rows = common.read(o.out)
    for seed in o.seeds if "hyena" in chosen else []:
        print(f"seed {seed}: torch.fft's last perplexity after {share_of_time(rows, seed):.2f}")
    common.draw(o, plot, "Text at a fixed time")


def share_of_time(rows, seed: int) -> float:
    """The share of torch.fft's time in which danaus gets to its last perplexity, interpolated."""
    ours, other = (
        [
            (float(r["seconds"]), float(r["perplexity"]))
            for r in rows
            if r["model"] == name and int(r["seed"]) == seed
        ]
        for name in ("hyena", "hyena-torch.fft")
    )
    end, wanted = other[-1]
    before = ours[0]
    for now in ours:
        if now[1] <= wanted:
            part = 1.0 if now == before else (before[1] - wanted) / (before[1] - now[1])
            return (before[0] + part * (now[0] - before[0])) / end
        before = now
    return math.inf


def plot(axes, rows) -> None:
    for name in ("hyena", "hyena-torch.fft"):
        label: str | None = name
        for seed in sorted({r["seed"] for r in rows}):
            line = [r for r in rows if r["model"] == name and r["seed"] == seed]
            color = "tab:blue" if name == "hyena" else "tab:orange"
            times = [float(r["seconds"]) for r in line]
            found = [float(r["perplexity"]) for r in line]
            axes.semilogy(times, found, color=color, label=label)
            label = None
    axes.set(xlabel="seconds of training", ylabel="perplexity of a byte")


if __name__ == "__main__":
    main()
