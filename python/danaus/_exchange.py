"""Arrays of other libraries: PyTorch, CuPy, JAX and all that have __dlpack__.

A call that is `exchanged` uses such arrays in place: as NumPy's where the processor
reads their memory, else as `OnDevice`. Its results go back to the library of the first
of them, and to its device.

Order: work on a GPU runs in the current stream of PyTorch or CuPy. Other libraries do
not tell theirs: their arrays are used in the default stream, and the call waits.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from danaus._dlpack import (
    bfloat16,
    contiguous_strides,
    host_array,
    layout_of,
    place_of,
)

Call = TypeVar("Call", bound=Callable[..., Any])

# The current stream of a library's array, as a number; 0: the default one.
_STREAMS: dict[str, Callable[[Any, Any], int]] = {
    "torch": lambda xp, x: xp.cuda.current_stream(x.device).cuda_stream,
    "cupy": lambda xp, x: xp.cuda.get_current_stream(x.device.id).ptr,
}


def is_foreign(x: Any) -> bool:
    """True of an array of another library."""
    return not isinstance(x, (np.ndarray, np.generic)) and hasattr(x, "__dlpack__")


def _namespace(x: Any) -> Any:
    """The functions of an array's library; None where it has none for DLPack."""
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    for kind in type(x).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        if hasattr(module, "from_dlpack"):
            return module
    return None


def _library(x: Any) -> str:
    """The name of an array's library, such as "torch"."""
    name = getattr(_namespace(x), "__name__", type(x).__module__)
    return name.partition(".")[0]


def _stream(x: Any) -> int | None:
    """The stream in which a library works now; None: nobody knows."""
    current = _STREAMS.get(_library(x))
    return None if current is None else current(_namespace(x), x)


class OnDevice:
    """An array in the memory of a GPU, with what calls ask of a NumPy array.

    Attributes
    ----------
    array : that of its library; what : the argument's name.
    place : as `danaus.Device` names it; stream : where its library works now.
    """

    def __init__(self, array: Any, what: str, place: str, stream: int | None):
        self.array, self.what, self.place, self.stream = array, what, place, stream
        layout = layout_of(array, what, stream=stream or 1)
        self.address, self.shape = layout.address, layout.shape
        self.dtype, self._keep = layout.dtype, layout.keep
        steps = contiguous_strides(self.shape, self.dtype.itemsize)
        sizes = zip(self.shape, steps, layout.strides)
        self.flags = SimpleNamespace(
            c_contiguous=self.size == 0 or all(s == t for n, s, t in sizes if n > 1),
            f_contiguous=False,
            aligned=self.address % max(self.dtype.itemsize, 1) == 0,
            writeable=not layout.read_only,
        )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError(
            f"{self.what} lies on {self.place}, where this needs an array that the "
            "processor reads: pass a copy of it in the host's memory"
        )

    def _like(self, array: Any) -> OnDevice:
        return OnDevice(array, self.what, self.place, self.stream)

    def contiguous(self) -> OnDevice:
        """Itself or, where it has gaps, its library's copy without."""
        if self.flags.c_contiguous and self.flags.aligned:
            return self
        if hasattr(self.array, "contiguous"):
            return self._like(self.array.contiguous())
        return self._like(_namespace(self.array).ascontiguousarray(self.array))

    def reshape(self, *shape: Any) -> OnDevice:
        sizes = shape[0] if isinstance(shape[0], tuple) else shape
        return self._like(_namespace(self.array).reshape(self.array, sizes))

    def astype(self, dtype: Any, copy: bool = True) -> OnDevice:
        """Numbers of another type, which the array's library converts."""
        if self.dtype == dtype:
            return self
        convert = getattr(self.array, "to", None) or self.array.astype
        return self._like(convert(_type_of(self.array, dtype)))

    def conj(self) -> OnDevice:
        if self.dtype.kind != "c":
            return self
        array = _namespace(self.array).conj(self.array)
        return self._like(getattr(array, "resolve_conj", lambda: array)())

    def empty(self, shape: Any, dtype: Any) -> OnDevice:
        """A new array of the same library on the same device."""
        xp, x = _namespace(self.array), self.array
        if xp is None:
            raise TypeError(
                f"{self.what} is of type {type(x).__name__}, whose library makes no "
                "arrays for danaus: pass one of PyTorch, CuPy or JAX"
            )
        options = {"dtype": _type_of(x, dtype)}
        if _library(x) == "cupy":
            with x.device:
                return self._like(xp.empty(tuple(shape), **options))
        return self._like(xp.empty(tuple(shape), device=x.device, **options))


