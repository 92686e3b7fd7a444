"""Files of arrays (.npy, safetensors) by the library, and files that appear whole."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from danaus._arrays import element_code, numpy_dtype, pointer, short_name
from danaus._library import check, ffi, lib, own, path_bytes, text


@contextmanager
def written_whole(path: str | os.PathLike) -> Iterator[Path]:
    """Gives the name of a file to make beside ``path``, renamed when all went well.

    After an exception the new file is gone and ``path`` is as it was.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        yield part
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


class Tensors(Mapping):
    """The arrays of a .npy or safetensors file by name: read-only views of its map.

    Tensors of a type that danaus lacks are not there. bf16 lies in arrays of uint16
    where ml_dtypes is not installed; `element_type` tells.
    """

    def __init__(self, path: str | os.PathLike):
        place = ffi.new("danaus_file **")
        check(lib.danaus_file_open(path_bytes(path), place))
        self._handle = own(place[0], lib.danaus_file_close)
        self._tensors = {}
        for index in range(lib.danaus_file_count(self._handle)):
            tensor = ffi.new("danaus_tensor *")
            check(lib.danaus_file_tensor(self._handle, index, tensor))
            self._tensors[text(tensor.name)] = tensor

    def __getitem__(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        shape, dtype = tuple(tensor.shape[0 : tensor.ndim]), numpy_dtype(tensor.dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        # The view keeps the buffer, that the pointer, and that the open file.
        start = own(ffi.cast("char *", tensor.data), lambda data: None, self._handle)
        view = np.frombuffer(ffi.buffer(start, size), np.uint8)
        view.flags.writeable = False
        return view.view(dtype).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def element_type(self, name: str) -> str:
        """ "f32", "bf16", ..."""
        return short_name(self._tensors[name].dtype)

    def metadata(self, key: str) -> str | None:
        """The value of an entry of safetensors' metadata, or None."""
        value = lib.danaus_file_metadata(self._handle, key.encode())
        return text(value) if value else None


def write_tensors(
    path: str | os.PathLike,
    arrays: Mapping[str, tuple[np.ndarray, str]],
    metadata: Mapping[str, str],
) -> None:
    """Writes arrays and their element types as safetensors, in one step."""
    keep, tensors = [], ffi.new("danaus_tensor[]", max(len(arrays), 1))
    for tensor, (name, (array, dtype)) in zip(tensors, arrays.items()):
        array = np.ascontiguousarray(array)
        keep += [array, ffi.new("char[]", name.encode())]
        tensor.name, tensor.data = keep[-1], pointer(array)
        tensor.dtype, tensor.ndim = element_code(dtype), array.ndim
        tensor.shape[0 : array.ndim] = array.shape
    words = [ffi.new("char[]", w.encode()) for pair in metadata.items() for w in pair]
    table = ffi.new("char *[]", words)
    arguments = path_bytes(path), tensors, len(arrays), table, len(metadata)
    check(lib.danaus_file_write_safetensors(*arguments))
