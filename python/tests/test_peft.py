"""BOFT of danaus.peft beside its definition in f64, and beside PEFT's own."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import json
import subprocess
import sys

import numpy as np
import pytest

from conftest import bench_records

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft", reason="peft is not installed")

from peft.tuners.boft import layer as theirs  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from danaus.peft import BOFTConfig, BOFTModel, replace_boft  # noqa: E402
from danaus.torch._cayley import cayley  # noqa: E402
from danaus.torch.peft.rotations import groups_of, rotate  # noqa: E402

UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


class BlockDiagonal:
    """PEFT's CUDA extension, without which it computes one factor only."""

    @staticmethod
    def apply(blocks):
        return torch.stack([torch.block_diag(*factor) for factor in blocks])


@pytest.fixture
def extension(monkeypatch):
    monkeypatch.setattr(theirs, "get_fbd_cuda", lambda: True)
    monkeypatch.setattr(theirs, "FastBlockDiag", BlockDiagonal)


@pytest.fixture(autouse=True)
def seed(rng):
    torch.manual_seed(int(rng.integers(1 << 31)))


def exact_rotation(r: np.ndarray) -> np.ndarray:
    """Q by definition: F_(m-1) ... F_0, whose block (a, p) has the numbers (g, t)."""
    m, count, b, _ = r.shape
    q = np.eye(count * b)
    for i in range(m):
        factor = np.zeros_like(q)
        for block in range(count):
            places = range(block * b, block * b + b)
            if m > 1:
                a, p = divmod(block, 1 << i)
                half = b // 2
                firsts = [(((2 * a + g) << i) + p) * half for g in range(2)]
                places = [first + t for first in firsts for t in range(half)]
            skew = (r[i, block] - r[i, block].T) / 2
            eye = np.eye(b)
            turned = (eye - skew) @ np.linalg.inv(eye + skew)
            factor[np.ix_(places, places)] = turned
        q = factor @ q
    return q


def rotation_bound(r, unit: float) -> float:
    """Bounds the 2-norm of the error of Q.

    The inverse of I + K, whose norm is at most 1, has an error of 4 b units times the
    norm of I + K; products with orthogonal blocks add a unit for each of their numbers.
    """
    m, count, b, _ = r.shape
    norm = 1 + float(torch.linalg.matrix_norm((r - r.mT).double() / 2, 2).max())
    return m * (8 * b * norm + min(b << m, count * b)) * unit


