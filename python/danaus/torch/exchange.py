"""Channels that layers share and that may change places: hidden units, heads' channels.

A network whose hidden channels stand in another order is the same network: the rows of
one layer's matrix move, and the columns of the next's with them. Chains with groups of
rows or columns fit better in a good order (`danaus.find_permutations`), which costs
nothing when the neighbours take it. Which layers share channels is found by trying: the
channels are permuted, and what follows must not change.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from danaus.torch.batches import few_rows
from danaus.torch.calibrate import Stage, Walk, dense_weight, input_of
from danaus.torch.candidates import Candidate
from danaus.torch.moments import Moments, Problem


@dataclass
class Exchange:
    """Channels that are outputs of some layers and inputs of others."""

    rows: tuple[str, ...]
    cols: tuple[str, ...]
    classes: np.ndarray  # channels of the same number may still change places
    order: np.ndarray  # the dense model's channel that stands in each place

    def of(self, name: str) -> Iterator[int]:
        """Sides of a layer's matrix that have these channels: 0: rows, 1: columns."""
        yield from (side for side, n in enumerate((self.rows, self.cols)) if name in n)


@dataclass
class _Fitted:
    candidate: Candidate
    bias: np.ndarray | None


class Arrangement:
    """The order of shared channels while one layer after the other is fitted."""

    def __init__(self, walk: Walk, exchanges: Sequence[Exchange] = ()):
        self.walk, self.exchanges = walk, exchanges
        self._fitted: dict[str, _Fitted] = {}

    def _sides(self, name: str) -> list[Exchange | None]:
        found: list[Exchange | None] = [None, None]
        for exchange in self.exchanges:
            for side in exchange.of(name):
                found[side] = exchange
        return found

    def problem(
        self,
        name: str,
        moments: Moments,
        side: Tensor | None,
        ridge: float,
    ) -> Problem:
        """A layer's problem, its outputs in the order of now, as its inputs are."""
        rows, cols = self._sides(name)
        linear = self.walk.originals[name]
        weight, has_bias = dense_weight(linear), linear.bias is not None
        if cols is not None:
            weight = weight[:, torch.from_numpy(cols.order).to(weight.device)]
        made = Problem.of(moments, weight, side, ridge, has_bias)
        return made if rows is None else made.permuted(rows.order, None)

    def free(self, name: str) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Classes in which rows and columns may be permuted; None: they may not."""
        rows, cols = (s if s is None else s.classes for s in self._sides(name))
        return rows, cols

    def settle(self, name: str, candidate: Candidate, bias: np.ndarray | None) -> None:
        """A layer has its form: those that were fitted before follow its order."""
        self._fitted[name] = _Fitted(candidate, bias)
        for side, exchange in enumerate(self._sides(name)):
            if exchange is None:
                continue
            order = candidate.order[side]
            if order is not None:
                exchange.order = exchange.order[order]
                exchange.classes = exchange.classes[order]
                for other in exchange.rows + exchange.cols:
                    if other != name and other in self._fitted:
                        self._move(other, exchange, order)
            pairs = np.stack([exchange.classes, candidate.groups(side)])
            exchange.classes = np.unique(pairs, axis=1, return_inverse=True)[1].ravel()

    def _move(self, name: str, exchange: Exchange, order: np.ndarray) -> None:
        fitted = self._fitted[name]
        for side in exchange.of(name):
            fitted.candidate = fitted.candidate.moved(side, order)
            if side == 0 and fitted.bias is not None:
                fitted.bias = fitted.bias[order]
        self.walk.replace(name, fitted.candidate, fitted.bias)

    def orders(self) -> dict[str, list[int]]:
        """For each layer with permuted outputs, which dense output each output is."""
        return {
            name: exchange.order.tolist()
            for exchange in self.exchanges
            if (exchange.order != np.arange(len(exchange.order))).any()
            for name in exchange.rows
        }


# ---- which layers share channels ----


def find_exchanges(walk: Walk) -> list[Exchange]:
    """Exchanges between layers of a stage, and of the next, in one block."""
    found: list[Exchange] = []
    for stage, following in zip(walk.stages, walk.stages[1:]):
        once = all(walk.calls.get(n) == 1 for n in stage.names + following.names)
        if once and stage.block == following.block:
            found += _exchanges_of(_Trial(walk, stage, following))
    return found


def _exchanges_of(trial: _Trial) -> Iterator[Exchange]:
    """Exchanges of the fewest layers come first. An order of all layers is one too."""
    taken: set[str] = set()
    for size in range(1, len(trial.stage.names) + 1):
        for rows in combinations(trial.stage.names, size):
            for cols in ((), tuple(trial.following.names)):
                if taken.isdisjoint(rows + cols) and (size > 1 or cols):
                    block = trial.largest_block(rows, cols)
                    if block > 1:
                        taken.update(rows + cols)
                        places = np.arange(trial.sizes(rows, cols).pop())
                        yield Exchange(rows, cols, places // block, places)


class _Trial:
    """Runs a model with some layers' outputs permuted, and looks at what follows."""

    def __init__(self, walk: Walk, stage: Stage, following: Stage):
        self.walk, self.stage, self.following = walk, stage, following
        self.batch = few_rows(walk.batches[0])
        self.plain = self._outputs((), (), None)
        size = torch.finfo(self.plain[0].dtype).eps
        self.rounding = min(1000 * size, 0.02)

    def sizes(self, rows: Sequence[str], cols: Sequence[str]) -> set[int]:
        """How many channels these layers would share; one number if they can."""
        of = self.walk.originals
        return {dense_weight(of[n]).shape[0] for n in rows} | {
            dense_weight(of[n]).shape[1] for n in cols
        }

    def largest_block(self, rows: tuple[str, ...], cols: tuple[str, ...]) -> int:
        """The size of blocks, such as heads of attention, within which channels may be
        permuted; 1: they may not be.
        """
        sizes = self.sizes(rows, cols)
        if len(sizes) > 1:
            return 1
        (count,) = sizes
        blocks = [b for b in range(2, count + 1) if count % b == 0]
        if not blocks or not self._stays(rows, cols, count, blocks[0]):
            return 1
        return next(b for b in reversed(blocks) if self._stays(rows, cols, count, b))

    def _stays(self, rows: tuple, cols: tuple, count: int, block: int) -> bool:
        """True if the permutation changes nothing, but would if one of the layers were
        left out."""
        order = torch.from_numpy(_shuffled(count, block)).to(self.walk.device)
        if self._change(self._outputs(rows, cols, order)) > self.rounding:
            return False
        fewer = (rows, ()) if cols else (rows[:-1], ())
        return self._change(self._outputs(*fewer, order)) > 10 * self.rounding

    def _outputs(
        self, rows: Sequence[str], cols: Sequence[str], order: Tensor | None
    ) -> list[Tensor]:
        """What the following stage returns."""
        with ExitStack() as stack:
            for name in rows:
                handle = self.walk.originals[name].register_forward_hook(
                    lambda module, args, y: y[..., order], prepend=True
                )
                stack.callback(handle.remove)
            for name in cols:
                handle = self.walk.originals[name].register_forward_pre_hook(
                    lambda module, args, keywords: (
                        (input_of(args, keywords)[..., order.argsort()],),
                        {},
                    ),
                    with_kwargs=True,
                )
                stack.callback(handle.remove)
            seen = self.walk.watch(self.batch, self.following.names)
        return [seen.outputs[name][0] for name in self.following.names]

    def _change(self, outputs: list[Tensor]) -> float:
        """The largest relative change, by norms."""

        def relative(now: Tensor, then: Tensor) -> float:
            return float((now - then).float().norm() / then.float().norm())

        return max(map(relative, outputs, self.plain))


def _shuffled(count: int, block: int) -> np.ndarray:
    """A random order that keeps every channel in its block."""
    random = np.random.default_rng(count * block)
    places = np.arange(count).reshape(-1, block)
    return random.permuted(places, axis=1).ravel()
