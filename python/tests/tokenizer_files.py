"""Texts of many scripts, and tokenizers of the reference that are trained on them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import gzip
import pathlib

import numpy as np
import pytest

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import (  # noqa: E402
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

# First and last code points of letters of 21 scripts, Latin to Hangul.
SCRIPTS = (
    "0061-007a 00c0-024f 0370-03ff 0400-04ff 0531-0587 05d0-05ea 0620-065f 0904-0970 "
    "0985-09ce 0a05-0a39 0b85-0bcf 0c05-0c4d 0e01-0e3a 0e81-0ebd 10d0-10ff 1200-135f "
    "1780-17cf 3041-3096 30a1-30fa 4e00-9fa5 ac00-d7a3"
)
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
# What is put into lines: marks, clusters, spaces, compatible letters, tokens.
OTHERS = (
    "\u0301 \u0327 \u200d \u2581 \ufeff \ufffd \U0001f469\u200d\U0001f680 \U0001f600 "
    "\U0001f1e9\U0001f1ea \u00bd \u2460 \ufb01 \u212b \u0958\u0301 \u1100\u1161\u11a8 "
    "\u2026 \u2177 \u3300 's 'LL 're 123 4567 \u0661\u0662 <mask> <s> </s> <unk> "
    "a\u0301\u0345\u0323 \u30cf\u309a \uff8a\uff9f #### !?!?"
).split(" ")
OTHERS += "  |\t|\r\n|\n|\u3000|\u00a0|\u2028| \u2029 |   |\u1680|\x85".split("|")
OTHERS += ["\x0b", "\x00"]


def documents(count: int) -> list[str]:
    """Lines of Debian's documentation, of which every language has its share."""
    lines = []
    for path in sorted(pathlib.Path("/usr/share/doc").rglob("*")):
        if not path.is_file() or path.stat().st_size > 1 << 20:
            continue
        data = path.read_bytes()
        try:
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            found = data.decode().split("\n")
        except (ValueError, OSError, EOFError):
            continue
        found = [line for line in found if "\0" not in line]  # files may not have it
        # Lines that are not plain English first, then some of the others.
        rare = [line for line in found if not line.isascii()]
        lines += rare[:40] + [line for line in found if line.strip()][:20]
    order = np.random.default_rng(29).permutation(len(lines))
    return [lines[i] for i in order[:count]]


def script_lines(rng, count: int) -> list[str]:
    """Lines of words of one script each; some words come often."""
    words = []
    for script in SCRIPTS.split():
        first, last = (int(code, 16) for code in script.split("-"))
        lengths = rng.integers(1, 8, 200)
        words.append(
            ["".join(map(chr, rng.integers(first, last + 1, n))) for n in lengths]
        )
    lines = []
    for k in rng.integers(len(words), size=count):
        chosen = rng.integers(0, 200, rng.integers(1, 12))
        lines.append(" ".join(words[k][n * n // 200] for n in chosen))
    return lines


@functools.cache
def training_lines() -> list[str]:
    return documents(8_000) + script_lines(np.random.default_rng(5), 4_000)


def mixed_lines(rng, count: int) -> list[str]:
    """Lines of all kinds, with other things in them at random places."""
    known = training_lines() + script_lines(rng, 2_000)
    lines = []
    for i in rng.integers(len(known), size=count):
        line = known[i]
        for _ in range(rng.integers(0, 6)):
            at = int(rng.integers(len(line) + 1))
            line = line[:at] + OTHERS[rng.integers(len(OTHERS))] + line[at:]
        lines.append(line)
    return lines


def random_text(rng, length: int) -> str:
    """Code points of all planes, most of them from the small ones."""
    limits = np.array([0x80, 0x300, 0x3100, 0x10000, 0x20000, 0x110000])
    codes = rng.integers(0, rng.choice(limits, length))
    codes = np.where((codes >= 0xD800) & (codes < 0xE000), ord(" "), codes)
    return "".join(map(chr, np.where(rng.random(length) < 0.2, ord(" "), codes)))


def with_tokens(made: Tokenizer) -> Tokenizer:
    mask = AddedToken("<mask>", lstrip=True, normalized=False, special=True)
    made.add_special_tokens([*SPECIAL, mask])
    return made


def template(made: Tokenizer) -> processors.TemplateProcessing:
    ends = [(token, made.token_to_id(token)) for token in ("<s>", "</s>")]
    return processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)


@functools.cache
def sentencepiece_model(folder: str):
    """A model that SentencePiece trained; its map of characters is nmt_nfkc."""
    sentencepiece = pytest.importorskip("sentencepiece")
    pytest.importorskip("google.protobuf")
    from sentencepiece import sentencepiece_model_pb2

    path = pathlib.Path(folder, "trained")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training_lines()),
        model_prefix=str(path),
        vocab_size=6000,
        character_coverage=0.999,
        num_threads=1,
        minloglevel=2,
    )
    read = sentencepiece_model_pb2.ModelProto()
    read.ParseFromString(path.with_suffix(".model").read_bytes())
    return read


def xlm_roberta(folder: str, *, words_first: bool = False) -> Tokenizer:
    """As transformers converts XLM-RoBERTa's model; `words_first`: its version 5."""
    read = sentencepiece_model(folder)
    vocabulary = [(token, 0.0) for token in SPECIAL]
    vocabulary += [(piece.piece, piece.score) for piece in read.pieces[3:]]
    made = Tokenizer(models.Unigram([*vocabulary, ("<mask>", 0.0)], 3, False))
    charsmap = normalizers.Precompiled(read.normalizer_spec.precompiled_charsmap)
    strip = normalizers.Strip(left=False, right=True)
    spaces = normalizers.Replace(Regex(" {2,}"), "\u2581")
    made.normalizer = normalizers.Sequence([charsmap, strip, spaces])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    if words_first:
        made.normalizer = charsmap
        steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.decoder = decoders.Metaspace()
    made.post_processor = template(made)
    return with_tokens(made)


@functools.cache
def trained_unigram() -> str:
    """A model that the reference trained on marked text."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(
        training_lines(),
        trainers.UnigramTrainer(
            vocab_size=10_000,
            special_tokens=SPECIAL,
            unk_token="<unk>",
            show_progress=False,
        ),
    )
    made.decoder = decoders.Metaspace()
    return made.to_str()


@functools.cache
def trained_bytes() -> str:
    """Byte-level BPE as RoBERTa has it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(
        training_lines(),
        trainers.BpeTrainer(
            vocab_size=6000,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=SPECIAL,
            show_progress=False,
        ),
    )
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return with_tokens(made).to_str()
