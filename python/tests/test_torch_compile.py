"""What PyTorch does around KSLinear: tracing, exporting, autocast, checkpoints."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import shutil

import pytest

torch = pytest.importorskip("torch")

from compiling import compiled  # noqa: E402

from danaus.torch import KSLinear, functional  # noqa: E402

CHAIN = "2,6,5,2 4,5,3,1"  # 24 x 12
BACK = "1,12,6,1 1,6,24,1"  # 12 x 24


def network(device, **options):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.LayerNorm(12, device=device),
        KSLinear(12, 24, CHAIN, activation="gelu", device=device),
        KSLinear(24, 12, BACK, device=device, **options),
    )


def gradients(model, x):
    model.zero_grad()
    y = model(x)
    y.float().square().sum().backward()
    return [y.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiled_networks(device, dynamic):
    model = network(device)
    fast = compiled(model, dynamic=dynamic)
    for batch in (3,), (5, 2), (64,):
        x = torch.randn(*batch, 12, device=device)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x))
        expected = gradients(model, x)
        model.zero_grad()
        for found, wanted in zip(gradients(fast, x), expected):
            torch.testing.assert_close(found, wanted)


def test_compiled_networks_see_new_weights(device):
    model, x = network(device), torch.randn(3, 12, device=device)
    fast = compiled(model)
    with torch.no_grad():
        fast(x)
        model[1].weights[0].add_(1)
        torch.testing.assert_close(fast(x), model(x))


@pytest.mark.skipif(not shutil.which("g++"), reason="the inductor needs a compiler")
def test_compiled_by_the_inductor(device):
    model, x = network(device), torch.randn(5, 12, device=device)
    fast = compiled(model, "inductor")
    for found, wanted in zip(gradients(fast, x), gradients(model, x)):
        torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))


def test_the_function_compiles(device):
    layer, x = network(device)[1], torch.randn(5, 12, device=device)

    def function(x, bias, *weights):
        return functional.ks_linear(x, weights, bias, activation="silu").sum()

    operands = x, layer.bias, *layer.weights
    torch.testing.assert_close(compiled(function)(*operands), function(*operands))


def test_frozen_networks_pack_nothing_when_they_run(device):
    model, x = network(device), torch.randn(5, 12, device=device)
    with torch.no_grad():
        y = model(x)
    for layer in model[1:]:
        layer.freeze(batch=5)
    graphs = []

    def keep(graph, inputs):
        graphs.append(str(graph.code))
        return graph

    fast = compiled(model, keep)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), y)
    assert "ks_apply" in graphs[0]
    assert "ks_linear" not in graphs[0] and "ks_pack" not in graphs[0]


@pytest.mark.parametrize("frozen", [False, True], ids=["weights", "packed"])
@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
def test_exported_programs(device, tmp_path, frozen, strict):
    model, x = network(device), torch.randn(5, 12, device=device)
    with torch.no_grad():
        y = model(x)
    if frozen:
        for layer in model[1:]:
            layer.freeze(batch=5)
    batch = torch.export.Dim("batch", min=2, max=100)
    program = torch.export.export(
        model, (x,), dynamic_shapes=[{0: batch}], strict=strict
    )
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), y)
        torch.testing.assert_close(loaded(x[:3]), y[:3])


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_casts_as_for_nn_linear(device, dtype, how):
    layer, linear = network(device)[1], torch.nn.Linear(12, 24, device=device)
    run = compiled(layer) if how == "compiled" else layer
    x = torch.randn(5, 12, device=device, requires_grad=True)
    with torch.autocast(device, dtype):
        assert run(x).dtype == linear(x).dtype == dtype
        run(x).float().sum().backward()
        assert functional.ks_linear(x, list(layer.weights)).dtype == dtype
        with torch.no_grad():
            assert run(x).dtype == dtype
            error = {torch.float16: 1e-2, torch.bfloat16: 5e-2}[dtype]
            exact = copy.deepcopy(layer).double()
        with torch.autocast(device, enabled=False):
            assert run(x).dtype == torch.float32
            torch.testing.assert_close(
                exact(x.double()).float(), run(x), atol=error, rtol=error
            )
        # f64 is left alone, as by PyTorch's own products.
        assert exact(x.double()).dtype == torch.float64
    assert x.grad.dtype == layer.weights[0].grad.dtype == torch.float32


def test_activation_checkpoints(device):
    model, x = network(device), torch.randn(5, 12, device=device)

    from torch.utils.checkpoint import checkpoint

    def run(x):
        return checkpoint(model, x, use_reentrant=False)

    expected = gradients(model, x)
    model.zero_grad()
    run(x).square().sum().backward()
    for p, wanted in zip(model.parameters(), expected[1:]):
        assert torch.equal(p.grad, wanted)


def test_deterministic_mode(device):
    model, x = network(device), torch.randn(50, 12, device=device)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        first = gradients(model, x)
        for _ in range(3):
            for a, b in zip(first, gradients(model, x)):
                assert torch.equal(a, b)
    finally:
        torch.use_deterministic_algorithms(before)


def test_training_lowers_the_loss(device):
    torch.manual_seed(1)
    model = network(device)
    x = torch.randn(64, 12, device=device)
    target = torch.roll(x, 1, dims=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    with torch.no_grad():  # packed anew after the last step
        loss = torch.nn.functional.mse_loss(model(x), target)
    assert float(loss) < losses[-1] * 1.2


@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
def test_torch_func(device, layout):
    from torch.func import functional_call, grad, jacrev, vmap

    options = {"activation": "silu", "layout": layout, "device": device}
    layer = KSLinear(12, 24, CHAIN, dtype=torch.float64, **options)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    shape = (12, 3) if layout == "batch_last" else (3, 12)
    samples = torch.randn(4, *shape, dtype=torch.float64, device=device)

    def run(parameters, x):
        return functional_call(layer, parameters, (x,))

    def loss(parameters, x):
        return run(parameters, x).square().sum()

    gradients = vmap(grad(loss), (None, 0))(parameters, samples)
    for n, x in enumerate(samples):
        alone = torch.autograd.grad(
            loss(dict(layer.named_parameters()), x), [*layer.parameters()]
        )
        for found, wanted in zip(gradients.values(), alone):
            torch.testing.assert_close(found[n], wanted)
    moved = vmap(run, (None, 1), 1)(parameters, samples.transpose(0, 1))
    torch.testing.assert_close(moved[:, 2], layer(samples[2]))
    two = {name: torch.stack([p, 2 * p]) for name, p in parameters.items()}
    members = vmap(run, (0, None))(two, samples[0])
    torch.testing.assert_close(members[0], layer(samples[0]))

    def value(x):
        return layer(x).sum()

    again = torch.autograd.functional.hessian(value, samples[0])
    torch.testing.assert_close(jacrev(jacrev(value))(samples[0]), again)


@pytest.mark.parametrize("frozen", (None, {}, {"residual": True}))
def test_forward_mode(device, frozen):
    from torch.autograd import forward_ad
    from torch.func import hessian, jacfwd, jacrev, jvp, vmap

    layer = KSLinear(12, 24, CHAIN, dtype=torch.float64, device=device)
    if frozen is not None:
        layer.freeze(**frozen)
    w = layer.to_dense().detach()
    x, t = torch.randn(2, 4, 3, 12, dtype=torch.float64, device=device)
    for mode in torch.no_grad, torch.enable_grad:
        with mode():
            torch.testing.assert_close(jvp(layer, (x,), (t,))[1], t @ w.mT)
            torch.testing.assert_close(jvp(vmap(layer), (x,), (t,))[1], t @ w.mT)
            r, tr = (torch.randn_like(t @ w.mT) for _ in "ab")
            torch.testing.assert_close(jvp(layer, (x, r), (t, tr))[1], tr + t @ w.mT)
            with forward_ad.dual_level():
                y = layer(forward_ad.make_dual(x, t))
                torch.testing.assert_close(forward_ad.unpack_dual(y)[1], t @ w.mT)
    x = x[0, 0]
    torch.testing.assert_close(jacfwd(layer)(x), w)
    torch.testing.assert_close(
        hessian(lambda x: layer(x).square().sum())(x), 2 * w.mT @ w
    )

    def loss(*weights):
        return functional.ks_linear(x, weights, layer.bias).sin().sum()

    weights = [p.detach() for p in layer.weights]
    for n in range(len(weights)):
        wanted = jacrev(jacrev(loss, n), n)(*weights)
        torch.testing.assert_close(hessian(loss, n)(*weights), wanted)
        torch.testing.assert_close(jacfwd(loss, n)(*weights), jacrev(loss, n)(*weights))


def test_gradients_outside_of_vmap(device):
    """As of ensembles, whose stacked parameters are trained."""
    from torch.func import functional_call, stack_module_state, vmap

    layers = [KSLinear(12, 24, CHAIN, activation="gelu", device=device) for _ in "ab"]
    parameters, _ = stack_module_state(layers)
    x = torch.randn(2, 3, 12, device=device, requires_grad=True)
    alone = x.detach().requires_grad_()

    def run(parameters, x):
        return functional_call(layers[0], parameters, (x,))

    vmap(run)(parameters, x).square().sum().backward()
    sum(layer(row).square().sum() for layer, row in zip(layers, alone)).backward()
    torch.testing.assert_close(x.grad, alone.grad)
    for n, layer in enumerate(layers):
        for name, p in layer.named_parameters():
            torch.testing.assert_close(parameters[name].grad[n], p.grad)
    frozen = KSLinear(12, 24, CHAIN, device=device).freeze()
    x.grad = None
    vmap(frozen)(x).sum().backward()
    torch.testing.assert_close(x.grad, frozen.to_dense().sum(0).expand_as(x))


def test_what_pytorch_allows_is_traced():
    asked = compiled(
        lambda x: 2 * x if functional._pytorch_allows_tf32() else 3 * x, "eager"
    )
    assert torch.equal(asked(torch.ones(2)), torch.full((2,), 3.0))
