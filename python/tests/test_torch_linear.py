"""KSLinear: values, packed weights that are those of now, checkpoints, conversions."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import io
import pickle
import threading

import numpy as np
import pytest

import danaus

torch = pytest.importorskip("torch")

from danaus.torch import (  # noqa: E402
    KSLinear,
    MonarchLinear,
    freeze,
    fuse_qkv,
)

CHAIN = "2,6,5,2 4,5,3,1"  # 24 x 12
DTYPES = torch.float32, torch.float64, torch.float16, torch.bfloat16
ACTIVATIONS = {
    None: lambda v: v,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


def layer_of(device, seed=0, **options) -> KSLinear:
    torch.manual_seed(seed)
    return KSLinear(12, 24, CHAIN, device=device, **options)


def dense_of(layer: KSLinear) -> tuple[torch.Tensor, torch.Tensor]:
    """The layer's matrix by NumPy, and its bias."""
    matrix = layer.to_chain().astype("f64").to_dense()
    first = layer.weights[0]
    return torch.from_numpy(matrix).to(first.device), layer.bias.double()


def expected(layer: KSLinear, x: torch.Tensor) -> torch.Tensor:
    matrix, bias = dense_of(layer)
    y = torch.nn.functional.linear(x.double(), matrix, bias)
    return ACTIVATIONS[layer.activation if layer.activation != "none" else None](y)


def check(layer: KSLinear, x: torch.Tensor) -> None:
    """Without gradients, with them, and as it was before."""
    error = {torch.float16: 1e-2, torch.bfloat16: 6e-2}.get(x.dtype, 1e-5)
    y = expected(layer, x)
    with torch.no_grad():
        torch.testing.assert_close(layer(x).double(), y, atol=error, rtol=error)
    torch.testing.assert_close(layer(x).double(), y, atol=error, rtol=error)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_a_layer_is_its_dense_matrix(device, dtype, activation):
    layer = layer_of(device, dtype=dtype, activation=activation)
    for shape in (12,), (0, 12), (5, 12), (2, 3, 12), (200, 12):
        check(layer, torch.randn(shape, device=device, dtype=dtype))
    torch.testing.assert_close(
        layer.to_dense().double(), dense_of(layer)[0], atol=1e-2, rtol=1e-2
    )


def test_batch_last_is_the_other_way_round(device):
    first, last = layer_of(device), layer_of(device, layout="batch_last")
    x = torch.randn(12, 4, 3, device=device)
    for gradients in False, True:
        with torch.set_grad_enabled(gradients):
            y = first(x.movedim(0, -1)).movedim(-1, 0)
            torch.testing.assert_close(last(x), y)


@pytest.mark.parametrize(
    "chain", ["1,64,48,1", "1,8,8,8 8,8,6,1", "2,4,4,4 2,8,8,2 8,2,3,2"]
)
def test_initial_variance_is_that_of_nn_linear(chain):
    torch.manual_seed(1)
    squares, outputs = [], []
    x = torch.randn(200, 48)
    for _ in range(60):
        layer = KSLinear(48, danaus.patterns.parse(chain)[0].rows, chain)
        squares.append(float(layer.to_dense().detach().square().sum(1).mean()))
        outputs.append(float(layer(x).detach().var()))
        assert layer.bias.abs().max() <= 48**-0.5
    linear = torch.nn.Linear(48, 64)
    assert np.mean(squares) == pytest.approx(1 / 3, rel=0.05)
    assert np.mean(outputs) == pytest.approx(float(linear(x).detach().var()), rel=0.15)


# ---- packed weights ----


def _step(layer, x):
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    layer(x).square().sum().backward()
    optimizer.step()


def _unseen(layer, x):
    """As FSDP and fused optimizers do it: no version counts the change."""
    with (
        torch.no_grad(),
        torch.autograd._unsafe_preserve_version_counter(layer.weights[0]),
    ):
        layer.weights[0].add_(1)


