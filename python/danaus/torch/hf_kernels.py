"""Layers of danaus for ``kernelize`` of Hugging Face's package ``kernels``.

docs/python.md, section Hugging Face kernels, is the guide. scripts/hf_kernels.py lays
out the repository that ``kernels`` loads.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pathlib
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import nn

from danaus.torch import _plain_conv, _plain_linear, stateless

__all__ = ["mapping", "register"]

# Versions of kernels that have been tried; others of the same first two numbers have
# the same interface.
_TRIED = "0.15.1", "0.17.2"

# The name for kernelize, the layer that runs, and the modules that have this name.
_LAYERS: dict[str, tuple[str, tuple[type[nn.Module], ...]]] = {
    "DanausKSLinear": ("KSLinear", (_plain_linear.PlainKSLinear,)),
    "DanausMonarchLinear": ("KSLinear", ()),
    "DanausShortConv": ("ShortConv", (_plain_conv.PlainShortConv,)),
    "DanausLongConv": ("LongConv", (_plain_conv.PlainLongConv,)),
    "DanausGatedLongConv": ("GatedLongConv", (_plain_conv.PlainGatedLongConv,)),
    "DanausHyenaOperator": ("HyenaOperator", (_plain_conv.PlainHyenaOperator,)),
}
_DEVICES = "cpu", "cuda"


@dataclass(frozen=True)
class _Here:
    """A layer of this process's danaus, as kernels takes repositories."""

    layer_name: str

    def load(self) -> type[nn.Module]:
        return getattr(stateless, self.layer_name)


def mapping(repository: str | os.PathLike | None = None) -> dict[str, dict[str, Any]]:
    """What `kernels.use_kernel_mapping` and `kernels.register_kernel_mapping` take: for
    each name, the layer that runs on CPUs and CUDA GPUs.

    Parameters
    ----------
    repository : the folder that scripts/hf_kernels.py made; None: this process's
        danaus.

    Raises
    ------
    ImportError : kernels is not installed, or a version that has not been tried.
    """
    kernels = _client()

    def place(layer: str) -> Any:
        if repository is None:
            return _Here(layer)
        path = pathlib.Path(repository)
        return kernels.LocalLayerRepository(path, layer_name=layer)

    return {
        name: dict.fromkeys(_DEVICES, place(layer))
        for name, (layer, _) in _LAYERS.items()
    }


def register(repository: str | os.PathLike | None = None) -> None:
    """Lets `kernels.kernelize` run danaus in the modules that `danaus.torch.to_plain`
    makes, and in all whose class has one of the names: ``DanausKSLinear``,
    ``DanausMonarchLinear``, ``DanausShortConv``, ``DanausLongConv``,
    ``DanausGatedLongConv`` or ``DanausHyenaOperator``
    (`kernels.use_kernel_forward_from_hub`). `danaus.torch.stateless` says which
    attributes such a module has.

    Parameters
    ----------
    repository : as for `mapping`.

    Raises
    ------
    ImportError : kernels is not installed, or a version that has not been tried.
    """
    kernels = _client()
    for name, (_, modules) in _LAYERS.items():
        for module in modules:
            kernels.replace_kernel_forward_from_hub(module, name)
    kernels.register_kernel_mapping(mapping(repository))


def _client() -> ModuleType:
    """The package kernels, or ImportError with a sentence."""
    oldest, newest = _TRIED
    tried = f"{oldest} to {newest} have been tried"
    try:
        import kernels
    except ImportError as error:
        raise ImportError(
            f"danaus.torch.hf_kernels needs kernels: pip install kernels ({tried})"
        ) from error
    if not _release(oldest) <= _release(kernels.__version__) <= _release(newest):
        raise ImportError(
            f"danaus.torch.hf_kernels does not know kernels {kernels.__version__}: "
            f"{tried}"
        )
    return kernels


def _release(version: str) -> list[int]:
    """The first two numbers of a version."""
    return [int(n) for n in re.findall(r"\d+", version)[:2]]
