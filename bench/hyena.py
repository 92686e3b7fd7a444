#!/usr/bin/env python3
"""Times HyenaDNA by danaus and by PyTorch, and a token at the end of long texts.

    hyena.py score OUT.csv --fasta FILE [--size tiny-1k] [--rounds N]
    hyena.py token OUT.csv [--size tiny-16k] [--at N,N,...] [--rounds N]
    hyena.py folder FOLDER [--size tiny-1k]

"score": the first record of a FASTA file in windows that begin with one known base, by
`danaus.Model.score_tokens` and by the network of bench/baselines/torch_hyena.py on the
same random weights, in turns; PyTorch's windows in batches of the size that is fastest
for it. "token": the mean time of the last 256 tokens of texts of so many, each a text of
its own. "folder" writes the model alone. FILE may be compressed (.gz).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import functools
import gzip
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import danaus

sys.path.insert(0, str(Path(__file__).parent / "baselines"))
import origin  # noqa: E402
import torch_hyena  # noqa: E402

FIELDS = (
    "version torch device threads size what bases window batch seconds torch_seconds "
    "ratio error"
).split()
TOKENS = 256


def read_record(path: str) -> str:
    data = Path(path).read_bytes()
    text = (gzip.decompress(data) if path.endswith(".gz") else data).decode()
    return "".join(text.split(">")[1].split("\n")[1:]).replace("\r", "")


def timed(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# ---- scoring ----


def windows(ids: np.ndarray, length: int) -> list[np.ndarray]:
    return [ids[at : at + length] for at in range(0, len(ids) - 1, length - 1)]


@torch.inference_mode()
def torch_scores(network, cut: list[np.ndarray], batch: int) -> np.ndarray:
    """Windows of one length in batches, the last one alone."""
    full = [ids for ids in cut if len(ids) == len(cut[0])]
    parts = [full[at : at + batch] for at in range(0, len(full), batch)]
    parts += [[ids] for ids in cut[len(full) :]]
    found = [network(torch.from_numpy(np.stack(part)).long()) for part in parts]
    return torch.cat([scores.flatten() for scores in found]).numpy()


def best_batch(network, cut: list[np.ndarray]) -> int:
    tried = {}
    for batch in (1, 2, 4, 8, 16, 48):
        run = functools.partial(torch_scores, network, cut, batch)
        tried[batch] = min(timed(run) for _ in range(3))
    return min(tried, key=tried.get)


def score(o, out) -> None:
    network = torch_hyena.make(o.size)
    with tempfile.TemporaryDirectory() as folder:
        torch_hyena.write(network, Path(folder))
        model = danaus.Model(folder)
        ids = model.tokenizer.encode(read_record(o.fasta), around=False)
        cut = windows(ids, model.describe().max_length)
        found = np.concatenate([s[1:] for s in model.score_tokens(cut)])
        error = np.abs(found - torch_scores(network, cut, 1)).max()
        best = best_batch(network, cut)
        times = [
            (
                timed(lambda: model.score_tokens(cut)),
                timed(lambda: torch_scores(network, cut, best)),
            )
            for _ in range(o.rounds)
        ]
    ours, theirs = (statistics.median(t) for t in zip(*times))
    ratio = statistics.median(b / a for a, b in times)
    row = {"what": "score", "bases": len(ids), "window": len(cut[0]), "batch": best}
    row |= {"seconds": f"{ours:.4g}", "torch_seconds": f"{theirs:.4g}"}
    out(row | {"ratio": f"{ratio:.3f}", "error": f"{error:.2g}"})


# ---- generating ----


def last_tokens(model, tokens: int) -> float:
    """Seconds of a token, of the last ones of a text."""
    stamps: list[float] = []
    prompt = [7, 8, 9, 10] * 4
    model.generate_tokens(
        prompt,
        tokens - len(prompt),
        on_token=lambda t: stamps.append(time.perf_counter()),
    )
    return (stamps[-1] - stamps[-1 - TOKENS]) / TOKENS


def token(o, out) -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch_hyena.write(torch_hyena.make(o.size), Path(folder))
        model = danaus.Model(folder)
        places = sorted(int(n) for n in o.at.split(","))
        times = [[last_tokens(model, at) for at in places] for _ in range(o.rounds)]
    for number, at in enumerate(places):
        seconds = statistics.median(t[number] for t in times)
        ratio = statistics.median(t[number] / t[0] for t in times)
        row = {"what": "token", "bases": at, "seconds": f"{seconds:.4g}"}
        out(row | {"ratio": f"{ratio:.3f}"})


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("what", choices=("score", "token", "folder"))
    p.add_argument("out")
    p.add_argument("--fasta")
    p.add_argument("--size", choices=torch_hyena.SIZES)
    p.add_argument("--at", default="1024,4096,16384")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--threads", type=int, default=torch.get_num_threads())
    o = p.parse_args()
    o.size = o.size or ("tiny-16k" if o.what == "token" else "tiny-1k")
    torch.set_num_threads(o.threads)
    if o.what == "folder":
        torch_hyena.write(torch_hyena.make(o.size), Path(o.out))
        return
    asked = {"version": danaus.__version__, "torch": torch.__version__}
    asked |= {"device": "cpu", "threads": o.threads, "size": o.size}
    with open(o.out, "w", newline="", buffering=1) as file:
        table = origin.Table(file, FIELDS)
        table.writeheader()

        def out(row: dict) -> None:
            table.writerow(asked | row)
            print(row, flush=True)

        score(o, out) if o.what == "score" else token(o, out)


if __name__ == "__main__":
    main()
