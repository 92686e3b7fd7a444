"""No argument of any public function crashes: what is refused is refused by a sentence.

Every callable of ``danaus`` and every method of its objects is called with arguments of
which some fit, some nearly, and some are anything.
"""
# SPDX-License-Identifier: Apache-2.0
import inspect
import os

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import danaus
import danaus.lazylinop
import danaus.plot
from conftest import random_chain

REFUSED = (TypeError, ValueError, NotImplementedError, MemoryError, OSError, IndexError)
EXAMPLES = max(10, 40 // int(os.environ.get("DANAUS_TEST_SHARE", "1")))

PATTERNS = "1,4,2,3 3,2,4,1"  # 12 x 12
SIZE = 12


def objects():
    """One of each kind of object that calls may take or be made on."""
    chain = random_chain(np.random.default_rng(0), 2, "f32", bias=True)
    fitting = danaus.Chain.create(PATTERNS)
    plan = danaus.Plan(PATTERNS, gradients=True)
    conv = danaus.ConvPlan(3, SIZE)
    hyena = danaus.HyenaPlan(1, SIZE)
    other = danaus.Plan(PATTERNS, dtype="f64", layout="batch-last", adjoint=True)
    return {
        "Chain": fitting,
        "Plan": plan,
        "Weights": plan.pack(fitting),
        "Device": danaus.Device("cpu", threads=1),
        "ConvPlan": conv,
        "Spectrum": conv.spectrum(np.zeros((3, SIZE))),
        "HyenaPlan": hyena,
        "Hyena": hyena.operator(np.ones((3, 3)), np.ones((1, SIZE))),
        "Stream": danaus.Stream(np.ones(5)),
        "Pattern": danaus.Pattern(1, 4, 2, 3),
        "Calibration": danaus.Calibration.of(np.eye(SIZE)),
        "other chain": chain,
        "other plan": other,
        "other weights": other.pack(),
    }


OBJECTS = objects()

# Larger numbers than these are too large for any memory; between are hours.
numbers = st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 12, 2**62, 2**63 - 1, 2**63, -(2**64)])
dtypes = st.sampled_from(
    ["f4", "f8", "f2", "F", "D", "u2", "i8", "?", "O", "S3", ">f4", "g", "M8[s]"]
)


@st.composite
def arrays(draw):
    """Arrays of all types, shapes that may fit, in all orders in memory."""
    dtype = draw(dtypes)
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, SIZE]), max_size=4))
    if draw(st.booleans()):
        shape = draw(st.sampled_from([[SIZE], [5, SIZE], [3, SIZE], [SIZE, SIZE]]))
    array = np.zeros(shape, dtype)
    if array.ndim and draw(st.booleans()):
        array = draw(st.sampled_from([array[::-1], array.T, array[..., ::2]]))
    if draw(st.integers(0, 9)) == 0:
        array.flags.writeable = False
    return array


scalars = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    st.floats(width=16),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.sampled_from([PATTERNS, "f32", "f64", "bf16", "batch-last", "relu", "causal"]),
    st.sampled_from(list(OBJECTS.values())),
    st.sampled_from([object(), len, np.float32, 1j, "\0", "1,1", "a" * 300, b"\xff"]),
    arrays(),
)
anything = st.one_of(
    scalars,
    st.lists(scalars, max_size=5),
    st.tuples(numbers, numbers, numbers, numbers),
    st.lists(st.tuples(numbers, numbers, numbers, numbers), max_size=3),
    st.dictionaries(st.text(max_size=3), scalars, max_size=2),
)

# What fits a parameter of that name.
f32 = [np.zeros(s, np.float32) for s in ((SIZE,), (5, SIZE), (3, SIZE), (SIZE, SIZE))]
FITTING = {
    "patterns": st.sampled_from([PATTERNS, danaus.patterns.parse(PATTERNS), "1,2,2,1"]),
    "chain": st.sampled_from([OBJECTS["Chain"], OBJECTS["other chain"]]),
    "weights": st.sampled_from(
        [OBJECTS["Weights"], OBJECTS["other weights"], OBJECTS["Chain"].weights]
    ),
    "device": st.sampled_from(["cpu", "cpu:scalar", OBJECTS["Device"]]),
    "dtype": st.sampled_from(["f32", "bf16", "c128", np.float64]),
    "path": st.sampled_from(["file", b"file", "none/file", "."]),
    "kind": st.sampled_from(["monarch", "radices", "low-rank", "causal"]),
    **{name: st.sampled_from(f32) for name in ("x", "dy", "u", "k", "dense", "out")},
    **{name: numbers for name in ("rows", "cols", "batch", "rank", "length", "n")},
}
# Calls that measure for seconds, draw, or start others.
LEFT_OUT = {"calibrate", "progress", "effort", "factorize_many", "set_threads"}


