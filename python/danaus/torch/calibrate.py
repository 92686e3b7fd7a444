"""What linear layers of a network see and make: traces, and moments layer by layer.

A `Walk` runs a model on batches, in two states that share all but the replaced layers:
dense, as it was given, and compressed, as far as that has come. A layer's inputs come
from the compressed model, its targets from the dense one.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from danaus.torch.batches import Caller, few_rows
from danaus.torch.candidates import Candidate
from danaus.torch.moments import Moments, sums_of
from danaus.torch.parents import effective
from danaus.torch.stand_in import stand_in


class _Stop(Exception):
    """All that was asked for has been seen."""


def dense_weight(linear: nn.Module) -> Tensor:
    """W as [M, N]; Conv1D keeps its transpose, parametrizations what makes it."""
    weight = effective(linear)
    return weight if isinstance(linear, nn.Linear) else weight.T


def input_of(args: tuple, keywords: Mapping[str, Any]) -> Any:
    """The first argument of a call, which may be a keyword; None: there is none."""
    return next(iter((*args, *keywords.values())), None)


@contextmanager
def naming(layer: str) -> Iterator[None]:
    """Puts the layer's name before what is wrong with it."""
    try:
        yield
    except (TypeError, ValueError, np.linalg.LinAlgError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        if repr(layer) in str(error):
            raise
        raise kind(f"the layer {layer!r}: {error}") from error


@dataclass
class Stage:
    """Layers that read the same tensor one after the other, such as q, k and v."""

    names: list[str]
    block: int  # the block of `Walk.blocks` they are in; -1: before or without them


@dataclass
class Taps:
    """What hooks have seen in one run: by layer, for each call."""

    inputs: dict[str, list[Tensor]] = field(default_factory=dict)
    outputs: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, name: str, x: Tensor, y: Any) -> None:
        self.inputs.setdefault(name, []).append(x)
        self.outputs.setdefault(name, []).append(y)


