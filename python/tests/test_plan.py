"""Plans and packed weights: products and gradients against f64 oracles, threads."""
# SPDX-License-Identifier: Apache-2.0
import gc
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import danaus
from conftest import dense_chain, dense_factor, random_array, random_chain

# errors relative to sums of absolute values
TOLERANCES = {"f32": 2e-6, "f16": 4e-3, "bf16": 3e-2, "f64": 1e-14, "c64": 2e-6}
TYPES = [*TOLERANCES, "c128"]
LAYOUTS = ["batch-first", "batch-last"]
ON = {"batch_invariant": True}


def wide(array, dtype):
    """An array of this type in f64 or c128."""
    return danaus.convert(array, "c128" if dtype[0] == "c" else "f64", dtype)


def oracle(chain, dtype):
    """W and the product of its factors' absolute values, in f64 or c128."""
    weights = [wide(w, dtype) for w in chain.weights]
    return dense_chain(weights), dense_chain([np.abs(w) for w in weights])


def turned(x, layout):
    """From [..., N] to the layout."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 0)) if layout == "batch-last" else x


def operand(rng, shape, dtype, layout):
    """Random numbers [..., N], of the type and in f64, both in the layout."""
    numbers = random_array(rng, shape, np.complex128 if dtype[0] == "c" else float)
    x = turned(danaus.convert(numbers, dtype), layout)
    return x, wide(x, dtype)


def expect_close(got, wanted, scale, dtype):
    assert got.shape == wanted.shape
    tolerance = TOLERANCES.get(dtype, 1e-14)
    assert (np.abs(got - wanted) <= tolerance * scale + 1e-7 * tolerance).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("adjoint", [False, True])
def test_products_match_the_oracle(rng, device, dtype, layout, adjoint):
    chain = random_chain(rng, 3, dtype, bias=True)
    dense, most = oracle(chain, dtype)
    bias = wide(chain.bias, dtype)
    if adjoint:
        dense, most, bias = dense.conj().T, most.T, np.zeros(len(dense.T))
    plan = danaus.Plan(
        chain.patterns, dtype=dtype, layout=layout, adjoint=adjoint, device=device
    )
    weights = plan.pack(chain)
    for batch in [(), (1,), (5,), (3, 7), (0, 2)]:
        x, exact = operand(rng, (*batch, dense.shape[1]), dtype, layout)
        rows = exact if layout == "batch-first" else np.moveaxis(exact, 0, -1)
        wanted = turned(rows @ dense.T + bias, layout)
        scale = turned(np.abs(rows) @ most.T + np.abs(bias), layout)
        y = plan.execute(weights, x)
        expect_close(wide(y, dtype), wanted, scale, dtype)
        out = np.empty_like(y)
        assert weights(x, out) is out
        assert out.tobytes() == y.tobytes()


ACTIVATIONS = {
    "relu": lambda v: np.maximum(v, 0),
    "silu": lambda v: v / (1 + np.exp(-v)),
    "gelu": lambda v: v * (1 + np.vectorize(math.erf)(v / math.sqrt(2))) / 2,
    "gelu_tanh": lambda v: (
        v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) / 2
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("in_place", [False, True])
def test_results_are_scaled_and_added_to_a_residual(
    rng, device, layout, activation, in_place
):
    chain = random_chain(rng, 2, "f64", bias=True)
    plan = danaus.Plan(
        chain.patterns,
        dtype="f64",
        layout=layout,
        activation=activation,
        bias=True,
        scale=-0.5,
        residual=True,
        device=device,
    )
    weights, (rows, cols) = plan.pack(chain), plan.shape
    x, _ = operand(rng, (7, cols), "f64", "batch-first")
    r, _ = operand(rng, (7, rows), "f64", "batch-first")
    wanted = -0.5 * (x @ dense_chain(chain.weights).T) + chain.bias
    wanted = turned(r + (np.maximum(wanted, 0) if activation else wanted), layout)
    residual = turned(r, layout)
    out = residual if in_place else None
    y = weights(turned(x, layout), out, residual=residual)
    np.testing.assert_allclose(y, wanted, rtol=1e-12, atol=1e-12)
    assert (y is residual) == in_place


def test_residuals_are_as_the_plan_expects(rng):
    chain = random_chain(rng, 2, "f32")
    x, _ = operand(rng, (3, chain.shape[1]), "f32", "batch-first")
    y = danaus.Plan(chain.patterns).pack(chain)(x)
    plan = danaus.Plan(chain.patterns, residual=True)
    with pytest.raises(ValueError, match="expects a residual"):
        plan.pack(chain)(x)
    with pytest.raises(ValueError, match="expects no residual"):
        danaus.Plan(chain.patterns).pack(chain)(x, residual=y)
    with pytest.raises(ValueError, match="residual"):
        plan.pack(chain)(x, residual=y[:2])
    with pytest.raises(ValueError, match="overlaps y"):
        both = np.concatenate([y, y])
        plan.pack(chain)(x, out=both[1:4], residual=both[:3])
    with pytest.raises(ValueError, match="scale is 0"):
        danaus.Plan(chain.patterns, scale=0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_fused(rng, device, activation):
    chain = random_chain(rng, 2, "f64", bias=True)
    plan = danaus.Plan(
        chain.patterns, dtype="f64", activation=activation, device=device
    )
    x = rng.standard_normal((9, chain.shape[1]))
    wanted = ACTIVATIONS[activation](x @ dense_chain(chain.weights).T + chain.bias)
    np.testing.assert_allclose(plan.pack(chain)(x), wanted, atol=1e-12, rtol=1e-12)


def factor_gradients(chain, dtype, x, dy):
    """dw of each factor from the definition: dW = dy x^H between the other factors."""
    factors = [dense_factor(wide(w, dtype)) for w in chain.weights]
    for index, (a, b, c, d) in enumerate(chain.patterns):
        left, right = np.eye(len(factors[0])), np.eye(factors[-1].shape[1])
        for factor in factors[:index]:
            left = left @ factor
        for factor in reversed(factors[index + 1 :]):
            right = factor @ right
        full = (dy @ left.conj()).T @ (x @ right.T).conj()
        full = full.reshape(a, b, d, a, c, d)
        yield np.einsum("ibjicj->ibcj", full)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_match_the_oracle(rng, device, dtype, layout):
    chain = random_chain(rng, 3, dtype, bias=True)
    dense, _ = oracle(chain, dtype)
    plan = danaus.Plan(
        chain.patterns, dtype=dtype, layout=layout, gradients=True, device=device
    )
    weights = plan.pack(chain)
    rows, cols = chain.shape
    x, exact_x = operand(rng, (6, cols), dtype, layout)
    dy, exact_dy = operand(rng, (6, rows), dtype, layout)
    if layout == "batch-last":
        exact_x, exact_dy = exact_x.T, exact_dy.T
    got = plan.gradient(weights, x, dy, dbias=True)
    tolerance = 10 * TOLERANCES.get(dtype, 1e-14)

    def expect(value, wanted, kind):
        error = np.linalg.norm(wide(value, kind) - wanted)
        assert error <= tolerance * np.linalg.norm(wanted)

    expect(got.dx, turned(exact_dy @ dense.conj(), layout), dtype)
    sums = {"f16": "f32", "bf16": "f32"}.get(dtype, dtype)
    expect(got.dbias, exact_dy.sum(0), sums)
    for dw, wanted in zip(got.dw, factor_gradients(chain, dtype, exact_x, exact_dy)):
        expect(dw, wanted, sums)
    again = plan.gradient(weights, x, dy, dx=False, dw=True)
    assert again.dx is None and again.dbias is None
    for a, b in zip(again.dw, got.dw):
        assert a.tobytes() == b.tobytes()


def test_weights_are_updated(rng, device):
    chain = random_chain(rng, 2, "f32", bias=True)
    plan = danaus.Plan(chain.patterns, keep_factors=True, device=device)
    weights, x = plan.pack(chain), random_array(rng, (4, chain.shape[1]), np.float32)
    first = weights(x)
    chain.weights[0][...] *= 2
    chain.bias = np.zeros(chain.shape[0])
    assert weights(x).tobytes() == first.tobytes()
    weights.update(chain)
    second = weights(x)
    assert second.tobytes() != first.tobytes()
    other = plan.pack()
    assert not other(x).any()
    wide_weights = [w.astype(np.float64) for w in chain.weights]
    other.update_from(wide_weights, chain.bias.astype(np.float64))
    assert other(x).tobytes() == second.tobytes()
    other.update_from([None, np.zeros_like(chain.weights[1])])
    assert not other(x).any()


def test_a_plan_says_what_it_is(device):
    plan = danaus.Plan("1,4,8,2 2,8,4,1", dtype="f64", device=device, batch=3)
    assert plan.shape == (8, 8) and plan.dtype == np.float64
    assert "1,4,8,2 2,8,4,1" in repr(plan) and "1,4,8,2" in repr(plan.pack())
    assert plan.describe().strip()
    assert plan.scratch_bytes(100).forward >= plan.scratch_bytes(1).forward >= 0
    assert plan.scratch_bytes(1).gradient == 0


def test_what_a_plan_needs_outlives_its_names(rng, device):
    chain = random_chain(rng, 2, "f32")
    x = random_array(rng, (4, chain.shape[1]), np.float32)
    opened = danaus.Device(device)
    weights = danaus.Plan(chain.patterns, device=opened).pack(chain)
    wanted = weights(x)
    del opened
    gc.collect()
    assert weights(x).tobytes() == wanted.tobytes()


def test_threads_share_plans_and_devices(rng, device):
    chain = random_chain(rng, 3, "f32")
    plans = [danaus.Plan(chain.patterns, device=device, batch=64)]
    if device == "cpu":
        plans.append(danaus.Plan(chain.patterns, batch=64))
    for plan in plans:
        weights = plan.pack(chain)
        xs = [random_array(rng, (64, chain.shape[1]), np.float32) for _ in range(40)]
        wanted = [weights(x) for x in xs]
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(weights, xs))
            operators = list(pool.map(lambda x: (chain @ x.T).T, xs))
        for got, product, want in zip(results, operators, wanted):
            assert got.tobytes() == want.tobytes()
            np.testing.assert_allclose(product, want, rtol=1e-3, atol=1e-4)


def a_gated_plan(device, batch=100):
    patterns = [(2, 32, 24, 1)]
    return danaus.Plan(
        patterns, dtype="f16", gated=True, activation="relu", batch=batch, device=device
    )


def test_gated_plans_are_refused_where_no_kernel_makes_them():
    with pytest.raises(NotImplementedError, match="kernel"):
        a_gated_plan("cpu")
    with pytest.raises(NotImplementedError, match="gated"):
        danaus.Plan([(2, 32, 24, 1)], dtype="f16", gated=True, gradients=True)


def test_gated_plans_make_half_of_the_rows(rng):
    try:
        plan = a_gated_plan("cuda:0")
    except (NotImplementedError, RuntimeError) as reason:
        pytest.skip(f"no GPU that makes it: {reason}")
    chain = danaus.Chain(plan.patterns)
    chain[0][:] = (rng.standard_normal(chain[0].shape) / 5).astype(np.float16)
    x = rng.standard_normal((100, 48)).astype(np.float16)
    exact = x.astype(np.float64) @ chain.to_dense().astype(np.float64).T
    u, v = np.split(exact, 2, axis=1)
    y = plan.pack(chain)(x)
    assert y.shape == (100, 32)
    wanted = np.maximum(u, 0) * v
    bound = 2**-10 * np.abs(wanted) + 1e-4  # two roundings to f16, and those of sums
    assert np.all(np.abs(y - wanted) <= bound)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_vectors_have_the_same_bits_in_any_batch(rng, dtype, layout):
    chain = random_chain(rng, 3, dtype)
    x, _ = operand(rng, (65, chain.shape[1]), dtype, layout)
    results = []
    for batch in 1, 3, 65:
        plan = danaus.Plan(
            chain.patterns, dtype=dtype, layout=layout, batch=batch, **ON
        )
        some = x[:batch] if layout == "batch-first" else x[:, :batch]
        y = plan.pack(chain)(np.ascontiguousarray(some))
        results.append(y if layout == "batch-first" else y.T)
    for y in results:
        for n, row in enumerate(y):
            assert row.tobytes() == results[-1][n].tobytes()


def test_batch_invariant_plans_are_not_measured():
    with pytest.raises(ValueError, match="estimates"):
        danaus.Plan("1,4,4,1", batch_invariant=True, effort="measure")
