"""New weights trained to give the dense model's output."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import torch
from torch import Tensor

from danaus.torch.batches import Output
from danaus.torch.calibrate import Walk


def distil(
    walk: Walk, output: Output, targets: list[Tensor], passes: int, rate: float = 1e-4
) -> None:
    """Trains the replaced layers by AdamW on the mean square error of the output.

    Parameters
    ----------
    targets : the dense model's output for each batch.
    passes : over all batches, in their order; the step falls with a cosine.
    rate : the first step.
    """
    parameters = [p for m in walk.replaced.values() for p in m.parameters()]
    ours = {id(p) for p in parameters}
    trained = {p: p.requires_grad for p in walk.model.parameters()}
    for p in trained:
        p.requires_grad_(id(p) in ours)
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    steps = passes * len(walk.batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / steps)) / 2
    )
    scale = 1 / sum(float(t.float().square().mean()) for t in targets)
    try:
        with torch.enable_grad():
            for _ in range(passes):
                for batch, target in zip(walk.batches, targets):
                    found = output(walk.run(batch), walk.moved(batch))
                    error = (found.float() - target.float()).square().mean()
                    optimizer.zero_grad()
                    (error * scale * len(targets)).backward()
                    optimizer.step()
                    schedule.step()
    finally:
        for p, before in trained.items():
            p.requires_grad_(before)
        for p in parameters:
            p.grad = None
