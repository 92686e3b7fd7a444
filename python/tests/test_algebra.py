"""Chains of chains, inverses, determinants: against NumPy's dense matrices."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.sparse.linalg import LinearOperator

import danaus
from conftest import dense_chain, random_array

SQUARE = ((1, 3, 3, 4), (2, 2, 2, 3), (3, 4, 4, 1))


def random_of(rng, shapes, dtype=np.float64):
    return danaus.Chain.from_weights([random_array(rng, s, dtype) for s in shapes])


def expect_matrix(chain, matrix, dtype=np.float64):
    assert isinstance(chain, danaus.Chain)
    assert chain.dtype == dtype
    tolerance = 100 * np.finfo(dtype).eps
    found = dense_chain(chain.weights)
    assert found.shape == matrix.shape
    assert np.abs(found - matrix).max() <= tolerance * np.abs(matrix).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_combinations_are_those_of_matrices(rng, dtype):
    a, b = (random_of(rng, ((1, 3, 4, 6), (4, 6, 2, 1)), dtype) for _ in "ab")
    x, y = dense_chain(a.weights), dense_chain(b.weights)
    expect_matrix(a + b, x + y, dtype)
    expect_matrix(a - b, x - y, dtype)
    expect_matrix(danaus.add(a, b, a), x + y + x, dtype)
    expect_matrix(danaus.hstack([a, b]), np.hstack([x, y]), dtype)
    expect_matrix(danaus.vstack([a, b]), np.vstack([x, y]), dtype)
    expect_matrix(danaus.block_diag(a, b), block_diag(x, y), dtype)
    expect_matrix(danaus.kron(a, b), np.kron(x, y), dtype)
    expect_matrix(a @ b.transposed(), x @ y.T, dtype)
    expect_matrix(a.transposed(conjugate=True) @ b, x.conj().T @ y, dtype)
    assert (a + b).parameters == a.parameters + b.parameters


def test_whole_numbers_are_f64(rng):
    w = rng.integers(-9, 9, (2, 3, 4, 1))
    chain = danaus.Chain.from_weights([w])
    assert chain.element_type == "f64"
    np.testing.assert_array_equal(chain.weights[0], w)
    eye = danaus.kron(chain, np.eye(2, dtype=int)).to_dense()
    np.testing.assert_array_equal(eye, np.kron(chain.to_dense(), np.eye(2)))
    with pytest.raises(TypeError, match="uint16"):
        danaus.Chain.from_weights([np.ones((1, 2, 2, 1), np.uint16)])


def test_chains_are_divided_by_numbers(rng):
    for dtype in "f32", "c128":
        chain = danaus.Chain.from_weights(
            [rng.standard_normal((1, 4, 3, 2))], dtype=dtype
        )
        half = chain / 4
        assert isinstance(half, danaus.Chain) and half.element_type == dtype
        np.testing.assert_allclose(half.to_dense(), chain.to_dense() / 4, rtol=1e-6)
    with pytest.raises(TypeError):
        chain / chain
    with pytest.raises(ZeroDivisionError):
        chain / 0


def test_numbers_and_matrices_are_operands(rng):
    a = random_of(rng, ((1, 3, 4, 6), (4, 6, 2, 1)), np.float32)
    x = dense_chain(a.weights)
    expect_matrix(2 * a, 2 * x, np.float32)
    expect_matrix(a * np.float32(0.5), x / 2, np.float32)
    expect_matrix(-a, -x, np.float32)
    expect_matrix(2j * a, 2j * x, np.complex64)
    one = np.eye(3, dtype=np.float32)
    expect_matrix(danaus.kron(a, one), np.kron(x, one), np.float32)
    expect_matrix(danaus.kron(np.eye(2), a), np.kron(np.eye(2), x))
    assert danaus.Chain.from_dense(x).patterns == ((1, 18, 8, 1),)
    with pytest.raises(ValueError, match="a matrix has two sizes"):
        danaus.Chain.from_dense(x[0])


def test_text_is_no_operand(rng):
    chain = danaus.Chain.from_weights([rng.standard_normal((1, 3, 3, 1))])
    for text in "2", "1,3 3", b"2":  # which NumPy takes for types
        for call in chain.dot, chain.__mul__:
            with pytest.raises((TypeError, ValueError)):
                call(text)


def test_diagonals_and_fusing_keep_the_matrix(rng):
    a = random_of(rng, ((1, 3, 4, 6), (4, 6, 2, 1)))
    x, rows, cols = dense_chain(a.weights), rng.standard_normal(18), np.arange(8)
    expect_matrix(a.scaled(rows, cols), rows[:, None] * x * cols)
    expect_matrix(a.scaled(cols=cols), x * cols)
    a.bias = rows
    fused = a.fused()
    expect_matrix(fused, x)
    assert fused.patterns == ((1, 18, 8, 1),)
    np.testing.assert_array_equal(fused.bias, rows)
    assert a.fused(1, 2).patterns == a.patterns
    with pytest.raises(ValueError, match="not Kronecker-sparse"):
        random_of(rng, ((2, 2, 2, 3), (3, 4, 2, 1))).fused()
    with pytest.raises(ValueError, match="shape"):
        a.scaled(rows=cols)


def test_chains_that_are_no_single_one_are_an_operator(rng, tmp_path):
    a = random_of(rng, ((1, 12, 2, 1), (1, 2, 12, 1)))
    b = random_of(rng, ((3, 4, 4, 1),))
    x = rng.standard_normal((12, 5))
    both = a + b
    assert isinstance(both, LinearOperator) and isinstance(both, danaus.Operator)
    assert both.terms == 2 and both.parameters == a.parameters + b.parameters
    np.testing.assert_allclose(both @ x, a @ x + b @ x, rtol=1e-12)
    np.testing.assert_allclose(both.H @ x, a.H @ x + b.H @ x, rtol=1e-12)
    np.testing.assert_allclose(both @ np.asfortranarray(x), both @ x, rtol=1e-12)
    ones = np.ones((12, 1))
    np.testing.assert_allclose(both @ (x + 1j), both @ x + 1j * (both @ ones))
    np.testing.assert_allclose(both.to_dense() @ x, both @ x, rtol=1e-12)
    np.testing.assert_allclose((both + b) @ x, both @ x + b @ x, rtol=1e-12)
    np.testing.assert_allclose((b + both) @ x, both @ x + b @ x, rtol=1e-12)
    assert (both + both).terms == 4 and "sum, 12 x 12" in repr(both)
    both.save(tmp_path / "sum.safetensors")
    read = danaus.Operator.load(tmp_path / "sum.safetensors")
    np.testing.assert_array_equal(read @ x, both @ x)
    assert read.bias is None
    for chain in both.chains:  # weights change through views
        chain.weights[0][...] *= 2
    np.testing.assert_allclose(both @ x, 2 * (a @ x + b @ x), rtol=1e-12)
    y = danaus.apply(both, np.ascontiguousarray(x.T))
    np.testing.assert_allclose(y.T, both @ x, rtol=1e-12)
    with pytest.raises(ValueError, match="2 terms"):
        _ = both.orders
    with pytest.raises(ValueError, match="2 chains"):
        _ = both.chain
    with pytest.raises(TypeError, match="subscript"):
        both[0]
    with pytest.raises(ValueError, match="term 1 is 3 x 3"):
        danaus.Operator.sum([a, danaus.Chain.from_dense(np.eye(3))])


def test_a_bias_is_added_by_apply_alone(rng, tmp_path):
    a = random_of(rng, ((1, 6, 4, 1),))
    a.bias = bias = rng.standard_normal(6)
    a.save(tmp_path / "a.safetensors")
    read = danaus.Operator.load(tmp_path / "a.safetensors")
    x = rng.standard_normal((4, 3))
    np.testing.assert_array_equal(read.bias, bias)
    np.testing.assert_allclose(read @ x, a @ x, rtol=1e-13)
    y = danaus.apply(read, x, layout="batch-last")
    np.testing.assert_allclose(y, a @ x + bias[:, None], rtol=1e-13)


def test_sums_have_the_common_type(rng):
    a = danaus.Chain.from_weights([rng.standard_normal((1, 4, 4, 1))], dtype="f32")
    b = random_of(rng, ((1, 4, 2, 1), (1, 2, 4, 1)), np.complex64)
    x = rng.standard_normal((4, 2)).astype(np.float32)
    both = a + b
    assert both.dtype == np.complex64
    np.testing.assert_allclose(both @ x, a @ x + b @ x, rtol=1e-5)


def test_chains_that_cannot_be_added_say_why(rng):
    a = random_of(rng, ((1, 12, 2, 1), (1, 2, 12, 1)))
    b = random_of(rng, ((3, 4, 4, 1),))
    with pytest.raises(ValueError, match="chain 1 has 1 factors and chain 0 has 2"):
        danaus.add(a, b)
    with pytest.raises(ValueError, match="nothing"):
        danaus.add()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_inverses_and_solutions(rng, dtype):
    a = random_of(rng, SQUARE, dtype)
    x = dense_chain(a.weights).astype(np.result_type(dtype, np.float64))
    condition = a.condition()
    allowed = 200 * np.finfo(dtype).eps * condition.bound
    assert condition.bound * 1.001 >= np.linalg.cond(x, 1)
    assert condition.bound >= condition.largest >= 1
    inverse = a.inv()
    assert inverse.patterns == SQUARE[::-1]
    assert np.abs(dense_chain(inverse.weights) @ x - np.eye(12)).max() <= allowed
    for shape in [(12,), (12, 1), (12, 7), (12, 0)]:
        b = random_array(rng, shape, np.dtype(dtype))
        found = a.solve(b)
        assert found.dtype == dtype and found.shape == shape
        assert np.allclose(x @ found, b, rtol=0, atol=allowed)
    b = random_array(rng, (12,), np.complex128)
    assert a.solve(b).dtype == np.complex128
    sign, logarithm = a.slogdet()
    wanted = np.linalg.slogdet(x)
    np.testing.assert_allclose([sign, logarithm], wanted, rtol=1e-5, atol=1e-5)


def test_what_has_no_inverse_is_named(rng):
    a = random_of(rng, SQUARE)
    a.weights[1][1, :, :, 2] = 1
    for call in [a.inv, lambda: a.solve(np.ones(12))]:
        with pytest.raises(np.linalg.LinAlgError, match=r"block \(1, 2\) of factor 1"):
            call()
    assert a.slogdet() == (0, -np.inf)
    with pytest.raises(np.linalg.LinAlgError, match="no inverse"):
        random_of(rng, ((1, 3, 4, 6),)).inv()
    with pytest.raises(ValueError, match="shape"):
        a.solve(np.ones(11))
