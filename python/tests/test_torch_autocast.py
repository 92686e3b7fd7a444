"""Under autocast linear layers compute in its type; convolutions and filters do not."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")

from every_module import CAST, KEPT, ROWS, given, learned  # noqa: E402

import danaus.torch  # noqa: E402
from danaus.torch import HyenaFilter  # noqa: E402


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
    x = torch.randn(ROWS, device=device)
    x = 12 if kind is HyenaFilter else given(kind, x)
    with torch.set_grad_enabled(gradients):
        wanted = module(x)
        with torch.autocast(device, torch.bfloat16):
            y = module(x)
    torch.testing.assert_close(y, wanted, rtol=0, atol=0)
