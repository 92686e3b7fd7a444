"""Models that the C library runs from a folder: for sentences, images and DNA."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from danaus._arrays import (
    INT,
    ElementType,
    choose,
    converted,
    element_code,
    integers,
    pointer,
    whole,
)
from danaus._library import (
    Progress,
    check,
    ffi,
    known_options,
    lib,
    listening,
    own,
    path_bytes,
    reading,
    text,
)
from danaus.compress import LAYER_CANDIDATES
from danaus.device import Device, chosen
from danaus.patterns import Pattern
from danaus.tokenizer import Tokenizer, text_bytes, texts_of


class ModelInfo(NamedTuple):
    """What a model is; danaus/model.h has the units."""

    architecture: str
    layers: int
    width: int
    heads: int
    vocabulary: int
    max_length: int
    embedding: int
    parameters: int
    linear_parameters: int
    dense_parameters: int
    memory: int
    fills: int  # nonzero: `Model.fill` works
    image_channels: int
    image_size: int
    classes: int


class ModelCost(NamedTuple):
    """What embedding costs: bytes, and operations by part; danaus/model.h."""

    memory: int
    kept: int
    linear: float
    mixing: float
    filters: float


class Filling(NamedTuple):
    """A word for a mask."""

    word: str
    id: int
    probability: float


class ModelLayer(NamedTuple):
    """A linear layer of a model."""

    name: str
    rows: int
    cols: int
    parameters: int
    factors: int
    error: float  # of what it was fitted to by `compress`; else 0
    patterns: tuple[Pattern, ...]
    merged: int = 0  # its factors are multiplied out, which is faster
    lower_bound: float = 0  # no matrix of its rank has a smaller error; else 0
    speedup: float = 0  # estimated, over the layer that `compress` replaced; else 0
    int8: int = 0  # it multiplies 8-bit numbers


def _packed(sequences: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Offsets, and all ids one after the other."""
    if isinstance(sequences, (str, bytes)):
        raise TypeError("sequences have to be lists of token ids, not a text")
    lists = [np.asarray(ids) for ids in sequences]
    for number, ids in enumerate(lists):
        if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
            raise TypeError(f"sequence {number} has to be a list of integers")
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    wide = np.concatenate([np.zeros(0, np.int64), *lists])
    ids = wide.astype(np.int32)
    if not np.array_equal(ids, wide):
        raise ValueError("a token id does not fit in 32 bits")
    return offsets, ids


