"""Modules of convolutions: states, inference, streams, what PyTorch does to them."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import concurrent.futures
import copy
import io
import pickle
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from compiling import compiled
from conv_cases import (
    KINDS,
    direct,
    direct_short,
    expect_close,
    numbers,
)

from danaus.torch import GatedLongConv, HyenaOperator, LongConv, ShortConv, freeze
from danaus.torch.functional import long_conv

pytestmark = pytest.mark.filterwarnings("ignore:danaus has no kernels for convolutions")


COMPILES = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")


class Decaying(torch.nn.Module):
    """An implicit filter: a few numbers make as many taps as are asked for."""

    def __init__(self, filters: int, ways: int = 1):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.rand(ways, filters, 1))
        self.register_buffer("scale", torch.ones(ways, filters, 1))
        self.calls = 0

    def forward(self, length: int):
        self.calls += 1
        k = self.scale * torch.exp(-self.rate * torch.arange(length).to(self.rate))
        return k[0] if len(k) == 1 else (k[0], k[1])


class Making(torch.nn.Module):
    """A filter module that returns what it was told."""

    def __init__(self, made):
        super().__init__()
        self.made = made

    def forward(self, length: int):
        return self.made


def signal(*shape, dtype=torch.float32, device="cpu") -> torch.Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    return numbers.to(device, dtype)


# ---- results ----


@pytest.mark.parametrize("kind", KINDS)
def test_long_conv_is_the_function_of_its_parameters(place, kind):
    conv = LongConv(6, 40, kind, filters=3, taps=25, device=place)
    u, gate = signal(2, 6, 37, device=place), signal(2, 6, 37, device=place)
    exact = direct(u, conv.weight, conv.weight_reverse, conv.skip, gate, None, kind)
    expect_close(conv(u, gate_in=gate), exact)
    with torch.no_grad():
        expect_close(conv(u, gate_in=gate), exact)
    names = {name: tuple(x.shape) for name, x in conv.state_dict().items()}
    assert names.pop("weight_reverse", None) == (
        (3, 25) if kind == "bidirectional" else None
    )
    assert names == {"weight": (3, 25), "skip": (3,)}


@pytest.mark.parametrize("layout", ("channels_first", "channels_last"))
def test_short_conv_is_the_function_of_its_parameters(place, layout):
    conv = ShortConv(5, 4, layout, activation="silu", device=place)
    u = signal(2, 5, 20, device=place)
    u = u if layout == "channels_first" else u.mT.contiguous()
    y = torch.from_numpy(direct_short(u, conv.weight, conv.bias, layout, False))
    expect_close(conv(u), numbers(torch.nn.functional.silu(y)))
    assert set(conv.state_dict()) == {"weight", "bias"}
    with torch.no_grad():
        as_conv1d = torch.nn.Conv1d(5, 5, 4, groups=5, padding=3, device=place)
        as_conv1d.weight.copy_(conv.weight.flip(1)[:, None])
        as_conv1d.bias.copy_(conv.bias)
        first = u if layout == "channels_first" else u.mT
        z = torch.nn.functional.silu(as_conv1d(first)[..., :20])
        expect_close(conv(u), numbers(z if layout == "channels_first" else z.mT))


def test_gated_long_conv_is_the_operator_of_the_paper(place):
    """HyenaOperator of the authors' code for order 2, word by word in plain PyTorch."""
    layer = GatedLongConv(8, 50, taps=3, device=place)
    x = signal(2, 50, 8, device=place)
    projected = layer.in_proj(x).mT
    weight = layer.short.weight.flip(1)[:, None]
    projected = torch.nn.functional.conv1d(
        projected, weight, layer.short.bias, padding=2, groups=24
    )[..., :50]
    x0, x1, v = projected.split(8, dim=1)
    v = v * x1
    z = torch.fft.irfft(
        torch.fft.rfft(v, 100) * torch.fft.rfft(layer.long.weight, 100), 100
    )[..., :50]
    y = (z + v * layer.long.skip[:, None]) * x0
    expect_close(layer(x), numbers(layer.out_proj(y.mT)))
    later = x.clone()
    later[:, 30:] += 1
    assert torch.allclose(layer(later)[:, :30], layer(x)[:, :30], atol=1e-6)


def test_initial_filters_keep_the_variance():
    torch.manual_seed(1)
    for kind, at in (("causal", -1), ("circular", 0), ("bidirectional", 512)):
        y = LongConv(4096, 1024, kind, skip=False)(torch.randn(1, 4096, 1024))
        assert 0.9 < y[0, :, at].var() < 1.1