def _type_of(x: Any, dtype: Any) -> Any:
    """A dtype of the library of x; what NumPy has as uint16 is bf16."""
    name = np.dtype(dtype).name
    return getattr(_namespace(x), "bfloat16" if name == "uint16" else name)


def lent(x: Any, what: str, beside: Any = None) -> np.ndarray | OnDevice:
    """An array of another library as one that calls take, without a copy but for
    conjugates that PyTorch has yet to compute.

    beside : another operand of the call, whose stream is that of all.
    """
    if getattr(x, "requires_grad", False):
        raise TypeError(
            f"{what} requires gradients, which NumPy's level does not record: pass "
            f"{what}.detach(), or use danaus.torch"
        )
    given, place = x, place_of(x, what)
    for lazy in "resolve_conj", "resolve_neg":
        x = getattr(x, lazy, lambda x=x: x)()
    fixed = x is not given or _library(x) == "jax"  # never written to
    if place != "cpu":
        alone = not isinstance(beside, OnDevice)
        array = OnDevice(x, what, place, _stream(x) if alone else beside.stream)
        array.flags.writeable &= not fixed
        return array
    layout = layout_of(x, what)
    return host_array(layout._replace(read_only=layout.read_only or fixed))


def hosted(x: Any, what: str) -> np.ndarray:
    """NumPy's array of anything that it takes, and of what other libraries have on the
    host."""
    return np.asarray(lent(x, what) if is_foreign(x) else x)


def made(shape: Any, dtype: Any, like: Any) -> Any:
    """An array for a result of a call, where an operand of it lies."""
    on_device = isinstance(like, OnDevice)
    return like.empty(shape, dtype) if on_device else np.empty(shape, dtype)


def device_for(x: Any, device: Any = None) -> Any:
    """A device or its name; None: where an operand lies."""
    if device is not None:
        return device
    return x.place if isinstance(x, OnDevice) else "cpu"


def overlap(a: np.ndarray | OnDevice, b: np.ndarray | OnDevice) -> bool:
    """True where two contiguous arrays share memory."""
    on_device = isinstance(a, OnDevice), isinstance(b, OnDevice)
    if not any(on_device):
        return np.may_share_memory(a, b)
    if not all(on_device):
        return False
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes


def _returned(result: Any, first: Any, loans: list[tuple[Any, Any]]) -> Any:
    """A call's result as the caller has it: in the library of its first array."""
    for given, loan in loans:
        if result is loan:
            return given
    if isinstance(result, OnDevice):
        return result.array
    if isinstance(result, np.ndarray):
        return _delivered(result, first)
    if isinstance(result, tuple):
        parts = [_returned(part, first, loans) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result


def _delivered(result: np.ndarray, first: Any) -> Any:
    """NumPy's array in another library, without a copy where that can have it."""
    xp = _namespace(first)
    if xp is None:
        return result
    if result.dtype in (bfloat16, np.uint16):  # DLPack of NumPy has no bf16
        array = xp.from_dlpack(result.view(np.int16)).view(xp.bfloat16)
    else:
        array = xp.from_dlpack(result)
    there = getattr(first, "device", None)
    if there == getattr(array, "device", None) or not hasattr(array, "to_device"):
        return array
    return array.to_device(there)


def exchanged(call: Call) -> Call:
    """A function that also takes arrays of other libraries, and answers in the same."""
    names = list(inspect.signature(call).parameters)

    @functools.wraps(call)
    def wrapped(*values: Any, **options: Any) -> Any:
        foreign = [x for x in (*values, *options.values()) if is_foreign(x)]
        if not foreign:
            return call(*values, **options)
        places = [*names, *["an argument"] * len(values)]
        given = [*zip(places, values), *options.items()]
        loans: list[tuple[Any, Any]] = []
        for place, (what, x) in enumerate(given):
            if is_foreign(x):
                loans.append((x, lent(x, what, loans[0][1] if loans else None)))
                given[place] = what, loans[-1][1]
        count = len(values)
        lists = [x for _, x in given[:count]], dict(given[count:])
        return _returned(call(*lists[0], **lists[1]), foreign[0], loans)

    return wrapped  # type: ignore[return-value]
