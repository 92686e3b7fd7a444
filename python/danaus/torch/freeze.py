"""Weights that no longer change: layers pack or transform them once."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from torch import dtype, nn

from danaus.torch.block_diagonal import BlockDiagonalLinear
from danaus.torch.composed import InterpolatedLinear
from danaus.torch.conv import LongConv
from danaus.torch.hyena import GatedLongConv, HyenaOperator
from danaus.torch.linear import KSLinear

_CONVOLUTIONS = LongConv, GatedLongConv, HyenaOperator


def freeze(module: nn.Module, batch: int = 0, dtype: dtype | None = None) -> nn.Module:
    """Freezes all layers of danaus in a model, for inference; returns the model.

    Without it each call uses the current weights, and a CPU checks them for changes.
    Frozen layers use their packed weights, or the spectra of their latest length, and
    weights have no gradients. Freeze again after a change that is neither
    `load_state_dict` nor `to`.

    Parameters
    ----------
    batch, dtype : as for `KSLinear.freeze`, for linear layers.
    """
    if isinstance(module, (KSLinear, InterpolatedLinear)):
        module.freeze(batch, dtype)
    elif isinstance(module, BlockDiagonalLinear):
        module.freeze(batch)
    else:
        if isinstance(module, _CONVOLUTIONS):
            module.freeze()
        for child in module.children():
            freeze(child, batch, dtype)
    return module
