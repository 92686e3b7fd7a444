"""Monarch matrices and their convolutions against polynomials multiplied out."""

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from danaus.torch import MonarchConv
from danaus.torch.monarch_conv import (
    BASES,
    monarch_coefficients,
    monarch_conv,
    monarch_factors,
)
from danaus.torch.monarch_matrix import (
    monarch_inverse,
    monarch_product,
    monarch_product_reversed,
)

SHAPES = list(itertools.product((1, 2, 3, 4), repeat=2))  # c, b
EPS = np.finfo(float).eps


def random(rng, *shape, kind=float):
    x = rng.standard_normal(shape)
    if kind is complex:
        x = x + 1j * rng.standard_normal(shape)
    return torch.from_numpy(np.asarray(x))


def random_pair(rng, c, b, kind=complex):
    """Blocks near the identity, so that all have inverses."""
    return tuple(
        0.3 * random(rng, n, m, m, kind=kind) + 1.5 * torch.eye(m)
        for n, m in ((b, c), (c, b))
    )


def random_coefficients(rng, c, b, basis, kind=float):
    """Coefficients of matrices that have inverses: one term, and small numbers."""
    if basis == "univariate":
        lt, ones = random(rng, c * b, c, kind=kind), torch.eye(c * b)[:, :c]
    else:
        lt, ones = random(rng, b, c, c, kind=kind), torch.zeros(b, c, c)
        ones[0] = torch.eye(c)
    rt = random(rng, c, b, b, kind=kind)
    small = 0.3 / np.sqrt(c * b)
    return small * lt + ones, small * rt + torch.eye(b)


# ---- oracles ----


def dense(pair) -> np.ndarray:
    """M, number by number."""
    left, right = (x.detach().numpy() for x in pair)
    b, c = left.shape[:2]
    m = np.zeros((b * c, b * c), dtype=left.dtype)
    for i1, i0, j1, j0 in itertools.product(range(c), range(b), range(c), range(b)):
        m[i1 * b + i0, j1 * b + j0] = left[i0, i1, j1] * right[j1, i0, j0]
    return m


def swapped(c, b) -> list[int]:
    """Column j1 c + j0 of M Q is column j0 b + j1 of M."""
    return [j0 * b + j1 for j1 in range(b) for j0 in range(c)]


def column(lt, rt, basis, j) -> np.ndarray:
    """Coefficients [a, d] of q_j, in Z^a alone if univariate."""
    c, b = rt.shape[:2]
    if basis == "univariate":
        j1, j0 = divmod(j, c)
        q = np.zeros((c * b, 1), dtype=complex)
        for a, e in itertools.product(range(len(lt)), range(b)):
            q[(a + c * e) % (c * b)] += lt[a, j0] * rt[j0, e, j1]
        return q
    j1, j0 = divmod(j, b)
    q = np.zeros((c, b), dtype=complex)
    for a, d, e in itertools.product(range(c), range(b), range(b)):
        for place, share in remainders(d, e, b, basis):
            q[a, place] += share * lt[d, a, j1] * rt[j1, e, j0]
    return q


def remainders(a, d, n, basis) -> list[tuple[int, float]]:
    """X^a X^d modulo X^n - 1, or T_a T_d modulo T_n, as degrees with factors."""
    if basis != "chebyshev":
        return [((a + d) % n, 1.0)]
    high = (a + d, 0.5) if a + d < n else (2 * n - a - d, -0.5 if a + d > n else 0.0)
    return [high if high[0] < n else (0, 0.0), (abs(a - d), 0.5)]


def multiplied(p, q, basis) -> np.ndarray:
    """The product of two polynomials, modulo what the points are the roots of."""
    c, b = p.shape
    product = np.zeros((c, b), dtype=complex)
    for a, d, e, g in itertools.product(range(c), range(b), range(c), range(b)):
        for x, of_x in remainders(a, e, c, basis):
            for y, of_y in remainders(d, g, b, basis):
                product[x, y] += of_x * of_y * p[a, d] * q[e, g]
    return product


def combined(lt, rt, basis, weights) -> np.ndarray:
    columns = (column(lt, rt, basis, j) for j in range(len(weights)))
    return sum(w * q for w, q in zip(weights, columns))


def bound(m0, m1, m2, k, u) -> float:
    """Products are off by N eps of sums of absolute values; blocks' inverses by their
    condition, which that of M_0 stands for."""
    values = np.linalg.norm((abs(m1) @ abs(k)) * (abs(m2) @ abs(u)))
    return 32 * len(k) * EPS * np.linalg.cond(m0) ** 2 * values / np.linalg.norm(m0, 2)


# ---- matrices ----


@pytest.mark.parametrize("kind", [float, complex])
def test_products_and_inverses(rng, kind):
    for c, b in SHAPES:
        pair = random_pair(rng, c, b, kind)
        x = random(rng, 2, c * b, kind=kind)
        m, y = dense(pair), monarch_product(x, pair)
        np.testing.assert_allclose(y.numpy(), x.numpy() @ m.T, atol=1e-13)
        back = monarch_product_reversed(y, monarch_inverse(pair))
        limit = 8 * c * b * EPS * np.linalg.cond(m) ** 2 * float(x.abs().max())
        np.testing.assert_allclose(back.numpy(), x.numpy(), rtol=0, atol=limit)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("rows", [None, 1])
