"""Arrays of other libraries: every call takes and returns them, in place."""

# SPDX-License-Identifier: Apache-2.0
import types

import numpy as np
import pytest
from small_calls import FILTERS, PATTERNS, a_chain

import danaus
from danaus import transforms
from danaus._dlpack import contiguous_strides, host_array, layout_of
from danaus._exchange import OnDevice, lent


def torch_of(x):
    return pytest.importorskip("torch").from_numpy(x)


def jax_of(x):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray(x)


def strict_of(x):
    return pytest.importorskip("array_api_strict").asarray(x)


LIBRARIES = {"torch": torch_of, "jax": jax_of, "strict": strict_of}


@pytest.fixture(params=LIBRARIES)
def library(request):
    """Makes an array of a library from NumPy's."""
    return LIBRARIES[request.param]


def numpy_of(x):
    return np.from_dlpack(x)


def spectrum():
    return danaus.ConvPlan(4, 6, dtype="f64", taps=2).spectrum(FILTERS)


def hyena():
    plan = danaus.HyenaPlan(1, 6, 3, dtype="f64")
    return plan.operator(np.ones((3, 3)), np.ones((1, 6)))


def training():
    plan = danaus.Plan(PATTERNS, dtype="f64", gradients=True)
    return plan, plan.pack(a_chain())


def dense():
    return a_chain().to_dense().astype(float)


def causal(u):
    rows = [[np.convolve(r, k)[:6] for r, k in zip(s, FILTERS)] for s in u]
    return np.array(rows)


def operator():
    return a_chain() + danaus.Chain.from_dense(np.eye(4))


def gradient_of_plan(u):
    plan, weights = training()
    return plan.gradient(weights, u, u)[0]


# A call of u[2, 4, 6] or of a part of it, and NumPy's answer.
WHOLE = {
    "convolve": (lambda u: danaus.convolve(u, FILTERS), causal),
    "spectrum": (lambda u: spectrum()(u), causal),
    "gated": (lambda u: spectrum()(u, gate_out=u), lambda u: causal(u) * u),
    "short": (lambda u: danaus.short_conv(u, FILTERS), causal),
    "own filters": (
        lambda u: danaus.convolve(u, u[0, :, :2]),
        lambda u: np.array(
            [[np.convolve(r, k)[:6] for r, k in zip(s, u[0, :, :2])] for s in u]
        ),
    ),
    "full": (
        lambda u: danaus.convolve(u, FILTERS, mode="full"),
        lambda u: np.array(
            [[np.convolve(r, k) for r, k in zip(s, FILTERS)] for s in u]
        ),
    ),
}
MATRIX = {
    "product": (lambda u: a_chain() @ u, lambda u: dense() @ u),
    "adjoint": (lambda u: a_chain().H @ u, lambda u: dense().T @ u),
    "transpose": (lambda u: a_chain().T @ u, lambda u: dense().T @ u),
    "operator": (lambda u: operator() @ u, lambda u: dense() @ u + u),
    "matmat": (lambda u: a_chain().matmat(u), lambda u: dense() @ u),
    "stream": (lambda u: danaus.Stream(FILTERS).run(u), lambda u: causal(u[None])[0]),
    "solve": (
        lambda u: danaus.Chain.from_dense(2 * np.eye(4)).solve(u),
        lambda u: u / 2,
    ),
    "transform": (
        lambda u: transforms.walsh_hadamard(4) @ u,
        lambda u: np.kron([[1, 1], [1, -1]], [[1, 1], [1, -1]]) @ u,
    ),
    "toeplitz": (
        lambda u: transforms.toeplitz_solve([2, 0, 0, 0], None, u),
        lambda u: u / 2,
    ),
}
ROWS = {
    "apply": (lambda u: danaus.apply(a_chain(), u), lambda u: u @ dense().T),
    "weights": (lambda u: training()[1](u), lambda u: u @ dense().T),
    "dx": (gradient_of_plan, lambda u: u @ dense()),
    "hyena": (
        lambda u: hyena()(u[:3, :]),
        lambda u: hyena_oracle(u),
    ),
    "match": (
        lambda u: danaus.match_templates(u[0, :], [1.0]),
        lambda u: np.sign(u[:1]),
    ),
}
CALLS = WHOLE | MATRIX | ROWS


def hyena_oracle(u):
    """Of order 2 with filters of ones: gates of short sums around a long sum."""
    short = np.stack([np.convolve(row, np.ones(3))[: row.size] for row in u[:3]])
    return short[:1] * np.cumsum(short[1:2] * short[2:3], -1)


