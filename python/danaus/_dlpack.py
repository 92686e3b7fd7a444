"""What DLPack says of an array of another library: where it lies, and how.

The structures are those of dlpack.h, of version 1 and before. A capsule that nobody
takes over releases the array when it goes, so a layout keeps its capsule.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = np.uint16

# types of devices: memory that the processor reads, and that of CUDA
_HOST = {1, 3, 11}
_CUDA = {2, 13}

_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_BFLOAT = 4
_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = ctypes.py_object, ctypes.c_char_p
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = ctypes.py_object, ctypes.c_char_p


class Layout(NamedTuple):
    """Numbers in memory."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    dtype: np.dtype  # bf16 without ml_dtypes: uint16
    read_only: bool
    keep: Any


def place_of(x: Any, what: str) -> str:
    """Where an array lies, as `danaus.Device` names it: "cpu" or "cuda:0"."""
    try:
        kind, number = x.__dlpack_device__()
    except Exception as error:
        raise ValueError(f"{what} is in no memory that can be read: {error}") from None
    if kind in _HOST:
        return "cpu"
    if kind in _CUDA:
        return f"cuda:{number}"
    raise ValueError(
        f"{what} lies on number {number} of the devices of type {int(kind)} of DLPack: "
        "danaus reads arrays of the host and of CUDA"
    )


def layout_of(x: Any, what: str, **options: Any) -> Layout:
    """The layout of an array, to be read or written in place.

    options : the stream, of arrays of CUDA.
    """
    try:
        capsule = _capsule(x, options)
    except Exception as error:
        raise ValueError(f"{what} cannot be read in place: {error}") from None
    flags = 0
    if _is_valid(capsule, b"dltensor_versioned"):
        place = _pointer_of(capsule, b"dltensor_versioned")
        versioned = _Versioned.from_address(place)
        if versioned.major > 1:
            raise ValueError(f"{what} has DLPack {versioned.major}; danaus reads 1")
        flags, tensor = versioned.flags, versioned.tensor
    else:
        tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    dtype = _dtype(tensor, what)
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.strides:
        strides = tuple(n * dtype.itemsize for n in tensor.strides[: tensor.ndim])
    else:
        strides = contiguous_strides(shape, dtype.itemsize)
    address = (tensor.data or 0) + tensor.byte_offset
    return Layout(address, shape, strides, dtype, bool(flags & _READ_ONLY), capsule)


def _capsule(x: Any, options: dict[str, Any]) -> Any:
    try:
        return x.__dlpack__(max_version=(1, 1), **options)
    except TypeError:  # a library from before version 1
        return x.__dlpack__(**options)


def _dtype(tensor: _Tensor, what: str) -> np.dtype:
    code, bits = tensor.code, tensor.bits
    if (code, bits, tensor.lanes) == (_BFLOAT, 16, 1):
        return np.dtype(bfloat16)
    if tensor.lanes != 1 or code not in _KINDS or bits % 8:
        raise TypeError(
            f"{what} has numbers of type {code} and {bits} bits of DLPack, which "
            "danaus does not take"
        )
    return np.dtype(f"{_KINDS[code]}{bits // 8}")


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Those of an array without gaps, the last axis first in memory."""
    strides = [itemsize]
    for size in shape[:0:-1]:
        strides.append(strides[-1] * size)
    return tuple(strides[::-1][-len(shape) :]) if shape else ()


class _Memory:
    """What NumPy makes an array of, in place; it keeps the other library's array."""

    def __init__(self, layout: Layout):
        self.__array_interface__ = {
            "version": 3,
            "data": (layout.address, layout.read_only),
            "shape": layout.shape,
            "strides": layout.strides,
            "typestr": f"V{layout.dtype.itemsize}",
        }
        self._keep = layout.keep


def host_array(layout: Layout) -> np.ndarray:
    """NumPy's array of the same memory."""
    if 0 in layout.shape:
        return np.empty(layout.shape, layout.dtype)
    return np.asarray(_Memory(layout)).view(layout.dtype)
