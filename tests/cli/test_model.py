#!/usr/bin/python3
"""danaus model, embed, fill and compress from the outside, on a small random encoder with a
vocabulary of its own; embeddings and words against NumPy, and Monarch Mixer BERT against
numbers of its authors' code."""
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np
from arrays import write_safetensors
from program import OBEYED, PROGRAM, SANITIZED, check, danaus, facts, finish, plain, refuses

WIDTH, HEADS, INNER, LAYERS, POSITIONS = 24, 3, 40, 2, 12
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]


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
    place = "cls.predictions"
    linear(f"{place}.transform.dense", WIDTH, WIDTH)
    norm(f"{place}.transform")
    put(f"{place}.decoder.bias", len(WORDS))
    return found


CONFIG = {
    "model_type": "bert", "hidden_size": WIDTH, "num_attention_heads": HEADS,
    "intermediate_size": INNER, "num_hidden_layers": LAYERS, "hidden_act": "relu",
    "vocab_size": len(WORDS), "max_position_embeddings": POSITIONS,
}


def write_model(folder, w, config=CONFIG, words=WORDS):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}'
    )
    write_safetensors(
        folder / "model.safetensors", {n: (f"F{8 * x.itemsize}", x) for n, x in w.items()}
    )


def check_other_mask(folder, model):
    """Tokenizers may have <mask> in place of [MASK]."""
    words = ["<mask>" if word == "[MASK]" else word for word in WORDS]
    other = folder / "other_mask"
    shutil.copytree(model, other)
    (other / "vocab.txt").unlink()
    mask = {"id": words.index("<mask>"), "content": "<mask>", "special": True}
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    (other / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [mask | dict.fromkeys(flags, False)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "lowercase": True,
                       "handle_chinese_chars": True, "strip_accents": None},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 100,
                  "continuing_subword_prefix": "##",
                  "vocab": {word: i for i, word in enumerate(words)}},
    }))  # fmt: skip
    filled = facts("fill", other, "a <mask> b")["masks"]
    check("<mask> is one", [mask["token"] for mask in filled] == [1], filled)
    refuses("no other mask", 1, "no <mask>", "fill", other, "a b [MASK]")


def normalized(x):
    x = x - x.mean(1, keepdims=True)
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-12)


def rows(w, line):
    """The rows of a line of known words between spaces, in f64."""
    w = {name: x.astype("f8") for name, x in w.items()}
    ids = [WORDS.index(t) for t in ["[CLS]", *line.split(), "[SEP]"]]

    def norm(x, place):
        scale, shift = w[f"{place}.LayerNorm.weight"], w[f"{place}.LayerNorm.bias"]
        return normalized(x) * scale + shift

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
    return h


def embedding(w, line):
    mean = rows(w, line).mean(0)
    return mean / np.linalg.norm(mean)


def probabilities(w, row):
    """The head's probabilities of all words."""
    w = {name.removeprefix("cls.predictions."): x.astype("f8") for name, x in w.items()}
    x = np.maximum(w["transform.dense.weight"] @ row + w["transform.dense.bias"], 0)
    x = normalized(x[None])[0] * w["transform.LayerNorm.weight"]
    x = x + w["transform.LayerNorm.bias"]
    p = np.exp(w["embeddings.word_embeddings.weight"] @ x + w["decoder.bias"])
    return p / p.sum()


# ---- the authors' numbers of Monarch Mixer BERT ----

POOLED = [0.8560331275, -0.9590317227, 0.2027474808, -0.8759776490, -0.5356855543,
          -0.2835743404, -0.7755713404, 0.7775421150]  # fmt: skip
