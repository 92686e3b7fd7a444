"""Monarch adapters for PEFT: W + scaling L R, where L R is a Monarch matrix.

With q blocks of rank r the chain is

    L = (1, M / q, r, q),   R = (q, r, N / q, 1),

r (M + N) weights, as many as LoRA of rank r has, for a matrix whose rank is up to q r.
L is 0 at first. Source: Tan, Roberts, Huang, Zhao, Cooper, Guo, Duan, Sala, MoRe
Fine-Tuning with 10x Fewer Parameters, 2024 (arXiv 2408.17383).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import peft
import torch
from peft.tuners.tuners_utils import (
    BaseTuner,
    BaseTunerLayer,
    check_adapters_to_merge,
)
from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as TARGETS
from peft.utils import register_peft_method
from torch import Tensor, nn

from danaus.torch.functional import ks_linear
from danaus.torch.peft._types import new_type
from danaus.torch.peft.chains import check_layout, separate, sum_of
from danaus.torch.structure import sizes_of
from danaus.torch.weight import LinearLike

TYPE = new_type("DANAUS_MONARCH")


def _option(default: Any, what: str) -> Any:
    return field(default=default, metadata={"help": what})


@dataclass
class MonarchConfig(peft.PeftConfig):
    """Options of Monarch adapters. Those that are not below are as LoRA has them.

    Parameters
    ----------
    nblocks : q, which divides the inputs and outputs of every layer.
    r : rank of the blocks.
    monarch_alpha : scaling is monarch_alpha / r.
    monarch_dropout : of the adapter's inputs, in training.
    init_weights : False: L is random, too, for tests.
    """

    nblocks: int = _option(4, "number of blocks")
    r: int = _option(8, "rank of the blocks")
    monarch_alpha: float = _option(8, "scaling is monarch_alpha / r")
    monarch_dropout: float = _option(0.0, "dropout of the adapter's inputs")
    target_modules: list[str] | str | None = _option(None, "names of layers to adapt")
    exclude_modules: list[str] | str | None = _option(None, "names of others")
    bias: str = _option("none", "biases to train: none, all or monarch_only")
    modules_to_save: list[str] | None = _option(None, "modules to train and save whole")
    init_weights: bool = _option(True, "False: the left factor is random, too")
    layers_to_transform: list[int] | int | None = _option(None, "indices of layers")
    layers_pattern: list[str] | str | None = _option(None, "names of lists of layers")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = TYPE
        for name in "target_modules", "exclude_modules":
            value = getattr(self, name)
            setattr(self, name, set(value) if isinstance(value, list) else value)
        if self.layers_pattern and self.layers_to_transform is None:
            raise ValueError("layers_pattern needs layers_to_transform")
        for name in "nblocks", "r":
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}, not a positive whole number")


class MonarchLayer(nn.Module, BaseTunerLayer):
    """A linear layer, also one of danaus, with Monarch adapters."""

    adapter_layer_names = ("monarch_left", "monarch_right")
    other_param_names = ("scaling", "monarch_dropout")

    def __init__(self, base_layer: nn.Module, adapter_name: str, config: MonarchConfig):
        super().__init__()
        self.base_layer = base_layer
        self.in_features, self.out_features = sizes_of(self.get_base_layer())
        self.scaling: dict[str, float] = {}
        self.monarch_dropout = nn.ModuleDict()
        self.monarch_left = nn.ParameterDict()
        self.monarch_right = nn.ParameterDict()
        self.merged_adapters: list[str] = []
        self._disable_adapters = False
        self._active_adapter = adapter_name
        self.update_layer(adapter_name, config)

    def update_layer(
        self, adapter_name: str, config: MonarchConfig, **kwargs: Any
    ) -> None:
        q, r = config.nblocks, config.r
        rows, cols = self.out_features, self.in_features
        if rows % q or cols % q:
            raise ValueError(
                f"nblocks ({q}) has to divide {cols} inputs and {rows} outputs"
            )
        p = config.monarch_dropout
        self.monarch_dropout[adapter_name] = nn.Dropout(p) if p > 0 else nn.Identity()
        self.scaling[adapter_name] = config.monarch_alpha / r
        left, right = torch.zeros(1, rows // q, r, q), torch.empty(q, r, cols // q, 1)
        bound = math.sqrt(3 * q / cols)  # R x has the variance of x
        right.uniform_(-bound, bound)
        if not config.init_weights:
            left.uniform_(-1 / math.sqrt(r), 1 / math.sqrt(r))
        self.monarch_left[adapter_name] = nn.Parameter(left)
        self.monarch_right[adapter_name] = nn.Parameter(right)
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def chain(self, adapter: str) -> list[Tensor]:
        """The factors of the matrix that the adapter adds."""
        left = self.scaling[adapter] * self.monarch_left[adapter]
        return [left, self.monarch_right[adapter]]

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters and self.merged:
            self.unmerge()
        y = self.base_layer(x, *args, **kwargs)
        if self.disable_adapters or self.merged:
            return y
        dtype = y.dtype
        for name in self.active_adapters:
            if name in self.monarch_left:
                dropped = self.monarch_dropout[name](x)
                y = y + ks_linear(dropped, self.chain(name))
        return y.to(dtype)

    # ---- merging ----

    def get_delta_weight(self, adapter: str) -> Tensor:
        """The matrix that the adapter adds, in the form of the base layer's weight."""
        chain = self.chain(adapter)
        eye = torch.eye(self.in_features).to(chain[0])
        delta = ks_linear(eye, chain, layout="batch_last")
        transposed = hasattr(self.get_base_layer(), "nx")  # Conv1D of transformers
        return delta.mT if transposed else delta

    @torch.no_grad()
    def merge(
        self, safe_merge: bool = False, adapter_names: list[str] | None = None
    ) -> None:
        """Adds adapters to the base layer's weight; to a layer of danaus as a chain."""
        for name in check_adapters_to_merge(self, adapter_names):
            if name not in self.monarch_left:
                continue
            if isinstance(self.base_layer, LinearLike):
                chain = self.chain(name)
                self.base_layer = sum_of(self.base_layer, chain, None, safe_merge)
            else:
                self._add(self.get_delta_weight(name), safe_merge)
            self.merged_adapters.append(name)

    @torch.no_grad()
    def unmerge(self) -> None:
        """Takes merged adapters away again."""
        if isinstance(self.base_layer, LinearLike):
            return separate(self)
        if not self.merged:
            warnings.warn("Already unmerged. Nothing to do.", stacklevel=2)
        while self.merged_adapters:
            name = self.merged_adapters.pop()
            if name in self.monarch_left:
                self._add(-self.get_delta_weight(name), False)

    def _add(self, delta: Tensor, finite: bool) -> None:
        weight = self.get_base_layer().weight
        merged = weight.data + delta.to(weight.dtype)
        if finite and not torch.isfinite(merged).all():
            raise ValueError("the merged weight has numbers that are not finite")
        weight.data = merged

    def __repr__(self) -> str:
        return f"danaus.monarch.{super().__repr__()}"


