#!/usr/bin/python3
"""danaus score, generate and model from the outside, on a small random model of DNA; likelihoods
against NumPy."""
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import tempfile

import numpy as np
from arrays import write_safetensors
from program import OBEYED, check, danaus, facts, finish, plain, refuses

WIDTH, INNER, LAYERS, LENGTH, FEATURES, ORDER = 12, 20, 2, 30, 5, 7
BASES = "ACGTN"


# ---- the model ----


def weights(rng):
    found = {}

    def put(name, *shape, middle=0.0, size=1.0):
        found[name] = (middle + size * rng.uniform(-1, 1, shape)).astype("f4")

    def pair(place, *shape, middle=0.0):
        size = 1.5 / shape[-1] ** 0.5
        put(f"{place}.weight", *shape, middle=middle, size=size)
        put(f"{place}.bias", shape[0], size=0.3)

    put("backbone.embeddings.word_embeddings.weight", 16, WIDTH)
    t = np.linspace(0, 1, LENGTH)[:, None]
    angle = 2 * np.pi * np.arange(LENGTH)[:, None] / LENGTH * np.array([1e-4, 1])
    for i in range(LAYERS):
        block = f"backbone.layers.{i}"
        pair(f"{block}.norm1", WIDTH, middle=1)
        pair(f"{block}.norm2", WIDTH, middle=1)
        pair(f"{block}.mixer.in_proj", 3 * WIDTH, WIDTH)
        pair(f"{block}.mixer.out_proj", WIDTH, WIDTH)
        pair(f"{block}.mixer.short_filter", 3 * WIDTH, 1, 3)
        pair(f"{block}.mlp.fc1", INNER, WIDTH)
        pair(f"{block}.mlp.fc2", WIDTH, INNER)
        filter = f"{block}.mixer.filter_fn"
        put(f"{filter}.bias", WIDTH)
        z = np.concatenate([t, np.cos(angle), -np.sin(angle)], 1)
        found[f"{filter}.pos_emb.z"] = z[None].astype("f4")
        pair(f"{filter}.implicit_filter.0", ORDER, FEATURES)
        put(f"{filter}.implicit_filter.1.freq", 1, ORDER, middle=2)
        pair(f"{filter}.implicit_filter.2", ORDER, ORDER)
        pair(f"{filter}.implicit_filter.4", ORDER, ORDER)
        put(f"{filter}.implicit_filter.6.weight", WIDTH, ORDER, size=0.6)
    pair("backbone.ln_f", WIDTH, middle=1)
    return found


def write_model(folder, w, **more):
    folder.mkdir()
    config = {
        "model_type": "hyenadna", "d_model": WIDTH, "n_layer": LAYERS, "d_inner": INNER,
        "vocab_size": 12, "pad_vocab_size_multiple": 8, "max_seq_len": LENGTH,
        "emb_dim": FEATURES, "filter_order": ORDER,
    } | more
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "HyenaDNATokenizer"}'
    )
    write_safetensors(
        folder / "model.safetensors", {n: (f"F{8 * x.itemsize}", x) for n, x in w.items()}
    )