def callables():
    """(name, function) of every public function, class and method."""
    for name in danaus.__all__:
        thing = getattr(danaus, name)
        if thing is danaus.records:  # plain Python over csv and json
            continue
        if inspect.ismodule(thing):
            for inner, function in vars(thing).items():
                if inspect.isfunction(function) and not inner.startswith("_"):
                    if function.__module__ == thing.__name__:
                        yield f"{name}.{inner}", function
        elif callable(thing):
            yield name, thing
    for kind, instance in OBJECTS.items():
        for name in dir(type(instance)):
            is_public = not name.startswith("_") or name in (
                "__call__",
                "__getitem__",
                "__matmul__",
                "__add__",
            )
            if is_public and callable(getattr(instance, name)):
                yield f"{kind}.{name}", getattr(instance, name)


CALLS = [(n, f) for n, f in callables() if n.split(".")[-1] not in LEFT_OUT]


@st.composite
def arguments(draw, function):
    """Positional and named arguments of which most fit."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        parameters = []
    given_, named = [], {}
    for parameter in parameters:
        if parameter.name in LEFT_OUT or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        if parameter.default is not parameter.empty and draw(st.integers(0, 2)):
            continue
        fits = FITTING.get(parameter.name, anything)
        value = draw(st.one_of(fits, fits, anything))
        if parameter.kind is parameter.KEYWORD_ONLY or named or (
            parameter.default is not parameter.empty
        ):
            named[parameter.name] = value
        else:
            given_.append(value)
    return given_, named


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """What is written goes to a folder of its own."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("arguments"))
    yield
    os.chdir(before)


@pytest.mark.parametrize("name,function", CALLS, ids=[name for name, _ in CALLS])
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_what_does_not_fit_is_refused_by_a_sentence(name, function, data):
    given_, named = data.draw(arguments(function))
    try:
        function(*given_, **named)
    except REFUSED as error:
        assert " " in str(error), f"{type(error).__name__} says {str(error)!r}"


# ---- arguments of the wrong kind are named ----

W = np.arange(64.0).reshape(8, 8)
ONE = danaus.Chain.from_dense(W)
SQUARE = "1,4,4,2 2,4,4,1"  # 8 x 8


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: danaus.convolve(None, [1.0]), "u has to be .*this is a NoneType"),
        (lambda: danaus.convolve([2**70, 1], [1.0]), "u has to be .* a list of object"),
        (lambda: danaus.convolve([1.0], "a"), "k has to be .* this is a str"),
        (lambda: danaus.factorize("W.npy", PATTERNS), "the matrix has .* is a str"),
        (lambda: danaus.factorize(scipy.sparse.eye(8), PATTERNS), r"its \.toarray\(\)"),
        (lambda: danaus.kron(W, "b"), "operand 1 has to be .* this is a str"),
        (lambda: danaus.hstack(W), "operands are a list of .*, not a ndarray"),
        (lambda: danaus.vstack(ONE), "operands are a list of .*, not a Chain"),
        (lambda: danaus.compress(W, True), "parameters are a number or a share"),
        (lambda: danaus.patterns.fit(8, 8, True), "parameters are a number or a share"),
    ],
)
def test_what_is_no_array_of_numbers_is_named(call, sentence):
    with pytest.raises(TypeError, match=sentence):
        call()


def test_matrices_without_numbers_and_lists_of_matrices_are_named():
    with pytest.raises(ValueError, match=r"operand 0 has the shape \(2, 8, 8\)"):
        danaus.block_diag([W, W])
    with pytest.raises(ValueError, match=r"w has the shape \(0, 8\)"):
        danaus.Chain.from_dense(W[:0])
    assert danaus.hstack(x for x in (W, ONE)).shape == (8, 16)


def test_a_file_without_named_chains_is_no_answer(tmp_path):
    ONE.save(tmp_path / "one.safetensors")
    with pytest.raises(ValueError, match=r"one\.safetensors has .* for Chain\.load"):
        danaus.load_chains(tmp_path / "one.safetensors")
    np.save(tmp_path / "w.npy", W)
    with pytest.raises(ValueError, match=r"w\.npy has no tensor NAME\.factor\.0$"):
        danaus.load_chains(tmp_path / "w.npy")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: danaus.transforms.givens(np.ones((3, 4)) * 1j), "complex"),
        (lambda: danaus.transforms.Nufft(np.ones(3) * 1j, 8), "complex"),
        (
            lambda: danaus.find_permutations(W, SQUARE, row_classes=np.ones(8) / 2),
            "classes have to be whole numbers, not float64",
        ),
    ],
)
def test_no_part_of_a_number_is_lost(call, sentence):
    with pytest.raises(TypeError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: danaus.records.write("r.csv", {"a": 1}), "mappings, not a dict"),
        (lambda: danaus.records.to_array("abc"), "records are a list of mappings"),
        (lambda: danaus.lazylinop.to_ks_values(3), "a danaus.Chain is needed"),
        (lambda: danaus.plot.chain("c.st"), "a danaus.Chain is drawn, not a str"),
        (lambda: danaus.plot.spectrum([1j, 2]), "k is complex"),
    ],
)
def test_what_pictures_and_records_are_of_is_named(call, sentence):
    with pytest.raises(TypeError, match=sentence):
        call()


def test_one_kind_is_a_list_of_one():
    pytest.importorskip("matplotlib")
    ax = danaus.plot.error_against_parameters(W, "monarch")
    assert [text.get_text() for text in ax.get_legend().get_texts()]
