"""Which linear layers can stand in a model as chains, and which matrix a layer has."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

# ---- layers that stay ----


def reason_to_keep(model: nn.Module, name: str) -> str | None:
    """Why a linear layer of a model has to stay as it is; None if it can be replaced.

    Most parents call their layers, and some also read a layer's dtype or device, which
    every layer of danaus has. A layer stays if its parent computes with the matrix
    itself or writes to it, or if it is more than a torch.nn.Linear.
    """
    why = reason_of_its_own(model.get_submodule(name))
    if why is not None:
        return why
    path = name.split(".")
    *above, parent = (model.get_submodule(".".join(path[:n])) for n in range(len(path)))
    if isinstance(parent, nn.MultiheadAttention):
        return "its parent, MultiheadAttention, computes with its matrix"
    for module in (*above, parent):
        if _is_adapted(module):
            return f"its adapter, {type(module).__name__}, is merged into its matrix"
    return None


def reason_of_its_own(layer: nn.Module) -> str | None:
    """The same for a layer wherever it stands."""
    if isinstance(layer, nn.Linear) and type(layer).forward is not nn.Linear.forward:
        return f"its class, {type(layer).__name__}, has a forward() of its own"
    for parameter in layer.parameters():
        if parameter.is_meta:
            return "it has no numbers: it is on the device meta, or offloaded"
        if not (parameter.is_floating_point() or parameter.is_complex()):
            return f"its numbers are {parameter.dtype}"
    return None


def _is_adapted(module: nn.Module) -> bool:
    """True for the layers that PEFT puts in place of others. It need not be there."""
    return any(
        kind.__name__ == "BaseTunerLayer" and kind.__module__.startswith("peft.")
        for kind in type(module).__mro__
    )


# ---- the matrix of a layer ----


def effective(layer: nn.Module, name: str = "weight") -> Tensor | None:
    """The parameter that the layer's next call would use, without gradients.

    Parametrizations, weight_norm, spectral_norm and pruning compute it from others,
    whose current values are used. The layer does not change.
    """
    with torch.no_grad(), _evaluating(layer):
        made = getattr(layer, name)
        for hook in layer._forward_pre_hooks.values():
            for kind, (attribute, make) in _MAKERS.items():
                if isinstance(hook, kind) and getattr(hook, attribute) == name:
                    made = make(hook, layer)
    return None if made is None else made.detach()


_MAKERS: dict[type, tuple[str, Callable]] = {
    WeightNorm: ("name", lambda hook, layer: hook.compute_weight(layer)),
    SpectralNorm: ("name", lambda hook, layer: hook.compute_weight(layer, False)),
    prune.BasePruningMethod: (
        "_tensor_name",
        lambda hook, layer: hook.apply_mask(layer),
    ),
}


@contextmanager
def _evaluating(layer: nn.Module) -> Iterator[None]:
    """The layer in evaluation mode: spectral norms then change nothing."""
    modes = [(module, module.training) for module in layer.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode
