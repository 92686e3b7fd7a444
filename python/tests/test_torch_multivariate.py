"""The multivariate causal map against polynomials of several variables."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from filter_convs import digits, random, random_module

from danaus.torch import MultivariateConv
from danaus.torch.multivariate_conv import POINTS, multivariate_conv

SIZES = [[1], [4], [5], [2, 3], [4, 4], [3, 5], [3, 2, 4], [2, 1, 3, 2]]
EPS = np.finfo(float).eps


def random_matrix(rng, sizes, points, shared):
    """Leading coefficients from 0.8 to 1.2, and what has to be read by nobody."""
    matrix = []
    for t, m in enumerate(sizes):
        x = 0.3 * random(rng, 1 if shared else math.prod(sizes[t + 1 :]), m, m)
        for j in range(m):
            place = m - 1 - j if points == "chebyshev" else j
            x[:, place, j] = torch.from_numpy(rng.uniform(0.8, 1.2, len(x)))
        matrix.append(x)
    return matrix


# ---- oracles ----


def place(found, sizes) -> int:
    return sum(d * math.prod(sizes[:t]) for t, d in enumerate(found))


def counts(m, points, a, j) -> bool:
    """True if the coefficient of degree a of l_j may be other than zero."""
    if points == "chebyshev":
        return a <= m - 1 - j
    h = (m + 1) // 2
    return a >= j and not (a >= h > j)


def polynomials(matrix, sizes, points) -> np.ndarray:
    """Coefficients [degrees, j] of all q_j, degrees being digits of their place."""
    size = math.prod(sizes)
    q = np.ones((size, size))
    for i, j in itertools.product(range(size), repeat=2):
        degrees, index = digits(i, sizes), digits(j, sizes)
        for t, m in enumerate(sizes):
            x = matrix[t].detach().numpy()
            above = j // math.prod(sizes[: t + 1]) if len(x) > 1 else 0
            a, d = degrees[t], index[t]
            q[i, j] *= x[above, a, d] if counts(m, points, a, d) else 0.0
    return q


def multiplied(p, q, sizes, points) -> np.ndarray:
    """The product of two polynomials whose degrees fit, term by term."""
    product = np.zeros(len(p))
    for i, j in itertools.product(np.flatnonzero(p), np.flatnonzero(q)):
        for share, degrees in terms(digits(i, sizes), digits(j, sizes), points):
            assert all(d < m for d, m in zip(degrees, sizes))
            product[place(degrees, sizes)] += share * p[i] * q[j]
    return product


def terms(left, right, points):
    if points == "roots":
        return [(1.0, [a + d for a, d in zip(left, right)])]
    each = [(a + d, abs(a - d)) for a, d in zip(left, right)]
    return [(0.5 ** len(each), list(found)) for found in itertools.product(*each)]


def put(x, sizes, points, late=None) -> list[int]:
    """Where the numbers of a signal lie among N; late: where those of f do."""
    halves = [(m + 1) // 2 for m in sizes]
    places = []
    for i in range(x):
        found = digits(i, halves)
        if points == "chebyshev":
            found = [d + (1 - m % 2 if late else m // 2) for d, m in zip(found, sizes)]
        places.append(place(found, sizes))
    return places


def mapped(of, k, u, sizes, points) -> np.ndarray:
    q0, q1, q2 = of
    first = put(len(u), sizes, points)
    product = multiplied(q1[:, first] @ k, q2[:, first] @ u, sizes, points)
    return np.linalg.solve(q0, product)[put(len(u), sizes, points, True)]


def convolved(k, u, halves) -> np.ndarray:
    """The convolution of as many axes as there are digits."""
    y = np.zeros(len(u))
    for i, j in itertools.product(range(len(k)), range(len(u))):
        found = [a + b for a, b in zip(digits(i, halves), digits(j, halves))]
        if all(d < h for d, h in zip(found, halves)):
            if place(found, halves) < len(u):
                y[place(found, halves)] += k[i] * u[j]
    return y


# ---- results ----


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_it_is_a_product_of_polynomials(rng, points, shared, sizes):
    """Theorem 17. Values of polynomials with coefficients of about 1 are below
    2^p times their number; the condition of M_0 stands for its inverse."""
    matrices = [random_matrix(rng, sizes, points, shared) for _ in range(3)]
    of = [polynomials(m, sizes, points) for m in matrices]
    most, size = math.prod((m + 1) // 2 for m in sizes), math.prod(sizes)
    condition = np.linalg.cond(of[0])
    for n in {1, (most + 1) // 2, most}:
        k, u = random(rng, 2, n)
        f = multivariate_conv(u, k, *matrices, points=points).numpy()
        wanted = mapped(of, k.numpy(), u.numpy(), sizes, points)
        first = put(n, sizes, points)
        sums = [
            np.sum(abs(q[:, first]) @ abs(x))
            for q, x in ((of[1], k.numpy()), (of[2], u.numpy()))
        ]
        limit = 32 * size * EPS * condition**2 * sums[0] * sums[1]
        assert np.linalg.norm(f - wanted) <= limit


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("options", [
    dict(), dict(order=3, shared=False, tied=False), dict(sizes=[4, 6]),
    dict(order=1, filters=2, taps=5, skip=False),
])  # fmt: skip
@pytest.mark.parametrize("length", [6, 4])
def test_modules_are_the_map(rng, points, options, length):
    conv = random_module(rng, MultivariateConv, 4, 6, points=points, **options)
    u = random(rng, 2, 4, length)
    y, weight = conv(u).detach().numpy(), conv.weight.detach().numpy()
    of = [polynomials(m, conv.sizes, points) for m in conv.coefficients()]
    for i, h in itertools.product(range(2), range(4)):
        f = h // (4 // conv.filters)
        k, x = np.pad(weight[f], (0, 6 - conv.taps))[:length], u[i, h].numpy()
        wanted = mapped(of, k, x, conv.sizes, points)
        if conv.skip is not None:
            wanted = wanted + conv.skip[f].item() * x
        np.testing.assert_allclose(y[i, h], wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sizes", [[9], [4, 6], [3, 5, 2], [4, 4, 4, 3]], ids=str)
def test_fourier_factors_make_a_convolution_of_all_axes(rng, sizes):
    halves = [(m + 1) // 2 for m in sizes]
    for n in {math.prod(halves), math.prod(halves) - 1}:
        conv = MultivariateConv(
            1, n, sizes=sizes, points="roots", skip=False, dtype=torch.float64
        )
        u, k = random(rng, 1, 1, n), conv.weight[0].detach().numpy()
        wanted = convolved(k, u[0, 0].numpy(), halves)
        y = conv(u)[0, 0].detach().numpy()
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("sizes", [[6, 4], [5, 3], [4, 3, 2]], ids=str)
def test_no_digit_sees_larger_ones(rng, points, shared, sizes):
    halves = [(m + 1) // 2 for m in sizes]
    n = math.prod(halves)
    options = dict(sizes=sizes, points=points, shared=shared, tied=False)
    conv = random_module(rng, MultivariateConv, 1, n, **options)
    u = random(rng, 1, 1, n)
    jacobian = torch.autograd.functional.jacobian(lambda x: conv(x)[0, 0], u)[:, 0, 0]
    largest = jacobian.abs().max()
    for o, j in itertools.product(range(n), repeat=2):
        if any(a < b for a, b in zip(digits(o, halves), digits(j, halves))):
            assert abs(jacobian[o, j]) <= 1e-12 * largest


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("sizes", [[6, 4], [5, 3, 4]], ids=str)
def test_it_is_a_convolution_of_axes_between_triangular_matrices(rng, shared, sizes):
    """docs/ks.md (28), for roots of unity, where T_i has the coefficients."""
    halves = [(m + 1) // 2 for m in sizes]
    matrices = [random_matrix(rng, sizes, "roots", shared) for _ in range(3)]
    first = put(math.prod(halves), sizes, "roots")
    t0, t1, t2 = (
        polynomials(m, sizes, "roots")[np.ix_(first, first)] for m in matrices
    )
    assert np.all(np.triu(t0, 1) == 0) and np.all(np.triu(t1, 1) == 0)
    k, u = random(rng, 2, math.prod(halves))
    f = multivariate_conv(u, k, *matrices, points="roots").numpy()
    wanted = np.linalg.solve(t0, convolved(t1 @ k.numpy(), t2 @ u.numpy(), halves))
    np.testing.assert_allclose(f, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("shared", [True, False])
def test_gradients(rng, points, shared):
    sizes = [3, 4]
    matrices = [random_matrix(rng, sizes, points, shared) for _ in range(3)]
    given = [random(rng, 2, 4), random(rng, 4), *itertools.chain(*matrices)]
    given = [x.requires_grad_() for x in given]

    def run(u, k, *x):
        return multivariate_conv(u, k, x[:2], x[2:4], x[4:], points=points)

    assert torch.autograd.gradcheck(run, given)


@pytest.mark.parametrize("points", POINTS)
def test_what_degrees_exclude_counts_for_nothing(rng, points):
    matrix = [x.requires_grad_() for x in random_matrix(rng, [5, 4], points, True)]
    u, k = random(rng, 2, 6)
    multivariate_conv(u, k, *[matrix] * 3, points=points).square().sum().backward()
    for x in matrix:
        m = x.shape[1]
        for a, j in itertools.product(range(m), repeat=2):
            assert counts(m, points, a, j) or x.grad[0, a, j] == 0
        assert x.grad.abs().max() > 0


def test_wrong_arguments(rng):
    good = random_matrix(rng, [4, 3], "chebyshev", False)
    bad = [good[0].clone(), good[1]]
    bad[0][2, 1, 2] = 0
    u, k = random(rng, 2, 4)
    tall = [good[0][:, :3], good[1]]
    for call, words in [
        (lambda: multivariate_conv(u, k, bad, good, good), "0 of M_0 are singular"),
        (lambda: multivariate_conv(u[:3], k, *[good] * 3), "k has 4 numbers, u 3"),
        (lambda: multivariate_conv(*random(rng, 2, 5), *[good] * 3), "enough for 4"),
        (lambda: multivariate_conv(u, k, good, good[:1], good), "M_1 has digits of"),
        (lambda: multivariate_conv(u, k, good, good, good[0]), "sequence of tensors"),
        (lambda: multivariate_conv(u, k, good, good, good[0][0, 0]), "sequence"),
        (lambda: multivariate_conv(u, k, good, good, tall), "is needed"),
        (lambda: multivariate_conv(u, k, good, good, [x[:2] for x in good]), "1 or 3"),
        (lambda: multivariate_conv(u.float(), k, *[good] * 3), "float64"),
        (lambda: multivariate_conv(u, k, *[[x + 0j for x in good]] * 3), "complex"),
        (lambda: multivariate_conv(u, k, *[good] * 3, points="other"), "points"),
        (lambda: multivariate_conv(u, k, [good[0][0]], good, good), "three dimensions"),
        (lambda: MultivariateConv(1, 5, sizes=[4, 4]), "enough for 4"),
        (lambda: MultivariateConv(1, 5, sizes=[]), "enough for 1"),
        (lambda: MultivariateConv(1, 5, order=0), "at least 1"),
        (lambda: MultivariateConv(1, 5, points="other"), "points"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
