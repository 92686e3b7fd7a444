#!/usr/bin/python3
"""danaus model, embed and compress from the outside, on a small random encoder with a
vocabulary of its own; embeddings against NumPy."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

PROGRAM = os.environ["DANAUS_PROGRAM"]
WIDTH, HEADS, INNER, LAYERS, POSITIONS = 24, 3, 40, 2, 12
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]
failed = []


def check(words, condition, detail=""):
    print("ok     " if condition else "FAILED ", words, "" if condition else detail)
    if not condition:
        failed.append(words)


def danaus(*args):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True)


def facts(*args):
    done = danaus(*args, "--json")
    check(f"{args[0]} succeeds", done.returncode == 0 and not done.stderr, done.stderr)
    return json.loads(done.stdout) if done.stdout else {}


def refuses(words, status, pattern, *args):
    done = danaus(*args)
    lines = done.stderr.splitlines()
    good = done.returncode == status and len(lines) == 1 and pattern in lines[0]
    check(words, good and not done.stdout, f"{done.returncode}: {done.stderr}")


# ---- the model ----


def weights(rng):
    found = {}

    def put(name, *shape, middle=0.0, size=1.0):
        found[name] = (middle + size * rng.uniform(-1, 1, shape)).astype("f4")

    def norm(place):
        put(f"{place}.LayerNorm.weight", WIDTH, middle=1, size=0.3)
        put(f"{place}.LayerNorm.bias", WIDTH, size=0.3)

    def linear(place, rows, cols):
        put(f"{place}.weight", rows, cols, size=cols**-0.5)
        put(f"{place}.bias", rows, size=0.3)

    put("embeddings.word_embeddings.weight", len(WORDS), WIDTH)
    put("embeddings.position_embeddings.weight", POSITIONS, WIDTH, size=0.3)
    put("embeddings.token_type_embeddings.weight", 2, WIDTH, size=0.3)
    norm("embeddings")
    for i in range(LAYERS):
        block = f"encoder.layer.{i}"
        for name in "query", "key", "value":
            linear(f"{block}.attention.self.{name}", WIDTH, WIDTH)
        linear(f"{block}.attention.output.dense", WIDTH, WIDTH)
        norm(f"{block}.attention.output")
        linear(f"{block}.intermediate.dense", INNER, WIDTH)
        linear(f"{block}.output.dense", WIDTH, INNER)
        norm(f"{block}.output")
    return found


def write_model(folder, w):
    folder.mkdir()
    config = {
        "model_type": "bert", "hidden_size": WIDTH, "num_attention_heads": HEADS,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "hidden_act": "relu",
        "vocab_size": len(WORDS), "max_position_embeddings": POSITIONS,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}'
    )
    header, at = {}, 0
    for name, x in w.items():
        header[name] = {
            "dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]
        }
        at += x.nbytes
    text = json.dumps(header).encode()
    data = struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in w.values())
    (folder / "model.safetensors").write_bytes(data)


def embedding(w, line):
    """Of a line of known letters between spaces, in f64."""
    w = {name: x.astype("f8") for name, x in w.items()}
    ids = [WORDS.index(t) for t in ["[CLS]", *line.split(), "[SEP]"]]

    def norm(x, place):
        x = x - x.mean(1, keepdims=True)
        x = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-12)
        return x * w[f"{place}.LayerNorm.weight"] + w[f"{place}.LayerNorm.bias"]

    def linear(x, place):
        return x @ w[f"{place}.weight"].T + w[f"{place}.bias"]

    table = "embeddings.{}_embeddings.weight".format
    h = w[table("word")][ids] + w[table("position")][: len(ids)]
    h = norm(h + w[table("token_type")][0], "embeddings")
    for i in range(LAYERS):
        block, mixed = f"encoder.layer.{i}", []
        q, k, v = (
            linear(h, f"{block}.attention.self.{name}")
            for name in ("query", "key", "value")
        )
        for part in np.split(np.arange(WIDTH), HEADS):
            p = np.exp(q[:, part] @ k[:, part].T / np.sqrt(WIDTH / HEADS))
            mixed.append(p / p.sum(1, keepdims=True) @ v[:, part])
        out = f"{block}.attention.output"
        h = norm(h + linear(np.hstack(mixed), f"{out}.dense"), out)
        up = np.maximum(linear(h, f"{block}.intermediate.dense"), 0)
        h = norm(h + linear(up, f"{block}.output.dense"), f"{block}.output")
    mean = h.mean(0)
    return mean / np.linalg.norm(mean)


# ---- the commands ----


def main(folder):
    rng = np.random.default_rng(5)
    w, model, new = weights(rng), folder / "model", folder / "new"
    write_model(model, w)
    lines = [
        " ".join(rng.choice(list("abcdefghij"), rng.integers(1, POSITIONS - 2)))
        for _ in range(120)
    ]
    text, e, e2 = folder / "text", folder / "e.npy", folder / "e2.npy"
    text.write_text("\n".join(lines) + "\n")

    info = facts("model", model)
    dense = LAYERS * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER)
    check("weights of a model", info["linear_parameters"] == dense, info)
    check("layers of a model", len(info["layers"]) == 6 * LAYERS, info)
    said = facts("embed", model, "--text", text, "-o", e, "--query", lines[7])
    found = np.load(e)
    check("shape of embeddings", found.shape == (120, WIDTH) and found.dtype == "f4")
    wanted = np.stack([embedding(w, line) for line in lines])
    error = np.abs(found - wanted).max()
    check("embeddings are NumPy's", error < 1e-5, error)
    tokens = sum(len(line.split()) + 2 for line in lines)
    check("numbers of lines and tokens", (said["lines"], said["tokens"]) == (120, tokens))
    first = said["nearest"][0]
    check("a line is nearest to itself", first["text"] == lines[7], first)
    check("its cosine is 1", abs(first["cosine"] - 1) < 1e-6, first)
    cosines = wanted @ wanted[7]
    third = said["nearest"][2]
    check("the third", abs(third["cosine"] - np.sort(cosines)[-3]) < 1e-5, third)

    made = facts("compress", model, "--text", text, "--params", 0.6, "-o", new)
    check("the budget is kept", 0.5 * dense < made["parameters"] <= 0.6 * dense, made)
    check("all layers are listed", len(made["layers"]) == 6 * LAYERS)
    facts("embed", new, "--text", text, "-o", e2)
    near = np.corrcoef(np.tril(found @ found.T, -1).ravel(),
                       np.tril(np.load(e2) @ np.load(e2).T, -1).ravel())[0, 1]
    check("the new model is near", near > 0.9, near)
    again = facts("model", new)
    check("weights of the new", again["linear_parameters"] == made["parameters"], again)

    refuses("no text", 2, "--text FILE", "embed", model, "-o", e)
    refuses("no output", 2, "-o FILE", "embed", model, "--text", text)
    refuses("no model", 1, "config.json", "embed", folder, "--text", text, "-o", e)
    refuses("no file", 1, "nothing", "embed", model, "--text", folder / "nothing", "-o", e)
    (folder / "bad").write_bytes(b"a b\n\xff\n")
    refuses("no UTF-8", 1, "line 2:", "embed", model, "--text", folder / "bad", "-o", e)
    refuses("a share of 2", 1, "share", "compress", model, "--text", text,
            "--params", 2, "-o", new)
    refuses("no layer", 1, "matches", "compress", model, "--text", text,
            "--params", 0.5, "--layers", "none", "-o", new)
    refuses("onto itself", 1, "came from", "compress", model, "--text", text,
            "--params", 0.5, "-o", model)
    (folder / "empty").write_text("")
    none = facts("embed", model, "--text", folder / "empty", "-o", e)
    check("no lines", none["lines"] == 0 and np.load(e).shape == (0, WIDTH))


with tempfile.TemporaryDirectory() as place:
    main(pathlib.Path(place))
sys.exit(bool(failed))
