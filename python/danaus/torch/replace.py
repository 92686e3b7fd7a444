"""Linear layers of a model replaced by chains, with a report and a way back."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numbers
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Union

import numpy as np
import torch
from torch import nn

from danaus import patterns as named
from danaus._library import Progress, share_teller
from danaus.chain import Chain
from danaus.torch.batches import load_batches
from danaus.torch.calibrate import Walk, dense_weight, naming
from danaus.torch.candidates import (
    KINDS,
    Candidate,
    best,
    fit_chain,
    least_parameters,
)
from danaus.torch.choose import Exclude, Layers, fits, select
from danaus.torch.exchange import Arrangement
from danaus.torch.linear import KSLinear
from danaus.torch.moments import Problem
from danaus.torch.parents import effective, evaluating
from danaus.torch.resume import Finished

# Held-out sentences agree best with this share where calibration is scarce.
RIDGE = 0.05


@dataclass(frozen=True)
class Replaced:
    """One layer of a report."""

    name: str
    kind: str  # one of the kinds, or "chain", "dense"
    patterns: str
    rows: int
    cols: int
    dense_parameters: int  # weights, without the bias
    parameters: int
    error: float  # ||Y - X K^T - bias|| / ||Y - mean(Y)||; uncalibrated of the weights
    loss: float  # mean square of the error beyond least squares, weighted if asked
    seconds: float


@dataclass
class Report:
    """The replaced layers and their replacements; `undo` puts the layers back."""

    model: nn.Module
    layers: list[Replaced] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)  # layers that stay, and why
    seconds: float = 0.0
    # Output i of a permuted layer is output orders[name][i] of the dense one.
    orders: dict[str, list[int]] = field(default_factory=dict)
    _before: dict[str, nn.Module] = field(default_factory=dict, repr=False)

    @property
    def dense_parameters(self) -> int:
        """Weights of all replaced layers before."""
        return sum(layer.dense_parameters for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Weights of all replaced layers now."""
        return sum(layer.parameters for layer in self.layers)

    def undo(self) -> None:
        """Puts the original modules back."""
        for name, module in self._before.items():
            self.model.set_submodule(name, module)
        self._before.clear()

    def records(self) -> list[dict[str, Any]]:
        """A dict for each layer, as `danaus.records.write` takes them."""
        return [asdict(layer) for layer in self.layers]

    def __str__(self) -> str:
        width = max([len(layer.name) for layer in self.layers], default=5)
        head = f"{'layer':{width}}  {'kind':12} {'weights':>10} share  error  patterns"
        lines = [head]
        for layer in self.layers:
            share = layer.parameters / layer.dense_parameters
            permuted = ", outputs permuted" if layer.name in self.orders else ""
            lines.append(
                f"{layer.name:{width}}  {layer.kind:12} {layer.parameters:10d} "
                f"{share:5.2f}  {layer.error:.3f}  {layer.patterns}{permuted}"
            )
        lines += [f"{name}: left, {why}" for name, why in self.left.items()]
        share = self.parameters / max(self.dense_parameters, 1)
        lines.append(
            f"{self.parameters} of {self.dense_parameters} weights ({share:.3f}), "
            f"{self.seconds:.1f} s"
        )
        return "\n".join(lines)


# ---- putting layers in place ----


def as_kinds(kinds: str | Sequence[str]) -> tuple[str, ...]:
    """Kinds of candidates as a checked tuple."""
    found = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    unknown = set(found) - set(KINDS)
    if unknown or not found:
        raise ValueError(f"kinds are some of {', '.join(KINDS)}, not {sorted(unknown)}")
    return found


def as_ridge(ridge: float) -> float:
    """A ridge that was checked; with a larger one samples would have no effect."""
    if isinstance(ridge, bool) or not isinstance(ridge, numbers.Real):
        raise TypeError(f"ridge is a number, not {ridge!r:.40}")
    if not 0 < ridge <= 1e6:
        raise ValueError(f"ridge is above 0 and at most 1e6, not {ridge}")
    return float(ridge)