M2_CONFIG = {
    "model_type": "m2_bert", "hidden_size": 8, "intermediate_size": 16,
    "num_hidden_layers": 2, "vocab_size": 16, "max_position_embeddings": 12,
    "long_conv_l_max": 12, "hyena_filter_order": 4, "hyena_emb_dim": 5,
}
# [CLS] is 3 and [SEP] 0: a line with them is 3, 10, 1, 8, 15, 6, ..., as the numbers need.
M2_WORDS = ["[SEP]", "b", "c", "[CLS]", "e", "[UNK]", "g", "[PAD]", "i", "j", "k", "l",
            "[MASK]", "n", "o", "p"]  # fmt: skip
M2_LINE = "k b i p g n e l c j"


def m2_weights():
    found = {}

    def put(name, *shape, middle=0.0):
        s = sum(map(ord, name)) % 97
        n = np.arange(np.prod(shape, dtype=int))
        found[name] = (middle + 0.8 * np.sin(0.37 * n + 0.11 * (s + 1))).reshape(shape)

    def pair(place, *shape, middle=0.0):
        put(f"{place}.weight", *shape, middle=middle)
        put(f"{place}.bias", shape[0])

    put("bert.embeddings.word_embeddings.weight", 16, 8)
    put("bert.embeddings.position_embeddings.weight", 12, 8)
    put("bert.embeddings.token_type_embeddings.weight", 2, 8)
    pair("bert.embeddings.LayerNorm", 8, middle=1)
    s = np.arange(12)[:, None]
    angle = np.array([1e-4, 1]) * 2 * np.pi * s / 12
    z = np.hstack([s / 11, np.cos(angle), -np.sin(angle)])[None]
    for place in "bert.encoder.layer.0", "bert.encoder.layer.1":
        for filter in "attention.filter_fn", "attention.filter_fn2":
            put(f"{place}.{filter}.bias", 8)
            found[f"{place}.{filter}.pos_emb.z"] = z
            for way in "implicit_filter", "implicit_filter_rev":
                pair(f"{place}.{filter}.{way}.0", 4, 5)
                pair(f"{place}.{filter}.{way}.2", 4, 4)
                pair(f"{place}.{filter}.{way}.4", 4, 4)
                put(f"{place}.{filter}.{way}.6.weight", 8, 4)
            found[f"{place}.{filter}.implicit_filter.3.freq"] = np.full((1, 4), 1.5)
        pair(f"{place}.attention.in_linear", 24, 8)
        pair(f"{place}.attention.out_linear", 8, 8)
        pair(f"{place}.attention.short_filter", 24, 1, 3)
        put(f"{place}.mlp.gated_layers.weight", 4, 8, 2)
        put(f"{place}.mlp.wo.weight", 4, 2, 4)
        put(f"{place}.mlp.wo.bias", 8)
        pair(f"{place}.mlp.layernorm", 8, middle=1)
    pair("bert.pooler.dense", 8, 8)
    return found


