"""to_plain: the same numbers by PyTorch's own operators, and what that allows."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import pickle

import pytest

torch = pytest.importorskip("torch")

from every_module import CAST, CHAIN, KEPT, ROWS, given, learned  # noqa: E402
from plain_cases import (  # noqa: E402
    EVERY,
    exact_product,
    expect_near,
    expect_within,
    random_layer,
    reference,
    shaped,
)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from danaus.torch import (  # noqa: E402
    HyenaFilter,
    KSLinear,
    LongConv,
    MonarchConv,
    MonarchMixerLayer,
    SumLinear,
    compress,
    models,
    to_plain,
)
from danaus.torch._filter_conv import FilterConv  # noqa: E402

MAKE = {**CAST, **KEPT}
LAYERS = [kind for kind in MAKE if kind is not HyenaFilter]  # which takes a length
pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # torch.jit is deprecated


class Seen(TorchDispatchMode):
    """Namespaces of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.namespace)
        return function(*args, **(kwargs or {}))


def scripted(model, x):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(model), file)
    file.seek(0)
    return torch.jit.load(file)(x)


WAYS = {
    "script": scripted,
    "trace": lambda model, x: torch.jit.trace(model, x)(x),
    "fx": lambda model, x: torch.fx.symbolic_trace(model)(x),
    "export": lambda model, x: torch.export.export(model, (x,)).module()(x),
}


