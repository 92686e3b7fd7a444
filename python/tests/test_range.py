"""Numbers that a type cannot hold are refused by name, or said."""

# SPDX-License-Identifier: Apache-2.0
import warnings

import numpy as np
import pytest

import danaus


def test_integers_that_f64_rounds_are_refused():
    exact = np.array([[2**53, -(2**60)], [2**62 + 2**12, 0]])
    assert (danaus.Chain.from_dense(exact).to_dense() == exact).all()
    for wrong in 2**53 + 1, -(2**53) - 1, 2**62 + 1:
        with pytest.raises(ValueError, match=str(wrong)):
            danaus.Chain.from_dense(np.array([[wrong]]))
        with pytest.raises(ValueError, match="k has the integer"):
            danaus.convolve(np.ones((1, 4)), np.array([[wrong, 1]]))
        with pytest.raises(ValueError, match=f"x has the integer {wrong}"):
            danaus.apply(danaus.Chain.from_dense(np.eye(1)), np.array([[wrong]]))


@pytest.mark.parametrize(
    "number, why", [(1e300, "too large for f32"), (1e-60, "too small for f32")]
)
def test_numbers_that_a_type_cannot_hold_are_refused_by_name(number, why):
    chain = danaus.Chain.from_dense(np.eye(4, dtype="f4"))
    four = np.full(4, number)
    for name, call in {
        r"weights\[0\]": lambda: danaus.Chain.from_dense(np.diag(four), "f32"),
        "bias": lambda: setattr(chain, "bias", four),
        "rows": lambda: chain.scaled(rows=four),
        "cols": lambda: chain.scaled(cols=four),
        "k": lambda: danaus.convolve(np.ones((1, 9), "f4"), four[None]),
        "c": lambda: danaus.transforms.circulant(four, dtype="f32"),
        "x": lambda: danaus.apply(chain, [[number] * 4]),
        "factor 0": lambda: danaus.Chain.from_dense(np.diag(four)).astype("f32"),
        "rows ": lambda: chain * number,
    }.items():
        with pytest.raises(ValueError, match=f"of {name.strip()}(,| is) .*{why}"):
            call()
    assert chain.bias is None


def test_conversions_warn():
    for number in 70000.0, -1e300, 1e-9:
        with pytest.warns(RuntimeWarning, match="for f16"):
            danaus.convert(np.full(3, number), "f16")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        half = danaus.convert([1.0, 1e-9, np.inf, np.nan], "f16")
    np.testing.assert_array_equal(half, np.array([1, 0, np.inf, np.nan], "f2"))


@pytest.mark.parametrize("dtype, large", [("f2", 3e4), ("f4", 1e30), ("f8", 1e200)])
def test_results_beyond_their_type(dtype, large):
    one = np.eye(4, dtype=dtype) * np.dtype(dtype).type(large)
    chain = danaus.Chain.from_dense(one) @ danaus.Chain.from_dense(one)
    with pytest.warns(RuntimeWarning, match="4 of 16 numbers of W"):
        assert np.isinf(np.diag(chain.to_dense())).all()
    with pytest.raises(ValueError, match="4 numbers of the fused factor exceed"):
        chain.fused()
    with pytest.raises(ValueError, match="4 numbers of factor 0, scaled, exceed"):
        chain.scaled(rows=np.full(4, large, dtype))
    small = danaus.Chain.from_dense(
        np.eye(4, dtype=dtype) / np.dtype(dtype).type(large)
    )
    product = small @ small @ small
    for call in product.to_dense, product.fused:
        with pytest.raises(ValueError, match="too small"):
            call()
    with pytest.raises(ValueError, match="all numbers of factor 0, scaled, are too"):
        small.scaled(rows=np.full(4, 1 / large, dtype))
    spoilt = one.copy()
    spoilt[0, 0] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        danaus.Chain.from_dense(spoilt).to_dense()


def test_inverses_and_solutions_beyond_their_type():
    tiny = danaus.Chain.from_dense(np.eye(4, dtype="f4") * np.float32(1e-40))
    with pytest.raises(np.linalg.LinAlgError, match="the inverse of factor 0 exceed"):
        tiny.inv()
    with pytest.warns(RuntimeWarning, match="4 of 4 numbers of x"):
        tiny.solve(np.ones(4, "f4"))
    large = danaus.Chain.from_dense(np.eye(4, dtype="f4") * np.float32(1e30))
    with pytest.raises(np.linalg.LinAlgError, match="all numbers of x are too small"):
        large.solve(np.full(4, 1e-30, "f4"))
    np.testing.assert_array_equal(large.solve(np.zeros(4, "f4")), 0)
    np.testing.assert_array_equal((large * 0).to_dense(), 0)