def operand_of(call, u):
    if call in WHOLE:
        return u
    if call == "hyena":
        return u[0]
    return u[0] if call in MATRIX else np.ascontiguousarray(u[0].T)


@pytest.mark.parametrize("call", CALLS)
def test_every_call_answers_in_the_library_of_its_operand(call, library):
    u = np.random.default_rng(0).integers(1, 9, (2, 4, 6)).astype(float)
    u = operand_of(call, u)
    run, oracle = CALLS[call]
    given = library(u)
    found = run(given)
    assert type(found) is type(given)
    assert numpy_of(found).dtype == np.float64
    np.testing.assert_allclose(numpy_of(found), oracle(u), rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "bool"])
def test_integers_and_truth_values_become_f64_as_in_scipy(call, kind, library):
    u = np.random.default_rng(0).integers(1, 9, (2, 4, 6)).astype(kind)
    u = operand_of(call, u)
    run, oracle = CALLS[call]
    found = numpy_of(run(library(u)))
    assert found.dtype == np.float64
    should = oracle(u.astype(float))
    np.testing.assert_allclose(found, should, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("name", ["float16", "float32", "complex64", "complex128"])
def test_other_types_stay_as_they_are(name, library):
    u = np.random.default_rng(0).integers(1, 9, (4, 6)).astype(name)
    if library is strict_of and name == "float16":
        pytest.skip("the standard has no float16")
    found = danaus.convolve(library(u), FILTERS)
    assert type(found) is type(library(u)) and numpy_of(found).dtype == name
    should = causal(u[None].astype(complex))[0]
    np.testing.assert_allclose(numpy_of(found), should, rtol=1e-3, atol=1e-4)


def test_rows_times_a_matrix_answer_in_the_library():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(9).standard_normal((3, 4))
    found = torch.from_numpy(x) @ a_chain()
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.numpy(), x @ dense(), atol=1e-12)
    found = a_chain().rmatvec(torch.from_numpy(x[0]))
    np.testing.assert_allclose(found.numpy(), dense().T @ x[0], atol=1e-12)


def test_results_are_on_the_device_of_the_operand():
    strict = pytest.importorskip("array_api_strict")
    device = strict.Device("device1")
    found = a_chain() @ strict.ones((4, 2), device=device)
    assert found.device == device and found.shape == (4, 2)


def test_bf16_goes_there_and_back():
    torch = pytest.importorskip("torch")
    x = torch.arange(12.0, dtype=torch.bfloat16).reshape(3, 4)
    y = danaus.apply(a_chain("bf16"), x)
    assert y.dtype == torch.bfloat16
    should = np.arange(12.0).reshape(3, 4) @ dense().T
    np.testing.assert_allclose(y.float().numpy(), should, rtol=2**-7)
    jnp = pytest.importorskip("jax.numpy")
    y = danaus.apply(a_chain("bf16"), jnp.arange(12, dtype="bfloat16").reshape(3, 4))
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(y, float), should, rtol=2**-7)


def test_arrays_of_the_host_are_not_copied(library):
    x = np.arange(12.0).reshape(3, 4)
    given = library(x)
    array = lent(given, "x")
    assert isinstance(array, np.ndarray) and array.flags.c_contiguous
    assert array.ctypes.data == numpy_of(given).ctypes.data
    del given
    np.testing.assert_array_equal(array, np.arange(12.0).reshape(3, 4))


def test_results_of_pytorch_are_in_the_memory_that_was_computed():
    torch = pytest.importorskip("torch")
    x, y = torch.ones(3, 4, dtype=torch.float64), torch.zeros(3, 4, dtype=torch.float64)
    weights = training()[1]
    assert weights(x, y) is y and weights.plan.execute(weights, x, out=y) is y
    np.testing.assert_allclose(y.numpy(), np.ones((3, 4)) @ dense().T)
    u = torch.ones(2, 4, 6, dtype=torch.float64)
    out = torch.empty_like(u)
    assert spectrum()(u, out=out) is out
    np.testing.assert_allclose(out.numpy(), causal(u.numpy()))
    gradients = weights.plan.gradient(weights, x, x)
    assert all(isinstance(a, torch.Tensor) for a in (gradients.dx, *gradients.dw))
    assert gradients.dbias is None


