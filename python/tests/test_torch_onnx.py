"""Exports to ONNX: standard operators, and the same numbers in onnxruntime."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the programs")

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

from danaus.torch import (  # noqa: E402
    HyenaFilter,
    KSLinear,
    LongConv,
    MonarchConv,
    MonarchMixerLayer,
    MultivariateConv,
    ShortConv,
    compress,
    freeze,
    models,
    to_plain,
)

MAKE = {**CAST, **KEPT}
# What only computes with real numbers, and inverts triangular matrices at most.
EXPORTED = [kind for kind in MAKE if kind not in (HyenaFilter, MonarchConv)]
SOME = (
    "causal, few filters", "circular", "circular with a centre", "bidirectional",
    "centred", "implicit", "short", "order 3", "gated heads", "circular planes",
    "centred planes",
)  # fmt: skip
LINEAR = {"MatMul", "Gemm", "Add", "Mul", "Sub", "Reshape", "Transpose", "Squeeze"}
LINEAR |= {"Unsqueeze", "Shape", "Concat", "Gather", "Slice", "Gelu", "Expand"}
BATCH = torch.export.Dim("batch")
pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # PyTorch's, of itself


class Program:
    """A model as ONNX, which onnxruntime runs."""

    def __init__(self, model, x, dims=None, **options):
        dims = {0: BATCH} if dims is None else dims
        self.exported = torch.onnx.export(
            model.eval(),
            (x,),
            dynamo=True,
            verbose=False,
            dynamic_shapes=(dims,) if dims else None,
            **options,
        )
        file = io.BytesIO()
        self.exported.save(file)
        self.session = runtime.InferenceSession(file.getvalue())

    def __call__(self, x):
        name = self.session.get_inputs()[0].name
        return torch.from_numpy(self.session.run(None, {name: x.numpy()})[0])

    def operators(self) -> set[str]:
        """Names of those that run, all of ONNX itself."""
        proto = self.exported.model_proto
        assert not proto.functions
        assert {node.domain for node in proto.graph.node} <= {"", "ai.onnx"}
        return {node.op_type for node in proto.graph.node}


def refused(model, x, sentence: str, dims=None) -> None:
    """The export fails and says why."""
    with pytest.raises(Exception, match="export") as found:
        Program(model, x, dims)
    assert sentence in str(found.value)


# ---- linear layers ----


@pytest.mark.parametrize("plainly", [False, True], ids=["itself", "plain"])
@pytest.mark.parametrize("seed", range(4))
def test_chains_of_random_shapes(rng, seed, plainly):
    """Errors are below a bound of any order of sums."""
    layer = random_layer(rng, 1 + seed % 3, bias=seed != 1)
    x = torch.from_numpy(rng.standard_normal((2, 5, layer.in_features))).float()
    program = Program(to_plain(layer) if plainly else layer, x)
    assert program.operators() <= LINEAR
    for batch in 1, 2, 7:
        x = torch.from_numpy(rng.standard_normal((batch, 5, layer.in_features)))
        expect_within(program(x.float()), *exact_product(layer, x.float()))


def test_f64_and_other_layouts(rng):
    layer = random_layer(rng, 2, dtype=torch.float64, layout="batch_last")
    x = torch.from_numpy(rng.standard_normal((layer.in_features, 3)))
    program = Program(layer, x, {1: BATCH})
    x = torch.from_numpy(rng.standard_normal((layer.in_features, 8)))
    exact, bound = exact_product(layer, x.t())
    expect_within(program(x).t(), exact, bound)


@pytest.mark.parametrize(
    "kind", ["interpolated", "low_rank", "column_groups", "monarch", "sum"]
)
def test_compressed_models(kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 24), torch.nn.GELU(), torch.nn.Linear(24, 16)
    )
    compress(model, [torch.randn(64, 16)], 0.7, kinds=kind)
    program, x = Program(model, torch.randn(2, 16)), torch.randn(9, 16)
    assert program.operators() <= LINEAR | {"ConstantOfShape"}
    expect_near(program(x), reference(model, x), 16 + 24, False)


def test_frozen_layers_and_what_autograd_is_doing():
    layer, x = learned(CAST[KSLinear], "cpu"), torch.randn(3, 8)
    wanted = reference(layer, x)
    for model in layer, freeze(torch.nn.Sequential(layer)):
        for gradients in False, True:
            with torch.set_grad_enabled(gradients):
                expect_near(Program(model, x)(x), wanted, 64, False)
    assert not torch.onnx.is_in_onnx_export()
    torch.testing.assert_close(layer(x), wanted.float())  # packed as before


# ---- every module ----


@pytest.mark.parametrize("kind", EXPORTED, ids=lambda kind: kind.__name__)
def test_every_module(kind):
    layer = learned(MAKE[kind], "cpu")
    program = Program(layer, given(kind, torch.randn(*ROWS)))
    names = program.operators()
    if kind is LongConv:
        assert "DFT" in names
    transforms = kind in KEPT or "DFT" in names
    for batch in 1, 5:
        x = given(kind, torch.randn(batch, *ROWS[1:])).contiguous()
        expect_near(program(x), reference(layer, x), 12 * 8 * 4, transforms)


@pytest.mark.parametrize("name", SOME)
def test_options(name):
    layer = learned(EVERY[name], "cpu")
    program = Program(layer, shaped(name, torch.randn(2, 12, 8)))
    program.operators()
    x = shaped(name, torch.randn(4, 12, 8))
    expect_near(program(x), reference(layer, x), 12 * 8 * 4, True)


def test_plain_modules_are_exported():
    for name in "bidirectional", "circular planes":
        layer = learned(EVERY[name], "cpu")
        program = Program(to_plain(layer), shaped(name, torch.randn(2, 12, 8)))
        x = shaped(name, torch.randn(4, 12, 8))
        expect_near(program(x), reference(layer, x), 12 * 8 * 4, True)


def test_lengths_of_no_power_of_two_are_exact(rng):
    """onnxruntime's transforms of other lengths have errors of 1e-4."""
    layer = learned(lambda: LongConv(2, 700, taps=333), "cpu")
    x = torch.randn(2, 2, 700)
    expect_near(Program(layer, x)(x), reference(layer, x), 333, True)


