#!/usr/bin/env python3
"""A PyTorch checkpoint of Monarch Mixer BERT to a folder that danaus loads.

    python3 scripts/convert_m2_bert.py CHECKPOINT... FOLDER [--tokenizer PLACE]

reads weights and nothing else (torch.load(weights_only=True)), from checkpoints of the
training framework, of Hugging Face's hub or of plain state dicts, in one file or several,
and writes config.json, whose sizes the weights tell, and model.safetensors. What is no
weight of the model (tables of transforms, position ids, copies of shared weights) is left
out. With --tokenizer the files of a WordPiece tokenizer, such as bert-base-uncased's, are
copied beside them.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

import torch
from checkpoints import read
from safetensors.torch import save_file

TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
WORDS = "bert.embeddings.word_embeddings.weight"
PLACES = [("state", "model"), ("state_dict",), ("model",)]
DROPPED = re.compile(r"\.flashfft\.|\.position_ids$")
FREQUENCY = re.compile(r"(.*)\.implicit_filter(?:_rev)?\.\d+\.freq$")


def plain_name(name: str) -> str:
    """Without what training frameworks put before names."""
    name = re.sub(r"^(?:(?:model|module|_orig_mod)\.)+", "", name)
    encoder = name.startswith(("embeddings.", "encoder.", "pooler."))
    return f"bert.{name}" if encoder else name


def weights(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The model's own, each once."""
    kept, frequencies = {}, set()
    for name, tensor in found.items():
        name = plain_name(name)
        frequency = FREQUENCY.match(name)
        if frequency:
            if frequency[1] in frequencies:
                continue
            frequencies.add(frequency[1])
            name = f"{frequency[1]}.implicit_filter.1.freq"
        if not DROPPED.search(name):
            kept[name] = tensor.contiguous()
    words, decoder = kept.get(WORDS), kept.get("cls.predictions.decoder.weight")
    if words is None:
        sys.exit(f"the checkpoint has no tensor {WORDS}")
    if decoder is not None and torch.equal(words, decoder):
        del kept["cls.predictions.decoder.weight"]
    return {name: tensor.clone() for name, tensor in kept.items()}


def configuration(kept: dict[str, torch.Tensor]) -> dict:
    """config.json, from the shapes of the weights."""
    block = "bert.encoder.layer.0."
    layers = {int(m[1]) for m in (re.match(r"bert\.encoder\.layer\.(\d+)\.", n)
                                  for n in kept) if m}  # fmt: skip

    def shape(name: str) -> torch.Size:
        if name not in kept:
            sys.exit(f"the checkpoint has no tensor {name}")
        return kept[name].shape

    up, down = shape(f"{block}mlp.gated_layers.weight"), shape(f"{block}mlp.wo.weight")
    blocks = down[0] if len(down) == 3 else 1
    inner = blocks * down[-1]
    network = shape(f"{block}attention.filter_fn.implicit_filter.0.weight")
    reverse = f"{block}attention.filter_fn.implicit_filter_rev.0.weight"
    return {
        "model_type": "m2_bert",
        "vocab_size": shape(WORDS)[0],
        "hidden_size": shape(WORDS)[1],
        "intermediate_size": inner,
        "num_hidden_layers": len(layers),
        "type_vocab_size": shape("bert.embeddings.token_type_embeddings.weight")[0],
        "max_position_embeddings": shape(
            "bert.embeddings.position_embeddings.weight"
        )[0],
        "long_conv_l_max": shape(f"{block}attention.filter_fn.pos_emb.z")[1],
        "hyena_filter_order": network[0],
        "hyena_emb_dim": network[1],
        "hyena_w_mod": 1,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "bidirectional": reverse in kept,
        "residual_long_conv": f"{block}attention.filter_fn2.bias" in kept,
        "hyena_training_additions": f"{block}attention.layernorm.weight" in kept,
        "use_glu_mlp": up[:-1].numel() == 2 * inner,
        "use_monarch_mlp": len(down) == 3,
        "monarch_mlp_nblocks": blocks,
        "pad_token_id": 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--tokenizer", type=Path, help="a folder with its files")
    options = parser.parse_args()
    found = {}
    for path in options.checkpoints:
        found |= read(path, PLACES)
    kept = weights(found)
    config = configuration(kept)
    options.folder.mkdir(parents=True, exist_ok=True)
    save_file(kept, options.folder / "model.safetensors", {"format": "pt"})
    text = json.dumps(config, indent=2)
    (options.folder / "config.json").write_text(text + "\n")
    for name in TOKENIZER if options.tokenizer else []:
        if (options.tokenizer / name).exists():
            shutil.copy(options.tokenizer / name, options.folder)
    numbers = sum(tensor.numel() for tensor in kept.values())
    print(f"{options.folder}: {len(kept)} tensors, {numbers} numbers")


if __name__ == "__main__":
    main()
