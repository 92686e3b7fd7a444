"""Layers that give a row the same bits in any batch, with and without gradients."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from compiling import compiled  # noqa: E402

from danaus.torch import (  # noqa: E402
    BlockDiagonalLinear,
    FusedLinear,
    InterpolatedLinear,
    KSLinear,
    MonarchLinear,
    SumLinear,
    apply_structure,
    replace_linear,
    structure_of,
)
from danaus.torch.functional import ks_linear  # noqa: E402

DTYPES = torch.float32, torch.bfloat16, torch.float16
CHAINS = {
    "dense": "1,48,40,1",
    "monarch": "1,8,5,6 5,6,8,1",
    "thin": "1,2,3,20 5,12,8,1",
}
BATCHES = *range(2, 20), 33, 63, 64, 65, 127, 300
ON = {"batch_invariant": True}


def rows_of(x, call):
    """The result of each row alone."""
    return torch.stack([call(x[n : n + 1])[0] for n in range(len(x))])


def batches_agree(layer, features, dtype, device, call=None):
    """True if rows have the bits that they have alone in all batches."""
    torch.manual_seed(1)
    call = call or layer
    few = torch.randn(7, features, device=device).to(dtype)
    alone = rows_of(few, call)
    for batch in BATCHES:
        places = torch.arange(3, 3 + batch, device=device) % 7
        if not torch.equal(call(few[places]), alone[places]):
            return False
    return True


def layer_of(chain, device, dtype, **options):
    torch.manual_seed(0)
    patterns = CHAINS[chain]
    first, last = patterns.split()[0], patterns.split()[-1]
    a, b, _, d = map(int, first.split(","))
    e, _, f, g = map(int, last.split(","))
    options |= {"device": device, "dtype": dtype}
    return KSLinear(e * f * g, a * b * d, patterns, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("chain", list(CHAINS))
def test_rows_have_the_same_bits_in_any_batch(device, chain, dtype):
    layer = layer_of(chain, device, dtype, activation="gelu", **ON)
    features = layer.in_features
    with torch.no_grad():
        assert batches_agree(layer, features, dtype, device)
        layer.freeze()
        assert batches_agree(layer, features, dtype, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("chain", list(CHAINS))
def test_all_ways_to_call_a_layer_have_the_same_bits(device, chain, dtype):
    layer = layer_of(chain, device, dtype, **ON)
    x = torch.randn(300, layer.in_features, device=device).to(dtype)
    trained = layer(x)
    assert trained.requires_grad
    with torch.no_grad():
        assert torch.equal(layer(x), trained)
        assert torch.equal(layer(x), trained)  # with weights that were kept
        function = ks_linear(x, list(layer.weights), layer.bias, **ON)
        assert torch.equal(function, trained)
        layer.freeze(batch=1)
        assert torch.equal(layer(x), trained)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_of_rows_have_the_same_bits(device, dtype):
    layer = layer_of("monarch", device, dtype, **ON)

    def gradient(x):
        x = x.detach().requires_grad_()
        (dx,) = torch.autograd.grad(layer(x), x, x[:, :1].detach().expand(-1, 48))
        return dx

    assert batches_agree(layer, layer.in_features, dtype, device, gradient)


def test_batch_last_layers_do_too(device):
    layer = layer_of("monarch", device, torch.float32, layout="batch_last", **ON)
    with torch.no_grad():
        assert batches_agree(
            layer, layer.in_features, torch.float32, device, lambda x: layer(x.T).T
        )


def test_layers_of_layers_do_too(device):
    first, second = (layer_of(c, device, None, **ON) for c in ("dense", "monarch"))
    others = KSLinear(48, 16, "1,16,48,1", device=device, **ON)
    layers = (
        MonarchLinear(40, 48, 8, device=device, **ON),
        BlockDiagonalLinear(40, 48, 4, device=device, **ON),
        SumLinear(first, second),
        InterpolatedLinear(first, others, range(48)),
        FusedLinear([layer_of("dense", device, None, **ON) for _ in range(3)]),
    )
    with torch.no_grad():
        for layer in layers:
            assert "batch_invariant=True" in repr(layer)
            assert batches_agree(layer, 40, torch.float32, device), layer


def test_other_layers_do_not(device):
    """This test can fail, where kernels depend on the batch."""
    layers = [layer_of(c, device, d) for c in CHAINS for d in DTYPES]
    with torch.no_grad():
        agree = [
            batches_agree(x, x.in_features, x.weights[0].dtype, device) for x in layers
        ]
    if all(agree):
        pytest.skip("kernels that are chosen for other batches agree here")


def test_the_option_may_change_between_calls(device):
    layer = layer_of("thin", device, torch.float32)
    x = torch.randn(64, layer.in_features, device=device)
    fresh = layer_of("thin", device, torch.float32, **ON)
    fresh.load_state_dict(layer.state_dict())
    with torch.no_grad():
        for freeze in False, True:
            if freeze:
                layer.freeze()
            layer.batch_invariant = False
            layer(x)
            layer.batch_invariant = True
            assert torch.equal(layer(x), fresh(x))


def test_it_compiles_and_has_no_state(device):
    layer = layer_of("monarch", device, torch.float32, **ON)
    assert list(layer.state_dict()) == list(
        layer_of("monarch", device, torch.float32).state_dict()
    )
    x = torch.randn(9, layer.in_features, device=device)
    with torch.no_grad():
        assert torch.equal(compiled(layer)(x), layer(x))


def test_structures_and_replacements_have_it(device):
    model = torch.nn.Sequential(torch.nn.Linear(24, 24), torch.nn.ReLU())
    model = model.to(device)
    replace_linear(model, 0.5, **ON)
    found = [layer for layer in model.modules() if isinstance(layer, KSLinear)]
    assert found and all(layer.batch_invariant for layer in found)
    structure = structure_of(model)
    other = torch.nn.Sequential(torch.nn.Linear(24, 24), torch.nn.ReLU()).to(device)
    apply_structure(other, structure)
    assert structure_of(other) == structure
    with torch.no_grad():
        assert batches_agree(model, 24, torch.float32, device)