def as_budget(params: int | float, whole: int) -> int:
    """So many weights, or a share of `whole`, as a number of weights."""
    if isinstance(params, bool) or not isinstance(params, numbers.Real):
        raise TypeError(f"params is a number of weights or a share, not {params!r:.40}")
    if isinstance(params, numbers.Integral):
        if params < 1:
            raise ValueError(f"{params} weights are too few")
        return min(int(params), whole)
    if not 0 < params <= 1:
        raise ValueError(f"a share of weights is above 0 and at most 1, not {params}")
    return int(params * whole)


def _row(
    name: str, candidate: Candidate, problem: Problem, began: float
) -> dict[str, Any]:
    """What the report says of a fitted layer."""
    rows, cols = problem.weight.shape
    return {
        "name": name,
        "kind": candidate.kind,
        "patterns": candidate.patterns,
        "rows": rows,
        "cols": cols,
        "dense_parameters": rows * cols,
        "parameters": candidate.parameters,
        "error": float(problem.error(candidate.dense)),
        "loss": float(problem.loss(candidate.dense)),
        "seconds": time.perf_counter() - began,
    }


@contextmanager
def all_or_nothing(report: Report, batch_invariant: bool) -> Iterator[None]:
    """Puts the model's layers back if the code inside fails, for whatever reason.

    Else the new layers are in training mode if the old ones were, and batch-invariant
    if asked for.
    """
    try:
        # New layers are trained later, which what is made in inference mode is not.
        with torch.inference_mode(False), evaluating(report.model), torch.no_grad():
            yield
        for name, old in report._before.items():
            new = report.model.get_submodule(name).train(old.training)
            for layer in new.modules():
                if isinstance(layer, KSLinear):
                    layer.batch_invariant = batch_invariant
    except BaseException:
        report.undo()
        raise


Fit = Callable[[str, Problem, Callable[[float], object]], Candidate]


def walk_through(
    report: Report,
    walk: Walk,
    fit: Fit,
    sides: Mapping[str, torch.Tensor] | None = None,
    places: Arrangement | None = None,
    *,
    finished: Finished,
    stream: bool = True,
    ridge: float = RIDGE,
    tell: Callable[[float], object] = lambda done: None,
) -> None:
    """Fits and replaces layer after layer; those that are finished are put in place."""
    places = places or Arrangement(walk)
    report.left.update(dict.fromkeys(walk.uncalled, "the model does not call it"))
    count = sum(len(stage.names) for stage in walk.stages)
    for stage in walk.stages:
        there = {name: finished.get(name) for name in stage.names}
        moments = {}
        if walk.batches and any(found is None for found in there.values()):
            moments = walk.moments(stage, stream)
        for name in stage.names:
            began, done = time.perf_counter(), len(report.layers)
            if there[name] is not None:
                candidate, bias, row = there[name]
            else:
                with naming(name):
                    if walk.batches:
                        side = (sides or {}).get(name)
                        problem = places.problem(name, moments.pop(name), side, ridge)
                    else:
                        linear = walk.originals[name]
                        bias = effective(linear, "bias")
                        problem = Problem.plain(dense_weight(linear), bias)
                    candidate = fit(
                        name, problem, lambda part, n=done: tell((n + part) / count)
                    )
                problem = problem.permuted(*candidate.order)
                has_bias = walk.originals[name].bias is not None
                bias = problem.bias(candidate.dense) if has_bias else None
                row = _row(name, candidate, problem, began)
                finished.put(name, candidate, bias, row)
            report._before[name] = walk.originals[name]
            walk.replace(name, candidate, bias)
            report.layers.append(Replaced(**row))
            places.settle(name, candidate, bias)
            tell(len(report.layers) / count)
    report.orders = places.orders()


# ---- replacing by a rule ----

Rule = Union[float, int, Mapping[str, Any], Callable[[str, nn.Module], Any]]


def _decide(rule: Rule, name: str, linear: nn.Module) -> Any:
    """What the rule says about a layer: patterns, a chain, a size, or None."""
    if isinstance(rule, Mapping):
        for pattern, decision in rule.items():
            if fits(name, pattern):
                return decision
        return None
    return rule(name, linear) if callable(rule) else rule


