"""Accurate and fast long convolutions of PyTorch."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from danaus.torch import GatedLongConv, LongConv  # noqa: E402
from danaus.torch.functional import long_conv  # noqa: E402

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# What arithmetic makes, and what storing a result rounds it by.
SUMS = 2e-6
ROUNDING = {"f32": 0, "f16": 2**-11, "bf16": 2**-8}
FAST = {"f32": 1e-3, "f16": 1e-3, "bf16": 4e-3}
ACCURACIES = (None, "accurate", "fast")
LENGTHS = (256, 1000, 4096)


def most_error(dtype: str, accuracy: str | None, device: str) -> float:
    """Relative, in norm, that a result may have; accurate ones are as exact as y."""
    fast = accuracy == "fast" or (accuracy is None and dtype != "f32")
    if fast and device == "cuda":
        return FAST[dtype]
    return SUMS + ROUNDING[dtype]


def case_of(device: str, dtype: str, length: int, seed: int = 0) -> tuple:
    """u, k and dy, the first and the last rounded to the type."""
    torch.manual_seed(seed)
    u, dy = torch.randn(2, 2, 3, length, dtype=torch.float64).to(TYPES[dtype])
    k = torch.randn(3, length) / length**0.5
    return tuple(x.to(device) for x in (u, k, dy))


def relative(x, exact) -> float:
    exact = exact.detach().double()
    return ((x.detach().double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("accuracy", ACCURACIES)
@pytest.mark.parametrize("dtype", TYPES)
def test_errors_are_those_of_the_accuracy(device, dtype, accuracy, length):
    """Forward and back; gradients of filters are accurate always."""
    u, k, dy = case_of(device, dtype, length)
    u, k = u.requires_grad_(), k.requires_grad_()
    y = long_conv(u, k, accuracy=accuracy)
    du, dk = torch.autograd.grad(y, (u, k), dy)
    wide = [x.detach().double().requires_grad_() for x in (u, k)]
    exact = long_conv(*wide)
    exact_du, exact_dk = torch.autograd.grad(exact, wide, dy.double())
    most = most_error(dtype, accuracy, device)
    assert relative(y, exact) <= most
    assert relative(du, exact_du) <= most
    assert relative(dk, exact_dk) <= SUMS


@pytest.mark.parametrize("accuracy", ACCURACIES)
@pytest.mark.parametrize("dtype", TYPES)
def test_modules_have_the_accuracy_of_the_function(device, dtype, accuracy):
    """With filters that are kept and without, of packed sequences too."""
    u, k, _ = case_of(device, dtype, 1024)
    conv = LongConv(3, 1024, skip=False, filter=k, accuracy=accuracy).to(device)
    with torch.no_grad():
        y = long_conv(u, k, accuracy=accuracy)
        assert torch.equal(conv(u), y)
        assert torch.equal(copy.deepcopy(conv)(u), y)
        packed, offsets = u[:1], (0, 300, 1024)
        found = (
            long_conv(packed, k, offsets=offsets, accuracy=accuracy),
            conv(packed, offsets=offsets),
        )
    exact = [
        long_conv(part.double(), k.double()) for part in packed.split((300, 724), 2)
    ]
    for y in found:
        assert relative(y, torch.cat(exact, 2)) <= most_error(dtype, accuracy, device)


def test_what_was_kept_serves_one_accuracy(device):
    u, k, _ = case_of(device, "f32", 1024)
    conv = LongConv(3, 1024, skip=False, filter=k).to(device)
    with torch.no_grad():
        for accuracy in ACCURACIES:
            conv.accuracy = accuracy
            assert torch.equal(conv(u), long_conv(u, k, accuracy=accuracy))
        conv.accuracy = "exact"
        with pytest.raises(ValueError, match="accuracy has to be .*, not 'exact'"):
            conv(u)


def test_on_a_gpu_fast_is_not_accurate(device):
    """Else the choice chooses nothing."""
    u, k, _ = case_of(device, "f32", 4096)
    fast, accurate = (long_conv(u, k, accuracy=a) for a in ("fast", "accurate"))
    tensor_cores = device == "cuda" and torch.cuda.get_device_capability() >= (8, 0)
    assert torch.equal(fast, accurate) != tensor_cores


def test_modules_say_and_check_their_accuracy():
    layer = GatedLongConv(4, 64, accuracy="accurate")
    assert "accuracy='accurate'" in repr(layer.long)
    assert "accuracy" not in repr(LongConv(4, 64))
    for make in (LongConv, GatedLongConv):
        with pytest.raises(ValueError, match="accuracy has to be .*, not 'exact'"):
            make(4, 64, accuracy="exact")


@pytest.mark.parametrize("accuracy", ("accurate", "fast"))
def test_operators_know_accuracies(accuracy):
    """What compilers and autograd have to know; a wrong word has a sentence."""
    u, k, dy = case_of("cpu", "f32", 64)
    some = torch.ops.danaus
    rest = (None,) * 4
    for x in (u, k):
        x.requires_grad_()
    forward = (u, k, *rest, "causal", [], None, accuracy)
    torch.library.opcheck(some.long_conv.default, forward)
    with pytest.raises(RuntimeError, match="exact is none of by_type, accurate"):
        some._long_conv(*forward[:-1], "exact")
    traced = torch.compile(
        lambda u, k: long_conv(u, k, accuracy=accuracy), backend="aot_eager"
    )
    assert torch.equal(traced(u, k), long_conv(u, k))
    found = torch.autograd.grad(traced(u, k), (u, k), dy)
    for a, b in zip(found, torch.autograd.grad(long_conv(u, k), (u, k), dy)):
        assert torch.equal(a, b)
