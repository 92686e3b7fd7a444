"""Wrong input: a Python exception of the usual class with a sentence, never a crash."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from danaus.torch import KSLinear, _ops, functional  # noqa: E402

ops = _ops.ops
LAYERS = {
    layout: KSLinear(6, 4, "1,2,3,2 3,2,2,1", layout=layout, activation="relu")
    for layout in ("batch_first", "batch_last")
}
DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.complex64,
    torch.int64,
    torch.bool,
    torch.uint8,
]
USUAL = (ValueError, TypeError, RuntimeError, NotImplementedError, IndexError)
# Machines may be busy: how long a draw takes says nothing.
few = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

sizes = st.integers(0, 7)
shapes = st.lists(sizes, max_size=3).map(tuple)
dtypes = st.sampled_from(DTYPES)


@st.composite
def tensors(draw, shape=shapes):
    tensor = torch.ones(draw(shape), dtype=draw(dtypes))
    if tensor.dim() > 1 and draw(st.booleans()):
        tensor = tensor.transpose(0, -1)
    if draw(st.integers(0, 9)) == 0:
        tensor = tensor.to_sparse() if tensor.dim() else tensor.to("meta")
    return tensor


def fits(x, layer) -> bool:
    return (
        x.dim() > 0
        and x.shape[0 if layer.layout == "batch_last" else -1] == 6
        and x.dtype in DTYPES[:4]
        and x.layout == torch.strided
        and x.device.type == "cpu"
    )


@few
@given(tensors() | st.none() | st.lists(st.floats(), max_size=6), st.booleans())
def test_layers(x, gradients):
    for layer in LAYERS.values():
        with torch.set_grad_enabled(gradients):
            if isinstance(x, torch.Tensor) and fits(x, layer):
                assert layer(x).dtype == x.dtype
            else:
                with pytest.raises((ValueError, TypeError)) as caught:
                    layer(x)
                assert str(caught.value)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("gradients", (False, True))
def test_nested_tensors(gradients):
    x = torch.nested.nested_tensor([torch.ones(2, 6), torch.ones(3, 6)])
    with torch.set_grad_enabled(gradients):
        with pytest.raises(ValueError, match="the input is nested"):
            LAYERS["batch_first"](x)


four = st.tuples(sizes, sizes, sizes, sizes) | shapes
weights = st.lists(tensors(four), max_size=3)


@few
@given(
    tensors(),
    weights,
    st.none() | tensors(st.tuples(sizes)),
    st.sampled_from([None, "relu", "tanh"]),
    st.sampled_from(["batch_first", "batch_last", "first"]),
)
def test_the_function(x, w, bias, activation, layout):
    try:
        y = functional.ks_linear(x, w, bias, activation=activation, layout=layout)
    except (ValueError, TypeError) as error:
        assert str(error)
    else:
        assert y.dtype == x.dtype and y.dim() == x.dim()


patterns = st.lists(st.integers(-2, 2**62) | st.integers(1, 4), max_size=9)
question = patterns, st.sampled_from(["none", "gelu", "x"]), st.booleans()


@few
@given(tensors(), weights, st.none() | tensors(), *question, st.booleans())
def test_the_operators(x, w, bias, p, activation, last, many):
    if many and w:  # patterns that may fit
        p = [size for tensor in w for size in tensor.shape]
    q = p, activation, last, False, many
    calls = [
        lambda: ops.ks_linear(x, w, bias, *q),
        lambda: ops._ks_linear(x, w, bias, *q),
        lambda: ops.ks_linear_backward(x, x, w, *q, True, True, True),
        lambda: ops._ks_linear_train(x, w, bias, *q),
        lambda: ops._ks_linear_return(x, x, x, *q, True, True, True, many),
        lambda: ops._ks_linear_packed(x, x, many, *q),
        lambda: ops._ks_pack_training([x], w, torch.float32, p),
        lambda: ops.ks_pack(w, bias, x.dtype, 3, *q),
        lambda: ops.ks_pack_into(x, w, bias, torch.float32, 3, *q),
        lambda: ops.ks_pack(w, bias, x.dtype, 3, *q, many),
        lambda: ops.ks_apply(x, x, True, 3, *q),
        lambda: ops.ks_apply(x, x, True, 3, *q, x if many else bias),
        lambda: ops.ks_describe(x, -3, *q),
    ]
    for call in calls:
        try:
            call()
        except USUAL as error:
            assert str(error)


def test_an_older_pytorch_is_named():
    program = (
        "import torch; torch.__version__ = '2.9.1'\n"
        "try: import danaus.torch\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (
        done.stdout.strip() == "danaus.torch needs PyTorch 2.10 or later; this is 2.9.1"
    )


def test_operators_without_pytorch_say_so():
    path = _ops.danaus._library.FOLDER / "torch" / "_operators.so"
    program = (
        "import ctypes\n"
        f"library = ctypes.CDLL({str(path)!r})\n"
        "library.danaus_torch_register.restype = ctypes.c_char_p\n"
        "print(library.danaus_torch_register().decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "import torch first" in done.stdout