SHAPES = [(21, 7, 1), (24, 6, 3), (40, 10, 2), (48, 2, 4), (36, 12, 1), (72, 18, 3)]
SHAPES += [(768, 6, 8)]  # more than one group


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("shape", SHAPES)
def test_rotations_are_the_product_of_their_factors(shape, dtype):
    n, b, m = shape
    r = torch.randn(m, n // b, b, b, dtype=dtype)
    exact = exact_rotation(r.double().numpy())
    bound = rotation_bound(r, UNIT[dtype])
    eye = torch.eye(n, dtype=dtype)
    for most in (b, 4 * b, 256):
        groups = groups_of(r, most=most)
        q, back = rotate(eye, groups), rotate(eye, groups, back=True)
        assert np.linalg.norm(q.double().numpy() - exact, 2) <= bound
        assert np.linalg.norm(back.double().numpy() - exact.T, 2) <= bound


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5, 8, 16, 32, 33])
def test_transforms_and_gradients_are_those_of_solving(size, transposed, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    r = torch.randn(3, 2, size, size, device=device, requires_grad=True)
    dq = torch.randn(3, 2, size, size, device=device)
    exact = r.detach().double().requires_grad_()
    skew = (exact - exact.mT) / 2
    eye = torch.eye(size, dtype=torch.float64, device=device)
    wanted = torch.linalg.solve(eye + skew, eye - skew)
    wanted = wanted.mT if transposed else wanted
    q = cayley(r, transposed)
    # Rounded once; beyond the kernel's sizes PyTorch solves in f32.
    bound = 2.0**-24 * (1 if size <= 32 else 16 * size)
    assert (q - wanted).abs().max() <= 2 * bound
    q.backward(dq)
    wanted.backward(dq.double())
    # q is rounded: M has three factors, each with an error of a unit of q's rows.
    limit = 8 * size * bound * float(torch.linalg.matrix_norm(dq).max())
    assert (r.grad - exact.grad).abs().max() <= limit


def test_transforms_may_be_differentiated_again():
    r = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    for transposed in (False, True):
        assert torch.autograd.gradcheck(cayley, (r, transposed))
        assert torch.autograd.gradgradcheck(cayley, (r, transposed))
    exact = torch.func.vmap(lambda r: cayley(r, True))(r)
    torch.testing.assert_close(exact, cayley(r, True))


def options(shape, **more) -> dict:
    _, b, m = shape
    return {"boft_block_size": b, "boft_n_butterfly_factor": m, **more}


def pair(base: nn.Module, **options) -> tuple:
    """PEFT's model and ours with the same random adapter."""
    options = {"target_modules": ["0"], "init_weights": False} | options
    models = [
        peft.get_peft_model(
            copy.deepcopy(base), kind(**options), autocast_adapter_dtype=False
        )
        for kind in (peft.BOFTConfig, BOFTConfig)
    ]
    state = peft.get_peft_model_state_dict(models[0])
    found = peft.set_peft_model_state_dict(models[1], state)
    assert not found.unexpected_keys
    ours = peft.get_peft_model_state_dict(models[1])
    assert all(torch.equal(ours.pop(name), value) for name, value in state.items())
    assert not ours
    return tuple(models)


def step(model, x, dy):
    x = x.clone().requires_grad_()
    model.zero_grad()
    y = model(x)
    y.backward(dy)
    layer = model.base_model.model[0]
    r, s = layer.boft_R["default"].grad, layer.boft_s["default"].grad
    return [v.detach().double() for v in (y, x.grad, r, s)]


def close(found, other, bound: float, scale: float) -> None:
    for a, b in zip(found, other):
        assert (a - b).norm() <= bound * scale


@pytest.mark.parametrize("dropout", [0.0, 0.6])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES[:-1])
def test_steps_are_those_of_peft(extension, shape, bias, dropout):
    n = shape[0]
    base = nn.Sequential(nn.Linear(n, 13, bias=bias)).double()
    models = pair(base, **options(shape, boft_dropout=dropout))
    x, dy = torch.randn(3, 5, n).double(), torch.randn(3, 5, 13).double()
    found = []
    for model in models:
        torch.manual_seed(7)
        found.append(step(model.train(), x, dy))
    layer = models[1].base_model.model[0]
    r = layer.boft_R["default"]
    # A gradient has the errors of y in each of two inverses and in sums over tokens.
    bound = 16 * (rotation_bound(r, 2.0**-53) + (n + 15) * 2.0**-53)
    scale = x.norm() * (1 + dy.norm()) * (1 + layer.weight.norm()) * 2
    close(*found, bound, float(scale))
    assert all(v.abs().max() > 0 for v in found[1])
    exact = models[1].eval()(x)
    models[1].train().merge_adapter()  # without dropout
    assert (models[1](x) - exact).norm() <= bound * scale


@pytest.mark.parametrize("shape", SHAPES)
def test_delta_weights_are_those_of_peft(extension, shape):
    n = shape[0]
    for dtype, unit in UNIT.items():
        base = nn.Sequential(nn.Linear(n, 9)).to(dtype)
        layers = [m.base_model.model[0] for m in pair(base, **options(shape))]
        (q, s), (ours, scale) = (x.get_delta_weight("default") for x in layers)
        assert torch.equal(s, scale)
        bound = 2 * rotation_bound(layers[1].boft_R["default"], unit)
        assert torch.linalg.matrix_norm((q - ours).double(), 2) <= bound


def test_f32_layers_compute_what_the_definition_says():
    for n, b, m in SHAPES:
        base = nn.Sequential(nn.Linear(n, 11))
        config = BOFTConfig(
            target_modules=["0"], init_weights=False, **options((n, b, m))
        )
        model = peft.get_peft_model(base, config)
        layer = model.base_model.model[0]
        r, s, x = layer.boft_R["default"], layer.boft_s["default"], torch.randn(6, n)
        weight = layer.base_layer.weight.double()
        q = torch.from_numpy(exact_rotation(r.detach().double().numpy()))
        exact = (x.double() @ q @ weight.T) * s.double().T + layer.bias.double()
        bound = rotation_bound(r, 2.0**-24) + (n + 4) * 2.0**-24
        scale = x.norm() * weight.norm() * s.abs().max() + 6 * layer.bias.norm()
        assert (model(x) - exact).norm() <= bound * scale
        before = weight.clone()
        model.merge_adapter(safe_merge=True)
        merged = (before @ q.T) * s.double()
        error = (layer.base_layer.weight - merged).norm()
        assert error <= bound * before.norm() * s.abs().max()
        assert (model(x) - exact).norm() <= 2 * bound * scale
        model.unmerge_adapter()
        ratio = s.abs().max() / s.abs().min()
        error = (layer.base_layer.weight - before).norm()
        assert error <= 3 * bound * before.norm() * ratio