class Walk:
    """Runs a model on batches and watches its layers.

    Parameters
    ----------
    model : any module; it is put into evaluation mode meanwhile by `evaluating`.
    names : the linear layers, as `named_modules` calls them.
    batches : mappings are given as keywords, tuples and lists as arguments.
    """

    def __init__(self, model: nn.Module, names: list[str], batches: list[Any]):
        self.model, self.batches = model, batches
        self.call = Caller(model)
        self.device = self.call.device
        self.originals = {name: model.get_submodule(name) for name in names}
        self.replaced: dict[str, nn.Module] = {}
        self.calls: dict[str, int] = {}
        self.streams: dict[str, str] = {}  # the normalisation that reads the stream
        self.blocks: list[str] = []
        self._done = 0  # blocks whose layers all have their final form
        # What the last of these returns for each batch, of the dense state and here.
        self._kept: dict[bool, list[Any]] = {}
        self.uncalled: list[str] = []
        self.stages = [Stage([name], -1) for name in names]
        if batches:
            self.stages = self._trace(names)
            self.uncalled = [name for name in names if name not in self.calls]

    # ---- two states ----

    def put(self, name: str, module: nn.Module) -> None:
        """Makes a module part of the compressed state."""
        self.replaced[name] = module
        self.model.set_submodule(name, module)

    def replace(
        self, name: str, candidate: Candidate, bias: np.ndarray | None
    ) -> None:
        """Puts the layer of a candidate in place of the dense one."""
        self.put(name, stand_in(self.originals[name], candidate, bias))

    @contextmanager
    def dense(self) -> Iterator[None]:
        """The model as it was given, inside of this block."""
        for name in self.replaced:
            self.model.set_submodule(name, self.originals[name])
        try:
            yield
        finally:
            for name, module in self.replaced.items():
                self.model.set_submodule(name, module)

    # ---- running ----

    def moved(self, batch: Any) -> Any:
        """A batch on the model's device."""
        return self.call.moved(batch)

    def run(self, batch: Any) -> Any:
        """The model's output for a batch."""
        return self.call(batch)

    def mask(self, batch: Any) -> Tensor | None:
        """Which tokens are no padding, where the batch says so."""
        mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
        if not isinstance(mask, Tensor) or mask.dim() != 2:
            return None
        return mask.to(self.device).bool()

    def rows(self, x: Tensor, batch: Any) -> Tensor:
        """x[..., N] as rows, without rows of padding."""
        mask, rows = self.mask(batch), x.reshape(-1, x.shape[-1])
        if mask is None or mask.numel() != len(rows):
            return rows
        return rows[mask.reshape(-1)]

    def watch(
        self, batch: Any, names: Iterable[str], stop: bool = True, index: int = -1
    ) -> Taps:
        """Runs the model until all these modules have been called, and keeps what."""
        taps, names = Taps(), list(names)
        missing = dict.fromkeys(names, 0)

        def hook(name: str) -> Callable:
            def seen(module: nn.Module, args: tuple, keywords: dict, y: Any) -> None:
                taps.add(name, input_of(args, keywords), y)
                missing[name] += 1
                if stop and all(missing[n] >= self.calls[n] for n in names):
                    raise _Stop

            return seen

        with ExitStack() as stack:
            for name in names:
                # The first hook sees what the layer makes; others may change it.
                handle = self.model.get_submodule(name).register_forward_hook(
                    hook(name), with_kwargs=True, prepend=True
                )
                stack.callback(handle.remove)
            if index >= 0 and self._done:
                stack.enter_context(self._shortcut(index))
            try:
                self.run(batch)
            except _Stop:
                pass
        return taps

    # ---- blocks that need not run again ----

    @contextmanager
    def _shortcut(self, index: int) -> Iterator[None]:
        """Blocks that are done return what the last of them has returned before."""
        dense = not any(
            self.model.get_submodule(name) is module
            for name, module in self.replaced.items()
        )
        kept = self._kept[dense][index]
        modules = [self.model.get_submodule(b) for b in self.blocks[: self._done]]
        own = [module.__dict__.get("forward") for module in modules]
        try:
            for module in modules:
                module.forward = lambda *args, **keywords: kept
            yield
        finally:
            for module, forward in zip(modules, own):
                module.__dict__.pop("forward", None)
                if forward is not None:
                    module.forward = forward

    def advance(self, block: int) -> None:
        """Keeps the inputs of this block: everything before it is final."""
        while self._done < block:
            name = self.blocks[self._done]
            kept = {}
            for dense in (True, False):
                with self.dense() if dense and self.replaced else ExitStack():
                    kept[dense] = [
                        self.watch(batch, [name], index=i).outputs[name][0]
                        for i, batch in enumerate(self.batches)
                    ]
            self._kept = kept
            self._done += 1

    # ---- the trace ----

    def _trace(self, names: list[str]) -> list[Stage]:
        """Finds calls, stages, blocks and residual streams with the first batch."""
        batch, order = self.batches[0], []
        norms = [n for n, m in self.model.named_modules() if "Norm" in type(m).__name__]
        lists = [
            [f"{n}.{i}" for i in range(len(m))]
            for n, m in self.model.named_modules()
            if isinstance(m, nn.ModuleList) and len(m) > 1
        ]
        watched = [*names, *norms, *(b for blocks in lists for b in blocks)]
        with ExitStack() as stack:
            for name in watched:
                module = self.model.get_submodule(name)
                stack.callback(
                    module.register_forward_pre_hook(
                        lambda module, args, keywords, name=name: order.append(
                            (name, input_of(args, keywords))
                        ),
                        with_kwargs=True,
                    ).remove
                )
            self.run(batch)
        for name, _ in order:
            self.calls[name] = self.calls.get(name, 0) + 1
        called = [name for name, _ in order]
        self.blocks = max(
            (b for b in lists if [n for n in called if n in b] == b),
            key=lambda blocks: sum(name.startswith(blocks[0] + ".") for name in names),
            default=[],
        )
        self._find_streams(batch, called, norms)
        return self._stages(order, names)

    def _stages(self, order: list[tuple[str, Any]], names: list[str]) -> list[Stage]:
        stages, last, seen = [], None, set()
        for name, x in order:
            if name not in self.originals or name in seen:
                continue
            seen.add(name)
            block = next(
                (i for i, b in enumerate(self.blocks) if name.startswith(b + ".")), -1
            )
            if x is not None and x is last and self.calls[name] == 1:
                stages[-1].names.append(name)
            else:
                stages.append(Stage([name], block))
            last = x if self.calls[name] == 1 else None
        return stages

    def _find_streams(self, batch: Any, called: list[str], norms: list[str]) -> None:
        """Which layers' outputs are added to a stream that a normalisation then reads.

        The output is changed: one of the next two normalisations reads that change.
        """
        names = [name for name in called if name in self.originals]
        norms = [n for n in called if n in norms and self.calls[n] == 1]
        places = [called.index(n) for n in norms]
        batch = few_rows(batch)
        plain = self.watch(batch, [*norms, *names])
        generator = torch.Generator().manual_seed(0)
        for name in dict.fromkeys(names):
            if self.calls[name] != 1:
                continue
            later = norms[bisect(places, called.index(name)) :][:2]
            y = plain.outputs[name][0]
            noise = torch.randn(y.shape, generator=generator).to(y) * y.std()
            with ExitStack() as stack:
                handle = self.originals[name].register_forward_hook(
                    lambda module, args, y, noise=noise: y + noise, prepend=True
                )
                stack.callback(handle.remove)
                moved = self.watch(batch, later)
            found = _stream(plain, moved, later, noise)
            if found is not None:
                self.streams[name] = found

    # ---- moments ----

    def moments(self, stage: Stage, stream: bool = True) -> dict[str, Moments]:
        """Sums over inputs of the compressed and targets of the dense model.

        Where an output is added to a residual stream, the target is what makes that
        the dense one: z - (z' - y'), with the stream z of the dense and z' of the
        compressed model, y' what the layer as it is adds there.
        """
        if stage.block > 0:
            self.advance(stage.block)
        found: dict[str, Moments] = {}
        for index, batch in enumerate(self.batches):
            norms = [self.streams[n] for n in stage.names if n in self.streams]
            watched = [*stage.names, *(norms if stream else [])]
            with self.dense() if self.replaced else ExitStack():
                wanted = self.watch(batch, watched, index=index)
            here = self.watch(batch, watched, index=index)
            xx = None
            for name in stage.names:
                x = torch.cat([self.rows(t, batch) for t in here.inputs[name]])
                y = self._targets(name, wanted, here, batch, stream)
                if name not in found:
                    found[name] = Moments(y.shape[-1], x.shape[-1], x.device)
                if xx is None:
                    xx = sums_of(x, x)
                found[name].add(x, y, xx)
        return found

    def _targets(
        self, name: str, wanted: Taps, here: Taps, batch: Any, stream: bool
    ) -> Tensor:
        if not stream or name not in self.streams:
            return torch.cat([self.rows(t, batch) for t in wanted.outputs[name]])
        norm = self.streams[name]
        y = wanted.inputs[norm][0] - here.inputs[norm][0]
        return self.rows(y + here.outputs[name][0], batch)


def _stream(plain: Taps, moved: Taps, norms: list[str], noise: Tensor) -> str | None:
    """The first normalisation that reads exactly the added noise."""
    for norm in norms:
        x, y = plain.inputs[norm][0], moved.inputs[norm][0]
        if x is None or x.shape != noise.shape:
            continue
        if (y - x - noise).float().norm() <= 1e-2 * noise.float().norm():
            return norm
    return None
