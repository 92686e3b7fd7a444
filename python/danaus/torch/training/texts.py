"""Token ids of text and of FASTA files."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from danaus._files import read_text, regular
from danaus.torch._conv_functions import fail

SPECIAL = ["[CLS]", "[SEP]", "[BOS]", "[MASK]", "[PAD]", "[RESERVED]", "[UNK]"]
_SHARED = SPECIAL.index("[SEP]"), SPECIAL.index("[MASK]"), SPECIAL.index("[PAD]")
_BASES = "ACGTN"
_SEVERAL = "RYSWKMBDHVU"  # letters that stand for several bases
_GROUP = 1 << 16  # characters that a tokenizer.json gets at a time
_FASTA = (".fa", ".fasta", ".fna")


@dataclass
class Vocabulary:
    """Words by their ids.

    encode makes ids of a text; separator, mask and pad are ids or None; files are those
    that a model's folder needs for it.
    """

    size: int
    encode: Callable[[str], np.ndarray]
    separator: int | None
    mask: int | None
    pad: int | None
    files: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of_bytes(cls) -> Vocabulary:
        """7 special tokens, as in HyenaDNA, then the 256 bytes of UTF-8."""

        def encode(text: str) -> np.ndarray:
            found = np.frombuffer(text.encode(), np.uint8)
            return found.astype(np.int32) + len(SPECIAL)

        return cls(len(SPECIAL) + 256, encode, *_SHARED)

    @classmethod
    def of_bases(cls) -> Vocabulary:
        """The 7 special tokens, then A C G T N; other letters become N."""
        table = np.full(256, len(SPECIAL) + _BASES.index("N"), np.int32)
        for id, letter in enumerate(_BASES, len(SPECIAL)):
            table[ord(letter)] = id

        def encode(text: str) -> np.ndarray:
            return table[np.frombuffer(text.encode(), np.uint8)]

        config = {"tokenizer_class": "HyenaDNATokenizer"}
        files = {"tokenizer_config.json": json.dumps(config).encode()}
        size = len(SPECIAL) + len(_BASES)
        return cls(size, encode, *_SHARED, files=files)

    @classmethod
    def of_file(cls, name: str) -> Vocabulary:
        """A tokenizer.json, by the package tokenizers."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            fail(f"{name} needs the package tokenizers: pip install tokenizers")
        text = read_text(name)
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the package has no class of errors of its own
            fail(f"{name} is no tokenizer: {error}")

        def encode(text: str) -> np.ndarray:
            options = {"add_special_tokens": False}
            found = tokenizer.encode_batch(list(_groups(text)), **options)
            ids = [np.array(one.ids, np.int32) for one in found]
            return np.concatenate(ids) if ids else np.empty(0, np.int32)

        def first(*names: str) -> int | None:
            ids = map(tokenizer.token_to_id, names)
            return next((id for id in ids if id is not None), None)

        return cls(
            tokenizer.get_vocab_size(),
            encode,
            first("[SEP]", "</s>", "<|endoftext|>", "[EOS]", "<eos>"),
            first("[MASK]", "<mask>"),
            first("[PAD]", "<pad>"),
            {"tokenizer.json": text.encode()},
        )


def _groups(text: str) -> Iterator[str]:
    """Whole lines, of about _GROUP characters together."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _GROUP) + 1 or len(text)
        yield text[start:end]
        start = end


def is_fasta(names: list[str]) -> bool:
    """True if all files have a name of FASTA's."""
    return all(os.fspath(name).lower().endswith(_FASTA) for name in names)


def read_texts(names: list[str], vocabulary: Vocabulary) -> list[np.ndarray]:
    """One document: the ids of all files, with a separator after each."""
    parts = []
    for name in names:
        try:
            text = read_text(name)
        except UnicodeDecodeError as error:
            fail(f"{name} is no UTF-8: byte {error.start} is wrong")
        parts.append(vocabulary.encode(text))
        if vocabulary.separator is not None:
            parts.append(np.array([vocabulary.separator], np.int32))
    return [np.concatenate(parts)]


def read_fasta(
    names: list[str], vocabulary: Vocabulary, ambiguous: bool
) -> list[np.ndarray]:
    """A document for each record. ambiguous: letters of several bases are N."""
    allowed = set(_BASES + (_SEVERAL if ambiguous else ""))
    documents = []
    for name in names:
        for title, letters in _records(name):
            wrong = set(letters) - allowed
            if wrong:
                _refuse_letter(name, title, min(wrong))
            if letters:
                documents.append(vocabulary.encode(letters))
    if not documents:
        fail(f"there are no bases in {', '.join(names)}")
    return documents


def _records(name: str) -> Iterator[tuple[str, str]]:
    """Names of records and their letters, uppercase."""
    with open(regular(name), encoding="latin-1") as file:
        text = file.read()
    for number, record in enumerate(re.split(r"^>", text, flags=re.M)):
        title, _, lines = record.partition("\n")
        if number == 0:  # what comes before the first name
            title, lines = "", record
        lines = re.sub(r"^;.*$", "", lines, flags=re.M)
        yield " ".join(title.split()[:1]), re.sub(r"\s", "", lines).upper()


def _refuse_letter(name: str, title: str, letter: str) -> NoReturn:
    more = ""
    if letter in _SEVERAL:
        more = "; ambiguous=true reads letters of several bases as N"
    fail(f"{name}, record {title!r}: {letter!r} is no base{more}")