CONVS = [
    ((6, 7, 3), {"stride": 2, "padding": 1}, {"boft_block_size": 6}),
    ((4, 5, 2), {}, {"boft_block_num": 4, "boft_block_size": 0}),
    ((8, 3, 1), {"bias": False}, {"boft_block_size": 2, "boft_n_butterfly_factor": 3}),
]


@pytest.mark.parametrize("sizes, more, blocks", CONVS)
def test_planes_are_those_of_peft(extension, sizes, more, blocks):
    base = nn.Sequential(nn.Conv2d(*sizes, **more)).double()
    both = pair(base, **blocks)
    x = torch.randn(2, sizes[0], 9, 10).double()
    dy = torch.randn_like(both[0](x))
    found = [step(model, x, dy) for model in both]
    layer = both[1].base_model.model[0]
    n = sizes[0] * sizes[2] ** 2
    bound = 16 * (rotation_bound(layer.boft_R["default"], 2.0**-53) + n * 2.0**-53)
    scale = x.norm() * (1 + dy.norm()) * (1 + layer.weight.norm()) * 2
    close(*found, bound, float(scale))
    for model in both:
        model.merge_adapter()
    assert (both[1](x) - found[0][0]).norm() <= bound * scale
    both[1].unmerge_adapter()
    assert (layer.base_layer.weight - base[0].weight).norm() <= bound * scale


def test_planes_may_be_dilated_and_filters_oblong():
    more = {"dilation": (2, 1), "padding": (0, 2), "padding_mode": "circular"}
    base = nn.Conv2d(2, 5, (3, 4), **more).double()
    model = nn.Sequential(copy.deepcopy(base))
    config = BOFTConfig(
        boft_block_size=4, target_modules=["0"], init_weights=False,
        boft_n_butterfly_factor=2,
    )  # fmt: skip
    model = peft.get_peft_model(model, config, autocast_adapter_dtype=False)
    layer = model.base_model.model[0]
    q, s = layer.get_delta_weight("default")
    with torch.no_grad():
        base.weight.copy_(((base.weight.flatten(1) @ q.T) * s).view(base.weight.shape))
    x = torch.randn(2, 2, 9, 8).double()
    bound = 24 * 8 * 2.0**-53 * x.norm() * base.weight.norm()
    assert (model(x) - base(x)).norm() <= bound


# ---- files ----


def test_checkpoints_go_both_ways(extension, tmp_path):
    base = nn.Sequential(nn.Linear(24, 10)).double()
    x = torch.randn(4, 24).double()
    model, _ = pair(base, **options((24, 6, 2)))
    expected = model(x)
    model.save_pretrained(tmp_path / "theirs")
    with pytest.raises(ValueError, match="BOFT"):
        folder = tmp_path / "lora"
        peft.LoraConfig().save_pretrained(folder)
        BOFTConfig.from_pretrained(folder)
    for name in ("theirs", "ours", "again"):
        config = BOFTConfig.from_pretrained(tmp_path / name)
        if name == "again":  # PEFT reads what danaus wrote
            config = None
        options_ = {"config": config, "autocast_adapter_dtype": False}
        loaded = peft.PeftModel.from_pretrained(
            copy.deepcopy(base), tmp_path / name, **options_
        )
        ours = not isinstance(loaded.base_model.model[0], theirs.Linear)
        assert ours == (name != "again")
        assert (loaded(x) - expected).norm() <= 1e-13 * expected.norm()
        loaded.save_pretrained(tmp_path / ("ours" if name == "theirs" else "again"))
    written = json.loads((tmp_path / "ours" / "adapter_config.json").read_text())
    assert written["peft_type"] == "BOFT"


