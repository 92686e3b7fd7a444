#!/usr/bin/env python3
"""Times Monarch Mixer BERT by danaus on a GPU beside BERT by PyTorch, in 16 bits.

    PYTHONPATH=build/python/tree python3 bench/m2_bert_gpu.py OUT.csv [--dtype f16]
        [--models 80M,260M] [--tokens 131072] [--lengths 512,2048,8192] [--rounds N]
        [--plain] [--layers N] [--device cuda|cpu] [--tiny]

So many tokens at once, in sequences of one length, from ids on the host to embeddings
there: a model for 8,192 tokens with random weights by `danaus.Model.embed_tokens`, and BERT
by transformers with fused attention, in turns; medians. 80M stands beside BERT-base, 260M
beside BERT-large. With --plain BERT runs without fused attention too, where memory
suffices. `error` is the greatest difference of danaus' embeddings, which have length 1,
from those in f32.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from m2_bert import bert, origin, write
from torch_m2_bert import Shape
from turns import time_all

import danaus

FIELDS = (
    "version torch device dtype model tokens length seconds bert_seconds bert_ratio "
    "plain_seconds plain_ratio error"
).split()
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
MODELS = {  # widths of M2-BERT, and what BERT has unlike BERT-base
    "80M": ((768, 3072), {}),
    "260M": (
        (1536, 6144),
        {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
         "num_attention_heads": 16},
    ),
}  # fmt: skip
TINY = (32, 64), {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4,
}  # fmt: skip


@torch.inference_mode()
def embed(network, ids: torch.Tensor) -> np.ndarray:
    h = network(ids.to(network.device, non_blocking=True)).last_hidden_state
    mean = h.mean(1, dtype=torch.float32)
    return torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()


class Models:
    """danaus' model in the type asked for and in f32, and BERT in all forms."""

    def __init__(self, o, name: str):
        (width, inner), unlike = TINY if o.tiny else MODELS[name]
        shape = Shape(width=width, inner=inner, length=max(o.lengths), layers=o.layers)
        device = "cuda:0" if o.device == "cuda" else "cpu"
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), shape)
            self.danaus = danaus.Model(folder, device, o.dtype)
            self.exact = danaus.Model(folder, device)
        self.networks = {
            key: bert(shape.length, attention, **unlike).to(o.device, TYPES[o.dtype])
            for key, attention in (("bert", "sdpa"), ("plain", "eager"))
            if key == "bert" or o.plain
        }

    def runs(self, o, rows: list, batch: torch.Tensor) -> dict:
        found = {"danaus": lambda: self.danaus.embed_tokens(rows)}
        for key, network in self.networks.items():
            try:
                embed(network, batch)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
            else:
                found[key] = lambda network=network: embed(network, batch)
        return found

    def measure(self, o, length: int) -> dict:
        rng = np.random.default_rng(length)
        count = max(1, o.tokens // length)
        ids = rng.integers(0, 30000, (count, length)).astype(np.int32)
        batch, rows = torch.from_numpy(ids).long(), list(ids)
        batch = batch.pin_memory() if o.device == "cuda" else batch
        error = self.danaus.embed_tokens(rows) - self.exact.embed_tokens(rows)
        seconds = time_all(self.runs(o, rows, batch), o.rounds)
        ours = seconds.pop("danaus")
        record = {"tokens": ids.size, "length": length, "seconds": f"{ours:.4g}"}
        for key, other in seconds.items():
            record[f"{key}_seconds"] = f"{other:.4g}"
            record[f"{key}_ratio"] = f"{other / ours:.3f}"
        return record | {"error": f"{np.abs(error).max():.2g}"}


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--dtype", default="f16", choices=TYPES)
    p.add_argument("--models", default="80M", help=",".join(MODELS))
    p.add_argument("--tokens", type=int, default=131072)
    p.add_argument("--lengths", default="512,2048,8192")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--plain", action="store_true", help="BERT without fused attention")
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--tiny", action="store_true", help="small sizes, one round")
    o = p.parse_args()
    if o.tiny:
        o.tokens, o.lengths, o.rounds, o.layers = 128, "32,64", 1, 2
        o.dtype = "f32" if o.device == "cpu" else o.dtype
    o.lengths = [int(n) for n in o.lengths.split(",")]
    return o


def main() -> None:
    o = options()
    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    start = {"version": danaus.__version__, "torch": torch.__version__}
    start |= {"device": name, "dtype": o.dtype}
    with open(o.out, "w", newline="", buffering=1) as file:
        table = origin.Table(file, FIELDS)
        table.writeheader()
        for model in o.models.split(","):
            models = Models(o, model)
            for length in o.lengths:
                row = start | {"model": model} | models.measure(o, length)
                table.writerow(row)
                print(row, flush=True)


if __name__ == "__main__":
    main()
