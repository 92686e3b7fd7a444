#!/usr/bin/env python3
"""Times ViT-S/16 in C and in PyTorch: dense, with the chains of arXiv 2405.15013, and
in C compressed to 30 % of the weights of its blocks (by these alone).

    PYTHONPATH=build/python/tree vit.py OUT.csv [--batch 8] [--rounds 15] [--threads N]
        [--device cpu|cuda] [--type f32|f16|bf16] [--tiny]

Weights are random, of true shape; the dense model and PyTorch's have the same, and so
have both networks of chains, of which "PyTorch chains" is PyTorch's with
`danaus.torch.KSLinear`. Whole forward passes from pixels to scores, both on the host;
medians over rounds, in each of which all run. `error` is that of scores against those
of PyTorch with the same weights, relative in L2. PyTorch's is ViTForImageClassification
of transformers, with its fused attention. Models are compressed on CPUs alone.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import copy
import pathlib
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import ViTConfig, ViTForImageClassification
from turns import time_all

import danaus
from danaus.torch import KSLinear, freeze

sys.path.insert(0, str(pathlib.Path(__file__).parent / "baselines"))
import origin  # noqa: E402

CHAINS = {
    (384, 384): ((1, 192, 48, 2), (2, 48, 192, 1)),
    (1536, 384): ((1, 768, 192, 2), (6, 64, 64, 1)),
    (384, 1536): ((1, 128, 128, 3), (6, 64, 256, 1)),
}
FIELDS = (
    "version torch device dtype name batch threads seconds images_per_second "
    "over_danaus_dense linear_parameters error"
)
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


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


def as_chains(network: torch.nn.Module, dense: pathlib.Path, folder: pathlib.Path):
    """PyTorch's network with the chains of the model in a folder. Its own names of
    layers depend on the version of transformers: layers are found by their weights."""
    network = copy.deepcopy(network)
    names = {w.tobytes(): n for n, w in load_file(dense / "model.safetensors").items()}
    weights = load_file(folder / "model.safetensors")
    for place, layer in list(network.named_modules()):
        if not isinstance(layer, torch.nn.Linear):
            continue
        name = names[layer.weight.numpy().tobytes()]
        if f"{name}s.0" not in weights:
            continue
        count = len(CHAINS[tuple(layer.weight.shape)])
        factors = [weights[f"{name}s.{i}"] for i in range(count)]
        chain = danaus.Chain.from_weights(factors)
        new = KSLinear(layer.in_features, layer.out_features, chain=chain)
        new.bias.copy_(layer.bias)
        parent, _, last = place.rpartition(".")
        setattr(network.get_submodule(parent), last, new)
    return network


@torch.inference_mode()
def scores(network: torch.nn.Module, x: torch.Tensor) -> np.ndarray:
    first = next(network.parameters())
    return network(x.to(first.device, first.dtype)).logits.float().cpu().numpy()


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--type", default="f32", choices=TYPES)
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
    on_cpu = o.device == "cpu"
    device = danaus.Device("cpu", threads=o.threads) if on_cpu else "cuda:0"
    with tempfile.TemporaryDirectory() as place:
        dense, chains = pathlib.Path(place) / "dense", pathlib.Path(place) / "chains"
        reference.save_pretrained(dense)
        with_chains(dense, chains)
        models = {"danaus dense": danaus.Model(dense, device, o.type)}
        models["danaus chains"] = danaus.Model(chains, device, o.type)
        if on_cpu:
            models["danaus compressed"] = danaus.Model(dense, device)
            models["danaus compressed"].compress(params=0.3)
        networks = {"PyTorch": reference}
        with torch.no_grad():
            networks["PyTorch chains"] = as_chains(reference, dense, chains)
    pixels = x.numpy()
    runs = {name: lambda m=m: m.classify(pixels) for name, m in models.items()}
    for name, network in networks.items():
        freeze(network.to(o.device, TYPES[o.type]), 197 * o.batch)
        runs[name] = lambda n=network: scores(n, x)
    errors = {
        f"danaus {name}": distance(runs[f"danaus {name}"](), runs[torchs]())
        for name, torchs in (("dense", "PyTorch"), ("chains", "PyTorch chains"))
    }
    seconds = time_all(runs, 2 if o.tiny else o.rounds)
    with open(o.out, "w", newline="") as file:
        table = origin.Table(file, FIELDS.split())
        table.writeheader()
        for name, s in seconds.items():
            model = models[f"danaus {name.partition(' ')[2] or 'dense'}"]
            row = {
                "version": danaus.__version__, "torch": torch.__version__,
                "device": o.device, "dtype": o.type, "name": name, "batch": o.batch,
                "threads": o.threads, "seconds": f"{s:.4g}",
                "images_per_second": f"{o.batch / s:.4g}",
                "over_danaus_dense": f"{s / seconds['danaus dense']:.3f}",
                "linear_parameters": model.describe().linear_parameters,
                "error": f"{errors[name]:.2g}" if name in errors else "",
            }  # fmt: skip
            table.writerow(row)
            print(f"{name:17} {s * 1e3:8.1f} ms  {o.batch / s:7.1f} images/s  "
                  f"{row['over_danaus_dense']} of danaus dense")  # fmt: skip


if __name__ == "__main__":
    main()
