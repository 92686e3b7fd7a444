"""Element types and arrays at the border to the C library.

bf16 is NumPy's dtype ``bfloat16`` of the package ml_dtypes where that is installed. Without
it arrays of bf16 have the dtype uint16, and their type has to be given as "bf16".
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, Union

import numpy as np
from numpy.typing import DTypeLike

from danaus._library import ffi, lib

try:
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:
    _bfloat16 = np.uint16

# An element type: "f32", "bf16", ... or anything that NumPy takes for one of these.
ElementType = Union[str, DTypeLike]

# element type, its short name, NumPy's name, NumPy's type
_TYPES = (
    (lib.DANAUS_F32, "f32", "float32", np.float32),
    (lib.DANAUS_F16, "f16", "float16", np.float16),
    (lib.DANAUS_BF16, "bf16", "bfloat16", _bfloat16),
    (lib.DANAUS_F64, "f64", "float64", np.float64),
    (lib.DANAUS_C64, "c64", "complex64", np.complex64),
    (lib.DANAUS_C128, "c128", "complex128", np.complex128),
)
_CODES = {name: row[0] for row in _TYPES for name in row[1:3]}
_NUMPY = {row[0]: np.dtype(row[3]) for row in _TYPES}
_SHORT = {row[0]: row[1] for row in _TYPES}

_SUMS = {lib.DANAUS_F16: lib.DANAUS_F32, lib.DANAUS_BF16: lib.DANAUS_F32}


def element_code(dtype: ElementType) -> int:
    """The library's number of an element type; TypeError where it has none."""
    name = dtype if isinstance(dtype, str) else None
    if name not in _CODES:
        try:
            name = np.dtype(dtype).name
        except Exception:
            name = repr(dtype)
    if name not in _CODES:
        names = ", ".join(row[2] for row in _TYPES)
        raise TypeError(f"{name} is no element type of danaus, which are {names}")
    return _CODES[name]


def numpy_dtype(code: int) -> np.dtype:
    """NumPy's dtype of arrays of this type: uint16 for bf16 without ml_dtypes."""
    return _NUMPY[code]


def short_name(code: int) -> str:
    """"f32", "bf16", ..."""
    return _SHORT[code]


def sums_code(code: int) -> int:
    """The type that sums have: f32 for f32, f16 and bf16, else the type itself."""
    return _SUMS.get(code, code)


def is_complex(code: int) -> bool:
    return code in (lib.DANAUS_C64, lib.DANAUS_C128)


def choose(name: str | None, table: dict, what: str) -> int:
    """The value of a name in a table of options."""
    try:
        return table[name]
    except (KeyError, TypeError):
        names = ", ".join(repr(key) for key in table)
        raise ValueError(f"{what} is one of {names}, not {name!r}") from None


def checked(array: Any, code: int, what: str, *, writable: bool = False) -> np.ndarray:
    """The array itself, if the library can work on it where it lies.

    Raises TypeError for another type, ValueError for an array that is not C-contiguous,
    aligned and in the machine's byte order: nothing is copied.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{what} is a NumPy array, not {type(array).__name__}")
    dtype, wanted = array.dtype, _NUMPY[code]
    if dtype != wanted and not (code == lib.DANAUS_BF16 and dtype == np.uint16):
        raise TypeError(
            f"{what} has dtype {dtype}, where {wanted} is needed: use {what}.astype()"
        )
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        raise ValueError(
            f"{what} is not contiguous: pass numpy.ascontiguousarray({what})"
        )
    if writable and not flags.writeable:
        raise ValueError(f"{what} cannot be written to")
    return array


def pointer(array: np.ndarray | None) -> Any:
    """Where an array's numbers begin; the caller keeps the array."""
    if array is None:
        return ffi.NULL
    return ffi.cast("void *", array.__array_interface__["data"][0])


def whole(value: Any, what: str, least: int, most: int) -> int:
    """An integer of that range; TypeError or ValueError with a sentence otherwise."""
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        kind = type(value).__name__
        raise TypeError(f"{what} is a whole number, not {kind}") from None
    if not least <= number <= most:
        raise ValueError(f"{what} is from {least} to {most}, not {number}")
    return number


INT = 2**31 - 1  # the largest int
INT64 = 2**63 - 1  # the largest int64_t
