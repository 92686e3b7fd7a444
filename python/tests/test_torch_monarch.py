"""Causal Monarch convolutions against the paper's complex form and dense matrices."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from filter_convs import random, random_module

from danaus.torch import CausalMonarchConv
from danaus.torch._digits import near_equal

pytestmark = pytest.mark.filterwarnings("ignore:danaus has no kernels for convolutions")


# ---- oracles ----


def coefficients(basis, blocks) -> np.ndarray:
    """C, number by number: C[d, j] is the product over a of co_a at digits d_a and j_a,
    which depends on the digits of j below a and on those of d above."""
    size = int(np.prod(blocks))
    below = [w.detach().numpy() for w in basis.below]
    digits = [
        [i // int(np.prod(blocks[:a])) % b for a, b in enumerate(blocks)]
        for i in range(size)
    ]
    c = np.zeros((size, size))
    for d in range(size):
        for j in range(size):
            value = 1.0
            for a, w in enumerate(below):
                above = d // int(np.prod(blocks[: a + 1])) if len(w) > 1 else 0
                lower = j % int(np.prod(blocks[:a]))
                o, i = digits[d][a], digits[j][a]
                value *= 1.0 if o == i else w[above, o, i, lower] if o > i else 0.0
            c[d, j] = value
    return c


def dense(conv, k, u) -> np.ndarray:
    """C_0^-1 (C_1 k * C_2 u) of rows of one channel each."""
    n = u.shape[-1]
    cs = [coefficients(b, conv.blocks)[:n, :n] for b in conv.bases]
    of_y, of_k, of_u = (cs[i % len(cs)] for i in range(3))
    k = np.pad(k, (0, max(0, n - len(k))))[:n]
    return np.linalg.solve(of_y, np.convolve(of_k @ k, of_u @ u)[:n])


def paper(conv, k, u) -> np.ndarray:
    """Algorithms 2 and 3: two blocks of m and m / 2 digits are half of a Monarch matrix
    of m m points, whose other half may be anything; complex numbers, block by block."""
    m, h = conv.blocks
    lt = np.tril(conv.bases[0].below[0].detach().numpy()[0, :, :, 0], -1) + np.eye(m)
    rng = np.random.default_rng(1)
    rt = np.zeros((m, m, m))  # of block j0: [e][j1]
    for j0 in range(m):
        first = conv.bases[0].below[1].detach().numpy()[0, :, :, j0]
        rt[j0, :h, :h] = np.tril(first, -1) + np.eye(h)
        rt[j0, h:, h:] = np.tril(rng.standard_normal((m - h, m - h)), -1) + np.eye(
            m - h
        )
    f = np.exp(2j * np.pi / m * np.outer(range(m), range(m)))
    right = f @ rt  # R_{j0}
    left = [
        f @ np.diag(np.exp(2j * np.pi / m**2 * i0 * np.arange(m))) @ lt
        for i0 in range(m)
    ]

    def forward(x):
        x = x.reshape(m, m).T  # [j0][j1]
        v = np.stack([right[j0] @ x[j0] for j0 in range(m)])  # [j0][i0]
        return np.stack([left[i0] @ v[:, i0] for i0 in range(m)], axis=1).ravel()

    def backward(y):
        y = y.reshape(m, m)
        v = np.stack([np.linalg.solve(left[i0], y[:, i0]) for i0 in range(m)], axis=1)
        return np.stack(
            [np.linalg.solve(right[j0], v[j0]) for j0 in range(m)]
        ).T.ravel()

    n, zeros = m * h, np.zeros(m * m - m * h)
    kf, uf = (forward(np.concatenate((x, zeros)) + 0j) for x in (k, u))
    return backward(kf * uf)[:n].real


# ---- results ----


@pytest.mark.parametrize("m", [2, 4, 6, 8, 12])
def test_it_is_the_papers_map(rng, m):
    n = m * m // 2
    conv = random_module(rng, CausalMonarchConv, 3, n, blocks=[m, m // 2], skip=False)
    u = random(rng, 2, 3, n)
    y, k = conv(u).detach().numpy(), conv.weight.detach().numpy()
    for b in range(2):
        for h in range(3):
            wanted = paper(conv, k[h], u[b, h].numpy())
            assert np.linalg.norm(y[b, h] - wanted) <= 1e-10 * np.linalg.norm(wanted)


@pytest.mark.parametrize("options", [
    dict(order=1), dict(), dict(order=3), dict(order=4), dict(shared=False),
    dict(tied=False), dict(order=3, tied=False, shared=False, filters=2, taps=11),
    dict(blocks=[1, 30, 1, 2]), dict(blocks=[64]),
])  # fmt: skip
@pytest.mark.parametrize("length", [29, 24, 1])
def test_it_is_a_convolution_between_triangular_matrices(rng, options, length):
    options = {**options, "taps": min(options.get("taps", 29), 29)}
    conv = random_module(rng, CausalMonarchConv, 4, 29, **options)
    u = random(rng, 2, 4, length)
    y, k = conv(u).detach().numpy(), conv.weight.detach().numpy()
    skip = conv.skip.detach().numpy()
    for b in range(2):
        for h in range(4):
            f = h // (4 // conv.filters)
            x = u[b, h].numpy()
            wanted = dense(conv, k[f], x) + skip[f] * x
            np.testing.assert_allclose(
                y[b, h], wanted, rtol=0, atol=1e-9 * np.abs(wanted).max()
            )


def test_it_begins_as_a_convolution(rng, place):
    conv = CausalMonarchConv(5, 100, order=3, device=place)
    u = random(rng, 2, 5, 100).float().to(place)
    k, skip = conv.weight.detach().cpu().numpy(), conv.skip.detach().cpu().numpy()
    y = conv(u).detach().cpu().numpy()
    for h in range(5):
        x = u[1, h].cpu().numpy()
        wanted = np.convolve(k[h].astype(float), x)[:100] + skip[h] * x
        assert np.linalg.norm(y[1, h] - wanted) <= 1e-5 * np.linalg.norm(wanted)


def test_what_is_not_below_diagonals_counts_for_nothing(rng):
    conv = random_module(rng, CausalMonarchConv, 2, 20)
    u = random(rng, 1, 2, 20)
    conv(u).square().sum().backward()
    for w in conv.bases[0].below:
        above = w.grad.permute(0, 3, 1, 2).triu()
        assert above.abs().max() == 0 and w.grad.abs().max() > 0


@pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
def test_it_compiles_whole(rng):
    conv = random_module(rng, CausalMonarchConv, 2, 40).float()
    u = random(rng, 2, 2, 40).float()
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(conv, fullgraph=True)(u), conv(u))


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_default_blocks_hold_every_length(order):
    for length in [*range(1, 300), 1000, 4096, 8192, 2**20]:
        blocks = near_equal(length, order)
        size = int(np.prod(blocks))
        assert len(blocks) == order and length <= size
        assert size <= length * (1 + 1 / max(blocks)) ** order * 2 ** (order - 1)


def test_wrong_arguments():
    for wrong, words in [
        (dict(blocks=[3, 3]), "make 9 numbers, not 10"),
        (dict(blocks=[]), "make 1 numbers"),
        (dict(order=0), "at least 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            CausalMonarchConv(**{"channels": 4, "length": 10, **wrong})
