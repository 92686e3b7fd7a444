"""The causal map on Chebyshev points against polynomials multiplied out."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from filter_convs import random, random_module

from danaus.torch import ChebyshevConv
from danaus.torch.chebyshev import (
    chebyshev_inverse_matrix,
    chebyshev_matrix,
    chebyshev_transform,
)
from danaus.torch.chebyshev_conv import (
    chebyshev_conv,
    structured_causal_factors,
    structured_causal_product,
    structured_causal_solve,
)

SHAPES = list(itertools.product((1, 2, 3, 4, 5), repeat=2))  # c, b
EPS = np.finfo(float).eps


def random_pair(rng, c, b):
    """Leading coefficients from 0.8 to 1.2, and what has to be read by nobody."""
    pair = 0.3 * random(rng, c, c), 0.3 * random(rng, c, b, b)
    for x in pair:
        n = x.shape[-1]
        for j in range(n):
            x[..., n - 1 - j, j] = torch.from_numpy(rng.uniform(0.8, 1.2, x.shape[:-2]))
    return pair


# ---- oracles ----


def values(size) -> np.ndarray:
    """T_a(w_i) by T_{a+1} = 2 x T_a - T_{a-1}."""
    x = np.array([math.cos(math.pi * (i + 0.5) / size) for i in range(size)])
    columns = [np.ones(size), x]
    for _ in range(2, size):
        columns.append(2 * x * columns[-1] - columns[-2])
    return np.stack(columns[:size], 1)


def multiplied(p, q) -> np.ndarray:
    """The product of two sums of Chebyshev polynomials."""
    product = np.zeros(len(p) + len(q) - 1)
    for a, d in itertools.product(range(len(p)), range(len(q))):
        product[a + d] += p[a] * q[d] / 2
        product[abs(a - d)] += p[a] * q[d] / 2
    return product


def columns(pair) -> np.ndarray:
    """Coefficients [a, j] of q_j(Z) = l_{j1}(Z) r_{j1,j0}(T_c(Z))."""
    lt, rt = (x.numpy() for x in pair)
    c, b = rt.shape[:2]
    q = np.zeros((b * c, b * c))
    for j0, j1 in itertools.product(range(b), range(c)):
        r = np.zeros((b - 1) * c + 1)
        for d in range(b - j0):
            r[d * c] = rt[j1, d, j0]
        ell = [lt[a, j1] if a < c - j1 else 0.0 for a in range(c)]
        q[:, j0 * c + j1] = multiplied(ell, r)[: b * c]
    return q


def mapped(of, k, u) -> np.ndarray:
    """The product of what k and u stand for, brought to the basis of M_0 from the
    highest degree down."""
    q0, q1, q2 = of
    size, n = len(q0), len(u)
    first = slice(size // 2, size // 2 + n)
    rest = multiplied(q1[:, first] @ k, q2[:, first] @ u)
    assert np.all(rest[size:] == 0)
    rest, f = rest[:size].copy(), np.zeros(size)
    for j in range(size):
        f[j] = rest[size - 1 - j] / q0[size - 1 - j, j]
        rest -= f[j] * q0[:, j]
    late = 1 - size % 2
    assert not late or f[0] == 0
    return f[late : late + n]


def bound(of, k, u) -> float:
    """32 N eps of the values' sums, with the condition of M_0 twice, once for K."""
    size, n = len(of[0]), len(u)
    ms = [values(size) @ q for q in of]
    first = slice(size // 2, size // 2 + n)
    sums = [abs(m)[:, first] @ abs(x) for m, x in ((ms[1], k), (ms[2], u))]
    condition = np.linalg.cond(ms[0])
    return (
        32 * size * EPS * condition**2 * np.linalg.norm(sums[0] * sums[1])
        / np.linalg.norm(ms[0], 2)
    )  # fmt: skip


# ---- transforms ----


@pytest.mark.parametrize("size", range(1, 17))
def test_four_products_make_the_matrix_its_transpose_and_inverses(rng, size):
    """Theorem 14 and lemma 15, for every split."""
    dense = values(size)
    assert np.abs(chebyshev_matrix(size).numpy() - dense).max() <= 4 * size**2 * EPS
    inverse = np.linalg.inv(dense)
    wanted = {
        (False, False): dense,
        (False, True): dense.T,
        (True, False): inverse,
        (True, True): inverse.T,
    }
    found = chebyshev_inverse_matrix(size).numpy()
    np.testing.assert_allclose(found, inverse, rtol=0, atol=1e-12)
    x = random(rng, 2, 3, size)
    splits = [(c, size // c) for c in range(1, size + 1) if size % c == 0]
    for blocks, (which, matrix) in itertools.product([None, *splits], wanted.items()):
        y = chebyshev_transform(x, blocks, inverse=which[0], transpose=which[1])
        np.testing.assert_allclose(y.numpy(), x.numpy() @ matrix.T, rtol=0, atol=1e-12)


def test_transforms_of_random_sizes(rng):
    """Each is the other's inverse, and one the transpose of the other."""
    for c, b in rng.integers(1, 40, (12, 2)):
        size = int(c * b)
        x, y = random(rng, 2, size)
        dense = torch.from_numpy(
            np.cos(np.pi / size * np.outer(np.arange(size) + 0.5, np.arange(size)))
        )
        limit = 64 * size**1.5 * EPS
        for options in (dict(), dict(transpose=True)):
            wanted = dense.T @ x if options else dense @ x
            z = chebyshev_transform(x, (c, b), **options)
            assert (z - wanted).norm() <= limit * x.norm()
            back = chebyshev_transform(z, (b, c), inverse=True, **options)
            assert (back - x).norm() <= limit * x.norm()
        inner = [chebyshev_transform(v, inverse=True, transpose=t) @ w
                 for v, w, t in ((x, y, False), (y, x, True))]  # fmt: skip
        assert abs(inner[0] - inner[1]) <= limit * x.norm() * y.norm()


def test_transforms_have_gradients(rng):
    x = random(rng, 2, 6).requires_grad_()
    for inverse, transpose in itertools.product((False, True), repeat=2):
        run = functools.partial(
            chebyshev_transform, inverse=inverse, transpose=transpose
        )
        assert torch.autograd.gradcheck(run, x)


# ---- structured causal matrices ----


def test_matrices_hold_values_of_polynomials(rng):
    """Definition 6, lemma 9 and both products, and the solution."""
    for c, b in SHAPES:
        pair = random_pair(rng, c, b)
        q = columns(pair)
        degrees = q[::-1]
        assert np.all(np.triu(degrees, 1) == 0) and np.all(np.diag(degrees) != 0)
        m, x = values(b * c) @ q, random(rng, 2, b * c)
        y = structured_causal_product(x, pair)
        np.testing.assert_allclose(y.numpy(), x.numpy() @ m.T, rtol=0, atol=1e-12)
        back = structured_causal_solve(y, pair).numpy()
        limit = 32 * b * c * EPS * np.linalg.cond(m) ** 2 * abs(x.numpy()).max()
        np.testing.assert_allclose(back, x.numpy(), rtol=0, atol=limit)


def test_one_matrix_does_for_one_parity(rng):
    """Lemmas 10, 12 and 13: with coefficients of r of the parity of its degree alone
    the matrix of a column is M(R_even) or S M(R_odd)."""
    for c, b in SHAPES:
        lt, rt = random_pair(rng, c, b)
        a, j0 = np.indices((b, b))
        rt[:, (b - 1 - j0 - a) % 2 == 1] = 0
        left, even, odd = structured_causal_factors((lt, rt))
        m = values(b * c) @ columns((lt, rt))
        for i1, i0, j1, j0 in itertools.product(range(c), range(b), range(c), range(b)):
            right = (even + odd)[j1, i0, j0]
            sign = (-1) ** (i1 * (b - 1 - j0))
            wanted = m[i1 * b + i0, j0 * c + j1]
            assert abs(sign * left[i0, i1, j1] * right - wanted) <= 1e-12


# ---- the map ----


def test_it_is_a_product_of_polynomials(rng):
    """Theorem 13, exhaustively for small blocks, even and odd N, and all lengths."""
    for c, b in SHAPES:
        pairs = [random_pair(rng, c, b) for _ in range(3)]
        of = [columns(pair) for pair in pairs]
        for n in range(1, (b * c + 1) // 2 + 1):
            k, u = random(rng, 2, n)
            f = chebyshev_conv(u, k, *pairs).numpy()
            wanted = mapped(of, k.numpy(), u.numpy())
            assert np.linalg.norm(f - wanted) <= bound(of, k.numpy(), u.numpy())


@pytest.mark.parametrize("options", [
    dict(), dict(tied=False), dict(blocks=(5, 8)), dict(blocks=(33, 1)),
    dict(blocks=(1, 34), taps=3), dict(filters=2, taps=7, skip=False),
])  # fmt: skip
@pytest.mark.parametrize("length", [17, 12, 1])
def test_modules_are_the_map(rng, options, length):
    conv = random_module(rng, ChebyshevConv, 4, 17, **options)
    u = random(rng, 2, 4, length)
    y, weight = conv(u).detach().numpy(), conv.weight.detach().numpy()
    of = [columns([x.detach() for x in pair]) for pair in conv.pairs()]
    for i, h in itertools.product(range(2), range(4)):
        f = h // (4 // conv.filters)
        k, x = np.pad(weight[f], (0, 17 - conv.taps))[:length], u[i, h].numpy()
        wanted = mapped(of, k, x)
        if conv.skip is not None:
            wanted = wanted + conv.skip[f].item() * x
        assert np.linalg.norm(y[i, h] - wanted) <= bound(of, k, x) + 1e-13


def test_powers_in_one_block_make_it_a_convolution(rng):
    """q_j(Z) = Z^{N-1-j}, with b = 1 or c = 1."""
    for size in (1, 2, 7, 8):
        powers = np.zeros((size, size))  # of Z^{N-1-j}, in Chebyshev polynomials
        p = np.array([1.0])
        for j in reversed(range(size)):
            powers[: len(p), j] = p
            p = multiplied(p, [0.0, 1.0])
        powers, one = torch.from_numpy(powers), torch.ones(1, 1, dtype=torch.float64)
        n = (size + 1) // 2
        k, u = random(rng, 2, n)
        wanted = [sum(k[s] * u[t - s] for s in range(t + 1)).item() for t in range(n)]
        for pair in (
            (powers, one.expand(size, 1, 1)),
            (one, powers[None]),
        ):
            f = chebyshev_conv(u, k, pair, pair, pair).tolist()
            np.testing.assert_allclose(f, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("blocks", [(3, 3), (2, 4)])
def test_gradients(rng, blocks):
    c, b = blocks
    given = [random(rng, 2, 4), random(rng, 4)]
    for _ in range(3):
        given += random_pair(rng, c, b)
    given = [x.requires_grad_() for x in given]
    assert torch.autograd.gradcheck(
        lambda u, k, *x: chebyshev_conv(u, k, x[:2], x[2:4], x[4:]), given
    )


def test_what_is_above_degrees_counts_for_nothing(rng):
    pair = [x.requires_grad_() for x in random_pair(rng, 3, 4)]
    chebyshev_conv(*random(rng, 2, 6), pair, pair, pair).square().sum().backward()
    for x in pair:
        assert x.grad.flip(-2).triu(1).abs().max() == 0 and x.grad.abs().max() > 0


def test_wrong_arguments(rng):
    good = random_pair(rng, 2, 3)
    bad = good[0].clone(), good[1].clone()
    bad[1][1, 1, 1] = 0
    u, k = random(rng, 2, 3)
    for call, words in [
        (lambda: chebyshev_conv(u, k, bad, good, good), "rt is singular"),
        (lambda: chebyshev_conv(u, k, good, good, bad), "rt is singular"),
        (lambda: chebyshev_conv(u[:2], k, *[good] * 3), "k has 3 numbers, u 2"),
        (lambda: chebyshev_conv(*random(rng, 2, 4), *[good] * 3), "4 long; 6 points"),
        (lambda: chebyshev_conv(u.float(), k, *[good] * 3), "float64"),
        (lambda: chebyshev_conv(u, k, good, good, random_pair(rng, 2, 2)), "4, 6"),
        (lambda: chebyshev_conv(u, k, good, good, good[0]), "pair"),
        (lambda: structured_causal_product(u, good), "6 rows; 3"),
        (lambda: structured_causal_solve(u, good), "6 rows; 3"),
        (lambda: structured_causal_factors(good[::-1]), "shapes"),
        (lambda: structured_causal_factors([x + 0j for x in good]), "real"),
        (lambda: chebyshev_transform(u, (2, 2)), "make 3 numbers"),
        (lambda: chebyshev_transform(u, (3, 1, 1)), "two sizes"),
        (lambda: chebyshev_transform(u + 0j), "real"),
        (lambda: ChebyshevConv(1, 4, blocks=(2, 3)), "make 7 points"),
        (lambda: ChebyshevConv(1, 4, blocks=(9,)), "two that make"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