def test_boft_of_peft_can_be_replaced(monkeypatch, tmp_path):
    types = peft.PEFT_TYPE_TO_TUNER_MAPPING
    monkeypatch.setitem(types, peft.PeftType.BOFT, types[peft.PeftType.BOFT])
    replace_boft()
    base = nn.Sequential(nn.Linear(16, 4))
    config = peft.BOFTConfig(
        target_modules=["0"], init_weights=False, **options((16, 2, 3))
    )
    model = peft.get_peft_model(copy.deepcopy(base), config)
    assert isinstance(model.base_model, BOFTModel)
    model.save_pretrained(tmp_path)
    x = torch.randn(3, 16)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path)
    assert isinstance(loaded.base_model, BOFTModel)
    assert torch.equal(loaded(x), model(x))


# ---- several adapters, biases, types ----


def test_adapters_can_be_exchanged_disabled_and_removed():
    base = nn.Sequential(nn.Linear(12, 8), nn.Linear(8, 4)).double()
    x = torch.randn(5, 12).double()
    plain = base(x)
    first = BOFTConfig(target_modules=["0", "1"], boft_block_size=4, init_weights=False)
    model = peft.get_peft_model(base, first, autocast_adapter_dtype=False)
    second = BOFTConfig(
        target_modules=["0"], init_weights=False, **options((12, 2, 2)),
    )  # fmt: skip
    model.add_adapter("more", second, autocast_adapter_dtype=False)
    one = model(x)
    model.set_adapter("more")
    other = model(x)
    both = model.base_model
    both.set_adapter(["default", "more"])
    together = model(x)
    assert len({round(y.sum().item(), 9) for y in (plain, one, other, together)}) == 4
    with model.disable_adapter():
        assert torch.equal(model(x), plain)
    model.merge_adapter(adapter_names=["default", "more"])
    torch.testing.assert_close(model(x), together, rtol=1e-12, atol=1e-12)
    model.unmerge_adapter()
    both.set_adapter("default")
    torch.testing.assert_close(model(x), one, rtol=1e-12, atol=1e-12)
    model.delete_adapter("more")
    merged = model.merge_and_unload()
    assert isinstance(merged[0], nn.Linear)
    torch.testing.assert_close(merged(x), one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias, trained", [("none", 0), ("boft_only", 1), ("all", 2)])
def test_biases_are_trained_as_asked(bias, trained):
    base = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 2))
    config = BOFTConfig(target_modules=["0"], bias=bias, init_weights=False)
    model = peft.get_peft_model(base, config)
    x = torch.randn(3, 8)
    model(x).square().sum().backward()
    found = [p for n, p in model.named_parameters() if n.endswith("bias")]
    assert sum(p.requires_grad for p in found) == trained
    if trained:  # d loss / d bias of the first layer, whatever s is
        dy = (2 * model(x)) @ base[1].weight
        torch.testing.assert_close(found[0].grad, dy.sum(0), rtol=1e-4, atol=1e-5)


def test_layers_begin_as_they_were():
    base = nn.Sequential(nn.Linear(16, 6))
    x = torch.randn(4, 16)
    config = BOFTConfig(target_modules=["0"], **options((16, 4, 2)))
    assert torch.equal(peft.get_peft_model(copy.deepcopy(base), config)(x), base(x))


def test_16_bits_and_autocast_keep_types():
    for cast in (False, True):
        dtype = torch.float32 if cast else torch.bfloat16
        base = nn.Sequential(nn.Linear(32, 8)).to(dtype)
        config = BOFTConfig(
            target_modules=["0"], init_weights=False, **options((32, 4, 3))
        )
        model = peft.get_peft_model(base, config)
        layer = model.base_model.model[0]
        assert layer.boft_R["default"].dtype == torch.float32
        x = torch.randn(4, 32).to(dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            y = model(x)
        assert y.dtype == x.dtype
        q, s = (v.double() for v in layer.get_delta_weight("default"))
        weight = layer.base_layer.weight.double()
        exact = (x.double() @ q @ weight.T) * s.T + layer.bias.double()
        # x Q, W, y and the result are rounded to 8 bits, and x and Q before.
        scale = x.double().norm() * weight.norm() * s.max() + layer.bias.norm() * 4
        assert (y.double() - exact).norm() <= 6 * 2.0**-9 * scale
        y.sum().backward()
        assert torch.isfinite(layer.boft_R["default"].grad).all()


def test_layers_compile_without_a_graph_break():
    base = nn.Sequential(nn.Linear(16, 6))
    config = BOFTConfig(target_modules=["0"], init_weights=False, **options((16, 4, 2)))
    model = peft.get_peft_model(base, config)
    layer, x = model.base_model.model[0], torch.randn(4, 16)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)


