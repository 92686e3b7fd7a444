"""Exact transforms against SciPy's."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import scipy.fft
import scipy.linalg
from hypothesis import given, settings, strategies
from scipy.sparse.linalg import LinearOperator

from conftest import dense_factor, random_array
from danaus import Chain, transforms


def half(matrix, *ends):
    """Half of SciPy's matrix; but columns of these inputs count once there."""
    matrix = matrix / 2
    matrix[:, list(ends)] *= 2
    return matrix


def cas(fourier):
    """Hartley's matrix of Fourier's."""
    return fourier.real - fourier.imag


# Makes the transform, and its matrix in f64 by SciPy, from a length and random numbers.
CASES = {
    "dft": (
        lambda n, dtype, v: transforms.dft(n, dtype),
        lambda n, v: scipy.fft.fft(np.eye(n), axis=0),
    ),
    "walsh_hadamard": (
        lambda n, dtype, v: transforms.walsh_hadamard(n, dtype),
        lambda n, v: scipy.linalg.hadamard(n),
    ),
    "dct2": (
        lambda n, dtype, v: transforms.dct2(n, dtype),
        lambda n, v: scipy.fft.dct(np.eye(n), type=2, axis=0) / 2,
    ),
    "dst2": (
        lambda n, dtype, v: transforms.dst2(n, dtype),
        lambda n, v: scipy.fft.dst(np.eye(n), type=2, axis=0) / 2,
    ),
    "dct4": (
        lambda n, dtype, v: transforms.dct4(n, dtype),
        lambda n, v: scipy.fft.dct(np.eye(n), type=4, axis=0) / 2,
    ),
    "hartley": (
        lambda n, dtype, v: transforms.hartley(n, dtype),
        lambda n, v: cas(scipy.fft.fft(np.eye(n), axis=0)),
    ),
    "dct1": (
        lambda n, dtype, v: transforms.dct1(n, dtype),
        lambda n, v: half(scipy.fft.dct(np.eye(n), type=1, axis=0), 0, n - 1),
    ),
    "dct3": (
        lambda n, dtype, v: transforms.dct3(n, dtype),
        lambda n, v: half(scipy.fft.dct(np.eye(n), type=3, axis=0), 0),
    ),
    "dst1": (
        lambda n, dtype, v: transforms.dst1(n, dtype),
        lambda n, v: scipy.fft.dst(np.eye(n), type=1, axis=0) / 2,
    ),
    "dst3": (
        lambda n, dtype, v: transforms.dst3(n, dtype),
        lambda n, v: half(scipy.fft.dst(np.eye(n), type=3, axis=0), n - 1),
    ),
    "dst4": (
        lambda n, dtype, v: transforms.dst4(n, dtype),
        lambda n, v: scipy.fft.dst(np.eye(n), type=4, axis=0) / 2,
    ),
    "circulant": (
        lambda n, dtype, v: transforms.circulant(v[:n]),
        lambda n, v: scipy.linalg.circulant(v[:n]),
    ),
    "toeplitz": (
        lambda n, dtype, v: transforms.toeplitz(v[:n], v[n:]),
        lambda n, v: scipy.linalg.toeplitz(v[:n], v[n:]),
    ),
}
UNIT = {np.dtype("f4"): 2.0**-24, np.dtype("f8"): 2.0**-53}


def sizes_of(chain, adjoint):
    """|K_1| ... |K_L| 1, or that of the adjoint: what errors are relative to."""
    factors = [np.abs(dense_factor(w)) for w in chain.weights]
    factors = [f.T for f in factors] if adjoint else factors[::-1]
    size = np.ones(factors[0].shape[1])
    for factor in factors:
        size = factor @ size
    return size.max()


def expect_product(transform, matrix, x, adjoint=False):
    """Products err by at most (number of terms + 3 a factor) u of their sizes.

    Neighbours may have been multiplied out: then their terms are as many as the product
    of both. A complex multiplication counts as four.
    """
    unit = UNIT[np.empty(0, transform.dtype).real.dtype]
    patterns = transform.chain.patterns
    terms = np.prod([p.b if adjoint else p.c for p in patterns]) + 3 * len(patterns)
    size = sizes_of(transform.chain, adjoint) * np.abs(x).max()
    found = (transform.H if adjoint else transform) @ x
    should = (matrix.conj().T if adjoint else matrix) @ x.astype(np.complex128)
    assert found.shape == should.shape and found.dtype == transform.dtype
    assert np.abs(found - should).max() <= 4 * terms * unit * size


def names_and_types():
    """Fourier transforms are complex."""
    types = ["f4", "f8", "c8", "c16"]
    return [(n, t) for n in CASES for t in types if n != "dft" or t[0] == "c"]


