"""compress and replace_linear as people call them: data, layers that stay, failures."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from danaus.torch import compress, replace_linear, structure_of  # noqa: E402
from danaus.torch.batches import load_batches  # noqa: E402

nn = torch.nn


class Net(nn.Module):
    """Two blocks and a head; with labels the first output is the loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
            for _ in range(2)
        )
        self.classifier = nn.Linear(12, 6)

    def forward(self, x, labels=None):
        for block in self.blocks:
            x = x + block(x)
        scores = self.classifier(x)
        if labels is None:
            return {"logits": scores}
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def data(rows=96):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, 12, generator=generator)


X, Y = data(), torch.arange(96) % 6


def pairs():
    return torch.utils.data.TensorDataset(X, Y)


class Only(Net):
    """Takes nothing but x."""

    def forward(self, x):
        return super().forward(x)["logits"]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Net, X),
        (Net, X.numpy()),
        (Net, {"x": X, "labels": Y}),
        (Net, [{"x": X[:64], "labels": Y[:64]}, {"x": X[64:], "labels": Y[64:]}]),
        (Net, [X[:64], X[64:]]),
        (Net, pairs()),
        (Only, pairs()),
        (Only, torch.utils.data.DataLoader(pairs(), batch_size=64)),
        (Only, [{"x": X[:64], "label": Y[:64]}, {"x": X[64:], "label": Y[64:]}]),
        (Only, [({"x": X[:64]}, Y[:64]), ({"x": X[64:]}, Y[64:])]),
        (Only, [{"x": X[:64].tolist()}, {"x": X[64:].numpy()}]),
    ],
)
def test_data_of_every_form_give_the_same_network(kind, given):
    model, wanted = kind(), kind()
    compress(wanted, [X[:64], X[64:]], 0.5)
    compress(model, given, 0.5)
    assert structure_of(model) == structure_of(wanted)
    for p, q in zip(model.parameters(), wanted.parameters()):
        assert torch.allclose(p, q, atol=1e-5)


def test_entries_that_forward_does_not_take_are_named_once():
    given = [{"x": X, "text": ["a"] * 96, "labels": Y}]
    with pytest.warns(UserWarning, match="batches have 'text', which Only") as seen:
        compress(Only(), given, 0.5)
    assert len(seen) == 1


def test_outputs_of_one_dimension_have_one_feature_each():
    class One(Only):
        def forward(self, x):
            return super().forward(x)[:, 0]

    report = compress(One(), X, 0.5)
    assert len(report.layers) == 4


def test_a_mapping_of_a_tokenizer_is_one_batch():
    from collections import UserDict

    batches = load_batches(UserDict(input_ids=torch.ones(70, 3), mask=torch.ones(70)))
    assert [len(batch["input_ids"]) for batch in batches] == [64, 6]
    assert load_batches([[1, 2, 3], [4, 5]])[1].tolist() == [[4, 5]]


# ---- which layers ----


def names(report):
    return {layer.name for layer in report.layers}


def test_heads_stay_unless_they_are_asked_for():
    inner = {f"blocks.{i}.{n}" for i in range(2) for n in (0, 2)}
    report = compress(Net(), X, 0.5)
    assert names(report) == inner and "output head" in report.left["classifier"]
    assert names(compress(Net(), X, 0.5, heads=True)) == inner | {"classifier"}
    found = compress(Net(), X, 0.5, layers=["blocks.1", "classifier"])
    assert names(found) == {"blocks.1.0", "blocks.1.2", "classifier"}
    assert names(replace_linear(Net(), 0.5)) == inner


def test_layers_are_excluded_by_name_pattern_class_and_function():
    for exclude in (
        "blocks.0",
        ["blocks.0.*"],
        ["blocks.0.0", "blocks.0.2"],
        lambda name, layer: name.startswith("blocks.0"),
    ):
        report = compress(Net(), X, 0.5, exclude=exclude)
        assert names(report) == {"blocks.1.0", "blocks.1.2"}
        assert report.left["blocks.0.2"] == "it is excluded"
    report = compress(Net(), X, 0.5, exclude=nn.Sequential, heads=True)
    assert names(report) == {"classifier"}


class Quantised(nn.Linear):
    def forward(self, x):
        return super().forward(x)


class QuantLinear(nn.Module):
    """As packages for GPTQ have it: no torch.nn.Linear."""

    def forward(self, x):
        return x


class Packed(nn.Parameter):
    """As bitsandbytes and torchao have it: another class of tensor."""


def test_quantised_layers_are_passed_over():
    model = Net()
    model.blocks[0][0] = Quantised(12, 24)
    model.blocks[0][2].weight = Packed(torch.zeros(12, 24))
    model.blocks[1][1] = QuantLinear()
    model.lazy = nn.LazyLinear(4)
    report = compress(model, X, 0.5)
    assert names(report) == {"blocks.1.0", "blocks.1.2"}
    assert "forward() of its own" in report.left["blocks.0.0"]
    assert "is a Packed: quantised" in report.left["blocks.0.2"]
    assert "not torch.nn.Linear" in report.left["blocks.1.1"]
    assert "no shape yet" in report.left["lazy"]
    assert "lazy: left, " in str(report)
    whole = nn.Sequential(QuantLinear(), Quantised(12, 12))
    report = compress(whole, X, 0.5)
    assert not report.layers and set(report.left) == {"0", "1"}


