"""Sequences that are split over the ranks of a process group: several GPUs for one.

Layers and models exchange channels for length (`danaus.torch._split`).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist

from danaus.torch._conv_functions import fail
from danaus.torch._gather import is_complete
from danaus.torch._split import Ranks, Splittable, ranks_of

__all__ = ["average_gradients", "split_sequence"]

LARGE = 1 << 20  # bytes of a gradient that has an all-reduce of its own
Model = TypeVar("Model", bound=nn.Module)


def split_sequence(model: Model, group="world") -> Model:
    """The model, which now takes and gives pieces of sequences: rank r of the group has
    tokens r n to (r + 1) n - 1 of each, n on every rank. It sets the group of all
    convolutions and mixers inside, and of the models of `danaus.torch.models`.

    Parameters
    ----------
    group : ProcessGroup, True, "world" (the default group) or None
        None: sequences are whole again.

    Raises
    ------
    ValueError
        A model with layers that need whole sequences, or without ones to split.
    """
    for name, module in model.named_modules():
        if getattr(module, "needs_whole_rows", False):
            fail(f"{name or 'the model'}, {type(module).__name__}, takes no group")
    found = [module for module in model.modules() if isinstance(module, Splittable)]
    if not found:
        fail("the model has no convolutions that take a group")
    for module in found:
        module._set_group(group)
    return model


@torch.no_grad()
def average_gradients(model: nn.Module, group="world") -> None:
    """Makes each gradient its mean over the ranks of a group, as DDP and FSDP do on
    their own. All ranks have gradients of the same parameters, and the same hooks.

    The backward pass has already made the mean of explicit filters, where each belongs
    to one rank. It is left as it is, unless other terms of the loss were added to it.
    """
    ranks = ranks_of(group)
    if ranks is None:
        return
    under_way, few = [], {}
    for parameter in model.parameters():
        x = parameter.grad
        if x is None or is_complete(x, ranks.group):
            continue
        if x.nbytes >= LARGE and x.is_contiguous():
            under_way.append(_start_mean(ranks, x))
        else:
            few.setdefault((x.dtype, x.device), []).append(x)
    flat = [torch.cat([x.flatten() for x in each]) for each in few.values()]
    under_way += [_start_mean(ranks, x) for x in flat]
    for finish in under_way:
        finish()
    for every, gradients in zip(flat, few.values()):
        means = every.split([x.numel() for x in gradients])
        for x, mean in zip(gradients, means):
            x.copy_(mean.view_as(x))


def _start_mean(ranks: Ranks, x: Tensor) -> Callable[[], None]:
    """Begins to make x its mean over the ranks; what it returns ends this."""
    is_nccl = f"{x.device.type}:nccl" in dist.get_backend_config(ranks.group)
    operation = dist.ReduceOp.AVG if is_nccl else dist.ReduceOp.SUM
    work = dist.all_reduce(x, operation, ranks.group, async_op=True)

    def finish() -> None:
        work.wait()
        if not is_nccl:
            x.div_(ranks.size)

    return finish
