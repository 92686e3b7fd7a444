"""Trainings: what they read, that they resume to the same bits, and how they fail."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

import danaus

torch = pytest.importorskip("torch")

import torch.multiprocessing as mp  # noqa: E402

from danaus.torch import models as m  # noqa: E402
from danaus.torch import training  # noqa: E402
from danaus.torch.training import checkpoints  # noqa: E402
from danaus.torch.training.program import begin  # noqa: E402
from danaus.torch.training.ranks import Ranks  # noqa: E402
from danaus.torch.training.settings import COMMON, read_settings  # noqa: E402
from danaus.torch.training.texts import Vocabulary, read_fasta  # noqa: E402
from danaus.torch.training.tokens import Windows  # noqa: E402

TEXT = "".join(
    f"{n} is {n * n}, and its name is {chr(97 + n % 26)}.\n" for n in range(99)
)
CAUSAL = {
    "hyena": (m.HyenaConfig, m.HyenaForCausalLM),
    "hyenadna": (m.HyenaDNAConfig, m.HyenaDNAForCausalLM),
}
BERT = {"m2_bert": (m.M2BertConfig, m.M2BertForMaskedLM)}
VIT = {
    "vit": (m.MonarchViTConfig, m.MonarchViTForImageClassification),
    "hyena_vit": (m.HyenaViTConfig, m.HyenaViTForImageClassification),
    "m2_vit": (m.M2ViTConfig, m.M2ViTForImageClassification),
}
SIZES = {
    "hyena": {"d_model": 16, "n_layer": 1, "d_inner": 24, "filter_order": 8},
    "m2_bert": {
        "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32,
        "hyena_filter_order": 8,
    },
    "m2_vit": {
        "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32,
        "patch_size": 2, "hyena_filter_order": 8,
    },
}  # fmt: skip
PROGRAMS = {
    "hyena": (CAUSAL, training.NextTokens),
    "m2_bert": (BERT, training.MaskedTokens),
    "m2_vit": (VIT, training.Images),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Files to train on, where the test runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(TEXT)
    random = np.random.default_rng(1)
    np.save("images.npy", random.integers(0, 256, (50, 6, 6), "u1"))
    np.save("labels.npy", random.integers(0, 3, 50))
    for name, sizes in SIZES.items():
        data = {"data": "a.txt", "length": 24}
        if "vit" in name:
            data = {"data": "images.npy", "labels": "labels.npy", "held_out": 0.2}
        settings = data | {
            "model": {"model_type": name, **sizes}, "batch": 4, "steps": 6,
            "log_every": 1, "evaluate_every": 3,
            "checkpoint_every": 3, "evaluate_batches": 2, "device": "cpu", "rate": 3e-3,
        }  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(settings))
    return tmp_path


def train(name, *words):
    kinds, task = PROGRAMS[name]
    return training.main("Trains.", kinds, task, [f"{name}.json", *words])


def started(name, *words, ranks=None):
    """The training of such a call before its first step."""
    kinds, task = PROGRAMS[name]
    given = read_settings([f"{name}.json", *words])
    settings = training.Settings(COMMON | task.fields, given)
    return begin(kinds, settings, task, False, ranks or Ranks("cpu"))


@pytest.fixture
def refused(capsys):
    """A check that train() ends with a sentence of one line."""

    def check(sentence, *words):
        assert train(*words) == 1
        error = capsys.readouterr().err
        assert sentence in error and error.startswith("error: ")
        assert error.count("\n") == 1
        return error

    return check


def losses(out):
    rows = danaus.records.read(f"{out}/log.csv")
    return [(r["step"], r["loss"], r["held_out_loss"]) for r in rows]


def tensors(path):
    return dict(danaus._files.Tensors(path / "model.safetensors"))


def assert_same_run(a, b):
    assert losses(a) == losses(b) and len(losses(a)) == 6
    one, two = (tensors(checkpoints.last(out)) for out in (a, b))
    assert one.keys() == two.keys()
    for name, x in one.items():
        assert np.array_equal(x, two[name]), name


# ---- going on ----


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_that_goes_on_has_the_same_bits(name, folder):
    assert train(name, "out=whole") == 0
    started(name, "out=parts").run(until=3)
    assert [p.name for p in checkpoints._all(folder / "parts")] == ["checkpoint-3"]
    assert train(name, "out=parts", "--resume") == 0
    assert_same_run(folder / "whole", folder / "parts")
    assert losses("whole")[0][1] != losses("whole")[5][1]


def test_a_signal_ends_a_run_with_a_checkpoint(folder, monkeypatch, capsys):
    assert train("hyena", "out=whole", "log_every=3") == 0
    usual = signal.getsignal(signal.SIGTERM)
    batch = training.NextTokens.batch

    def interrupted(self, step, part):
        if step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return batch(self, step, part)

    words = "out=parts", "log_every=3", "--resume"
    with monkeypatch.context() as patch:
        patch.setattr(training.NextTokens, "batch", interrupted)
        assert train("hyena", *words) == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == usual
    assert "2 of 6 steps: parts/checkpoint-2" in capsys.readouterr().out
    assert train("hyena", *words) == 0
    assert losses("whole") == losses("parts")


def test_rows_beyond_the_last_checkpoint_are_removed(folder):
    assert train("hyena", "out=whole") == 0
    started("hyena", "out=parts").run(until=3)
    with open("parts/log.csv", "a") as file:
        file.write("4,1.0,0.1,1.0,1.0,,,\n5,1.")  # a run that was killed
    assert train("hyena", "out=parts", "--resume") == 0
    assert losses("whole") == losses("parts")


def test_a_checkpoint_that_fails_leaves_the_last_one(folder, monkeypatch):
    run = started("hyena", "keep=2")
    run.run(until=3)
    before = tensors(folder / "run/checkpoint-3")

    def full(*arguments, **options):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(torch, "save", full)
        run.run(until=4)
    assert checkpoints.last(folder / "run").name == "checkpoint-3"
    for name, x in tensors(folder / "run/checkpoint-3").items():
        assert np.array_equal(x, before[name])
    assert train("hyena", "keep=2", "--resume") == 0
    names = [p.name for p in sorted((folder / "run").iterdir())]
    assert names == ["checkpoint-3", "checkpoint-4.part", "checkpoint-6", "log.csv"]


def test_a_bar_shows_the_steps_on_a_terminal(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    assert train("hyena", "out=lines") == 0
    lines = [s for s in capsys.readouterr().out.split("\n") if s.startswith("step")]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert train("hyena", "out=bar") == 0
    shown = capsys.readouterr()
    assert "6/6" in shown.err and all(line in shown.out for line in lines)
    assert losses("bar") == losses("lines")


def test_a_run_is_not_begun_where_another_one_is(refused):
    words = "hyena", "steps=1"
    assert train(*words) == 0
    refused("--resume goes on", *words)
    refused("rate is 0.0001 and was 0.003 in", *words, "rate=1e-4", "--resume")
    other = "the model_type is 'hyena', not 'hyenadna'"
    refused(other, *words, "model.model_type=hyenadna", "--resume")
    with open("a.txt", "a") as file:
        file.write("more")
    refused("items and had", *words, "--resume")
    with open("run/checkpoint-1/training.pt", "r+b") as file:
        file.truncate(100)
    refused("is no state of a training", *words, "--resume")


def test_training_needs_no_transformers(folder):
    program = """
