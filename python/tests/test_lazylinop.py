"""Chains go to lazylinop and come back; both make the same products."""

# SPDX-License-Identifier: Apache-2.0
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies

import danaus
from conftest import dense_chain, random_array, random_patterns
from danaus import lazylinop as exchange

pytest.importorskip("pandas")  # without it lazylinop 1.24 cannot be imported
lazylinop = pytest.importorskip("lazylinop")
butterfly = pytest.importorskip("lazylinop.butterfly")

DTYPES = ("float32", "float64", "complex64", "complex128")
TOLERANCE = {"f": 1e-4, "d": 1e-11, "F": 1e-4, "D": 1e-11}


def random_weights(rng, dtype, factors=3):
    shapes = random_patterns(rng, factors)
    return [random_array(rng, shape, dtype) for shape in shapes]


def expect_same(found, should, dtype):
    scale = np.abs(should).max() + 1
    assert np.abs(found - should).max() <= TOLERANCE[np.dtype(dtype).char] * scale


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_make_the_same_products(rng, dtype):
    for factors in (1, 2, 3):
        weights = random_weights(rng, dtype, factors)
        theirs = butterfly.ksm(weights if factors > 1 else weights[0])
        chain = exchange.from_ks_values(theirs)
        assert chain.shape == theirs.shape and chain.dtype == np.dtype(dtype)
        x = random_array(rng, (chain.shape[1], 4), dtype)
        y = random_array(rng, (chain.shape[0], 4), dtype)
        matrix = dense_chain(weights)
        for operator in (theirs, exchange.as_lazylinop(chain), exchange.as_ksm(chain)):
            expect_same(operator @ x, matrix @ x, dtype)
            expect_same(operator.H @ y, matrix.conj().T @ y, dtype)
            expect_same(operator.T @ y, matrix.T @ y, dtype)
            expect_same(operator @ x[:, 0], matrix @ x[:, 0], dtype)
        expect_same(chain @ x, matrix @ x, dtype)


def test_lists_are_copies_in_the_same_order(rng):
    weights = random_weights(rng, "float32")
    chain = exchange.from_ks_values(weights)
    back = exchange.to_ks_values(chain)
    assert all(np.array_equal(a, b) for a, b in zip(back, weights))
    back[0][...] = 0
    assert np.array_equal(chain.weights[0], weights[0])
    one = exchange.from_ks_values(weights[0], dtype="f64")
    assert one.shape == butterfly.ksm(weights[0]).shape and one.dtype == np.float64


def test_wrapped_chains_compose_with_their_operators(rng):
    chain = danaus.Chain.from_weights(random_weights(rng, "float64"))
    wrapped, matrix = exchange.as_lazylinop(chain), chain.to_dense()
    assert isinstance(wrapped, lazylinop.LazyLinOp)
    assert np.allclose(wrapped.toarray(dtype="float64"), matrix)
    both = 2 * wrapped + lazylinop.aslazylinop(matrix)
    x = rng.standard_normal((chain.shape[1], 2))
    assert np.allclose(both @ x, 3 * (matrix @ x))
    assert np.allclose(wrapped[1:, :3].toarray(dtype="float64"), matrix[1:, :3])
    assert wrapped.check(np, "float64") is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("suffix", ["", ".json", ".mat"])
def test_their_files_are_read_and_written(rng, tmp_path, dtype, suffix):
    weights = random_weights(rng, dtype)
    path, bare = tmp_path / f"chain{suffix}", str(tmp_path / "theirs")
    exchange.save(danaus.Chain.from_weights(weights), path)
    operator = butterfly.ksm(weights)
    if suffix == ".mat":
        butterfly.savemat(operator, bare)
        bare += ".mat"
    else:
        butterfly.save(operator, bare)
        read = butterfly.load(str(tmp_path / "chain"))
        assert all(np.array_equal(a, b) for a, b in zip(read.ks_values, weights))
    for name in (path, bare):
        chain = exchange.load(name)
        assert chain.dtype == np.dtype(dtype)
        assert all(np.array_equal(a, b) for a, b in zip(chain.weights, weights))


def test_what_has_no_place_in_their_files_is_refused(rng, tmp_path):
    chain = danaus.Chain.from_weights(random_weights(rng, "float32"))
    with pytest.raises(ValueError, match="bf16"):
        exchange.save(chain.astype("bf16"), tmp_path / "chain")
    chain.bias = np.ones(chain.shape[0])
    with pytest.raises(ValueError, match="bias"):
        exchange.save(chain, tmp_path / "chain")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        exchange.load(tmp_path / "missing")
    with pytest.raises(ValueError, match="dimensions"):
        exchange.from_ks_values([np.zeros((2, 2))])


JSON = strategies.recursive(
    strategies.sampled_from([1, 1.5, None, "float32", "complex64", [[[[1.0]]]]]),
    lambda inner: strategies.dictionaries(
        strategies.sampled_from(
            "factor0 factor1 dtype ks_values_real ks_values_imag params".split()
        ),
        inner,
        max_size=4,
    ),
)


@settings(deadline=None)
@given(JSON.map(lambda v: json.dumps(v).encode()) | strategies.binary())
def test_no_file_crashes(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("files")
    for name in ("any.json", "any.mat"):
        (folder / name).write_bytes(data)
        try:
            exchange.load(folder / name)
        except ValueError as error:
            assert str(error)
