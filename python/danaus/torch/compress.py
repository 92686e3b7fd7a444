"""Compresses the linear layers of a network, with the least error of its output."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from danaus._arrays import INT, INT64, whole
from danaus._library import Progress, share_teller
from danaus.torch.batches import Output, checked, load_batches
from danaus.torch.calibrate import Walk, dense_weight
from danaus.torch.candidates import (
    GROUPS,
    Candidate,
    best,
    interpolated_parameters,
    least_parameters,
)
from danaus.torch.choose import Exclude, Layers, select
from danaus.torch.distill import distil
from danaus.torch.exchange import Arrangement, find_exchanges
from danaus.torch.int8 import round_weights
from danaus.torch.moments import Problem
from danaus.torch.replace import (
    RIDGE,
    Report,
    all_or_nothing,
    as_budget,
    as_kinds,
    as_ridge,
    walk_through,
)
from danaus.torch.resume import Finished
from danaus.torch.sensitivity import (
    dense_spectra,
    gradient_moments,
    share_out,
    sides,
)

# Parts of the progress: what is done before and after layers are fitted.
WATCHED, FITTED = 0.1, 0.9


def compress(
    model: nn.Module,
    data: Any,
    params: int | float = 0.3,
    *,
    output: Output | None = None,
    layers: Layers = None,
    exclude: Exclude = (),
    heads: bool = False,
    kinds: Sequence[str] = ("interpolated",),
    budgets: str = "sensitivity",
    weigh: bool = True,
    stream: bool = True,
    permute: bool = True,
    ridge: float = RIDGE,
    probes: int = 1,
    distill: int = 0,
    seed: int = 0,
    batch_invariant: bool = False,
    weights: str | None = None,
    resume: str | os.PathLike | None = None,
    progress: Progress = None,
) -> Report:
    """Replaces linear layers, in place, so that `params` of their weights remain.

    Layers are fitted one after the other. Inputs come from the model as compressed so
    far, targets from the dense one. If a layer's output is added to a residual stream,
    the target corrects that stream. Errors are weighted by their effect on the output,
    and so are the layers' shares of the weights. The same model, data and seed give the
    same result. A new layer has the type, device, mode, hooks and frozen weights of the
    old one. A call that fails or is interrupted leaves the model as it was.

    Parameters
    ----------
    model : any module with torch.nn.Linear, or Conv1D of transformers, on any device.
    data : batches (a data loader). The model gets mappings as keywords, tuples and
        lists as arguments, without labels and without items that forward() has no
        parameter for. Or a tensor, a mapping of tensors or a torch.utils.data.Dataset,
        which are cut into batches; or texts, for a SentenceTransformer. Tokens whose
        attention_mask [batch][length] is 0 do not count.
    params : a share of the weights of all chosen layers, or a number of weights; biases
        do not count.
    output : called with the model's output and the batch, returns the tensor
        [..., features] that matters, such as sentence embeddings; None: the output's
        first floating-point tensor that is no loss.
    layers : names, or patterns of names ("encoder.*"), of layers or of modules that
        contain them, or a function of name and layer; None: all.
    exclude : the same for layers that stay; also classes of layers or of modules that
        contain them.
    heads : True to replace output heads too; those that `layers` names in full always
        are.
    kinds : one or several that are tried for each layer; the least weighted error wins:
        "interpolated" (low rank, some rows stored: fewest weights for a rank),
        "low_rank", "column_groups" and "row_groups" (a low-rank matrix for each group
        of inputs, or of outputs), "monarch" (groups of both), "sum" (low rank, and
        blocks or Monarch).
    budgets : "sensitivity", or "uniform": the same share for every layer.
    weigh : weight errors of a layer's outputs by their effect.
    stream : let targets correct the residual stream.
    permute : allow permutations of channels that neighbouring layers share, such as
        hidden units of an MLP, where groups then fit better; the model's output does
        not depend on their order.
    ridge : regularisation towards the dense weights, as a share of the inputs' mean
        square.
    probes : number of random directions at the output for each batch, which estimate
        effects.
    distill : passes over the data that train the new weights on the dense model's
        output; 0: none.
    seed : seed of the random directions.
    batch_invariant : make the new layers so, as `KSLinear` has it.
    weights : "int8": weights of the new layers have 8 bits, in files too; fits and
        errors are those of rounded weights. None: they have the layers' type.
    resume : a folder that keeps finished layers: the same call goes on from there.
    progress : called with the share done, in [0, 1]; True draws a bar.
    """
    kinds, ridge = as_kinds(kinds), as_ridge(ridge)
    probes, seed = whole(probes, "probes", 1, INT), whole(seed, "seed", 0, INT64)
    distill = whole(distill, "distill", 0, INT)
    if weights not in (None, "int8"):
        raise ValueError(f"weights is None or 'int8', not {weights!r}")
    if budgets not in ("sensitivity", "uniform"):
        raise ValueError(f"budgets is 'sensitivity' or 'uniform', not {budgets!r}")
    start = time.perf_counter()
    names, left = select(model, layers, exclude, heads)
    batches = load_batches(data, model)
    report = Report(model, left=left)
    if not names:
        return report
    options = {"params": params, "output": output, "kinds": kinds, "budgets": budgets}
    options |= {"weigh": weigh, "stream": stream, "permute": permute, "ridge": ridge}
    options |= {"probes": probes, "seed": seed, "weights": weights}
    finished = Finished(resume, model, names, batches, options)
    output = checked(output)
    with share_teller(progress, "compress") as tell, all_or_nothing(
        report, batch_invariant
    ):
        tell(0.0)
        walk = Walk(model, names, batches)
        for name in walk.uncalled:
            del walk.originals[name]
        if not walk.originals:
            raise ValueError(
                "the model calls none of its linear layers with these data: "
                f"{', '.join(walk.uncalled[:5])}"
            )
        weighed: dict[str, Tensor] = {}
        if weigh or budgets == "sensitivity":
            weighed = sides(gradient_moments(walk, output, probes, seed))
        sizes = finished.sizes()
        if sizes is None:
            sizes = _sizes(walk, weighed, params, kinds, ridge, budgets)
            finished.put_sizes(sizes)
        targets = [_output(walk, output, b) for b in batches] if distill else []
        grouped = permute and any(kind in GROUPS for kind in kinds)
        places = Arrangement(walk, find_exchanges(walk) if grouped else ())
        tell(WATCHED)

        def fit(name: str, problem: Problem, part: Callable) -> Candidate:
            found = best(problem, sizes[name], kinds, places.free(name))
            return found.rounded() if weights else found

        last = FITTED if distill else 1.0
        walk_through(
            report,
            walk,
            fit,
            weighed if weigh else None,
            places,
            finished=finished,
            stream=stream,
            ridge=ridge,
            tell=lambda done: tell(WATCHED + (last - WATCHED) * done),
        )
        if distill:
            distil(walk, output, targets, distill)
            tell(1.0)
        for row in report.layers if weights else ():
            round_weights(model.get_submodule(row.name))
    report.seconds = time.perf_counter() - start
    return report


def _output(walk: Walk, output: Output, batch: Any) -> Tensor:
    return output(walk.run(batch), walk.moved(batch)).detach()


def _sizes(
    walk: Walk,
    weighed: dict[str, Tensor],
    params: int | float,
    kinds: Sequence[str],
    ridge: float,
    budgets: str,
) -> dict[str, int]:
    """Weights for each layer."""
    shapes = {n: dense_weight(m).numel() for n, m in walk.originals.items()}
    total = as_budget(params, sum(shapes.values()))
    if budgets != "uniform":
        return _budgets(walk, weighed, total, kinds, ridge)
    share = total / sum(shapes.values())
    return {name: int(share * whole) for name, whole in shapes.items()}


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
        rows, cols = dense_weight(walk.originals[name]).shape
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
