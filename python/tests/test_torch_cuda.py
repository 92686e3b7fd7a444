"""What only a GPU has: streams, graphs, other GPUs, tf32."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from danaus.torch import (  # noqa: E402
    GatedLongConv,
    KSLinear,
    LongConv,
    ShortConv,
    functional,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
CHAIN = "1,32,32,32 32,32,32,1"


def layer_of(**options) -> KSLinear:
    torch.manual_seed(0)
    return KSLinear(1024, 1024, CHAIN, device="cuda", **options)


def test_many_streams():
    layer = layer_of()
    inputs = [torch.randn(64 << n, 1024, device="cuda") for n in range(4)]
    expected = []
    for x in inputs:
        y = layer(x)
        expected.append((y.detach(), *torch.autograd.grad(y.sum(), [*layer.weights])))
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in inputs]
    for _ in range(10):
        found = []
        for x, stream in zip(inputs, streams):
            with torch.cuda.stream(stream):
                y = layer(x)
                grads = torch.autograd.grad(y.sum(), [*layer.weights])
                with torch.no_grad():
                    found.append((layer(x), y.detach(), *grads))
        torch.cuda.synchronize()
        for (packed, *rest), wanted in zip(found, expected):
            torch.testing.assert_close(packed, wanted[0])
            for a, b in zip(rest, wanted):
                assert torch.equal(a, b)


def test_a_graph_without_gradients():
    layer, x = layer_of(activation="gelu"), torch.randn(256, 1024, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            layer(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = layer(x)
        for seed in range(3):
            torch.manual_seed(seed)
            x.normal_()
            graph.replay()
            torch.testing.assert_close(y, layer(x))
        layer.weights[0].mul_(2)  # the graph packs whenever it runs
        graph.replay()
        torch.testing.assert_close(y, layer(x))


def test_a_graph_of_a_training_step():
    layer, x = layer_of(), torch.randn(256, 1024, device="cuda")
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    other = copy.deepcopy(layer)
    other_optimizer = torch.optim.SGD(other.parameters(), lr=1e-3)

    def step(model, optimizer):
        optimizer.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(layer, optimizer)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(layer, optimizer)
    for _ in range(4):
        graph.replay()
    for _ in range(7):
        step(other, other_optimizer)
    for a, b in zip(layer.parameters(), other.parameters()):
        torch.testing.assert_close(a, b)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), other(x))


@pytest.mark.parametrize("mode", ["reduce-overhead", "default"])
def test_compiled_with_graphs(mode):
    layer, x = layer_of(activation="gelu"), torch.randn(64, 1024, device="cuda")
    torch._dynamo.reset()
    fast = torch.compile(layer, mode=mode, fullgraph=True)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()  # what the last one made may go
        with torch.no_grad():
            torch.testing.assert_close(fast(x), layer(x), atol=1e-5, rtol=1e-4)
        layer.zero_grad()  # gradients lie where the next ones will
        torch.compiler.cudagraph_mark_step_begin()
        fast(x).sum().backward()


def test_tf32_follows_pytorch():
    layer, x = layer_of(), torch.randn(256, 1024, device="cuda")
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    wide = copy.deepcopy(layer).double()
    try:
        errors = {}
        for precision in "ieee", "tf32":
            matmul.fp32_precision = precision
            with torch.no_grad():
                errors[precision] = float((layer(x) - wide(x.double())).abs().max())
                forced = copy.deepcopy(layer)
                forced.tf32 = False
                exact = float((forced(x) - wide(x.double())).abs().max())
            assert exact < 1e-5
    finally:
        matmul.fp32_precision = before
    assert errors["ieee"] < 1e-5 < 1e-4 < errors["tf32"]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_every_gpu_in_turn():
    layer = layer_of()
    x = torch.randn(64, 1024, device="cuda:0")
    expected = layer(x)
    expected.sum().backward()
    for index in 1, 0, 1:
        place = f"cuda:{index}"
        moved = copy.deepcopy(layer).to(place)
        moved.zero_grad()
        y = moved(x.to(place))  # while cuda:0 is the current device
        y.sum().backward()
        torch.testing.assert_close(y.to("cuda:0"), expected)
        torch.testing.assert_close(
            moved.weights[0].grad.to("cuda:0"), layer.weights[0].grad
        )
    with pytest.raises(ValueError, match="cuda:1"):
        layer(x.to("cuda:1"))


def test_memory_of_a_training_step():
    """At most that of a dense network and 5 %: what backward works in, for one layer at
    a time, is less than what weights and their gradients save."""

    def peak(make):
        layers = [torch.nn.Sequential(make(), torch.nn.ReLU()) for _ in range(16)]
        model = torch.nn.Sequential(*layers)
        x = torch.randn(4096, 1024, device="cuda")
        for _ in range(3):
            model.zero_grad()
            torch.cuda.reset_peak_memory_stats()
            model(x).square().mean().backward()
            torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    dense = peak(lambda: torch.nn.Linear(1024, 1024, device="cuda"))
    assert peak(layer_of) <= 1.05 * dense


def test_the_function_on_a_gpu_takes_numbers_of_other_types():
    layer = layer_of()
    for dtype in torch.float16, torch.bfloat16, torch.float64:
        x = torch.randn(32, 1024, device="cuda", dtype=dtype)
        y = functional.ks_linear(x, list(layer.weights), layer.bias)
        wanted = torch.nn.functional.linear(
            x.double(), layer.to_dense().double(), layer.bias.double()
        )
        torch.testing.assert_close(y.double(), wanted, atol=3e-2, rtol=3e-2)


CONVS = ("first", "last", "long", "circular", "longer", "gated")


def conv_of(which: str) -> tuple:
    """A convolution with an input, and its output and gradients: of few taps in both
    layouts, of windows within a block of threads and beyond, and the Hyena operator."""
    torch.manual_seed(0)
    conv, shape = {
        "first": lambda: (ShortConv(24, 4, "channels_first"), (3, 24, 777)),
        "last": lambda: (ShortConv(24, 4, "channels_last"), (3, 777, 24)),
        "long": lambda: (LongConv(24, 777), (3, 24, 777)),
        "circular": lambda: (LongConv(24, 777, "circular", filters=8), (3, 24, 777)),
        "longer": lambda: (LongConv(4, 50000, "bidirectional"), (2, 4, 50000)),
        "gated": lambda: (GatedLongConv(24, 777), (3, 777, 24)),
    }[which]()
    conv = conv.cuda()
    dtype = torch.float32 if which == "gated" else torch.float16
    u = torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
    return conv, u, results_of(conv, u)


def results_of(conv, u) -> tuple:
    y = conv(u)
    grads = torch.autograd.grad(y.float().square().sum(), [u, *conv.parameters()])
    return (y.detach(), *grads)


def expect_same(found, expected) -> None:
    """Bit for bit, but for products of cuBLAS, which may choose differently."""
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * float(b.abs().max()))


@pytest.mark.parametrize("which", CONVS)
def test_convolutions_on_streams(which):
    conv, u, expected = conv_of(which)
    torch.cuda.synchronize()
    found = []
    for _ in range(4):
        with torch.cuda.stream(torch.cuda.Stream()):
            found += [results_of(conv, u) for _ in range(3)]
    torch.cuda.synchronize()
    for results in found:
        expect_same(results, expected)
        if which != "gated":
            assert all(torch.equal(a, b) for a, b in zip(results, expected))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
@pytest.mark.parametrize("which", CONVS)
def test_convolutions_on_every_gpu(which):
    conv, u, expected = conv_of(which)
    for place in "cuda:1", "cuda:0":  # while cuda:0 is the current device
        found = results_of(
            copy.deepcopy(conv).to(place), u.detach().to(place).requires_grad_()
        )
        expect_same([a.to("cuda:0") for a in found], expected)


@pytest.mark.parametrize("which", CONVS)
def test_convolutions_in_a_graph(which):
    """Forward and backward, of inputs and filters that change."""
    conv, u, _ = conv_of(which)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        results_of(conv, u)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = results_of(conv, u)
    for seed in range(3):
        torch.manual_seed(seed)
        with torch.no_grad():
            u.normal_()
            for parameter in conv.parameters():
                parameter.mul_(0.5)
        graph.replay()
        expect_same(found, results_of(conv, u))


def test_graphs_transform_filters_that_changed():
    """This holds whether or not the module kept what it transformed before."""
    conv, u, _ = conv_of("longer")
    with torch.no_grad():
        conv(u)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = conv(u)
        for _ in range(2):
            conv.weight.mul_(-2)
            graph.replay()
            expect_same([y], [conv(u)])


def test_signals_come_in_blocks_on_streams_but_not_in_graphs():
    conv = LongConv(4, 700, device="cuda")
    u = torch.randn(2, 4, 700, device="cuda")
    whole, stepper = conv(u).detach(), conv.stream(batch=2)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            y = torch.cat([stepper(block) for block in u.split(97, 2)], 2)
            torch.testing.assert_close(y, whole, rtol=1e-5, atol=1e-4)
            stepper.reset()
    torch.cuda.synchronize()
    with pytest.raises(NotImplementedError, match="captured"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            stepper(u)


def test_kept_filters_are_those_of_any_stream():
    conv, u, _ = conv_of("longer")
    with torch.no_grad():
        expect_kept_filters(conv, u)


def expect_kept_filters(conv, u):
    packed, calls = torch.ops.danaus.long_conv_pack, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            torch.ops.danaus, "long_conv_pack", lambda *a: calls.append(1) or packed(*a)
        )
        for round in range(1, 4):
            conv.weight.mul_(2)
            conv.freeze()
            torch.cuda.synchronize()
            found = []
            for _ in range(3):
                with torch.cuda.stream(torch.cuda.Stream()):
                    found.append(conv(u))
            torch.cuda.synchronize()
            assert len(calls) == round
            assert all(torch.equal(y, found[0]) for y in found)


@pytest.mark.parametrize("mode", ["reduce-overhead", "default"])
def test_compiled_convolutions_with_graphs(mode):
    conv, x, _ = conv_of("gated")
    torch._dynamo.reset()
    fast = torch.compile(conv, mode=mode, fullgraph=True)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()  # what the last one made may go
        with torch.no_grad():
            expect_same([fast(x)], [conv(x)])
        conv.zero_grad()  # gradients lie where the next ones will
        x.grad = None
        torch.compiler.cudagraph_mark_step_begin()
        fast(x).sum().backward()


def test_no_call_of_pytorchs_transforms(monkeypatch):
    """Neither forward nor first derivatives."""
    conv, u, expected = conv_of("long")
    for name in ("fft", "ifft", "rfft", "irfft"):
        monkeypatch.setattr(torch.fft, name, None)
    expect_same(results_of(conv, u), expected)
