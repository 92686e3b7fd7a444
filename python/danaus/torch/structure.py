"""The layers of danaus in a model, described as JSON, and built from that.

A description has the sizes of a layer and none of its weights:

    {"kind": "chain", "patterns": [[a, b, c, d], ...], "bias": true}
    {"kind": "sum", "first": LAYER, "second": LAYER}
    {"kind": "interpolated", "basis": CHAIN, "others": CHAIN}

with "activation", "layout", "tf32", "batch_invariant" and "int8" of a chain where they
are not the usual ones.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from danaus.torch.composed import InterpolatedLinear, SumLinear
from danaus.torch.linear import KSLinear

METHOD = "danaus"  # the quant_method of a folder of transformers
VERSION = 1

# By kind: the class, and the layers that one is made of.
_COMPOSED: dict[str, tuple[type[nn.Module], tuple[str, str]]] = {
    "sum": (SumLinear, ("first", "second")),
    "interpolated": (InterpolatedLinear, ("basis", "others")),
}
_USUAL = {
    "activation": "none",
    "layout": "batch_first",
    "tf32": None,
    "batch_invariant": False,
    "int8": False,
}
LAYERS = KSLinear, *(kind for kind, _ in _COMPOSED.values())


def describe(layer: nn.Module) -> dict[str, Any]:
    """The description of a layer."""
    for kind, (made, parts) in _COMPOSED.items():
        if isinstance(layer, made):
            return {"kind": kind} | {n: describe(getattr(layer, n)) for n in parts}
    if not isinstance(layer, KSLinear):
        raise TypeError(f"{type(layer).__name__} is not a linear layer of danaus.torch")
    found: dict[str, Any] = {"kind": "chain"}
    found["patterns"] = [[int(size) for size in p] for p in layer.patterns]
    found["bias"] = layer.bias is not None
    options = {name: getattr(layer, name) for name in _USUAL}
    return found | {n: v for n, v in options.items() if v != _USUAL[n]}


def build(description: Mapping[str, Any], device: Any = "meta") -> nn.Module:
    """A layer of this description, whose numbers are still to come."""
    kind = description.get("kind") if isinstance(description, Mapping) else None
    if kind in _COMPOSED:
        made, parts = _COMPOSED[kind]
        layers = [build(description.get(name, {}), device) for name in parts]
        if kind == "interpolated":
            if any(not isinstance(layer, KSLinear) for layer in layers):
                raise ValueError(f"a layer of the kind {kind!r} is made of chains")
            return made(*layers, range(layers[0].out_features))
        return made(*layers)
    if kind != "chain":
        kinds = ", ".join(["chain", *_COMPOSED])
        raise ValueError(f"the kind of a layer is {kind!r}, which is none of {kinds}")
    unknown = set(description) - {"kind", "patterns", "bias", *_USUAL}
    if unknown:
        raise ValueError(f"a chain has an entry {min(unknown)!r}, which is not known")
    options = {name: description.get(name, usual) for name, usual in _USUAL.items()}
    try:
        patterns = [tuple(map(int, p)) for p in description["patterns"]]
        rows, cols = patterns[0], patterns[-1]
        sizes = cols[0] * cols[2] * cols[3], rows[0] * rows[1] * rows[3]
    except (KeyError, IndexError, TypeError, ValueError):
        found = json.dumps(description.get("patterns"), default=str)
        raise ValueError(
            f"the patterns of a chain are {found:.80}, not lists of four numbers"
        ) from None
    bias = bool(description.get("bias"))
    return KSLinear(*sizes, patterns, bias=bias, device=device, **options)


def layers_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Names and linear layers of danaus; parts of a layer are none themselves."""
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if isinstance(module, LAYERS) and not name.startswith(inside or ("\n",)):
            yield name, module
            if name:
                inside += (name + ".",)


def structure_of(model: nn.Module) -> dict[str, dict[str, Any]]:
    """The descriptions of all linear layers of danaus in a model, by their names.

    It is JSON. `apply_structure` puts such layers into a model of the same class.
    """
    return {name: describe(layer) for name, layer in layers_of(model)}


