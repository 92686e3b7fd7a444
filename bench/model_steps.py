#!/usr/bin/env python3
"""Times a step of training of a model beside the same with torch.fft, in the same rounds.

    model_steps.py OUT.csv [--device cuda|cpu] [--models m2-bert:512,hyena:8192,...]
        [--tokens 131072] [--ways eager,compiled] [--rounds N] [--tiny]

"m2-bert" is M2-BERT-80M with the head for masked words at 15 % of the tokens, "hyena" a
language model of width 768 and 6 blocks with 50,257 words, "bytes" the same with 264,
"dna" one of width 256 and 8 blocks with 16; after the colon stands the length of sequences, after another colon other tokens of
a step. The other model has the same parameters, PyTorch's products and torch.fft
(baselines/torch_models.py). A step is a forward and a backward pass under bf16 autocast and
one of the fused AdamW. Times are medians over rounds in which both take turns, by a GPU's
own clock. The error is that of the first loss, relative.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import statistics

import torch
from gpu_conv import once, origin
from torch_models import plain

import danaus
from danaus.torch import models

FIELDS = (
    "version torch device way model length batch seconds torch_seconds ratio memory "
    "torch_memory error"
).split()


WORDS = {"m2-bert": 30000, "hyena": 50257, "bytes": 264, "dna": 16}


def make(name: str, length: int, tiny: bool) -> torch.nn.Module:
    size = {"long_conv_l_max": length} if name == "m2-bert" else {"max_seq_len": length}
    if name == "m2-bert":
        size |= {"hidden_dropout_prob": 0.0}
        if tiny:
            size |= {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 64}
            size |= {"num_hidden_layers": 2}
        return models.M2BertForMaskedLM(models.M2BertConfig(**size))
    size |= {"embed_dropout": 0.0}
    if name == "dna":
        size |= {"d_model": 256, "n_layer": 8, "d_inner": 1024}
    else:
        size |= {"d_model": 768, "n_layer": 6, "d_inner": 3072}
    size["vocab_size"] = WORDS[name]
    if tiny:
        size |= {"d_model": 32, "n_layer": 2, "d_inner": 64, "vocab_size": 64}
    return models.HyenaForCausalLM(models.HyenaConfig(**size))


class Step:
    """What trains one model on one batch."""

    def __init__(self, o, model: torch.nn.Module, inputs: dict, way: str):
        self.model, self.inputs = model.to(o.device).train(), inputs
        fused = o.device == "cuda"
        self.steps = torch.optim.AdamW(model.parameters(), 1e-4, fused=fused)
        self.call = torch.compile(self.model) if way == "compiled" else self.model
        self.device = o.device

    def __call__(self) -> torch.Tensor:
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.call(**self.inputs).loss
        loss.backward()
        self.steps.step()
        self.steps.zero_grad()
        return loss.detach()


def peak(device: str, run) -> float:
    """GiB that a call takes at most."""
    if device != "cuda":
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**30


def measure(o, name: str, length: int, tokens: int, way: str) -> dict:
    torch.manual_seed(length)
    model = make(name, length, o.tiny)
    words = 64 if o.tiny else WORDS[name]
    batch = max(1, tokens // length)
    ids = torch.randint(words, (batch, length), device=o.device)
    inputs = {"input_ids": ids, "labels": ids}
    if name != "m2-bert":
        inputs["loss_only"] = True
    else:
        places = torch.randperm(ids.numel(), device=o.device)[: ids.numel() * 3 // 20]
        inputs["label_places"] = places
    steps = [Step(o, m, inputs, way) for m in (model, plain(model))]
    losses = [float(step()) for step in steps]
    for step in steps:
        step()
    memory = [peak(o.device, step) for step in steps]
    times = [[once(o.device, step) for step in steps] for _ in range(o.rounds)]
    ours, other = (statistics.median(t) for t in zip(*times))
    return {
        "way": way, "model": name, "length": length, "batch": batch,
        "seconds": f"{ours:.4g}", "torch_seconds": f"{other:.4g}",
        "ratio": f"{statistics.median(b / a for a, b in times):.3f}",
        "memory": f"{memory[0]:.2f}", "torch_memory": f"{memory[1]:.2f}",
        "error": f"{abs(losses[0] - losses[1]) / losses[1]:.2g}",
    }  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Times steps of training.")
    parser.add_argument("out")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    usual = "m2-bert:512,m2-bert:2048,m2-bert:8192,hyena:8192:16384,dna:131072"
    parser.add_argument("--models", default=usual)
    parser.add_argument("--tokens", type=int, default=131072)
    parser.add_argument("--ways", default="eager,compiled")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def main() -> None:
    o = arguments()
    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    start = {"version": danaus.__version__, "torch": torch.__version__}
    start |= {"device": name.replace(" ", "_")}
    with open(o.out, "w", newline="") as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        for way in o.ways.split(","):
            for asked in o.models.split(","):
                kind, length, *tokens = asked.split(":")
                count = int(tokens[0]) if tokens else o.tokens
                row = start | measure(o, kind, int(length), count, way)
                print(" ".join(map(str, row.values())), flush=True)
                out.writerow(row)
                file.flush()


if __name__ == "__main__":
    main()
