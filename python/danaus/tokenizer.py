"""Text to token ids of a model, and back.

WordPiece, Unigram or byte-level BPE, as ``tokenizers`` makes them, or characters.

docs/models.md has the rules.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from danaus._arrays import INT, pointer, whole
from danaus._library import check, ffi, lib, own, path_bytes


def text_bytes(text: str | bytes, what: str = "a text") -> bytes:
    """A text as the library takes it; TypeError for anything else."""
    if not isinstance(text, (str, bytes)):
        kind = type(text).__name__
        raise TypeError(f"{what} has to be a string, and this is of type {kind}")
    return text.encode() if isinstance(text, str) else text


def texts_of(texts: Iterable[str | bytes]) -> list[bytes]:
    """Many texts as the library takes them; TypeError for one, and for no texts."""
    if isinstance(texts, (str, bytes)):
        raise TypeError("a list of texts is needed here, and this is one text")
    if isinstance(texts, Mapping) or not hasattr(texts, "__iter__"):
        kind = type(texts).__name__
        raise TypeError(f"texts have to be a list of strings, and this is a {kind}")
    return [text_bytes(text, f"text {i}") for i, text in enumerate(texts)]


class Tokenizer:
    """The tokenizer of a model's folder, of a tokenizer.json or of a vocab.txt.

    It may be used by several threads at a time. Unpickling reads its path again.
    """

    def __init__(self, path: str | os.PathLike):
        place = ffi.new("danaus_tokenizer **")
        check(lib.danaus_tokenizer_load(path_bytes(path), place))
        self._handle = own(place[0], lib.danaus_tokenizer_destroy)
        self._path = os.path.abspath(path)

    def __reduce__(self):
        return Tokenizer, (self._path,)

    def __len__(self) -> int:
        """One more than the largest id."""
        return lib.danaus_tokenizer_vocabulary(self._handle)

    def __repr__(self) -> str:
        return f"<danaus.Tokenizer of {len(self)} ids>"

    def id(self, token: str) -> int:
        """The id of a token such as "[MASK]"; KeyError if there is none."""
        place = ffi.new("int32_t *")
        if not isinstance(token, str):
            raise TypeError(f"a token has to be a string, not {type(token).__name__}")
        if "\0" in token or lib.danaus_tokenizer_id(
            self._handle, token.encode(), place
        ):
            raise KeyError(token)
        return place[0]

    def encode(
        self, text: str | bytes, most: int | None = None, *, around: bool = True
    ) -> np.ndarray:
        """The ids of a text, int32, with the special tokens that the model expects.

        most : maximum of ids, with these; None: any number.
        around : False omits those after the text, for text that continues.
        """
        data = text_bytes(text)
        limit = 0 if most is None else whole(most, "most", 1, INT)
        count = ffi.new("size_t *")
        ids = np.empty(len(data) + 16, np.int32)
        while True:  # few templates have more ids than that around a text
            status = lib.danaus_tokenizer_encode(
                self._handle, data, len(data), limit, pointer(ids), ids.size, count
            )
            if status != lib.DANAUS_ERR_SHAPE:
                check(status)
                behind = 0 if around else self._around()[1]
                return ids[: count[0] - behind].copy()
            ids = np.empty(count[0], np.int32)

    def _around(self) -> tuple[int, int]:
        """How many ids `encode` puts before a text and behind it."""
        before, after = ffi.new("size_t *"), ffi.new("size_t *")
        check(lib.danaus_tokenizer_around(self._handle, before, after))
        return before[0], after[0]

    def encode_batch(
        self, texts: Iterable[str | bytes], most: int | None = None
    ) -> list[np.ndarray]:
        """`encode` of each text."""
        return [self.encode(text, most) for text in texts_of(texts)]

    def decode(self, ids: ArrayLike, skip_special: bool = True) -> str:
        """The text of ids, with or without special tokens."""
        given = np.asarray(ids)
        if given.size and given.dtype.kind not in "iu":
            raise TypeError(f"ids are integers, not {given.dtype}")
        if given.size and (given.min() < 0 or given.max() >= len(self)):
            wrong = given[(given < 0) | (given >= len(self))][0]
            raise ValueError(f"ids have to be from 0 to {len(self) - 1}, not {wrong}")
        numbers = np.ascontiguousarray(given.reshape(-1), np.int32)
        count = ffi.new("size_t *")
        room = 16 * numbers.size + 1
        while True:
            text = ffi.new("char[]", room)
            status = lib.danaus_tokenizer_decode(
                self._handle,
                pointer(numbers),
                numbers.size,
                bool(skip_special),
                text,
                room,
                count,
            )
            if status != lib.DANAUS_ERR_SHAPE:
                check(status)
                return ffi.buffer(text, count[0])[:].decode()
            room = count[0] + 1