def test_out_must_fit_and_be_writable():
    torch = pytest.importorskip("torch")
    x, weights = torch.ones(3, 4, dtype=torch.float64), training()[1]
    with pytest.raises(ValueError, match="out is not contiguous"):
        weights(x, torch.zeros(4, 3, dtype=torch.float64).T)
    with pytest.raises(ValueError, match="out overlaps x"):
        weights(x, x)
    with pytest.raises(TypeError, match="out has dtype float32"):
        weights(x, torch.zeros(3, 4))
    with pytest.raises(ValueError, match="cannot be written to"):
        weights(x, jax_of(np.ones((3, 4))))


def test_strided_and_shifted_arrays_are_read_as_they_are():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    wide = torch.from_numpy(rng.standard_normal((7, 5, 12)))
    for u in wide[1::3, 1:, ::2], wide.permute(2, 1, 0)[:2, 1:, :6], wide[:2, :4, 5:11]:
        found = danaus.convolve(u, FILTERS)
        np.testing.assert_allclose(found.numpy(), causal(u.numpy()), atol=1e-12)
    x = wide[0, 1:, 1::3].T
    found = danaus.apply(a_chain(), x)
    np.testing.assert_allclose(found.numpy(), x.numpy() @ dense().T, atol=1e-12)


def test_conjugates_of_pytorch_are_taken_as_such():
    torch = pytest.importorskip("torch")
    x = torch.tensor([1 + 1j, 2 - 1j, 3j, 4], dtype=torch.complex128)
    found = a_chain("c128") @ x.conj()
    np.testing.assert_allclose(found.numpy(), dense() @ np.conj(x.numpy()))
    with pytest.raises(ValueError, match="out cannot be written to"):
        danaus.Plan(PATTERNS, dtype="c128").pack(a_chain("c128"))(x, x.clone().conj())


def test_empty_batches_give_empty_results(library):
    nothing = library(np.zeros((0, 4)))
    assert danaus.apply(a_chain(), nothing).shape == (0, 4)
    assert training()[1](nothing).shape == (0, 4)
    assert (a_chain() @ library(np.zeros((4, 0)))).shape == (4, 0)
    assert danaus.convolve(library(np.zeros((0, 4, 6))), FILTERS).shape == (0, 4, 6)
    plan, weights = training()
    gradients = plan.gradient(weights, nothing, nothing)
    assert gradients.dx.shape == (0, 4)
    assert all((numpy_of(dw) == 0).all() for dw in gradients.dw)


def test_a_number_is_no_array_of_columns(library):
    number = library(np.array(1.0))
    for call in training()[1], lambda x: danaus.apply(a_chain(), x):
        with pytest.raises(ValueError, match=r"x has shape \(\)"):
            call(number)
    for call in danaus.convolve, danaus.short_conv:
        with pytest.raises(ValueError, match=r"u has the shape \(\)"):
            call(number, FILTERS)


def test_weights_matrices_and_filters_come_from_any_library(library):
    rng = np.random.default_rng(3)
    w = rng.standard_normal((4, 4))
    chain = danaus.Chain.from_dense(library(w))
    np.testing.assert_array_equal(chain.to_dense(), w)
    chain.bias = library(np.arange(4.0))
    np.testing.assert_array_equal(chain.bias, np.arange(4.0))
    scaled = chain.scaled(library(np.full(4, 2.0)))
    np.testing.assert_allclose(scaled.to_dense(), 2 * w)
    found = danaus.factorize(library(w), PATTERNS)
    assert found.error == danaus.factorize(w, PATTERNS).error
    plan = danaus.Plan("1,4,4,1", dtype="f64")
    packed = plan.pack()
    packed.update_from([library(w.reshape(1, 4, 4, 1))], library(np.ones(4)))
    np.testing.assert_allclose(packed(np.eye(4)), w.T + 1, atol=1e-12)
    u = rng.standard_normal((2, 4, 6))
    found = danaus.ConvPlan(4, 6, dtype="f64", taps=2).spectrum(library(FILTERS))(u)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, causal(u), atol=1e-12)


def test_gradients_of_convolutions_answer_in_the_library(library):
    u = np.random.default_rng(4).standard_normal((2, 4, 6))
    found = spectrum().gradient(library(u), library(u))
    should = spectrum().gradient(u, u)
    assert type(found.dk) is type(library(u)) and found.dskip is None
    np.testing.assert_array_equal(numpy_of(found.du), should.du)
    found = danaus.short_conv_gradient(library(u), FILTERS, library(u))
    assert type(found.dbias) is type(library(u))
    np.testing.assert_allclose(numpy_of(found.dbias), u.sum((0, 2)))