class Model:
    """A model, loaded from its folder for a device: sentence encoders embed texts,
    vision transformers embed and classify images, causal models score and generate.

    Parameters
    ----------
    path : the folder, with config.json and model.safetensors (docs/models.md).
    device : where it runs; None: the CPU.
    dtype : type of weights and activations: f32 (None), or, on GPUs, f16 or bf16.
    outline : read only config.json and the headers of the weights: the model can be
        described and estimated, but does not run.
    int8 : linear layers of blocks round weights and rows to 8 bits (`Plan`), on CPUs.
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike,
        device: Device | str | None = None,
        dtype: ElementType | None = None,
        *,
        outline: bool = False,
        int8: bool = False,
    ):
        self.device, self._path = chosen(device), path
        place = ffi.new("danaus_model **")
        how = ffi.new("danaus_model_desc *")
        how.dtype = 0 if dtype is None else element_code(dtype)
        how.outline, how.int8 = bool(outline), bool(int8)
        with self.device.in_use() as handle:
            given = handle, path_bytes(path), how, place
            check(lib.danaus_model_load_as(*given))
        self._handle = own(place[0], lib.danaus_model_destroy, self.device._handle)

    def describe(self) -> ModelInfo:
        """Sizes, parameters and memory."""
        info = ffi.new("danaus_model_info *")
        check(lib.danaus_model_describe(self._handle, info))
        numbers = (getattr(info, name) for name in ModelInfo._fields[1:])
        return ModelInfo(text(info.architecture), *numbers)

    def layers(self) -> list[ModelLayer]:
        """The linear layers, in the order in which they run."""
        found, layer = [], ffi.new("danaus_model_layer *")
        while lib.danaus_model_layer_at(self._handle, len(found), layer) == 0:
            rows = (layer.patterns[i] for i in range(layer.factors))
            facts = {name: getattr(layer, name) for name in ModelLayer._fields}
            facts["name"] = text(layer.name)
            facts["patterns"] = tuple(Pattern(p.a, p.b, p.c, p.d) for p in rows)
            found.append(ModelLayer(**facts))
        return found

    def embed_tokens(self, sequences: Sequence[Sequence[int]]) -> np.ndarray:
        """Embeddings [len(sequences)][embedding], f32, of lists of token ids.

        Special tokens are part of the lists. Sequences may have any lengths up to
        `describe().max_length`: nothing is padded.
        """
        offsets, ids = _packed(sequences)
        found = np.empty((len(offsets) - 1, self.describe().embedding), np.float32)
        tokens = (len(found), pointer(offsets), pointer(ids))
        with self.device.in_use() as handle:
            to = pointer(found)
            check(lib.danaus_model_embed(self._handle, handle, *tokens, to))
        return found

    def embed(
        self, texts: str | bytes | Iterable[str | bytes], pad: int | None = None
    ) -> np.ndarray:
        """Embeddings [number of texts][embedding], f32, of texts; [embedding] of one.

        The tokenizer of the model's folder makes their tokens. Texts with more than
        `describe().max_length` of them, or than `pad`, are truncated. `pad` pads each
        text with ``[PAD]`` to so many tokens.
        """
        if isinstance(texts, (str, bytes)):
            return self.embed([texts], pad)[0]
        most = self.describe().max_length if pad is None else pad
        sequences = self.tokenizer.encode_batch(texts, most)
        if pad is not None:
            padding = self.tokenizer.id("[PAD]")
            rooms = ((0, pad - len(ids)) for ids in sequences)
            sequences = [
                np.pad(ids, room, constant_values=padding)
                for ids, room in zip(sequences, rooms)
            ]
        return self.embed_tokens(sequences)

    def estimate(self, sequences: int = 1, length: int | None = None) -> ModelCost:
        """What embedding so many sequences will cost, before anything is allocated.

        `length` is the length of each; None: as many tokens as the model takes.
        """
        cost = ffi.new("danaus_model_cost *")
        length = self.describe().max_length if length is None else length
        with self.device.in_use() as handle:
            place = sequences, length, cost
            check(lib.danaus_model_estimate(self._handle, handle, *place))
        return ModelCost(*(getattr(cost, name) for name in ModelCost._fields))

    def fill_tokens(self, ids: Sequence[int], places: Sequence[int]) -> np.ndarray:
        """Scores [len(places)][vocabulary], f32, of all words at places of a sequence.

        They are logits: their softmax is the probability of each word there.
        """
        offsets, packed = _packed([ids])
        at = integers(places, "places")
        found = np.empty((len(at), self.describe().vocabulary), np.float32)
        arguments = int(offsets[1]), pointer(packed), len(at), pointer(at)
        with self.device.in_use() as handle:
            to = pointer(found)
            check(lib.danaus_model_fill(self._handle, handle, *arguments, to))
        return found

    def fill(self, text: str, top: int = 5) -> list[list[Filling]]:
        """The most probable words for each [MASK] of a text, with their probabilities.

        RoBERTa's tokenizers have <mask> in its place. A text that is longer than the
        model takes is truncated; a mask that would be cut off is an error.
        """
        text_bytes(text)
        top = whole(top, "top", 1, INT)
        name, mask = self._mask()
        most = self.describe().max_length
        ids, all_ids = self.tokenizer.encode(text, most), self.tokenizer.encode(text)
        places = np.flatnonzero(np.asarray(ids) == mask)
        cut = int(np.sum(all_ids == mask)) - len(places)
        if cut:
            raise ValueError(
                f"the text has {len(all_ids)} tokens, and the model takes {most}: "
                f"{cut} of its {cut + len(places)} {name} are cut off"
            )
        found = []
        for scores in self.fill_tokens(ids, places).astype(np.float64):
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            best = np.argsort(-weights, kind="stable")[:top]
            found.append([self._word(int(i), float(weights[i])) for i in best])
        return found

    def _mask(self) -> tuple[str, int]:
        """The token of a masked word, and its id. If there is none, KeyError."""
        try:
            return "[MASK]", self.tokenizer.id("[MASK]")
        except KeyError:
            with contextlib.suppress(KeyError):
                return "<mask>", self.tokenizer.id("<mask>")
            raise

    def _word(self, token: int, probability: float) -> Filling:
        named = token < len(self.tokenizer)
        word = self.tokenizer.decode([token], False) if named else str(token)
        return Filling(word, token, probability)

    def embed_images(self, pixels: np.ndarray) -> np.ndarray:
        """Embeddings [images][embedding], f32, of images [images][image_channels]
        [image_size][image_size], after the model's preprocessing.
        """
        return self._look(pixels, lib.danaus_model_embed_images, "embedding")

    def classify(self, pixels: np.ndarray) -> np.ndarray:
        """Scores [images][classes], f32, of such images; softmax: probabilities."""
        return self._look(pixels, lib.danaus_model_classify, "classes")

    def _pixels(self, pixels: np.ndarray) -> np.ndarray:
        info, pixels = self.describe(), np.asarray(pixels)
        shape = (info.image_channels, info.image_size, info.image_size)
        if not info.image_size:
            raise ValueError(f"{info.architecture} takes tokens, not images")
        if pixels.ndim != 4 or pixels.shape[1:] != shape or pixels.dtype.kind != "f":
            raise ValueError(
                f"pixels are {pixels.dtype} {list(pixels.shape)}; real numbers "
                f"[images, {shape[0]}, {shape[1]}, {shape[2]}] are needed"
            )
        return converted(pixels, lib.DANAUS_F32, what="pixels")

    def _look(self, pixels: np.ndarray, call, width: str) -> np.ndarray:
        pixels = self._pixels(pixels)
        found = np.empty((len(pixels), getattr(self.describe(), width)), np.float32)
        with self.device.in_use() as handle:
            images = len(pixels), pointer(pixels), pointer(found)
            check(call(self._handle, handle, *images))
        return found

    def score_tokens(
        self, sequences: Sequence[Sequence[int]], *, progress: Progress = None
    ) -> list[np.ndarray]:
        """Logarithms of the probabilities that a causal model gives to tokens.

        Value t of a sequence's array, f32, belongs to token t given the tokens before
        it; value 0 is 0. Sequences may have any lengths up to
        `describe().max_length`.

        progress : called with the share done; True draws a bar.
        """
        offsets, ids = _packed(sequences)
        found = np.empty(len(ids), np.float32)
        tokens = (len(offsets) - 1, pointer(offsets), pointer(ids))
        with listening(progress, "score") as tell:
            with self.device.in_use() as handle:
                to = pointer(found)
                check(lib.danaus_model_score(self._handle, handle, *tokens, *tell, to))
        return np.split(found, offsets[1:-1]) if len(offsets) > 1 else []

    def score(
        self,
        texts: str | bytes | Iterable[str | bytes],
        *,
        window: int | None = None,
        context: int | None = None,
        progress: Progress = None,
    ) -> list[np.ndarray] | np.ndarray:
        """`score_tokens` of texts, for a model of DNA of strings of bases; one text
        gives one array.

        Texts longer than a window are scored window by window, as by ``danaus score``:
        each window begins with tokens of the one before. No tokens are added to a text.

        Parameters
        ----------
        texts : for the tokenizer of the model's folder.
        window : tokens that the model reads at once; None: as many as it takes.
        context : tokens of the window before with which a window begins; None: half.
        progress : called with the share done; True draws a bar.
        """
        if isinstance(texts, (str, bytes)):
            how = {"window": window, "context": context, "progress": progress}
            return self.score([texts], **how)[0]
        texts = texts_of(texts)
        most = self.describe().max_length
        window = whole(most if window is None else window, "window", 2, most)
        context = window // 2 if context is None else context
        context = whole(context, "context", 1, window - 1)
        tokens = [self.tokenizer.encode(text, around=False) for text in texts]
        step, parts = window - context, []
        for number, ids in enumerate(tokens):
            last = max(len(ids) - context, 1) if len(ids) else 0
            parts += [(number, at) for at in range(0, last, step)]
        cut = [tokens[number][at : at + window] for number, at in parts]
        found = [np.zeros(len(ids), np.float32) for ids in tokens]
        for (number, at), scores in zip(
            parts, self.score_tokens(cut, progress=progress)
        ):
            known = context if at else 0
            found[number][at + known : at + window] = scores[known:]
        return found

    def generate_tokens(
        self,
        prompt: Sequence[int],
        tokens: int | None = None,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 0.0,
        seed: int = 0,
        on_token: Callable[[int], object] | None = None,
    ) -> np.ndarray:
        """The tokens, int32, that a causal model generates after a prompt.

        Parameters
        ----------
        prompt : token ids, at least one.
        tokens : maximum, 1 or more; None: as many as the model takes.
        temperature : divides the logits; 0: always the most probable token.
        top_k : draw from so many most probable tokens; 0: from all.
        top_p : draw from the fewest most probable tokens that have this share of the
            probability, among those that top_k leaves; 0: from all.
        seed : seed of the draws; the same seed gives the same tokens.
        on_token : called with each token; a true result stops.
        """
        _, ids = _packed([prompt])
        how = ffi.new("danaus_sampling *")
        if tokens == 0:
            raise ValueError(
                "tokens is at least 1, or None: as many as the model takes"
            )
        how.max_tokens, how.top_k = tokens or 0, top_k
        how.seed = whole(seed, "seed", 0, 2**64 - 1)
        # In f32 a small share would be 0, which keeps all tokens.
        least = np.finfo(np.float32).tiny
        how.temperature = temperature
        how.top_p = max(top_p, least) if top_p > 0 else top_p
        found: list[int] = []

        def take(token: int) -> object:
            found.append(token)
            return on_token is not None and on_token(token)

        given = (pointer(ids), len(ids), how)
        with reading(take) as (function, user):
            with self.device.in_use() as handle:
                given += function, user
                check(lib.danaus_model_generate(self._handle, handle, *given))
        return np.array(found, np.int32)

    def generate(self, prompt: str, tokens: int | None = None, **sampling) -> str:
        """The text that a causal model generates after a prompt; see `generate_tokens`.

        It also ends at the token that the tokenizer appends to a text.
        """
        text_bytes(prompt, "the prompt")
        known_options(sampling, Model.generate_tokens, "generate")
        around = self.tokenizer.encode("")
        before = len(self.tokenizer.encode("", around=False))
        end = int(around[before]) if len(around) > before else -1
        ids = self.tokenizer.encode(prompt, around=False)
        stop = {"on_token": lambda token: token == end} | sampling
        new = self.generate_tokens(ids, tokens, **stop)
        if len(new) and new[-1] == end:
            new = new[:-1]
        both = self.tokenizer.decode([*ids, *new], skip_special=False)
        known = self.tokenizer.decode(ids, skip_special=False)
        return both.removeprefix(known)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """That of the model's folder."""
        return Tokenizer(self._path)

    def compress(
        self,
        sequences: Sequence[Sequence[int]] = (),
        params: float = 0.3,
        *,
        images: np.ndarray | None = None,
        layers: str | None = None,
        candidates: Iterable[str] = (),
        weights: str = "f32",
        ridge: float = 0.05,
        seed: int = 0,
        progress: Progress = None,
    ) -> None:
        """Replaces dense linear layers, in place; a share of their weights remains.

        Parameters
        ----------
        sequences : token ids of sample texts (`embed_tokens`), if there are any.
        params : the share of the weights of the replaced layers, in (0, 1].
        images : sample images, for vision transformers; see `classify`.
        layers : extended regular expression that names of layers match; None: all.
        candidates : kinds of chains that are tried for each layer beside low rank:
            "column-groups", "row-groups", "monarch", "fitted", "sum" (see
            `danaus.compress`).
        weights : "int8": weights of new layers, and rows, are rounded to 8 bits.
        ridge : regularisation towards the dense weights, as a share of mean squares.
        seed : seed of the random directions at the output.
        progress : called with the share done; True draws a bar.
        """
        info = self.describe()
        if images is None and (side := info.image_size):
            images = np.zeros((0, info.image_channels, side, side), np.float32)
        if images is None:
            offsets, ids = _packed(sequences)
            call = lib.danaus_model_compress
            samples = len(offsets) - 1, pointer(offsets), pointer(ids)
        else:
            images = self._pixels(images)
            call = lib.danaus_model_compress_images
            samples = len(images), pointer(images)
        if not isinstance(layers, (str, type(None))):
            kind = type(layers).__name__
            raise TypeError(f"layers has to be a string or None, not {kind}")
        how = ffi.new("danaus_model_compression *")
        pattern = ffi.NULL if layers is None else ffi.new("char[]", layers.encode())
        how.share, how.layers, how.ridge = params, pattern, ridge
        how.seed = whole(seed, "seed", 0, 2**64 - 1)
        how.int8 = choose(weights, {"f32": 0, "int8": 1}, "a type of weights")
        for kind in (candidates,) if isinstance(candidates, str) else candidates:
            how.candidates |= choose(kind, LAYER_CANDIDATES, "a candidate for a layer")
        with listening(progress, "compress") as (how.progress, how.user):
            with self.device.in_use() as handle:
                check(call(self._handle, handle, *samples, how))

    def save(self, path: str | bytes | os.PathLike) -> None:
        """Writes the current model into a folder, which is made if needed.

        A folder with files is refused unless danaus wrote a model there.
        """
        check(lib.danaus_model_save(self._handle, path_bytes(path)))

    def __reduce__(self):
        raise TypeError("a model cannot be pickled or copied: load it again")

    def __repr__(self) -> str:
        info = self.describe()
        return (
            f"<danaus.Model {info.architecture}: {info.layers} layers of {info.width}, "
            f"{info.parameters} parameters, on {self.device.describe().name}>"
        )