def sizes_of(layer: nn.Module) -> tuple[int, int] | None:
    """Inputs and outputs of a linear layer, Conv1D of transformers included."""
    if hasattr(layer, "in_features") and hasattr(layer, "out_features"):
        return layer.in_features, layer.out_features
    return (layer.nx, layer.nf) if hasattr(layer, "nx") else None


def built_for(
    model: nn.Module, structure: Mapping[str, Mapping[str, Any]], device: Any = "meta"
) -> dict[str, nn.Module]:
    """The layers of a structure, which the model is checked to have room for."""
    found = {}
    for name, description in structure.items():
        try:
            layer = build(description, device)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise ValueError(f"the layer {name}: {error}") from None
        try:
            old = model.get_submodule(name)
        except AttributeError:
            raise ValueError(
                f"the structure has a layer {name}, which a {type(model).__name__} "
                "has not"
            ) from None
        sizes = sizes_of(old)
        if not name or sizes != (layer.in_features, layer.out_features):
            what = "no linear layer" if sizes is None else f"{sizes[1]} x {sizes[0]}"
            raise ValueError(
                f"the structure has a layer {name} of {layer.out_features} x "
                f"{layer.in_features}; that of a {type(model).__name__} is {what}"
            )
        found[name] = layer.train(old.training)
    return found


def apply_structure(
    model: nn.Module,
    structure: Mapping[str, Mapping[str, Any]],
    device: Any = None,
) -> nn.Module:
    """Puts layers of a structure in place of a model's linear layers; returns it.

    Their weights are uninitialised: load a state dict next. Type and device are those
    of the replaced weight, unless a device is given ("meta"). If a layer does not fit,
    nothing is replaced.
    """
    if not isinstance(structure, Mapping):
        raise TypeError(
            "structure has to be the mapping that structure_of() gives, not a "
            f"{type(structure).__name__}"
        )
    for name, layer in built_for(model, structure).items():
        old = next(model.get_submodule(name).parameters(), None)
        place = torch.device("cpu") if old is None else old.device
        place = place if device is None else torch.device(device)
        dtype = None if old is None else old.dtype
        model.set_submodule(name, emptied(layer, place, dtype))
    return model


def emptied(
    layer: nn.Module, device: torch.device, dtype: torch.dtype | None
) -> nn.Module:
    """A layer of the device meta with memory on a device; its floats of a type."""
    if dtype is not None:
        layer = layer.to(dtype)
    return layer if device.type == "meta" else layer.to_empty(device=device)


# ---- files that plain readers refuse ----


def placeholders(model: nn.Module) -> dict[str, Tensor]:
    """An empty tensor NAME.weight for each layer of danaus.

    Whatever loads a state dict for the dense model finds a weight of a wrong size and
    raises, also where it would take missing tensors for new ones.
    """
    return {
        f"{name}.weight" if name else "weight": _empty(layer)
        for name, layer in layers_of(model)
    }


def _empty(layer: nn.Module) -> Tensor:
    return torch.empty(0, dtype=next(layer.parameters()).dtype)


def to_entry(structure: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in config.json ("quantization_config") or in danaus.json."""
    return {"quant_method": METHOD, "version": VERSION, "layers": dict(structure)}


def from_entry(entry: Any, where: str) -> dict[str, Any]:
    """The structure of an entry; ValueError where it is none of ours."""
    method = entry.get("quant_method") if isinstance(entry, Mapping) else None
    if method != METHOD:
        raise ValueError(f"{where}: the quant_method is {method!r}, not {METHOD!r}")
    version = entry.get("version", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise ValueError(
            f"{where} is of version {version!r}; this danaus reads up to {VERSION}"
        )
    layers = entry.get("layers")
    if not isinstance(layers, Mapping):
        raise ValueError(f'{where}: "layers" has to be an object, a name to a layer')
    return dict(layers)
