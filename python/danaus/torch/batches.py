"""Calibration data in the forms that people have it in, and how a model is called."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from danaus.torch.saving import is_sentence_encoder

ROWS = 64  # of a batch, where data come as one tensor or as a data set

# What a loader's mappings have for losses and metrics beside a model's inputs.
LABELS = {"label", "labels", "label_ids", "target", "targets", "idx", "index"}


# ---- data ----


def load_batches(data: Any, model: nn.Module | None = None) -> list[Any]:
    """The batches of calibration data: mappings, tuples of arguments, or tensors.

    A tensor, a mapping of tensors (such as a tokenizer's output) and a data set are cut
    into batches of `ROWS`; every other iterable has batches. Texts are for models that
    have a tokenizer of their own.
    """
    if isinstance(data, (str, bytes)):
        raise TypeError("data is a text; batches of what the model is called with are")
    if isinstance(data, (Tensor, np.ndarray, Mapping)):
        batches = _cut(_batch(data, "data"))
    elif isinstance(data, torch.utils.data.Dataset):
        loader = torch.utils.data.DataLoader(data, batch_size=ROWS)
        batches = [_batch(item, "a batch") for item in loader]
    else:
        try:
            items = list(data)
        except TypeError:
            raise TypeError(
                f"data is a {type(data).__name__}, not an iterable of batches, a "
                "tensor, a mapping of tensors or a torch.utils.data.Dataset"
            ) from None
        if items and all(isinstance(item, str) for item in items):
            batches = _tokens(items, model)
        else:
            batches = [_batch(item, "a batch") for item in items]
    if not batches:
        raise ValueError("there are no batches of calibration data")
    return batches


def _tokens(texts: list[str], model: nn.Module | None) -> list[Any]:
    """Batches of texts for a sentence encoder, the longest ones together."""
    if model is None or not is_sentence_encoder(type(model)):
        raise TypeError(
            "the batches are texts: give the model's tokenizer them first, "
            'tokenizer(texts, padding=True, return_tensors="pt")'
        )
    encode = getattr(model, "preprocess", None) or model.tokenize
    texts = sorted(texts, key=len)
    parts = [texts[i : i + ROWS] for i in range(0, len(texts), ROWS)]
    return [_batch(encode(part), "a batch") for part in parts]


def _batch(item: Any, what: str) -> Any:
    """One batch, its arrays and lists of numbers as tensors."""
    if isinstance(item, Mapping):
        return {str(k): _value(v, f"{what}: {k}") for k, v in item.items()}
    if isinstance(item, (tuple, list)):
        if item and isinstance(item[0], Mapping):  # with labels behind
            return _batch(item[0], what)
        if item and all(isinstance(v, int) for v in item):  # tokens of one sequence
            return torch.tensor([item])
        return tuple(_value(v, what) for v in item)
    found = _value(item, what)
    if not isinstance(found, Tensor) or not found.dim():
        raise TypeError(
            f"{what} is a {type(item).__name__}, not a tensor, a mapping or a tuple"
        )
    return found


def _value(value: Any, what: str) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, list) and value and isinstance(value[0], (list, int, float)):
        try:
            return torch.tensor(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"{what} has rows of different lengths: pad them, or give each "
                "sequence as a batch"
            ) from None
    return value


def _cut(batch: Any) -> list[Any]:
    """A batch cut into parts of so many rows, if all its tensors have as many rows."""
    rows = _rows_of(batch)
    return [rows_from(batch, i, ROWS) for i in range(0, rows, ROWS)] or [batch]


def _rows_of(batch: Any) -> int:
    """How many rows all tensors of a batch have; 0: they differ."""
    if isinstance(batch, Mapping):
        values = list(batch.values())
    else:
        values = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    sizes = {len(v) if isinstance(v, Tensor) and v.dim() else 0 for v in values}
    return sizes.pop() if len(sizes) == 1 else 0


def rows_from(batch: Any, start: int, count: int) -> Any:
    """Some rows of all tensors of a batch."""
    if isinstance(batch, Mapping):
        return {key: value[start : start + count] for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(value[start : start + count] for value in batch)
    return batch[start : start + count]


def few_rows(batch: Any, rows: int = 2) -> Any:
    """The first rows of a batch, where all its tensors have as many."""
    return rows_from(batch, 0, rows) if _rows_of(batch) else batch


# ---- calls ----


class Caller:
    """Gives batches to a model: mappings as keywords, tuples as arguments.

    Items that forward() has no parameter for are left out, such as y of a pair (x, y).
    """

    def __init__(self, model: nn.Module):
        self.model = model
        first = next(model.parameters(), None)
        self.device = torch.device("cpu") if first is None else first.device
        self.takes_mappings = is_sentence_encoder(type(model))
        self._told: set[str] = set()
        try:
            parameters = inspect.signature(model.forward).parameters.values()
        except (TypeError, ValueError):
            parameters = []
        kinds = [p.kind for p in parameters]
        self._any = inspect.Parameter.VAR_KEYWORD in kinds or not kinds
        self._names = {p.name for p in parameters}
        self._most: int | None = None
        if kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
            positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
            ahead = inspect.Parameter.POSITIONAL_ONLY
            self._most = sum(kind in (positional, ahead) for kind in kinds)

    def moved(self, batch: Any) -> Any:
        """A batch on the model's device."""
        if isinstance(batch, Mapping):
            return {key: self.moved(value) for key, value in batch.items()}
        if isinstance(batch, (tuple, list)):
            return tuple(self.moved(value) for value in batch)
        if not isinstance(batch, Tensor):
            return batch
        if batch.is_inference() and not torch.is_inference_mode_enabled():
            batch = batch.clone()  # which gradients may pass
        return batch.to(self.device)

    def __call__(self, batch: Any) -> Any:
        """The model's output for a batch."""
        batch = self.moved(batch)
        if isinstance(batch, Mapping):
            if self.takes_mappings:
                return self.model(dict(batch))
            return self.model(**self._known(batch))
        if isinstance(batch, tuple):
            return self.model(*batch[: self._most])
        return self.model(batch)

    def _known(self, batch: Mapping) -> dict[str, Any]:
        """The entries of a batch that forward() has parameters for."""
        known = {
            key: value
            for key, value in batch.items()
            if key in self._names or (self._any and key not in LABELS)
        }
        others = set(batch) - set(known) - LABELS - self._told
        if others:
            self._told |= others
            warnings.warn(
                f"batches have {', '.join(map(repr, sorted(others)))}, which "
                f"{type(self.model).__name__}.forward() does not take: left out",
                stacklevel=2,
            )
        return known


# ---- outputs ----

Output = Callable[[Any, Any], Tensor]


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def main_tensor(value: Any) -> Tensor:
    """The tensor [..., features] of a model's output, in whatever it is packed.

    That is a sentence encoder's embedding; else the first one of real numbers that has
    two dimensions, else one: losses are passed over.
    """
    if isinstance(value, Mapping) and "sentence_embedding" in value:
        return value["sentence_embedding"]
    found = [t for t in _tensors(value) if t.is_floating_point() and t.dim()]
    for tensor in found:
        if tensor.dim() > 1:
            return tensor
    if found:
        return found[0]
    raise TypeError(
        f"the model's output is a {type(value).__name__} without a tensor of numbers "
        "beside a loss: give output=, a function of the model's output and the batch "
        "that returns one"
    )


def checked(output: Output | None) -> Output:
    """The function `output`, whose results are looked at; None: `main_tensor`."""
    if output is None:
        return lambda found, batch: _with_features(main_tensor(found))
    if not callable(output):
        raise TypeError(
            f"output is a {type(output).__name__}, not a function of the model's "
            "output and the batch"
        )
    return lambda found, batch: _with_features(output(found, batch))


def _with_features(found: Any) -> Tensor:
    if not isinstance(found, Tensor):
        raise TypeError(f"output returns a {type(found).__name__}, not a tensor")
    if not found.dim():
        raise ValueError(
            "output returns a single number, such as a loss; a tensor [..., features] "
            "is needed"
        )
    return found if found.dim() > 1 else found[:, None]
