#!/usr/bin/env python3
"""Times Monarch Mixer BERT by danaus and by PyTorch, and BERT by PyTorch.

    PYTHONPATH=build/python/tree python3 bench/m2_bert.py OUT.csv [--lengths N,N,...]

One sequence at a time, random weights of true shape: the model of 80 million numbers for
8,192 tokens, by `danaus.Model.embed_tokens` and by the authors' formulation
(bench/baselines/torch_m2_bert.py), and BERT-base by transformers with PyTorch's fused
attention, with --plain also without. All are run in turns; ratios are medians of the
ratios of a turn. `operations` are those that danaus.Model.estimate counts, `peak` is the
rate of a dense product by danaus in the same turns. With --cpu-time seconds are the
processor's: with --threads 1 they count also where other programs have the machine.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import danaus

sys.path.insert(0, str(Path(__file__).parent / "baselines"))
import origin  # noqa: E402
from torch_m2_bert import Shape, random_model, tensors  # noqa: E402

FIELDS = (
    "version torch device threads clock model tokens operations seconds peak "
    "torch_seconds bert_seconds plain_seconds of_peak torch_ratio bert_ratio "
    "plain_ratio error memory small_seconds small_ratio"
).split()
PEAK = 1536  # rows, columns and batch of the product that tells the peak


def write(folder: Path, shape: Shape) -> torch.nn.Module:
    model = random_model(shape)
    save_file(tensors(model), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(shape.config()))
    return model


def bert(length: int, attention: str, **unlike):
    """BERT-base, but for the sizes given."""
    from transformers import BertConfig, BertModel

    sizes = {"max_position_embeddings": length} | unlike
    config = BertConfig(attn_implementation=attention, **sizes)
    return BertModel(config, add_pooling_layer=False).eval()


def dense_product(device: danaus.Device):
    """What makes 2 PEAK^3 operations."""
    rng = np.random.default_rng(0)
    chain = danaus.Chain.from_weights(
        [rng.standard_normal((1, PEAK, PEAK, 1), np.float32)]
    )
    x = rng.standard_normal((PEAK, PEAK), np.float32)
    weights = danaus.Plan(chain.patterns, batch=PEAK, device=device).pack(chain)
    return lambda y=np.empty_like(x): weights(x, out=y)


def timed(call, clock) -> float:
    start = clock()
    call()
    return clock() - start


@torch.inference_mode()
def measure(o, models: dict, ids: np.ndarray, clock) -> dict:
    """Medians of seconds and of ratios to danaus, by method."""
    batch = torch.from_numpy(ids.astype("i8"))[None]
    calls = {"danaus": lambda: models["danaus"].embed_tokens([ids])}
    for name in ("torch", "bert", "plain"):
        if name in models:
            calls[name] = lambda model=models[name]: model(batch)
    if "small" in models:
        calls["small"] = lambda: models["small"].embed_tokens([ids])
    calls["peak"] = models["peak"]
    for call in calls.values():
        call()
    turns = []
    for _ in range(o.rounds):
        turns.append({name: timed(call, clock) for name, call in calls.items()})
    seconds = {name: statistics.median(t[name] for t in turns) for name in calls}
    ratios = {
        name: statistics.median(t[name] / t["danaus"] for t in turns) for name in calls
    }
    return {"seconds": seconds, "ratios": ratios}


@torch.inference_mode()
def error(models: dict, ids: np.ndarray) -> float:
    mean = models["torch"](torch.from_numpy(ids.astype("i8"))[None])[0].mean(0)
    wanted = torch.nn.functional.normalize(mean, dim=0).numpy()
    return float(np.abs(models["danaus"].embed_tokens([ids])[0] - wanted).max())


def record(o, models: dict, length: int, clock) -> dict:
    ids = np.random.default_rng(length).integers(0, 30000, length).astype(np.int32)
    found = measure(o, models, ids, clock)
    seconds, ratios = found["seconds"], found["ratios"]
    cost = models["danaus"].estimate(1, length)
    operations = cost.linear + cost.mixing + (0 if cost.kept else cost.filters)
    row = {"tokens": length, "operations": f"{operations:.5g}"}
    row |= {"seconds": f"{seconds['danaus']:.4g}"}
    row |= {"peak": f"{2 * PEAK**3 / seconds['peak']:.4g}"}
    # What the operations take at the peak, against what they took.
    of_peak = operations / (2 * PEAK**3) * ratios["peak"]
    row |= {"of_peak": f"{of_peak:.3f}", "memory": cost.memory + cost.kept}
    for name in ("torch", "bert", "plain", "small"):
        if name in seconds:
            row[f"{name}_seconds"] = f"{seconds[name]:.4g}"
            row[f"{name}_ratio"] = f"{ratios[name]:.3f}"
    return row | {"error": f"{error(models, ids):.2g}"}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--lengths", default="512,1024,2048,4096,8192")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=torch.get_num_threads())
    p.add_argument("--plain", action="store_true", help="BERT without fused attention")
    p.add_argument("--cpu-time", action="store_true")
    p.add_argument(
        "--compress", type=float, metavar="SHARE",
        help="danaus with this share of the weights of its dense layers, too",
    )  # fmt: skip
    p.add_argument("--layers", type=int, default=12)
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    lengths = [int(n) for n in o.lengths.split(",")]
    clock = time.process_time if o.cpu_time else time.perf_counter
    shape = Shape(length=max(lengths), layers=o.layers)
    device = danaus.Device("cpu", threads=o.threads)
    asked = {"version": danaus.__version__, "torch": torch.__version__}
    asked |= {"device": "cpu", "threads": o.threads, "model": "m2-bert-80m"}
    asked |= {"clock": "cpu" if o.cpu_time else "wall"}
    with tempfile.TemporaryDirectory() as folder, open(
        o.out, "w", newline="", buffering=1
    ) as file:
        models = {"torch": write(Path(folder), shape), "peak": dense_product(device)}
        models["danaus"] = danaus.Model(folder, device)
        if o.compress:
            models["small"] = danaus.Model(folder, device)
            models["small"].compress(params=o.compress)
        models["bert"] = bert(shape.length, "sdpa")
        if o.plain:
            models["plain"] = bert(shape.length, "eager")
        table = origin.Table(file, FIELDS)
        table.writeheader()
        for length in lengths:
            row = asked | record(o, models, length, clock)
            table.writerow(row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
