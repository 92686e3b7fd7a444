#!/usr/bin/env python3
"""Times sentence encoders in C beside others', with the same weights, in turns.

    PYTHONPATH=build/python/tree encoder.py OUT.csv [--device cpu|cuda] [--model FOLDER]
        [--compressed FOLDER] [--sentences N] [--text FILE] [--onnx] [--fastembed]
        [--rounds N] [--threads N] [--tiny]

Without --model weights are random, of all-MiniLM-L6-v2's shape. --compressed is one that
`danaus compress` made of the model; it is timed too. Sentences are random ids, 8 to 63
tokens long, or the lines of a file (scripts/sentences.py), at most 64 tokens each.
Others get them sorted by length, 64 at a time, padded. PyTorch has its fused attention,
and on a GPU reads from the host and writes back, as danaus does. f32; on GPUs neither
uses tf32. --onnx adds ONNX Runtime, in f32 and with its dynamic quantisation to int8;
--fastembed, with --text and --model, adds fastembed, and danaus from texts as well.
Medians over rounds, in each of which all run. `error` is the greatest difference of any
number of the embeddings from PyTorch's, `agreement` the correlation of the similarities
of all pairs of sentences with PyTorch's.
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
    "over_torch linear_parameters error agreement"
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


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--model")
    parser.add_argument("--compressed")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--onnx", action="store_true")
    parser.add_argument("--fastembed", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tiny", action="store_true", help="one block, one round")
    o = parser.parse_args()
    if o.tiny:
        o.sentences, o.rounds = 20, 1
    if o.text and not o.model or o.fastembed and not o.text:
        parser.error("--text needs --model, and --fastembed needs --text")
    if o.device == "cuda" and (o.onnx or o.fastembed):
        parser.error("--onnx and --fastembed are timed on CPUs")
    return o


def reference_of(o: argparse.Namespace, folder: str) -> torch.nn.Module:
    """PyTorch's model; random weights are saved in the folder."""
    if o.model:
        return AutoModel.from_pretrained(o.model).eval()
    config = BertConfig(
        hidden_size=384, num_hidden_layers=1 if o.tiny else 6,
        num_attention_heads=12, intermediate_size=1536,
    )  # fmt: skip
    model = BertModel(config).eval()
    model.save_pretrained(folder)
    return model


def models_of(o: argparse.Namespace, folder: str) -> dict[str, danaus.Model]:
    threads = {} if o.device == "cuda" else {"threads": o.threads}
    device = danaus.Device("cuda:0" if o.device == "cuda" else "cpu", **threads)
    found = {"danaus": danaus.Model(o.model or folder, device)}
    if o.device == "cpu":
        found["danaus int8"] = danaus.Model(o.model or folder, device, int8=True)
    if o.compressed:
        found["danaus compressed"] = danaus.Model(o.compressed, device)
    return found


def add_peers(o: argparse.Namespace, folder: str, runs: dict, reference, batches, texts):
    """What --onnx and --fastembed ask for."""
    import onnx_encoder as peers

    graph, small = (pathlib.Path(folder, f"{n}.onnx") for n in ("f32", "int8"))
    peers.export(reference, graph)
    if o.onnx:
        peers.to_8_bits(graph, small)
        for name, path in ("ONNX Runtime", graph), ("ONNX Runtime int8", small):
            run = peers.encoder(path, o.threads)
            runs[name] = lambda run=run: run(batches)
    if o.fastembed:
        width = reference.config.hidden_size
        run = peers.fastembed(pathlib.Path(o.model), graph, width, o.threads)
        runs["fastembed, texts"] = lambda: run(texts)


def agreement(found: np.ndarray, wanted: np.ndarray) -> float:
    """Correlation of the similarities of all pairs."""
    pairs = np.triu_indices(len(found), 1)
    return float(np.corrcoef([(e @ e.T)[pairs] for e in (found, wanted)])[0, 1])


def main() -> None:
    o = options()
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        reference = reference_of(o, folder)
        models = models_of(o, folder)
        texts = []
        if o.text:
            texts = sorted(o.text.read_text().splitlines()[: o.sentences], key=len)
            sequences = models["danaus"].tokenizer.encode_batch(texts, 64)
        else:
            sequences = sequences_of(o.sentences, reference.config.vocab_size)
        batches = batches_of(sequences)
        runs = {n: lambda m=m: m.embed_tokens(sequences) for n, m in models.items()}
        reference.to(o.device)
        runs["PyTorch"] = lambda: encode(reference, batches, o.device).numpy()
        if o.fastembed:
            runs["danaus, texts"] = lambda: models["danaus"].embed(texts)
        if o.onnx or o.fastembed:
            add_peers(o, folder, runs, reference, batches, texts)
        wanted = runs["PyTorch"]()
        found = {name: np.asarray(run()) for name, run in runs.items()}
        seconds = time_all(runs, o.rounds)
    write(o, models, seconds, found, wanted, sequences)


def write(o, models, seconds: dict, found: dict, wanted: np.ndarray, sequences) -> None:
    count = len(sequences)
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
                "error": f"{np.abs(found[name] - wanted).max():.2g}",
                "agreement": f"{agreement(found[name], wanted):.4f}",
            }  # fmt: skip
            table.writerow(row)
            print(f"{name:18} {s * 1e3:8.1f} ms  {count / s:8.1f} sentences/s  "
                  f"{row['over_torch']} of PyTorch's time, agreement "
                  f"{row['agreement']}")  # fmt: skip


if __name__ == "__main__":
    main()
