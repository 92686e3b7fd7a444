"""Networks whose linear layers are replaced: budgets, errors, targets, undo."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import danaus  # noqa: E402
from danaus.torch import (  # noqa: E402
    InterpolatedLinear,
    KSLinear,
    SumLinear,
    compress,
    replace_linear,
)
from danaus.torch.calibrate import Walk  # noqa: E402
from danaus.torch.candidates import (  # noqa: E402
    CHAINS,
    KINDS,
    candidates,
    interpolated_parameters,
    interpolated_rank,
    least_parameters,
)
from danaus.torch.moments import Moments, Problem  # noqa: E402
from danaus.torch.parents import evaluating  # noqa: E402
from danaus.torch.sensitivity import gradient_moments, share_out, sides  # noqa: E402

nn = torch.nn
WIDTH, HIDDEN, WORDS, LENGTH = 24, 48, 50, 9


class Block(nn.Module):
    """A transformer's block; the normalisation comes after or before."""

    def __init__(self, before: bool, bias: bool = True):
        super().__init__()
        for name in "qkvo":
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=bias))
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.before, self.dropout = before, nn.Dropout(0.3)

    def attend(self, x, mask):
        def heads(y):
            return y.unflatten(-1, (3, 8)).transpose(1, 2)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        y = nn.functional.scaled_dot_product_attention(q, k, v, mask[:, None, None])
        return self.dropout(self.o(y.transpose(1, 2).flatten(-2)))

    def forward(self, x, mask):
        if self.before:
            x = x + self.attend(self.norm1(x), mask)
            y = self.norm2(x)
            return x + self.down(nn.functional.gelu(self.up(y)))
        x = self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))


class Tiny(nn.Module):
    """Three blocks on embedded words; the output is a dict."""

    def __init__(self, before: bool = False, bias: bool = True):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(before, bias) for _ in range(3))
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, input_ids, attention_mask=None):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        x = self.words(input_ids)
        for block in self.blocks:
            x = block(x, mask.bool())
        return {"hidden": self.last(x)}


def tiny(device="cpu", dtype=torch.float32, **options):
    torch.manual_seed(0)
    return Tiny(**options).to(device, dtype)