def _fit(
    decision: Any,
    name: str,
    problem: Problem,
    kinds: Sequence[str],
    tell: Callable[[float], object],
) -> Candidate:
    """The candidate for one layer."""
    shape = problem.weight.shape
    if isinstance(decision, Chain):
        if decision.shape != shape:
            raise ValueError(
                f"the chain for {name} is {decision.shape[0]} x {decision.shape[1]}, "
                f"the layer {shape[0]} x {shape[1]}"
            )
        chain = decision.astype("f64")
        weights = [np.array(w) for w in chain.weights]
        return Candidate("chain", [weights], np.asarray(chain.to_dense()))
    if isinstance(decision, numbers.Real):
        return best(problem, as_budget(decision, problem.weight.size), kinds)
    return fit_chain(problem, named.as_patterns(decision), tell=tell)


def _too_few(decision: Any, layer: nn.Module, kinds: Sequence[str]) -> str | None:
    """Why no layer of these kinds has as few weights as the rule says; else None."""
    if not isinstance(decision, numbers.Real):
        return None
    rows, cols = dense_weight(layer).shape
    budget = as_budget(decision, rows * cols)
    least = least_parameters(rows, cols, kinds)
    if budget >= least:
        return None
    return f"{rows} x {cols} needs {least} weights or more, and {budget} remain"


def _decisions(
    rule: Rule,
    model: nn.Module,
    names: list[str],
    left: dict[str, str],
    kinds: Sequence[str],
) -> dict[str, Any]:
    """What becomes of each layer; those that stay are left."""
    found = {name: _decide(rule, name, model.get_submodule(name)) for name in names}
    for name in [name for name in names if found[name] is None]:
        left[name] = "the rule says so"
        del found[name]
    few = {}
    for name, decision in found.items():
        with naming(name):
            few[name] = _too_few(decision, model.get_submodule(name), kinds)
    left.update({name: why for name, why in few.items() if why})
    if found and all(few.values()):
        name = next(iter(found))
        raise ValueError(f"the layer {name!r}: {few[name]}: give it a larger share")
    found = {name: decision for name, decision in found.items() if not few[name]}
    if names and not found and isinstance(rule, Mapping):
        raise ValueError(
            f"the rule's patterns {list(rule)} fit none of the {len(names)} linear "
            f"layers, such as {names[0]!r}"
        )
    return found


def replace_linear(
    model: nn.Module,
    rule: Rule,
    data: Any = None,
    *,
    layers: Layers = None,
    exclude: Exclude = (),
    heads: bool = False,
    kinds: Sequence[str] = ("monarch", "low_rank"),
    stream: bool = True,
    ridge: float = RIDGE,
    batch_invariant: bool = False,
    resume: str | os.PathLike | None = None,
    progress: Progress = None,
) -> Report:
    """Replaces linear layers, in place, by chains; returns a `Report`.

    A call that fails or is interrupted leaves the model as it was.

    Parameters
    ----------
    model : any module with torch.nn.Linear, or Conv1D of transformers.
    rule : patterns, a `danaus.Chain`, a share of the layer's weights, a number of
        weights, or None: the layer stays. Or a function of the layer's name and the
        layer that returns one of these, or a mapping of name patterns ("*.mlp.*") to
        them; the first pattern that matches counts.
    data : batches, in any form that `compress` takes. Layers are then fitted one after
        the other: inputs come from the model with the layers replaced so far, targets
        from the dense model. Without it the factors approximate the matrix.
    kinds : kinds that are tried for a share of the weights; see `compress`.
    layers, exclude, heads, stream, ridge, batch_invariant, resume, progress : as for
        `compress`.
    """
    kinds = as_kinds(kinds)
    names, left = select(model, layers, exclude, heads)
    ridge = as_ridge(ridge)
    decisions = _decisions(rule, model, names, left, kinds)
    report, start = Report(model, left=left), time.perf_counter()
    if not decisions:
        return report
    batches = [] if data is None else load_batches(data, model)
    options = {"rule": decisions, "kinds": kinds, "stream": stream, "ridge": ridge}
    finished = Finished(resume, model, decisions, batches, options)
    with share_teller(progress, "replace") as tell, all_or_nothing(
        report, batch_invariant
    ):
        tell(0.0)
        walk = Walk(model, list(decisions), batches)

        def fit(name: str, problem: Problem, part: Callable) -> Candidate:
            return _fit(decisions[name], name, problem, kinds, part)

        walk_through(
            report, walk, fit, finished=finished, stream=stream, ridge=ridge, tell=tell
        )
    report.seconds = time.perf_counter() - start
    return report
