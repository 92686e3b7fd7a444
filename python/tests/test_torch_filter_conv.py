"""What convolutions by learned matrices have in common, for all of them."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from compiling import compiled
from filter_convs import random, random_module

from danaus.torch import (
    CausalMonarchConv,
    ChebyshevConv,
    MonarchConv,
    MultivariateConv,
)
from danaus.torch.monarch_conv import BASES
from danaus.torch.multivariate_conv import POINTS

pytestmark = pytest.mark.filterwarnings("ignore:danaus has no kernels for convolutions")

KINDS = [
    (CausalMonarchConv, {}), (ChebyshevConv, {}),
    *((MonarchConv, {"basis": basis}) for basis in BASES),
    *((MultivariateConv, {"points": points}) for points in POINTS),
]  # fmt: skip
NAMES = ["-".join((kind.__name__, *more.values())) for kind, more in KINDS]
all_kinds = pytest.mark.parametrize(("kind", "more"), KINDS, ids=NAMES)

BLOCKS = (5, 5), (4, 7), (6, 5), (25, 1), (1, 26)
SIZES = [6, 4], [5, 3], [4, 3, 2]
CAUSAL = [
    (CausalMonarchConv, 37, {"order": 3}),
    (CausalMonarchConv, 37, {"order": 3, "tied": False}),
    *((ChebyshevConv, 13, {"blocks": blocks, "tied": False}) for blocks in BLOCKS),
    *(
        (
            MultivariateConv, math.prod((m + 1) // 2 for m in sizes),
            {"sizes": sizes, "points": points, "shared": shared, "tied": False},
        )
        for sizes, points, shared in itertools.product(SIZES, POINTS, (True, False))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "length", "more"), CAUSAL, ids=str)
def test_no_number_sees_what_comes_after(rng, kind, length, more):
    conv = random_module(rng, kind, 1, length, **more)
    u = random(rng, 1, 1, length)
    jacobian = torch.autograd.functional.jacobian(lambda x: conv(x)[0, 0], u)[:, 0, 0]
    assert jacobian.triu(1).abs().max() <= 1e-11 * jacobian.abs().max()
    assert (jacobian.diagonal() != 0).all()
    y = conv(u)
    for t in (0, length // 3, length - 1):
        other = u.clone()
        other[..., t:] += 1
        assert torch.allclose(conv(other)[..., :t], y[..., :t], rtol=0, atol=1e-10)
        torch.testing.assert_close(conv(u[..., : t + 1]), y[..., : t + 1])


@all_kinds
def test_tied_matrices_make_it_commute(rng, kind, more):
    conv = random_module(rng, kind, 1, 12, scale=0.2, skip=False, **more)
    u = random(rng, 1, 1, 12)
    y = conv(u)
    with torch.no_grad():
        u, k = conv.weight[None].clone(), u[0]
        conv.weight.copy_(k)
    torch.testing.assert_close(conv(u), y)


@all_kinds
def test_gradients_of_the_module(rng, kind, more):
    conv = random_module(rng, kind, 2, 4, scale=0.2, tied=False, filters=1, **more)
    names, params = zip(*conv.named_parameters())

    def run(u, *params):
        return torch.func.functional_call(conv, dict(zip(names, params)), (u,))

    u = random(rng, 1, 2, 4).requires_grad_()
    assert torch.autograd.gradcheck(run, (u, *params))


@all_kinds
def test_fixed_matrices_are_not_learned(kind, more):
    conv = kind(2, 6, learn=False, **more)
    conv(torch.randn(1, 2, 6)).sum().backward()
    for name, p in conv.named_parameters():
        assert (p.grad is not None) == (name in ("weight", "skip"))


@all_kinds
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types_and_state_dicts(rng, kind, more, dtype):
    """16 bits are those of parameters and of the result, and of each step of a
    CausalMonarchConv; other steps are in f32."""
    wide = random_module(rng, kind, 2, 12, scale=0.05, **more).to(dtype).double()
    conv = kind(2, 12, dtype=dtype, **more)
    conv.load_state_dict(wide.state_dict())
    u = random(rng, 1, 2, 12).to(dtype)
    with torch.no_grad():
        y, wanted = conv(u), wide(u.double())
    assert y.dtype == dtype
    assert (y.double() - wanted).norm() <= 20 * torch.finfo(dtype).eps * wanted.norm()


@all_kinds
def test_a_graph_has_no_breaks(rng, kind, more):
    conv = random_module(rng, kind, 2, 8, scale=0.2, **more)
    u = random(rng, 1, 2, 8)
    torch.testing.assert_close(compiled(conv, "eager")(u), conv(u))


@all_kinds
def test_wrong_arguments(kind, more):
    for wrong, words in [
        ({"length": 0}, "at least 1"),
        ({"channels": 3, "filters": 2}, "divides"),
        ({"taps": 11}, "10 numbers at most"),
    ]:
        with pytest.raises(ValueError, match=words):
            kind(**{"channels": 4, "length": 10, **more, **wrong})
    conv = kind(4, 10, **more)
    for u, words in [
        (torch.zeros(1, 4, 11), "made for 10"),
        (torch.zeros(1, 3, 10), "3 channels; 4 are needed"),
        (torch.zeros(4, 10), "shape"),
        (np.zeros((1, 4, 10)), "tensor"),
    ]:
        with pytest.raises(ValueError, match=words):
            conv(u)
