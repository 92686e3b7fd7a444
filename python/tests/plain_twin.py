"""Models with replaced layers, computed by torch.nn.Linear and NumPy alone."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from conftest import dense_chain
from danaus.torch import InterpolatedLinear, KSLinear, SumLinear


def numbers(x: torch.Tensor) -> np.ndarray:
    """As f64 on the host."""
    return x.detach().cpu().double().numpy()


def affine(layer: nn.Module) -> tuple[np.ndarray, np.ndarray]:
    """W and the bias of a layer of danaus, by definition of its kind."""
    if isinstance(layer, KSLinear):
        weight = dense_chain([numbers(w) for w in layer.weights])
        bias = np.zeros(len(weight)) if layer.bias is None else numbers(layer.bias)
        return weight, bias
    if isinstance(layer, SumLinear):
        (w, b), (v, c) = affine(layer.first), affine(layer.second)
        return w + v, b + c
    assert isinstance(layer, InterpolatedLinear)
    (w, b), (v, c) = affine(layer.basis), affine(layer.others)
    place = layer.place.cpu().numpy()
    return np.vstack([w, v @ w])[place], np.concatenate([b, v @ b + c])[place]


def plain_twin(dense: nn.Module, model: nn.Module) -> nn.Module:
    """A copy of the dense model with the matrices that replaced layers of `model` have.

    It has a torch.nn.Linear for each.
    """
    twin = copy.deepcopy(dense)
    for name, layer in model.named_modules():
        above = name.rpartition(".")[0]
        if not isinstance(layer, (KSLinear, SumLinear, InterpolatedLinear)):
            continue
        if isinstance(model.get_submodule(above), (SumLinear, InterpolatedLinear)):
            continue
        weight, bias = affine(layer)
        linear = nn.Linear(*weight.shape[::-1], dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight))
            linear.bias.copy_(torch.from_numpy(bias))
        like = layer.factors()[0]
        linear = linear.to(like.device, like.dtype).train(layer.training)
        twin.set_submodule(name, linear)
    return twin


def outputs(model: nn.Module, inputs) -> list[torch.Tensor]:
    """All floating-point tensors that a model returns."""
    found: list[torch.Tensor] = []

    def collect(value) -> None:
        if isinstance(value, torch.Tensor):
            found.extend([value] if value.is_floating_point() else [])
        elif isinstance(value, dict):
            collect(list(value.values()))
        elif isinstance(value, (list, tuple)):
            for item in value:
                collect(item)

    is_named = isinstance(inputs, dict)
    collect(model(**inputs) if is_named else model(*inputs))
    return found


def expect_close(found, wanted, relative: float = 1e-11) -> None:
    """Norms of differences: networks of f64 lose a few digits of 16."""
    assert len(found) == len(wanted) > 0
    for x, y in zip(found, wanted):
        assert x.shape == y.shape and x.dtype == y.dtype
        assert (x - y).norm() <= relative * y.norm()


def exact(name: str, layer: nn.Module) -> str:
    """The rule that keeps a layer's matrix: one dense factor."""
    is_conv1d = hasattr(layer, "nf")
    rows = layer.nf if is_conv1d else layer.out_features
    cols = layer.nx if is_conv1d else layer.in_features
    return f"1,{rows},{cols},1"
