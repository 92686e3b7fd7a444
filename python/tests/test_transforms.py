"""Exact transforms against SciPy's."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import scipy.fft
import scipy.linalg
from hypothesis import given, settings, strategies
from scipy.sparse.linalg import LinearOperator

from conftest import dense_factor, random_array
from danaus import transforms

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
        (lambda: transforms.dct2(0), ValueError, "n is from 1"),
        (lambda: transforms.dct2(2.5), TypeError, "whole number"),
        (lambda: transforms.circulant([[1.0]]), ValueError, "instead of"),
        (lambda: transforms.toeplitz([1.0, 2], [1.0]), ValueError, "as many"),
        (lambda: transforms.circulant([1j], "f32"), TypeError, "complex"),
        (lambda: transforms.dct4(8)[0], TypeError, "subscript"),
    ],
)
def test_what_has_no_chain_is_refused_with_a_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


NUMBER = strategies.one_of(
    strategies.integers(-2, 300),
    strategies.sampled_from([2**31, 2**70, None, "8", 1.5]),
)
NAMES = ["dft", "walsh_hadamard", "dct2", "dst2", "dct4"]
TYPES = ["f32", "f16", "bf16", "c64", "c128", "i8", None]


@settings(deadline=None)
@given(strategies.sampled_from(NAMES), NUMBER, strategies.sampled_from(TYPES))
def test_no_argument_crashes(name, n, dtype):
    try:
        transform = getattr(transforms, name)(n, dtype)
        transform @ np.ones(n)
    except (ValueError, TypeError, NotImplementedError, MemoryError) as error:
        assert str(error)
