"""Which linear layers of a model are replaced, and why others stay."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from typing import Any, Union

from torch import nn

from danaus.torch.parents import is_linear, owners_of, reason_to_keep
from danaus.torch.structure import LAYERS

Layers = Union[str, Iterable[str], Callable[[str, nn.Module], bool], None]
Exclude = Union[str, type, Iterable[Union[str, type]], Callable[[str, nn.Module], bool]]

# Parts of names that output heads have, in models of many libraries.
HEADS = frozenset(
    "lm_head classifier score qa_outputs embed_out head heads predictions generator "
    "output_projection mc_head".split()
)


def fits(name: str, pattern: str) -> bool:
    """True if the pattern matches the name, or a module's that contains it."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(
        name, f"{pattern}.*"
    )


def _as_patterns(given: Any, option: str, kinds: Any) -> list[Any]:
    found = [given] if isinstance(given, kinds) else given
    try:
        found = list(found)
    except TypeError:
        found = [given]
    for pattern in found:
        if not isinstance(pattern, kinds):
            raise TypeError(
                f"{option} has {pattern!r:.60}, which is not a name or pattern"
                + (" or class" if isinstance(kinds, tuple) else "")
            )
    return found


def _chosen(
    linear: dict[str, nn.Module], layers: Layers
) -> tuple[set[str], frozenset[str]]:
    """Names that `layers` means, and those that it says in full."""
    if layers is None:
        return set(linear), frozenset()
    if callable(layers):
        return {n for n, m in linear.items() if layers(n, m)}, frozenset()
    patterns = _as_patterns(layers, "layers", str)
    for pattern in patterns:
        if linear and not any(fits(name, pattern) for name in linear):
            raise ValueError(
                f"layers has {pattern!r}, which fits none of the model's "
                f"{len(linear)} linear layers, such as {next(iter(linear))!r}"
            )
    found = {n for n in linear if any(fits(n, pattern) for pattern in patterns)}
    return found, frozenset(patterns)


def _excluded(
    model: nn.Module, linear: dict[str, nn.Module], exclude: Exclude
) -> set[str]:
    """Names of layers that `exclude` means: by name, pattern, or class around them."""
    if callable(exclude) and not isinstance(exclude, type):
        return {n for n, m in linear.items() if exclude(n, m)}
    found: set[str] = set()
    for pattern in _as_patterns(exclude, "exclude", (str, type)):
        if isinstance(pattern, str):
            hit = {name for name in linear if fits(name, pattern)}
            known = hit or any(fits(n, pattern) for n, _ in model.named_modules())
        else:
            around = [n for n, m in model.named_modules() if isinstance(m, pattern)]
            hit = {n for n in linear if any(_is_inside(n, place) for place in around)}
            known = True
        if not known:
            raise ValueError(f"exclude has {pattern!r}, which fits no module")
        found |= hit
    return found


def _is_inside(name: str, place: str) -> bool:
    return not place or name == place or name.startswith(f"{place}.")


def _heads(model: nn.Module, linear: dict[str, nn.Module]) -> set[str]:
    """Layers whose outputs are the model's, as far as names and transformers tell."""
    last: set[int] = set()
    for module in model.modules():
        get = getattr(module, "get_output_embeddings", None)
        try:
            made = get() if callable(get) else None
        except (AttributeError, NotImplementedError, TypeError):
            made = None
        last.update(map(id, made.modules()) if isinstance(made, nn.Module) else ())

    def is_named(name: str) -> bool:
        for part in name.split("."):
            if part.isdigit():  # of a block
                return False
            if part in HEADS:
                return True
        return False

    return {n for n, m in linear.items() if id(m) in last or is_named(n)}


def _strangers(model: nn.Module) -> dict[str, str]:
    """Layers with Linear in their class's name that are none, as quantised ones are."""
    found = {}
    for name, module in model.named_modules():
        kind = type(module).__name__
        inside = any(is_linear(child) for child in module.modules())
        if "Linear" in kind and not inside and not isinstance(module, LAYERS):
            if not any(isinstance(child, LAYERS) for child in module.modules()):
                found[name] = f"its class is {kind}, not torch.nn.Linear"
    return found


def select(
    model: nn.Module,
    layers: Layers = None,
    exclude: Exclude = (),
    heads: bool = False,
) -> tuple[list[str], dict[str, str]]:
    """Names of the linear layers to replace, and of layers that stay, with reasons.

    A layer that shares its weight with another module, as a head may with the
    embedding, is left: replacing it would save nothing.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, not a torch.nn.Module")
    if is_linear(model):
        raise ValueError(
            "the model is itself a linear layer, which cannot be replaced in place: "
            "use KSLinear.from_linear(), or put it into a torch.nn.Sequential"
        )
    linear = {n: m for n, m in model.named_modules() if is_linear(m)}
    left = _strangers(model)
    if not linear and not left:
        ours = any(isinstance(m, LAYERS) for m in model.modules())
        raise ValueError(
            f"the model, a {type(model).__name__}, has no torch.nn.Linear"
            + (": its linear layers are those of danaus already" if ours else "")
        )
    chosen, named = _chosen(linear, layers)
    excluded = _excluded(model, linear, exclude)
    last = set() if heads else _heads(model, linear) - named
    owners = owners_of(model)
    found = []
    for name in linear:
        if name not in chosen:
            continue
        reason = "it is excluded" if name in excluded else None
        if reason is None:
            reason = reason_to_keep(model, name, owners)
        if reason is None and name in last:
            reason = "it is an output head (heads=True replaces such)"
        if reason is None:
            found.append(name)
        else:
            left[name] = reason
    if not found and not left:
        raise ValueError(f"layers means none of the model's {len(linear)} layers")
    return found, left