import sys
sys.modules["transformers"] = sys.modules["tqdm"] = None
from danaus.torch import models as m, training
kinds = {"m2_bert": (m.M2BertConfig, m.M2BertForMaskedLM)}
words = ["m2_bert.json", "steps=2", "--resume"]
for _ in "12":
    assert training.main("", kinds, training.MaskedTokens, words) == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert len(losses("run")) == 2
    m.M2BertForMaskedLM.from_pretrained("run/checkpoint-2")


# ---- arithmetic ----


def _rank(rank, folder, port, calls):
    os.chdir(folder)
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
    for words in calls:
        assert train(*words) == 0


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return str(one.getsockname()[1])


@pytest.mark.skipif(not torch.distributed.is_available(), reason="no distributed")
def test_two_processes_and_parts_have_the_losses_of_one(folder):
    """Sums of f32 in another order: a few roundings of numbers near 5, which training
    makes larger from step to step."""
    calls = [
        ("hyena", "model.embed_dropout=0"),
        ("m2_bert", "model.hidden_dropout_prob=0"),
        ("m2_vit", "model.drop_path_rate=0"),
    ]
    split = [(*words, f"out={words[0]}2", "accumulate=2") for words in calls]
    mp.spawn(_rank, (str(folder), free_port(), split), nprocs=2)
    for words in calls:
        name = words[0]
        assert train(*words, f"out={name}1") == 0
        assert train(*words, f"out={name}4", "accumulate=4") == 0
        wanted = np.array(losses(f"{name}1"), float)
        for out in f"{name}2", f"{name}4":
            np.testing.assert_allclose(np.array(losses(out), float), wanted, rtol=2e-5)