class MonarchModel(BaseTuner):
    """A model with Monarch adapters, which `peft.get_peft_model` makes."""

    prefix = "monarch_"
    tuner_layer_cls = MonarchLayer
    target_module_mapping = TARGETS.copy()

    def _create_and_replace(
        self,
        config: MonarchConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        **kwargs: Any,
    ) -> None:
        if isinstance(target, MonarchLayer):
            return target.update_layer(adapter_name, config)
        made = self._create_new_module(config, adapter_name, target)
        if adapter_name not in self.active_adapters:
            made.requires_grad_(False)
        self._replace_module(parent, target_name, made, target)

    def _replace_module(
        self, parent: nn.Module, name: str, made: nn.Module, old: nn.Module
    ) -> None:
        if isinstance(made, LinearLike):  # PEFT would write to its weight
            setattr(parent, name, made)
        else:
            super()._replace_module(parent, name, made, old)

    @staticmethod
    def _create_new_module(
        config: MonarchConfig, adapter_name: str, target: nn.Module, **kwargs: Any
    ) -> MonarchLayer:
        base = target.get_base_layer() if isinstance(target, BaseTunerLayer) else target
        plain = isinstance(base, (nn.Linear, LinearLike)) or hasattr(base, "nx")
        if not plain or not base.weight.is_floating_point():
            raise TypeError(
                f"Target module {target} is not supported: Monarch adapters are for "
                "torch.nn.Linear, Conv1D of transformers and layers of danaus.torch"
            )
        check_layout(base)
        return MonarchLayer(target, adapter_name, config)


register_peft_method(
    name=TYPE.lower(),
    config_cls=MonarchConfig,
    model_cls=MonarchModel,
    prefix=MonarchModel.prefix,
)