@torch.inference_mode()
def _in_inference_mode(layer):
    layer.weights[0].mul_(2)


CHANGES = {
    "in place": lambda layer, x: layer.weights[1].detach().mul_(2),
    "a bias": lambda layer, x: layer.bias.detach().add_(1),
    "by an optimizer": _step,
    "no version": _unseen,
    "through data": lambda layer, x: layer.weights[0].data.copy_(
        layer.weights[0].data + 1
    ),
    "by an average": lambda layer, x: torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)(
        list(layer.parameters()), list(layer_of(x.device, seed=7).parameters()), 1
    ),
    "swapped": lambda layer, x: torch.utils.swap_tensors(
        layer.weights[0], torch.nn.Parameter(layer.weights[0].detach() + 1)
    ),
    "in inference mode": lambda layer, x: _in_inference_mode(layer),
    "replaced in the dictionary": lambda layer, x: layer.weights._parameters.update(
        {"0": torch.nn.Parameter(layer.weights[0].detach() + 1)}
    ),
    "other data": lambda layer, x: setattr(
        layer.weights[0], "data", layer.weights[0].data + 1
    ),
    "another parameter": lambda layer, x: layer.weights.__setitem__(
        0, torch.nn.Parameter(layer.weights[0].detach() + 1)
    ),
    "loaded": lambda layer, x: layer.load_state_dict(
        layer_of(x.device, seed=9).state_dict()
    ),
    "assigned": lambda layer, x: layer.load_state_dict(
        layer_of(x.device, seed=9).state_dict(), assign=True
    ),
    "a chain": lambda layer, x: layer.load_chain(layer_of("cpu", seed=8).to_chain()),
    "initialised": lambda layer, x: layer.reset_parameters(),
    "rounded": lambda layer, x: layer.half().float(),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_weights_are_those_of_now(device, change):
    layer = layer_of(device)
    x = torch.randn(7, 12, device=device)
    with torch.no_grad():
        before = layer(x)
    CHANGES[change](layer, x)
    layer.zero_grad()
    with torch.no_grad():
        assert not torch.equal(layer(x), before)
    check(layer, x)
    check(layer, torch.randn(300, 12, device=device))


@pytest.mark.parametrize("make", ("data", "parameter"))
def test_weights_that_changed_twice_are_those_of_now(device, make):
    """The second of two new weights often lies where the first ones did."""
    layer = KSLinear(64, 64, "1,8,8,8 8,8,8,1", bias=False, device=device)
    x = torch.randn(7, 64, device=device)

    def change(factor: float) -> None:
        if make == "data":
            layer.weights[0].data = layer.weights[0].data * factor
        else:
            layer.weights[0] = torch.nn.Parameter(layer.weights[0].detach() * factor)

    with torch.no_grad():
        for _ in range(50):
            y = x @ layer.to_dense().mT
            torch.testing.assert_close(layer(x), y, atol=1e-5, rtol=1e-5)
            change(3), change(-0.3)


class Doubled(torch.nn.Module):
    def forward(self, w):
        return 2 * w


@pytest.mark.parametrize("name", ("0", "1", "bias"))
def test_parametrized_layers(device, name):
    layer = layer_of(device, activation="gelu")
    owner = layer if name == "bias" else layer.weights
    torch.nn.utils.parametrize.register_parametrization(owner, name, Doubled())
    original = owner.parametrizations[name].original
    for _ in range(2):
        check(layer, torch.randn(7, 12, device=device))
        original.detach().mul_(0.7)
    layer(torch.randn(7, 12, device=device)).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_batch_sizes_share_what_is_packed():
    layer = layer_of("cpu")
    with torch.no_grad():
        for batch in range(1, 70):
            layer(torch.randn(batch, 12))
    texts = {layer.describe(torch.zeros(2**n, 12)) for n in range(8)}
    assert len(layer._packed.memory) == len(texts) < 8