def test_matrices_hold_values_of_polynomials(rng, basis, rows):
    """Theorem 1 and algorithm 2, with all powers by loops."""
    for c, b in SHAPES:
        lt, rt = random_coefficients(rng, c, b, basis)
        lt = lt[: rows and c] if basis == "univariate" else lt
        m = dense(monarch_factors(lt, rt, basis))
        if basis == "univariate":
            m = m[:, swapped(c, b)]
        for i, j in itertools.product(range(c * b), repeat=2):
            q = column(lt.numpy(), rt.numpy(), basis, j)
            x, y = points(c, b, basis, i)
            wanted = sum(
                q[a, d] * x(a) * y(d)
                for a, d in itertools.product(range(q.shape[0]), range(q.shape[1]))
            )
            assert abs(m[i, j] - wanted) <= 64 * c * b * EPS * (1 + abs(q).sum())


def points(c, b, basis, i):
    """Powers or Chebyshev polynomials at the point of row i, of X or Z and of Y."""
    i1, i0 = divmod(i, b)
    if basis == "univariate":
        return lambda a: np.exp(-2j * np.pi * i * a / (c * b)), lambda d: 1.0
    if basis == "bivariate":
        return (
            lambda a: np.exp(-2j * np.pi * i1 * a / c),
            lambda d: np.exp(-2j * np.pi * i0 * d / b),
        )
    return (
        lambda a: np.cos(np.pi * (i1 + 0.5) * a / c),
        lambda d: np.cos(np.pi * (i0 + 0.5) * d / b),
    )


@pytest.mark.parametrize("basis", BASES)
def test_coefficients_and_factors_are_one_to_one(rng, basis):
    """Theorem 9, both ways."""
    kind = float if basis == "chebyshev" else complex
    for c, b in SHAPES:
        pair = random_pair(rng, c, b, kind)
        coefficients = random_coefficients(rng, c, b, basis, kind)
        for wanted, found in (
            (pair, monarch_factors(*monarch_coefficients(pair, basis), basis)),
            (
                coefficients,
                monarch_coefficients(monarch_factors(*coefficients, basis), basis),
            ),
        ):
            for x, y in zip(wanted, found):
                torch.testing.assert_close(y, x, rtol=0, atol=1e-13)


def test_one_term_each_makes_the_fourier_matrix():
    """Corollary 6."""
    for c, b in SHAPES:
        m = dense(MonarchConv(1, c * b, blocks=(c, b), dtype=torch.float64).pairs()[0])
        np.testing.assert_allclose(
            m[:, swapped(c, b)], np.fft.fft(np.eye(c * b)), rtol=0, atol=1e-13
        )


# ---- convolutions ----


@pytest.mark.parametrize("basis", BASES)
def test_it_is_a_product_of_polynomials(rng, basis):
    """Theorem 2, with three bases; f is compared as a polynomial of that of M_0."""
    for c, b in SHAPES:
        k, u = random(rng, 2, c * b)
        of = [random_coefficients(rng, c, b, basis) for _ in range(3)]
        pairs = [monarch_factors(*x, basis) for x in of]
        f = monarch_conv(u, k, *pairs, univariate=basis == "univariate")
        found = combined(*(x.numpy() for x in of[0]), basis, f.numpy())
        factors = [
            combined(*(x.numpy() for x in of[i]), basis, x.numpy())
            for i, x in ((1, k), (2, u))
        ]
        wanted = multiplied(*factors, basis)
        ms = [dense(p) for p in pairs]
        limit = bound(*ms, k.numpy(), u.numpy()) * np.linalg.norm(ms[0], 2)
        assert np.linalg.norm(found - wanted) <= limit
        if basis != "bivariate":  # Y of real coefficients, too
            assert np.abs(f.numpy().imag).max() <= limit


@pytest.mark.parametrize("kind", [float, complex])
def test_it_is_what_dense_matrices_say(rng, kind):
    for c, b in rng.integers(1, 12, (12, 2)):
        pairs = [random_pair(rng, c, b, kind) for _ in range(3)]
        u, k = random(rng, 2, 3, c * b), random(rng, 3, c * b)
        y = monarch_conv(u, k, *pairs).numpy()
        m0, m1, m2 = (dense(p) for p in pairs)
        for i, h in itertools.product(range(2), range(3)):
            operands = k[h].numpy(), u[i, h].numpy()
            wanted = np.linalg.solve(m0, (m1 @ operands[0]) * (m2 @ operands[1]))
            assert np.linalg.norm(y[i, h] - wanted) <= bound(m0, m1, m2, *operands)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("options", [
    dict(), dict(blocks=(2, 6)), dict(blocks=(12, 1), tied=False),
    dict(filters=2, taps=5, skip=False),
])  # fmt: skip
def test_it_begins_as_a_transform(rng, basis, options):
    """Products of polynomials whose coefficients are k and u themselves."""
    conv = MonarchConv(4, 12, basis=basis, dtype=torch.float64, **options)
    u = random(rng, 2, 4, 12)
    y, weight = conv(u).detach().numpy(), conv.weight.detach().numpy()
    c, b = conv.blocks
    shape = (12, 1) if basis == "univariate" else (c, b)
    for i, h in itertools.product(range(2), range(4)):
        f = h // (4 // conv.filters)
        k = np.pad(weight[f], (0, 12 - conv.taps)).reshape(shape)
        x = u[i, h].numpy()
        wanted = multiplied(k, x.reshape(shape), basis).real.ravel()
        if conv.skip is not None:
            wanted = wanted + conv.skip[f].item() * x
        np.testing.assert_allclose(y[i, h], wanted, rtol=0, atol=1e-12)


