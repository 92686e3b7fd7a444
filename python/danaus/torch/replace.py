"""Linear layers of a model replaced by chains, with a report and a way back."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fnmatch
import numbers
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Union

import numpy as np
import torch
from torch import nn

from danaus import patterns as named
from danaus.chain import Chain
from danaus.torch.calibrate import (
    Walk,
    dense_weight,
    evaluating,
    is_linear,
    load_batches,
)
from danaus.torch.candidates import Candidate, Problem, best, fit_chain
from danaus.torch.exchange import Arrangement

# Held-out sentences agree best with this share where calibration is scarce.
RIDGE = 0.05

Layers = Union[str, Iterable[str], Callable[[str, nn.Module], bool], None]


@dataclass(frozen=True)
class Replaced:
    """One layer of a report."""

    name: str
    kind: str  # "low_rank", "interpolated", "monarch", "sum", "chain", "dense"
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
    """What was put in place of which layer; `undo` puts the layers back."""

    model: nn.Module
    layers: list[Replaced] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)  # layers that stay, and why
    seconds: float = 0.0
    # Of permuted layers: output i is number orders[name][i] of the dense one.
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
        """Puts the layers back that were there, the very same modules."""
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


# ---- which layers ----


def select(model: nn.Module, layers: Layers = None) -> tuple[list[str], dict[str, str]]:
    """Names of the linear layers that are meant, and those that cannot be replaced.

    A layer whose weight another module has too, such as a head that shares the
    embedding's, is left: replacing it would save nothing.
    """
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(name)
    found, left = [], {}
    for name, module in model.named_modules():
        if not name or not is_linear(module) or not _is_meant(name, module, layers):
            continue
        if len(owners[id(module.weight)]) > 1:
            left[name] = "its weight is shared with another module"
        elif not module.weight.is_floating_point():
            left[name] = f"its weight is {module.weight.dtype}"
        else:
            found.append(name)
    if not found and not left:
        raise ValueError("the model has no torch.nn.Linear that is meant")
    return found, left


def _is_meant(name: str, module: nn.Module, layers: Layers) -> bool:
    if layers is None:
        return True
    if callable(layers):
        return bool(layers(name, module))
    patterns = [layers] if isinstance(layers, str) else list(layers)
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


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


def install(
    report: Report,
    walk: Walk,
    name: str,
    candidate: Candidate,
    problem: Problem,
    bias: np.ndarray | None,
    began: float,
) -> None:
    """Puts a fitted candidate into the model and its row into the report."""
    old = walk.originals[name]
    module = candidate.module(bias, old.weight).train(old.training)
    walk.put(name, module)
    rows, cols = problem.weight.shape
    error = problem.error(candidate.dense)
    size = candidate.parameters
    report.layers.append(
        Replaced(
            name,
            candidate.kind,
            candidate.patterns,
            rows,
            cols,
            rows * cols,
            size,
            error,
            problem.loss(candidate.dense),
            time.perf_counter() - began,
        )
    )
    report._before[name] = old


def walk_through(
    report: Report,
    walk: Walk,
    fit: Callable[[str, Problem], Candidate],
    sides: Mapping[str, torch.Tensor] | None = None,
    places: Arrangement | None = None,
    *,
    stream: bool = True,
    ridge: float = RIDGE,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Fits and replaces layer after layer; puts all back where that fails."""
    places = places or Arrangement(walk)
    report.left.update(dict.fromkeys(walk.uncalled, "the model does not call it"))
    count = sum(len(stage.names) for stage in walk.stages)
    try:
        for stage in walk.stages:
            moments = walk.moments(stage, stream) if walk.batches else {}
            for name in stage.names:
                began = time.perf_counter()
                linear = walk.originals[name]
                if not walk.batches:
                    problem = Problem.plain(dense_weight(linear), linear.bias)
                else:
                    side = (sides or {}).get(name)
                    problem = places.problem(name, moments.pop(name), side, ridge)
                candidate = fit(name, problem)
                problem = problem.permuted(*candidate.order)
                bias = None if linear.bias is None else problem.bias(candidate.dense)
                install(report, walk, name, candidate, problem, bias, began)
                places.settle(name, candidate, bias)
                if progress is not None:
                    progress(len(report.layers) / count)
    except BaseException:
        report.undo()
        raise
    report.orders = places.orders()


# ---- replacing by a rule ----

Rule = Union[float, int, Mapping[str, Any], Callable[[str, nn.Module], Any]]


def _decide(rule: Rule, name: str, linear: nn.Module) -> Any:
    """What the rule says about a layer: patterns, a chain, a size, or None."""
    if isinstance(rule, Mapping):
        for pattern, decision in rule.items():
            if fnmatch.fnmatchcase(name, pattern):
                return decision
        return None
    return rule(name, linear) if callable(rule) else rule


def _fit(decision: Any, name: str, problem: Problem, kinds: Sequence[str]) -> Candidate:
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
    return fit_chain(problem, named.as_patterns(decision))


def replace_linear(
    model: nn.Module,
    rule: Rule,
    data: Iterable[Any] | None = None,
    *,
    layers: Layers = None,
    kinds: Sequence[str] = ("monarch", "low_rank"),
    stream: bool = True,
    ridge: float = RIDGE,
) -> Report:
    """Replaces linear layers, in place, by chains near them; returns a `Report`.

    Parameters
    ----------
    model : any module with torch.nn.Linear, or Conv1D of transformers.
    rule : what becomes of a layer: patterns, a `danaus.Chain`, a share of its weights
        (or a number of them), or None: it stays. Either this itself, a function of the
        layer's name and the layer that returns it, or a mapping of name patterns
        ("*.mlp.*") to it, of which the first that fits counts.
    data : batches (a data loader). Layers are then fitted one after the other to
        give, for what the layers replaced so far hand them, what the dense model has
        there. Without it the factors are those nearest to the matrix.
    layers : name patterns, or a function of name and layer: which layers; None: all.
    kinds : what is tried, calibrated, for a share of the weights; see `compress`.
    stream, ridge : as those of `compress`.
    """
    names, left = select(model, layers)
    decisions = {name: _decide(rule, name, model.get_submodule(name)) for name in names}
    for name in [n for n in names if decisions[n] is None]:
        left[name] = "the rule says so"
    names = [name for name in names if decisions[name] is not None]
    report, start = Report(model, left=left), time.perf_counter()
    batches = [] if data is None else load_batches(data)
    with evaluating(model), torch.no_grad():
        walk = Walk(model, names, batches)

        def fit(name: str, problem: Problem) -> Candidate:
            return _fit(decisions[name], name, problem, kinds)

        walk_through(report, walk, fit, stream=stream, ridge=ridge)
    report.seconds = time.perf_counter() - start
    return report