# ---- numbers ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_chains_of_random_shapes(rng, seed, dtype):
    """Errors are below a bound of any order of sums."""
    layer = random_layer(rng, 1 + seed % 3, dtype=dtype, bias=bool(seed % 2))
    plain = to_plain(layer)
    for batch in (), (0,), (1,), (3, 7):
        x = torch.from_numpy(rng.standard_normal((*batch, layer.in_features))).to(dtype)
        expect_within(plain(x), *exact_product(layer, x))
        last = random_layer(rng, 2, dtype=dtype, layout="batch_last")
        x = torch.from_numpy(rng.standard_normal((*batch, last.in_features))).to(dtype)
        y = to_plain(last)(x.movedim(-1, 0)).movedim(0, -1)
        expect_within(y, *exact_product(last, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_every_module_has_the_same_numbers(kind, dtype):
    layer = learned(MAKE[kind], "cpu").to(dtype)
    plain, x = to_plain(layer), given(kind, torch.randn(*ROWS, dtype=dtype))
    x.requires_grad_()
    exact = reference(layer, x)
    with Seen() as seen:
        y = plain(x)
        y.square().sum().backward()
    assert "danaus" not in seen.names
    expect_near(y.detach(), exact, 12 * 8 * 4, kind in KEPT)
    layer(x).square().sum().backward()
    for found, p in zip(plain.parameters(), layer.parameters()):
        assert (found.grad is None) == (p.grad is None)
        if p.grad is not None:
            scale = p.grad.abs().max() + exact.abs().max()
            room = 2e5 * torch.finfo(dtype).eps * scale
            assert (found.grad - p.grad).abs().max() <= room


@pytest.mark.parametrize("name", EVERY)
def test_options(name):
    layer = learned(EVERY[name], "cpu")
    x = shaped(name, torch.randn(3, 12, 8))
    expect_near(to_plain(layer)(x).detach(), reference(layer, x), 12 * 8 * 4, True)


def test_implicit_filters():
    for options in {}, {"reverse": True, "layers": 0}, {"learned": True, "features": 5}:
        layer = learned(lambda o=options: HyenaFilter(8, 12, **o), "cpu")
        for length in ((1,), (7,), (12,), ()):
            found, wanted = to_plain(layer)(*length), layer(*length)
            for a, b in zip(torch.atleast_1d(found), torch.atleast_1d(wanted)):
                torch.testing.assert_close(a, b)


def test_gates_and_residuals():
    conv, (u, a, b) = LongConv(4, 9, filters=2), torch.randn(3, 2, 4, 9)
    expect_near(to_plain(conv)(u, a, b).detach(), reference(conv, u, a, b), 64, True)
    layer, x, r = KSLinear(8, 8, CHAIN), torch.randn(3, 8), torch.randn(3, 8)
    torch.testing.assert_close(to_plain(layer)(x, residual=r), layer(x, residual=r))


def test_sixteen_bits_and_complex_numbers():
    for dtype, error in (torch.float16, 4e-3), (torch.bfloat16, 3e-2):
        for kind in KSLinear, LongConv:
            layer = learned(MAKE[kind], "cpu")
            x = given(kind, torch.randn(*ROWS)).to(dtype)
            y, wanted = to_plain(layer)(x), reference(layer, x)
            assert y.dtype == dtype
            assert (y - wanted).abs().max() <= error * (1 + wanted.abs().max())
    layer = KSLinear(8, 8, CHAIN, dtype=torch.complex64)
    x = torch.randn(3, 8, dtype=torch.complex64)
    torch.testing.assert_close(to_plain(layer)(x), layer(x))
    layer = learned(lambda: MonarchMixerLayer(8, 12, start="dft"), "cpu")
    x = torch.randn(2, 12, 8)
    expect_near(to_plain(layer)(x).detach(), reference(layer, x), 400, True)


@pytest.mark.parametrize(
    "kind", ["interpolated", "low_rank", "column_groups", "monarch", "sum"]
)
def test_compressed_models(kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 24), torch.nn.GELU(), torch.nn.Linear(24, 16)
    )
    compress(model, [torch.randn(64, 16)], 0.7, kinds=kind)
    plain, x = to_plain(model), torch.randn(5, 16)
    assert all(".torch._plain" in type(m).__module__ for m in (plain[0], plain[2]))
    for way in WAYS.values():
        torch.testing.assert_close(way(plain, x), model(x))


# ---- what is kept ----


def test_state_modes_and_gradients_are_kept():
    for make in {**MAKE, **EVERY}.values():
        layer = make().eval()
        next(layer.parameters()).requires_grad_(False)
        model = torch.nn.ModuleDict({"a": layer, "b": make(), "c": layer})
        plain = to_plain(model)
        assert plain["a"] is plain["c"]
        assert not plain["a"].training and plain["b"].training and plain.training
        state, wanted = plain.state_dict(), model.state_dict()
        assert list(state) == list(wanted)
        assert all(torch.equal(state[name], wanted[name]) for name in wanted)
        for (name, p), (other, q) in zip(
            plain.named_parameters(), model.named_parameters()
        ):
            assert name == other and p.requires_grad == q.requires_grad
            assert p.data_ptr() != q.data_ptr()  # a copy
        model.load_state_dict(state)
        plain.load_state_dict(model.state_dict())


def test_devices_and_types_are_kept():
    layer = to_plain(KSLinear(8, 8, CHAIN, device="meta", dtype=torch.bfloat16))
    assert {(p.device.type, p.dtype) for p in layer.parameters()} == {
        ("meta", torch.bfloat16)
    }


def test_tied_parameters_and_hooks_are_kept():
    a, b = KSLinear(8, 8, CHAIN), KSLinear(8, 8, CHAIN)
    b.weights[0] = a.weights[0]
    calls = []
    a.register_forward_hook(lambda layer, x, y: calls.append(type(layer).__name__))
    plain = to_plain(torch.nn.Sequential(a, b))
    assert plain[0].weights[0] is plain[1].weights[0]
    plain(torch.randn(2, 8))
    assert calls == ["PlainKSLinear"]


def test_frozen_layers_and_pickles():
    for make in lambda: KSLinear(8, 8, CHAIN), CAST[SumLinear]:
        layer, x = learned(make, "cpu"), torch.randn(3, 8)
        wanted = layer(x).detach()
        for part in layer.modules():
            if isinstance(part, KSLinear):
                part.freeze()
        plain = pickle.loads(pickle.dumps(to_plain(layer)))
        torch.testing.assert_close(plain(x), wanted)
        assert not any(p.requires_grad for p in plain.parameters())


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_plain_models_are_plain(kind):
    plain = to_plain(learned(MAKE[kind], "cpu"))
    again, x = to_plain(plain), given(kind, torch.randn(*ROWS))
    assert again is not plain and torch.equal(again(x), plain(x))


def test_matrices_can_be_read():
    for kind in CAST:
        if hasattr(kind, "to_dense") and hasattr(kind, "factors"):
            layer = learned(CAST[kind], "cpu")
            plain = to_plain(layer)
            assert plain.weight.shape == layer.weight.shape
            torch.testing.assert_close(plain.weight.dense(), layer.to_dense())
            torch.testing.assert_close(plain.bias, layer.bias)
    encoder = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
    encoder.linear1, encoder.linear2 = KSLinear(8, 8, CHAIN), KSLinear(8, 8, CHAIN)
    x = torch.randn(2, 3, 8)
    with torch.no_grad():  # which reads the matrices for its fast path
        torch.testing.assert_close(to_plain(encoder)(x), encoder(x))


def test_models_without_layers_of_danaus_are_copies():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    plain, x = to_plain(model), torch.randn(2, 3)
    assert plain[0] is not model[0] and torch.equal(plain(x), model(x))


# ---- scripts, graphs and exports ----


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_ways_of_recording(kind, way):
    """Each works, or says in one sentence what does."""
    plain = torch.nn.Sequential(to_plain(learned(MAKE[kind], "cpu")))
    x = given(kind, torch.randn(*ROWS))
    if issubclass(kind, FilterConv) and way in ("script", "fx"):
        with pytest.raises((NotImplementedError, TypeError), match="torch.export"):
            WAYS[way](plain, x)
    else:
        torch.testing.assert_close(WAYS[way](plain, x), plain(x))


@pytest.mark.parametrize("way", ["script", "fx"])
@pytest.mark.parametrize("name", EVERY)
def test_ways_of_recording_options(name, way):
    plain = torch.nn.Sequential(to_plain(learned(EVERY[name], "cpu")))
    x = shaped(name, torch.randn(3, 12, 8))
    torch.testing.assert_close(WAYS[way](plain, x), plain(x))


@pytest.mark.parametrize("kind", MAKE, ids=lambda kind: kind.__name__)
def test_torch_fx_is_refused_in_one_sentence(kind):
    model = torch.nn.Sequential(learned(MAKE[kind], "cpu"))
    wanted = "use torch.export" if issubclass(kind, FilterConv) else "to_plain"
    with pytest.raises(TypeError, match=f"symbolic_trace knows no shapes.*{wanted}"):
        torch.fx.symbolic_trace(model)


def test_exports_take_any_batch():
    for kind in KSLinear, LongConv:
        plain, x = to_plain(learned(MAKE[kind], "cpu")), given(kind, torch.randn(*ROWS))
        batch = {0: torch.export.Dim("batch")}
        found = torch.export.export(plain, (x,), dynamic_shapes=(batch,)).module()
        more = torch.cat([x, x, x])
        torch.testing.assert_close(found(more), plain(more))


# ---- what is refused ----


class Own(KSLinear):
    """A subclass, whose forward() nobody knows."""

    def forward(self, x, residual=None):
        return 2 * super().forward(x, residual)


def test_what_is_refused():
    with pytest.raises(TypeError, match="model is a Tensor"):
        to_plain(torch.ones(2))
    config = models.HyenaDNAConfig(d_model=8, d_inner=8, n_layer=1, max_seq_len=8)
    biased = KSLinear(8, 8, CHAIN)
    torch.nn.utils.parametrize.register_parametrization(
        biased, "bias", torch.nn.Identity()
    )
    refused = {
        "inner.0, a Own: a subclass": Own(8, 8, CHAIN),
        "inner.0, a ParametrizedKSLinear: .* parametrization": biased,
        "a LongConv: its sequences": LongConv(8, 12, group="world"),
        "a LongConv: sparse spectra": LongConv(8, 12, axes=[8, 8], keep=[4, 8]),
        "inner.0.backbone.layers.0.mixer, a HyenaMixer: .*onnx": models.HyenaDNAModel(
            config
        ),
    }
    for sentence, layer in refused.items():
        model = torch.nn.Sequential()
        model.inner = torch.nn.Sequential(layer)
        with pytest.raises(NotImplementedError, match=sentence):
            to_plain(model)
    replaced = KSLinear(8, 8, CHAIN)
    replaced.forward = lambda x: x
    with pytest.raises(NotImplementedError, match="the model, a KSLinear: its forward"):
        to_plain(replaced)
    with pytest.raises(RuntimeError):  # PyTorch's own sentence
        to_plain(KSLinear(8, 8, CHAIN))(torch.ones(2, 7))


def test_images_by_models_of_danaus():
    """Their layers have plain forms; those with Hyena operators say what to do."""
    sizes = {"image_size": 8, "patch_size": 4, "hidden_size": 16}
    sizes |= {"intermediate_size": 32, "num_hidden_layers": 1}
    pictures = torch.randn(2, 3, 8, 8)
    vit = models.MonarchViTConfig(num_attention_heads=2, monarch_blocks=4, **sizes)
    for model in (
        models.MonarchViTForImageClassification(vit),
        models.M2ViTForImageClassification(models.M2ViTConfig(**sizes)),
    ):
        plain, wanted = to_plain(model.eval()), model(pictures)
        torch.testing.assert_close(plain(pictures).logits, wanted.logits)
        with Seen() as seen, torch.no_grad():
            plain(pictures)
        assert "danaus" not in seen.names
    hyena = models.HyenaViTModel(models.HyenaViTConfig(**sizes))
    with pytest.raises(NotImplementedError, match="blocks.0.mixer, a HyenaMixer"):
        to_plain(hyena)


def test_every_convolution_without_a_form_for_scripts_is_known():
    """What test_ways_of_recording leaves out."""
    kinds = {kind for kind in MAKE if issubclass(kind, FilterConv)}
    assert len(kinds) == 4 and MonarchConv in kinds
