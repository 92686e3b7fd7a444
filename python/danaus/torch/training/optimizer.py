"""AdamW's groups of parameters, and the learning rate of each step."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from danaus.torch.implicit import HyenaFilter
from danaus.torch.training.settings import Settings


def rate_at(step: int, settings: Settings) -> float:
    """The rate of step 1, 2, ... as a share of the largest: it grows linearly, then
    falls as a cosine to last_rate."""
    grows = round(settings.warm_up * settings.steps)
    if step <= grows:
        return step / grows
    done = (step - grows) / max(1, settings.steps - grows)
    fallen = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return settings.last_rate + (1 - settings.last_rate) * fallen


def parameter_groups(
    model: nn.Module,
    rate: float,
    decay: float,
    *,
    filter_rate: float | None = None,
    filter_decay: float | None = None,
    position_rate: float | None = None,
) -> list[dict[str, Any]]:
    """Groups for an optimizer, with lr and weight_decay.

    Vectors (biases, norms, skips), frequencies of sines and learned positions do not
    decay. The networks of every `HyenaFilter`, with their frequencies, and its
    positions have a rate and a decay of their own if these are given, as in the
    authors' code (HyenaFilter of HazyResearch/safari: 1e-3 and 0.1, positions 1e-5).
    As there, a parameter may also have an attribute `_optim`, a mapping with its own lr
    and weight_decay.
    """
    special: dict[int, dict[str, float | None]] = {}
    for module in model.modules():
        if isinstance(module, HyenaFilter):
            special |= {
                id(p): {"lr": filter_rate, "weight_decay": filter_decay}
                for name, p in module.named_parameters()
                if name.startswith("implicit_filter")
            }
            special[id(module.pos_emb.z)] = {"lr": position_rate}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        usual = name.endswith((".freq", "pos_emb.z")) or p.dim() < 2
        own = {"lr": rate, "weight_decay": 0.0 if usual else decay}
        for more in (special.get(id(p), {}), getattr(p, "_optim", {})):
            own |= {n: v for n, v in more.items() if v is not None}
        groups.setdefault((own["lr"], own["weight_decay"]), []).append(p)
    return [
        {"params": parameters, "lr": lr, "weight_decay": wd}
        for (lr, wd), parameters in groups.items()
    ]


def make_optimizer(
    model: nn.Module, settings: Settings, device: torch.device
) -> torch.optim.AdamW:
    groups = parameter_groups(
        model,
        settings.rate,
        settings.weight_decay,
        filter_rate=settings.filter_rate,
        filter_decay=settings.filter_decay,
        position_rate=settings.position_rate,
    )
    for group in groups:
        group["largest"] = group["lr"]
    return torch.optim.AdamW(
        groups,
        betas=tuple(settings.betas),
        eps=settings.epsilon,
        fused=device.type == "cuda",
    )
