"""Chains: products against f64 oracles, views, files, copies."""
# SPDX-License-Identifier: Apache-2.0
import copy
import gc
import pickle

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator, lsqr

import danaus
from conftest import dense_chain, random_array, random_chain

TYPES = ["f32", "f64", "c64", "c128"]
TOLERANCES = {"float16": 4e-3, "float32": 2e-6, "complex64": 2e-6}


def expect_close(got, wanted, scale):
    """Errors relative to sums of absolute values, by the type of the result."""
    assert got.shape == wanted.shape
    error = np.abs(got - wanted)
    assert (error <= TOLERANCES.get(got.dtype.name, 1e-14) * scale).all()


def absolute(chain):
    """What sums of absolute values in products of all factors come to."""
    return dense_chain([np.abs(w) for w in chain.weights])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
@pytest.mark.parametrize("factors", [1, 2, 3])
def test_apply_matches_the_dense_product(rng, dtype, layout, factors):
    chain = random_chain(rng, factors, dtype, bias=True)
    dense, bias = dense_chain(chain.weights), chain.bias
    x = random_array(rng, (3, 5, chain.shape[1]), chain.weights[0].dtype)
    wanted, scale = x @ dense.T + bias, np.abs(x) @ absolute(chain).T + np.abs(bias)
    if layout == "batch-last":
        x, wanted, scale = (np.moveaxis(v, -1, 0).copy() for v in (x, wanted, scale))
    expect_close(danaus.apply(chain, x, layout=layout), wanted, scale)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operand", ["f", "d", "F", "D", "l", "e"])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_operators_match_the_dense_product_in_the_common_type(
    rng, dtype, operand, order
):
    chain = random_chain(rng, 2, dtype, bias=True)
    dense, scales = dense_chain(chain.weights), absolute(chain)
    for op, matrix, most in [
        (chain, dense, scales),
        (chain.H, dense.conj().T, scales.T),
        (chain.T, dense.T, scales.T),
        (2 * chain + chain, 3 * dense, 3 * scales),
    ]:
        x = random_array(rng, (matrix.shape[1], 6), np.complex128)
        x = (10 * (x if np.dtype(operand).kind == "c" else x.real)).astype(operand)
        x = x[:, ::2] if order == "strided" else np.asarray(x, order=order)
        scale = most @ np.abs(x)
        assert (op @ x).dtype == np.result_type(chain.dtype, x.dtype)
        expect_close(op @ x, matrix @ x, scale)
        expect_close(op @ x[:, 0], matrix @ x[:, 0], scale[:, 0])


def test_a_product_takes_weights_as_they_are_now(rng):
    chain = random_chain(rng, 2, "f64")
    x = random_array(rng, chain.shape[1], float)
    before = chain @ x
    chain.weights[0][...] *= 2
    np.testing.assert_allclose(chain @ x, 2 * before, rtol=1e-13)
    np.testing.assert_allclose(chain.H @ (chain @ x), 2 * chain.H @ before, rtol=1e-13)


def test_weights_are_packed_again_only_where_they_may_have_changed(rng, monkeypatch):
    packed = []
    update = danaus.Weights.update_from

    def counted(self, *arguments, **options):
        packed.append(self)
        update(self, *arguments, **options)

    monkeypatch.setattr(danaus.Weights, "update_from", counted)
    chain = random_chain(rng, 3, "f64")
    gc.collect()
    x = rng.standard_normal(chain.shape[1])
    y = chain @ x
    chain @ x
    assert len(packed) == 1
    view = chain.weights[0].reshape(-1)[:1]
    chain @ x
    view[0] += 1
    assert (chain @ x != y).any() and len(packed) == 3
    view[0] -= 1
    del view
    np.testing.assert_allclose(chain @ x, y, rtol=1e-13)
    chain @ x
    assert len(packed) == 4


def test_scipy_solves_with_a_chain(rng):
    chain = danaus.Chain.from_weights([np.eye(12).reshape(1, 12, 12, 1)] * 2)
    chain.weights[0][...] += 0.1 * rng.standard_normal((1, 12, 12, 1))
    y = rng.standard_normal(12)
    assert aslinearoperator(chain) is chain
    x = lsqr(chain, y, atol=1e-13, btol=1e-13)[0]
    np.testing.assert_allclose(chain @ x, y, atol=1e-9)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_files_of_8_bits_have_what_plans_round_to(rng, tmp_path, dtype):
    w, bias = rng.standard_normal((2, 5, 40, 3)), rng.standard_normal(30)
    chain = danaus.Chain.from_weights([w], bias, dtype=dtype)
    chain.save(tmp_path / "int8.safetensors", weights="int8")
    loaded = danaus.Chain.load(tmp_path / "int8.safetensors")
    assert loaded.element_type == "f32" and loaded.patterns == chain.patterns
    assert np.array_equal(loaded.bias, chain.bias.astype(np.float32))
    x = rng.standard_normal((5, chain.shape[1])).astype(np.float32)
    plan = danaus.Plan(chain.patterns, batch=5, int8=True, bias=True)
    found = [plan.pack(c)(x) for c in (chain.astype("f32"), loaded)]
    assert np.array_equal(*found)


