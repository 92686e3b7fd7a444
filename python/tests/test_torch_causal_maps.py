"""What docs/ks.md, section 8, says of the causal Monarch maps beside each other."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from filter_convs import digits, random_module

from danaus.torch import CausalMonarchConv, ChebyshevConv, MultivariateConv

pytestmark = pytest.mark.filterwarnings("ignore:danaus has no kernels for convolutions")


def bilinear(conv) -> np.ndarray:
    """B[s, j, o]: number o of f for k = e_s and u = e_j."""
    n, rows = conv.length, []
    for k in torch.eye(n, dtype=torch.float64):
        with torch.no_grad():
            conv.weight.copy_(k[None])
            ones = torch.eye(n, dtype=torch.float64)[:, None]
            rows.append(conv(ones)[:, 0].numpy())
    return np.stack(rows)


# ---- the order-p map of one variable: equations (24) to (26) ----


def extended(conv, rng):
    """co_a of N = 2 n points: the last digit has twice the values, and what the
    columns from n on hold is anything."""
    co = [w.detach().numpy()[0].copy() for w in conv.bases[0].below]  # [d, j, lower]
    co = [np.stack([unit(x) for x in np.moveaxis(w, 2, 0)]) for w in co]
    last, b = co[-1], conv.blocks[-1]
    wide = np.zeros((len(last), 2 * b, 2 * b))
    wide[:, :b, :b] = last
    wide[:, b:, b:] = [unit(x) for x in rng.standard_normal(last.shape)]
    return [*co[:-1], wide], [*conv.blocks[:-1], 2 * b]


def unit(x) -> np.ndarray:
    return np.tril(x, -1) + np.eye(len(x))


def factor_product(co, sizes) -> np.ndarray:
    """p Kronecker-sparse factors after a reversal of digits, equation (25)."""
    size, p = math.prod(sizes), len(sizes)
    order = [
        sum(d * math.prod(sizes[t + 1 :]) for t, d in enumerate(digits(j, sizes)))
        for j in range(size)
    ]
    m = np.zeros((size, size), dtype=complex)
    m[order, range(size)] = 1  # row: j with its digit 0 the slowest
    for a in reversed(range(p)):
        below, b, later = math.prod(sizes[:a]), sizes[a], math.prod(sizes[a + 1 :])
        factor = np.zeros((size, size), dtype=complex)
        for j, place in itertools.product(range(below), range(later)):
            lower = digits(j, sizes[:a][::-1])[::-1]
            row = sum(d * math.prod(sizes[:t]) for t, d in enumerate(lower))
            for i, column in itertools.product(range(b), repeat=2):
                turn = -2j * np.pi * below * (i * later + place) / size
                value = sum(np.exp(turn * d) * co[a][row, d, column] for d in range(b))
                at = j * b * later + place
                factor[at + i * later, at + column * later] = value
        m = factor @ m
    return m


@pytest.mark.parametrize("blocks", [[6], [3, 2], [2, 2, 3], [2, 3, 1, 2]], ids=str)
def test_any_order_is_a_monarch_matrix_of_twice_the_length(rng, blocks):
    n = math.prod(blocks)
    conv = random_module(rng, CausalMonarchConv, 1, n, blocks=blocks, skip=False)
    co, sizes = extended(conv, rng)
    m = factor_product(co, sizes)
    c = np.ones((2 * n, 2 * n))
    for d, j in itertools.product(range(2 * n), repeat=2):
        for a, (x, y) in enumerate(zip(digits(d, sizes), digits(j, sizes))):
            c[d, j] *= co[a][j % math.prod(sizes[:a]), x, y]
    assert np.all(np.triu(c, 1) == 0)
    np.testing.assert_allclose(m, np.fft.fft(c, axis=0), rtol=0, atol=1e-11)
    k, u = rng.standard_normal((2, n))
    values = (m[:, :n] @ k) * (m[:, :n] @ u)
    wanted = np.linalg.solve(m, values)[:n]
    with torch.no_grad():
        conv.weight.copy_(torch.from_numpy(k)[None])
        y = conv(torch.from_numpy(u)[None, None])[0, 0].numpy()
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-10)


# ---- the real map: equation (27) ----


@pytest.mark.parametrize("blocks", [(4, 4), (3, 5), (5, 4), (1, 9)], ids=str)
def test_chebyshev_points_have_a_convolution_between_triangular_matrices(rng, blocks):
    n = (math.prod(blocks) + 1) // 2
    options = {"blocks": blocks, "tied": False, "skip": False}
    conv = random_module(rng, ChebyshevConv, 1, n, **options)
    late = 1 - math.prod(blocks) % 2
    of_f, of_k, of_u = (powers(pair) for pair in conv.pairs())
    of_f = of_f[::-1][late : late + n, late : late + n]
    of_k, of_u = (
        q[:n, len(q) // 2 : len(q) // 2 + n][::-1] for q in (of_k, of_u)
    )  # Z^{n-1-s}
    for t in (of_f, of_k, of_u):
        assert np.abs(np.triu(t, 1)).max() <= 1e-12 and np.diag(t).all()
    k, u = conv.weight[0].detach().numpy(), rng.standard_normal(n)
    wanted = np.linalg.solve(of_f, np.convolve(of_k @ k, of_u @ u)[:n])
    y = conv(torch.from_numpy(u)[None, None])[0, 0].detach().numpy()
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-9)


def powers(pair) -> np.ndarray:
    """Coefficients [d, j] of Z^d in q_j(Z) = l_{j1}(Z) r_{j1,j0}(T_c(Z))."""
    lt, rt = (x.detach().numpy() for x in pair)
    c, b = rt.shape[:2]
    to_powers = np.polynomial.chebyshev.cheb2poly
    q = np.zeros((b * c, b * c))
    for j0, j1 in itertools.product(range(b), range(c)):
        r = np.zeros((b - 1) * c + 1)
        r[::c] = np.where(np.arange(b) < b - j0, rt[j1, :, j0], 0)
        ell = np.where(np.arange(c) < c - j1, lt[:, j1], 0)
        p = np.convolve(to_powers(ell), to_powers(r))
        q[: len(p), j0 * c + j1] = p
    return q


# ---- several variables: equation (28), and that none is of one variable ----


def nilpotency(b, rng) -> int:
    """How many times a number without a unit part is its own factor until there is
    nothing left, in the algebra that the map is one of but for its triangles.

    With L u = f(e_0, u) and R k = f(k, e_0) that is x y = f(R^-1 x, L^-1 y).
    """
    n = len(b)
    left, right = b[0].T, b[:, 0].T
    rows = np.linalg.inv(right), np.linalg.inv(left)
    product = np.einsum("sjo,sx,jy->xyo", b, *rows)
    one = b[0, 0]
    np.testing.assert_allclose(
        np.einsum("x,xyo->oy", one, product), np.eye(n), rtol=0, atol=1e-10
    )
    x = rng.uniform(0.5, 1, n)
    x -= x[0] / one[0] * one
    power, times, largest = x, 1, np.linalg.norm(x) * np.linalg.norm(product)
    while times <= n:
        before = np.linalg.norm(power)
        power = np.einsum("x,y,xyo->o", power, x, product)
        times += 1
        if np.linalg.norm(power) <= 1e-9 * before * largest:
            break
    return times


@pytest.mark.parametrize("kind, options, wanted", [
    (CausalMonarchConv, dict(order=3), 8),
    (CausalMonarchConv, dict(order=3, shared=False, tied=False), 8),
    (CausalMonarchConv, dict(order=2, tied=False), 8),
    (ChebyshevConv, dict(blocks=(4, 4)), 8),
    (ChebyshevConv, dict(blocks=(3, 5), tied=False), 8),
    (MultivariateConv, dict(order=1), 8),
    (MultivariateConv, dict(sizes=[4, 8]), 5),
    (MultivariateConv, dict(sizes=[4, 4, 4]), 4),
    (MultivariateConv, dict(sizes=[4, 4, 4], points="roots"), 4),
    (MultivariateConv, dict(sizes=[3, 4, 3], tied=False, shared=False), 4),
    (MultivariateConv, dict(sizes=[7, 3], points="roots", tied=False, shared=False), 5),
], ids=str)  # fmt: skip
def test_how_soon_powers_vanish_tells_the_maps_apart(rng, kind, options, wanted):
    """n for one variable, 1 + sum of (h_t - 1) for several: equal for isomorphic
    algebras, so that no map of several variables is one of one variable."""
    conv = random_module(rng, kind, 1, 8, scale=0.15, skip=False, **options)
    assert nilpotency(bilinear(conv), rng) == wanted


def test_fourier_factors_of_two_digits_are_no_convolution_of_one_axis():
    """The counterexample of the page: f_2 has no k_1 u_1."""
    options = dict(sizes=[4, 4], points="roots", skip=False, dtype=torch.float64)
    b = bilinear(MultivariateConv(1, 4, **options))
    wanted = np.zeros((4, 4, 4))
    for s, j in itertools.product(range(4), repeat=2):
        if s & j == 0:
            wanted[s, j, s + j] = 1
    np.testing.assert_allclose(b, wanted, rtol=0, atol=1e-14)
    c = bilinear(CausalMonarchConv(1, 4, 2, skip=False, dtype=torch.float64))
    assert b[1, 1, 2] == pytest.approx(0, abs=1e-14) and c[1, 1, 2] == pytest.approx(1)
