"""Under autocast linear layers compute in its type; convolutions and filters do not."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")

import danaus.torch  # noqa: E402
from danaus.torch import (  # noqa: E402
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
} | {ShortConv: lambda: ShortConv(8, 4), HyenaFilter: lambda: HyenaFilter(8, 12)}


def learned(make, device):
    """The module with numbers that are no identity."""
    torch.manual_seed(0)
    module = make().to(device)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return module


def names(kind):
    return kind.__name__


def test_every_module_is_here():
    found = {x for x in vars(danaus.torch).values() if inspect.isclass(x)}
    modules = {x for x in found if issubclass(x, torch.nn.Module)}
    assert modules == {*CAST, *KEPT}


@pytest.mark.parametrize("gradients", [True, False], ids=["gradients", "inference"])
@pytest.mark.parametrize("kind", CAST, ids=names)
def test_linear_layers_compute_in_its_type(kind, gradients, device):
    module, x = learned(CAST[kind], device), torch.randn(ROWS, device=device)
    with torch.set_grad_enabled(gradients):
        wanted = module(x)
        with torch.autocast(device, torch.bfloat16):
            y = module(x)
    assert y.dtype == torch.bfloat16
    assert (y - wanted).norm() < 0.03 * wanted.norm()
    if gradients:
        y.float().square().mean().backward()
        found = [p.grad for p in module.parameters() if p.grad is not None]
        assert found and all(g.dtype == torch.float32 for g in found)


@pytest.mark.parametrize("gradients", [True, False], ids=["gradients", "inference"])
@pytest.mark.parametrize("kind", KEPT, ids=names)
def test_convolutions_and_filters_keep_theirs(kind, gradients, device):
    module = learned(KEPT[kind], device)
    x = 12 if kind is HyenaFilter else torch.randn(ROWS, device=device).mT
    with torch.set_grad_enabled(gradients):
        wanted = module(x)
        with torch.autocast(device, torch.bfloat16):
            y = module(x)
    torch.testing.assert_close(y, wanted, rtol=0, atol=0)
