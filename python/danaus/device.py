"""Devices: where products run, a queue for work, scratch memory and a tuning table."""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from danaus._arrays import INT, pointer, whole
from danaus._exchange import OnDevice
from danaus._library import (
    Progress,
    check,
    ffi,
    lib,
    listening,
    own,
    path_bytes,
    text,
)


class DeviceInfo(NamedTuple):
    """Properties of a device."""

    name: str  # what Device() takes
    description: str  # the maker's name for it
    instructions: str  # instruction set in use
    memory: int  # bytes; 0: unknown
    cache: int  # bytes of the last cache; 0: unknown
    threads: int  # threads that one product may use; 0: a GPU


class Kernel(NamedTuple):
    """A row of a device's table of kernels."""

    name: str
    operation: str  # "product", "weight_gradient", "pack" or "convolution"


def _info(struct: Any) -> DeviceInfo:
    names = (text(struct.name), text(struct.description), text(struct.instructions))
    return DeviceInfo(*names, struct.memory, struct.cache, struct.threads)


class Device:
    """A place to compute; closed when no object made on it is left.

    Threads may share one, and then take turns; a device for each thread (see
    `default_device`) lets them run at the same time.

    Parameters
    ----------
    name : "cpu", "cpu:avx2" (at most that instruction set), "cuda:0", "opencl:0", ...
    threads : processors that one product may use; 0: all that the process may use.
    """

    def __init__(self, name: str = "cpu", *, threads: int | None = None):
        if not isinstance(name, str):
            raise TypeError(f"a device's name is a string, not {type(name).__name__}")
        if "\0" in name:
            raise ValueError("a device's name cannot contain a null character")
        place = ffi.new("danaus_device **")
        check(lib.danaus_device_open(name.encode(errors="replace"), place))
        self._handle = own(place[0], lib.danaus_device_close)
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._busy = False
        info = self.describe()
        self._name, self._on_host = info.name, info.threads > 0
        if threads is not None:
            self.set_threads(threads)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[Any]:
        """The library's device, for one call at a time."""
        if self._pid != os.getpid():  # forked: no other thread is there to hold it
            self._pid, self._lock, self._busy = os.getpid(), threading.RLock(), False
        with self._lock:
            if self._busy:
                raise RuntimeError("the device is busy with the call that reports here")
            self._busy = True
            try:
                yield self._handle
            finally:
                self._busy = False

    @contextlib.contextmanager
    def operands(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> Iterator[tuple[Any, list[Any], list[Any]]]:
        """The library's device and where it finds these arrays: NULL for None.

        A CPU uses them in place, and a GPU those that it has in its memory, in their
        stream. Of the others it copies inputs before, and outputs back to the arrays
        after.
        """
        there = [a for a in (*inputs, *outputs) if isinstance(a, OnDevice)]
        for array in there:
            if array.place != self._name:
                raise ValueError(
                    f"{array.what} lies on {array.place}, and this runs on "
                    f"{self._name}: use device={array.place!r}, or move {array.what}"
                )
        with self.in_use() as handle:
            if self._on_host:
                places = [[pointer(array) for array in inputs]]
                places.append([pointer(array) for array in outputs])
                yield handle, *places
                return
            with contextlib.ExitStack() as stack:
                stack.enter_context(_in_stream_of(handle, there))
                places = [_memory(stack, handle, a) for a in (*inputs, *outputs)]
                for array, place in zip(inputs, places):
                    if isinstance(array, np.ndarray):
                        source = pointer(array)
                        check(lib.danaus_upload(handle, place, source, array.nbytes))
                split = len(inputs)
                yield handle, places[:split], places[split:]
                for array, place in zip(outputs, places[split:]):
                    if isinstance(array, np.ndarray):
                        target = pointer(array)
                        check(lib.danaus_download(handle, target, place, array.nbytes))

    def describe(self) -> DeviceInfo:
        """Name, maker's name, instruction set, memory, cache and threads."""
        info = ffi.new("danaus_device_info *")
        with self.in_use() as handle:
            check(lib.danaus_device_describe(handle, info))
        return _info(info)

    def sync(self) -> None:
        """Waits until the device has finished its work; raises its errors."""
        with self.in_use() as handle:
            check(lib.danaus_device_sync(handle))

    def set_threads(self, threads: int) -> None:
        """CPU only: processors that one product may use; 0: all of this process.

        Results do not depend on it.
        """
        number = whole(threads, "threads", 0, INT)
        with self.in_use() as handle:
            check(lib.danaus_device_set_threads(handle, number))

    def kernels(self) -> list[Kernel]:
        """The rows of the device's table of kernels."""
        rows = []
        with self.in_use() as handle:
            while name := lib.danaus_device_kernel(handle, len(rows)):
                operation = lib.danaus_device_operation(handle, len(rows))
                rows.append(Kernel(text(name), text(operation)))
        return rows

    def load_tuning(self, path: str | os.PathLike) -> None:
        """Reads a tuning table; rows for other devices are skipped."""
        with self.in_use() as handle:
            check(lib.danaus_device_load_tuning(handle, path_bytes(path)))

    def save_tuning(self, path: str | os.PathLike) -> None:
        """Writes the tuning table of this device's measurements."""
        with self.in_use() as handle:
            check(lib.danaus_device_save_tuning(handle, path_bytes(path)))

    def calibrate(self, progress: Progress = None) -> None:
        """CPU only: measures the cost model of convolutions; takes seconds.

        progress : called with the share done, or True for a bar of tqdm. An exception
            that it raises cancels the call and leaves the table as it was.
        """
        with listening(progress, "calibrate") as (function, user):
            with self.in_use() as handle:
                check(lib.danaus_device_calibrate(handle, function, user))

    def energy(self) -> float:
        """GPU only: joules that the device has used since its driver was loaded."""
        joules = ffi.new("double *")
        with self.in_use() as handle:
            check(lib.danaus_device_energy(handle, joules))
        return joules[0]

    def __repr__(self) -> str:
        info = self.describe()
        return f"<danaus.Device {info.name}: {info.description}, {info.instructions}>"

    def __reduce__(self):
        raise TypeError("a device cannot be pickled or copied: open another one")


@contextlib.contextmanager
def _in_stream_of(handle: Any, there: list[OnDevice]) -> Iterator[None]:
    """Runs in the stream of these arrays; waits in the end where nothing tells it."""
    stream = there[0].stream if there else None
    if stream:
        check(lib.danaus_device_set_stream(handle, ffi.cast("void *", stream)))
    try:
        yield
        if stream is None:
            check(lib.danaus_device_sync(handle))
    finally:
        if stream:
            lib.danaus_device_set_stream(handle, ffi.NULL)


def _memory(stack: contextlib.ExitStack, handle: Any, array: Any) -> Any:
    """Memory of the device for an array: its own there or, until the stack ends, new
    one; NULL for None."""
    if array is None:
        return ffi.NULL
    if isinstance(array, OnDevice):
        return ffi.cast("void *", array.address)
    place = ffi.new("void **")
    check(lib.danaus_alloc(handle, max(array.nbytes, 1), place))
    stack.callback(lib.danaus_free, handle, place[0])
    return place[0]


def list_devices() -> list[DeviceInfo]:
    """This machine's processors, as one device, and its GPUs."""
    count, infos = ffi.new("int *"), []
    check(lib.danaus_device_count(count))
    for index in range(count[0]):
        info = ffi.new("danaus_device_info *")
        check(lib.danaus_device_list(index, info))
        infos.append(_info(info))
    return infos


_default = threading.local()


def default_device(name: str = "cpu") -> Device:
    """This thread's own device of that name; every thread has another one.

    It is opened at the first call and closed when the thread ends.
    """
    device = _default.__dict__.get(str(name))
    if device is None or device._pid != os.getpid():
        device = _default.__dict__[str(name)] = Device(name)
    return device


def chosen(device: Device | str | None) -> Device:
    """A device itself, or this thread's own one of that name; None: "cpu"."""
    if isinstance(device, Device):
        return device
    return default_device("cpu" if device is None else device)
