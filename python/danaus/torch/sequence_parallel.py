"""Sequences that are split over the ranks of a process group: several GPUs for one.

Layers and models exchange channels for length (`danaus.torch._split`).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TypeVar

import torch
from torch import distributed as dist
from torch import nn

from danaus.torch._conv_functions import fail
from danaus.torch._split import Splittable, ranks_of

__all__ = ["average_gradients", "split_sequence"]

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
    their own. All ranks have gradients of the same parameters."""
    ranks = ranks_of(group)
    if ranks is None:
        return
    by_type: dict = {}
    for parameter in model.parameters():
        if parameter.grad is not None:
            key = parameter.grad.dtype, parameter.grad.device
            by_type.setdefault(key, []).append(parameter.grad)
    for gradients in by_type.values():
        every = torch.cat([x.flatten() for x in gradients]) / ranks.size
        dist.all_reduce(every, group=ranks.group)
        for x, mean in zip(gradients, every.split([x.numel() for x in gradients])):
            x.copy_(mean.view_as(x))
