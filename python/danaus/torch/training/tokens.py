"""Sequences of tokens to train on: the next token, or masked ones."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from danaus.torch._conv_functions import fail
from danaus.torch.models.base import Pretrained
from danaus.torch.models.loss import IGNORED
from danaus.torch.training.settings import (
    NEEDED,
    Settings,
    as_list,
    number,
    one_of,
    optional,
    path,
    switch,
    whole,
)
from danaus.torch.training.texts import Vocabulary, is_fasta, read_fasta, read_texts

TRAINING, EVALUATION, ORDER = 0, 1, 2  # streams of random numbers of a seed


class Part(NamedTuple):
    """The inputs of a model, and the number of labels in its mean loss."""

    inputs: dict[str, Any]
    labels: int


def random_of(seed: int, stream: int, step: int) -> np.random.Generator:
    """Random numbers of a step, which depend on no step before."""
    return np.random.default_rng([seed, stream, step])


class Windows:
    """Places where sequences of a length may begin in documents."""

    def __init__(self, documents: Iterable[np.ndarray], length: int):
        self.documents = [d for d in documents if len(d) >= length]
        self.length = length
        counts = [len(d) - length + 1 for d in self.documents]
        self.ends = np.cumsum(counts, dtype=np.int64)

    def __len__(self) -> int:
        """How many places there are."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def at(self, places: np.ndarray) -> np.ndarray:
        """Sequences [places, length]."""
        own = np.searchsorted(self.ends, places, side="right")
        starts = places - np.concatenate([[0], self.ends])[own]
        pairs = zip(own, starts)
        rows = [self.documents[d][s : s + self.length] for d, s in pairs]
        return np.stack(rows).astype(np.int64)

    def apart(self) -> np.ndarray:
        """Places of sequences that do not overlap."""
        begins = np.concatenate([[0], self.ends[:-1]])
        each = [np.arange(b, e, self.length) for b, e in zip(begins, self.ends)]
        return np.concatenate(each) if each else np.empty(0, np.int64)