def check_m2(folder):
    model, line, e = folder / "m2", folder / "line", folder / "m2.npy"
    write_model(model, m2_weights(), M2_CONFIG, M2_WORDS)
    line.write_text(M2_LINE + "\n")
    info = facts("model", model)
    check("its architecture", info["architecture"] == "m2-bert", info)
    up = info["layers"][2]
    check("its patterns", up["patterns"] == [[4, 8, 2, 1]], up)
    check("what a text costs", info["text"]["linear"] == 12 * 2 * 2 * 352, info["text"])
    facts("embed", model, "--text", line, "-o", e)
    check("its numbers", np.abs(np.load(e)[0] - POOLED).max() < 1e-5, np.load(e))
    refuses("no head", 1, "head", "fill", model, "k [MASK]")
    (folder / "pads").write_text("k b i" + " [PAD]" * 7 + "\n")
    (folder / "short").write_text("k b i\n")
    facts("embed", model, "--text", folder / "short", "-o", e, "--pad", 11)
    padded = np.load(e)[0]
    # Padding comes behind [SEP]; before it, it is another text.
    facts("embed", model, "--text", folder / "pads", "-o", e)
    check("padding is behind the text", np.abs(padded - np.load(e)[0]).max() > 1e-3)
    facts("embed", model, "--text", folder / "short", "-o", e)
    check("padding counts", np.abs(padded - np.load(e)[0]).max() > 1e-3)
    (folder / "m2text").write_text("".join(
        " ".join(M2_WORDS[(3 * i + j * j) % 16] for j in range(1 + i % 10)) + "\n"
        for i in range(90)))  # fmt: skip
    made = facts("compress", model, "--text", folder / "m2text", "--params", 0.8, "-o",
                 folder / "m2new")
    stay = 2 * (4 * 8 * 2 + 4 * 2 * 4)
    kept = [x["parameters"] for x in made["layers"] if "mlp" in x["name"]]
    check("what is no dense matrix stays", kept == 2 * [64, 32], made)
    check("the budget is kept", made["parameters"] - stay <= 0.8 * 2 * 4 * 64, made)
    facts("embed", folder / "m2new", "--text", line, "-o", e)
    near = np.corrcoef(np.load(e)[0], POOLED)[0, 1]
    check("its numbers are near", near > 0.8, near)
    said = danaus("compress", model, "--params", 0.8, "-o", folder / "m2new").stdout
    check("why it stays", said.count("block-diagonal, left as it was") == 4, said)
    check("how much stays", f"\n{stay} of them are in layers that were left" in said, said)
    refuses("too much padding", 1, "1 to 12 tokens", "embed", model, "--text", line, "-o", e,
            "--pad", 13)


def check_weights_alone(w, model, new):
    """What is said of layers that are fitted to nothing but their weights."""
    made = facts("compress", model, "--params", 0.6, "-o", new)
    ranks = {x["name"]: x["patterns"][0][2] for x in facts("model", new)["layers"]}
    said = danaus("compress", model, "--params", 0.6, "-o", new).stdout
    check("headings", "error  at least  estimated speed" in said.splitlines()[0], said)
    for layer in made["layers"]:
        members = ["name", "rows", "cols", "parameters", "error", "lower_bound", "speedup",
                   "merged"]
        check("facts of a layer", list(layer) == members, layer)
        values = np.linalg.svd(w[f"{layer['name']}.weight"].astype("f8"), compute_uv=False)
        rest = np.sqrt((values[ranks[layer["name"]]:] ** 2).sum() / (values**2).sum())
        check("the bound is NumPy's", abs(layer["lower_bound"] - rest) < 1e-6, layer)
        check("no error is smaller", layer["lower_bound"] <= layer["error"], layer)
        check("and nothing is lost", layer["error"] < layer["lower_bound"] + 1e-6, layer)
        check("a speed", layer["speedup"] > 0, layer)
    some = facts("compress", model, "--params", 0.6, "-o", new, "--layers", r"\.0\..*query")
    for layer in some["layers"]:
        known = [layer[fact] is not None for fact in ("lower_bound", "speedup")]
        replaced = ".0." in layer["name"] and "query" in layer["name"]
        check("only what was replaced has them", known == 2 * [replaced], layer)


# ---- what a terminal gets ----


def check_terminal(folder, model):
    file, e = folder / f"text{OBEYED}", folder / "terminal.npy"
    file.write_text(f"a b {OBEYED}\nc\n")
    asked = ["embed", model, "--text", file, "--query", "a b"]
    plain("lines of a text", danaus(*asked).stdout)
    near = [line["text"] for line in facts(*asked)["nearest"]]
    check("are whole in JSON", f"a b {OBEYED}" in near, near)
    plain("as it is printed", danaus(*asked, "--json").stdout)
    plain("a name", danaus("embed", model, "--text", f"{file}no", "-o", e).stderr)


# ---- folders ----


