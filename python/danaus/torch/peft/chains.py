"""LoRA of PEFT on layers of danaus, and what adapters add to these layers.

A layer whose matrix is a chain has no dense weight that an adapter could be added to. A
merged adapter becomes a second chain beside it: the layer is then a `SumLinear`.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import warnings
from typing import Any

import peft
import torch
from peft.tuners.lora.layer import Linear as LoraLinear
from peft.tuners.tuners_utils import check_adapters_to_merge
from torch import Tensor, nn

from danaus.torch.composed import SumLinear
from danaus.torch.linear import KSLinear
from danaus.torch.weight import LinearLike


def check_layout(layer: nn.Module) -> None:
    """Raises for a layer whose features are not the last dimension."""
    if getattr(layer, "layout", "batch_first") != "batch_first":
        raise ValueError(
            f"adapters need the layout 'batch_first', this {type(layer).__name__} has "
            f"{layer.layout!r}"
        )


def sum_of(
    base: LinearLike, weights: list[Tensor], bias: Tensor | None, finite: bool
) -> SumLinear:
    """A layer of danaus plus the chain of these weights, which have no gradients.

    ValueError, if `finite`, for numbers that are not.
    """
    numbers = weights if bias is None else [*weights, bias]
    if finite and not all(torch.isfinite(w).all() for w in numbers):
        raise ValueError("the adapter has numbers that are not finite")
    like = base.factors()[0]
    more = KSLinear(
        base.in_features,
        base.out_features,
        [tuple(w.shape) for w in weights],
        bias=bias is not None,
        device=like.device,
        dtype=like.dtype,
    )
    with torch.no_grad():
        for to, w in zip(more.weights, weights):
            to.copy_(w)
        if bias is not None:
            more.bias.copy_(bias)
    return SumLinear(base, more.requires_grad_(False)).train(base.training)


class Lora(LoraLinear):
    """LoRA on a layer of danaus."""

    def __init__(self, base_layer: nn.Module, *args: Any, **kwargs: Any):
        check_layout(base_layer)
        super().__init__(base_layer, *args, **kwargs)

    def _get_in_out_features(self, module: nn.Module) -> tuple[int, int]:
        return module.in_features, module.out_features

    @torch.no_grad()
    def merge(
        self, safe_merge: bool = False, adapter_names: list[str] | None = None
    ) -> None:
        """Puts adapters beside the base layer, in a `SumLinear`."""
        for name in check_adapters_to_merge(self, adapter_names):
            if name not in self.lora_A:
                continue
            if name in self.lora_variant:
                kind = type(self.base_layer).__name__
                raise NotImplementedError(
                    f"the adapter {name} is more than a sum of matrices: it cannot be "
                    f"merged into a {kind}, which has no dense weight"
                )
            left = self.scaling[name] * self.lora_B[name].weight
            bias = self.lora_B[name].bias
            bias = None if bias is None else self.scaling[name] * bias
            chain = [w[None, :, :, None] for w in (left, self.lora_A[name].weight)]
            self.base_layer = sum_of(self.base_layer, chain, bias, safe_merge)
            self.merged_adapters.append(name)

    def unmerge(self) -> None:
        """Takes merged adapters away again; the base layer's numbers are the same."""
        separate(self)


def separate(layer: Any) -> None:
    """Undoes `sum_of` of all merged adapters."""
    if not layer.merged:
        warnings.warn("Already unmerged. Nothing to do.", stacklevel=3)
    while layer.merged_adapters:
        layer.merged_adapters.pop()
        layer.base_layer = layer.base_layer.first


def on_chains(config: peft.LoraConfig) -> peft.LoraConfig:
    """Lets a configuration of LoRA adapt layers of danaus, too; returns it.

    These are `KSLinear`, `MonarchLinear`, `SumLinear`, `InterpolatedLinear`, and layers
    that compress() makes. PEFT does not save this: call it again for what
    `LoraConfig.from_pretrained` returns.
    """
    config._register_custom_module({LinearLike: Lora})
    return config