def test_each_mistake_has_its_sentence():
    for model, sentence in (
        (nn.Sequential(nn.ReLU()), "a Sequential, has no torch.nn.Linear$"),
        (nn.Linear(12, 12), "is itself a linear layer"),
    ):
        for call in (compress, replace_linear):
            with pytest.raises(ValueError, match=sentence):
                call(model, *((X, 0.5) if call is compress else (0.5,)))
    done = Net()
    compress(done, X, 0.5, heads=True)
    with pytest.raises(ValueError, match="those of danaus already"):
        compress(done, X, 0.5)
    with pytest.raises(ValueError, match="patterns .'mlp'. fit none of the 4"):
        replace_linear(Net(), {"mlp": 0.5})
    with pytest.raises(TypeError, match="unexpected keyword argument 'exclud'"):
        compress(Net(), X, 0.5, exclud="blocks")
    with pytest.raises(ValueError, match="calls none of its linear layers"):
        compress(Uncalled(), X, 0.5)


class Uncalled(Net):
    def forward(self, x):
        return x


PARAMETRIZED = {
    "weight_norm": nn.utils.parametrizations.weight_norm,
    "spectral_norm": nn.utils.parametrizations.spectral_norm,
    "orthogonal": nn.utils.parametrizations.orthogonal,
    "old weight_norm": nn.utils.weight_norm,
    "old spectral_norm": nn.utils.spectral_norm,
    "pruned": lambda layer: nn.utils.prune.l1_unstructured(layer, "weight", 0.3),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", PARAMETRIZED)
def test_weights_made_of_others_are_replaced_as_they_are(kind):
    import torch.nn.utils.prune  # noqa: F401

    torch.manual_seed(0)
    model = Net().double().eval()
    PARAMETRIZED[kind](model.blocks[0][0])
    with torch.no_grad():
        wanted = model(X.double())["logits"]
        report = replace_linear(model, "1,24,12,1", layers="blocks.0.0")
        assert names(report) == {"blocks.0.0"}
        assert torch.allclose(model(X.double())["logits"], wanted)
        report.undo()
        compress(model, X.double(), 1.0)
        assert torch.allclose(model(X.double())["logits"], wanted, atol=1e-3)


# ---- what new layers keep ----


def test_modes_frozen_weights_and_hooks_are_kept():
    model, seen = Net().train(), []
    model.blocks[0][2].eval()
    model.blocks[0][0].weight.requires_grad_(False)
    model.blocks[1].requires_grad_(False)
    layer = model.blocks[0][2]
    handles = [
        layer.register_forward_hook(lambda m, args, y: seen.append("forward")),
        layer.register_forward_pre_hook(lambda m, args: seen.append("before")),
        layer.register_full_backward_hook(lambda m, dx, dy: seen.append("backward")),
    ]
    modes = {n: m.training for n, m in model.named_modules()}
    compress(model, X, 0.5, distill=1)
    for name, module in model.named_modules():
        if name in modes:
            assert module.training == modes[name]
    frozen = {
        name: [p.requires_grad for p in model.get_submodule(name).parameters()]
        for name in ("blocks.0.2", "blocks.1.0", "classifier")
    }
    assert all(frozen["blocks.0.2"]) and all(frozen["classifier"])
    assert not any(frozen["blocks.1.0"])
    for name, parameter in model.blocks[0][0].named_parameters():
        assert parameter.requires_grad == name.endswith("bias")
    seen.clear()
    model(X)["logits"].sum().backward()
    assert seen == ["before", "forward", "backward"]
    for handle in handles:
        handle.remove()
    seen.clear()
    model(X)["logits"].sum().backward()
    assert not seen


# ---- failures ----


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, MemoryError])
@pytest.mark.parametrize("place", ["fit", "distill", "end"])
def test_a_failure_anywhere_leaves_the_model_as_it_was(error, place, monkeypatch):
    module = sys.modules["danaus.torch.compress"]
    model = Net().train()
    model.blocks[1].eval()
    before = dict(model.named_modules())
    modes = {n: m.training for n, m in before.items()}
    calls = []

    def fail(*args, **keywords):
        calls.append(1)
        if place == "distill" or len(calls) == 3:
            raise error

    if place == "distill":
        monkeypatch.setattr(module, "distil", fail)
    elif place == "fit":
        monkeypatch.setattr(module.Finished, "put", fail)

    def stop(done):
        if place == "end" and done == 1:
            raise error

    with pytest.raises(error):
        compress(model, X, 0.5, distill=1, progress=stop)
    assert dict(model.named_modules()) == before
    assert {n: m.training for n, m in model.named_modules()} == modes
    assert all(p.requires_grad for p in model.parameters())