def test_steps_can_be_differentiated_twice_batched_and_computed_again():
    base = nn.Sequential(nn.Linear(12, 5)).double()
    config = BOFTConfig(target_modules=["0"], init_weights=False, **options((12, 2, 2)))
    model = peft.get_peft_model(base, config, autocast_adapter_dtype=False)
    layer = model.base_model.model[0]
    r, s = layer.boft_R["default"], layer.boft_s["default"]

    def call(x, r, s):
        given = {"boft_R.default": r, "boft_s.default": s}
        return torch.func.functional_call(layer, given, (x,))

    x = torch.randn(3, 12).double().requires_grad_()
    assert torch.autograd.gradcheck(call, (x, r, s))
    assert torch.autograd.gradgradcheck(call, (x, r, s))
    one = torch.func.grad(lambda r, x: call(x, r, s).square().sum())
    each = torch.func.vmap(one, (None, 0))(r, x)
    for found, v in zip(each, x):
        torch.testing.assert_close(found, one(r, v), rtol=1e-12, atol=1e-12)
    again = checkpoint(model, x, use_reentrant=False)
    assert torch.equal(again, model(x))
    again.sum().backward()
    assert model(x[:0]).shape == (0, 5) and model(x[0]).shape == (5,)


# ---- wrong ----

WRONG = [
    ({"boft_block_size": 5}, "divisible by boft_block_size"),
    ({"boft_block_size": -4}, "divisible by boft_block_size"),
    ({"boft_block_size": 0, "boft_block_num": 7}, "divisible by boft_block_num"),
    ({"boft_n_butterfly_factor": 0}, "positive integer"),
    ({"boft_n_butterfly_factor": 4}, "Invalid combination"),
    ({"boft_block_size": 3, "boft_n_butterfly_factor": 2}, "even number"),
    ({"boft_block_num": 2}, "not both"),
    ({"boft_block_size": 0}, "must be non-zero"),
    ({"layers_pattern": "h"}, "layers_to_transform"),
]


@pytest.mark.parametrize("wrong, message", WRONG)
def test_wrong_options_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        config = BOFTConfig(target_modules=["0"], **wrong)
        peft.get_peft_model(nn.Sequential(nn.Linear(24, 4)), config)


def test_wrong_layers_are_refused():
    for layer, error in (
        (nn.Conv2d(4, 4, 3, groups=2), NotImplementedError),
        (nn.Embedding(4, 4), TypeError),
    ):
        with pytest.raises(error, match="support"):
            config = BOFTConfig(target_modules=["0"])
            peft.get_peft_model(nn.Sequential(layer), config)


def test_nan_is_found_before_it_is_merged():
    config = BOFTConfig(target_modules=["0"])
    model = peft.get_peft_model(nn.Sequential(nn.Linear(8, 4)), config)
    layer = model.base_model.model[0]
    before = layer.base_layer.weight.clone()
    layer.boft_s["default"].data[1] = float("nan")
    with pytest.raises(ValueError, match="NaNs"):
        model.merge_adapter(safe_merge=True)
    assert torch.equal(layer.base_layer.weight, before) and not layer.merged


def test_without_peft_the_package_says_what_it_needs():
    program = """
import sys
sys.modules["peft"] = None
import danaus.torch
try:
    import danaus.peft
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.startswith("danaus.peft needs peft: pip install peft"), done


def test_the_benchmark_of_adapters_runs(device: str, tmp_path):
    records = bench_records("adapters.py", tmp_path, "--device", device)
    methods = [(r["method"], int(r["factors"])) for r in records]
    assert {("none", 0), ("lora", 0), ("danaus monarch", 2)} < set(methods)
    assert [f for m, f in methods if m == "danaus boft"] == [1, 2, 4]
    for r in records:
        assert min(float(r["seconds"]), float(r["ratio"])) > 0
        assert 0 < float(r["error"]) < 6 * 2**-9
