#!/usr/bin/env python3
"""Times sentence encoders in C beside PyTorch's, with the same weights, in turns.

    PYTHONPATH=build/python/tree encoder.py OUT.csv [--device cpu|cuda] [--model FOLDER]
        [--compressed FOLDER] [--sentences N] [--rounds N] [--threads N] [--tiny]

Without --model weights are random, of all-MiniLM-L6-v2's shape. --compressed is one that
`danaus compress` made of the model; it is timed too. Sentences are random ids, 8 to 63
tokens long; PyTorch gets them sorted by length, 64 at a time, padded, with its fused
attention, and on a GPU from the host and back, as danaus does. f32; on GPUs neither uses
tf32. Medians over rounds, in each of which all run. `error` is the greatest difference of
any number of the embeddings from PyTorch's.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoModel, BertConfig, BertModel

from turns import time_all

import danaus

sys.path.insert(0, str(pathlib.Path(__file__).parent / "baselines"))
import origin  # noqa: E402

FIELDS = (
    "version device torch name sentences tokens threads seconds sentences_per_second "
    "over_torch linear_parameters error"
)


def sequences_of(count: int, vocabulary: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = np.sort(rng.integers(8, 64, count))
    return [rng.integers(0, vocabulary, n).astype(np.int32) for n in lengths]


def batches_of(sequences: list[np.ndarray]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    found = []
    for i in range(0, len(sequences), 64):
        some = [torch.from_numpy(s).long() for s in sequences[i : i + 64]]
        ids = torch.nn.utils.rnn.pad_sequence(some, batch_first=True)
        long = torch.tensor([len(s) for s in some])[:, None]
        found.append((ids, (torch.arange(ids.shape[1]) < long).long()))
    return found


@torch.inference_mode()
def encode(model, batches, device: str) -> torch.Tensor:
    parts = []
    for ids, mask in batches:
        ids, mask = ids.to(device), mask.to(device)
        h = model(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask[..., None].to(h)
        mean = (h * weight).sum(1) / weight.sum(1)
        parts.append(torch.nn.functional.normalize(mean, dim=-1).cpu())
    return torch.cat(parts)


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--model")
    parser.add_argument("--compressed")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tiny", action="store_true", help="one block, one round")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        if o.model:
            reference, folder = AutoModel.from_pretrained(o.model), o.model
        else:
            config = BertConfig(
                hidden_size=384, num_hidden_layers=1 if o.tiny else 6,
                num_attention_heads=12, intermediate_size=1536,
            )  # fmt: skip
            reference = BertModel(config)
            reference.save_pretrained(folder)
        options = {} if o.device == "cuda" else {"threads": o.threads}
        device = danaus.Device("cuda:0" if o.device == "cuda" else "cpu", **options)
        models = {"danaus": danaus.Model(folder, device)}
        if o.compressed:
            models["danaus compressed"] = danaus.Model(o.compressed, device)
    reference = reference.eval().to(o.device)
    count = 20 if o.tiny else o.sentences
    sequences = sequences_of(count, reference.config.vocab_size)
    batches = batches_of(sequences)
    runs = {n: lambda m=m: m.embed_tokens(sequences) for n, m in models.items()}
    runs["PyTorch"] = lambda: encode(reference, batches, o.device)
    error = np.abs(runs["danaus"]() - runs["PyTorch"]().numpy()).max()
    seconds = time_all(runs, 1 if o.tiny else o.rounds)
    with open(o.out, "w", newline="") as file:
        table = origin.Table(file, FIELDS.split())
        table.writeheader()
        for name, s in seconds.items():
            model = models.get(name, models["danaus"])
            row = {
                "version": danaus.__version__, "device": device_name(o.device),
                "torch": torch.__version__, "name": name, "sentences": count,
                "tokens": sum(map(len, sequences)), "threads": o.threads,
                "seconds": f"{s:.4g}", "sentences_per_second": f"{count / s:.4g}",
                "over_torch": f"{s / seconds['PyTorch']:.3f}",
                "linear_parameters": model.describe().linear_parameters,
                "error": f"{error:.2g}" if name == "danaus" else "",
            }  # fmt: skip
            table.writerow(row)
            print(f"{name:18} {s * 1e3:8.1f} ms  {count / s:8.1f} sentences/s  "
                  f"{row['over_torch']} of PyTorch's time")  # fmt: skip


if __name__ == "__main__":
    main()
