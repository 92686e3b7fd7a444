"""Packing the weights of all layers of a network at once, after a step of training."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref

import torch
from torch import nn

from danaus.torch._packed import Trained, pack_trained
from danaus.torch.linear import KSLinear


class Packing:
    """What `pack_after` returns."""

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module):
        found = (m for m in model.modules() if isinstance(m, KSLinear))
        self._layers = [weakref.ref(layer) for layer in found]
        for layer in self.layers():
            layer._packed.trained = layer._packed.trained or Trained()
        self._handle = optimizer.register_step_post_hook(lambda *_: self.pack())

    def layers(self) -> list[KSLinear]:
        """The layers that are packed."""
        found = (reference() for reference in self._layers)
        return [layer for layer in found if layer is not None]

    def pack(self) -> None:
        """Packs now: for weights that something else than the optimizer has changed by
        `.data`, or by another way that PyTorch does not count."""
        layers = [x for x in self.layers() if x._packed.trained is not None]
        pack_trained([(x._packed.trained, x.factors(), x.bias) for x in layers])

    def remove(self) -> None:
        """Layers pack for themselves again."""
        self._handle.remove()
        for layer in self.layers():
            layer._packed.trained = None
        self._layers = []


def pack_after(optimizer: torch.optim.Optimizer, model: nn.Module) -> Packing:
    """Packs the weights of all layers of a model after each step of the optimizer.

    Layers then take what was packed in their passes with gradients, instead of packing
    at each of them. All of it is one call, of a launch for about four layers on a GPU.
    Steps that are captured in CUDA graphs contain it. A layer's first pass with a type
    of inputs, or about so many rows, packs for itself, and so does one whose weights
    were changed by something else than the optimizer, such as `load_state_dict`.

    Parameters
    ----------
    optimizer : changes the weights of the model.
    model : its layers `KSLinear`, as they are now, are packed.

    Returns
    -------
    Its `remove()` undoes this. `pack()` packs after changes by `.data`, which PyTorch
    does not count, if not the optimizer made them.
    """
    return Packing(optimizer, model)
