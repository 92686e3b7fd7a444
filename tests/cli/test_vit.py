#!/usr/bin/python3
"""danaus classify from the outside, on a small random vision transformer, against NumPy."""
# SPDX-License-Identifier: Apache-2.0
import json
import math
import pathlib
import tempfile

import numpy as np
from arrays import write_safetensors
from program import OBEYED, check, danaus, finish, plain, refuses

WIDTH, HEADS, INNER, LAYERS, CHANNELS, SIZE, PATCH, CLASSES = 24, 3, 40, 2, 3, 11, 4, 6


# ---- the model ----


def weights(rng):
    found = {}

    def put(name, *shape, middle=0.0, size=1.0):
        found[name] = (middle + size * rng.uniform(-1, 1, shape)).astype("f4")

    def layer(name, *shape):
        put(f"{name}.weight", *shape, size=2 * math.prod(shape[1:]) ** -0.5)
        put(f"{name}.bias", shape[0], size=0.3)

    def norm(name):
        put(f"{name}.weight", WIDTH, middle=1, size=0.3)
        put(f"{name}.bias", WIDTH, size=0.3)

    put("vit.embeddings.cls_token", 1, 1, WIDTH)
    put("vit.embeddings.position_embeddings", 1, 1 + (SIZE // PATCH) ** 2, WIDTH)
    layer("vit.embeddings.patch_embeddings.projection", WIDTH, CHANNELS, PATCH, PATCH)
    for i in range(LAYERS):
        block = f"vit.encoder.layer.{i}"
        for name in "query", "key", "value":
            layer(f"{block}.attention.attention.{name}", WIDTH, WIDTH)
        layer(f"{block}.attention.output.dense", WIDTH, WIDTH)
        layer(f"{block}.intermediate.dense", INNER, WIDTH)
        layer(f"{block}.output.dense", WIDTH, INNER)
        norm(f"{block}.layernorm_before")
        norm(f"{block}.layernorm_after")
    norm("vit.layernorm")
    layer("classifier", CLASSES, WIDTH)
    return found


def write_model(folder, w):
    folder.mkdir()
    config = {
        "model_type": "vit", "hidden_size": WIDTH, "num_attention_heads": HEADS,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "hidden_act": "silu",
        "image_size": SIZE, "patch_size": PATCH, "num_channels": CHANNELS,
        "id2label": {str(i): f"kind {i}{OBEYED}" for i in range(CLASSES - 1)},
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(
        folder / "model.safetensors", {n: (f"F{8 * x.itemsize}", x) for n, x in w.items()}
    )


def scores(w, image):
    """Scores of one image, in f64."""
    w = {name.removeprefix("vit."): x.astype("f8") for name, x in w.items()}

    def norm(x, place):
        x = x - x.mean(1, keepdims=True)
        x = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-12)
        return x * w[f"{place}.weight"] + w[f"{place}.bias"]

    def linear(x, place):
        m = w[f"{place}.weight"]
        return x @ m.reshape(len(m), -1).T + w[f"{place}.bias"]

    rows = [
        image[:, i : i + PATCH, j : j + PATCH].ravel()
        for i in range(0, SIZE - PATCH + 1, PATCH)
        for j in range(0, SIZE - PATCH + 1, PATCH)
    ]
    h = linear(np.array(rows), "embeddings.patch_embeddings.projection")
    h = np.vstack([w["embeddings.cls_token"][0], h])
    h = h + w["embeddings.position_embeddings"][0]
    for i in range(LAYERS):
        block, mixed = f"encoder.layer.{i}", []
        n = norm(h, f"{block}.layernorm_before")
        q, k, v = (
            linear(n, f"{block}.attention.attention.{name}")
            for name in ("query", "key", "value")
        )
        for part in np.split(np.arange(WIDTH), HEADS):
            p = np.exp(q[:, part] @ k[:, part].T / np.sqrt(WIDTH / HEADS))
            mixed.append(p / p.sum(1, keepdims=True) @ v[:, part])
        h = h + linear(np.hstack(mixed), f"{block}.attention.output.dense")
        up = linear(norm(h, f"{block}.layernorm_after"), f"{block}.intermediate.dense")
        h = h + linear(up / (1 + np.exp(-up)), f"{block}.output.dense")
    return linear(norm(h, "layernorm")[:1], "classifier")[0]


# ---- the commands ----


def check_compression(folder, model, file, y):
    new, z = folder / "new", folder / "z.npy"
    dense = LAYERS * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER)
    args = ["--params", 0.6, "-o", new, "--json"]
    for images in [["--images", file], []]:
        done = danaus("compress", model, *images, *args)
        check("a model is compressed", done.returncode == 0 and not done.stderr, done.stderr)
        made = json.loads(done.stdout)
        check("the budget is kept", 0.5 * dense < made["parameters"] <= 0.6 * dense, made)
        check("what is measured", (made["change"] is None) == (not images), made)
        danaus("classify", new, file, "-o", z)
        near = np.corrcoef(y.ravel(), np.load(z).ravel())[0, 1]
        check("scores are near", near > 0.7, near)
    done = danaus("compress", model, "--images", file, *args[:-1])
    check("a line for each layer", done.stdout.count("dense ") == 3 * LAYERS, done.stdout)
    check("and what it was made by", "by 130 images" in done.stdout, done.stdout)
    refuses("text", 1, "takes --images, not --text", "compress", model, "--text", file, *args)
    refuses("no such file", 1, "x2", "compress", model, "--images", folder / "x2", *args)
    refuses("text and images", 2, "one of", "compress", model, "--text", file, "--images",
            file, *args)  # fmt: skip
    refuses("no share", 2, "needed", "compress", model, "--images", file, "-o", new)


def main(folder):
    rng = np.random.default_rng(6)
    w, model, file = weights(rng), folder / "model", folder / "x.npy"
    write_model(model, w)
    x = rng.standard_normal((130, CHANNELS, SIZE, SIZE)).astype("f4")
    np.save(file, x)
    wanted = np.array([scores(w, image) for image in x.astype("f8")])
    done = danaus("classify", model, file, "-o", folder / "y.npy", "--json", "--top", 9)
    check("it succeeds", done.returncode == 0 and not done.stderr, done.stderr)
    y, facts = np.load(folder / "y.npy"), json.loads(done.stdout)
    # some two hundred roundings, which add up at random, of numbers around 1
    check("scores are NumPy's", np.abs(y - wanted).max() < 200 * 2**-24 * 4)
    p = np.exp(wanted) / np.exp(wanted).sum(1, keepdims=True)
    right = [
        [c["class"] for c in found] == list(np.argsort(-wanted[i], kind="stable"))
        and np.allclose([c["probability"] for c in found], -np.sort(-p[i]), atol=1e-5)
        for i, found in enumerate(facts["found"])
    ]
    check("classes are in order, with probabilities", len(right) == 130 and all(right))
    labels = {c["class"]: c["label"] for c in facts["found"][0]}
    check("labels are the model's", labels == {
        i: f"kind {i}{OBEYED}" if i < CLASSES - 1 else None for i in range(CLASSES)
    })  # fmt: skip
    check_compression(folder, model, file, y)
    np.save(file, x[7].astype("f8"))
    done = danaus("classify", model, file, "--top", 2)
    plain("labels", done.stdout)
    best = wanted[7].argmax()
    first = done.stdout.split("\n")[0].split()
    check("one image", first[:2] == ["image", "1"] and first[3] == str(best), done.stdout)
    check("two lines and one", done.stdout.count("\n") == 3, done.stdout)
    done = danaus("model", model)
    check("the model says what it takes", "images of 3 x 11 x 11, 6 classes" in done.stdout)

    np.save(file, x[:, :, 1:])
    refuses("other sizes", 1, "images are f32 130 x 3 x 10 x 11", "classify", model, file)
    np.save(file, x[:0])
    check("no images", danaus("classify", model, file).stdout.startswith("0 images"))
    refuses("no file", 1, "x2.npy", "classify", model, folder / "x2.npy")
    refuses("no model", 1, "config.json", "classify", folder, file)
    refuses("no images named", 2, "file of images", "classify", model)
    w.pop("classifier.weight"), w.pop("classifier.bias")
    write_model(folder / "headless", w)
    refuses("no classes", 1, "no classes", "classify", folder / "headless", file)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(pathlib.Path(name))
    finish()
