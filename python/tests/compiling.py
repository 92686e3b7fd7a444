"""Models as torch.compile makes them, beside the same models."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch


def compiled(model, backend="aot_eager", **options):
    """The model as one graph."""
    torch._dynamo.reset()
    return torch.compile(model, backend=backend, fullgraph=True, **options)


def expect_compiles(layer, x) -> None:
    """One graph has the layer's values, with and without gradients."""
    fast = compiled(layer)
    torch.testing.assert_close(fast(x), layer(x))
    fast(x).square().sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    with torch.no_grad():
        torch.testing.assert_close(fast(x), layer(x))