def logits(w, ids, taps=LENGTH):
    """[tokens][16], in f64, of filters of so many taps."""
    w = {name: x.astype("f8") for name, x in w.items()}
    n = len(ids)

    def norm(x, place):
        x = x - x.mean(1, keepdims=True)
        x = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)
        return x * w[f"{place}.weight"] + w[f"{place}.bias"]

    def linear(x, place):
        return x @ w[f"{place}.weight"].T + w[f"{place}.bias"]

    r = w["backbone.embeddings.word_embeddings.weight"][ids]
    for i in range(LAYERS):
        block = f"backbone.layers.{i}"
        p = linear(norm(r, f"{block}.norm1"), f"{block}.mixer.in_proj")
        p = np.vstack([np.zeros((2, 3 * WIDTH)), p])
        short = w[f"{block}.mixer.short_filter.weight"][:, 0]
        c = sum(p[j : j + n] * short[:, j] for j in range(3))
        x0, x1, v = np.split(c + w[f"{block}.mixer.short_filter.bias"], 3, 1)
        filter = f"{block}.mixer.filter_fn"
        s = w[f"{filter}.pos_emb.z"][0, :taps]
        for layer in 0, 2, 4:
            frequency = w[f"{filter}.implicit_filter.1.freq"]
            s = np.sin(frequency * linear(s, f"{filter}.implicit_filter.{layer}"))
        decay = np.linspace(np.log(0.01) / 1.5, np.log(0.01) / 0.3, WIDTH)
        window = np.exp(np.linspace(0, 1, LENGTH)[:taps, None] * decay) + 0.05
        k = s @ w[f"{filter}.implicit_filter.6.weight"].T * window
        u = v * x1
        last = [u[max(0, t + 1 - taps) : t + 1] for t in range(n)]
        y = np.stack([(k[: len(x)][::-1] * x).sum(0) for x in last])
        y = (y + w[f"{filter}.bias"] * u) * x0
        r = r + linear(y, f"{block}.mixer.out_proj")
        a = linear(norm(r, f"{block}.norm2"), f"{block}.mlp.fc1")
        a = a / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))
        r = r + linear(a, f"{block}.mlp.fc2")
    return norm(r, "backbone.ln_f") @ w["backbone.embeddings.word_embeddings.weight"].T


def scores(w, ids, taps):
    x = logits(w, ids, taps)
    x = x - np.log(np.exp(x).sum(1, keepdims=True))
    return np.array([x[t, ids[t + 1]] for t in range(len(ids) - 1)])


def likelihood(w, bases, window, context, taps=LENGTH):
    """The log likelihood of a record, window by window; and how many bases have a score."""
    ids = [7 + BASES.index(base) for base in bases.upper()]
    total, count, at = 0.0, 0, 0
    while at == 0 or at + context < len(ids):
        new = scores(w, ids[at : at + window], taps)[context - 1 if at else 0 :]
        total, count, at = total + new.sum(), count + len(new), at + window - context
    return total, count


# ---- the commands ----


def check_scores(
    w, model, file, records, *options, window=LENGTH, context=LENGTH // 2, taps=LENGTH
):
    said = facts("score", model, file, *options)
    check("all records are there", [r["name"] for r in said["records"]] == list(records))
    for r in said["records"]:
        total, count = likelihood(w, records[r["name"]], window, context, taps)
        good = abs(r["log_likelihood"] - total) < 1e-4 and r["scored"] == count
        check(f"{r['name']} {' '.join(map(str, options))}", good, (r, total, count))
    check("windows are told", (said["window"], said["context"]) == (window, context))


def write_fault(case, folder):
    """The records, with a letter of none in line 4."""
    file = folder / "mixed.fa"
    file.write_bytes((case / "mixed.fa").read_bytes().replace(b"ac", b"R"))
    return file