def test_weights_of_a_file_are_a_type_that_it_has(rng, tmp_path):
    with pytest.raises(ValueError, match="weights is None or 'int8', not 'int4'"):
        random_chain(rng, 2, "f32").save(tmp_path / "x", weights="int4")
    with pytest.raises(NotImplementedError, match="8 bits are real numbers"):
        random_chain(rng, 2, "c64").save(tmp_path / "x", weights="int8")


@pytest.mark.parametrize("dtype", [*TYPES, "f16", "bf16"])
def test_files_pickles_and_copies_keep_every_bit(rng, tmp_path, dtype):
    chain = random_chain(rng, 3, dtype, bias=True)
    chain.save(tmp_path / "chain.safetensors")
    copies = [
        danaus.Chain.load(tmp_path / "chain.safetensors"),
        pickle.loads(pickle.dumps(chain)),
        copy.copy(chain),
        copy.deepcopy(chain),
        chain.astype(dtype),
    ]
    for other in copies:
        assert other.patterns == chain.patterns
        assert other.element_type == dtype
        assert other.bias.tobytes() == chain.bias.tobytes()
        for a, b in zip(other.weights, chain.weights):
            assert a.tobytes() == b.tobytes()
            assert not np.shares_memory(a, b)


@pytest.mark.parametrize("dtype", [*TYPES, "f16", "bf16"])
def test_dense_is_the_product_of_the_factors(rng, dtype):
    chain = random_chain(rng, 3, dtype)
    dense = dense_chain([danaus.convert(w, "c128", dtype) for w in chain.weights])
    got = danaus.convert(chain.to_dense(), "c128", dtype)
    tolerance = {"f16": 2e-3, "bf16": 1e-2}.get(dtype, 1e-6)
    np.testing.assert_allclose(got, dense, rtol=tolerance, atol=tolerance * 0.1)


def test_views_outlive_the_chain(rng):
    chain = random_chain(rng, 2, "f64", bias=True)
    views, bias = chain.weights, chain.bias
    kept = [view.copy() for view in views]
    part = views[1].reshape(-1)[1:]
    del chain
    gc.collect()
    filler = [random_chain(rng, 2, "f64") for _ in range(50)]
    for view, copied in zip(views, kept):
        np.testing.assert_array_equal(view, copied)
    del views, view
    gc.collect()
    part[:] = 3.0
    assert (part == 3.0).all() and bias.shape and filler


def test_weights_of_bf16_are_rounded_once():
    # 1 + 2^-8 + 2^-30 rounds up; by way of f32 it would be a tie, and round down.
    number = np.full((1, 1, 1, 1), 1 + 2.0**-8 + 2.0**-30)
    chain = danaus.Chain.from_weights([number], dtype="bf16")
    assert danaus.convert(chain.weights[0], "f64", "bf16") == 1 + 2.0**-7


def test_from_weights_takes_bits_of_bf16_in_uint16():
    bits = np.array([0x3F80, 0xC000], np.uint16).reshape(1, 2, 1, 1)
    chain = danaus.Chain.from_weights([bits], dtype="bf16")
    np.testing.assert_array_equal(chain.weights[0].view(np.uint16), bits)
    np.testing.assert_array_equal((chain @ np.ones(1, np.float32)), [1, -2])


def test_a_chain_says_what_it_is(rng):
    chain = danaus.Chain.create("1,192,48,2 2,48,192,1")
    assert repr(chain) == (
        "<danaus.Chain 384 x 384 f32: 1,192,48,2 2,48,192,1; 36864 parameters, "
        "0.25 of dense>"
    )
    assert chain.shape == (384, 384) and chain.dtype == np.float32
    assert chain.parameters == sum(p.parameters for p in chain.patterns) == 36864
    assert chain.bias is None
    chain.bias = range(384)
    assert chain.bias[383] == 383 and "bias" in repr(chain)
    chain.bias = None
    assert chain.bias is None


@pytest.mark.parametrize("index", [0, slice(2), (slice(None), 1), ..., "a"])
def test_slicing_is_refused_with_a_sentence(index):
    with pytest.raises(TypeError, match="to_dense"):
        danaus.Chain.create("1,4,4,1")[index]


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="none.safetensors"):
        danaus.Chain.load(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="bad.safetensors"):
        danaus.Chain.load(tmp_path / "bad.safetensors")