def test_filters_may_be_given():
    k, back = torch.randn(2, 9), torch.randn(2, 9)
    conv = LongConv(4, 9, filters=2, filter=k)
    assert torch.equal(conv.weight, k) and conv.weight is not k
    conv = LongConv(4, 9, "bidirectional", filters=2, filter=(k, back))
    assert torch.equal(conv.weight_reverse, back)
    with pytest.raises(ValueError, match="1 filters given"):
        LongConv(4, 9, "bidirectional", filters=2, filter=k)
    with pytest.raises(ValueError, match="the shape .2, 9.; .4, 9. is needed"):
        LongConv(4, 9, filter=k)


@pytest.mark.parametrize("kind", ("causal", "bidirectional"))
def test_filter_modules_are_trained(kind):
    made = Decaying(2, 2 if kind == "bidirectional" else 1)
    conv = LongConv(4, 30, kind, filters=2, filter=made)
    for length in (30, 12):
        u = signal(2, 4, length)
        k = made(length)
        k, back = (k, None) if kind == "causal" else k
        expect_close(conv(u), direct(u, k, back, conv.skip, None, None, kind))
    conv(u).square().sum().backward()
    assert made.rate.grad.abs().min() > 0
    assert set(conv.state_dict()) == {"skip", "filter.rate", "filter.scale"}


# ---- inference ----


@torch.no_grad()
def test_the_transformed_filter_is_kept_until_something_changes(monkeypatch):
    calls, device = [], "cpu"  # a GPU transforms it at each call
    packed = torch.ops.danaus.long_conv_pack
    monkeypatch.setattr(
        torch.ops.danaus, "long_conv_pack", lambda *a: calls.append(1) or packed(*a)
    )
    conv, u = LongConv(16, 20, device=device), signal(2, 16, 20, device=device)

    def expect(count: int, x=u):
        exact = direct(x, conv.weight, None, conv.skip, None, None, "causal")
        expect_close(conv(x), exact)
        assert len(calls) == count

    expect(1)
    expect(1)
    expect(1, signal(5, 16, 20, device=device))  # another batch, the same plan
    conv.weight.mul_(2)
    expect(2)
    conv.skip.zero_()
    expect(3)
    conv.load_state_dict(LongConv(16, 20).state_dict())
    expect(4)
    expect(5, signal(2, 16, 13, device=device))
    expect(6, signal(2, 16, 13, dtype=torch.float64, device=device))
    conv.weight = torch.nn.Parameter(torch.randn(16, 20, device=device))
    expect(7)
    conv.weight.data = torch.randn(16, 20, device=device)
    expect(8)
    conv.weight.data.mul_(2)  # which leaves no trace
    expect(9)
    with torch.enable_grad():
        expect(9)
    conv.requires_grad_(False)
    with torch.enable_grad():
        expect(9)


CONVOLUTIONS = {
    "LongConv": lambda filter: LongConv(8, 20, filters=2, filter=filter),
    "GatedLongConv": lambda filter: GatedLongConv(8, 20, filters=2, filter=filter),
    "HyenaOperator": lambda filter: HyenaOperator(8, 20, 2, filters=2, filter=filter),
}


@torch.no_grad()
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_filters_are_those_of_now(kind, training, device):
    torch.manual_seed(0)
    layer = CONVOLUTIONS[kind](None).to(device).train(training)
    u = signal(2, 20, 8, device=device)
    u = u.mT.contiguous() if kind == "LongConv" else u
    for make in (
        lambda x: x.data.mul_(2),
        lambda x: setattr(x, "data", x.data + 1),
        lambda x: torch.utils.swap_tensors(x, torch.nn.Parameter(x + 1)),
    ):
        for name in ("weight", "skip"):
            before = layer(u)
            owner = next(m for m in layer.modules() if isinstance(m, LongConv))
            make(getattr(owner, name))
            assert not torch.equal(layer(u), before)
            with torch.enable_grad():
                torch.testing.assert_close(layer(u), copy.deepcopy(layer)(u))


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_frozen_convolutions_call_filter_modules_once(kind, device):
    layer = CONVOLUTIONS[kind](Decaying(2)).to(device)
    made = next(m for m in layer.modules() if isinstance(m, Decaying))
    u = signal(2, 20, 8, device=device)
    u = u.mT.contiguous() if kind == "LongConv" else u
    y = layer(u).detach()
    assert freeze(layer) is layer
    count = made.calls
    for _ in range(3):
        torch.testing.assert_close(layer(u), y)
    assert made.calls == count + 1
    made.scale.mul_(2)
    torch.testing.assert_close(layer(u), y)
    assert not torch.equal(freeze(layer)(u), y)
    state = {**layer.state_dict(), "ignored": torch.zeros(1)}
    layer.load_state_dict({k: v / 2 for k, v in state.items()}, strict=False)
    with torch.no_grad():
        torch.testing.assert_close(layer(u), layer.unfreeze()(u))
    assert made.rate.requires_grad