def test_the_rate_grows_and_falls():
    settings = training.Settings(
        COMMON, {"data": "a", "steps": 100, "warm_up": 0.1, "last_rate": 0.2}
    )
    rates = [training.rate_at(n, settings) for n in range(1, 101)]
    np.testing.assert_allclose(rates[:10], np.arange(1, 11) / 10)
    share = np.arange(1, 91) / 90
    cosine = 0.2 + 0.8 * (1 + np.cos(np.pi * share)) / 2
    np.testing.assert_allclose(rates[10:], cosine)


def test_parameters_have_the_rates_of_the_recipe():
    model = m.M2BertForMaskedLM(m.M2BertConfig(**SIZES["m2_bert"], vocab_size=30))
    special = {"filter_rate": 2.0, "filter_decay": 0.5, "position_rate": 3.0}
    names = {id(p): n for n, p in model.named_parameters()}
    tagged = model.cls.predictions.transform.dense.bias
    tagged._optim = {"lr": 4.0, "weight_decay": 0.25}
    for options in {}, special:
        groups = training.parameter_groups(model, 1.0, 0.1, **options)
        found = {
            names[id(p)]: (g["lr"], g["weight_decay"])
            for g in groups
            for p in g["params"]
        }
        assert len(found) == len(names) == sum(len(g["params"]) for g in groups)
        for name, pair in found.items():
            matrix = model.get_parameter(name).dim() > 1
            wanted = (1.0, 0.1 if matrix and "freq" not in name else 0.0)
            if "implicit_filter" in name and options:
                wanted = (2.0, 0.5)
            if "pos_emb.z" in name:
                wanted = (3.0 if options else 1.0, 0.0)
            if name == names[id(tagged)]:
                wanted = (4.0, 0.25)
            assert pair == wanted, name


def test_a_loss_that_is_not_finite_ends_the_training(folder, refused):
    words = "rate=1e30", "warm_up=0", "checkpoint_every=1", "log_every=9"
    error = refused("error: in step 2 the loss is ", "hyena", *words)
    assert error.endswith("the last one is run/checkpoint-1\n")
    assert checkpoints.read_state(folder / "run/checkpoint-1")["step"] == 1
    model = m.HyenaForCausalLM.from_pretrained("run/checkpoint-1")
    assert all(p.isfinite().all() for p in model.parameters())


def test_16_bits_train(capsys):
    assert train("hyena", "dtype=bfloat16", "recompute=true", "out=b", "clip=0") == 0
    assert train("hyena", "out=f", "clip=0") == 0
    b, f = np.array(losses("b"), float)[:, 1], np.array(losses("f"), float)[:, 1]
    assert 0 < abs(b - f).max() < 0.05


