"""Layers that stand for torch.nn.Linear wherever one stands compute what it would."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from plain_twin import exact, expect_close, outputs, plain_twin  # noqa: E402
from residual_net import (  # noqa: E402
    HIDDEN,
    LAYERS,
    WIDTH,
    Net,
    batch,
    expect_kept,
)
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize, prune  # noqa: E402

from danaus.torch import KSLinear, compress, replace_linear, to_plain  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

# ---- PyTorch's transformers ----


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
def test_encoders_and_decoders_call_the_layers_in_them(norm_first, gradients):
    torch.manual_seed(0)
    options = {"batch_first": True, "norm_first": norm_first, "dtype": torch.float64}
    dense = nn.Transformer(WIDTH, 2, 2, 2, HIDDEN, **options).eval()
    model, x = copy.deepcopy(dense), batch().reshape(8, 12, WIDTH)
    padding = torch.arange(12) >= torch.tensor([[12], [7]] * 4)
    report = replace_linear(model, 0.7)
    assert len(report.layers) == 8 and len(report.left) == 6
    for name, reason in report.left.items():
        assert name.endswith("out_proj") and "MultiheadAttention" in reason
    twin = plain_twin(dense, model)
    with torch.set_grad_enabled(gradients):
        expect_close(outputs(model, [x, x]), outputs(twin, [x, x]))
        found, wanted = (
            m.encoder(x, src_key_padding_mask=padding)[~padding] for m in (model, twin)
        )
        expect_close([found], [wanted])


def test_attention_alone_is_left():
    report = replace_linear(nn.MultiheadAttention(WIDTH, 2), exact)
    assert not report.layers and list(report.left) == ["out_proj"]


# ---- weights that are made of others ----


def identity_of(name):
    def make(layer):
        return parametrize.register_parametrization(layer, name, nn.Identity())

    return make


MADE = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "old weight_norm": nn.utils.weight_norm,
    "old spectral_norm": nn.utils.spectral_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.4),
    "pruned twice": lambda layer: prune.ln_structured(
        prune.random_unstructured(layer, "weight", 0.4), "weight", 0.3, 2, 0
    ),
    "pruned bias": lambda layer: prune.l1_unstructured(layer, "bias", 0.5),
    "bias of others": identity_of("bias"),
}


@pytest.mark.parametrize("kind", MADE)
def test_weights_that_are_made_of_others(kind):
    model = Net()
    with torch.no_grad():
        for name in LAYERS:
            MADE[kind](model.get_submodule(name))
        for parameter in model.parameters():  # what hooks made before is stale
            parameter.mul_(1.1)
    state = {key: value.clone() for key, value in model.train().state_dict().items()}
    stale = copy.deepcopy(model)
    replace_linear(stale, exact)
    expect_kept(model, batch())
    expect_close(outputs(stale.eval(), [batch()]), outputs(model, [batch()]))
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_the_matrix_of_a_weight_norm_is_that_of_its_definition():
    model = Net()
    layer = parametrizations.weight_norm(model.blocks[0][1], dim=0)
    with torch.no_grad():
        layer.parametrizations.weight.original0.copy_(torch.arange(20.0)[:, None])
    g, v = (p.detach() for p in layer.parametrizations.weight.parameters())
    replace_linear(model, exact)
    wanted = g * v / v.square().sum(1, keepdim=True).sqrt()
    expect_close([model.blocks[0][1].to_dense().detach()], [wanted])


def conv1d_net():
    pytorch_utils = pytest.importorskip("transformers.pytorch_utils")
    model = Net()
    for name in LAYERS:
        old = model.get_submodule(name)
        new = pytorch_utils.Conv1D(old.out_features, old.in_features).double()
        model.set_submodule(name, new)
    return model


@pytest.mark.parametrize("kind", ["plain", *MADE])
def test_conv1d_of_transformers(kind):
    model = conv1d_net()
    for name in LAYERS:
        MADE.get(kind, lambda layer: layer)(model.get_submodule(name))
    expect_kept(model, batch())


# ---- hooks ----


def test_hooks_that_change_what_layers_and_blocks_compute():
    model = Net()
    for module in (*model.blocks, model.blocks[0][1], model.blocks[2][3]):
        module.register_forward_hook(lambda module, args, y: 1.5 * y + 0.1)
        module.register_forward_pre_hook(lambda module, args: (args[0] - 0.2,))
    expect_kept(model, batch())


def test_hooks_get_the_new_layer_and_their_handles_remove_them():
    model, seen = Net(), []
    layer = model.blocks[1][1]
    handles = [
        layer.register_forward_pre_hook(
            lambda module, args, more: seen.append(type(module)), with_kwargs=True
        ),
        layer.register_forward_hook(
            lambda *given: seen.append(len(given)), with_kwargs=True, always_call=True
        ),
        layer.register_full_backward_pre_hook(lambda module, g: seen.append("before")),
        layer.register_full_backward_hook(lambda module, dx, dy: seen.append("after")),
    ]
    replace_linear(model, exact)
    x = batch()
    model(x).sum().backward()
    assert seen == [KSLinear, 4, "before", "after"]
    for handle in handles:
        handle.remove()
    model(x).sum().backward()
    assert len(seen) == 4


# ---- what layers keep ----


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types_devices_modes_and_frozen_weights_are_kept(dtype, device):
    model = Net(dtype).to(device)
    model.blocks[0].requires_grad_(False)
    model.blocks[1][1].weight.requires_grad_(False)
    identity_of("bias")(model.blocks[1][1])
    model.blocks[1][3].bias.requires_grad_(False)
    model.blocks[2].eval()
    dense = copy.deepcopy(model)
    compress(model, batch(dtype, device), 0.6, kinds=("interpolated", "sum"))
    for name in LAYERS:
        old, new = dense.get_submodule(name), model.get_submodule(name)
        assert new.training == old.training
        assert {p.dtype for p in new.parameters()} == {dtype}
        assert {p.device.type for p in new.parameters()} == {device}
        trained = {p.requires_grad for n, p in old.named_parameters() if "bias" in n}
        for key, parameter in new.named_parameters():
            is_bias = key.endswith("bias")
            wanted = trained if is_bias else {old.weight.requires_grad}
            assert {parameter.requires_grad} == wanted


class Merging(nn.Linear):
    """As layers of loralib: evaluation mode merges an adapter into the weight."""

    merged = False

    def train(self, mode=True):
        if self.merged == mode:
            with torch.no_grad():
                self.weight.add_(-1.0 if mode else 1.0)
            self.merged = not mode
        return super().train(mode)

    def forward(self, x):
        y = super().forward(x)
        return y if self.merged else y + x.sum(-1, keepdim=True)


@pytest.mark.parametrize("training", [False, True])
def test_no_train_of_a_module_is_called(training):
    model, x = Net(), batch()
    model.blocks[0][1] = Merging(WIDTH, HIDDEN, dtype=x.dtype)
    model.train(training)
    before = model.blocks[0][1].weight.detach().clone()
    with torch.no_grad():
        wanted = outputs(model, [x])
        report = compress(model, x, 1.0, ridge=1e-9)
        assert report.left.keys() == {LAYERS[0]} and len(report.layers) == 5
        expect_close(outputs(model, [x]), wanted, 1e-5)
    assert torch.equal(model.blocks[0][1].weight, before)
    assert model.blocks[0][1].merged != training


class Keywords(Net):
    def forward(self, x):
        norm, first, middle, last = self.blocks[0]
        return last(input=middle(first(input=norm(x))))


@pytest.mark.parametrize("kind", ["interpolated", "monarch", "sum"])
def test_the_input_may_be_a_keyword(kind):
    dense, x = Keywords(), batch()
    model = copy.deepcopy(dense)
    assert len(compress(model, x, 0.7, kinds=kind).layers) == 2
    expect_close(outputs(model, [x]), outputs(plain_twin(dense, model), [x]))
    expect_close(outputs(to_plain(model), [x]), outputs(model, [x]))


# ---- failures ----


def everything():
    """A model with most of the above in it, in several modes."""
    model = Net().train()
    layers = [model.get_submodule(name) for name in LAYERS]
    parametrizations.spectral_norm(layers[0])
    nn.utils.weight_norm(layers[1])
    prune.l1_unstructured(layers[2], "weight", 0.4)
    nn.utils.spectral_norm(layers[3])
    layers[4].requires_grad_(False)
    layers[5].register_forward_hook(lambda module, args, y: 2 * y)
    model.blocks[1].eval()
    model(batch()).sum().backward()
    return model


def snapshot(model):
    """All of a model that a call might change."""
    modules = dict(model.named_modules())
    hooks = {
        (name, kind): list(value)
        for name, module in modules.items()
        for kind, value in module.__dict__.items()
        if kind.endswith("_hooks") and value is not None
    }
    parameters = dict(model.named_parameters())
    return (
        {n: (id(m), m.training, "forward" in m.__dict__) for n, m in modules.items()},
        hooks,
        {n: (id(p), p.requires_grad) for n, p in parameters.items()},
        [p.grad.clone() for p in parameters.values() if p.grad is not None],
        {n: value.clone() for n, value in model.state_dict().items()},
    )


@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
@pytest.mark.parametrize("function", [replace_linear, compress])
def test_a_failure_leaves_the_model_as_it_was(function, share):
    def stop(done):
        if done >= share:
            raise KeyboardInterrupt

    model = everything()
    before = snapshot(model)
    with pytest.raises(KeyboardInterrupt):
        if function is compress:
            compress(model, batch(), 0.6, progress=stop, distill=1)
        else:
            replace_linear(model, 0.6, batch(), progress=stop)
    torch.testing.assert_close(snapshot(model), before, rtol=0, atol=0)
    report = compress(model, batch(), 0.6)
    assert len(report.layers) == 6
    report.undo()
    torch.testing.assert_close(snapshot(model), before, rtol=0, atol=0)
