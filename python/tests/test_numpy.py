"""What NumPy's users pass: every call takes arrays as SciPy's functions take them."""

# SPDX-License-Identifier: Apache-2.0
import copy
import pickle

import numpy as np
import pytest
import scipy.fft
import scipy.signal
from small_calls import FILTERS, PATTERNS, a_chain

import danaus
from danaus import transforms


def hyena():
    plan = danaus.HyenaPlan(4, 6, 3, dtype="f64")
    return plan.operator(np.ones((12, 3)), np.ones((4, 6)))


# A call of u[2, 4, 6], of whole numbers.
CALLS = {
    "convolve": lambda u: danaus.convolve(u, FILTERS),
    "gated": lambda u: danaus.convolve(u, FILTERS, gate_in=u, gate_out=u),
    "plan": lambda u: danaus.ConvPlan(4, 6, dtype="f64", taps=2).spectrum(FILTERS)(u),
    "short": lambda u: danaus.short_conv(u, FILTERS),
    "stream": lambda u: danaus.Stream(FILTERS).run(u[0]),
    "hyena": lambda u: hyena()(np.concatenate([u, u, u], 1)),
    "apply": lambda u: danaus.apply(a_chain(), u[:, :, 0]),
    "product": lambda u: a_chain() @ u[0],
    "adjoint": lambda u: a_chain().H @ u[0],
    "solve": lambda u: danaus.Chain.from_dense(np.eye(4)).solve(u[0]),
    "weights": lambda u: danaus.Plan(PATTERNS, dtype="f64").pack(a_chain())(u[0].T),
    "operator": lambda u: (a_chain() + danaus.Chain.from_dense(np.eye(4))) @ u[0],
    "transform": lambda u: transforms.dct2(4) @ u[0],
    "factorize": lambda u: danaus.factorize(u[0][:, :4], PATTERNS).error,
    "toeplitz": lambda u: transforms.toeplitz_solve([2, 0, 0, 0], None, u[0]),
    "kron": lambda u: danaus.kron(a_chain(), u[0]).to_dense(),
}


def strided(u):
    wide = np.zeros((2 * u.shape[0], u.shape[1], 3 * u.shape[2]), u.dtype)
    wide[::2, :, ::3] = u
    return wide[::2, :, ::3]


def read_only(u):
    u = u.copy()
    u.flags.writeable = False
    return u


def unaligned(u):
    memory = np.zeros(u.nbytes + 1, np.uint8)[1:].view(u.dtype)
    memory[:] = u.reshape(-1)
    return memory.reshape(u.shape)


FORMS = {
    "strided": strided,
    "reversed": lambda u: u[:, ::-1].copy()[:, ::-1],
    "Fortran": np.asfortranarray,
    "read-only": read_only,
    "unaligned": unaligned,
    "big-endian": lambda u: u.astype(">f8"),
    "int": lambda u: u.astype(int),
    "uint8": lambda u: u.astype("u1"),
    "matrix": lambda u: u.view(np.ndarray),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", CALLS)
def test_every_form_of_an_array_gives_the_same(call, form):
    u = np.random.default_rng(0).integers(0, 9, (2, 4, 6)).astype(float)
    should = CALLS[call](u)
    found = CALLS[call](FORMS[form](u))
    np.testing.assert_allclose(found, should, rtol=1e-12)
    assert np.asarray(found).dtype == np.asarray(should).dtype


@pytest.mark.parametrize(
    "call",
    [
        lambda u: danaus.convolve(u, [1, 2]),
        lambda u: danaus.short_conv([u], [[1.0, 2]])[0],
        lambda u: danaus.Stream([1.0, 2]).run(u),
    ],
)
def test_lists_and_bools_are_numbers(call):
    wide = call([1.0, 0.0, 1.0, 1.0])
    np.testing.assert_allclose(wide, [1, 2, 1, 3], atol=1e-6)
    for u in [1, 0, 1, 1], [True, False, True, True], np.array([1, 0, 1, 1], bool):
        np.testing.assert_allclose(call(u), wide, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 4, 6), (3, 0, 4, 6), (2, 0, 6), (2, 4, 0)])