def test_a_call_that_stopped_goes_on_where_it_was(tmp_path, monkeypatch):
    module = sys.modules["danaus.torch.compress"]
    wanted, seen = Net(), []
    options = {"kinds": ("interpolated", "monarch"), "budgets": "uniform"}
    report = compress(wanted, X, 0.6, **options)

    def stop(done):
        if done > 0.6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compress(Net(), X, 0.6, **options, resume=tmp_path, progress=stop)
    best = module.best
    monkeypatch.setattr(module, "best", lambda *given: seen.append(1) or best(*given))
    model = Net()
    again = compress(model, X, 0.6, **options, resume=tmp_path)
    assert 0 < len(seen) < len(report.layers)
    assert structure_of(model) == structure_of(wanted)
    for p, q in zip(model.parameters(), wanted.parameters()):
        assert torch.equal(p, q)
    assert [r.error for r in again.layers] == [r.error for r in report.layers]
    seen.clear()
    compress(Net(), X + 1, 0.6, **options, resume=tmp_path)  # other data
    assert len(seen) == len(report.layers)
    for path in tmp_path.iterdir():
        path.write_bytes(b"damaged")
    seen.clear()
    compress(Net(), X, 0.6, **options, resume=tmp_path)
    assert len(seen) == len(report.layers)


def test_progress_is_told_within_layers_and_draws_bars(capsys):
    pytest.importorskip("tqdm")
    seen = []
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64))
    replace_linear(model, "1,8,16,8 8,16,8,1", progress=seen.append)
    assert seen[0] == 0 and seen[-1] == 1 and len(seen) > 3
    assert seen == sorted(seen)
    for call in (lambda: compress(Net(), X, 0.5, progress=True),
                 lambda: replace_linear(Net(), 0.5, progress=True)):  # fmt: skip
        call()
        assert "100%" in capsys.readouterr().err
    compress(Net(), X, 0.5, progress=False)
    assert not capsys.readouterr().err


def test_shares_are_numpy_numbers_too():
    report = compress(Net(), X, np.float32(0.5))
    assert report.parameters <= report.dense_parameters / 2


# ---- layers that no chain serves, data that hardly vary, wrong arguments ----


def regression():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 1))


@pytest.mark.parametrize("batches", [None, [X]])
def test_a_layer_that_is_too_small_for_its_share_stays(batches):
    model = regression()
    report = replace_linear(model, 0.5, batches)
    assert [layer.name for layer in report.layers] == ["0"]
    assert report.left["2"] == "1 x 24 needs 24 weights or more, and 12 remain"
    assert type(model[2]) is nn.Linear
    with pytest.raises(ValueError, match="the layer '0': 24 x 12 needs 36 weights"):
        replace_linear(regression(), 0.01)


def holed():
    model = regression()
    model[0].weight.data[1, 2] = torch.nan
    return model


@pytest.mark.parametrize(
    ("model", "rule", "sentence"),
    [
        (holed, 0.5, "the layer '0': its weights are not all finite"),
        (regression, "half", "the layer '0': \"half\" is not a pattern"),
        (regression, 0, "the layer '0': 0 weights are too few"),
        (regression, "1,4,4,1", "the layer '0': the matrix is 24 x 12"),
    ],
)
def test_a_failure_names_the_layer(model, rule, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace_linear(model(), rule)


def test_rows_that_are_all_alike_are_data():
    """Their variance is a rounding error, which may be negative."""
    for rows in torch.ones(96, 12), X[:1].expand(96, 12), 1e-30 * X:
        for kind in "interpolated", "monarch":
            report = compress(Only(), [rows], 0.5, kinds=kind)
            assert all(0 <= layer.error <= 1.5 for layer in report.layers)


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"distill": "5"}, TypeError, "distill has to be a whole number, not str"),
        ({"distill": -1}, ValueError, "distill has to be from 0 to"),
        ({"probes": 0}, ValueError, "probes has to be from 1 to"),
        ({"seed": None}, TypeError, "seed has to be a whole number"),
        ({"ridge": 0}, ValueError, "ridge is above 0 and at most 1e6, not 0"),
        ({"ridge": -1}, ValueError, "ridge is above 0 and at most 1e6, not -1"),
        ({"ridge": "a"}, TypeError, "ridge is a number, not 'a'"),
    ],
)
def test_wrong_arguments_name_themselves(options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        compress(Only(), [X], 0.5, **options)


def test_inference_mode_changes_nothing():
    model, other = Only(), regression()
    with torch.inference_mode():
        report = compress(model, [X.clone()], 0.5)
        replace_linear(other, 0.5)
    same = compress(Only(), [X], 0.5)
    assert str(report).splitlines()[:-1] == str(same).splitlines()[:-1]
    for trained in model, other:
        trained(X).sum().backward()
        assert all(p.grad is not None for p in trained.parameters())
