"""Operands on several devices are refused by every operator; offloaded modules run."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from danaus.torch import (  # noqa: E402
    CausalMonarchConv,
    ChebyshevConv,
    GatedLongConv,
    HyenaOperator,
    InterpolatedLinear,
    KSLinear,
    LongConv,
    MonarchConv,
    MonarchLinear,
    MultivariateConv,
    ShortConv,
    SumLinear,
    _ops,
    freeze,
    fuse_qkv,
    models,
)

CHAIN = "1,4,4,3 2,6,6,1"  # 12 x 12


class Decaying(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.rand(8, 1))

    def forward(self, length: int):
        return torch.exp(-self.rate * torch.arange(length, device=self.rate.device))


def chain(**options) -> KSLinear:
    return KSLinear(12, 12, CHAIN, **options)


def interpolated(bias: bool) -> InterpolatedLinear:
    layers = [
        KSLinear(12, 5, "1,5,12,1", bias=bias),
        KSLinear(5, 7, "1,7,5,1", bias=bias),
    ]
    return InterpolatedLinear(*layers, [0, 3, 4, 9, 11])


MODULES = {
    "chain": (lambda: chain(activation="gelu"), (3, 12)),
    "no bias": (lambda: chain(bias=False), (3, 12)),
    "Monarch": (lambda: MonarchLinear(12, 24), (3, 12)),
    "a layer of a model": (lambda: nn.Sequential(nn.Linear(12, 12), chain()), (3, 12)),
    "sum": (lambda: SumLinear(chain(), chain(bias=False)), (3, 12)),
    "interpolated": (lambda: interpolated(True), (3, 12)),
    "interpolated, no bias": (lambda: interpolated(False), (3, 12)),
    "fused": (lambda: fuse_qkv(*[KSLinear(12, 24, "1,24,12,1")] * 2), (3, 12)),
    "beside": (lambda: fuse_qkv(chain(), KSLinear(12, 4, "1,4,12,1")), (3, 12)),
    "LongConv": (lambda: LongConv(8, 20), (2, 8, 20)),
    "made filters": (lambda: LongConv(8, 20, filter=Decaying()), (2, 8, 20)),
    "ShortConv": (lambda: ShortConv(8, 3), (2, 8, 20)),
    "GatedLongConv": (lambda: GatedLongConv(8, 20), (2, 20, 8)),
    "Hyena": (lambda: HyenaOperator(8, 20, 3), (2, 20, 8)),
    "Hyena, made": (lambda: HyenaOperator(8, 20, 3, filter=Decaying()), (2, 20, 8)),
    "CausalMonarchConv": (lambda: CausalMonarchConv(8, 20), (2, 8, 20)),
    "MonarchConv": (lambda: MonarchConv(8, 20), (2, 8, 20)),
    "ChebyshevConv": (lambda: ChebyshevConv(8, 20), (2, 8, 20)),
    "MultivariateConv": (lambda: MultivariateConv(8, 20), (2, 8, 20)),
}


@pytest.fixture(params=list(MODULES))
def case(request):
    torch.manual_seed(0)
    make, shape = MODULES[request.param]
    return make(), torch.randn(shape)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_modules_and_inputs_on_different_devices_are_refused(case, gradients, frozen):
    module, x = case
    module = freeze(module) if frozen else module
    with torch.set_grad_enabled(gradients):
        for where, there in ("meta", "cpu"), ("cpu", "meta"):
            moved = copy.deepcopy(module)
            moved = moved.to(where)
            with pytest.raises((ValueError, RuntimeError), match="meta"):
                moved(x.to(there))


def test_modules_run_in_inference_mode(case, device):
    module, x = case[0].to(device), case[1].to(device)
    y = module(x)
    with torch.inference_mode():
        torch.testing.assert_close(module(x), y)
        born = copy.deepcopy(module)
        assert all(p.is_inference() for p in born.parameters())
        for _ in range(2):
            torch.testing.assert_close(born(x), module(x))
            for parameter in (*born.parameters(), *module.parameters()):
                parameter.mul_(0.5)
        frozen = freeze(born)
        torch.testing.assert_close(frozen(x), module(x))
    with torch.no_grad():
        torch.testing.assert_close(born(x), module(x))
        module.load_state_dict(born.state_dict())
        torch.testing.assert_close(born(x), module(x))


# ---- operators ----

U, K, ROWS = torch.randn(2, 4, 6), torch.randn(4, 3), torch.randn(2, 12, 6)
LONG = [U, K, None, K[:, 0], U, U, "causal", []]
HYENA = [ROWS, torch.randn(12, 3), torch.randn(12), K[None], K[None, :, 0]]


def operators():
    """Names, with arguments that fit."""
    layer = chain()
    x, weights, bias = torch.randn(3, 12), list(layer.weights), layer.bias
    question = layer._sizes, "none", False, False, False
    numbers = weights, bias, torch.float32, 3
    with torch.no_grad():
        packed = _ops.ops.ks_pack(*numbers, *question, True)
        _, train = _ops.ops._ks_linear_train(x, weights, bias, *question)
        spectrum = _ops.ops.long_conv_pack(*LONG[:4], "causal", [], 0)
        spectra = _ops.ops.hyena_pack(*HYENA)
    wanted = True, True, True
    yield "ks_linear", x, weights, bias, *question
    yield "_ks_linear", x, weights, bias, *question
    yield "_ks_linear_train", x, weights, bias, *question
    yield "ks_linear_backward", x, x, weights, *question, *wanted
    yield "_ks_linear_backward", x, x, weights, *question, *wanted
    yield "_ks_linear_return", x, x, train, *question, *wanted, False
    yield "_ks_linear_packed", x, train, True, *question
    asked = [len(weights), 1, 4, 0, 0, 0, *layer._sizes]
    yield "_ks_pack_training", [train], [*weights, bias], torch.float32, asked
    yield "ks_pack", *numbers, *question, True
    yield "ks_pack_into", packed, *numbers, *question, True
    yield "ks_apply", x, packed, True, 3, *question, x
    yield "same_numbers", weights, weights
    yield "_cayley", K[:3], False
    yield "_cayley_backward", K[:3], K[:3], True
    yield "long_conv", *LONG
    yield "_long_conv", *LONG
    yield "long_conv_backward", U, *LONG, 1
    yield "_long_conv_backward", U, *LONG, 1
    yield "long_conv_pack", *LONG[:4], "causal", [], 0
    yield "long_conv_apply", U, spectrum, U, U, 4, 3, "causal", [], 0
    yield "short_conv", U, K, K[:, 0], False, False
    yield "_short_conv", U, K, K[:, 0], False, False
    yield "short_conv_backward", U, U, K, False, False, 7
    yield "_short_conv_backward", U, U, K, False, False, 7
    yield "hyena", *HYENA
    yield "_hyena", *HYENA
    yield "hyena_backward", U, *HYENA, 1
    yield "_hyena_backward", U, *HYENA, 1
    yield "hyena_pack", *HYENA
    yield "hyena_apply", *HYENA[:3], spectra, 2, 4, 3


CALLS = {name: arguments for name, *arguments in operators()}


def moved(arguments: list, device: str):
    """The arguments with each tensor in turn on another device."""
    for n, argument in enumerate(arguments):
        parts = argument if isinstance(argument, list) else [argument]
        for m, part in enumerate(parts):
            if isinstance(part, torch.Tensor):
                other = [*parts[:m], part.to(device), *parts[m + 1 :]]
                other = other if isinstance(argument, list) else other[0]
                yield [*arguments[:n], other, *arguments[n + 1 :]]


@torch.no_grad()
@pytest.mark.parametrize("name", sorted({*CALLS} - {"_cayley"}))  # that has one tensor
def test_every_operator_wants_one_device(name):
    operator, arguments = getattr(_ops.ops, name), CALLS[name]
    operator(*arguments)
    for device in ["meta", *["cuda"] * torch.cuda.is_available()]:
        wrong = list(moved(arguments, device))
        assert wrong
        for case in wrong:
            with pytest.raises(
                (RuntimeError, NotImplementedError), match=f"(?i){device}"
            ):
                operator(*case)


def test_the_calls_are_those_of_all_operators():
    dispatched = torch._C._dispatch_get_all_op_names()
    names = {
        n.split("::")[1].split(".")[0] for n in dispatched if n.startswith("danaus:")
    }
    assert names == {*CALLS, "ks_describe"}


# ---- offloading ----


@pytest.mark.parametrize("frozen", [False, True])
def test_offloaded_modules_run(case, frozen, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    module, x = case
    y = module.eval()(x).detach()
    module = freeze(module) if frozen else module
    for offloaded in (
        accelerate.cpu_offload(copy.deepcopy(module), "cpu"),
        accelerate.disk_offload(copy.deepcopy(module), tmp_path, "cpu"),
    ):
        assert all(p.is_meta for p in offloaded.parameters())
        with torch.no_grad():
            torch.testing.assert_close(offloaded(x), y)


# ---- whole models ----


def dna():
    sizes = {"d_model": 16, "d_inner": 32, "max_seq_len": 34, "n_layer": 1}
    return models.HyenaDNAForCausalLM(models.HyenaDNAConfig(**sizes)).eval()


def mixer():
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    lengths = {"long_conv_l_max": 32, "max_position_embeddings": 32}
    config = models.M2BertConfig(vocab_size=12, **sizes, **lengths)
    return models.M2BertForMaskedLM(config).eval()


@pytest.mark.parametrize("make", [dna, mixer])
def test_models_want_ids_where_they_are(make):
    model, ids = make(), torch.full((2, 9), 7)
    with pytest.raises(ValueError, match="input_ids lie on meta, the model on cpu"):
        model(ids.to("meta"))
    mask = torch.ones(2, 9)
    with pytest.raises(ValueError, match="attention_mask lies on meta, input_ids on"):
        model(ids, attention_mask=mask.to("meta"))
    with pytest.raises(ValueError, match="attention_mask has to be a tensor, not list"):
        model(ids, attention_mask=mask.tolist())
    expected = model(ids).logits
    accelerate = pytest.importorskip("accelerate")
    whole = {"preload_module_classes": [type(model).__name__]}
    offloaded = accelerate.cpu_offload(copy.deepcopy(model), "cpu", **whole)
    assert torch.equal(offloaded(ids).logits, expected)
    model = model.to("meta")
    assert model(ids).logits.is_meta and model(ids.to("meta")).logits.is_meta
