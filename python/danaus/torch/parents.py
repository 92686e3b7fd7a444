"""Which linear layers can stand in a model as chains, and which matrix a layer has."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from danaus.torch._precision import TYPES

# ---- layers that stay ----

Owners = dict[int, list[str]]


def owners_of(model: nn.Module) -> Owners:
    """By id of a module or parameter, the modules that contain it, once for each place.

    A module that the model can reach by several names counts once.
    """
    found: Owners = {}
    for name, module in model.named_modules():
        for part in (*module._modules.values(), *module._parameters.values()):
            found.setdefault(id(part), []).append(name)
    return found


def reason_to_keep(
    model: nn.Module, name: str, owners: Owners | None = None
) -> str | None:
    """Why a linear layer of a model has to stay as it is; None if it can be replaced.

    Most parents call their layers, and some also read a layer's matrix, dtype or
    device, which every layer of danaus has. A layer stays if something else has a part
    of it, if its parent is not right without its matrix, if it has hooks that a new
    layer cannot have, or if it is no torch.nn.Linear of real numbers and nothing else.

    Parameters
    ----------
    owners : those of the model, where they are known.
    """
    layer = model.get_submodule(name)
    return (
        reason_of_its_own(layer)
        or _reason_of_sharing(layer, owners or owners_of(model))
        or _reason_of_parents(model, name)
        or _reason_of_hooks(layer)
        or _reason_of_fits(layer)
    )


def reason_of_its_own(layer: nn.Module) -> str | None:
    """The same for a layer wherever it stands."""
    kind = type(layer)
    if kind.forward is not _dense_kind(kind).forward:
        return f"its class, {kind.__name__}, has a forward() of its own"
    if "forward" in layer.__dict__ and not hasattr(layer, "_hf_hook"):  # accelerate's
        return "its forward() has been replaced"
    for name, parameter in layer.named_parameters():
        why = _reason_of_parameter(parameter)
        if why is not None:
            return f"its {role(name)} {why}"
    if not (_is_kept(layer, "weight") and _is_kept(layer, "bias")):
        return "something else sets its weight or bias"
    more = _parts(layer)
    if more:
        return f"it has more than a weight and a bias: {', '.join(more)}"
    return _reason_of_numbers(effective(layer))


def _dense_kind(kind: type) -> type:
    """The class of dense layers that a class inherits from."""
    return next((k for k in kind.__mro__ if k is nn.Linear or _is_conv1d(k)), nn.Linear)


def _is_conv1d(kind: type) -> bool:
    """True for Conv1D of transformers, which need not be there, and for its copies."""
    return kind.__name__ == "Conv1D"


def is_linear(module: nn.Module) -> bool:
    """True for a torch.nn.Linear, and for a Conv1D of transformers, which is one."""
    is_conv1d = hasattr(module, "nf") and any(map(_is_conv1d, type(module).__mro__))
    return isinstance(module, nn.Linear) or is_conv1d


def _reason_of_parameter(parameter: nn.Parameter) -> str | None:
    if isinstance(parameter, nn.parameter.UninitializedTensorMixin):
        return "has no shape yet: run the model once"
    if type(parameter) is not nn.Parameter:
        return f"is a {type(parameter).__name__}: quantised, or in parts"
    if parameter.is_meta:
        return "has no numbers: it is on the device meta, or offloaded"
    return None


def _reason_of_numbers(weight: Tensor | None) -> str | None:
    if not isinstance(weight, Tensor):
        return "it has no weight of its own"
    if weight.dtype not in TYPES:
        return f"its weight has numbers of {weight.dtype}"
    if not weight.numel():
        return f"its weight is {weight.shape[0]} x {weight.shape[1]}"
    return None


def _is_kept(layer: nn.Module, name: str) -> bool:
    """True if the layer keeps a parameter, or what makes it, itself."""
    kept = layer._parameters.keys() | layer._buffers.keys()
    return name in kept or is_parametrized(layer, name) or bool(_makers(layer, name))


def _parts(layer: nn.Module) -> list[str]:
    """Names of children, parameters and buffers that make neither weight nor bias."""
    known = "weight", "bias", "parametrizations"
    found = *layer._modules, *layer._parameters, *layer._buffers
    return [name for name in found if not name.startswith(known)]


def role(name: str) -> str:
    """"bias" for the bias of a layer, and for what makes it; else "weight"."""
    name = name.removeprefix("parametrizations.")
    return "bias" if name.startswith("bias") else "weight"


def _reason_of_sharing(layer: nn.Module, owners: Owners) -> str | None:
    if len(owners.get(id(layer), ())) > 1:
        return "its weight is shared: the model has the layer in several places"
    for name, part in (*layer.named_modules(), *layer.named_parameters()):
        if len(owners.get(id(part), ())) > 1:
            return f"its {role(name)} is shared with another module"
    return None


def _reason_of_parents(model: nn.Module, name: str) -> str | None:
    path = name.split(".")
    *above, parent = (model.get_submodule(".".join(path[:n])) for n in range(len(path)))
    if isinstance(parent, nn.MultiheadAttention):
        return "its parent, MultiheadAttention, computes with its matrix"
    for module in (*above, parent):
        if _is_adapted(module):
            return f"its adapter, {type(module).__name__}, is merged into its matrix"
    return None


def _is_adapted(module: nn.Module) -> bool:
    """True for the layers that PEFT puts in place of others. It need not be there."""
    return any(
        kind.__name__ == "BaseTunerLayer" and kind.__module__.startswith("peft.")
        for kind in type(module).__mro__
    )


_STATE_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def _reason_of_hooks(layer: nn.Module) -> str | None:
    """Hooks on calls are kept; others are for parameters that a new layer has not."""
    for name, parameter in layer.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            return f"its {role(name)} has hooks on its gradient"
    for kind in _STATE_HOOKS:
        for hook in getattr(layer, kind).values():
            hook = getattr(hook, "hook", hook)  # which nn.Module wraps
            # Those of weight_norm and spectral_norm go with the weight.
            if not getattr(hook, "__module__", "").startswith("torch.nn.utils"):
                return "it has hooks on its state dict"
    return None


def _reason_of_fits(layer: nn.Module) -> str | None:
    if not effective(layer).is_complex():
        return None
    return "its numbers are complex, and only KSLinear.from_linear fits such"


# ---- the matrix of a layer ----


def effective(layer: nn.Module, name: str = "weight") -> Tensor | None:
    """The parameter that the layer's next call would use, without gradients.

    Parametrizations, weight_norm, spectral_norm and pruning compute it from others,
    whose current values are used. The layer does not change.
    """
    with torch.no_grad(), evaluating(layer):
        made = getattr(layer, name)
        for hook in _makers(layer, name):
            made = _make(hook, layer)
    return None if made is None else made.detach()


# Hooks that compute a parameter before each call.
MAKERS = WeightNorm, SpectralNorm, prune.BasePruningMethod


def _makers(layer: nn.Module, name: str) -> list[Callable]:
    """The hooks of a layer that compute this parameter."""
    hooks = [h for h in layer._forward_pre_hooks.values() if isinstance(h, MAKERS)]
    names = [h._tensor_name if hasattr(h, "_tensor_name") else h.name for h in hooks]
    return [hook for hook, made in zip(hooks, names) if made == name]


def _make(hook: Any, layer: nn.Module) -> Tensor:
    if isinstance(hook, prune.BasePruningMethod):
        return hook.apply_mask(layer)
    more = (False,) if isinstance(hook, SpectralNorm) else ()  # no power iteration
    return hook.compute_weight(layer, *more)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode: no dropout, and spectral norms change nothing.

    Each module's own mode comes back. No module's train() is called: those of some
    adapters merge weights.
    """
    modes = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in modes:
            part.training = False
        yield
    finally:
        for part, mode in modes:
            part.training = mode