def test_models_learn_and_are_evaluated(folder):
    """The text repeats a line, so that all but its numbers can be known."""
    words = "steps=60", "batch=8", "rate=1e-2", "log_every=60", "held_out=0.1"
    assert train("hyena", *words, "evaluate_every=60", "evaluate_batches=99") == 0
    (row,) = danaus.records.read("run/log.csv")
    assert row["held_out_loss"] < 0.6 * math.log(263)
    ids = [7 + b for b in TEXT.encode()] + [1]
    rest = torch.tensor(ids[len(ids) - round(0.1 * len(ids)) :])
    rows = rest[: len(rest) // 24 * 24].reshape(-1, 24)
    model = m.HyenaForCausalLM.from_pretrained("run/checkpoint-60")
    with torch.no_grad():
        likely = model(rows).logits[:, :-1].double().log_softmax(-1)
    loss = -likely.gather(2, rows[:, 1:, None]).mean().item()
    np.testing.assert_allclose(row["held_out_loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(row["perplexity"], math.exp(loss), rtol=1e-5)


# ---- data ----


def test_c_reads_checkpoints(folder):
    (folder / "g.fa").write_text(">one\n" + "acgtt\n" * 60 + ">two\n" + "ACGTN" * 40)
    words = "model.model_type=hyenadna", "data=g.fa", "steps=1", "held_out=0.2"
    assert train("hyena", *words) == 0
    model = danaus.Model("run/checkpoint-1")
    ids = model.tokenizer.encode("ACGTN", around=False)
    assert list(ids) == list(Vocabulary.of_bases().encode("ACGTN"))
    found = m.HyenaDNAForCausalLM.from_pretrained("run/checkpoint-1")
    with torch.no_grad():
        likely = found(torch.tensor(ids[None]).long()).logits.log_softmax(-1)
    wanted = [float(likely[0, t, ids[t + 1]]) for t in range(4)]
    np.testing.assert_allclose(model.score_tokens([ids])[0][-4:], wanted, atol=1e-5)


def test_windows_lie_within_documents():
    documents = [np.arange(n) + 100 * i for i, n in enumerate((7, 2, 4, 9))]
    windows = Windows(documents, 4)
    wanted = [d[s : s + 4] for d in documents for s in range(len(d) - 3)]
    assert len(windows) == len(wanted)
    assert np.array_equal(windows.at(np.arange(len(wanted))), wanted)
    apart = [d[s : s + 4] for d in documents for s in range(0, len(d) - 3, 4)]
    assert np.array_equal(windows.at(windows.apart()), apart)


def test_text_is_read_as_bytes_and_held_out(folder):
    (folder / "b.txt").write_text("é")
    run = started("hyena", 'data=["a.txt", "b.txt"]', "held_out=0.25")
    ids = [7 + b for b in TEXT.encode()] + [1, 7 + 0xC3, 7 + 0xA9, 1]
    cut = len(ids) - round(0.25 * len(ids))
    (train_on,), (rest,) = run.data.train.documents, run.data.test.documents
    assert list(train_on) == ids[:cut] and list(rest) == ids[cut:]
    part = run.data.batch(3, slice(1, 3))
    assert part.labels == 2 * 23 and part.inputs["input_ids"].shape == (2, 24)
    text = bytes(part.inputs["input_ids"][0].numpy().astype("u1") - 7).decode()
    assert text in TEXT


def test_fasta_has_records_comments_and_lowercase(folder):
    (folder / "g.fa").write_text(
        "; by hand\nAC\n>one x\r\nacg\r\n\r\nTN\r\n>two\n>three\nA C"
    )
    found = read_fasta(["g.fa"], Vocabulary.of_bases(), False)
    letters = ["".join("ACGTN"[i - 7] for i in d) for d in found]
    assert letters == ["AC", "ACGTN", "AC"]
    (folder / "r.fa").write_text(">one\nACR")
    assert list(read_fasta(["r.fa"], Vocabulary.of_bases(), True)[0]) == [7, 8, 11]


def test_tokens_of_a_tokenizer(folder):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "[SEP]": 1, "[MASK]": 2, "is": 3, "name": 4, ",": 5}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save("words.json")
    options = "tokenizer=words.json", "steps=1", "out=words"
    run = started("m2_bert", *options)
    assert run.data.train.documents[0][:8].tolist() == [0, 3, 0, 5, 0, 0, 4, 3]
    assert run.model.config.vocab_size == 6
    assert train("m2_bert", *options) == 0
    saved = json.loads((folder / "words/checkpoint-1/tokenizer.json").read_text())
    assert saved["model"]["vocab"] == words


def test_masks_are_as_described(folder):
    words = "length=40", "batch=200", "mask_share=0.3", "held_out=0.5"
    data = started("m2_bert", *words).data
    part = data.batch(1, slice(0, 200))
    given, labels = part.inputs["input_ids"], part.inputs["labels"]
    asked = labels != -100
    assert (asked.sum(1) == 12).all() and part.labels == 2400
    places = asked.flatten().nonzero()[:, 0]
    assert torch.equal(part.inputs["label_places"].sort()[0], places)
    assert not (labels == data.vocabulary.separator).any()
    shares = [
        (given[asked] == data.vocabulary.mask).float().mean(),
        (given[asked] == labels[asked]).float().mean(),
    ]
    for share, wanted in zip(shares, (0.8 + 0.1 / 263, 0.1 + 0.1 / 263)):
        spread = math.sqrt(wanted * (1 - wanted) / 2400)
        assert abs(share - wanted) < 5 * spread
    whole = torch.where(asked, labels, given)
    places = [data.train.at(np.arange(len(data.train)))]
    known = {bytes(row.astype("i2")) for row in places[0]}
    assert all(bytes(row.numpy().astype("i2")) in known for row in whole)
    again = data.held_out_batch(0, slice(0, 200)).inputs
    for name, x in data.held_out_batch(0, slice(0, 200)).inputs.items():
        assert torch.equal(x, again[name])


# ---- images ----


def test_every_pass_has_every_image_once(folder):
    data = started("m2_vit", "batch=16").data
    known = {image.tobytes(): n for n, image in enumerate(np.load("images.npy"))}

    def places(part):
        pixels = part.inputs["pixel_values"]
        bytes_of = ((pixels + 1) * 127.5).round().to(torch.uint8)
        assert (pixels - (bytes_of / 255 - 0.5) / 0.5).abs().max() < 1e-6
        return [known[x.numpy().tobytes()] for x in bytes_of]

    steps = [data.batch(n, slice(0, 16)) for n in range(1, 6)]
    drawn = [n for part in steps for n in places(part)]
    rest = [
        n
        for i in range(data.held_out)
        for n in places(data.held_out_batch(i, slice(0, 16)))
    ]
    assert sorted(drawn[:40]) == sorted(drawn[40:]) and drawn[:40] != drawn[40:]
    assert sorted(drawn[:40] + rest) == list(range(50)) and len(rest) == 10
    labels = torch.cat([part.inputs["labels"] for part in steps])
    assert np.array_equal(labels, np.load("labels.npy")[drawn])


def test_images_move_and_are_mirrored(folder):
    images = np.arange(50 * 2 * 5 * 5, dtype="f4").reshape(50, 2, 5, 5)
    np.save("images.npy", images)
    words = "shift=1", "flip=true", "batch=40"
    pixels = (
        started("m2_vit", *words).data.batch(1, slice(0, 40)).inputs["pixel_values"]
    )
    at = np.arange(5)
    possible = {}
    for n, image in enumerate(images):
        for step in (1, -1):
            for y in (-1, 0, 1):
                for x in (-1, 0, 1):
                    rows, cols = (at - y).clip(0, 4), (at - x).clip(0, 4)
                    moved = image[:, :, ::step][:, rows][:, :, cols]
                    possible[moved.tobytes()] = n, step, y, x
    found = [possible[x.numpy().tobytes()] for x in pixels]
    assert len({n for n, *_ in found}) == 40 and len({tuple(k) for _, *k in found}) > 9


@pytest.mark.parametrize("name", VIT)
def test_images_in_one_file_train_all_models(name, folder):
    numpy_files = pytest.importorskip("safetensors.numpy")
    arrays = {n: np.load(f"{n}.npy") for n in ("images", "labels")}
    numpy_files.save_file(arrays, "both.safetensors")
    sizes = {n: v for n, v in SIZES["m2_vit"].items() if "filter" not in n}
    more = {"num_attention_heads": 2, "monarch_blocks": 2} if name == "vit" else {}
    model = {"model_type": name, **sizes, **more}
    words = f"model={json.dumps(model)}", "data=both.safetensors", "labels=[]"
    assert train("m2_vit", *words, "steps=2") == 0
    (row,) = [r for r in danaus.records.read("run/log.csv") if r["right"] is not None]
    model = VIT[name][1].from_pretrained("run/checkpoint-2")
    assert model.config.num_labels == 3 and 0 <= row["right"] <= 1
    data = started("m2_vit", *words, "out=other").data
    right = count = 0
    for i in range(2):
        part = data.held_out_batch(i, slice(0, 4)).inputs
        right += (model(**part).logits.argmax(1) == part["labels"]).sum().item()
        count += len(part["labels"])
    assert row["right"] == right / count


WRONG_IMAGES = [
    (["labels=[]"], "images.npy needs a file of labels"),
    (["labels=images.npy"], "labels have the shape [50, 6, 6]"),
    (["labels=negative.npy"], "a label is -1"),
    (["model.num_labels=2"], "a label is 2, and the model has 2 classes"),
    (["model.patch_size=7"], "patches of 7 pixels in images of 6"),
    (["model.image_size=8"], "[any, 1, 8, 8] is needed"),
    (["data=a.txt"], "a.txt is no array of NumPy"),
    (["data=labels.npy"], "labels.npy has the shape [50]"),
    (["data=integers.npy"], "numbers of type int64"),
    (["data=broken.safetensors"], "broken.safetensors has no images and labels"),
    (["held_out=0.999"], "leaves no image to train on"),
    (["held_out_data=small.npy", "held_out_labels=labels.npy"], "are [1, 2, 2]"),
    (["length=3"], "there is no setting 'length'"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), WRONG_IMAGES, ids=lambda x: str(x)[:30])
def test_wrong_images_get_a_sentence(words, sentence, folder, refused):
    np.save("negative.npy", np.full(50, -1))
    np.save("integers.npy", np.zeros((50, 6, 6), int))
    np.save("small.npy", np.zeros((50, 2, 2), "f4"))
    (folder / "broken.safetensors").write_bytes(b"\xff" * 20)
    refused(sentence, "m2_vit", *words)


# ---- what is wrong ----


WRONG = [
    (["stepz=3"], "there is no setting 'stepz'"),
    (["steps=0"], "steps is 0; it has to be a whole number from 1 on"),
    (["steps=1.5"], "steps is 1.5"),
    (["rate=-1"], "rate is -1; it has to be a number from 0 on"),
    (["rate=NaN"], "rate is NaN"),
    (["held_out=1"], "it has to be a number from 0 on, and less than 1"),
    (["dtype=float16"], 'it has to be one of "float32", "bfloat16"'),
    (["betas=[0.9]"], "it has to be two numbers in [0, 1)"),
    (["model=3"], "it has to be an object with the model's numbers"),
    (["rate.x=3"], "rate.x is set, and rate is no object"),
    (["model.model_type=bert"], "it has to be one of hyena, hyenadna"),
    (["model.depth=3"], "a model has no number 'depth'"),
    (["model.d_model=0"], "d_model is 0"),
    (["model.emb_dim=4"], "an odd number from 3 on"),
    (["model.emb_dim=x"], "there is no model with these numbers"),
    (["model.vocab_size=100"], "ids up to 262, and the model has 104 rows"),
    (["model.max_seq_len=20"], "a sequence of 24 tokens; the model takes 1 to 20"),
    (["data=none.txt"], "none.txt"),
    (["data=[]"], "data names no file"),
    (["data=."], "a folder"),
    (["data=binary"], "binary is no UTF-8: byte 1 is wrong"),
    (["length=9999"], "fewer than a sequence of 9999"),
    (["held_out=0.001"], "the longest text for evaluation has 3 tokens"),
    (["batch=3", "accumulate=2"], "batch is 3, no multiple of 2 parts"),
    (["data=wrong.fa"], "wrong.fa, record 'one': 'R' is no base; ambiguous=true"),
    (["data=empty.fa"], "there are no bases in empty.fa"),
    (["tokenizer=a.txt"], "a.txt is no tokenizer"),
    (["a.txt"], "a.txt is no proper JSON"),
    (["list.json"], "list.json holds a list"),
    (["none.json"], "none.json"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), WRONG, ids=lambda x: str(x)[:30])
def test_wrong_calls_get_a_sentence(words, sentence, folder, refused):
    (folder / "binary").write_bytes(b"a\xff")
    (folder / "wrong.fa").write_text(">one two\nACGR\n")
    (folder / "empty.fa").write_text(">one two\n")
    (folder / "list.json").write_text("[]")
    if words[0].startswith("tokenizer"):
        pytest.importorskip("tokenizers")
    refused(sentence, "hyena", *words)
    assert not list(folder.glob("run/checkpoint*"))


def test_settings_count_in_their_order(folder):
    (folder / "two.json").write_text('{"steps": 7, "model": {"d_model": 3}}')
    found = read_settings(["two.json", "model.n_layer=2", "steps=8", "out=a b"])
    assert found == {"steps": 8, "model": {"d_model": 3, "n_layer": 2}, "out": "a b"}


def test_help_names_all_settings(capsys):
    with pytest.raises(SystemExit) as end:
        training.main("Trains.", CAUSAL, training.NextTokens, ["--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0 and "length (needed): tokens of a sequence" in shown
    assert all(f"  {name} (" in shown for name in COMMON)


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "training.md"


def test_the_page_has_settings_that_there_are_and_draws(folder):
    text = PAGE.read_text()
    (settings,) = re.findall(r"^```json\n(.*?)^```$", text, re.M | re.S)
    training.Settings(COMMON | training.NextTokens.fields, json.loads(settings))
    pytest.importorskip("matplotlib")
    for out in "dna", "deeper":
        assert train("hyena", "steps=2", f"out={out}") == 0
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    exec(code, {})
    assert (folder / "losses.png").read_bytes().startswith(b"\x89PNG")
