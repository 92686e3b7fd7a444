"""What arguments of convolutions have to be."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from danaus._arrays import (
    INT,
    INT64,
    ElementType,
    array_of,
    checked,
    converted,
    disjoint,
    element_code,
    is_complex,
    numpy_dtype,
    operand,
    short_name,
    sums_code,
    whole,
)
from danaus._exchange import OnDevice, hosted, made
from danaus._library import ffi, lib

KINDS = {
    "causal": lib.DANAUS_CAUSAL,
    "circular": lib.DANAUS_CIRCULAR,
    "bidirectional": lib.DANAUS_BIDIRECTIONAL,
    "centred": lib.DANAUS_CENTRED,
}
ACCURACIES = {
    "by_type": lib.DANAUS_CONV_BY_TYPE,
    "accurate": lib.DANAUS_CONV_ACCURATE,
    "fast": lib.DANAUS_CONV_FAST,
}


def real_code(dtype: ElementType) -> int:
    """The library's number of a real element type; TypeError for others."""
    code = element_code(dtype)
    if is_complex(code):
        raise TypeError(f"this takes real numbers, not {short_name(code)}")
    return code


def signal_of(
    u: Any, dtype: ElementType | None, code_of: Callable[[ElementType], int] = real_code
) -> tuple[Any, int]:
    """A signal as the library takes it, and its type: as named, else the array's, f64
    for integers."""
    array = array_of(u, "u")
    if dtype is None:
        dtype = "f64" if array.dtype.kind in "biu" else array.dtype
    code = code_of(dtype)
    return operand(u, code, "u"), code


def filters_of(k: Any, code: int, shape: tuple[int, ...], what: str) -> Any:
    """Filters in the type of sums, of this shape."""
    array, sums = array_of(k, what), sums_code(code)
    if isinstance(array, OnDevice):
        if array.dtype.kind != "c" or is_complex(sums):
            array = array.astype(numpy_dtype(sums))
        array = array.contiguous()
    else:
        halves = code == lib.DANAUS_BF16 and array.dtype == np.uint16
        array = converted(array, sums, code if halves else None, what=what)
    if _is_padded(array.shape, shape):
        array = array.reshape(shape)
    return checked(array, sums, what, shape=shape)


def _is_padded(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """True if `shape` is `wanted` with more axes, of size 1."""
    left = list(wanted)
    for size in shape:
        if left and size == left[0]:
            left.pop(0)
        elif size != 1:
            return False
    return not left


def one_axis(value: Any, what: str, least: int) -> tuple[int, int]:
    """0 for the axis that rows lack, and the number of their own."""
    return 0, whole(value, what, least, INT if what == "centre" else INT64)


def two_axes(value: Any, what: str, least: int) -> tuple[int, int]:
    """The numbers of both axes of planes; 0 stands for two."""
    if isinstance(value, int) and value == least == 0:
        return 0, 0
    if not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{what} of planes is (down, across), not {value!r}")
    down, across = value
    return whole(down, what, least, INT), whole(across, what, least, INT)


def shapes_of(desc: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of a row or plane, and of its filter."""
    taps = desc.filter_length or desc.length
    if not desc.height:
        return (desc.length,), (taps,)
    return (desc.height, desc.length), (desc.filter_height or desc.height, taps)


def sizes(shape: Sequence[int]) -> str:
    """A shape for people."""
    return " x ".join(map(str, shape))


def filter_rows(k: Any, axes: int = 1, what: str = "k") -> Any:
    """Filters as [filters][taps], of [taps] or with more axes, of size 1. Planes have
    two axes of taps."""
    array = array_of(k, what)
    shape = list(array.shape)
    if len(shape) in (0, axes):
        shape = [1] * (1 + axes - len(shape)) + shape
    while len(shape) > 1 + axes and 1 in shape[:-axes]:
        shape.remove(1)
    return array.reshape(tuple(shape))


def like(array: Any, u: Any, code: int, what: str) -> Any:
    """An array of the signal's type and shape, or None."""
    return None if array is None else operand(array, code, what, shape=u.shape)


def result_like(
    out: Any,
    u: Any,
    code: int,
    *inputs: Any,
    shape: tuple[int, ...] | None = None,
) -> Any:
    """A new array of u's type and, unless another is given, its shape; or `out` if that
    can be written and overlaps no input."""
    shape = u.shape if shape is None else shape
    if out is None:
        return made(shape, u.dtype, u)
    checked(out, code, "out", shape=shape, writable=True)
    for array in (u, *inputs):
        if array is not None:
            disjoint(out, "out", array, "an input")
    return out


def four(values: Sequence[int] | None, what: str) -> list[int]:
    """Up to four numbers as four: zeros behind them."""
    if values is None:
        return [0] * 4
    numbers = [whole(value, f"an entry of {what}", 0, INT) for value in values]
    if len(numbers) > 4:
        raise ValueError(f"{what} has {len(numbers)} entries, at most 4 are possible")
    return numbers + [0] * (4 - len(numbers))


def offsets_of(offsets: Any) -> tuple[int, Any]:
    """How many packed sequences there are, and the library's numbers of where each
    begins and the last one ends."""
    array = hosted(offsets, "offsets")
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise ValueError(
            f"offsets have the shape {array.shape} and the type {array.dtype}: "
            "they are whole numbers [sequences + 1]"
        )
    array = np.ascontiguousarray(array, np.int64)
    return array.size - 1, ffi.from_buffer("int64_t[]", array)


def longest_of(offsets: Any) -> int:
    """The most numbers of a packed sequence, at least 1."""
    count, starts = offsets_of(offsets)
    return max([1, *(starts[i + 1] - starts[i] for i in range(count))])


def call_for(name: str, offsets: Any) -> Any:
    """A function of the library, or that for packed sequences."""
    return getattr(lib, name if offsets is None else name + "_packed")
