"""The library behind the package: its version, statuses, helpers, element types."""
# SPDX-License-Identifier: Apache-2.0
import gc
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import danaus
from danaus import _library

ROOT = pathlib.Path(__file__).parents[2]


def run(program, **environment):
    """Output of a Python program in a process of its own."""
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_version_is_that_of_the_headers():
    header = (ROOT / "include" / "danaus" / "base.h").read_text()
    numbers = re.findall(r"DANAUS_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
    assert danaus.version() == danaus.__version__ == ".".join(numbers)


@pytest.mark.parametrize(
    "status, exception",
    [
        ("ARGUMENT", ValueError),
        ("SHAPE", ValueError),
        ("UNSUPPORTED", NotImplementedError),
        ("MEMORY", MemoryError),
        ("IO", OSError),
        ("FORMAT", ValueError),
        ("DEVICE", RuntimeError),
        ("CANCELLED", RuntimeError),
    ],
)
def test_every_status_is_an_exception(status, exception):
    with pytest.raises(exception):
        _library.check(getattr(_library.lib, f"DANAUS_ERR_{status}"))
    _library.check(_library.lib.DANAUS_OK)


def test_importing_the_package_imports_neither_torch_nor_matplotlib():
    heavy = "{'torch', 'matplotlib', 'tqdm'}"
    program = f"import danaus, sys; print({heavy} & {{*sys.modules}})"
    assert run(program) == "set()"


def test_helpers_are_found_where_wheels_put_them(tmp_path):
    for place, name in [
        ("cu13/lib", "libnvrtc.so.13"),
        ("cuda_nvrtc/lib", "libnvrtc.so.12"),
        ("cublas/lib", "libcublas.so.12"),
    ]:
        (tmp_path / "nvidia" / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / place / name).write_bytes(b"")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import danaus._library as library
class Spy:
    def danaus_library_locate(self, name, path): print(name.decode(), path.decode())
library.lib = Spy()
library._locate_nvidia()
"""
    lines = dict(line.split(" ", 1) for line in run(program).splitlines())
    assert lines["nvrtc"].endswith(("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"))
    assert set(lines) == {"nvrtc", "cublas"}


def test_kernels_that_cannot_be_used_are_reported(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "bad.kernels").write_bytes(b"nonsense")
    program = f"""
import pathlib, warnings
import danaus._library as library
library.FOLDER = pathlib.Path({str(tmp_path)!r})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    library._use_kernels()
print(caught[0].message)
"""
    assert "bad.kernels" in run(program)


BF16 = """
import sys
if {blocked}:
    sys.modules["ml_dtypes"] = None
import numpy as np, danaus
w = np.full((1, 2, 2, 1), 1.5)
chain = danaus.Chain.from_weights([w], bias=[1, 2], dtype="bf16")
x = danaus.convert(np.ones((3, 2)), "bf16")
y = danaus.apply(chain, x)
print(chain.weights[0].dtype, x.dtype, chain.dtype)
if {blocked}:
    try:
        chain @ x[0]
    except TypeError as error:
        assert "danaus.convert" in str(error)
else:
    assert (chain @ x[0]).dtype == x.dtype
assert (danaus.convert(y, "f32", "bf16") == [4, 5]).all()
assert (chain @ np.ones(2, np.float32) == 3).all()
assert (chain @ np.ones(2, np.float32)).dtype == np.float32
plan = danaus.Plan(chain.patterns, dtype="bf16", gradients=True)
gradients = plan.gradient(plan.pack(chain), x, y, dbias=True)
assert gradients.dx.dtype == x.dtype and gradients.dbias.dtype == np.float32
bits = x.view(np.uint16)
assert (plan.pack(chain)(bits).view(np.uint16) == y.view(np.uint16)).all()
"""


def test_bf16_without_ml_dtypes_is_uint16():
    assert run(BF16.format(blocked=True)) == "uint16 uint16 float32"


def test_bf16_with_ml_dtypes_is_bfloat16():
    pytest.importorskip("ml_dtypes")
    assert run(BF16.format(blocked=False)) == "bfloat16 bfloat16 bfloat16"


@pytest.mark.parametrize("dtype", ["f32", "float32", np.float32, np.dtype("f4"), "f4"])
def test_types_have_many_names(dtype):
    assert danaus.Chain.create("1,2,2,1", dtype).element_type == "f32"


@pytest.mark.parametrize("dtype", ["int8", int, "nonsense", None, np.longdouble, "O"])
def test_other_types_are_refused(dtype):
    if dtype is None:  # NumPy's default is f64
        assert danaus.Chain.create("1,2,2,1", dtype).element_type == "f64"
        return
    with pytest.raises(TypeError, match="is not an element type of danaus"):
        danaus.Chain.create("1,2,2,1", dtype)


def test_conversion_rounds_once_and_keeps_signs():
    values = np.array([1 / 3, -65519.0, 65520.0, np.inf, -0.0])
    with pytest.warns(RuntimeWarning, match="number 2 of the array is 65520"):
        half = danaus.convert(values, np.float16)
    np.testing.assert_array_equal(half, [1365 / 4096, -65504, np.inf, np.inf, 0])
    assert np.signbit(half[4])
    with pytest.raises(TypeError, match="real"):
        danaus.convert(np.ones(2, complex), "f32")


@pytest.mark.parametrize("user_first", [False, True])
def test_what_is_needed_goes_last_when_all_is_garbage_at_once(user_first):
    gone: list[str] = []
    things = [_library.ffi.new("int *") for _ in range(3)]
    device = _library.own(things[0], lambda handle: gone.append("device"))
    plan = _library.own(things[1], lambda handle: gone.append("plan"), device)
    cycle = [plan, device] if user_first else [device, plan]
    weights = _library.own(
        things[2], lambda handle: gone.append("weights"), plan, device, cycle
    )
    cycle += [weights, cycle]
    del device, plan, weights, cycle
    gc.collect()
    assert gone == ["weights", "plan", "device"]
