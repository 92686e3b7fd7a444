"""Channels that layers share: found, permuted, and the network stays what it is."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_torch_compress import (  # noqa: E402
    HIDDEN,
    WIDTH,
    answer,
    pooled,
    problem,
    text,
    tiny,
)

import danaus  # noqa: E402
from danaus.torch import compress  # noqa: E402
from danaus.torch.calibrate import Walk  # noqa: E402
from danaus.torch.candidates import KINDS, candidates  # noqa: E402
from danaus.torch.exchange import find_exchanges  # noqa: E402
from danaus.torch.parents import evaluating  # noqa: E402

nn = torch.nn


def exchanges_of(model, data):
    names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    with torch.no_grad(), evaluating(model):
        return find_exchanges(Walk(model, names, data))


@pytest.mark.parametrize("before", [False, True])
def test_heads_and_hidden_units_are_found(before):
    found = exchanges_of(tiny(before=before), text(2))
    wanted = []
    for block in ("blocks.0.", "blocks.1.", "blocks.2."):
        wanted += [
            ({block + "v"}, {block + "o"}, 8),
            ({block + "q", block + "k"}, set(), 8),
            ({block + "up"}, {block + "down"}, HIDDEN),
        ]
    assert [
        (set(e.rows), set(e.cols), int(np.bincount(e.classes)[0])) for e in found
    ] == wanted


def test_layers_that_an_order_would_change_share_nothing():
    """Positions are turned into the channels, as rotary embeddings do."""
    model = tiny()
    for block in model.blocks:
        block.q.register_forward_hook(
            lambda m, args, y: y * torch.linspace(1, 2, WIDTH)
        )
        block.up.register_forward_hook(lambda m, args, y: y.cumsum(-1))
    found = exchanges_of(model, text(2))
    assert [(set(e.rows), set(e.cols)) for e in found] == [
        ({f"blocks.{i}.v"}, {f"blocks.{i}.o"}) for i in range(3)
    ]


def shuffled_hidden(model, rng):
    """Hidden units of every MLP, which are Monarch of 4 blocks, in a random order."""
    for block in model.blocks:
        order = rng.permutation(HIDDEN)
        for layer, rows, cols, rank in (
            (block.up, HIDDEN, WIDTH, 1),
            (block.down, WIDTH, HIDDEN, 1),
        ):
            patterns = danaus.patterns.make(
                "monarch", rows, cols, order=2, rank=rank,
                row_radices=(rows // 4, 4), col_radices=(4, cols // 4),
            )  # fmt: skip
            sizes = [(p.a, p.b, p.c, p.d) for p in patterns]
            factors = [rng.standard_normal(s) / s[2] ** 0.5 for s in sizes]
            dense = danaus.Chain.from_weights(factors).to_dense()
            dense = dense[order] if rows == HIDDEN else dense[:, order]
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(dense))
    return model


def test_shuffled_hidden_units_are_put_in_order(rng):
    data, found = text(8), {}
    wanted = answer(shuffled_hidden(tiny(), np.random.default_rng(3)), data)
    for permute in (False, True):
        model = shuffled_hidden(tiny(), np.random.default_rng(3))
        share = 4 * (WIDTH + HIDDEN) / (WIDTH * HIDDEN)
        report = compress(
            model, data, share, layers=["*.up", "*.down"], kinds=("monarch",),
            budgets="uniform", permute=permute, ridge=1e-6,
        )  # fmt: skip
        found[permute] = float((answer(model, data) - wanted).norm() / wanted.norm())
        names = {f"blocks.{i}.up" for i in range(3)} if permute else set()
        assert set(report.orders) == names
        assert ("outputs permuted" in str(report)) == permute
    assert found[False] > 0.1
    assert found[True] < 0.3 * found[False]


@pytest.mark.parametrize(
    "kinds", [("monarch",), ("monarch", "low_rank", "interpolated")]
)
def test_whatever_moves_the_layers_fit_together(kinds):
    """What each layer reports is what the network has: orders agree everywhere."""
    data, losses = text(6), {}
    wanted = answer(tiny(), data)
    for permute in (False, True):
        model = tiny()
        report = compress(model, data, 0.6, kinds=kinds, output=pooled, permute=permute)
        error = float((answer(model, data) - wanted).norm() / wanted.norm())
        losses[permute] = sum(layer.loss for layer in report.layers)
        assert error < 0.6
        for name, order in report.orders.items():
            seen = []
            with torch.no_grad(), evaluating(model):
                for m in (model, tiny()):
                    handle = m.get_submodule(name).register_forward_hook(
                        lambda module, args, y, seen=seen: seen.append(y)
                    )
                    answer(m, data[:1])
                    handle.remove()
            made, dense = seen[0], seen[1][..., order]
            assert (made - dense).norm() < 0.8 * dense.norm() < 1.2 * seen[1].norm()
        report.undo()
        assert torch.equal(answer(model, data), wanted)
    assert losses[True] < losses[False] * 1.05


def test_moved_candidates_are_the_same_layers_in_another_order(rng):
    given, x, _ = problem(rng, 20, 24)
    for candidate in (c for kind in KINDS for c in candidates(given, 300, (kind,))):
        for side in (0, 1):
            groups = candidate.groups(side)
            order = np.arange(len(groups))
            for group in np.unique(groups):
                places = np.flatnonzero(groups == group)
                order[places] = rng.permutation(places)
            moved = candidate.moved(side, order)
            dense = candidate.dense.take(order, axis=side)
            bias = rng.standard_normal(20)
            like = torch.empty(0, dtype=torch.float64)
            inputs = x if side == 0 else x[:, order]
            made = moved.module(bias, like)(torch.from_numpy(inputs)).detach().numpy()
            assert np.allclose(moved.dense, dense)
            assert np.allclose(made, inputs @ dense.T + bias, atol=1e-9)
            assert moved.parameters == candidate.parameters
