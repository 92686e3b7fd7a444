#!/usr/bin/env python3
"""A published checkpoint of HyenaDNA to a folder that danaus loads.

    python3 scripts/convert_hyena_dna.py weights.ckpt FOLDER [--vocabulary N]

reads the weights of a checkpoint of PyTorch Lightning, as the authors publish them, and
nothing else: other objects in it are left out, and none of their code runs. Writes
config.json, whose sizes the weights tell, tokenizer_config.json and model.safetensors,
with the names that the model has without its trainer. Rows of the table of words from
number N on are padding; where a config.json lies beside the checkpoint N is its
vocab_size, else 12.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import torch
from checkpoints import read
from safetensors.torch import save_file

PLACES = [("state_dict",), ("state", "model"), ("model",)]
WORDS = "backbone.embeddings.word_embeddings.weight"
BLOCK = "backbone.layers.0."
MIXER = f"{BLOCK}mixer."
FILTER = f"{MIXER}filter_fn."
FREQUENCY = re.compile(r"(.*\.implicit_filter)\.\d+\.freq$")
USUAL_VOCABULARY = 12


def plain_name(name: str) -> str:
    """Without what trainers put before names, and checkpoints of activations within."""
    name = re.sub(r"^(?:(?:model|module|hyena|_orig_mod)\.)+", "", name)
    return re.sub(r"\.(mixer|mlp)\.layer\.", r".\1.", name)


def weights(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The model's own, each once."""
    kept: dict[str, torch.Tensor] = {}
    for name, tensor in found.items():
        name = plain_name(name)
        frequency = FREQUENCY.match(name)
        if frequency:
            name = f"{frequency[1]}.1.freq"  # one, which all sines of a filter share
        if name.startswith(("backbone.", "lm_head.")) and name not in kept:
            kept[name] = tensor
    if WORDS not in kept:
        sys.exit(f"the checkpoint has no tensor {WORDS}")
    head = kept.get("lm_head.weight")
    if head is not None and torch.equal(head, kept[WORDS]):
        del kept["lm_head.weight"]
    return {name: tensor.clone().contiguous() for name, tensor in kept.items()}


def configuration(kept: dict[str, torch.Tensor], vocabulary: int) -> dict:
    """config.json, from the shapes of the weights."""

    def shape(name: str) -> torch.Size:
        if name not in kept:
            sys.exit(f"the checkpoint has no tensor {name}")
        return kept[name].shape

    rows, width = shape(WORDS)
    network = re.compile(re.escape(FILTER) + r"implicit_filter\.(\d+)\.weight")
    layers = [int(m[1]) for m in map(network.match, kept) if m]
    blocks = {int(m[1]) for m in (re.match(r"backbone\.layers\.(\d+)\.", n)
                                  for n in kept) if m}  # fmt: skip
    order, features = shape(f"{FILTER}implicit_filter.0.weight")
    if vocabulary > rows:
        sys.exit(f"the table has {rows} words, not {vocabulary}")
    return {
        "model_type": "hyenadna",
        "d_model": width,
        "n_layer": len(blocks),
        "d_inner": shape(f"{BLOCK}mlp.fc1.weight")[0],
        "vocab_size": vocabulary,
        "pad_vocab_size_multiple": rows if rows > vocabulary else 1,
        "max_seq_len": shape(f"{FILTER}pos_emb.z")[1],
        "emb_dim": features,
        "filter_order": order,
        "num_inner_mlps": len(layers) - 2,
        "hyena_order": shape(f"{MIXER}in_proj.weight")[0] // width - 1,
        "short_filter_order": shape(f"{MIXER}short_filter.weight")[2],
        "layer_norm_epsilon": 1e-5,
    }


def vocabulary_beside(checkpoint: Path) -> int:
    """What the authors' config.json says of it."""
    path = checkpoint.parent / "config.json"
    if not path.exists():
        return USUAL_VOCABULARY
    return int(json.loads(path.read_text()).get("vocab_size", USUAL_VOCABULARY))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--vocabulary", type=int, help="words that are no padding")
    options = parser.parse_args()
    words = options.vocabulary or vocabulary_beside(options.checkpoint)
    kept = weights(read(options.checkpoint, PLACES, skip=True))
    config = configuration(kept, words)
    tokenizer = {"tokenizer_class": "HyenaDNATokenizer"}
    tokenizer["model_max_length"] = config["max_seq_len"]
    options.folder.mkdir(parents=True, exist_ok=True)
    save_file(kept, options.folder / "model.safetensors", {"format": "pt"})
    files = {"config.json": config, "tokenizer_config.json": tokenizer}
    for name, content in files.items():
        (options.folder / name).write_text(json.dumps(content, indent=2) + "\n")
    numbers = sum(tensor.numel() for tensor in kept.values())
    print(f"{options.folder}: {len(kept)} tensors, {numbers} numbers")


if __name__ == "__main__":
    main()
