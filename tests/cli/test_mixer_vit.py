#!/usr/bin/python3
"""danaus classify, model and compress from the outside, on a small random HyenaViT and M2-ViT,
against NumPy."""
# SPDX-License-Identifier: Apache-2.0
import json
import math
import pathlib
import tempfile

import numpy as np
from arrays import write_safetensors
from program import check, danaus, finish, refuses

WIDTH, INNER, LAYERS, CHANNELS, SIZE, PATCH, CLASSES = 12, 24, 2, 2, 11, 3, 5
PATCHES, FEATURES, ORDER, TAPS, BLOCKS = (SIZE // PATCH) ** 2, 3, 8, {"hyena": 5, "m2": 3}, 4


# ---- the models ----


def weights(rng, kind):
    found = {}

    def put(name, *shape, middle=0.0, size=1.0):
        found[name] = (middle + size * rng.uniform(-1, 1, shape)).astype("f4")

    def layer(name, *shape, bias=True):
        put(f"{name}.weight", *shape, size=2 * math.prod(shape[1:]) ** -0.5)
        if bias:
            put(f"{name}.bias", shape[0], size=0.3)

    def norm(name):
        put(f"{name}.weight", WIDTH, middle=1, size=0.3)
        put(f"{name}.bias", WIDTH, size=0.3)

    def network(name):
        for i, (rows, columns) in enumerate([(ORDER, FEATURES), (ORDER, ORDER), (ORDER, ORDER)]):
            layer(f"{name}.{2 * i}", rows, columns)
        layer(f"{name}.6", WIDTH, ORDER, bias=False)

    layer("patch_embed.proj", WIDTH, CHANNELS, PATCH, PATCH)
    for i in range(LAYERS):
        mixer, mlp = f"blocks.{i}.mixer", f"blocks.{i}.mlp"
        norm(f"blocks.{i}.norm1")
        norm(f"blocks.{i}.norm2")
        into, out = ("in_proj", "out_proj") if kind == "hyena" else ("in_linear", "out_linear")
        layer(f"{mixer}.{into}", 3 * WIDTH, WIDTH)
        layer(f"{mixer}.{out}", WIDTH, WIDTH)
        layer(f"{mixer}.short_filter", 3 * WIDTH, 1, TAPS[kind])
        put(f"{mixer}.filter_fn.bias", WIDTH)
        put(f"{mixer}.filter_fn.implicit_filter.1.freq", 1, ORDER, middle=1)
        network(f"{mixer}.filter_fn.implicit_filter")
        if kind == "hyena":
            layer(f"{mlp}.fc1", INNER, WIDTH)
            layer(f"{mlp}.fc2", WIDTH, INNER)
        else:
            found[f"{mixer}.filter_fn.pos_emb.z"] = encoding().astype("f4")[None]
            network(f"{mixer}.filter_fn.implicit_filter_rev")
            layer(f"{mlp}.gated_layers", BLOCKS, INNER // BLOCKS, WIDTH // BLOCKS, bias=False)
            layer(f"{mlp}.wo", BLOCKS, WIDTH // BLOCKS, INNER // BLOCKS, bias=False)
            put(f"{mlp}.wo.bias", WIDTH)
    norm("norm")
    layer("head", CLASSES, WIDTH)
    return found


def write_model(folder, kind, w, **others):
    folder.mkdir()
    config = {
        "model_type": f"{kind}_vit", "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "image_size": SIZE, "patch_size": PATCH,
        "num_channels": CHANNELS, "filter_order": ORDER, "hyena_filter_order": ORDER,
    } | others  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", {n: ("F32", x) for n, x in w.items()})


# ---- the same by NumPy ----


def encoding():
    s = np.arange(PATCHES)
    angle = 1e-4 * 2 * np.pi * s / PATCHES
    return np.stack([s / (PATCHES - 1), np.cos(angle), -np.sin(angle)], 1)


def gelu(x):
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def filter_of(w, place, network):
    """[patches][width]"""
    x, frequency = encoding(), w[f"{place}.implicit_filter.1.freq"][0]
    for i in 0, 2, 4:
        x = x @ w[f"{place}.{network}.{i}.weight"].T + w[f"{place}.{network}.{i}.bias"]
        x = np.sin(frequency * x)
    decay = np.linspace(math.log(0.01) / 1.5, math.log(0.01) / 0.3, WIDTH)
    window = np.exp(-np.linspace(0, 1, PATCHES)[:, None] * np.abs(decay))
    return x @ w[f"{place}.{network}.6.weight"].T * window


def convolve(w, place, x, both_ways):
    k, y = filter_of(w, place, "implicit_filter"), w[f"{place}.bias"] * x
    for s in range(PATCHES):
        y[s:] += k[s] * x[: PATCHES - s]
    if both_ways:
        k = filter_of(w, place, "implicit_filter_rev")
        for s in range(PATCHES - 1):
            y[: PATCHES - 1 - s] += k[s] * x[s + 1 :]
    return y


def few_taps(w, place, p):
    k, y = w[f"{place}.weight"][:, 0], np.tile(w[f"{place}.bias"], (PATCHES, 1))
    taps = k.shape[1]
    for s in range(taps):
        y[s:] += k[:, taps - 1 - s] * p[: PATCHES - s]
    return y


def by_blocks(m, x):
    """Rows x times a matrix [blocks][rows][columns]."""
    parts = np.split(x, len(m), 1)
    return np.hstack([part @ block.T for block, part in zip(m, parts)])


def scores(kind, w, image):
    """Scores of one image, in f64."""
    w = {name: x.astype("f8") for name, x in w.items()}

    def norm(x, place):
        x = x - x.mean(1, keepdims=True)
        x = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6)
        return x * w[f"{place}.weight"] + w[f"{place}.bias"]

    def linear(x, place):
        m = w[f"{place}.weight"]
        return x @ m.reshape(len(m), -1).T + w[f"{place}.bias"]

    rows = [
        image[:, i : i + PATCH, j : j + PATCH].ravel()
        for i in range(0, SIZE - PATCH + 1, PATCH)
        for j in range(0, SIZE - PATCH + 1, PATCH)
    ]
    h = linear(np.array(rows), "patch_embed.proj")
    if kind == "m2":
        angle = np.arange(PATCHES)[:, None] / 1e4 ** (np.arange(WIDTH) // 2 * 2 / WIDTH)
        h += np.where(np.arange(WIDTH) % 2, np.cos(angle), np.sin(angle))
    for i in range(LAYERS):
        mixer, mlp = f"blocks.{i}.mixer", f"blocks.{i}.mlp"
        n = norm(h, f"blocks.{i}.norm1")
        p = linear(n, f"{mixer}.in_proj" if kind == "hyena" else f"{mixer}.in_linear")
        first, second, v = np.split(few_taps(w, f"{mixer}.short_filter", p), 3, 1)
        before, behind = (second, first) if kind == "hyena" else (first, second)
        y = behind * convolve(w, f"{mixer}.filter_fn", before * v, kind == "m2")
        h = h + linear(y, f"{mixer}.out_proj" if kind == "hyena" else f"{mixer}.out_linear")
        n = norm(h, f"blocks.{i}.norm2")
        if kind == "hyena":
            h = h + linear(gelu(linear(n, f"{mlp}.fc1")), f"{mlp}.fc2")
        else:
            up = gelu(by_blocks(w[f"{mlp}.gated_layers.weight"], n))
            h = h + by_blocks(w[f"{mlp}.wo.weight"], up) + w[f"{mlp}.wo.bias"]
    return linear(norm(h, "norm").mean(0, keepdims=True), "head")[0]


# ---- the commands ----


def check_kind(folder, kind, x):
    w, model, file = weights(np.random.default_rng(3), kind), folder / kind, folder / "x.npy"
    write_model(model, kind, w)
    np.save(file, x)
    wanted = np.array([scores(kind, w, image) for image in x.astype("f8")])
    done = danaus("classify", model, file, "-o", folder / "y.npy", "--json", "--top", 1)
    check("it succeeds", done.returncode == 0 and not done.stderr, done.stderr)
    y = np.load(folder / "y.npy")
    # some two hundred roundings, which add up at random, of numbers around 1
    check("scores are NumPy's", np.abs(y - wanted).max() < 200 * 2**-24 * 4, y - wanted)
    found = [c[0]["class"] for c in json.loads(done.stdout)["found"]]
    check("the best class", found == list(wanted.argmax(1)), found)
    done = danaus("model", model)
    words = f"{kind}-vit: {LAYERS} layers of {WIDTH}"
    check("the model says what it is", words in done.stdout, done.stdout)
    check("and what it takes", "images of 2 x 11 x 11, 5 classes" in done.stdout, done.stdout)
    new = folder / f"{kind}-new"
    done = danaus("compress", model, "--images", file, "--params", 0.7, "-o", new)
    check("a model is compressed", done.returncode == 0, done.stderr)
    danaus("classify", new, file, "-o", folder / "z.npy")
    near = np.corrcoef(y.ravel(), np.load(folder / "z.npy").ravel())[0, 1]
    check("scores are near", near > 0.7, near)
    refuses("text", 1, f"is a model of images ({kind}-vit), not of text", "embed", model,
            "--text", file, "-o", folder / "e.npy")  # fmt: skip
    headless = {name: a for name, a in w.items() if not name.startswith("head.")}
    write_model(folder / f"{kind}-headless", kind, headless)
    refuses("no classes", 1, "no classes", "classify", folder / f"{kind}-headless", file)
    write_model(folder / f"{kind}-far", kind, w, hidden_size=WIDTH + 1)
    refuses("another width", 1, "not [13, 2, 3, 3]", "classify", folder / f"{kind}-far", file)


def main(folder):
    x = np.random.default_rng(6).standard_normal((150, CHANNELS, SIZE, SIZE)).astype("f4")
    for kind in "hyena", "m2":
        check_kind(folder, kind, x)
    write_model(folder / "gated", "m2", weights(np.random.default_rng(3), "m2"), use_glu_mlp=True)
    refuses("gates that are not there", 1, "says that use_glu_mlp is true", "model",
            folder / "gated")  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(pathlib.Path(name))
    finish()
