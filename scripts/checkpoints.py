"""Tensors of PyTorch checkpoints, and nothing else of them: no code in them is run."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
import sys
import types
from pathlib import Path
from typing import Any

import torch

# What tensors are made by; storages are torch.load's own affair.
MAKERS = {
    ("collections", "OrderedDict"),
    ("torch", "Size"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
}


class Nothing:
    """Stands for an object of any other class: takes what is done to it."""

    def __init__(self, *arguments: Any, **keywords: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    def extend(self, values: Any) -> None:
        pass


class Tensors(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in MAKERS:
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        return Nothing


def _load(file: Any, **keywords: Any) -> Any:
    return Tensors(file, **keywords).load()


# torch.load's pickle_module.
READER = types.ModuleType("tensors")
READER.Unpickler, READER.load = Tensors, _load  # type: ignore[attr-defined]


def read(path: Path, keys: list[tuple[str, ...]], skip: bool = False) -> dict:
    """The tensors of a checkpoint, by the names that they have in it.

    keys : where they may lie in it, one within the other: ("state", "model").
    skip : objects of other classes, such as a trainer's options, are left out; else a
        checkpoint that has some is refused.
    """
    try:
        if skip:
            found = torch.load(
                path, map_location="cpu", weights_only=False, pickle_module=READER
            )
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no pickle may raise any
        reason = (str(error) or type(error).__name__).splitlines()[0]
        sys.exit(f"{path} holds more than weights, or none: {reason}")
    for names in keys:
        inner = found
        for name in names:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            found = inner
            break
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, torch.Tensor)}