def test_inference_mode(device):
    layer, x = layer_of(device), torch.randn(5, 12, device=device)
    y = expected(layer, x).float()
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), y.detach(), atol=1e-5, rtol=1e-5)
        born = layer_of(device)  # its parameters have no version
        for _ in range(2):
            torch.testing.assert_close(born(x), layer(x), atol=1e-5, rtol=1e-5)
            born.weights[0].zero_(), layer.weights[0].zero_()


def test_frozen_layers(device):
    model = torch.nn.Sequential(layer_of(device, activation="gelu"), layer_of(device))
    model = torch.nn.Sequential(
        model[0], torch.nn.Linear(24, 12, device=device), model[1]
    )
    x = torch.randn(5, 12, device=device)
    with torch.no_grad():
        y = model(x)
    assert freeze(model, batch=5) is model
    torch.testing.assert_close(model(x), y)
    assert not any(p.requires_grad for p in model[0].parameters())
    assert "packed" not in " ".join(model.state_dict())
    x.requires_grad_()
    model(x).sum().backward()
    assert x.grad.abs().sum() > 0
    with torch.no_grad():  # moved, converted, loaded: packed anew
        double = copy.deepcopy(model).double()
        torch.testing.assert_close(double(x.double()).float(), y)
        other = layer_of(device, seed=4, activation="gelu")
        model[0].load_state_dict(other.state_dict())
        torch.testing.assert_close(model[0](x), other(x))
        torch.testing.assert_close(copy.deepcopy(model)(x), model(x))
    assert model[0].unfreeze().weights[0].requires_grad


def test_a_frozen_layer_keeps_its_product_until_it_is_trained(device):
    layer, x = layer_of(device), torch.randn(5, 12, device=device)
    layer.bias.requires_grad_(False)
    y = layer.freeze(batch=5)(x)
    layer.weights[0].data.mul_(2)
    assert torch.equal(layer(x), y)
    assert not torch.equal(layer.freeze()(x), y)
    layer.requires_grad_(True)
    _step(layer, x)
    check(layer, x)
    layer.bias.requires_grad_(False)
    layer.freeze().freeze().unfreeze()
    trained = {name: p.requires_grad for name, p in layer.named_parameters()}
    assert trained == {"weights.0": True, "weights.1": True, "bias": False}


def test_two_threads_with_one_layer(device):
    layer = layer_of(device)
    inputs = [torch.randn(n, 12, device=device) for n in (1, 3, 40, 300)]
    with torch.no_grad():
        outputs = [expected(layer, x).float() for x in inputs]
    failures = []

    def work():
        with torch.no_grad():
            for _ in range(40):
                for x, y in zip(inputs, outputs):
                    if not torch.allclose(layer(x), y, atol=1e-4):
                        failures.append(x.shape)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ---- checkpoints and copies ----


def test_what_other_threads_read_is_left_alone():
    layer, x = layer_of("cpu"), torch.randn(5, 12)
    with torch.no_grad():
        layer(x)
        (held,) = layer._packed.memory.values()
        packed = held[0][0]
        before = packed.clone()
        layer.weights[0].mul_(2)
        layer(x)
    assert torch.equal(packed, before)


def test_state_dicts_hold_canonical_weights(device, tmp_path):
    layer = layer_of(device)
    state = layer.state_dict()
    assert set(state) == {"weights.0", "weights.1", "bias"}
    assert state["weights.0"].shape == (2, 6, 5, 2)
    torch.save(state, tmp_path / "layer.pt")
    loaded = layer_of(device, seed=1)
    loaded.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    x = torch.randn(5, 12, device=device)
    assert torch.equal(loaded(x), layer(x))