def test_a_causal_filter_may_come_with_none():
    k, u = torch.rand(4, 8), signal(1, 4, 8)
    made = [LongConv(4, 8, skip=False, filter=Making(x)) for x in (k, (k, None))]
    assert torch.equal(made[0](u), made[1](u))


@torch.no_grad()
def test_filter_modules_are_called_at_each_call():
    conv = LongConv(16, 20, filters=2, filter=Decaying(2)).eval()
    u = signal(2, 16, 20)
    y = conv(u)
    assert torch.equal(conv(u), y) and conv.filter.calls == 2
    conv.filter.scale.mul_(2)
    assert not torch.equal(conv(u), y) and conv.filter.calls == 3


def test_sparse_spectra_of_modules():
    conv = LongConv(16, 50, filters=2, keep=(4, 4))
    u = signal(3, 16, 50)
    y = conv(u)
    k, skip = conv.weight, conv.skip
    exact = long_conv(*(x.double() for x in (u, k)), skip=skip.double(), keep=(4, 4))
    expect_close(y, numbers(exact))
    with torch.no_grad():
        assert torch.equal(conv(u), y)
    with pytest.raises(ValueError, match="streams are causal"):
        conv.stream()


def test_few_rows_are_planned_by_their_number():
    conv = LongConv(2, 3000)
    for batch in (1, 2, 3, 7, 8, 9):
        u = signal(batch, 2, 3000)
        exact = direct(u, conv.weight, None, conv.skip, None, None, "causal")
        with torch.no_grad():
            expect_close(conv(u), exact)
        expect_close(conv(u), exact)


