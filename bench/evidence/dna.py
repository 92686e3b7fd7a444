#!/usr/bin/env python3
"""DNA: what partial filters and sparse spectra cost, and sequences longer than trained.

    dna.py OUT.csv [--data FOLDER] [--device cuda|cpu] [--seeds 0,1,2] [--steps N] [--small]

A small HyenaDNA reads two genomes of E. coli and is evaluated on V. cholerae, which it never
saw. Perplexities of the next base:

    taps     filters of fewer taps: cut after training ("cut") or trained so ("trained")
    sparse   the trained filters' spectra, of which high frequencies are zero
    longer   sequences four times as long as trained, by filters of the trained length

Sources: Nguyen et al., HyenaDNA, NeurIPS 2023 (arXiv 2306.15794); Fu et al., FlashFFTConv
(arXiv 2311.05908), tables 8, 9 and 10.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import pathlib

import common
import numpy as np
import torch
from torch import Tensor, nn

from danaus.torch import models

IDS = {"A": 7, "C": 8, "G": 9, "T": 10}  # of HyenaDNA


def bases(path: pathlib.Path) -> Tensor:
    """The ids of a FASTA file; what is no base is left out."""
    lines = path.read_bytes().splitlines()
    text = np.frombuffer(b"".join(x for x in lines if x[:1] != b">"), np.uint8)
    table = np.zeros(256, np.uint8)
    for letter, number in IDS.items():
        table[[ord(letter), ord(letter.lower())]] = number
    found = table[text]
    return torch.from_numpy(found[found > 0])


def cut(genome: Tensor, places: Tensor, length: int) -> Tensor:
    at = places[:, None] + torch.arange(length, device=genome.device)
    return genome[at].long()


def step_loss(model: nn.Module, genome: Tensor, batch: int, length: int) -> Tensor:
    places = torch.randint(len(genome) - length, (batch,), device=genome.device)
    ids = cut(genome, places, length)
    return model(ids, labels=ids).loss


@torch.no_grad()
def perplexity(o, model: nn.Module, genome: Tensor, length: int, tokens: int) -> float:
    """The perplexity at the same places for all models."""
    total, batches = 0.0, 2 if o.small else 16
    spread = torch.linspace(0, len(genome) - length - 1, batches * (tokens // length))
    for places in spread.long().to(genome.device).chunk(batches):
        ids = cut(genome, places, length)
        with common.halves(o):
            total += float(model(ids, labels=ids).loss)
    return math.exp(total / batches)


def sparse(k: Tensor, kept: float) -> Tensor:
    """The filter without its highest frequencies; it is causal no more, and cut again."""
    n = k.shape[-1]
    spectrum = torch.fft.rfft(k.float(), 2 * n)
    spectrum[..., max(1, round(kept * spectrum.shape[-1])) :] = 0
    return torch.fft.irfft(spectrum, 2 * n)[..., :n].to(k)


def train(o, config, steps: int, tokens: int, genome: Tensor) -> nn.Module:
    model, length = models.HyenaDNAForCausalLM(config).to(o.device), config.max_seq_len
    common.Training(o, model, 6e-4).for_steps(
        steps, lambda: step_loss(model, genome, tokens // length, length)
    )
    return model


def main() -> None:
    o = common.options(__doc__).parse_args()
    length = 64 if o.small else 2048
    tokens, steps = (512, 2) if o.small else (65536, o.steps or 1000)
    size = {"d_model": 16, "d_inner": 32, "filter_order": 8} if o.small else {"n_layer": 4}
    size |= {"max_seq_len": length, "embed_dropout": 0.0}
    folder = pathlib.Path(o.data) / "genomes"
    seen = torch.cat([bases(path) for path in sorted(folder.glob("ecoli_*.fa"))]).to(o.device)
    held = bases(folder / "cholerae_o395.fa").to(o.device)
    record = common.Record(o, "what part steps parameters perplexity")
    shares = (1, 4, 16, 64, 256)
    for seed in o.seeds:
        numbers = {"steps": steps}
        torch.manual_seed(seed)
        config = models.HyenaDNAConfig(**size, filter_taps=length)
        model = train(o, config, steps, tokens, seen)
        numbers["parameters"] = common.parameters(model)

        def look(what: str, part: float, model=model, change=None, length=length) -> None:
            with common.changed_filters(model, change or (lambda k: k)):
                found = perplexity(o, model, held, length, tokens)
            record.add(seed, what=what, part=part, **numbers, perplexity=found)

        for share in shares:
            taps = max(1, length // share)
            look("cut", 1 / share, change=lambda k, taps=taps: k[..., :taps])
        for kept in (0.9, 0.75, 0.5, 0.25, 0.1, 0.02):
            look("sparse", kept, change=lambda k, kept=kept: sparse(k, kept))
        for share in (16, 256):
            torch.manual_seed(seed)
            config = models.HyenaDNAConfig(**size, filter_taps=max(1, length // share))
            look("trained", 1 / share, train(o, config, steps, tokens, seen))
        look("longer", 4.0, length=4 * length)
    common.summary(o, "what part", "perplexity")
    common.draw(o, plot, "DNA of a species held out")


def plot(axes, rows) -> None:
    found = common.over_seeds(rows, "what part", "perplexity")
    for what in ("cut", "trained", "sparse"):
        points = sorted((float(p), v) for (w, p), v in found.items() if w == what)
        means = [sum(v) / len(v) for _, v in points]
        axes.semilogx([p for p, _ in points], means, "-o", label=what)
    axes.set(xlabel="share of taps or frequencies kept", ylabel="perplexity")


if __name__ == "__main__":
    main()