def test_safetensors_and_chain_files(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    for dtype in (*DTYPES, torch.complex64):
        layer, path = layer_of("cpu", dtype=dtype), tmp_path / "layer.safetensors"
        layer.to_chain().save(path)
        tensors = safetensors.load_file(path)
        assert torch.equal(tensors["factor.1"], layer.weights[1])
        assert torch.equal(tensors["bias"], layer.bias)
        again = KSLinear(12, 24, chain=danaus.Chain.load(path), dtype=dtype)
        for a, b in zip(again.parameters(), layer.parameters()):
            assert torch.equal(a, b)
        if dtype != torch.complex64:
            safetensors.save_file(layer.state_dict(), path)
            again.load_state_dict(safetensors.load_file(path))


def test_copies_and_pickles(device):
    layer, x = layer_of(device, activation="relu"), torch.randn(5, 12, device=device)
    with torch.no_grad():
        y = layer(x)
        for copied in copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)):
            assert torch.equal(copied(x), y)
            layer_memory = [m[0][0].data_ptr() for m in layer._packed.memory.values()]
            for memory in copied._packed.memory.values():
                assert memory[0][0].data_ptr() not in layer_memory
    stream = io.BytesIO()
    torch.save(layer, stream)
    stream.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(stream, weights_only=True)


def test_meta_device(device):
    with torch.device("meta"):
        layer = KSLinear(12, 24, CHAIN, activation="gelu")
    assert layer(torch.empty(3, 12, device="meta")).shape == (3, 24)
    with torch.no_grad():
        assert layer(torch.empty(3, 12, device="meta")).shape == (3, 24)
    layer = layer.to_empty(device=device)
    layer.load_state_dict(layer_of(device).state_dict())
    check(layer, torch.randn(3, 12, device=device))


# ---- other ways to make layers ----


def test_budget_and_chain():
    layer = KSLinear(64, 64, budget=0.5)
    assert sum(w.numel() for w in layer.weights) <= 0.5 * 64 * 64
    assert KSLinear(64, 64, budget=1500, bias=False).bias is None
    check(layer, torch.randn(4, 64))
    chain = layer.to_chain()
    other = KSLinear(64, 64, chain=chain)
    assert torch.equal(other(torch.ones(64)), layer(torch.ones(64)))


