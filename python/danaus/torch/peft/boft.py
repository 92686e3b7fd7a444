"""BOFT for PEFT, with PEFT's parameters, options and files.

Sources as in rotations.py. PEFT makes a matrix of n x n numbers for each factor and
multiplies them. Here factors of b x b blocks are applied to x.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import peft
import torch
from peft.tuners.boft.layer import BOFTLayer, MultiplicativeDropoutLayer
from peft.tuners.tuners_utils import BaseTunerLayer, check_adapters_to_merge
from peft.utils import (
    quantization_extra_repr,
    register_peft_method,
    resolve_quantization_backend,
)
from torch import Tensor, nn

from danaus.torch._ops import in_transform
from danaus.torch.peft._types import new_type
from danaus.torch.peft.rotations import Group, groups_of, rotate

TYPE = new_type("DANAUS_BOFT")


@dataclass
class BOFTConfig(peft.BOFTConfig):
    """`peft.BOFTConfig` for adapters that danaus computes.

    Fields, files and errors are PEFT's. Files name the type BOFT, so that PEFT reads
    them alone, too. `BOFTConfig.from_pretrained(folder)` reads those that PEFT wrote;
    give it to `PeftModel.from_pretrained(model, folder, config=...)`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = TYPE

    def to_dict(self) -> dict:
        return super().to_dict() | {"peft_type": peft.PeftType.BOFT}

    @classmethod
    def from_peft_type(cls, **kwargs: Any) -> BOFTConfig:
        if "peft_type" in kwargs:
            found = kwargs["peft_type"]
            if found not in (TYPE, peft.PeftType.BOFT):
                raise ValueError(f"the adapter's type is {found}, not BOFT")
            kwargs["peft_type"] = TYPE
        return super().from_peft_type(**kwargs)


def block_of(features: int, what: str, config: peft.BOFTConfig) -> int:
    """The block size for so many features; ValueError for what does not divide them."""
    size, count = config.boft_block_size, config.boft_block_num
    exchanges = config.boft_n_butterfly_factor - 1
    if exchanges < 0:
        raise ValueError(
            f"boft_n_butterfly_factor is {exchanges + 1}, not a positive integer number"
        )
    name, given = ("boft_block_size", size) if size else ("boft_block_num", count)
    if given < 1 or features % given:
        raise ValueError(f"{what} ({features}) must be divisible by {name} ({given})!")
    size = size or features // count
    if features % (size << exchanges):
        raise ValueError(
            f"Invalid combination of {what} ({features}), boft_n_butterfly_factor "
            f"({exchanges + 1}) and {name} ({given})!"
        )
    if exchanges and size % 2:
        raise ValueError(f"boft_block_size ({size}) must be an even number!")
    return size


