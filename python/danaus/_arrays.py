"""Element types and arrays at the border to the C library.

bf16 is NumPy's dtype ``bfloat16`` of the package ml_dtypes where that is installed.
Without it arrays of bf16 have the dtype uint16, and their type has to be given as
"bf16".
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Union

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from danaus._dlpack import bfloat16
from danaus._exchange import (
    OnDevice,
    exchanged,
    hosted,
    is_foreign,
    lent,
    overlap,
)
from danaus._library import check, ffi, lib, text

# An element type: "f32", "bf16", ... or anything that NumPy takes for one of these.
ElementType = Union[str, DTypeLike]

# element type, its short name, NumPy's name, NumPy's type
_TYPES = (
    (lib.DANAUS_F32, "f32", "float32", np.float32),
    (lib.DANAUS_F16, "f16", "float16", np.float16),
    (lib.DANAUS_BF16, "bf16", "bfloat16", bfloat16),
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
        raise TypeError(f"{name} is not an element type of danaus: these are {names}")
    return _CODES[name]


def numpy_dtype(code: int) -> np.dtype:
    """NumPy's dtype of arrays of this type: uint16 for bf16 without ml_dtypes."""
    return _NUMPY[code]


def short_name(code: int) -> str:
    """Such as "f32" and "bf16"."""
    return _SHORT[code]


def sums_code(code: int) -> int:
    """The type that sums have: f32 for f32, f16 and bf16, else the type itself."""
    return _SUMS.get(code, code)


def is_complex(code: int) -> bool:
    return code in (lib.DANAUS_C64, lib.DANAUS_C128)


def product_code(code: int, operand: np.dtype | None = None) -> int:
    """The type of products of a chain of type `code` with an operand.

    It is their common type; without ml_dtypes, in which NumPy has no bf16, bf16 counts
    as f32.
    """
    if code == lib.DANAUS_BF16 and bfloat16 is np.uint16:
        if operand == np.uint16:
            raise TypeError("uint16 may be bf16 here: use danaus.convert(x, 'f32')")
        code = lib.DANAUS_F32
    dtype = numpy_dtype(code)
    return element_code(dtype if operand is None else np.result_type(dtype, operand))


def by_parts(
    product: Callable[[np.ndarray, bool], np.ndarray],
    x: np.ndarray,
    code: int,
    adjoint: bool,
) -> np.ndarray:
    """A real matrix times complex columns, in the type `code`.

    Real and imaginary parts are multiplied as columns of their own.
    """
    if isinstance(x, OnDevice):
        raise NotImplementedError(
            f"a real matrix times complex numbers on {x.place}: multiply the real and "
            "the imaginary part, or convert the matrix by astype('c64')"
        )
    wide = np.ascontiguousarray(x, numpy_dtype(code))
    parts = product(wide.view(wide.real.dtype), adjoint)
    return np.ascontiguousarray(parts).view(wide.dtype)


@exchanged
def convert(
    array: ArrayLike, dtype: ElementType, source: ElementType | None = None
) -> np.ndarray:
    """A copy of the array with elements of another type, each number rounded once.

    source : the array's type; needed for bf16 that lies in an array of uint16.
    RuntimeWarning where numbers become infinite, or so small that they lose more than
    rounding.
    """
    array = numbers_of(array, "the array")
    code = element_code(array.dtype if source is None else source)
    return converted(array, element_code(dtype), code, refuse=False)


def converted(
    array: np.ndarray,
    code: int,
    source: int | None = None,
    *,
    what: str = "the array",
    refuse: bool = True,
) -> np.ndarray:
    """The array if it is contiguous and has this type, else a copy that is and has.

    source : the array's type; by default its dtype says it, and uint16 is bf16 if
        `code` is.
    refuse : ValueError for numbers that the type cannot hold (danaus_convert_check);
        False: RuntimeWarning.
    TypeError for complex numbers if the type is real, and for an array without numbers;
    ValueError for integers that f64 would round.
    """
    wanted = numpy_dtype(code)
    array = numbers_of(array, what)
    if source is None and code == lib.DANAUS_BF16 and array.dtype == np.uint16:
        source = code
    if source is None and array.dtype.kind in "biu":
        array = _whole_numbers(array, what)
    source = element_code(array.dtype) if source is None else source
    if is_complex(source) and not is_complex(code):
        raise TypeError("complex numbers do not become real ones: take their .real")
    array = np.require(array, array.dtype.newbyteorder("="), "CA")
    checked(array, source, what)
    if source == code:
        return array.view(wanted)
    result, name = np.empty(array.shape, wanted), what.encode()
    status = lib.danaus_convert_check(source, pointer(array), code, array.size, name)
    if refuse:
        check(status)
    elif status:
        sentence = text(lib.danaus_error_detail())
        warnings.warn(sentence, RuntimeWarning, stacklevel=3)
    check(lib.danaus_convert(source, pointer(array), code, pointer(result), array.size))
    return result


