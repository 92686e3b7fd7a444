"""FlopCounterMode counts products and convolutions, forward and backward."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from danaus.torch import (  # noqa: E402
    HyenaOperator,
    KSLinear,
    LongConv,
    MonarchLinear,
    ShortConv,
)
from danaus.torch._ops import ops  # noqa: E402


def flops(run) -> int:
    """Counts those of danaus' operators and PyTorch's."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def both(model, x) -> tuple[int, int]:
    """A pass forward, and a training step."""
    with torch.no_grad():
        forward = flops(lambda: model(x))
    return forward, flops(lambda: model(x).sum().backward())


def test_a_dense_chain_counts_as_a_linear_layer():
    x = torch.randn(3, 5, 48, requires_grad=True)
    chain, linear = KSLinear(48, 20, "1,20,48,1"), torch.nn.Linear(48, 20)
    assert both(chain, x) == both(linear, x)
    x.requires_grad_(False)
    assert both(chain, x) == both(linear, x)


@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
def test_chains_count_their_weights(layout):
    chain = MonarchLinear(24, 36, 4, layout=layout)
    first, second = (w.numel() for w in chain.weights)
    x = torch.randn(24, 7) if layout == "batch_last" else torch.randn(7, 24)
    forward = 2 * 7 * (first + second)
    # dx is not wanted: dy passes the first factor alone; the second's output is made
    # again for the gradient of the first.
    step = forward + 2 * 7 * (first + (first + second) + second)
    assert both(chain, x) == (forward, step)
    frozen = MonarchLinear(24, 36, 4, layout=layout).freeze()
    assert flops(lambda: frozen(x)) == forward


@pytest.mark.parametrize("kind", ["causal", "circular", "bidirectional"])
def test_long_convolutions_count_transforms(kind):
    batch, channels, filters, length, taps = 2, 6, 3, 100, 30
    conv = LongConv(channels, length, kind, filters=filters, taps=taps)
    u = torch.randn(batch, channels, length, requires_grad=True)
    n = 100 if kind == "circular" else 256
    transform, product = round(2.5 * n * math.log2(n)), 3 * n
    rows, made = batch * channels, filters * (2 if kind == "bidirectional" else 1)
    forward = (2 * rows + made) * transform + rows * product
    backward = (3 * rows + filters + made) * transform + 2 * rows * product
    assert both(conv, u) == (forward, forward + backward)
    assert flops(lambda: conv(u)) == forward
    conv.freeze()
    with torch.no_grad():
        conv(u)
        kept = flops(lambda: conv(u))
    assert kept == 2 * rows * transform + rows * product  # filters were transformed


def test_short_convolutions_and_the_hyena_operator():
    u = torch.randn(2, 5, 40, requires_grad=True)
    short = 2 * u.numel() * 3
    assert both(ShortConv(5, 3), u) == (short, 3 * short)
    for order in 2, 3:
        layer, x = HyenaOperator(5, 40, order), torch.randn(2, 40, 5)
        projections = 2 * 2 * 40 * 5 * 5 * (order + 2)
        short = 2 * 2 * (order + 1) * 5 * 40 * 3
        transform, product = round(2.5 * 128 * 7), 3 * 128
        long = (order - 1) * (25 * transform + 10 * product)
        forward, step = both(layer, x)
        assert forward == projections + short + long
        assert step > 2 * forward


def test_gradients_that_are_not_wanted_are_not_counted():
    u, k = torch.randn(2, 4, 16), torch.randn(4, 16)
    found = []
    for wanted in 0b1, 0b10, 0b11, 0b100011:
        gates = None, torch.randn(2, 4, 16)
        operands = torch.randn_like(u), u, k, None, None, *gates, "causal", [], wanted
        found.append(flops(lambda o=operands: ops.long_conv_backward(*o)))
    assert found == sorted(found) and 0 < found[0]


def test_the_counter_is_not_imported_for_it():
    """It takes as long as all of danaus."""
    code = (
        "import sys, danaus.torch as d, torch;"
        "assert 'torch.utils.flop_counter' not in sys.modules;"
        "from torch.utils.flop_counter import flop_registry as r;"
        "assert torch.ops.danaus.ks_linear in r and torch.ops.danaus.hyena in r"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