class _Scaled(torch.autograd.Function):
    """(y - bias) s + bias, which is y + (y - bias) (s - 1), in y's type, for s of n
    numbers.

    s - 1 is rounded and not s, which is near 1.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor | None, s: Tensor) -> Tensor:
        more = (s - 1).to(y.dtype).flatten()
        ctx.save_for_backward(y, bias, s, more)
        if bias is None:
            return torch.addcmul(y, y, more)
        return torch.lerp(y, bias.to(y.dtype), -more)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        y, bias, s, more = ctx.saved_tensors
        dx = db = ds = None
        if ctx.needs_input_grad[0]:
            if torch.is_grad_enabled():  # gradients of dx go through s
                more = (s - 1).to(dy.dtype).flatten()
            dx = torch.addcmul(dy, dy, more)
        if bias is not None:
            total = dy.sum_to_size(bias.shape)
            db = total * (1 - s.flatten())
        if ctx.needs_input_grad[2]:
            each = dy * y
            each = each if each.dim() == 2 else each.flatten(0, -2)
            ds = each.sum(0, dtype=s.dtype)
            ds = (ds if bias is None else ds - total * bias).view(s.shape)
        return dx, db, ds


def _scaled(y: Tensor, bias: Tensor | None, s: Tensor) -> Tensor:
    """The same, also within torch.func."""
    if not in_transform():
        return _Scaled.apply(y, bias, s)
    more = (s - 1).to(y.dtype).flatten()
    return torch.addcmul(y, y if bias is None else y - bias.to(y.dtype), more)


class _Layer(nn.Module, BOFTLayer):
    """A layer with rotations of its inputs and factors for its outputs."""

    what = "in_features"

    def __init__(
        self, base_layer: nn.Module, adapter_name: str, config: Any, **kwargs: Any
    ):
        super().__init__()
        BOFTLayer.__init__(self, base_layer, **kwargs)
        self.fan_in_fan_out = config.fan_in_fan_out
        self._active_adapter = adapter_name
        self.update_layer(adapter_name, config=config)

    def sizes(self) -> tuple[int, tuple[int, int]]:
        """Features that are rotated, and the shape of boft_s."""
        return self.in_features, (self.out_features, 1)

    def update_layer(self, adapter_name: str, config: Any, **kwargs: Any) -> None:
        features, shape = self.sizes()
        size = block_of(features, self.what, config)
        count, factors = features // size, config.boft_n_butterfly_factor
        p = config.boft_dropout
        self.boft_dropout[adapter_name] = (
            MultiplicativeDropoutLayer(p) if p > 0 else nn.Identity()
        )
        zeros = torch.zeros(factors, count, size, size)
        self.boft_R[adapter_name] = nn.Parameter(zeros)
        self.boft_s[adapter_name] = nn.Parameter(torch.ones(shape))
        self.reset_boft_parameters(adapter_name, config.init_weights)
        self.boft_block_size[adapter_name] = size
        self.boft_block_num[adapter_name] = count
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def rotation(self, adapter: str, dropout: bool = True) -> list[Group]:
        """The adapter's rotation, of the current parameters."""
        drop = self.boft_dropout[adapter] if dropout else None
        return groups_of(self.boft_R[adapter], drop)

    def active(self) -> list[str]:
        """Adapters in use that this layer has."""
        return [name for name in self.active_adapters if name in self.boft_R]

    def scale(self, names: list[str]) -> Tensor:
        """The factors of outputs, in the shape of boft_s."""
        found = self.boft_s[names[0]]
        for name in names[1:]:
            found = found * self.boft_s[name]
        return found

    def get_delta_weight(self, adapter: str) -> tuple[Tensor, Tensor]:
        """Q and the factors of outputs as a column, as PEFT's layers return them."""
        groups = self.rotation(adapter, dropout=False)
        eye = torch.eye(self.sizes()[0]).to(groups[0].blocks)
        return rotate(eye, groups), self.boft_s[adapter].reshape(-1, 1)

    @torch.no_grad()
    def merge(
        self, safe_merge: bool = False, adapter_names: list[str] | None = None
    ) -> None:
        """Makes adapters part of the base layer's weight; see PEFT."""
        for name in check_adapters_to_merge(self, adapter_names):
            if name not in self.boft_R:
                continue
            merged = self._turned(name, back=True)
            if safe_merge and not torch.isfinite(merged).all():
                raise ValueError(
                    f"NaNs detected in the merged weights. The adapter {name} seems to "
                    "be broken"
                )
            self.set_base_weight(merged)
            self.merged_adapters.append(name)

    @torch.no_grad()
    def unmerge(self) -> None:
        """Takes merged adapters out of the base layer's weight."""
        if not self.merged:
            warnings.warn("Already unmerged. Nothing to do.", stacklevel=2)
        while self.merged_adapters:
            name = self.merged_adapters.pop()
            if name in self.boft_R:
                self.set_base_weight(self._turned(name, back=False))

    def _turned(self, adapter: str, back: bool) -> Tensor:
        """The base weight W as s W Q^T, or as W Q / s."""
        weight, groups = self.get_base_weight(), self.rotation(adapter, dropout=False)
        rows = weight.flatten(1).to(groups[0].blocks.dtype)
        scale = self.boft_s[adapter].reshape(-1, 1)
        turned = rotate(rows, groups, back) * (scale if back else 1 / scale)
        return turned.view(weight.shape).to(weight.dtype)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters and self.merged:
            self.unmerge()
        names = [] if self.disable_adapters or self.merged else self.active()
        if not names:
            return self.base_layer(x, *args, **kwargs).to(x.dtype)
        return self.adapted(x, names, *args, **kwargs).to(x.dtype)

    def adapted(self, x: Tensor, names: list[str], *args: Any, **kwargs: Any) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return quantization_extra_repr(self)

    def __repr__(self) -> str:
        return f"danaus.boft.{super().__repr__()}"