@pytest.mark.parametrize("blocks", [None, 4])
def test_monarch_layers(device, blocks):
    layer = MonarchLinear(32, 48, blocks, device=device)
    if blocks:
        assert sum(w.numel() for w in layer.weights) == 4 * (32 + 48)
    check(layer, torch.randn(4, 32, device=device))
    with pytest.raises(ValueError, match="divisor of both sizes"):
        MonarchLinear(32, 48, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_from_linear(rng, device, dtype):
    exact = MonarchLinear(16, 16, 4, dtype=torch.float32)
    linear = torch.nn.Linear(16, 16, device=device, dtype=dtype)
    linear.weight.data.copy_(exact.to_dense())
    x = torch.randn(9, 16, device=device, dtype=dtype)
    layer = KSLinear.from_linear(linear, patterns=exact.patterns, activation="relu")
    assert layer.weights[0].dtype == dtype
    error = 1e-5 if dtype == torch.float32 else 5e-2
    y = torch.relu(linear(x))
    torch.testing.assert_close(layer(x), y, atol=error, rtol=error)
    copied = KSLinear.from_linear(linear, exact.to_chain())
    torch.testing.assert_close(copied(x), linear(x), atol=error, rtol=error)
    assert KSLinear.from_linear(linear, params=0.5).bias is not linear.bias


def test_calibration_lowers_the_error_on_its_inputs():
    torch.manual_seed(3)
    linear = torch.nn.Linear(16, 16)
    x = torch.randn(300, 16) @ torch.diag(torch.logspace(0, -2, 16))
    plain = KSLinear.from_linear(linear, params=0.5)
    fitted = KSLinear.from_linear(linear, params=0.5, inputs=x.reshape(3, 100, 16))
    y = linear(x)
    assert (fitted(x) - y).norm() < 0.9 * (plain(x) - y).norm()


@pytest.mark.parametrize("chain", ["1,24,4,1 1,4,12,1", CHAIN, "1,24,12,1"])
@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
def test_layers_of_one_input_are_one_call(device, chain, layout):
    make = {"device": device, "layout": layout}
    layers = [KSLinear(12, 24, chain, **make) for _ in range(3)]
    fused = fuse_qkv(*layers)
    assert (fused.layer is not None) == (chain != CHAIN)
    x = torch.randn(*((12, 5) if layout == "batch_last" else (5, 12)), device=device)
    for gradients in False, True:
        with torch.set_grad_enabled(gradients):
            for y, layer in zip(fused.split(fused(x)), layers):
                torch.testing.assert_close(y, layer(x))
    fused(x).sum().backward()
    assert all(p.grad is not None for p in fused.parameters())


def test_layers_of_several_kinds_run_one_after_the_other():
    layers = KSLinear(12, 24, CHAIN), KSLinear(12, 6, "1,6,12,1", activation="relu")
    fused, x = fuse_qkv(*layers), torch.randn(5, 12)
    for y, layer in zip(fused.split(fused(x)), layers):
        torch.testing.assert_close(y, layer(x))
    with pytest.raises(ValueError, match="different inputs"):
        fuse_qkv(layers[0], KSLinear(6, 6, "1,6,6,1"))
    with pytest.raises(TypeError, match="KSLinear"):
        fuse_qkv(torch.nn.Linear(3, 3))


def test_wrong_layers_are_refused():
    chain = layer_of("cpu").to_chain()
    wrong = [
        ({}, "one of patterns"),
        ({"patterns": CHAIN, "budget": 0.5}, "one of patterns"),
        ({"patterns": "1,3,4,1"}, "the patterns are"),
        ({"patterns": "1,24,5,1 1,6,12,1"}, "columns"),
        ({"patterns": "1,24"}, "pattern"),
        ({"patterns": CHAIN, "activation": "tanh"}, "activation has to be"),
        ({"patterns": CHAIN, "layout": "sideways"}, "layout has to be"),
        ({"patterns": CHAIN, "dtype": torch.int32}, "gradients|type"),
        ({"budget": 1.5}, "share"),
    ]
    for options, sentence in wrong:
        with pytest.raises((ValueError, RuntimeError), match=sentence):
            KSLinear(12, 24, **options)
    for blocks in -2, 0, 5:
        with pytest.raises(ValueError, match=f"blocks is {blocks}; an order of 2 and"):
            MonarchLinear(12, 24, blocks)
    for build in MonarchLinear, lambda *sizes: KSLinear(*sizes, budget=0.5):
        with pytest.raises(ValueError, match="in_features has to be from 1"):
            build(0, 24)
        with pytest.raises(TypeError, match="out_features has to be a whole number"):
            build(12, 24.0)
    with pytest.raises(TypeError, match=r"inputs have to be a tensor.*not ndarray"):
        KSLinear.from_linear(
            torch.nn.Linear(12, 24), patterns=CHAIN, inputs=np.ones((2, 12))
        )
    for shape in (2, 24), (5, 6), ():  # some have numbers for rows of 12
        with pytest.raises(ValueError, match="inputs have the shape"):
            KSLinear.from_linear(
                torch.nn.Linear(12, 24), patterns=CHAIN, inputs=torch.ones(shape)
            )
    with pytest.raises(ValueError, match="the layer is"):
        KSLinear(11, 24, chain=chain)
    with pytest.raises(ValueError, match="other patterns"):
        KSLinear(12, 24, "1,24,12,1").load_chain(chain)
    with pytest.raises(TypeError, match=r"torch.nn.Linear"):
        KSLinear.from_linear(layer_of("cpu"), params=0.5)
    with pytest.raises(ValueError, match="one of chain"):
        KSLinear.from_linear(torch.nn.Linear(3, 3))


def test_a_layer_says_what_it_is():
    text = repr(layer_of("cpu", activation="gelu", layout="batch_last"))
    for part in "12, 24", CHAIN, "'gelu'", "'batch_last'":
        assert part in text
    assert "by ks." in layer_of("cpu").describe(torch.zeros(4, 12))
    assert np.isfinite(layer_of("cpu").to_chain().to_dense()).all()
