"""How much errors of layers matter at a network's output, and budgets from that.

For a random direction v at the output, g = (d output / d y)^T v is the gradient at the
output y of a layer. A small error e of y moves the output by J e, of mean square
E (g^T e)^2 = e^T (E g g^T) e for directions with E v v^T = 1: the errors of a layer are
weighed by G = E g g^T (one factor of K-FAC: Martens, Grosse, ICML 2015). v has the
covariance of the network's own outputs: what tells inputs apart counts.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from danaus.torch.batches import Output
from danaus.torch.calibrate import Walk, dense_weight, naming
from danaus.torch.moments import Moments, Problem, sums_of


def _directions(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Random combinations of the rows' differences from their mean."""
    centred = rows - rows.mean(0)
    signs = torch.randn(len(rows), len(rows), generator=generator).to(rows)
    return signs @ centred / math.sqrt(len(rows))


def gradient_moments(
    walk: Walk, output: Output, probes: int, seed: int
) -> dict[str, Tensor]:
    """The mean of g g^T for each layer, [M][M], over all rows and some directions."""
    generator = torch.Generator().manual_seed(seed)
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def add(name: str, batch: Any, g: Tensor) -> None:
        rows = walk.rows(g, batch)
        sums[name] = sums.get(name, 0) + sums_of(rows, rows)
        counts[name] = counts.get(name, 0) + len(rows)

    for batch in walk.batches:
        with ExitStack() as stack, torch.enable_grad():
            seen: list[tuple[str, Tensor]] = []
            for name, module in walk.originals.items():

                def hook(module, args, y, name=name, seen=seen):
                    if not y.requires_grad:
                        y = y.detach().requires_grad_()
                    seen.append((name, y))
                    return y

                stack.callback(module.register_forward_hook(hook, prepend=True).remove)
            found = output(walk.run(batch), walk.moved(batch))
            rows = found.reshape(-1, found.shape[-1])
            if found.dim() > 2:
                rows = walk.rows(found, batch)
            if not seen or not rows.requires_grad:
                raise ValueError(
                    "the output does not depend on the layers in a way that has "
                    "gradients: give another output=, or budgets='uniform'"
                )
            for probe in range(probes):
                v = _directions(rows.detach(), generator)
                gradients = torch.autograd.grad(
                    (rows * v).sum(),
                    [y for _, y in seen],
                    retain_graph=probe + 1 < probes,
                    allow_unused=True,
                )
                for (name, _), g in zip(seen, gradients):
                    if g is not None:
                        add(name, batch, g)
    return {name: total / counts[name] for name, total in sums.items()}


def sides(moments: dict[str, Tensor], share: float = 1e-3) -> dict[str, Tensor]:
    """S with S S^T = G + share mean(diagonal of G), lower triangular."""
    found = {}
    for name, matrix in moments.items():
        level = float(matrix.diagonal().mean())
        if not math.isfinite(level):
            raise ValueError(
                f"the layer {name} has gradients that are not finite: the calibration "
                "data or the model has such numbers, or the data has no rows"
            )
        eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        found[name] = torch.linalg.cholesky(matrix + max(share * level, 1e-30) * eye)
    return found


def dense_spectra(
    walk: Walk, weighed: dict[str, Tensor], ridge: float
) -> dict[str, np.ndarray]:
    """By layer, what the loss falls by for each further rank, largest first.

    Nothing is gained by a layer that the output does not depend on.
    """
    found = {}
    for name, moments in _input_moments(walk).items():
        linear = walk.originals[name]
        weight, has_bias = dense_weight(linear).double(), linear.bias is not None
        moments.yx = weight @ moments.xx
        moments.y = weight @ moments.x
        with naming(name):
            problem = Problem.of(moments, weight, weighed.get(name), ridge, has_bias)
        white = problem.whitened
        square = white @ white.T if len(white) < white.shape[1] else white.T @ white
        gains = np.maximum(scipy.linalg.eigvalsh(square)[::-1], 0.0)
        found[name] = gains if name in weighed else np.zeros_like(gains)
    return found


def _input_moments(walk: Walk) -> dict[str, Moments]:
    """Sums over the inputs of all layers of the dense model."""
    found: dict[str, Moments] = {}
    leaders = [stage.names[0] for stage in walk.stages]
    for batch in walk.batches:
        seen = walk.watch(batch, leaders)
        for stage in walk.stages:
            x = torch.cat([walk.rows(t, batch) for t in seen.inputs[stage.names[0]]])
            xx, total = sums_of(x, x), x.sum(0, dtype=torch.float64)
            for name in stage.names:
                if name not in found:
                    found[name] = Moments(0, x.shape[-1], x.device)
                found[name].count += len(x)
                found[name].xx += xx
                found[name].x += total
    return found


# ---- budgets ----


def share_out(
    losses: dict[str, np.ndarray], costs: dict[str, np.ndarray], total: int
) -> dict[str, int]:
    """For each layer an index into its losses, so that costs add up to at most `total`.

    losses[i] falls and costs[i] grows with i. Bisection first finds the best choice for
    one price of a parameter (Lagrange); the rest of the total then goes step by step to
    the layer that gains most for it.
    """
    least = sum(int(c[0]) for c in costs.values())
    if least > total:
        raise ValueError(
            f"{total} parameters are too few: the layers need {least} at least"
        )

    def chosen(price: float) -> dict[str, int]:
        return {n: int(np.argmin(losses[n] + price * costs[n])) for n in losses}

    def cost(choice: dict[str, int]) -> int:
        return sum(int(costs[n][i]) for n, i in choice.items())

    largest = max(float(v.max()) for v in losses.values()) + 1e-300
    low, high = math.log(largest) - 100, math.log(largest) + 1
    for _ in range(100):
        middle = (low + high) / 2
        if cost(chosen(math.exp(middle))) > total:
            low = middle
        else:
            high = middle
    choice = chosen(math.exp(high))
    left = total - cost(choice)
    while True:
        steps = [
            ((losses[n][i] - losses[n][i + 1]) / max(step, 1), n)
            for n, i in choice.items()
            if i + 1 < len(costs[n])
            and (step := int(costs[n][i + 1] - costs[n][i])) <= left
        ]
        if not steps:
            return choice
        name = max(steps)[1]
        i = choice[name]
        left -= int(costs[name][i + 1] - costs[name][i])
        choice[name] = i + 1