def test_an_empty_signal_gives_an_empty_one(shape):
    k = FILTERS if shape[-2] else [1.0, 2.0]
    assert danaus.convolve(np.zeros(shape), k).shape == shape


def test_products_with_no_columns_are_empty():
    nothing = np.zeros((4, 0))
    for operator in a_chain(), transforms.dct2(4), a_chain().H:
        assert (operator @ nothing).shape == (4, 0)
    assert danaus.apply(a_chain(), nothing.T).shape == (0, 4)
    assert danaus.Chain.from_dense(np.eye(4)).solve(nothing).shape == (4, 0)
    assert danaus.short_conv(np.zeros((0, 4, 6)), FILTERS).shape == (0, 4, 6)
    spectrum = danaus.ConvPlan(4, 6, dtype="f64", taps=2).spectrum(FILTERS)
    assert spectrum(np.zeros((0, 4, 6))).shape == (0, 4, 6)
    assert hyena()(np.zeros((0, 12, 6))).shape == (0, 4, 6)


@pytest.mark.parametrize("shape", [(1, 4, 2), (1, 1, 4, 2), (4, 1, 2)])
def test_filters_may_have_more_axes_of_size_1(shape):
    u = np.random.default_rng(0).standard_normal((2, 4, 6))
    k, should = FILTERS.reshape(shape), danaus.convolve(u, FILTERS, skip=np.ones(4))
    for skip in np.ones((1, 4)), np.ones((1, 4, 1)):
        np.testing.assert_array_equal(danaus.convolve(u, k, skip=skip), should)
    plan = danaus.ConvPlan(4, 6, dtype="f64", taps=2)
    found = plan.spectrum(k, skip=np.ones(4))(u)
    np.testing.assert_array_equal(found, should)
    found, should = danaus.short_conv(u, k), danaus.short_conv(u, FILTERS)
    np.testing.assert_array_equal(found, should)
    with pytest.raises(ValueError, match="k has shape"):
        plan.spectrum(np.ones((2, 4)))


@pytest.mark.parametrize("call", CALLS)
def test_other_types_are_refused_by_name(call):
    u = np.ones((2, 4, 6))
    for wrong in u.astype("g"), u.astype("G"), u.astype(object), u.astype("U1"):
        with pytest.raises(TypeError, match=" "):
            CALLS[call](wrong)


def test_real_plans_refuse_other_floats_and_complex_numbers():
    plan = danaus.Plan(PATTERNS, dtype="f32").pack(a_chain("f32"))
    with pytest.raises(TypeError, match=r"x.astype\('float32'\)"):
        plan(np.ones((2, 4)))
    with pytest.raises(TypeError, match="x.real"):
        plan(np.ones((2, 4), "c8"))
    assert plan([[1, 2, 3, 4]]).dtype == np.float32
    assert plan([[1.0, 2, 3, 4]]).dtype == np.float32


@pytest.mark.parametrize("kind", ["dct", "dst"])
@pytest.mark.parametrize("number", [2, 3, 4])
def test_transforms_have_the_precision_of_scipy(kind, number):
    n, x = 60, np.random.default_rng(0).standard_normal(60)
    x[[0, -1]] = 0  # SciPy counts the ends of type 3 once
    found = getattr(transforms, f"{kind}{number}")(n) @ x
    should = getattr(scipy.fft, kind)(x, type=number) / 2
    assert np.abs(found - should).max() < 1e-13 * np.abs(should).max()
    assert transforms.dft(8).dtype == np.complex128
    assert (transforms.dct2(8, "f32") @ np.ones(8, "f4")).dtype == np.float32