def main(folder):
    rng = np.random.default_rng(5)
    w, model = weights(rng), folder / "model"
    write_model(model, w)
    lengths = {"one": 1, "few": 17, "whole": LENGTH, "more": LENGTH + 1, "many": 173}
    records = {name: "".join(rng.choice(list("ACGTNacgt"), n)) for name, n in lengths.items()}
    file = folder / "records.fa"
    lines = []
    for name, bases in records.items():
        lines += [f">{name} and more", *(bases[i : i + 11] for i in range(0, len(bases), 11))]
    file.write_text("\n".join(lines) + "\n")

    check_scores(w, model, file, records)
    check_scores(w, model, file, records, "--context", 1, context=1)
    check_scores(w, model, file, records, "-w", 8, "-c", 3, window=8, context=3)
    done = danaus("score", model, "-", text=">x\r\nACGT\r\n\r\nac\r\n>empty\n")
    rows = [line.split() for line in done.stdout.splitlines()]
    total, _ = likelihood(w, "ACGTAC", LENGTH, LENGTH // 2)
    good = rows[1][:2] == ["x", "6"] and abs(float(rows[1][2]) - total) < 1e-2
    check("a table", good and rows[2] == ["empty", "0", "0.000", "-"], done.stdout)
    case = pathlib.Path(__file__).parents[1] / "cases" / "line_ends"
    right = json.loads((case / "right.json").read_text())["records"]
    check_scores(w, model, case / "mixed.fa", right)
    refuses("the line of a fault", 1, "mixed.fa, line 4:", "compress", model, "--fasta",
            write_fault(case, folder), "--params", 0.7, "-o", folder / "unused")  # fmt: skip
    marked = folder / "marked.fa"
    marked.write_bytes(b"\xef\xbb\xbf" + (case / "mixed.fa").read_bytes())
    check_scores(w, model, marked, right)
    plain("names of records", danaus("score", model, "-", text=f">x{OBEYED}\nAC\n").stdout)
    any_base = facts("score", model, "-", "--ambiguous", text=">x\nARY\n")["records"][0]
    total, _ = likelihood(w, "ANN", LENGTH, LENGTH // 2)
    check("bases of the code are N", abs(any_base["log_likelihood"] - total) < 1e-4)

    for words, pattern, text in [
        ("an unknown letter", 'line 3: "R" is no letter', ">x\nAC\nAR\n"),
        ("a byte", 'line 2: "0xff" is no', ">x\nAC\udcff\n"),
        ("no record", 'line 1: "A" is before the first', "ACGT\n"),
        ("an empty file", "has no record", ""),
        ("records of nothing", "bad.fa have no bases", ">x\n>y\r>z\r\n"),
    ]:
        (folder / "bad.fa").write_bytes(text.encode(errors="surrogateescape"))
        refuses(words, 1, pattern, "score", model, folder / "bad.fa")
    refuses("no file", 1, "nothing", "score", model, folder / "nothing")
    refuses("a folder", 1, "cannot read", "score", model, folder)
    refuses("a long window", 1, "2 to 30 tokens", "score", model, file, "-w", 31)
    refuses("a long context", 1, "begin with 1 to 29", "score", model, file, "-c", 30)
    refuses("no model", 1, "config.json", "score", folder, file)

    ids = [7, 8, 9]
    made = facts("generate", model, "ACG", "--tokens", 9)
    for token in made["tokens"]:
        likely = logits(w, ids)[-1, :12]
        check("the likeliest token", likely[token] > likely.max() - 1e-4, (token, likely))
        ids.append(token)
    check("a prompt without [SEP]", made["prompt_tokens"] == 3)
    check("no more than the model takes",
          len(facts("generate", model, "ACG", "-n", 0, "-t", 2)["tokens"]) <= LENGTH - 3)
    hot = ["generate", model, "ACG", "-t", 1.5, "-k", 5, "-p", 0.9, "--seed"]
    one, two = (danaus(*hot, seed).stdout for seed in (1, 2))
    check("the seed decides", one != two and one == danaus(*hot, 1).stdout, (one, two))
    text = facts(*hot, 1)["text"]
    check("text is printed", text + "\n" == one, (text, one))
    for command in ["score", model, file], ["generate", model, "ACG"]:
        refuses("16 bits on a CPU", 1, "run in f32 on cpu", *command, "--type", "f16")
    refuses("no prompt", 1, "has no token", "generate", model, "")
    refuses("a long prompt", 1, "31 tokens", "generate", model, "A" * 31)
    refuses("a negative temperature", 2, "temperature", "generate", model, "A", "-t", -1)
    refuses("a share above 1", 2, "up to 1", "generate", model, "A", "-p", 2)
    info = facts("model", model)
    check("sizes", (info["architecture"], info["max_length"]) == ("hyena", LENGTH), info)
    (folder / "lines").write_text("ACGT\nacg\n")
    facts("embed", model, "--text", folder / "lines", "-o", folder / "e.npy")
    e = np.load(folder / "e.npy")
    check("embeddings", e.shape == (2, WIDTH) and np.isfinite(e).all())
    check_taps(folder, w, file, records)
    check_compression(folder)
    check_range(folder, w)


def check_taps(folder, w, file, records):
    part, most = folder / "part", 1 << 24
    write_model(part, w, filter_taps=11)
    check_scores(w, part, file, records, window=most, context=most // 2, taps=11)
    check_scores(w, part, file, records, "-w", 50, window=50, context=25, taps=11)
    made = facts("generate", part, "A" * 40, "-n", 3)
    check("a long prompt", made["prompt_tokens"] == 40, made)
    info = facts("model", part)
    check("any length", (info["max_length"], info["text"]["tokens"]) == (most, most), info)
    write_model(folder / "none", w, filter_taps=0)
    refuses("no tap", 1, '"filter_taps" is 0', "model", folder / "none")


def check_range(folder, w):
    wide = folder / "wide"
    write_model(wide, {**w, "backbone.ln_f.weight": np.full(WIDTH, 3e38, "f4")})
    done = danaus("score", wide, "-", "--json", text=">x\nACGT\n")
    lost = json.loads(done.stdout)["non_finite"] if done.stdout else 0
    check("logarithms that are not finite are told", done.returncode == 0 and lost > 0
          and f"{lost} of 3 values are infinite or NaN" in done.stderr, done.stderr)  # fmt: skip
    refuses("no token from such", 1, "finite", "generate", wide, "ACG")
    refuses("a temperature below f32", 1, "--temperature", "generate", folder / "model", "A",
            "-t", "1e-50")  # fmt: skip


def check_compression(folder):
    rng = np.random.default_rng(8)
    model, new, file = folder / "model", folder / "new", folder / "many.fa"
    bases = "".join(rng.choice(list("ACGT"), 3000))
    file.write_text(f">all\n{bases}\n>none\n>one\nA\n")
    dense = LAYERS * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER)
    args = ["--params", 0.7, "-o", new]
    made = facts("compress", model, "--fasta", file, "-w", 20, *args)
    check("records in pieces", made["lines"] == 151, made["lines"])
    check("the budget is kept", 0.6 * dense < made["parameters"] <= 0.7 * dense, made)
    check("embeddings move", 0 < made["change"] < 0.5, made["change"])
    means = [facts("score", place, file)["records"][0]["mean"] for place in (model, new)]
    check("bases are as likely", abs(means[1] - means[0]) < 0.3, means)
    info = facts("model", new)
    check("weights of the new", info["linear_parameters"] == made["parameters"], info)
    facts("compress", model, "--text", folder / "lines", "--layers", "mlp", *args)
    check("what chains are", "a chain, left as it was" in danaus(
        "compress", new, "--layers", "in_proj|fc1", "--params", 0.9, "-o", folder / "third"
    ).stdout)  # fmt: skip
    (folder / "bad.fa").write_text(">x\nACR\n")
    refuses("no letter of its own", 1, 'line 2: "R"', "compress", model, "--fasta",
            folder / "bad.fa", *args)  # fmt: skip
    (folder / "bad.fa").write_text("")
    refuses("an empty file", 1, "nothing to read", "compress", model, "--fasta",
            folder / "bad.fa", *args)  # fmt: skip
    refuses("no file", 1, "cannot read", "compress", model, "--fasta", folder / "n", *args)
    refuses("images", 1, "not --images", "compress", model, "--images", file, *args)
    refuses("no layer", 1, "matches", "compress", model, "--layers", "nothing", *args)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(pathlib.Path(place))
    finish()