def check_folders(folder, model, text, new):
    """Where a model may be written, and what its files may name."""

    def refused(words, sentence, to):
        refuses(words, 1, sentence, "compress", model, "--params", 0.5, "-o", to)

    others = folder / "others"
    others.mkdir()
    (others / ".git").mkdir()
    facts("compress", model, "--params", 0.5, "-o", others)
    check("a folder of a repository", (others / "config.json").exists())
    facts("compress", model, "--params", 0.6, "-o", others)
    for name, content in ("config.json", '{"port": 80}'), ("notes.txt", "mine"):
        project = folder / f"of {name}"
        project.mkdir()
        (project / name).write_text(content)
        refused(f"a folder with a {name}", "no model that danaus wrote", project)
        kept = [x.name for x in project.iterdir()] == [name]
        check("it stays", kept and (project / name).read_text() == content)
    refused("a model of others", "no model that danaus wrote", write_copy(model, folder / "theirs"))
    (others / "vocab.txt").unlink()
    (others / "vocab.txt").symlink_to(text)
    refused("a link in it", "vocab.txt is a link", others)
    refused("a file", "is not a folder", text)
    refused("nowhere", "cannot make the folder", folder / "none" / "none")
    for path in "../../../../etc", "/etc", "..", "1_Pooling/../..", "", ".", "a\u0000b":
        modules = [{"type": "sentence_transformers.models.Pooling", "path": path}]
        (new / "modules.json").write_text(json.dumps(modules))
        pattern = "no proper JSON" if "\0" in path else "no name of a file or folder beside"
        refuses(f"{path!r} in modules.json", 1, pattern, "embed", new, "--text", text,
                "-o", folder / "e.npy")
    (new / "modules.json").unlink()
    # As in the cache of the hub: names are links to where the content is.
    cache = folder / "cache"
    cache.mkdir()
    for file in model.iterdir():
        (cache / file.name).symlink_to(f"../model/{file.name}")
    facts("embed", cache, "--text", text, "-o", folder / "e.npy")
    check("links that users made are followed", True)


def write_copy(model, to):
    shutil.copytree(model, to)
    return to


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

    filled = facts("fill", model, "a b [MASK] d [MASK]", "--top", 3)
    h = rows(w, "a b [MASK] d [MASK]")
    for mask, place in zip(filled["masks"], [3, 5], strict=True):
        p = probabilities(w, h[place])
        best = np.argsort(-p)[:3]
        named = [WORDS[i] for i in best]
        check("the words", [x["word"] for x in mask["words"]] == named, mask)
        error = np.abs([x["probability"] for x in mask["words"]] - p[best]).max()
        check("their probabilities", error < 1e-5 and mask["token"] == place, error)
    said = danaus("fill", model, "a [MASK]").stdout.splitlines()
    check("words are printed", len(said) == 5 and said[0].count("%") == 1, said)
    check_m2(folder)
    check_other_mask(folder, model)

    made = facts("compress", model, "--text", text, "--params", 0.6, "-o", new)
    check("the budget is kept", 0.5 * dense < made["parameters"] <= 0.6 * dense, made)
    check("all layers are listed", len(made["layers"]) == 6 * LAYERS)
    facts("embed", new, "--text", text, "-o", e2)
    near = np.corrcoef(np.tril(found @ found.T, -1).ravel(),
                       np.tril(np.load(e2) @ np.load(e2).T, -1).ravel())[0, 1]
    check("the new model is near", near > 0.9, near)
    again = facts("model", new)
    check("weights of the new", again["linear_parameters"] == made["parameters"], again)
    check("bounds are below errors", all(
        0 <= x["lower_bound"] <= x["error"] for x in made["layers"]), made)  # fmt: skip
    check_weights_alone(w, model, new)

    refuses("16 bits on a CPU", 1, "run in f32 on cpu", "embed", model, "--text", text,
            "-o", e, "--type", "f16")
    refuses("an odd type", 2, "f16 or bf16", "model", model, "--type", "f17")
    check("types are told", info["dtype"] == "f32", info)
    refuses("no mask", 1, "no [MASK]", "fill", model, "a b")
    refuses("no words", 2, "", "fill", model)
    refuses("too long a text", 1, "12", "model", model, "--length", 13)
    refuses("no text", 2, "--text FILE", "embed", model, "-o", e)
    refuses("no output", 2, "-o FILE", "embed", model, "--text", text)
    refuses("no model", 1, "config.json", "embed", folder, "--text", text, "-o", e)
    refuses("no file", 1, "nothing", "embed", model, "--text", folder / "nothing", "-o", e)
    (folder / "bad").write_bytes(b"a b\n\xff\n")
    refuses("no UTF-8", 1, "line 2:", "embed", model, "--text", folder / "bad", "-o", e)
    chains = facts("compress", model, "--text", text, "--params", 0.6, "-o",
                   folder / "chains", "--candidates", "monarch,sum")
    assert chains["parameters"] <= 0.6 * chains["dense_parameters"]
    refuses("unknown candidates", 2, "monarch, fitted or sum, with commas between them, not",
            "compress", model, "--params", 0.5, "-o", new, "--candidates", "monarch,low-rank")
    refuses("a share of 2", 2, "up to 1", "compress", model, "--text", text,
            "--params", 2, "-o", new)
    refuses("no layer", 1, "matches", "compress", model, "--text", text,
            "--params", 0.5, "--layers", "none", "-o", new)
    check_folders(folder, model, text, new)
    refuses("onto itself", 1, "came from", "compress", model, "--text", text,
            "--params", 0.5, "-o", model)
    check_terminal(folder, model)
    check_range(folder)
    if not SANITIZED:
        check_memory(folder)
    (folder / "empty").write_text("")
    refuses("an empty file", 1, "empty has no line", "embed", model, "--text",
            folder / "empty", "-o", e)
    (folder / "ends").write_bytes(b"\xef\xbb\xbfa b\rc\r\nd\n\re f")
    said = facts("embed", model, "--text", folder / "ends", "-o", e, "--query", "a b\rc")
    check("lines end in any way", said["lines"] == 5, said)
    near = [line["text"] for line in said["nearest"]]
    check("and their ends are no part of them", near[0] == "a b", near)