OBJECTS = {
    "transform": lambda: transforms.dct2(12),
    "f32": lambda: transforms.dct4(12, "f32"),
    "complex": lambda: transforms.dft(12),
    "wavelet": lambda: transforms.wavelet(12, "db2", 1),
    "sum": lambda: transforms.dct2(12) + transforms.dct4(12),
    "chains": lambda: danaus.Chain.from_dense(np.eye(12)) + transforms.dct2(12),
    "scaled": lambda: 2 * transforms.dct2(12),
    "adjoint": lambda: transforms.dft(12).H,
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize(
    "way", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))]
)
def test_operators_are_copied_and_pickled(name, way):
    operator, x = OBJECTS[name](), np.random.default_rng(0).standard_normal((12, 2))
    again = way(operator)
    assert type(again) is type(operator) and again.dtype == operator.dtype
    assert repr(again) == repr(operator) or name in ("scaled", "adjoint")
    np.testing.assert_array_equal(again @ x, operator @ x)


def test_a_bias_and_points_are_copied_and_pickled(tmp_path):
    chain = danaus.Chain.from_dense(np.eye(4))
    chain.bias = np.arange(4)
    chain.save(tmp_path / "chain.safetensors")
    operator = danaus.Operator.load(bytes(tmp_path / "chain.safetensors"))
    again = pickle.loads(pickle.dumps(operator))
    np.testing.assert_array_equal(again.bias, np.arange(4))
    assert again.name == str(tmp_path / "chain.safetensors")
    nufft = transforms.Nufft([0.1, 0.2, 1.0], 8, tolerance=1e-9)
    for other in copy.copy(nufft), pickle.loads(pickle.dumps(nufft)):
        np.testing.assert_array_equal(other.type1([1, 2, 3]), nufft.type1([1, 2, 3]))


@pytest.mark.parametrize(
    "thing",
    [
        lambda: danaus.Plan(PATTERNS),
        lambda: danaus.Plan(PATTERNS).pack(),
        lambda: danaus.ConvPlan(1, 4),
        lambda: danaus.ConvPlan(1, 4).spectrum(np.ones((1, 4))),
        lambda: danaus.HyenaPlan(1, 4),
        hyena,
        lambda: danaus.Stream([1.0]),
        lambda: danaus.Device(),
    ],
)
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_cannot_be_pickled_says_so(thing, way):
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        way(thing())


@pytest.mark.parametrize(
    ("call", "nearest"),
    [
        (lambda w: danaus.compress(w, 0.5, refin=2), "'refine'"),
        (lambda w: danaus.compress(w, 0.5, input=w), "'inputs'"),
        (lambda w: danaus.compress_sum(w, 0.5, biass=True), "'bias'"),
        (lambda w: danaus.factorize_sum(w, [PATTERNS], target=w), "'targets'"),
        (lambda w: danaus.factorize_many({"w": w}, "out", 0.5, ordr="left"), "'order'"),
    ],
)
def test_misspelt_options_name_the_nearest(call, nearest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=f"nearest is {nearest}"):
        call(np.eye(4))


def test_one_name_stands_for_a_list_of_one():
    w = np.random.default_rng(0).standard_normal((4, 4))
    found = danaus.compress(w, 16, candidates="dense").candidates
    assert [c.kind for c in found] == ["dense"]
    assert len(danaus.factorize_sum(w, PATTERNS).chains) == 1


def test_paths_are_text_bytes_or_paths(tmp_path):
    out = tmp_path / "chains.safetensors"
    for path in out, str(out), bytes(out):
        danaus.factorize_many({"w": np.eye(4)}, path, PATTERNS)
        assert list(danaus.load_chains(path)) == ["w"]
    np.save(tmp_path / "w.npy", np.eye(4))
    matrices = bytes(tmp_path / "w.npy")
    assert danaus.factorize_many(matrices, bytes(tmp_path / "d"), PATTERNS)


def test_streams_of_integers_are_f64_as_convolutions_are():
    stream = danaus.Stream([2**25 + 1, 3])
    y = stream.run([1, 2])
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, [2**25 + 1, 2**26 + 5])
