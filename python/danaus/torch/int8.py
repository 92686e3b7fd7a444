"""Weights of 8 bits: integers, and a scale for each row and lane of a factor.

Layers whose `int8` is set hold numbers of their own type, which are integers times
scales, and compute as others do, with gradients. Files hold the integers and the
scales, by which `danaus.Model` multiplies (docs/models.md).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from danaus.torch.linear import KSLinear

MOST = 127  # magnitude of an integer
SCALE_BITS = 17  # an integer times a scale is then exact in f32
SCALE = "_scale"  # behind the name of a tensor


def narrow(w: Tensor) -> tuple[Tensor, Tensor]:
    """The integers of a factor [a, b, c, d] and their scales [a, b, 1, d], in f32.

    What they multiply to has the same integers and scales.
    """
    w = w.detach().float()
    fraction, exponent = torch.frexp(w.abs().amax(2, keepdim=True) / MOST)
    fraction = torch.round(torch.ldexp(fraction, torch.tensor(SCALE_BITS)))
    scale = torch.ldexp(fraction, exponent - SCALE_BITS)
    scale = torch.where(torch.isfinite(scale), scale, torch.nan)
    n = torch.round(w.double() / scale.double()).clamp(-MOST, MOST)
    return torch.where(scale > 0, n, 0).to(torch.int8), scale


def widen(integers: Tensor, scale: Tensor) -> Tensor:
    """The factor that they multiply to, in f32."""
    return integers.float() * scale.float()


def chains_of(layer: nn.Module) -> Iterator[tuple[str, KSLinear]]:
    """The chains of a module whose weights have 8 bits, by their names."""
    for name, part in layer.named_modules():
        if isinstance(part, KSLinear) and part.int8:
            yield name, part


@torch.no_grad()
def round_weights(layer: nn.Module) -> None:
    """Rounds the weights of all chains in a layer to 8 bits, from now on."""
    for part in layer.modules():
        if isinstance(part, KSLinear):
            part.int8 = True
            for w in part.factors():
                w.copy_(widen(*narrow(w)))


def narrowed(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of the model with integers and scales in place of such weights."""
    found = dict(state)
    for name, part in chains_of(model):
        for i in range(len(part.patterns)):
            key = f"{name}.weights.{i}" if name else f"weights.{i}"
            if key in found:
                integers, scale = narrow(found[key])
                found |= {key: integers, f"{key}{SCALE}": scale}
    return found


def widened(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The opposite. ValueError for integers without a scale that fits."""
    found = dict(tensors)
    for name, integers in tensors.items():
        if integers.dtype != torch.int8 or ".weights." not in f".{name}":
            continue
        scale = found.pop(f"{name}{SCALE}", None)
        shape = integers.shape[:2] + (1,) + integers.shape[3:]
        if scale is None or scale.shape != shape:
            raise ValueError(f"{name} has 8 bits, and {name}{SCALE} is no scale for it")
        found[name] = widen(integers, scale)
    return found


def expect_scales(layer: nn.Module) -> None:
    """Makes room for scales beside integers, which whoever loads them writes to."""
    for _, part in chains_of(layer):
        part.__dict__["loaded_as"] = part.weights[0].dtype
        held = part._modules["weights"]
        for i, (a, b, _, d) in enumerate(part.patterns):
            scale = torch.full((a, b, 1, d), torch.nan, device="meta")
            held.register_buffer(f"{i}{SCALE}", scale)


def take_scales(layer: nn.Module) -> None:
    """Multiplies the integers that were loaded by the scales, which go."""
    for _, part in chains_of(layer):
        held, dtype = part._modules["weights"], part.__dict__.pop("loaded_as")
        for name, integers in list(held._parameters.items()):
            w = widen(integers.detach(), held._buffers.pop(f"{name}{SCALE}"))
            held._parameters[name] = nn.Parameter(w.to(dtype))