def test_tensors_that_require_gradients_are_refused():
    torch = pytest.importorskip("torch")
    x = torch.ones(4, dtype=torch.float64, requires_grad=True)
    for call in a_chain().dot, training()[1], lambda x: danaus.apply(a_chain(), x):
        with pytest.raises(TypeError, match=r"x requires gradients.*x.detach\(\)"):
            call(x)
    assert (a_chain() @ x.detach()).shape == (4,)


def test_what_lies_in_no_memory_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="x is in no memory"):
        a_chain() @ torch.ones(4, device="meta")
    with pytest.raises(ValueError, match="x cannot be read in place"):
        a_chain() @ torch.eye(4).to_sparse()
    with pytest.raises(TypeError, match="x has numbers of type"):
        a_chain() @ torch.ones(4).to(torch.float8_e4m3fn)


@pytest.mark.parametrize("name", ["longdouble", "clongdouble"])
def test_long_doubles_are_refused_by_name(name):
    for call, (run, _) in CALLS.items():
        with pytest.raises(TypeError, match=np.dtype(name).name):
            run(operand_of(call, np.ones((2, 4, 6), name)))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (4, 1, 2)])
def test_strides_of_arrays_without_gaps_are_those_of_numpy(shape):
    array = np.empty(shape)
    if array.size:
        assert contiguous_strides(shape, 8) == array.strides
    layout = layout_of(array, "x")
    assert layout.shape == shape and not layout.read_only
    again = host_array(layout)
    assert again.shape == shape and again.dtype == array.dtype
    assert again.ctypes.data == array.ctypes.data or not array.size


# ---- arrays of a GPU ----


class Pretender:
    """NumPy's memory in an array that says that it lies elsewhere."""

    def __init__(self, array, device=(2, 0)):
        self.memory, self.place, self.streams = array, device, []

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, stream=None):  # as before version 1
        self.streams.append(stream)
        return self.memory.__dlpack__()

    @property
    def device(self):
        return self.place

    @property
    def ndim(self):
        return self.memory.ndim

    def __array_namespace__(self):
        def empty(shape, dtype, device):
            return Pretender(np.empty(shape, dtype), device)

        def reshape(x, shape):
            return Pretender(x.memory.reshape(shape), x.place)

        names = {"empty": empty, "reshape": reshape, "__name__": "pretended"}
        def conj(x):
            return Pretender(x.memory.conj(), x.place)

        types_of = {"float64": np.float64, "float32": np.float32}
        return types.SimpleNamespace(conj=conj, **types_of, **names)

    def astype(self, dtype):
        return Pretender(self.memory.astype(dtype), self.place)

    def contiguous(self):
        return Pretender(np.ascontiguousarray(self.memory), self.place)