@pytest.mark.parametrize("name", ["hyena", "m2"])
def test_models_of_sequences(name):
    torch.manual_seed(0)
    if name == "hyena":
        config = models.HyenaDNAConfig(d_model=16, d_inner=8, n_layer=1, max_seq_len=20)
        model = models.HyenaDNAForCausalLM(config)
    else:
        config = models.M2BertConfig(
            vocab_size=12, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            long_conv_l_max=20, max_position_embeddings=20,
        )  # fmt: skip
        model = models.M2BertModel(config)
    model.eval()
    first = First(model)
    program = Program(first, torch.randint(0, 12, (2, 16)))
    ids = torch.randint(0, 12, (5, 16))
    wanted = First(model.double())(ids).detach()
    expect_near(program(ids), wanted, 16 * 32 * 2, True)


class First(torch.nn.Module):
    """The first output of a model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        found = self.model(ids)
        return next(x for x in found.values() if isinstance(x, torch.Tensor))


def test_lengths_may_vary_where_nothing_is_transformed():
    dims = {0: BATCH, 2: torch.export.Dim("length")}
    layer, x = ShortConv(8, 4), torch.randn(2, 8, 12)
    program, x = Program(layer, x, dims), torch.randn(3, 8, 30)
    expect_near(program(x), reference(layer, x), 4, False)


# ---- what is refused ----


def test_what_is_refused():
    x = torch.randn(2, 8, 12)
    dims = {0: BATCH, 2: torch.export.Dim("length")}
    for layer in LongConv(8, 12), to_plain(LongConv(8, 12)):
        refused(layer, x, "a long convolution whose length may vary", dims)
    refused(MonarchConv(8, 12), x, "which inverts matrices at each call, cannot be")
    sparse = LongConv(8, 12, axes=[8, 8], keep=[4, 8])
    refused(sparse, x, "a sparse spectrum cannot be exported to ONNX")
    for layer in MultivariateConv(8, 12, points="roots"), MonarchMixerLayer(
        12, 8, start="dft"
    ):
        refused(layer, x, "a product of complex numbers cannot be exported to ONNX")


def test_wrong_inputs_are_named():
    refused(KSLinear(8, 8, CHAIN), torch.randn(2, 7), "the input has 7 features, not 8")