def _whole_numbers(array: np.ndarray, what: str) -> np.ndarray:
    """Integers as f64; ValueError for one that f64 would round."""
    wide = array.astype(np.float64)
    if array.dtype.itemsize == 8 and (np.abs(wide) >= 2.0**53).any():
        for number, rounded in zip(array.flat, wide.flat):
            if int(number) != int(rounded):
                raise ValueError(
                    f"{what} has the integer {number}, which f64 rounds to "
                    f"{int(rounded)}: pass numbers of a floating type"
                )
    return wide


def need_one_of(names: Iterable[str | None], value: object, what: str) -> None:
    """ValueError unless the value of an argument is one of these."""
    known = list(names)
    if value not in known:
        first = ", ".join(map(repr, known[:-1]))
        raise ValueError(f"{what} has to be {first} or {known[-1]!r}, not {value!r}")


def choose(name: str | None, table: dict, what: str) -> int:
    """The value of a name in a table of options."""
    need_one_of(table, name, what)
    return table[name]


def checked(
    array: Any,
    code: int,
    what: str,
    *,
    shape: tuple[int, ...] | None = None,
    writable: bool = False,
) -> Any:
    """The array itself, if the library can use it in place.

    Raises TypeError for another type, ValueError for another shape, and for an array
    that is not C-contiguous and aligned: nothing is copied.
    """
    if not isinstance(array, (np.ndarray, OnDevice)):
        kind = type(array).__name__
        raise TypeError(f"{what} has to be a NumPy array, and this is of type {kind}")
    dtype, wanted = array.dtype, _NUMPY[code]
    if dtype != wanted and not (code == lib.DANAUS_BF16 and dtype == np.uint16):
        cure = f"pass {what}.astype({wanted.name!r})"
        if dtype.kind == "c" and wanted.kind != "c":
            cure = f"pass {what}.real"
        elif dtype.kind not in "biufcV":
            cure = "it has to hold numbers"
        raise TypeError(
            f"{what} has dtype {dtype}, where {wanted.name} is needed: {cure}"
        )
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        raise ValueError(
            f"{what} is not contiguous: pass numpy.ascontiguousarray({what})"
        )
    if shape is not None and array.shape != shape:
        raise ValueError(f"{what} has shape {array.shape} where {shape} is needed")
    if writable and not flags.writeable:
        raise ValueError(f"{what} cannot be written to")
    return array


def numbers_of(x: Any, what: str) -> np.ndarray:
    """The numbers of an array of the host; TypeError for what has none."""
    array = hosted(x, what)
    if array.dtype.kind not in "OUSMm":
        return array
    kind = f"a {type(x).__name__}"
    if array.ndim:
        kind = f"{'an array' if array is x else kind} of {array.dtype}"
    cure = ""
    for method in "toarray", "to_dense":  # of sparse matrices, and of chains
        if hasattr(x, method):
            cure = f": pass its .{method}()"
    raise TypeError(
        f"{what} has to be an array of numbers, and this is {kind}: {array.dtype.name} "
        f"is not an element type of danaus{cure}"
    )


def array_of(x: Any, what: str) -> Any:
    """An array of numbers, as NumPy has it or on a GPU."""
    if is_foreign(x):
        x = lent(x, what)
    return x if isinstance(x, OnDevice) else numbers_of(x, what)


def operand(
    x: Any, code: int, what: str, *, shape: tuple[int, ...] | None = None
) -> Any:
    """An input as the library takes it: the array itself or, where needed, a copy.

    Strided arrays, arrays in the other byte order, integers and lists are copied.
    TypeError for numbers of another floating type, which a conversion would change.
    """
    array = array_of(x, what)
    dtype = array.dtype
    if isinstance(array, OnDevice):
        array = array.astype(_NUMPY[code]) if dtype.kind in "biu" else array
        return checked(array.contiguous(), code, what, shape=shape)
    if dtype != _NUMPY[code] and not (code == lib.DANAUS_BF16 and dtype == np.uint16):
        if bfloat16 is np.uint16 and dtype == np.uint16:
            raise TypeError(f"{what} may be bf16: use danaus.convert({what}, ...)")
        untyped = not hasattr(x, "dtype") and dtype.kind == "f"
        if dtype.kind in "biu" or untyped:
            array = converted(array, code, what=what)
        else:
            array = array.astype(dtype.newbyteorder("="), copy=False)
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = np.require(array, requirements="CA")
    return checked(array, code, what, shape=shape)


def disjoint(out: Any, name: str, other: Any, other_name: str) -> None:
    """Raises ValueError where two contiguous arrays share memory."""
    if overlap(out, other):
        raise ValueError(f"{name} overlaps {other_name}")


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
        raise TypeError(f"{what} has to be a whole number, not {kind}") from None
    if not least <= number <= most:
        raise ValueError(f"{what} has to be from {least} to {most}, not {number}")
    return number


def integers(x: Any, what: str) -> np.ndarray:
    """An array of int64; TypeError for numbers with fractions."""
    array = numbers_of(x, what)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{what} have to be whole numbers, not {array.dtype}")
    return np.ascontiguousarray(array, np.int64)


INT = 2**31 - 1  # the largest int
INT64 = 2**63 - 1  # the largest int64_t