@pytest.mark.parametrize(("name", "dtype"), names_and_types())
def test_transforms_are_those_of_scipy(rng, name, dtype):
    make, reference = CASES[name]
    lengths = [1, 2, 8, 64] if name == "walsh_hadamard" else [1, 2, 6, 15, 61, 80]
    if name in ("dct1", "dst1"):
        lengths = [2, 3, 7, 16, 39] if name == "dct1" else [1, 2, 6, 15, 41]
    for n in lengths:
        v = random_array(rng, 2 * n, dtype)
        transform = make(n, dtype, v)
        assert transform.dtype == np.dtype(dtype)
        matrix = np.asarray(reference(n, v.astype(np.complex128)))
        x = random_array(rng, (n, 3), dtype)
        expect_product(transform, matrix, x)
        expect_product(transform, matrix, x, adjoint=True)
        assert np.allclose(transform.T @ x, matrix.T @ x, atol=1e-3 * n)
        assert np.allclose(transform @ x[:, 0], (transform @ x)[:, 0], atol=1e-4 * n)
        assert isinstance(transform, LinearOperator)


ORTHONORMAL = ["dct1", "dct2", "dct3", "dct4", "dst1", "dst2", "dst3", "dst4"]


@pytest.mark.parametrize("name", ORTHONORMAL)
def test_orthonormal_forms_are_those_of_scipy(name):
    function, kind = getattr(scipy.fft, name[:3]), int(name[3])
    n = {"dct1": 17, "dst1": 15}.get(name, 16)
    transform = getattr(transforms, name)
    matrix = function(np.eye(n), type=kind, axis=0, norm="ortho")
    assert np.allclose(transform(n, "f8", orthonormal=True).to_dense(), matrix)
    inverse = transform(n, "f8", orthonormal=True, inverse=True)
    assert np.allclose(inverse.to_dense(), matrix.T)
    product = transform(n, "f8", inverse=True) @ (transform(n, "f8") @ np.eye(n))
    assert np.allclose(product, np.eye(n))


def test_fourier_has_its_inverse(rng):
    x = random_array(rng, 24, "c16")
    assert np.allclose(transforms.dft(24, "c16", inverse=True) @ x, np.fft.ifft(x))
    unitary = transforms.dft(24, "c16", orthonormal=True)
    assert np.allclose(unitary @ x, np.fft.fft(x, norm="ortho"))
    assert np.allclose(unitary.H @ (unitary @ x), x)


def test_noiselets_are_unitary_and_flat():
    matrix = transforms.noiselet(32, "c16").to_dense()
    assert np.allclose(matrix.conj().T @ matrix, np.eye(32))
    assert np.allclose(np.abs(matrix), 32**-0.5)
    pair = np.array([[1 - 1j, 1 + 1j], [1 + 1j, 1 - 1j]]) / 2
    assert np.allclose(transforms.noiselet(2, "c16").to_dense(), pair)