def text(count=4, rows=16, seed=1):
    """Batches of random words with padding."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        ids = torch.randint(1, WORDS, (rows, LENGTH), generator=generator)
        lengths = torch.randint(3, LENGTH + 1, (rows, 1), generator=generator)
        mask = (torch.arange(LENGTH) < lengths).long()
        found.append({"input_ids": ids * mask, "attention_mask": mask})
    return found


def pooled(output, batch):
    mask = batch["attention_mask"][..., None].to(output["hidden"])
    return (output["hidden"] * mask).sum(1) / mask.sum(1)


def answer(model, data):
    with evaluating(model), torch.no_grad():
        device = next(model.parameters()).device
        batches = [{k: v.to(device) for k, v in b.items()} for b in data]
        return torch.cat([pooled(model(**b), b) for b in batches])


def weights_of(model):
    """Weights of all that has taken the place of linear layers, without biases."""
    return sum(
        w.numel() for m in model.modules() if isinstance(m, KSLinear) for w in m.weights
    )


def problem(rng, rows=20, cols=24, weighted=True, samples=200):
    """One layer with correlated inputs, and targets that are not quite its outputs."""
    weight = torch.from_numpy(rng.standard_normal((rows, cols)))
    mix = torch.from_numpy(rng.standard_normal((cols, cols)))
    x = torch.from_numpy(rng.standard_normal((samples, cols))) @ mix + 1
    y = x @ weight.T + torch.from_numpy(rng.standard_normal((samples, rows)))
    moments = Moments(rows, cols, torch.device("cpu"))
    for part in range(0, samples, 50):
        moments.add(x[part : part + 50], y[part : part + 50])
    side = None
    if weighted:
        g = torch.from_numpy(rng.standard_normal((50, rows)))
        side = torch.linalg.cholesky(g.T @ g / 50)
    return Problem.of(moments, weight, side, 1e-6, True), x.numpy(), y.numpy()


# ---- candidates ----


@pytest.mark.parametrize("shape", [(20, 24), (24, 20), (16, 16)])
@pytest.mark.parametrize("weighted", [False, True])
def test_candidates_keep_their_budget_and_know_their_errors(rng, shape, weighted):
    given, x, y = problem(rng, *shape, weighted)
    budget = int(0.6 * shape[0] * shape[1])
    found = [c for kind in KINDS for c in candidates(given, budget, (kind,))]
    assert [c.kind for c in found] == list(KINDS)
    together = candidates(given, budget, KINDS)
    assert min(c.loss for c in together) == min(c.loss for c in found)
    side = np.eye(shape[0]) if given.side is None else given.side
    target = y - y.mean(0)
    least = None
    for c in sorted(found, key=lambda c: c.loss):
        assert c.parameters <= budget
        module = c.module(given.bias(c.dense), torch.empty(0, dtype=torch.float64))
        made = module(torch.from_numpy(x)).detach().numpy()
        assert np.allclose(made, x @ c.dense.T + given.bias(c.dense), atol=1e-9)
        assert np.allclose(module.to_dense().detach().numpy(), c.dense, atol=1e-9)
        error = np.linalg.norm(y - made) / np.linalg.norm(target)
        assert abs(error - given.error(c.dense)) < 1e-4
        # Losses differ as weighted errors do.
        loss = np.square((y - made) @ side).sum() / len(x) - c.loss
        least = loss if least is None else least
        assert abs(loss - least) < 1e-3 * abs(loss)


def test_low_rank_is_the_best_of_its_rank_and_interpolation_is_the_same(rng):
    given, x, y = problem(rng)
    low, same = (
        candidates(given, budget, (kind,))[0]
        for kind, budget in (
            ("low_rank", 5 * 44),
            ("interpolated", interpolated_parameters(20, 24, 5)),
        )
    )
    assert np.linalg.matrix_rank(low.dense, tol=1e-9) == 5
    assert np.allclose(low.dense, same.dense, atol=1e-8)
    assert same.parameters == low.parameters - 25
    for _ in range(20):  # nothing nearby is better
        left = low.chains[0][0][0, :, :, 0] + 1e-3 * rng.standard_normal((20, 5))
        right = low.chains[0][1][0, :, :, 0] + 1e-3 * rng.standard_normal((5, 24))
        assert given.loss(left @ right) > low.loss


def test_interpolation_is_never_worse_than_low_rank_of_as_many_weights(rng):
    for share in (0.2, 0.5, 0.8):
        given, _, _ = problem(rng)
        budget = int(share * 20 * 24)
        better, worse = (
            candidates(given, budget, (kind,))[0]
            for kind in ("interpolated", "low_rank")
        )
        assert better.loss <= worse.loss * (1 + 1e-9)


@pytest.mark.parametrize("kind", CHAINS)
def test_the_fewest_weights_of_a_chain_are_known(rng, kind):
    useful = 0
    for _ in range(40):
        sizes = rng.integers(1, 9, 2) * rng.choice([1, 3, 4, 8], 2)
        rows, cols = sizes.tolist()
        least = least_parameters(rows, cols, (kind,))
        matrix = rng.standard_normal((rows, cols))
        if least < rows * cols:
            made = danaus.compress(matrix, least, candidates=CHAINS[kind])
            assert sum(c.parameters for c in (made.chain, made.second) if c) == least
            useful += 1
        with pytest.raises(ValueError, match="no candidate|too few|fits"):
            danaus.compress(matrix, least - 1, candidates=CHAINS[kind])
    assert useful > 3


def test_ranks_are_the_largest_that_are_paid_for():
    for rows, cols in ((7, 5), (5, 7), (6, 6), (1, 9)):
        for budget in range(rows * cols + 3):
            rank = interpolated_rank(rows, cols, budget)
            assert interpolated_parameters(rows, cols, rank) <= budget or rank == 0
            if rank < min(rows, cols):
                assert interpolated_parameters(rows, cols, rank + 1) > budget


def test_budgets_are_shared_out_to_the_last_step():
    losses = {"a": np.array([9.0, 4.0, 1.0, 0.0]), "b": np.array([2.0, 1.0, 0.0])}
    costs = {"a": np.array([1, 2, 3, 4]), "b": np.array([1, 2, 3])}
    assert share_out(losses, costs, 4) == {"a": 2, "b": 0}
    assert share_out(losses, costs, 99) == {"a": 3, "b": 2}
    with pytest.raises(ValueError, match="need 2 at least"):
        share_out(losses, costs, 1)


def test_what_interpolation_keeps_follows_its_weights(rng):
    given, x, _ = problem(rng)
    (found,) = candidates(given, interpolated_parameters(20, 24, 5), ("interpolated",))
    bias, like = given.bias(found.dense), torch.empty(0, dtype=torch.float64)
    layer, x = found.module(bias, like), torch.from_numpy(x)
    expected = layer(x).detach()
    for mode in (torch.no_grad, torch.inference_mode, torch.no_grad):
        with mode():
            assert torch.equal(layer(x), expected) and torch.equal(layer(x), expected)
            assert layer(x.float().double()[:3]).shape == (3, 20)
    other = copy.deepcopy(layer)
    with torch.no_grad():
        layer.others.weights[0].mul_(2)
        assert not torch.allclose(layer(x), expected)
        assert torch.equal(layer(x), torch.nn.functional.linear(
            layer.basis(x), *layer._make_second(torch.float64)))  # fmt: skip
        assert torch.equal(other(x), expected)
    other.requires_grad_(False)
    inputs = x.clone().requires_grad_()
    other(inputs).sum().backward()
    assert torch.allclose(inputs.grad, other.to_dense().sum(0).expand_as(inputs))


# ---- whole networks ----


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("share", [0.4, 0.7])
def test_compress_keeps_the_budget_and_undo_gives_back_every_bit(before, share, device):
    model, data = tiny(device, before=before).train(), text()
    modes = [m.training for m in model.modules()]
    kept = {name: p.clone() for name, p in model.state_dict().items()}
    wanted = answer(model, data)
    report = compress(model, data, share, output=pooled)
    total = 3 * (4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN)
    assert report.dense_parameters == total
    assert report.parameters == weights_of(model)
    assert share * total - 100 <= report.parameters <= share * total
    assert not any(isinstance(m, nn.Linear) for m in model.modules())
    error = (answer(model, data) - wanted).norm() / wanted.norm()
    assert 1e-3 < error < 0.6
    report.undo()
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(p, kept[name]) for name, p in model.state_dict().items())
    assert torch.equal(answer(model, data), wanted)


def test_a_layer_that_the_output_does_not_need_gets_no_more_than_it_must():
    """As the pooler of a sentence encoder, which is called for nothing."""
    model, data = tiny(), text()
    model.unused = nn.Linear(WIDTH, WIDTH)
    forward = model.forward

    def forward_and_waste(*args, **keywords):
        found = forward(*args, **keywords)
        model.unused(found["hidden"])
        return found

    model.forward = forward_and_waste
    report = compress(model, data, 0.5, output=pooled)
    (unused,) = [layer for layer in report.layers if layer.name == "unused"]
    assert unused.parameters == interpolated_parameters(WIDTH, WIDTH, 1)


def test_everything_kept_is_the_same_network():
    model, data = tiny(dtype=torch.float64), text()
    wanted = answer(model, data)
    report = compress(model, data, 1.0, output=pooled)
    assert {layer.kind for layer in report.layers} == {"dense"}
    assert torch.allclose(answer(model, data), wanted, atol=1e-3)


def test_the_same_call_gives_the_same_bits(device):
    data, states = text(2), []
    for _ in range(2):
        model = tiny(device)
        compress(model, data, 0.5, output=pooled, distill=1)
        states.append(model.state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def test_reported_errors_are_those_of_a_recomputation():
    model, data = tiny(dtype=torch.float64), text()
    dense = tiny(dtype=torch.float64)
    report = compress(model, data, 0.5, output=pooled, stream=False, weigh=False)
    for layer in report.layers:
        name, x, y = layer.name, [], []
        hooks = [
            model.get_submodule(name).register_forward_pre_hook(
                lambda m, args, x=x: x.append(args[0])
            ),
            dense.get_submodule(name).register_forward_hook(
                lambda m, args, out, y=y: y.append(out)
            ),
        ]
        answer(model, data), answer(dense, data)
        for hook in hooks:
            hook.remove()
        keep = torch.cat([b["attention_mask"].bool().flatten() for b in data])
        rows_x, rows_y = (torch.cat([t.flatten(0, 1) for t in s])[keep] for s in (x, y))
        made = model.get_submodule(name)(rows_x)
        error = ((rows_y - made).norm() / (rows_y - rows_y.mean(0)).norm()).item()
        assert abs(error - layer.error) < 1e-5
        size = sum(w.numel() for m in model.get_submodule(name).modules()
                   if isinstance(m, KSLinear) for w in m.weights)  # fmt: skip
        assert size == layer.parameters
    assert [r["name"] for r in report.records()] == [r.name for r in report.layers]
    assert f"{report.parameters} of {report.dense_parameters}" in str(report)


def test_what_padding_says_changes_nothing():
    first, data = tiny(), text()
    other = [dict(b) for b in data]
    for batch in other:  # other words where the mask is 0
        batch["input_ids"] = torch.where(
            batch["attention_mask"].bool(), batch["input_ids"], torch.tensor(7)
        )
    second = tiny()
    compress(first, data, 0.5, output=pooled)
    compress(second, other, 0.5, output=pooled)
    assert torch.allclose(answer(first, data), answer(second, data), atol=1e-3)


@pytest.mark.parametrize("before", [False, True])
def test_streams_are_found_and_their_targets_help(before):
    data = text(6)
    with torch.no_grad(), evaluating(tiny(before=before)):
        model = tiny(before=before).eval()
        names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear)]
        walk = Walk(model, names, data)
    outputs = {f"blocks.{i}.{n}" for i in range(3) for n in ("o", "down")}
    assert set(walk.streams) == outputs
    if not before:
        assert walk.streams["blocks.1.o"] == "blocks.1.norm1"
    assert walk.blocks == ["blocks.0", "blocks.1", "blocks.2"]
    assert [len(s.names) for s in walk.stages] == [3, 1, 1, 1] * 3
    errors = []
    for stream in (False, True):
        model = tiny(before=before)
        wanted = answer(model, data)
        compress(model, data, 0.4, output=pooled, budgets="uniform", stream=stream)
        errors.append(float((answer(model, data) - wanted).norm()))
    assert errors[1] < errors[0]


def test_blocks_that_are_skipped_change_no_moments():
    data = text()
    found = []
    for shortcut in (True, False):
        model = tiny()
        if not shortcut:
            model.blocks = nn.Sequential(*model.blocks)
        report = compress(model, data, 0.5, output=pooled)
        found.append([layer.error for layer in report.layers])
    assert np.allclose(*found, rtol=1e-4)


def test_gradient_moments_are_those_of_finite_differences():
    model, data = tiny(dtype=torch.float64).eval(), text(1, 4)
    walk = Walk(model, ["blocks.2.down"], data)
    moments = gradient_moments(walk, pooled, 400, 0)["blocks.2.down"]
    side = sides({"a": moments}, 0.0)["a"]
    torch.manual_seed(1)
    noise = 1e-5 * torch.randn(WIDTH, dtype=torch.float64)
    mask, changes = data[0]["attention_mask"].bool(), []
    with torch.no_grad():
        wanted = pooled(model(**data[0]), data[0])
        centred = wanted - wanted.mean(0)
        for row, at in mask.nonzero():

            def hook(module, args, y, row=row, at=at):
                y = y.clone()
                y[row, at] += noise
                return y

            handle = walk.originals["blocks.2.down"].register_forward_hook(hook)
            moved = pooled(model(**data[0]), data[0]) - wanted
            handle.remove()
            changes.append((moved @ centred.T).square().sum() / len(centred))
    expected = float(torch.stack(changes).mean())
    assert float((noise @ side).square().sum()) == pytest.approx(expected, rel=0.15)


# ---- rules ----


def test_rules_of_every_form():
    data, chain = text(), "4,6,6,1 1,24,3,1 1,3,24,1"
    made = danaus.factorize(np.eye(WIDTH), "1,24,4,1 1,4,24,1").chain

    def rule(name, linear):
        return {"q": 0.5, "k": made, "o": "1,24,2,1 1,2,24,1"}.get(name[-1])

    for given in (rule, {"*.q": 0.5, "*.k": made, "*.o": "1,24,2,1 1,2,24,1"}):
        for given_data in (None, data):
            model = tiny()
            bias = model.blocks[0].q.bias.clone()
            report = replace_linear(model, given, given_data)
            assert len(report.layers) == 9 and len(report.left) == 9
            assert isinstance(model.blocks[0].v, nn.Linear)
            q, k, o = (getattr(model.blocks[1], n) for n in "qko")
            assert weights_of(q) <= WIDTH * WIDTH // 2
            dense = torch.from_numpy(made.to_dense()).float()
            assert torch.allclose(k.to_dense(), dense, atol=1e-6)
            assert [tuple(w.shape) for w in o.weights] == [(1, 24, 2, 1), (1, 2, 24, 1)]
            assert (given_data is not None) or torch.equal(bias, model.blocks[0].q.bias)
            report.undo()
            assert sum(isinstance(m, nn.Linear) for m in model.modules()) == 18
    with pytest.raises(ValueError):
        replace_linear(tiny(), chain)


def test_calibration_is_better_for_the_data_than_without():
    data, errors = text(8), []
    for given_data in (None, data):
        model = tiny()
        wanted = answer(model, data)
        replace_linear(model, 0.4, given_data, kinds=("low_rank",))
        errors.append(float((answer(model, data) - wanted).norm()))
    assert errors[1] < errors[0]


def test_layers_without_bias_conv1d_and_shared_weights():
    pytest.importorskip("transformers")
    from transformers.pytorch_utils import Conv1D

    model, data = tiny(bias=False), text()
    model.blocks[0].o = Conv1D(WIDTH, WIDTH)
    model.blocks[1].o.weight = model.blocks[2].o.weight
    report = compress(model, data, 0.5, output=pooled)
    assert set(report.left) == {"blocks.1.o", "blocks.2.o"}
    assert model.blocks[0].o.out_features == WIDTH
    assert next(r for r in report.layers if r.name == "blocks.0.o").error < 1
    assert all(m.bias is None for m in model.blocks[1].q.modules()
               if isinstance(m, KSLinear))  # fmt: skip


def test_data_of_other_forms():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.first, self.second = nn.Linear(12, 20), nn.Linear(20, 8)
            self.spare = nn.Linear(8, 8)

        def forward(self, x, scale=1.0):
            return self.second(torch.relu(self.first(x * scale)))

    torch.manual_seed(0)
    x = [torch.randn(40, 12) for _ in range(3)]
    states = []
    for data in (x, [(t,) for t in x], [[t, 1.0] for t in x], iter(x)):
        model = Two()
        report = compress(model, data, 0.5)
        assert report.left == {"spare": "the model does not call it"}
        states.append(model.second.state_dict())
    for state in states[1:]:
        assert all(torch.equal(state[k], states[0][k]) for k in state)


def test_distillation_helps():
    data, errors = text(2), []
    for passes in (0, 8):
        model = tiny()
        wanted = answer(model, data)
        compress(model, data, 0.3, output=pooled, distill=passes)
        errors.append(float((answer(model, data) - wanted).norm()))
        assert all(p.requires_grad for p in model.parameters())
    assert errors[1] < errors[0]


def test_every_kind_in_a_network_and_its_state_dict():
    data = text()
    for kind, cls in (("monarch", KSLinear), ("sum", SumLinear),
                      ("interpolated", InterpolatedLinear)):  # fmt: skip
        model = tiny()
        report = compress(model, data, 0.6, budgets="uniform", kinds=(kind,))
        assert isinstance(model.blocks[0].up, cls)
        wanted = answer(model, data)
        state = {name: p.clone() for name, p in model.state_dict().items()}
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        model.load_state_dict(state)
        assert torch.equal(answer(model, data), wanted)
        assert report.parameters == weights_of(model)


@pytest.mark.parametrize("options", ({}, {"weigh": False, "budgets": "uniform"}))
def test_data_that_says_nothing_is_refused(options):
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
    before = [p.clone() for p in model.parameters()]
    for batch, sentence in (
        (torch.full((20, 16), torch.nan), "not finite"),
        (torch.full((20, 16), torch.inf), "not finite"),
        (torch.empty(0, 16), "no rows|0 rows"),
    ):
        with pytest.raises(ValueError, match=sentence):
            compress(model, [batch], 0.5, **options)
    for p, old in zip(model.parameters(), before):
        assert torch.equal(p, old)


def test_one_kind_needs_no_list():
    model = torch.nn.Sequential(torch.nn.Linear(16, 16))
    compress(model, [torch.randn(20, 16)], 0.5, kinds="monarch")
    assert isinstance(model[0], KSLinear)


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        ({"params": 0.0}, ValueError, "above 0 and at most 1"),
        ({"params": "30 %"}, TypeError, "a number of weights or a share"),
        ({"params": 3}, ValueError, "too few"),
        ({"data": []}, ValueError, "no batches"),
        ({"data": "text"}, TypeError, "data is a text"),
        ({"data": ["text", "more"]}, TypeError, "the batches are texts"),
        ({"data": 3}, TypeError, "data is a int, not an iterable"),
        ({"data": [{"input_ids": [[1, 2], [3]]}]}, ValueError, "different lengths"),
        ({"kinds": ("butterfly",)}, ValueError, "kinds are some of"),
        ({"budgets": "equal"}, ValueError, "'sensitivity' or 'uniform'"),
        ({"layers": "nothing*"}, ValueError, "none of the model's 18 linear layers"),
        ({"layers": ["blocks", "nothing"]}, ValueError, "layers has 'nothing'"),
        ({"layers": [3]}, TypeError, "layers has 3, which is not a name"),
        ({"exclude": "blocks.7"}, ValueError, "'blocks.7', which fits no module"),
        ({"exclude": 3}, TypeError, "exclude has 3, which is not a name"),
        ({"progress": 3}, TypeError, "progress has to be True, False or a function"),
        ({"output": "hidden"}, TypeError, "output is a str"),
        ({"output": lambda found, batch: found["hidden"].sum()}, ValueError,
         "a single number"),
        ({"output": lambda found, batch: None}, TypeError, "returns a NoneType"),
        ({"output": lambda found, batch: found["hidden"].detach()}, ValueError,
         "gradients"),
    ],
)  # fmt: skip
def test_wrong_arguments_leave_the_model_alone(changed, error, sentence):
    model = tiny()
    before = dict(model.named_modules())
    given = {"data": text(1), "params": 0.5, **changed}
    with pytest.raises(error, match=sentence):
        compress(model, given.pop("data"), **given)
    assert dict(model.named_modules()) == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_failure_half_way_puts_everything_back():
    model, seen = tiny(), []

    def stop(share):
        seen.append(share)
        if len(seen) == 5:
            raise KeyboardInterrupt

    before = dict(model.named_modules())
    with pytest.raises(KeyboardInterrupt):
        compress(model, text(), 0.5, output=pooled, progress=stop)
    assert dict(model.named_modules()) == before
    assert seen == sorted(seen)