def test_modules_are_copied_pickled_and_moved():
    layer, x = GatedLongConv(8, 30, filters=4), signal(2, 30, 8)
    with torch.no_grad():
        y = layer(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        with torch.no_grad():
            assert torch.equal(other(x), y)
            other.long.weight.zero_()
            assert not torch.equal(other(x), y) and torch.equal(layer(x), y)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    fresh = GatedLongConv(8, 30, filters=4)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    with torch.no_grad():
        assert torch.equal(fresh(x), y)
        expect_close(layer.double()(x.double()), numbers(y), torch.float32)
        expect_close(layer.to(torch.bfloat16)(x.bfloat16()), numbers(y))
    with torch.device("meta"):
        assert GatedLongConv(8, 30)(torch.empty(2, 30, 8)).shape == (2, 30, 8)


def test_threads_share_a_module():
    conv = LongConv(16, 100)
    inputs = [signal(2, 16, length) for length in (100, 64, 100, 31) * 6]
    expected = [conv(u) for u in inputs]

    @torch.no_grad()
    def run(u):
        return conv(u)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for y, exact in zip(pool.map(run, inputs), expected):
            assert torch.equal(y, exact)


def test_inference_mode(place):
    conv, u = LongConv(4, 20, device=place), signal(2, 4, 20, device=place)
    y = conv(u)
    with torch.inference_mode():
        assert torch.equal(conv(u), y) and torch.equal(conv(u + 0), y)
        made_here = LongConv(4, 20, device=place)
        y = made_here(u)
        made_here.weight.mul_(2)
        assert not torch.equal(made_here(u), y)


# ---- autocast, compile, export ----


@pytest.mark.parametrize("training", (True, False))
@pytest.mark.parametrize(
    "make",
    (
        lambda: LongConv(4, 9, "bidirectional"),
        lambda: LongConv(4, 9, filter=Decaying(4)),
        lambda: GatedLongConv(4, 9),
        lambda: ShortConv(4, 3, layout="channels_last"),
        lambda: HyenaOperator(4, 9),
    ),
)
def test_forward_mode(make, training, device):
    """Also where spectra of filters are kept."""
    module = make().to(device, torch.float64).train(training)
    u = torch.randn(2, 9, 4, dtype=torch.float64, device=device)
    u = u.mT if isinstance(module, LongConv) else u
    wanted = torch.autograd.functional.jacobian(module, u)
    with torch.no_grad():
        module(u)
        found = torch.func.jacfwd(module)(u)
    assert torch.allclose(found, wanted)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_autocast(place, dtype):
    layer, x = GatedLongConv(16, 64, device=place), signal(2, 64, 16, device=place)
    with torch.autocast(place, dtype):
        y = layer(x)
    assert y.dtype == dtype and layer.long.weight.dtype == torch.float32
    exact = layer(x)
    assert (y - exact).norm() < 0.03 * exact.norm()
    y.float().square().mean().backward()
    for x in layer.parameters():
        assert x.grad.dtype == torch.float32 and x.grad.isfinite().all()


@pytest.mark.parametrize(
    "module, backend",
    (
        ("gated", "aot_eager"),
        ("filter", "aot_eager"),
        ("short", "aot_eager"),
        pytest.param("gated", "inductor", marks=COMPILES),
    ),
)
def test_compile_without_graph_breaks(module, backend):
    layer, x = {
        "gated": lambda: (GatedLongConv(8, 32), signal(2, 32, 8)),
        "filter": lambda: (
            LongConv(8, 32, "bidirectional", filter=Decaying(8, 2)),
            signal(2, 8, 32),
        ),
        "short": lambda: (ShortConv(8, 3, activation="gelu"), signal(2, 8, 32)),
    }[module]()
    fast = compiled(layer, backend)
    found, expected = [], []
    for run, to in ((fast, found), (layer, expected)):
        layer.zero_grad()
        y = run(x)
        y.square().mean().backward()
        to += [y, *(p.grad for p in layer.parameters())]
    for a, b in zip(found, expected):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(fast(x), expected[0], rtol=1e-4, atol=1e-6)


def test_export_with_any_batch_and_length():
    layer, x = GatedLongConv(8, 32).eval(), signal(2, 32, 8)
    batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=4)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: batch, 1: length},))
    for shape in ((2, 32), (5, 21), (3, 50)):
        x = signal(*shape, 8)
        assert torch.allclose(program.module()(x), layer(x), rtol=1e-4, atol=1e-6)


# ---- streams ----


def blocks(rng, length: int) -> list[int]:
    """Sizes that add up to the length, empty ones among them."""
    cuts = np.sort(rng.integers(0, length + 1, int(rng.integers(1, 12))))
    return np.diff([0, *cuts, length]).tolist()


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_streams_give_the_whole(dtype, rng, device):
    for length, taps in ((1, 1), (70, 130), (700, 300)):
        sums = torch.float64 if dtype == torch.float64 else torch.float32
        made = {"dtype": sums, "device": device}
        conv = LongConv(6, length, filters=3, taps=taps, **made)
        u = signal(2, 6, length, dtype=dtype).to(device)
        stream = conv.stream(batch=2)
        for gated in (False, True):
            pieces = [
                stream(block, *((block, block) if gated else ()))
                for block in u.split(blocks(rng, length), 2)
            ]
            gates = (u, u) if gated else (None, None)
            exact = direct(u, conv.weight, None, conv.skip, *gates, "causal")
            expect_close(torch.cat(pieces, 2), exact, dtype)
            assert pieces[0].dtype == dtype
            stream.reset()


@pytest.mark.parametrize("filters", (torch.float32, torch.float64))
@pytest.mark.parametrize("gate", (torch.float16, torch.float32, torch.float64))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float64))
def test_streams_take_gates_of_other_types(filters, gate, dtype, rng, device):
    conv = LongConv(4, 50, dtype=filters, device=device)
    u = signal(2, 4, 50, dtype=dtype).to(device)
    gates = [signal(2, 4, 50, dtype=gate).to(device) for _ in range(2)]
    stream, sizes = conv.stream(batch=2), blocks(rng, 50)
    pieces = [stream(*rows) for rows in zip(*(x.split(sizes, 2) for x in (u, *gates)))]
    y = torch.cat([piece for piece in pieces if piece.shape[2]], 2)
    assert y.dtype == torch.promote_types(dtype, gate)
    exact = direct(u, conv.weight, None, conv.skip, *gates, "causal")
    expect_close(y, exact, min(filters, y.dtype, key=lambda kind: kind.itemsize))


