"""A whole network's linear layers made smaller, at the least cost for its output."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from danaus.torch.calibrate import Walk, evaluating, first_tensor, load_batches
from danaus.torch.candidates import (
    KINDS,
    Candidate,
    Problem,
    best,
    interpolated_parameters,
    least_parameters,
)
from danaus.torch.distill import distil
from danaus.torch.exchange import Arrangement, find_exchanges
from danaus.torch.replace import (
    RIDGE,
    Layers,
    Report,
    as_budget,
    select,
    walk_through,
)
from danaus.torch.sensitivity import (
    Output,
    dense_spectra,
    gradient_moments,
    share_out,
    sides,
)


def compress(
    model: nn.Module,
    data: Iterable[Any],
    params: int | float = 0.3,
    *,
    output: Output | None = None,
    layers: Layers = None,
    kinds: Sequence[str] = ("interpolated",),
    budgets: str = "sensitivity",
    weigh: bool = True,
    stream: bool = True,
    permute: bool = True,
    ridge: float = RIDGE,
    probes: int = 1,
    distill: int = 0,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Report:
    """Replaces linear layers, in place, so that `params` of their weights remain.

    Layers are fitted one after the other: inputs come from the model as it has been
    compressed so far, targets from the dense one, and where a layer's output is added
    to a residual stream the target corrects that stream. Errors are weighed by what
    they do at the output, and so are the layers' shares of the weights. The same model,
    data and seed give the same result.

    Parameters
    ----------
    model : any module with torch.nn.Linear, or Conv1D of transformers, on any device.
    data : batches (a data loader): mappings are given to the model as keywords, tuples
        and lists as arguments. Tokens where a mapping's attention_mask [batch][length]
        is 0 are left out.
    params : a share of the weights of all chosen layers, or a number of weights; biases
        do not count.
    output : called with the model's output and the batch, returns the tensor
        [..., features] that matters, such as sentence embeddings; None: the first
        tensor of the output.
    layers : name patterns ("encoder.*"), or a function of name and layer; None: all.
    kinds : one or several that are tried for each layer; the least weighted error wins:
        "interpolated" (low rank by rows that are kept: fewest weights for a rank),
        "low_rank", "monarch" (2 to 32 blocks), "sum" (low rank + blocks).
    budgets : "sensitivity", or "uniform": the same share for every layer.
    weigh : whether errors of a layer's outputs are weighed by their effect.
    stream : whether targets correct the residual stream.
    permute : whether channels that neighbouring layers share, such as hidden units of
        an MLP, may change places where Monarch matrices then fit better; the model's
        output does not depend on their order.
    ridge : lambda as a share of the inputs' mean square: it holds the dense weights
        where the data say little.
    probes : random directions at the output for each batch, from which effects are
        estimated.
    distill : passes over the data in which the new weights are trained to give the
        dense model's output; 0: none.
    seed : of the directions.
    progress : called with the share done, in [0, 1].
    """
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    unknown = set(kinds) - set(KINDS)
    if unknown or not kinds:
        raise ValueError(f"kinds are some of {', '.join(KINDS)}, not {sorted(unknown)}")
    if budgets not in ("sensitivity", "uniform"):
        raise ValueError(f"budgets is 'sensitivity' or 'uniform', not {budgets!r}")
    start = time.perf_counter()
    names, left = select(model, layers)
    batches = load_batches(data)
    output = output or (lambda found, batch: first_tensor(found))
    report = Report(model, left=left)
    with evaluating(model), torch.no_grad():
        walk = Walk(model, names, batches)
        for name in walk.uncalled:
            del walk.originals[name]
        shapes = {n: m.weight.numel() for n, m in walk.originals.items()}
        total = as_budget(params, sum(shapes.values()))
        weighed: dict[str, Tensor] = {}
        if weigh or budgets == "sensitivity":
            weighed = sides(gradient_moments(walk, output, probes, seed))
        if budgets == "uniform":
            share = total / sum(shapes.values())
            sizes = {name: int(share * whole) for name, whole in shapes.items()}
        else:
            sizes = _budgets(walk, weighed, total, kinds, ridge)
        targets = [_output(walk, output, b) for b in batches] if distill else []

        grouped = permute and "monarch" in kinds
        places = Arrangement(walk, find_exchanges(walk) if grouped else ())

        def fit(name: str, problem: Problem) -> Candidate:
            return best(problem, sizes[name], kinds, places.free(name))

        given = weighed if weigh else None
        options = {"stream": stream, "ridge": ridge, "progress": progress}
        walk_through(report, walk, fit, given, places, **options)
        if distill:
            distil(walk, output, targets, distill)
    report.seconds = time.perf_counter() - start
    return report


def _output(walk: Walk, output: Output, batch: Any) -> Tensor:
    return output(walk.run(batch), walk.moved(batch)).detach()


def _budgets(
    walk: Walk,
    weighed: dict[str, Tensor],
    total: int,
    kinds: Sequence[str],
    ridge: float,
) -> dict[str, int]:
    """Weights for each layer, by what each rank of it is worth at the output."""
    losses, costs = {}, {}
    for name, gains in dense_spectra(walk, weighed, ridge).items():
        rows, cols = walk.originals[name].weight.shape
        ranks = np.arange(1, len(gains))
        if "interpolated" in kinds:
            cost = interpolated_parameters(rows, cols, ranks)
        else:
            ranks = ranks[ranks * (rows + cols) < rows * cols]
            cost = ranks * (rows + cols)
        paid = cost >= least_parameters(rows, cols, kinds)
        ranks, cost = ranks[paid], cost[paid]
        rest = gains.sum() - np.cumsum(gains)
        losses[name] = np.append(np.maximum(rest[ranks - 1], 0.0), 0.0)
        costs[name] = np.append(cost, rows * cols)
    choice = share_out(losses, costs, total)
    return {name: int(costs[name][i]) for name, i in choice.items()}