def test_it_begins_as_a_circular_convolution(rng):
    conv = MonarchConv(1, 15, dtype=torch.float64, skip=False)
    u, k = random(rng, 1, 1, 15), conv.weight[0].tolist()
    x = u[0, 0].tolist()
    wanted = [sum(k[s] * x[(t - s) % 15] for s in range(15)) for t in range(15)]
    np.testing.assert_allclose(conv(u)[0, 0].tolist(), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("univariate", [False, True])
def test_gradients_of_all_operands(rng, univariate):
    pairs = [random_pair(rng, 2, 3) for _ in range(3)]
    given = [random(rng, 2, 6), random(rng, 6), *itertools.chain(*pairs)]
    given = [x.requires_grad_() for x in given]

    def run(u, k, *x):
        pairs = x[:2], x[2:4], x[4:]
        return monarch_conv(u, k, *pairs, univariate=univariate)

    assert torch.autograd.gradcheck(run, given)


@pytest.mark.parametrize("basis", BASES)
def test_gradients_of_coefficients(rng, basis):
    lt, rt = (x.requires_grad_() for x in random_coefficients(rng, 2, 2, basis))
    assert torch.autograd.gradcheck(
        lambda *x: monarch_coefficients(monarch_factors(*x, basis), basis), (lt, rt)
    )


# ---- wrong arguments ----


def test_blocks_without_an_inverse_are_named(rng):
    u, k = random(rng, 2, 6)
    for which, name in ((0, "block 2 of L of M_0"), (1, "block 1 of R of M_0")):
        good, bad = random_pair(rng, 2, 3), list(random_pair(rng, 2, 3))
        for last in (0.0, 1e-17):  # exactly, and in the precision of numbers
            block = torch.ones_like(bad[which][0])
            block[-1, -1] += last
            bad[which][2 - which] = block
            with pytest.raises(ValueError, match=f"danaus: {name} is singular"):
                monarch_conv(u, k, tuple(bad), good, good)
            monarch_conv(u, k, good, tuple(bad), tuple(bad))
    bad[0][0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="block 0 of L of M_0 is singular"):
        monarch_conv(u, k, tuple(bad), good, good)


def test_wrong_arguments(rng):
    good, other = random_pair(rng, 2, 3), random_pair(rng, 3, 2)
    u, k = random(rng, 2, 6)
    for call, words in [
        (lambda: monarch_conv(u[:5], k, *[good] * 3), "k has 6 numbers, u 5"),
        (lambda: monarch_conv(u[:5], k[:5], *[good] * 3), "M_0 has 6 rows; 5"),
        (lambda: monarch_conv(u, k, good[0], good, good), "M_0 is a pair"),
        (lambda: monarch_conv(u, k, good, good[::-1], good[:1]), "M_2|pair"),
        (lambda: monarch_conv(u, k, good, good, (good[0], good[0])), "M_2 has factors"),
        (lambda: monarch_conv(u, k, good, good, other, univariate=True), "same blocks"),
        (lambda: monarch_conv(u.half(), k, *[good] * 3), "float16"),
        (lambda: monarch_conv(u.numpy(), k, *[good] * 3), "ndarray"),
        (lambda: monarch_conv(u, k, good, good, (good[0], good[1].real)), "M_2"),
        (lambda: monarch_factors(torch.ones(7, 2), torch.ones(2, 3, 3)), "D <= b c"),
        (lambda: monarch_factors(torch.ones(2, 2), torch.ones(2, 3, 2)), "needed"),
        (lambda: monarch_factors(*[torch.ones(2, 2)] * 2, "bivariate"), "needed"),
        (lambda: monarch_factors(*[torch.ones(2, 2)] * 2, "trivariate"), "basis"),
        (lambda: monarch_coefficients((good[0],)), "pair"),
        (lambda: monarch_inverse((good[0][:0], good[1])), "shapes"),
        (lambda: MonarchConv(2, 6, blocks=(2, 2)), "make 6 numbers"),
        (lambda: MonarchConv(2, 6, blocks=(6,)), "two sizes"),
        (lambda: MonarchConv(2, 6, basis="other"), "basis"),
        (lambda: MonarchConv(2, 6)(torch.zeros(1, 2, 5)), "5 long"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
