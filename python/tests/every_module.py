"""Every module of danaus.torch, small, by what autocast does to it."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch

from danaus.torch import (
    BlockDiagonalLinear,
    CausalMonarchConv,
    ChebyshevConv,
    FusedLinear,
    GatedLongConv,
    GatedMLP,
    HyenaFilter,
    HyenaOperator,
    InterpolatedLinear,
    KSLinear,
    LongConv,
    LongConv2d,
    M2Mixer,
    MonarchConv,
    MonarchLinear,
    MonarchMixerLayer,
    MultivariateConv,
    ShortConv,
    SumLinear,
)

CHAIN = "2,2,2,2 4,2,2,1"  # 8 x 8
ROWS = (2, 12, 8)  # [batch, length, channels], of which linear layers take the last


def interpolated():
    return InterpolatedLinear(
        KSLinear(8, 4, "1,4,8,1"), KSLinear(4, 4, "1,4,4,1"), range(4)
    )


CAST = {  # what consists of linear layers, or ends with one
    KSLinear: lambda: KSLinear(8, 8, CHAIN),
    MonarchLinear: lambda: MonarchLinear(8, 8, 2),
    BlockDiagonalLinear: lambda: BlockDiagonalLinear(8, 8, 2),
    SumLinear: lambda: SumLinear(KSLinear(8, 8, CHAIN), KSLinear(8, 8, CHAIN)),
    InterpolatedLinear: interpolated,
    FusedLinear: lambda: FusedLinear([KSLinear(8, 8, CHAIN), KSLinear(8, 8, CHAIN)]),
    GatedMLP: lambda: GatedMLP(8, 16),
    MonarchMixerLayer: lambda: MonarchMixerLayer(8, 12),
    M2Mixer: lambda: M2Mixer(8, 12),
    GatedLongConv: lambda: GatedLongConv(8, 12),
    HyenaOperator: lambda: HyenaOperator(8, 12),
}
KEPT = {
    kind: lambda kind=kind: kind(8, 12)
    for kind in (
        LongConv,
        CausalMonarchConv,
        ChebyshevConv,
        MonarchConv,
        MultivariateConv,
    )
} | {
    ShortConv: lambda: ShortConv(8, 4),
    HyenaFilter: lambda: HyenaFilter(8, 12),
    LongConv2d: lambda: LongConv2d(8, (3, 4)),
}


def given(kind, x):
    """What a module takes of rows [..., length, channels]."""
    x = x.mT if kind in KEPT else x
    return x.unflatten(-1, (3, 4)) if kind is LongConv2d else x


def learned(make, device):
    """The module with numbers that are no identity."""
    torch.manual_seed(0)
    module = make().to(device)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return module
