"""Packing all layers after a step: the bits of training do not change, and layers pack
no more for themselves."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from danaus.torch import KSLinear, _ops, _packed, pack_after  # noqa: E402

STEPS = 4
OPTIMIZERS = torch.optim.SGD, torch.optim.AdamW


def network(device: str, dtype=torch.float32) -> nn.Module:
    torch.manual_seed(3)
    made = {"device": device, "dtype": dtype}
    return nn.Sequential(
        KSLinear(24, 36, "1,6,6,6 6,6,4,1", activation="gelu", **made),
        KSLinear(36, 20, "2,5,9,2", bias=False, **made),
        nn.Linear(20, 20, **made),
        KSLinear(20, 12, "1,12,20,1", **made),
    )


def inputs(device: str, rows: int = 7, dtype=torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 24, generator=generator)
    return x.to(device, dtype)


def step(net, optimizer, x) -> torch.Tensor:
    optimizer.zero_grad()
    loss = net(x).float().square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


class Calls:
    """Counts calls of the operators."""

    def __init__(self, monkeypatch):
        self.train = self.packed = 0
        train, packed = _ops._TRAIN, _ops._PACKED

        def count_train(*arguments):
            self.train += 1
            return train(*arguments)

        def count_packed(*arguments):
            self.packed += 1
            return packed(*arguments)

        monkeypatch.setattr(_ops, "_TRAIN", count_train)
        monkeypatch.setattr(_ops, "_PACKED", count_packed)


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_training_has_the_same_bits(device, kind, dtype, monkeypatch):
    plain = network(device, dtype)
    packed = copy.deepcopy(plain)
    optimizers = [kind(net.parameters(), 0.1) for net in (plain, packed)]
    pack_after(optimizers[1], packed)
    x = inputs(device, dtype=dtype)
    losses = [step(plain, optimizers[0], x) for _ in range(STEPS)]
    calls = Calls(monkeypatch)
    found = [step(packed, optimizers[1], x) for _ in range(STEPS)]
    assert torch.equal(torch.stack(found), torch.stack(losses))
    assert losses[0] != losses[-1]
    for a, b in zip(plain.parameters(), packed.parameters()):
        assert torch.equal(a, b)
    assert (calls.train, calls.packed) == (3, 3 * (STEPS - 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(device, dtype, monkeypatch):
    plain = network(device)
    packed = copy.deepcopy(plain)
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (plain, packed)]
    pack_after(optimizers[1], packed)
    x = inputs(device)
    calls = Calls(monkeypatch)
    for _ in range(STEPS):
        with torch.autocast(device, dtype):
            found = [step(*both, x) for both in zip((plain, packed), optimizers)]
        assert torch.equal(*found)
    assert (calls.train, calls.packed) == (3 * STEPS + 3, 3 * (STEPS - 1))


def test_every_batch_has_its_own(device):
    plain = network(device)
    packed = copy.deepcopy(plain)
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (plain, packed)]
    pack_after(optimizers[1], packed)
    for rows in (7, 300, 7, 1, 0, 300, 8, 1):
        x = inputs(device, rows)
        found = [step(*both, x) for both in zip((plain, packed), optimizers)]
        assert torch.equal(*found) or rows == 0


def change_in_place(layer, optimizer):
    with torch.no_grad():
        layer.weights[0].mul_(2)


def change_bias(layer, optimizer):
    with torch.no_grad():
        layer.bias.add_(1)


def change_data(layer, optimizer):
    layer.weights[0].data = 2 * layer.weights[0].data


def change_parameter(layer, optimizer):
    layer.weights[0] = nn.Parameter(2 * layer.weights[0].detach())


def change_state(layer, optimizer):
    layer.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()})


def change_chain(layer, optimizer):
    chain = layer.to_chain()
    for w in chain.weights:
        w *= 2
    layer.load_chain(chain)


CHANGES = (
    change_in_place, change_bias, change_data, change_parameter, change_state,
    change_chain,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_other_changes_are_seen(device, change):
    net = network(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    pack_after(optimizer, net)
    x = inputs(device)
    for _ in range(2):
        step(net, optimizer, x)
    change(net[0], optimizer)
    for _ in range(2):  # and after a step that follows
        expected = copy.deepcopy(net)(x)
        assert torch.equal(net(x), expected)
        step(net, optimizer, x)


def test_changes_that_are_not_counted(device):
    net = network(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.0)
    packing = pack_after(optimizer, net)
    x = inputs(device)
    step(net, optimizer, x)
    before = net(x)
    net[0].weights[0].data.mul_(2)
    assert torch.equal(net(x), before)
    packing.pack()
    expected = copy.deepcopy(net)(x)
    assert torch.equal(net(x), expected) and not torch.equal(expected, before)


def test_a_layer_moves(device):
    net = network(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    pack_after(optimizer, net)
    x = inputs(device)
    step(net, optimizer, x)
    net.double()
    for _ in range(2):
        expected = copy.deepcopy(net)(x.double())
        assert torch.equal(net(x.double()), expected)
        step(net, optimizer, x.double())


def test_removing(device, monkeypatch):
    net = network(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    packing = pack_after(optimizer, net)
    assert packing.layers() == [net[0], net[1], net[3]]
    step(net, optimizer, inputs(device))
    packing.remove()
    calls = Calls(monkeypatch)
    monkeypatch.setattr(_packed, "ops", None)  # nothing is packed together
    for _ in range(2):
        step(net, optimizer, inputs(device))
    assert (calls.train, calls.packed) == (6, 0)


def test_two_optimizers_of_one_model(device):
    plain = network(device)
    packed = copy.deepcopy(plain)
    halves = [(net[:2].parameters(), net[2:].parameters()) for net in (plain, packed)]
    optimizers = [[torch.optim.SGD(half, 0.1) for half in both] for both in halves]
    packings = [pack_after(optimizer, packed) for optimizer in optimizers[1]]
    x = inputs(device)
    for n in range(STEPS):
        if n == STEPS - 2:
            packings[0].remove()
        losses = []
        for net, both in zip((plain, packed), optimizers):
            losses.append(step(net, both[0], x))
            both[1].step()
            both[1].zero_grad()
        assert torch.equal(*losses)


def test_a_model_is_not_kept(device):
    net = network(device)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1, device=device))], 0.1)
    packing = pack_after(optimizer, net)
    del net
    assert packing.layers() == []
    optimizer.step()


def test_a_backward_pass_after_a_step_is_refused(device):
    net = network(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    pack_after(optimizer, net)
    x = inputs(device)
    step(net, optimizer, x)
    loss = net(x).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_does_not_fit_is_refused(device):
    layer = network(device)[1]
    x = torch.randn(7, 36, device=device)
    question = layer._sizes, "none", False, False, False
    _, packed = _ops.ops._ks_linear_train(x, list(layer.weights), None, *question)
    pack = _ops.ops._ks_pack_training
    asked = [1, 0, 8, 0, 0, 0, *layer._sizes]
    weights = [w.detach() for w in layer.weights]
    pack([packed], weights, x.dtype, asked)
    for wrong, message in (
        (([packed], [], x.dtype, asked), "fewer weights"),
        (([packed], weights, x.dtype, asked[:-1]), "not a whole list"),
        (([packed], weights, x.dtype, [2**62, *asked[1:]]), "not a whole list"),
        (([packed], weights, x.dtype, [-1, *asked[1:]]), "not a whole list"),
        (([packed[1:]], weights, x.dtype, asked), "packed for other arguments"),
        (([packed], [w[:1] for w in weights], x.dtype, asked), "numbers, not"),
    ):
        with pytest.raises(RuntimeError, match=message):
            pack(*wrong)
    with pytest.raises(RuntimeError, match="packed for other arguments"):
        _ops.ops._ks_linear_packed(x, packed[1:].clone(), False, *question)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("whole", [True, False], ids=["whole step", "passes"])
def test_a_graph_packs_after_its_step(whole):
    """The step of a graph, or an eager one between graphs of the passes."""
    plain = network("cuda")
    packed = copy.deepcopy(plain)
    x = inputs("cuda")
    losses = []
    optimizers = [
        torch.optim.AdamW(net.parameters(), 0.1, capturable=True)
        for net in (plain, packed)
    ]
    pack_after(optimizers[1], packed)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(packed, optimizers[1], x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizers[1].zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = packed(x).float().square().mean()
        loss.backward()
        if whole:
            optimizers[1].step()
    for _ in range(3):
        losses.append(step(plain, optimizers[0], x))
    for _ in range(3):
        losses.append(step(plain, optimizers[0], x))
        graph.replay()
        if not whole:
            optimizers[1].step()
        torch.testing.assert_close(loss, losses[-1])
    assert not torch.equal(losses[-1], losses[-2])
    found = [step(*both, x) for both in zip((packed, plain), optimizers[::-1])]
    torch.testing.assert_close(*found)
