"""torch.func.vmap of the operators for convolutions: one call for all samples.

Samples of signals that share their filters are a larger batch. Otherwise they are more
channels, with filters for each.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Place(NamedTuple):
    """Where the channels of a tensor are: a dimension, in so many groups."""

    dim: int
    groups: int = 1

    def fold(self, x: Tensor) -> Tensor:
        """Samples x [samples, ...] as channels: a group has those of all samples."""
        parts = x.movedim(0, self.dim).unflatten(self.dim + 1, (self.groups, -1))
        parts = parts.movedim(self.dim, self.dim + 1)
        return parts.flatten(self.dim, self.dim + 2).contiguous()

    def unfold(self, y: Tensor, samples: int) -> Tensor:
        """The inverse of `fold`."""
        parts = y.unflatten(self.dim, (self.groups, samples, -1))
        return parts.movedim(self.dim + 1, 0).flatten(self.dim + 1, self.dim + 2)


_BATCH = Place(0)


class Places(NamedTuple):
    """Those of an operator's tensors, and of its result. rows: which tensors are
    signals; the others are filters."""

    tensors: list[Place]
    result: Place
    rows: Sequence[int]


def places_long(tensors: Sequence, options: Sequence) -> Places:
    """Those of danaus::long_conv."""
    few = [Place(0)] * 3
    return Places([Place(1), *few, Place(1), Place(1)], Place(1), (0, 4, 5))


def places_short(tensors: Sequence, options: Sequence) -> Places:
    """Those of danaus::short_conv."""
    rows = Place(2 if options[0] else 1)
    return Places([rows, Place(0), Place(0)], rows, (0,))


def places_hyena(tensors: Sequence, options: Sequence) -> Places:
    """Those of danaus::hyena, whose rows are groups of channels."""
    groups = tensors[3].shape[1] + 2  # k has samples in front
    rows, few = Place(1, groups), Place(0, groups)
    return Places([rows, few, few, Place(1), Place(1)], Place(1), (0,))


def _with_samples(x: Tensor | None, dim: int | None, samples: int) -> Tensor | None:
    """x with its samples in front, the same ones if it has none."""
    if x is None:
        return None
    return x.expand(samples, *x.shape) if dim is None else x.movedim(dim, 0)


def _folded(arguments, dims, samples: int, places: Sequence[Place]) -> list:
    every = [_with_samples(x, d, samples) for x, d in zip(arguments, dims)]
    return [x if x is None else p.fold(x) for x, p in zip(every, places)]


class Rules(NamedTuple):
    """Batching rules of an operator of `danaus.torch._conv_ops`."""

    tensors: int
    needed: int
    options: int
    places: Callable[[Sequence, Sequence], Places]

    def _places_of(self, tensors, dims, samples: int, options) -> Places:
        every = [_with_samples(x, d, samples) for x, d in zip(tensors, dims)]
        return self.places(every, options)

    def _share(self, places: Places, dims: Sequence, offsets) -> bool:
        """Says whether samples may be a batch: they have the same filters."""
        alike = all(d is None for i, d in enumerate(dims) if i not in places.rows)
        return alike and offsets is None

    def _operands(self, tensors, dims, samples: int, places: Places, share: bool):
        if not share:
            return _folded(tensors, dims, samples, places.tensors)
        rows = _folded(tensors, dims, samples, [_BATCH] * len(tensors))
        pairs = enumerate(zip(rows, tensors))
        return [row if i in places.rows else x for i, (row, x) in pairs]

    def forward(self, operator, result_of) -> Callable:
        """That of the operator; result_of: y and what else it returns."""

        def rule(info, dims, *inputs):
            tensors, rest = inputs[: self.tensors], inputs[self.tensors :]
            some = tensors, dims[: self.tensors], info.batch_size
            places = self._places_of(*some, rest)
            offsets = rest[self.options] if len(rest) > self.options else None
            share = self._share(places, some[1], offsets)
            found = operator(*self._operands(*some, places, share), *rest)
            place = _BATCH if share else places.result
            y = place.unfold(result_of(found), info.batch_size)
            if isinstance(found, Tensor):
                return y, 0
            return (y, *found[1:]), (0, *[None] * (len(found) - 1))

        return rule

    def backward(self, operator) -> Callable:
        """That of the operator's derivative."""

        def rule(info, dims, dy, *inputs):
            samples, tensors = info.batch_size, inputs[: self.needed]
            rest = inputs[self.needed :]
            options, wanted = rest[: self.options], rest[self.options]
            some = tensors, dims[1 : 1 + self.needed], samples
            places = self._places_of(*some, options)
            rows = sum(1 << i for i in places.rows)
            offsets = rest[self.options + 1] if len(rest) > self.options + 1 else None
            share = self._share(places, some[1], offsets) and not wanted & ~rows
            result = _BATCH if share else places.result
            (dy,) = _folded([dy], dims[:1], samples, [result])
            operands = self._operands(*some, places, share)
            # What a forward pass of one sample kept is of no use here.
            rest = rest[: self.options + 3] if len(rest) > self.options + 1 else rest
            found = operator(dy, *operands, *rest)
            each = [_BATCH] * len(found) if share else places.tensors
            made = [
                (p.unfold(g, samples), 0) if wanted >> i & 1 else (g, None)
                for i, (g, p) in enumerate(zip(found, each))
            ]
            return tuple(g for g, _ in made), tuple(d for _, d in made)

        return rule


def register(name: str, operators, rules: Rules, result_of) -> None:
    """Gives danaus::NAME, danaus::_NAME and their derivatives these rules."""
    for prefix, of in ("", lambda found: found), ("_", result_of):
        first, second = (f"{prefix}{name}{end}" for end in ("", "_backward"))
        rule = rules.forward(getattr(operators, first), of)
        torch.library.register_vmap(f"danaus::{first}", rule)
        rule = rules.backward(getattr(operators, second))
        torch.library.register_vmap(f"danaus::{second}", rule)
