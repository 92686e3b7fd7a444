"""Files of arrays (.npy, safetensors) by the library, and other files."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterator, Mapping

import numpy as np

from danaus._arrays import element_code, numpy_dtype, pointer, short_name
from danaus._library import check, ffi, lib, own, path_bytes, text

WRITER_WAIT = 1.0  # seconds that a pipe may have no writer


def write_whole(path: str | os.PathLike, content: bytes) -> None:
    """Writes a file, which appears complete or not at all, whatever signal comes.

    Pipes, devices and files that are open already, such as /dev/stdout, are written
    to directly.
    """
    data = ffi.from_buffer(content)
    check(lib.danaus_file_write(path_bytes(path), data, len(content)))


def regular(path: str | os.PathLike) -> str | os.PathLike:
    """The path, unless it leads to something that whoever opens it may wait for."""
    mode = os.stat(path).st_mode
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    if not stat.S_ISREG(mode):
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise OSError(f"cannot read {path}: it is {kind}, not a regular file")
    return path


def read_text(path: str | os.PathLike) -> str:
    """The UTF-8 text of a file, or of a pipe that has a writer, with its ends of lines
    and without a byte order mark.

    It waits at most a second for a pipe to have one.
    """
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        with open(regular(path), newline="", encoding="utf-8-sig") as file:
            return file.read()
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb", buffering=0) as pipe:
        ready = select.select([pipe], [], [], WRITER_WAIT)[0]
        first = b"" if ready else pipe.read(1)  # None: there is a writer
        if not ready and first == b"":
            raise OSError(f"cannot read {path}: it is a pipe that nothing writes to")
        os.set_blocking(handle, True)
        return ((first or b"") + pipe.read()).decode("utf-8-sig")


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
        array = np.require(array, requirements="C")  # of any number of dimensions
        keep += [array, ffi.new("char[]", name.encode())]
        tensor.name, tensor.data = keep[-1], pointer(array)
        tensor.dtype, tensor.ndim = element_code(dtype), array.ndim
        tensor.shape[0 : array.ndim] = array.shape
    words = [ffi.new("char[]", w.encode()) for pair in metadata.items() for w in pair]
    table = ffi.new("char *[]", words)
    arguments = path_bytes(path), tensors, len(arrays), table, len(metadata)
    check(lib.danaus_file_write_safetensors(*arguments))