def test_rotations_have_angles(rng):
    angles = rng.uniform(-4, 4, (5, 16))
    matrix = transforms.givens(angles, "f8").to_dense()
    assert np.allclose(matrix @ matrix.T, np.eye(32))
    inverse = transforms.givens(angles, "f8", inverse=True)
    assert np.allclose(inverse @ matrix, np.eye(32))
    turn = transforms.givens([[0.3]], "f8").to_dense()
    assert np.allclose(turn, [[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])


def waves(x, h, levels):
    """The levels by their definition."""
    g, details = h[::-1] * (-1.0) ** np.arange(len(h)), []
    for _ in range(levels):
        windows = (2 * np.arange(len(x) // 2)[:, None] + np.arange(len(h))) % len(x)
        details.insert(0, x[windows] @ g)
        x = x[windows] @ h
    return np.concatenate([x, *details])


@pytest.mark.parametrize(("name", "n", "levels"), [
    ("haar", 2, 1), ("haar", 40, 3), ("db2", 64, 2), ("db4", 48, 4), ("db10", 32, 5),
])  # fmt: skip
def test_wavelets_filter_level_by_level(rng, name, n, levels):
    x, h = rng.standard_normal(n), transforms.wavelet_filter(name)
    transform = transforms.wavelet(n, name, levels, "f8")
    y = transform @ x
    assert len(transform.chains) == levels
    assert np.allclose(y, waves(x, h, levels))
    inverse = transforms.wavelet(n, name, levels, "f8", inverse=True)
    assert np.allclose(inverse @ y, x) and np.allclose(transform.H @ y, x)
    assert np.allclose(transform.to_dense() @ inverse.to_dense(), np.eye(n))
    assert np.isclose(np.linalg.norm(y), np.linalg.norm(x))


def test_filters_are_the_published_ones():
    # Daubechies, Ten lectures on wavelets, table 6.1, by pairs of digits as printed.
    published = [0.230377813309, 0.714846570553, 0.630880767930, -0.027983769417]
    assert np.allclose(transforms.wavelet_filter("db4")[:4], published, atol=1e-12)


def test_inverses_of_circulants_are_circulants(rng):
    c = random_array(rng, 30, "c16") + 9 * np.eye(30)[0]
    matrix = scipy.linalg.circulant(c)
    assert np.allclose(transforms.circulant(c, inverse=True) @ matrix, np.eye(30))
    with pytest.raises(ValueError, match="no inverse"):
        transforms.circulant(np.ones(8), inverse=True)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_toeplitz_systems_are_solved(rng, dtype):
    for n in (1, 2, 7, 67, 100):
        c, r = (random_array(rng, n, dtype) for _ in range(2))
        r[0] = c[0] = c[0] + n
        b = random_array(rng, (n, 3), dtype)
        x = transforms.toeplitz_solve(c, r, b)
        assert x.dtype == np.dtype(dtype)
        wide = np.promote_types(dtype, "f8")
        exact = scipy.linalg.solve_toeplitz((c.astype(wide), r.astype(wide)), b)
        unit = UNIT[np.empty(0, dtype).real.dtype]
        assert np.linalg.norm(x - exact) <= 1e3 * n * unit * np.linalg.norm(exact)
        assert np.array_equal(transforms.toeplitz_solve(c, r, b[:, 0]), x[:, 0])
    with pytest.raises(ValueError, match="singular"):
        transforms.toeplitz_solve(np.ones(4), None, np.ones(4))
    with pytest.raises(ValueError, match="shapes"):
        transforms.toeplitz_solve(np.ones(4), None, np.ones(5))


@pytest.mark.parametrize(("dtype", "tolerance"), [("c8", 1e-5), ("c16", 1e-11)])
def test_points_need_not_be_uniform(rng, dtype, tolerance):
    x = rng.uniform(-9, 9, 70)
    for n in (1, 6, 41):
        plan = transforms.Nufft(x, n, dtype, tolerance=tolerance, threads=2)
        wave = np.exp(1j * np.outer(x, np.arange(n) - n // 2))
        c, f = random_array(rng, 70, dtype), random_array(rng, n, dtype)
        assert np.abs(plan.type1(c) - wave.T @ c).max() <= tolerance * np.abs(c).sum()
        assert np.abs(plan.type2(f) - wave @ f).max() <= tolerance * np.abs(f).sum()
        back = transforms.Nufft(x, n, dtype, tolerance=tolerance, negative=True)
        adjoint = wave.conj().T @ c
        assert np.abs(back.type1(c) - adjoint).max() <= tolerance * np.abs(c).sum()
    with pytest.raises(ValueError, match="instead of"):
        plan.type1(c[:-1])
    with pytest.raises(ValueError, match="a tolerance of 1"):
        transforms.Nufft(x, 4, tolerance=1)
    with pytest.raises(NotImplementedError, match="c64 or c128"):
        transforms.Nufft(x, 4, "f32")
    with pytest.raises(ValueError, match="point 1 is nan"):
        transforms.Nufft([1, np.nan], 4)


MADE = {
    "dct3": lambda: transforms.dct3(12),
    "toeplitz": lambda: transforms.toeplitz(np.arange(1.0, 6)),
    "wavelet": lambda: transforms.wavelet(16, "db2"),
    "walsh": lambda: transforms.walsh_hadamard(8, "c16"),
}


@pytest.mark.parametrize("name", MADE)
def test_files_keep_the_orders(tmp_path, name):
    made, path = MADE[name](), tmp_path / "transform.safetensors"
    made.save(path)
    loaded = transforms.load(path)
    assert np.array_equal(made.to_dense(), loaded.to_dense())
    assert all(map(np.array_equal, made.orders, loaded.orders))
    if name == "walsh":
        assert np.array_equal(Chain.load(path).to_dense(), made.to_dense())
    else:
        with pytest.raises(NotImplementedError, match="read as an operator"):
            Chain.load(path)


def test_chains_live_as_long_as_they_are_used():
    chain, wave = transforms.dct2(16).chain, transforms.wavelet(16)
    assert chain.weights[0].size and "16 x 16" in repr(wave)
    assert wave.parameters == sum(c.parameters for c in wave.chains)
    with pytest.raises(ValueError, match="has 4 chains"):
        wave.chain  # noqa: B018


def test_toeplitz_without_a_row_is_hermitian(rng):
    c = random_array(rng, 12, "c16")
    matrix = scipy.linalg.toeplitz(c)
    assert np.allclose(transforms.toeplitz(c) @ np.eye(12), matrix, atol=1e-12)
    assert np.allclose(transforms.circulant([1, 2, 3]) @ np.eye(3)[0], [1, 2, 3])


def test_integers_and_lists_are_operands():
    x = [3, -1, 4, 1]
    assert np.allclose(transforms.walsh_hadamard(4) @ x, scipy.linalg.hadamard(4) @ x)
    assert np.allclose(transforms.dft(4) @ x, np.fft.fft(x), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: transforms.dft(67), NotImplementedError, "prime factor above 61"),
        (lambda: transforms.dft(8, "f32"), NotImplementedError, "complex type"),
        (lambda: transforms.walsh_hadamard(12), NotImplementedError, "power of two"),
        (lambda: transforms.dct2(0), ValueError, "n has to be from 1"),
        (lambda: transforms.dct2(2.5), TypeError, "whole number"),
        (lambda: transforms.circulant([[1.0]]), ValueError, "instead of"),
        (lambda: transforms.toeplitz([1.0, 2], [1.0]), ValueError, "as many"),
        (lambda: transforms.circulant([1j], "f32"), TypeError, "complex"),
        (lambda: transforms.dct4(8)[0], TypeError, "subscript"),
        (lambda: transforms.dct1(1), ValueError, "at least two"),
        (
            lambda: transforms.wavelet(12, "db2", 3),
            NotImplementedError,
            "2\\^3 numbers",
        ),
        (lambda: transforms.wavelet(8, "sym4"), ValueError, "'db1' to 'db20'"),
        (lambda: transforms.wavelet(8, "db21"), ValueError, "'db1' to 'db20'"),
        (lambda: transforms.wavelet(8, levels=0), ValueError, "levels has to be from"),
        (lambda: transforms.givens([[0.1, 0.2]]), ValueError, "instead of"),
        (lambda: transforms.givens([[np.nan]]), ValueError, "angle 0 is nan"),
        (lambda: transforms.load("nothing.safetensors"), OSError, "nothing"),
    ],
)
def test_what_has_no_chain_is_refused_with_a_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


NUMBER = strategies.one_of(
    strategies.integers(-2, 300),
    strategies.sampled_from([2**31, 2**70, None, "8", 1.5]),
)
NAMES = ["dft", "walsh_hadamard", "hartley", "noiselet", "wavelet", *ORTHONORMAL]
TYPES = ["f32", "f16", "bf16", "c64", "c128", "i8", None]


@settings(deadline=None)
@given(strategies.sampled_from(NAMES), NUMBER, strategies.sampled_from(TYPES))
def test_no_argument_crashes(name, n, dtype):
    try:
        transform = getattr(transforms, name)(n, dtype=dtype)
        transform @ np.ones(n)
    except (ValueError, TypeError, NotImplementedError, MemoryError) as error:
        assert str(error)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients_are_those_of_the_matrix(dtype):
    """The sum has a chain and a wavelet, with orders of rows and rows that pass by."""
    rng = np.random.default_rng(3)
    shapes = (2, 4, 4, 1), (1, 2, 2, 4)
    weights = [random_array(rng, shape, dtype) for shape in shapes]
    made = Chain.from_weights(weights) + transforms.wavelet(8, "db2", dtype="f64")
    x, dy = (random_array(rng, (8, 5), dtype) for _ in range(2))
    found = made.gradient(x, dy)
    dense = made.to_dense()
    np.testing.assert_allclose(found.dx, dense.conj().T @ dy, rtol=1e-12, atol=1e-12)
    factors = [(c, i) for c in made.chains for i in range(len(c.patterns))]
    assert [dw.shape for dw in found.dw] == [c.patterns[i] for c, i in factors]
    for dw, (chain, factor) in zip(found.dw, factors):
        at = tuple(rng.integers(0, chain.patterns[factor]))
        chain.weights[factor][at] += 1  # what this changes is linear in it
        change = made.to_dense() - dense
        chain.weights[factor][at] -= 1
        wanted = np.vdot(change @ x, dy)
        assert abs(dw[at] - wanted) < 1e-11
    assert made.gradient(x, dy, dx=False).dx is None
    assert made.gradient(x, dy, dw=False).dw is None


def test_gradients_of_other_shapes_are_refused():
    made = transforms.dct2(8, "f64")
    x = np.ones((8, 3))
    with pytest.raises(ValueError, match="x has shape"):
        made.gradient(np.ones((7, 3)), x)
    with pytest.raises(ValueError, match="dy has shape"):
        made.gradient(x, np.ones((8, 2)))
    with pytest.raises(TypeError, match="float32"):
        made.gradient(x.astype(np.float32), x)
