"""KSLinear with a residual: what it is added to, gradients, types, packing, tracing."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from compiling import compiled  # noqa: E402

from danaus.torch import KSLinear, _ops  # noqa: E402

ops = _ops.ops
CHAIN = "2,6,5,2 4,5,3,1"  # 24 x 12
SQUARE = "1,3,3,4 3,4,4,1"  # 12 x 12
DTYPES = torch.float32, torch.float64, torch.float16, torch.bfloat16
ERRORS = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float64: 1e-12}
ACTIVATIONS = {
    None: lambda v: v,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


@pytest.fixture(params=[False, True], ids=["after", "within"])
def within(request):
    """True if layers are frozen, so that products also add the residual."""
    return request.param


def layer_of(device, **options) -> KSLinear:
    torch.manual_seed(0)
    return KSLinear(12, 24, CHAIN, device=device, **options)


def expected(layer, x, residual):
    """By the dense matrix, in f64."""
    matrix = torch.from_numpy(layer.to_chain().astype("f64").to_dense()).to(x.device)
    last = layer.layout == "batch_last"
    rows = x.double().movedim(0, -1) if last else x.double()
    v = torch.nn.functional.linear(rows, matrix, layer.bias.double())
    y = ACTIVATIONS[layer.activation if layer.activation != "none" else None](v)
    return residual.double() + (y.movedim(-1, 0) if last else y)


def operands(device, batch, dtype, last=False, features=24):
    x = torch.randn((12, *batch) if last else (*batch, 12), device=device, dtype=dtype)
    shape = (features, *batch) if last else (*batch, features)
    return x, torch.randn(shape, device=device, dtype=dtype)


@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_is_added_to_the_layer(device, dtype, activation, layout, within):
    layer = layer_of(device, dtype=dtype, activation=activation, layout=layout)
    if within:
        layer.freeze(residual=True)
    error = ERRORS.get(dtype, 1e-5)
    for batch in (), (0,), (5,), (2, 3), (200,):
        x, r = operands(device, batch, dtype, layout == "batch_last")
        kept = r.clone()
        for gradients in False, True:
            with torch.set_grad_enabled(gradients):
                y = layer(x, residual=r)
            assert y.dtype == dtype and y.requires_grad == (gradients and not within)
            torch.testing.assert_close(
                y.double(), expected(layer, x, r), atol=error, rtol=error
            )
            assert torch.equal(r, kept)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
def test_gradients(device, activation, layout):
    options = {"dtype": torch.float64, "activation": activation, "layout": layout}
    layer = layer_of(device, **options)
    x, r = operands(device, (3,), torch.float64, layout == "batch_last")
    names = [name for name, _ in layer.named_parameters()]

    def function(x, r, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters)), (x, r))

    inputs = [t.detach().requires_grad_() for t in (x, r, *layer.parameters())]
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gradient_is_that_of_the_result(device, dtype, within):
    layer = layer_of(device, dtype=dtype, activation="gelu")
    if within:
        layer.freeze(residual=True)
    x, r = operands(device, (7,), dtype)
    dy = torch.randn_like(r)
    found = [t.detach().requires_grad_() for t in (x, r)]
    layer(*found).backward(dy)
    assert torch.equal(found[1].grad, dy)
    dense = [t.detach().double().requires_grad_() for t in (x, r)]
    expected(layer, *dense).backward(dy.double())
    error = ERRORS.get(dtype, 1e-5)
    torch.testing.assert_close(
        found[0].grad.double(), dense[0].grad, atol=error, rtol=error
    )
    layer.requires_grad_(False)  # what wants a gradient is the residual alone
    alone = r.detach().requires_grad_()
    layer(x, alone).backward(dy)
    assert torch.equal(alone.grad, dy)


def test_it_may_be_the_input_and_lie_in_any_way(device, within):
    torch.manual_seed(0)
    layer = KSLinear(12, 12, SQUARE, device=device)
    if within:
        layer.freeze(residual=True)
    x = torch.randn(6, 12, device=device)
    apart = torch.zeros(12, 6, device=device).t().copy_(x)
    wide = torch.zeros(6, 30, device=device)[:, 5:29:2].copy_(x)
    with torch.no_grad():
        for r in x, apart, wide, x[:1].expand(6, -1):
            torch.testing.assert_close(
                layer(x, r).double(), expected(layer, x, r), atol=1e-5, rtol=1e-5
            )
    both = x.clone().requires_grad_()
    layer(both, both).sum().backward()
    dense = layer.to_dense().detach().sum(0) + 1
    torch.testing.assert_close(both.grad, dense.expand(6, -1), atol=1e-5, rtol=1e-5)


# ---- types ----


@pytest.mark.parametrize("gradients", [False, True])
def test_other_types_are_promoted_as_sums_are(device, gradients):
    layer = layer_of(device)
    x, r = operands(device, (5,), torch.float32)
    kind = torch.device(device).type
    for residual in r, r.double(), r.half():
        with torch.set_grad_enabled(gradients):
            y = layer(x, residual)
            assert y.dtype == (residual + x[:, :1]).dtype
            torch.testing.assert_close(
                y.double(), expected(layer, x, residual), atol=1e-5, rtol=1e-5
            )
            with torch.autocast(kind, torch.bfloat16):
                y, narrow = layer(x, residual), layer(x)
            assert narrow.dtype == torch.bfloat16
            assert torch.equal(y, residual + narrow)


# ---- what does not fit ----


@pytest.mark.parametrize("gradients", [False, True])
def test_wrong_residuals(device, gradients):
    layer = layer_of(device)
    last = layer_of(device, layout="batch_last")
    x, r = operands(device, (5,), torch.float32)
    wrong = [
        r[0],  # nothing is repeated
        r[:1],
        r[:, :1],
        r[:, :12],
        r.t(),
        r[None],
        torch.zeros((), device=device),
    ]
    with torch.set_grad_enabled(gradients):
        for residual in wrong:
            with pytest.raises(ValueError, match=r"the result \(5, 24\)"):
                layer(x, residual)
        with pytest.raises(ValueError, match=r"the result \(24, 5\)"):
            last(x.t(), r)
        with pytest.raises(TypeError, match="has to be a tensor, not float"):
            layer(x, 1.0)
        with pytest.raises(ValueError, match="the residual is on meta"):
            layer(x, r.to("meta"))
        with pytest.raises(ValueError, match="5 features"):
            layer(x[:, :5], r)


def test_the_operator_takes_what_fits(device):
    layer = layer_of(device)
    x, r = operands(device, (5,), torch.float32)
    question = layer._sizes, "none", False, False, False
    with torch.no_grad():
        numbers = list(layer.weights), layer.bias, torch.float32, 5
        packed = ops.ks_pack(*numbers, *question, True)
        y = ops.ks_apply(x, packed, True, 5, *question, r)
        torch.testing.assert_close(
            y.double(), expected(layer, x, r), atol=1e-5, rtol=1e-5
        )
        again = torch.zeros_like(packed)
        ops.ks_pack_into(again, *numbers, *question, True)
        assert torch.equal(packed, again)
        for wrong in r[:3], r.t(), r.double(), r[:, :12]:
            with pytest.raises(RuntimeError, match="the residual's"):
                ops.ks_apply(x, packed, True, 5, *question, wrong)
        assert "residual" in ops.ks_describe(x, 5, *question, True)
        assert "residual" not in ops.ks_describe(x, 5, *question)
        for op, arguments in (
            (ops.ks_apply, (x, packed, True, 5, *question, r)),
            (ops.ks_pack, (*numbers, *question, True)),
        ):
            torch.library.opcheck(op.default, arguments)


# ---- packed weights ----


def test_weights_are_those_of_now(device):
    layer = layer_of(device)
    x, r = operands(device, (7,), torch.float32)
    with torch.no_grad():
        for _ in range(3):
            for residual in r, None:
                y = layer(x, residual)
                wanted = expected(
                    layer, x, torch.zeros_like(r) if residual is None else r
                )
                torch.testing.assert_close(y.double(), wanted, atol=1e-4, rtol=1e-4)
            layer.weights[0].mul_(-1.5)
            layer.bias.data.add_(1)


@pytest.mark.parametrize("residual", [False, True])
def test_frozen_layers(device, residual):
    layer = layer_of(device, activation="gelu")
    x, r = operands(device, (5,), torch.float32)
    plain = expected(layer, x, torch.zeros_like(r)).detach()
    wanted = expected(layer, x, r).detach()
    layer.freeze(5, residual=residual)
    for frozen in layer, copy.deepcopy(layer), copy.deepcopy(layer).double().float():
        assert frozen._frozen.residual == residual
        for found, y in (frozen(x, r), wanted), (frozen(x), plain):
            assert not found.requires_grad
            torch.testing.assert_close(found.double(), y, atol=1e-5, rtol=1e-5)
    inputs = [t.clone().requires_grad_() for t in (x, r)]
    layer(*inputs).sum().backward()
    assert torch.equal(inputs[1].grad, torch.ones_like(r))
    assert inputs[0].grad.abs().sum() > 0


def test_inference_mode_and_meta(device, within):
    layer = layer_of(device)
    if within:
        layer.freeze(residual=True)
    x, r = operands(device, (5,), torch.float32)
    wanted = expected(layer, x, r).float().detach()
    with torch.inference_mode():
        torch.testing.assert_close(layer(x, r), wanted, atol=1e-5, rtol=1e-5)
        born = layer_of(device)  # its parameters have no version
        torch.testing.assert_close(born(x, r), wanted, atol=1e-5, rtol=1e-5)
    with torch.device("meta"):
        layer = KSLinear(12, 24, CHAIN)
    for gradients in False, True:
        with torch.set_grad_enabled(gradients):
            assert layer(x.to("meta"), r.to("meta")).shape == (5, 24)


# ---- tracing and transforming ----


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("frozen", ["no", "without", "with"])
def test_compiled_layers(device, frozen, dynamic):
    layer = layer_of(device, activation="silu")
    if frozen != "no":
        layer.freeze(residual=frozen == "with")
    fast = compiled(layer, dynamic=dynamic)
    for batch in (3,), (64,), (5, 2):
        x, r = operands(device, batch, torch.float32)
        with torch.no_grad():
            torch.testing.assert_close(fast(x, r), layer(x, r))
        results = []
        for model in fast, layer:
            inputs = [t.clone().requires_grad_() for t in (x, r)]
            model(*inputs).square().sum().backward()
            results.append([t.grad for t in inputs])
        for found, wanted in zip(*results):
            torch.testing.assert_close(found, wanted)


def test_frozen_layers_add_it_in_the_product(device):
    layer = layer_of(device).freeze(residual=True)
    x, r = operands(device, (5,), torch.float32)
    graphs = []

    def backend(graph, inputs):
        graphs.append(str(graph.code))
        return graph.forward

    fast = compiled(layer, backend)
    with torch.no_grad():
        torch.testing.assert_close(fast(x, r), layer(x, r))
        exported = torch.export.export(layer, (x, r)).module()
        torch.testing.assert_close(exported(x, r), layer(x, r))
    assert "ks_apply" in graphs[0]
    assert "+" not in graphs[0] and "ks_pack" not in graphs[0]


def test_functions_of_functions(device, within):
    layer = layer_of(device, dtype=torch.float64)
    if within:
        layer.freeze(residual=True)
    x, r = operands(device, (3, 4), torch.float64)
    wanted = expected(layer, x, r)
    for gradients in False, True:
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(torch.func.vmap(layer)(x, r), wanted)
            shared = torch.func.vmap(layer, in_dims=(0, None))(x, r[0])
            torch.testing.assert_close(shared, expected(layer, x, r[:1]))
    gradient = torch.func.grad(lambda r: layer(x, r).square().sum())(r)
    torch.testing.assert_close(gradient, 2 * wanted)
