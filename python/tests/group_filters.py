"""Training steps of modules with explicit filters, for the ranks of
test_torch_group.py and for one process alone."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from danaus.torch import (
    GatedLongConv,
    HyenaOperator,
    LongConv,
    average_gradients,
    sequence_parallel,
    split_sequence,
)
from danaus.torch._gather import is_complete

LENGTH = 24


class Rows(nn.Module):
    """A layer for x [batch, length, width] applied to rows [batch, width, length]."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, u: Tensor) -> Tensor:
        return self.layer(u.mT).mT


def _pair(width: int, kind: str = "causal", **more) -> nn.Sequential:
    return nn.Sequential(
        LongConv(width, LENGTH, kind, **more), LongConv(width, LENGTH, kind, **more)
    )


def _tied() -> nn.Sequential:
    pair = _pair(7)
    pair[1].weight = pair[0].weight
    return pair


def _frozen() -> nn.Sequential:
    pair = _pair(7)
    pair[0].weight.requires_grad_(False)
    return pair


class Used(nn.Module):
    """A convolution whose filters multiply the rank's piece, too."""

    def __init__(self):
        super().__init__()
        self.conv = LongConv(7, LENGTH)

    def forward(self, u: Tensor) -> Tensor:
        return self.conv(u) + u * self.conv.weight[:, :1]


class Case(NamedTuple):
    """complete: which filters have complete gradients after the backward pass."""

    width: int
    make: Callable[[], nn.Module]
    complete: list[bool]
    penalty: float = 0
    steps: int = 1


# fmt: off
FILTERS = {
    "uneven": Case(7, lambda: _pair(7), [True] * 2),
    "both ways": Case(13, lambda: _pair(13, "bidirectional"), [True] * 4),
    "fewer than ranks": Case(2, lambda: _pair(2), [True] * 2),
    "one": Case(1, lambda: _pair(1, skip=False), [True] * 2),
    "shared": Case(14, lambda: _pair(14, filters=2), [False] * 2),
    "frozen": Case(7, _frozen, [False, True]),
    "two layers": Case(7, _tied, [False]),
    "penalty": Case(7, lambda: _pair(7), [False] * 2, penalty=0.3),
    "also local": Case(7, Used, [False]),
    "two steps": Case(7, lambda: _pair(7), [False] * 2, steps=2),
    "gated": Case(5, lambda: Rows(GatedLongConv(5, LENGTH)), [True]),
    "heads": Case(12, lambda: Rows(GatedLongConv(12, LENGTH, head_dim=3)), [True]),
    "order 3": Case(5, lambda: Rows(HyenaOperator(5, LENGTH, 3)), [True] * 2),
}
# fmt: on
WAYS = "average", "one by one", "ddp", "fsdp2"


def _wrapped(model: nn.Module, way: str, place: Any) -> nn.Module:
    group = dist.group.WORLD if place.group == "world" else place.group
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model, process_group=group)
    if way == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        mesh = dist.device_mesh.DeviceMesh.from_group(group, place.device)
        return fully_shard(model, mesh=mesh)
    return model


def _average(model: nn.Module, way: str, place: Any) -> list[bool]:
    """Which filters had complete gradients before."""
    long = [p for name, p in model.named_parameters() if _is_long(name)]
    group = dist.group.WORLD if place.group == "world" else place.group
    complete = [p.grad is not None and is_complete(p.grad, group) for p in long]
    least = sequence_parallel.LARGE
    try:
        sequence_parallel.LARGE = 0 if way == "one by one" else least
        average_gradients(model, place.group)
    finally:
        sequence_parallel.LARGE = least
    return complete


def _is_long(name: str) -> bool:
    end = name.split(".")[-1]
    return end.startswith("weight") and "proj" not in name and "short" not in name


def train_filters(name: str, way: str, place: Any) -> tuple[list, list[bool]]:
    """The loss and all gradients of steps that are added up; what `complete` is."""
    torch.manual_seed(5)
    case, complete = FILTERS[name], []
    bare = case.make().double().to(place.device)
    u = torch.rand(2, case.width, LENGTH, dtype=torch.float64) - 0.5
    if place.group is not None:
        split_sequence(bare, place.group)
    model = bare if place.group is None else _wrapped(bare, way, place)
    for _ in range(case.steps):
        loss = model(place.piece(u, 2)).square().mean()
        if case.penalty:
            loss = loss + case.penalty * sum(_square(p) for p in bare.parameters())
        loss.backward()
    if place.group is not None and way in ("average", "one by one"):
        complete = _average(bare, way, place)
    gradients = [p.grad for p in bare.parameters() if p.grad is not None]
    whole = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in gradients]
    return [x.detach().cpu() for x in (loss, *whole)], complete


def _square(p: Tensor) -> Tensor:
    p = p.full_tensor() if hasattr(p, "full_tensor") else p
    return p.square().sum()


FILTER_TRAININGS = [(name, way) for name in FILTERS for way in WAYS]