@pytest.mark.parametrize("layout", ("channels_first", "channels_last"))
def test_short_streams_give_the_whole(layout, rng, device):
    time = 2 if layout == "channels_first" else 1
    for taps in (1, 4, 40):
        conv = ShortConv(5, taps, layout, activation="gelu", device=device)
        u = (signal(3, 5, 60) if time == 2 else signal(3, 60, 5)).to(device)
        stream = conv.stream(batch=3)
        for _ in range(2):
            pieces = [stream(a) for a in u.split(blocks(rng, 60), time)]
            assert torch.allclose(torch.cat(pieces, time), conv(u), atol=1e-6)
            stream.reset()


def test_gated_streams_give_the_whole(rng, device):
    layer = GatedLongConv(12, 90, filter=Decaying(12)).to(device)
    x = signal(2, 90, 12).to(device)
    stream = layer.stream(batch=2)
    for _ in range(2):
        pieces = [stream(b) for b in x.split(blocks(rng, 90), 1)]
        assert torch.allclose(torch.cat(pieces, 1), layer(x), atol=1e-5)
        stream.reset()


def test_streams_keep_the_filters_of_their_beginning():
    conv, u = LongConv(2, 10), signal(1, 2, 10)
    y, stream = conv(u), conv.stream()
    with torch.no_grad():
        conv.weight.zero_()
        conv.skip.zero_()
    assert torch.allclose(stream(u), y, atol=1e-6)


# ---- what is refused ----


def run_with_filter(made):
    conv = LongConv(4, 8, "bidirectional", filter=Making(made))
    return conv(torch.zeros(1, 4, 8))


@pytest.mark.parametrize(
    "make, sentence",
    (
        (lambda: LongConv(4, 8, "casual"), "kind has to be"),
        (lambda: LongConv(4, 8, filters=3), "filters divides channels"),
        (lambda: LongConv(0, 8), "at least 1"),
        (lambda: LongConv(4, 0), "at least 1"),
        (lambda: ShortConv(4, 129), "1 to 128"),
        (lambda: ShortConv(4, 3, "last"), "layout has to be"),
        (lambda: ShortConv(4, 3, activation="tanh"), "activation has to be"),
        (lambda: LongConv(4, 8)(torch.zeros(2, 5, 8)), "5 channels; 4 are needed"),
        (lambda: LongConv(4, 8, filters=1)(torch.zeros(2, 5, 8)), "4 are needed"),
        (lambda: LongConv(4, 8)(torch.zeros(4, 8)), "u has the shape"),
        (lambda: LongConv(4, 8, "circular").stream(), "streams are causal"),
        (lambda: ShortConv(4, 3, centred=True).stream(), "streams are causal"),
        (lambda: LongConv(4, 8).stream(0), "a batch of 0"),
        (lambda: LongConv(4, 8, device="meta").stream(), "not on meta"),
        (lambda: ShortConv(4, 8, device="meta").stream(), "not on meta"),
        (
            lambda: LongConv(4, 8).stream()(torch.zeros(1, 4, 1, device="meta")),
            "u lies on meta, and the stream runs on cpu",
        ),
        (lambda: LongConv(4, 8).stream()([0.0]), "u has to be a tensor"),
        (lambda: LongConv(4, 8).stream()(torch.zeros(2, 4, 1)), "u has the shape"),
        (lambda: GatedLongConv(4, 8).stream()(torch.zeros(1, 1, 3)), "the shape"),
        (lambda: LongConv(4, 8, filter=Decaying(3))(torch.zeros(1, 4, 8)), "divide"),
        (lambda: LongConv(4, 8, filter=5), "a pair, not int"),
        (lambda: run_with_filter(5), "a pair, not int"),
        (lambda: run_with_filter([torch.ones(4, 8)] * 3), "3 filters given"),
        (lambda: run_with_filter((torch.ones(4, 8), 5)), "k_reverse has to be"),
        (lambda: run_with_filter(torch.ones(4, 8)), "1 filters given"),
        (lambda: GatedLongConv(4, 8)(torch.zeros(1, 8, 5)), "any, 4. is needed"),
        (lambda: GatedLongConv(4, 8)(torch.zeros(8, 4)), "any, 4. is needed"),
    ),
)
def test_what_is_refused(make, sentence):
    for context in (torch.no_grad(), torch.enable_grad()):
        with context, pytest.raises(ValueError, match=sentence):
            make()
