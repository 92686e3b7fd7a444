#!/usr/bin/env python3
"""Times ViT-S/16 in C, dense, with the chains of arXiv 2405.15013, and compressed to 30 % of the
weights of its blocks (by these alone), and in PyTorch, in turns.

    PYTHONPATH=build/python/tree vit.py OUT.csv [--batch 8] [--rounds 15] [--threads N]
        [--tiny]

Weights are random, of true shape; the dense model and PyTorch's have the same. Whole
forward passes from pixels to scores in f32; medians over rounds, in each of which all
run. `error` is that of the dense model's scores against PyTorch's, relative in L2.
PyTorch's is ViTForImageClassification of transformers, with its fused attention.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import ViTConfig, ViTForImageClassification

from turns import time_all

import danaus

sys.path.insert(0, str(pathlib.Path(__file__).parent / "baselines"))
import origin  # noqa: E402

CHAINS = {
    (384, 384): ((1, 192, 48, 2), (2, 48, 192, 1)),
    (1536, 384): ((1, 768, 192, 2), (6, 64, 64, 1)),
    (384, 1536): ((1, 128, 128, 3), (6, 64, 256, 1)),
}
FIELDS = (
    "version torch name batch threads seconds images_per_second over_danaus_dense "
    "linear_parameters error"
)


def with_chains(dense: pathlib.Path, folder: pathlib.Path) -> None:
    """The model with random chains for the linear layers of its blocks."""
    folder.mkdir()
    rng, found = np.random.default_rng(0), {}
    for name, w in load_file(dense / "model.safetensors").items():
        chain = CHAINS.get(w.shape) if ".layer." in name else None
        if chain is None:
            found[name] = w
            continue
        for i, (a, b, c, d) in enumerate(chain):
            numbers = rng.standard_normal((a, b, c, d), np.float32) / np.sqrt(c)
            found[f"{name}s.{i}"] = numbers
    save_file(found, folder / "model.safetensors")
    (folder / "config.json").write_text((dense / "config.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tiny", action="store_true", help="two blocks, two rounds")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=384, num_attention_heads=6, intermediate_size=1536,
        num_hidden_layers=2 if o.tiny else 12, num_labels=1000,
    )  # fmt: skip
    reference = ViTForImageClassification(config).eval()
    x = torch.randn(o.batch, 3, 224, 224)
    with tempfile.TemporaryDirectory() as place:
        dense, chains = pathlib.Path(place) / "dense", pathlib.Path(place) / "chains"
        reference.save_pretrained(dense)
        with_chains(dense, chains)
        device = danaus.Device("cpu", threads=o.threads)
        models = {"danaus dense": danaus.Model(dense, device)}
        models["danaus chains"] = danaus.Model(chains, device)
        models["danaus compressed"] = danaus.Model(dense, device)
        models["danaus compressed"].compress(params=0.3)
    pixels = x.numpy()
    runs = {name: lambda m=m: m.classify(pixels) for name, m in models.items()}
    with torch.inference_mode():
        runs["PyTorch"] = lambda: reference(x).logits
        found, wanted = runs["danaus dense"](), runs["PyTorch"]().numpy()
        seconds = time_all(runs, 2 if o.tiny else o.rounds)
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    with open(o.out, "w", newline="") as file:
        table = origin.Table(file, FIELDS.split())
        table.writeheader()
        for name, s in seconds.items():
            model = models.get(name, models["danaus dense"])
            row = {
                "version": danaus.__version__, "torch": torch.__version__, "name": name,
                "batch": o.batch, "threads": o.threads, "seconds": f"{s:.4g}",
                "images_per_second": f"{o.batch / s:.4g}",
                "over_danaus_dense": f"{s / seconds['danaus dense']:.3f}",
                "linear_parameters": model.describe().linear_parameters,
                "error": f"{error:.2g}" if name == "danaus dense" else "",
            }  # fmt: skip
            table.writerow(row)
            print(f"{name:17} {s * 1e3:8.1f} ms  {o.batch / s:7.1f} images/s  "
                  f"{row['over_danaus_dense']} of danaus dense")  # fmt: skip


if __name__ == "__main__":
    main()