def test_arrays_of_another_device_are_refused_in_one_sentence():
    x, u = Pretender(np.ones((3, 4))), Pretender(np.ones((2, 4, 6)))
    sentence = "lies on cuda:0, and this runs on cpu.*: use device='cuda:0', or move"
    for call in (
        lambda: training()[1](x),
        lambda: spectrum()(u),
        lambda: danaus.convolve(u, FILTERS, device="cpu"),
        lambda: danaus.short_conv(u, FILTERS, device="cpu"),
        lambda: danaus.Stream(FILTERS).run(Pretender(np.ones((4, 6)))),
        lambda: hyena()(Pretender(np.ones((3, 6)))),
        lambda: training()[0].gradient(training()[1], x, x),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
    host = "x lies on cuda:0, where this needs an array that the processor reads"
    with pytest.raises(TypeError, match=host.replace("x", "b", 1)):
        danaus.Chain.from_dense(np.eye(4)).solve(x)
    with pytest.raises(TypeError, match="lies on cuda:0"):
        danaus.Chain.from_dense(x)
    with pytest.raises(TypeError, match="lies on cuda:0"):
        danaus.match_templates(u, [1.0])
    with pytest.raises(NotImplementedError, match="modes and filters"):
        danaus.convolve(u, FILTERS, mode="full")
    with pytest.raises(ValueError, match="number 1 of the devices of type 10"):
        training()[1](Pretender(np.ones((3, 4)), (10, 1)))


def test_memory_of_the_host_that_a_gpu_reads_is_of_the_host():
    x = Pretender(np.arange(12.0).reshape(3, 4), (3, 0))
    assert isinstance(lent(x, "x"), np.ndarray)


def test_an_array_on_a_device_has_what_calls_ask_for():
    numbers = np.arange(24, dtype="i4").reshape(2, 3, 4)
    x = lent(Pretender(numbers), "x")
    assert isinstance(x, OnDevice) and x.place == "cuda:0" and x.stream is None
    assert x.array.streams == [1]  # the default stream, since nothing tells another
    assert (x.shape, x.ndim, x.size, x.nbytes) == ((2, 3, 4), 3, 24, 96)
    assert x.address == numbers.ctypes.data and x.flags.c_contiguous
    wide = x.astype(np.dtype("f8")).reshape(6, 4)
    assert wide.shape == (6, 4) and wide.dtype == np.float64
    np.testing.assert_array_equal(wide.array.memory, numbers.reshape(6, 4))
    gaps = lent(Pretender(numbers.T), "x")
    assert not gaps.flags.c_contiguous and gaps.contiguous().flags.c_contiguous
    assert gaps.contiguous().shape == (4, 3, 2)
    made = x.empty((2, 5), np.float32)
    assert made.shape == (2, 5) and made.array.device == (2, 0)


@pytest.fixture
def pretended(monkeypatch):
    """A processor that this thread takes for a GPU: it runs what a GPU would be given,
    at the addresses that arrays have there."""
    device = danaus.Device("cpu")
    monkeypatch.setattr(device, "_name", "cuda:0")
    monkeypatch.setattr(device, "_on_host", False)
    monkeypatch.setitem(danaus.device._default.__dict__, "cuda:0", device)


def test_arrays_on_a_device_are_used_where_they_lie(pretended):
    rng = np.random.default_rng(7)
    x = rng.standard_normal((3, 4))
    plan = danaus.Plan(PATTERNS, dtype="f64", device="cuda:0", gradients=True)
    weights, there = plan.pack(a_chain()), Pretender(x)
    out = Pretender(np.empty((3, 4)))
    assert weights(there, out) is out
    gradients = plan.gradient(weights, there, there)
    own = plan.pack()
    own.update_from([Pretender(w) for w in a_chain().weights])
    for found, should in (
        (weights(there), x @ dense().T),
        (out, x @ dense().T),
        (own(there), x @ dense().T),
        (danaus.apply(a_chain(), there), x @ dense().T),
        (weights(Pretender(np.asfortranarray(x))), x @ dense().T),
        (weights(Pretender(x.astype(int))), x.astype(int) @ dense().T),
        (gradients.dx, x @ dense()),
        (a_chain() @ Pretender(x.T), dense() @ x.T),
        (a_chain().H @ Pretender(x.T), dense().T @ x.T),
        (a_chain().T @ Pretender(x.T), dense().T @ x.T),
        (a_chain() @ Pretender(x[0]), dense() @ x[0]),
        (operator() @ Pretender(x.T), dense() @ x.T + x.T),
    ):
        assert isinstance(found, Pretender)
        np.testing.assert_allclose(found.memory, should, atol=1e-12)
    assert all(isinstance(dw, Pretender) for dw in gradients.dw)
    np.testing.assert_allclose(weights(x), x @ dense().T, atol=1e-12)  # copied there
    with pytest.raises(ValueError, match=r"x has the shape \(3, 4\) instead of \[4\]"):
        a_chain() @ there
    with pytest.raises(ValueError, match="out overlaps x"):
        weights(there, Pretender(x))
    with pytest.raises(NotImplementedError, match="a real matrix times complex"):
        a_chain() @ Pretender(x.T + 0j)
    with pytest.raises(NotImplementedError, match="add the bias"):
        danaus.apply(operator(), there)


def test_signals_on_a_device_are_convolved_where_they_lie(pretended):
    u = np.random.default_rng(8).standard_normal((2, 4, 6))
    there, k = Pretender(u), Pretender(FILTERS)
    plan = danaus.ConvPlan(4, 6, dtype="f64", taps=2, device="cuda:0")
    single = danaus.convolve(Pretender(u[0, 0]), FILTERS[0])
    np.testing.assert_allclose(single.memory, causal(u)[0, 0], atol=1e-12)
    for found in (
        danaus.convolve(there, FILTERS),
        danaus.convolve(there, k),
        danaus.convolve(there, Pretender(FILTERS.astype("f4"))),
        danaus.short_conv(there, k),
        plan.spectrum(k)(there),
        plan.spectrum(FILTERS)(there, gate_in=Pretender(np.ones_like(u))),
    ):
        np.testing.assert_allclose(found.memory, causal(u), atol=1e-12)
    found, should = plan.spectrum(k).gradient(there, there), spectrum().gradient(u, u)
    np.testing.assert_allclose(found.dk.memory, should.dk, atol=1e-12)
    stream = danaus.Stream(FILTERS, device="cuda:0")
    found = stream.run(Pretender(u[0]))
    np.testing.assert_allclose(found.memory, causal(u)[0], atol=1e-12)
    rows = u[0, :3]
    plan = danaus.HyenaPlan(1, 6, 3, dtype="f64", device="cuda:0")
    found = plan.operator(np.ones((3, 3)), np.ones((1, 6)))(Pretender(rows))
    np.testing.assert_allclose(found.memory, hyena_oracle(rows), atol=1e-12)
    assert danaus.convolve(Pretender(u[:0]), FILTERS).memory.shape == (0, 4, 6)
    with pytest.raises(TypeError, match="taps lies on cuda:0"):
        plan.operator(Pretender(np.ones((3, 3))), np.ones((1, 6)))


def test_memory_is_kept_as_long_as_it_is_read():
    freed = []

    class Counted(np.ndarray):
        def __del__(self):
            freed.append(True)

    memory = np.ones(4).view(Counted)
    array = lent(Pretender(memory, (1, 0)), "x")
    del memory
    assert not freed and array.sum() == 4
    del array
    assert freed


def has_cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch


@pytest.mark.parametrize("stream", ["default", "own"])
def test_tensors_of_a_gpu_are_multiplied_there(stream):
    torch = has_cuda()
    rng = np.random.default_rng(5)
    x = rng.standard_normal((64, 4))
    made = torch.cuda.Stream() if stream == "own" else torch.cuda.current_stream()
    plan = danaus.Plan(PATTERNS, dtype="f64", device="cuda:0", gradients=True)
    weights = plan.pack(a_chain())
    with torch.cuda.stream(made):
        there = torch.from_numpy(x).cuda()
        found = weights(there)
        out = torch.empty_like(found)
        assert weights(there, out) is out
        dx = plan.gradient(weights, there, there).dx
        product, turned = a_chain() @ there.T, a_chain().H @ there.T
        applied = danaus.apply(a_chain(), there)
        whole = a_chain() @ torch.ones(4, dtype=torch.int32, device="cuda")
        terms = operator() @ there.T
    assert found.device == there.device and found.dtype == torch.float64
    np.testing.assert_allclose(found.cpu(), x @ dense().T, atol=1e-12)
    np.testing.assert_allclose(out.cpu(), x @ dense().T, atol=1e-12)
    np.testing.assert_allclose(applied.cpu(), x @ dense().T, atol=1e-12)
    np.testing.assert_allclose(dx.cpu(), x @ dense(), atol=1e-12)
    np.testing.assert_allclose(product.cpu(), dense() @ x.T, atol=1e-12)
    np.testing.assert_allclose(turned.cpu(), dense().T @ x.T, atol=1e-12)
    np.testing.assert_allclose(terms.cpu(), dense() @ x.T + x.T, atol=1e-12)
    np.testing.assert_allclose(whole.cpu(), dense().sum(1), atol=1e-12)
    with pytest.raises(ValueError, match="lies on cuda:0, and this runs on cpu"):
        training()[1](there)


def test_tensors_of_a_gpu_are_convolved_there():
    torch = has_cuda()
    u = np.random.default_rng(6).standard_normal((2, 4, 6))
    there = torch.from_numpy(u).cuda()
    filters = torch.from_numpy(FILTERS).cuda()
    plan = danaus.ConvPlan(4, 6, dtype="f64", taps=2, device="cuda:0")
    for found in (
        danaus.convolve(there, filters),
        danaus.convolve(there, FILTERS),
        danaus.short_conv(there, filters),
        plan.spectrum(filters)(there),
        plan.spectrum(FILTERS)(there, gate_in=torch.ones_like(there)),
    ):
        assert found.is_cuda
        np.testing.assert_allclose(found.cpu(), causal(u), atol=1e-12)
    gradients = plan.spectrum(filters).gradient(there, there)
    should = spectrum().gradient(u, u)
    assert gradients.dk.is_cuda
    np.testing.assert_allclose(gradients.dk.cpu(), should.dk, atol=1e-11)
