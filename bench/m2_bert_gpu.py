#!/usr/bin/env python3
"""Times Monarch Mixer BERT by danaus on a GPU beside BERT-base by PyTorch, in 16 bits.

    PYTHONPATH=build/python/tree python3 bench/m2_bert_gpu.py OUT.csv [--dtype f16]
        [--tokens 131072] [--lengths 512,2048,8192] [--rounds N] [--layers N]

So many tokens at once, in sequences of one length, from ids on the host to embeddings
there: the model of 80 million numbers for 8,192 tokens with random weights by
`danaus.Model.embed_tokens`, and BERT-base by transformers with fused attention,
in turns; medians. `error` is the greatest difference of danaus' embeddings, which have
length 1, from those in f32.
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
    "version torch device dtype tokens length seconds bert_seconds bert_ratio error"
).split()
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


@torch.inference_mode()
def embed(network, ids: torch.Tensor) -> np.ndarray:
    h = network(ids.to("cuda", non_blocking=True)).last_hidden_state
    mean = h.mean(1, dtype=torch.float32)
    return torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--dtype", default="f16", choices=TYPES)
    p.add_argument("--tokens", type=int, default=131072)
    p.add_argument("--lengths", default="512,2048,8192")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--layers", type=int, default=12)
    o = p.parse_args()
    lengths = [int(n) for n in o.lengths.split(",")]
    shape = Shape(length=max(lengths), layers=o.layers)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), shape)
        model = danaus.Model(folder, "cuda:0", o.dtype)
        exact = danaus.Model(folder, "cuda:0")
    network = bert(shape.length, "sdpa").to("cuda", TYPES[o.dtype])
    with open(o.out, "w", newline="", buffering=1) as file:
        table = origin.Table(file, FIELDS)
        table.writeheader()
        for length in lengths:
            rng = np.random.default_rng(length)
            ids = rng.integers(0, 30000, (o.tokens // length, length)).astype(np.int32)
            batch, rows = torch.from_numpy(ids).long().pin_memory(), list(ids)
            runs = {"danaus": lambda rows=rows: model.embed_tokens(rows)}
            runs["bert"] = lambda batch=batch: embed(network, batch)
            error = np.abs(model.embed_tokens(rows) - exact.embed_tokens(rows)).max()
            seconds = time_all(runs, o.rounds)
            row = {
                "version": danaus.__version__, "torch": torch.__version__,
                "device": torch.cuda.get_device_name(), "dtype": o.dtype,
                "tokens": ids.size, "length": length,
                "seconds": f"{seconds['danaus']:.4g}",
                "bert_seconds": f"{seconds['bert']:.4g}",
                "bert_ratio": f"{seconds['bert'] / seconds['danaus']:.3f}",
                "error": f"{error:.2g}",
            }  # fmt: skip
            table.writerow(row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
