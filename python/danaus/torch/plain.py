"""Models without danaus' operators, for programs that know PyTorch's own alone."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from collections.abc import Callable

from torch import nn

from danaus.torch._filter_conv import FilterConv
from danaus.torch._packed import Factors
from danaus.torch._plain_conv import (
    PlainGatedLongConv,
    PlainHyenaOperator,
    PlainLongConv,
    PlainLongConv2d,
    PlainM2Mixer,
    PlainShortConv,
    PlainShortFilter,
    plain_filter,
)
from danaus.torch._plain_linear import (
    PlainBlockDiagonalLinear,
    PlainFusedLinear,
    PlainGatedMLP,
    PlainInterpolatedLinear,
    PlainKSLinear,
    PlainMonarch,
    PlainMonarchMixerLayer,
    PlainSumLinear,
)
from danaus.torch._triangular import TriangularBasis
from danaus.torch.block_diagonal import BlockDiagonalLinear
from danaus.torch.chebyshev_conv import ChebyshevConv
from danaus.torch.composed import InterpolatedLinear, SumLinear
from danaus.torch.conv import LongConv, ShortConv
from danaus.torch.conv2d import LongConv2d
from danaus.torch.fuse import FusedLinear
from danaus.torch.hyena import GatedLongConv, HyenaOperator
from danaus.torch.implicit import HyenaFilter, _Frequencies, _Positions, _Window
from danaus.torch.linear import KSLinear
from danaus.torch.m2_mixer import M2Mixer
from danaus.torch.mlp import GatedMLP
from danaus.torch.monarch import CausalMonarchConv
from danaus.torch.monarch_conv import MonarchConv, _Matrix
from danaus.torch.monarch_linear import MonarchLinear
from danaus.torch.monarch_mixer import MonarchMixerLayer, _Monarch
from danaus.torch.multivariate_conv import MultivariateConv
from danaus.torch.short_filter import ShortFilter
from danaus.torch.stand_in import share_hooks

__all__ = ["to_plain"]


def _kept(module: nn.Module) -> nn.Module:
    """A part that the form of the layer around it reads."""
    return module


def _standard(conv: FilterConv) -> FilterConv:
    """A convolution whose functions run PyTorch's own operators from now on."""
    conv.standard = True
    return conv


_FORMS: dict[type, Callable[[nn.Module], nn.Module]] = {
    KSLinear: PlainKSLinear,
    MonarchLinear: PlainKSLinear,
    BlockDiagonalLinear: PlainBlockDiagonalLinear,
    SumLinear: PlainSumLinear,
    InterpolatedLinear: PlainInterpolatedLinear,
    FusedLinear: PlainFusedLinear,
    GatedMLP: PlainGatedMLP,
    MonarchMixerLayer: PlainMonarchMixerLayer,
    _Monarch: PlainMonarch,
    ShortConv: PlainShortConv,
    ShortFilter: PlainShortFilter,
    LongConv: PlainLongConv,
    LongConv2d: PlainLongConv2d,
    HyenaFilter: plain_filter,
    GatedLongConv: PlainGatedLongConv,
    HyenaOperator: PlainHyenaOperator,
    M2Mixer: PlainM2Mixer,
    CausalMonarchConv: _standard,
    ChebyshevConv: _standard,
    MonarchConv: _standard,
    MultivariateConv: _standard,
}
_FORMS |= dict.fromkeys(
    (Factors, TriangularBasis, _Matrix, _Frequencies, _Positions, _Window), _kept
)


def to_plain(model: nn.Module) -> nn.Module:
    """A copy of a model that runs PyTorch's own operators alone: reshapes and matrix
    products for linear layers, torch.fft and conv1d for convolutions.

    Results are the same up to rounding. Such models can be scripted (torch.jit.script),
    recorded by torch.fx and exported for programs that have no danaus. They are slower.
    torch.onnx.export takes the model itself, too.

    The copy has parameters and buffers of the same names, numbers, types, devices and
    requires_grad. Modules that are shared stay shared, and modes and hooks on calls are
    kept. Plain convolutions take no packed sequences. Layers that are frozen are copied
    with their current weights.

    Parameters
    ----------
    model : any module; a layer of danaus, or one with such layers inside.

    Raises
    ------
    NotImplementedError
        The model has a module of danaus that no plain one stands for: a subclass, one
        with a parametrization, a group or sparse spectra, and language models of
        `danaus.torch.models`. The error names it.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, not a torch.nn.Module")
    return _replaced(copy.deepcopy(model), "", {})


def _replaced(module: nn.Module, path: str, made: dict[int, nn.Module]) -> nn.Module:
    """A module whose parts have been replaced, or what replaces it; made: the same by
    identities of modules that came before."""
    if id(module) in made:
        return made[id(module)]
    for name, child in module._modules.items():
        if child is not None:
            below = f"{path}.{name}" if path else name
            module._modules[name] = _replaced(child, below, made)
    reason, form = _reason_against(module), _FORMS.get(type(module), _kept)
    try:
        new = form(module) if reason is None else None
    except NotImplementedError as error:
        reason = str(error)
    if reason is not None:
        where, kind = path or "the model", type(module).__name__
        raise NotImplementedError(
            f"danaus: to_plain cannot replace {where}, a {kind}: {reason}"
        )
    if new is not module:
        new.training = module.training
        _put_in_order(new, module)
        share_hooks(module, new)
    made[id(module)] = new
    return new


def _put_in_order(new: nn.Module, old: nn.Module) -> None:
    """Gives the new module's tensors and parts the old one's order, which optimizers
    go by."""
    for kind in "_parameters", "_buffers", "_modules":
        held = getattr(new, kind)
        for name in getattr(old, kind):
            if name in held:
                held[name] = held.pop(name)


def _reason_against(module: nn.Module) -> str | None:
    """Why a module has no plain form; None if it has one, or needs none."""
    kind = type(module)
    if kind not in _FORMS:
        if isinstance(module, tuple(_FORMS)):
            return "a subclass, or one with a parametrization, may compute otherwise"
        where = kind.__module__
        if where.startswith("danaus.torch.models."):
            return getattr(module, "no_plain_form", None)
        is_plain = where.startswith("danaus.torch._plain")
        if where.startswith("danaus.") and not is_plain:
            return "there is no plain form of it"
        return None
    if getattr(module, "group", None) is not None:
        return "its sequences are split over a process group"
    if "forward" in vars(module):
        return "its forward() has been replaced"
    return None