def _parted(
    documents: list[np.ndarray], share: float
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The beginning of every document, and the last share of it."""
    cuts = [len(d) - round(share * len(d)) for d in documents]
    pairs = list(zip(documents, cuts))
    return [d[:c] for d, c in pairs], [d[c:] for d, c in pairs]


class NextTokens:
    """Sequences of which every token but the first is predicted from those before it.

    Sequences to train on begin at random places. Those for evaluation do not overlap.
    """

    measure = "perplexity"
    fields = {
        "length": whole(NEEDED, 2, "tokens of a sequence"),
        "format": one_of(
            None, [None, "text", "fasta"], "null: fasta, if names end in .fa, .fasta"
        ),
        "ambiguous": switch(False, "FASTA: letters of several bases are N"),
        "tokenizer": optional(path(None, "a tokenizer.json; null: bytes are tokens")),
    }

    def __init__(self, settings: Settings):
        self.settings = settings
        names, held_out = as_list(settings.data), as_list(settings.held_out_data)
        self.is_fasta = settings.format == "fasta" or (
            settings.format is None and is_fasta(names + held_out)
        )
        if self.is_fasta and settings.tokenizer is not None:
            fail("FASTA's tokens are bases; tokenizer is for text")
        self.vocabulary = self._vocabulary()
        documents = self._read(names) if names else fail("data names no file")
        if held_out:
            rest = self._read(held_out)
        else:
            documents, rest = _parted(documents, settings.held_out)
        self.tokens = sum(map(len, documents))
        self.train = Windows(documents, settings.length)
        self.test = Windows(rest, settings.length)
        self._check(documents, rest)
        self.apart = self.test.apart()
        self.kept_of: tuple[int, int] | None = None  # what _drawn() drew last
        self.kept: tuple[np.ndarray, ...] = ()

    def _vocabulary(self) -> Vocabulary:
        if self.is_fasta:
            return Vocabulary.of_bases()
        if self.settings.tokenizer is None:
            return Vocabulary.of_bytes()
        return Vocabulary.of_file(self.settings.tokenizer)

    def _read(self, names: list[str]) -> list[np.ndarray]:
        if self.is_fasta:
            return read_fasta(names, self.vocabulary, self.settings.ambiguous)
        return read_texts(names, self.vocabulary)

    def _check(self, documents: list[np.ndarray], rest: list[np.ndarray]) -> None:
        length = self.settings.length
        for windows, parts, of in (
            (self.train, documents, "to train on"),
            (self.test, rest, "for evaluation"),
        ):
            longest = max((len(part) for part in parts), default=0)
            if not len(windows) and (longest or windows is self.train):
                fail(
                    f"the longest text {of} has {longest} tokens, fewer than a "
                    f"sequence of {length}"
                )

    # ---- what the training asks ----

    @property
    def size(self) -> int:
        """The number of tokens of the data; data of another size is other data."""
        return self.tokens

    @property
    def numbers(self) -> dict[str, int]:
        """Numbers that a model for this data has, unless others are named."""
        length = self.settings.length
        found = {"vocab_size": self.vocabulary.size}
        found |= {"max_seq_len": length, "long_conv_l_max": length}
        if self.vocabulary.pad is not None:
            found["pad_token_id"] = self.vocabulary.pad
        return found

    @property
    def files(self) -> dict[str, bytes]:
        """Other files that a model's folder needs."""
        return self.vocabulary.files

    def check(self, model: Pretrained) -> None:
        """The model has a row for every token."""
        rows = getattr(model.config, "rows", model.config.vocab_size)
        if self.vocabulary.size > rows:
            fail(
                f"the tokens have ids up to {self.vocabulary.size - 1}, and the model "
                f"has {rows} rows; vocab_size is too small"
            )

    def batch(self, step: int, part: slice) -> Part:
        """Part of the sequences of a step."""
        return self._part(self._drawn(TRAINING, step), part)

    @property
    def held_out(self) -> int:
        """Batches for evaluation."""
        return -(-len(self.apart) // self.settings.batch)

    def held_out_batch(self, number: int, part: slice) -> Part | None:
        """Part of the sequences of a batch; None if there are none in it."""
        rows = len(self.apart) - number * self.settings.batch
        if part.start >= rows:
            return None
        return self._part(self._drawn(EVALUATION, number), part)

    def _drawn(self, stream: int, number: int) -> tuple[np.ndarray, ...]:
        """All sequences of a step, or of a batch for evaluation. They are kept, since
        parts of them are asked for one after the other."""
        if self.kept_of != (stream, number):
            size = self.settings.batch
            random = random_of(self.settings.seed, stream, number)
            if stream == TRAINING:
                ids = self.train.at(random.integers(len(self.train), size=size))
            else:
                ids = self.test.at(self.apart[number * size : (number + 1) * size])
            self.kept_of, self.kept = (stream, number), self._prepared(ids, random)
        return self.kept

    def _prepared(
        self, ids: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, ...]:
        """Arrays of a batch, a row for each sequence."""
        return (ids,)

    def _part(self, arrays: tuple[np.ndarray, ...], part: slice) -> Part:
        found = torch.from_numpy(arrays[0][part])
        labels = found.numel() - len(found)
        inputs = {"input_ids": found, "labels": found, "loss_only": True}
        return Part(inputs, labels)


class MaskedTokens(NextTokens):
    """Sequences with a share of tokens to be told from all others.

    80 % of these tokens become the mask token, 10 % become any token, and 10 % stay
    (Devlin et al., arXiv 1810.04805, section 3.1). Separators are never chosen.
    """

    fields = NextTokens.fields | {
        "mask_share": number(0.15, "share of the tokens that are masked", below=1)
    }

    def __init__(self, settings: Settings):
        super().__init__(settings)
        if self.vocabulary.mask is None:
            fail(f"{settings.tokenizer} has no token [MASK] or <mask>")

    def _prepared(
        self, ids: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, ...]:
        count = max(1, round(self.settings.mask_share * ids.shape[1]))
        order = random.random(ids.shape)
        order[ids == self.vocabulary.separator] = 2.0
        chosen = np.argpartition(order, count - 1, axis=1)[:, :count]
        masked = np.zeros(ids.shape, bool)
        np.put_along_axis(masked, chosen, True, axis=1)
        masked &= order < 2.0
        kind = random.random(ids.shape)
        words = random.integers(self.vocabulary.size, size=ids.shape)
        given = np.where(masked & (kind < 0.8), self.vocabulary.mask, ids)
        given = np.where(masked & (kind >= 0.9), words, given)
        return given, np.where(masked, ids, IGNORED), chosen

    def _part(self, arrays: tuple[np.ndarray, ...], part: slice) -> Part:
        given, labels, chosen = (x[part] for x in arrays)
        places = chosen + given.shape[1] * np.arange(len(given))[:, None]
        inputs = {
            "input_ids": torch.from_numpy(given),
            "labels": torch.from_numpy(labels),
            "label_places": torch.from_numpy(places.flatten()),
        }
        return Part(inputs, int((labels != IGNORED).sum()))