class Linear(_Layer):
    """A torch.nn.Linear whose inputs are rotated."""

    def adapted(self, x: Tensor, names: list[str], *args: Any, **kwargs: Any) -> Tensor:
        for name in reversed(names):
            x = rotate(x, self.rotation(name))
        y = self.base_layer(x, *args, **kwargs)
        return _scaled(y, self.base_layer.bias, self.scale(names))


class Conv2d(_Layer):
    """A torch.nn.Conv2d whose filters [in_channels kernel sizes] are rotated."""

    what = "convolutional kernel dimension"

    def sizes(self) -> tuple[int, tuple[int, int]]:
        base = self.get_base_layer()
        if base.groups > 1:
            raise NotImplementedError(
                f"BOFT does not support {type(base).__name__} layers with groups > 1 "
                f"(got groups={base.groups})."
            )
        height, width = base.kernel_size
        return self.in_features * height * width, (1, self.out_features)

    def adapted(self, x: Tensor, names: list[str], *args: Any, **kwargs: Any) -> Tensor:
        weight, base = self.get_base_weight(), self.get_base_layer()
        rows = weight.flatten(1)
        for name in names:
            rows = rotate(rows, self.rotation(name), back=True)
        rows = (rows * self.scale(names).view(-1, 1)).view(weight.shape)
        rows = rows.to(weight.dtype)
        bias = self._cast_input_dtype(base.bias, rows.dtype)
        return base._conv_forward(self._cast_input_dtype(x, rows.dtype), rows, bias)


class BOFTModel(peft.BOFTModel):
    """`peft.BOFTModel` with layers that danaus computes."""

    prefix = ".boft_"  # that of PEFT's own begins with no dot; each has to be unique

    @staticmethod
    def _create_new_module(
        boft_config: Any, adapter_name: str, target: nn.Module, **kwargs: Any
    ) -> _Layer:
        base = target
        if isinstance(target, BaseTunerLayer):
            base = target.get_base_layer()
        quantized = getattr(resolve_quantization_backend(base), "layer_type", None)
        kind: type[_Layer]
        if isinstance(base, nn.Linear) or quantized == "linear":
            kind = Linear
        elif isinstance(base, nn.Conv2d) or quantized == "conv2d":
            kind = Conv2d
        else:
            raise TypeError(
                f"Target module {target} is not supported. Currently, only "
                "`torch.nn.Linear` and `torch.nn.Conv2d` (optionally quantized) are "
                "supported."
            )
        if kind is Linear and boft_config.fan_in_fan_out:
            warnings.warn(
                "fan_in_fan_out is set to True but the target module is "
                "`torch.nn.Linear`. Setting fan_in_fan_out to False.",
                stacklevel=2,
            )
            boft_config.fan_in_fan_out = False
        return kind(target, adapter_name, config=boft_config, **kwargs)


def replace_boft() -> None:
    """From now on danaus computes all adapters of `peft.BOFTConfig`, too.

    So does PEFT when it loads a BOFT adapter. Models that exist stay as they are.
    """
    peft.PEFT_TYPE_TO_TUNER_MAPPING[peft.PeftType.BOFT] = BOFTModel


register_peft_method(
    name=TYPE.lower(),
    config_cls=BOFTConfig,
    model_cls=BOFTModel,
    prefix=BOFTModel.prefix,
)