def check_range(folder):
    """Results of a model that are infinite or NaN are counted and told."""
    w, text = weights(np.random.default_rng(6)), folder / "few"
    text.write_text("a b\nc\n")

    def told(words, name, value, *args):
        model = folder / f"wide{len(list(folder.glob('wide*')))}"
        write_model(model, {**w, name: np.asarray(value, "f4")})
        done = danaus(args[0], model, *args[1:], "--json")
        lost = json.loads(done.stdout)["non_finite"] if done.stdout else 0
        check(words, done.returncode == 0 and lost > 0 and f"{lost} of" in done.stderr
              and "infinite or NaN" in done.stderr, done.stderr)  # fmt: skip
        return lost

    told("scores", "cls.predictions.transform.LayerNorm.weight", np.full(WIDTH, 3e38),
         "fill", "a [MASK]")  # fmt: skip
    told("embeddings", f"encoder.layer.{LAYERS - 1}.output.LayerNorm.weight",
         np.full(WIDTH, 3e38), "embed", "--text", text, "-o", folder / "e.npy")  # fmt: skip
    words = w["embeddings.word_embeddings.weight"].copy()
    words[-1, :3] = np.inf
    lost = told("weights that are written", "embeddings.word_embeddings.weight", words,
                "compress", "--params", 0.6, "-o", folder / "widenew")  # fmt: skip
    check("all of them", lost == 3, lost)


def check_memory(folder):
    with open(folder / "holes", "wb") as file:
        file.truncate(1 << 40)
    done = subprocess.run(
        ["sh", "-c", f"ulimit -v 1000000; exec {PROGRAM} embed {folder / 'model'} "
         f"--text {folder / 'holes'} -o unused.npy"], capture_output=True, text=True)  # fmt: skip
    check("a text that no memory holds", done.returncode == 1
          and "no memory for" in done.stderr and "holes" in done.stderr, done.stderr)  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(pathlib.Path(place))
    finish()
