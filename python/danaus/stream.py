"""Causal convolutions of signals in blocks."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from typing import Any

import numpy as np

from danaus._arrays import INT64, ElementType, numbers_of, operand, pointer, whole
from danaus._conv_arguments import filter_rows, filters_of, real_code, result_like
from danaus._exchange import exchanged
from danaus._library import check, ffi, lib, own
from danaus.device import Device, chosen


def _taps_of(k: Any) -> np.ndarray:
    taps = filter_rows(numbers_of(k, "k"))
    if taps.ndim != 2 or not taps.size:
        raise ValueError(
            f"k has the shape {np.shape(k)}, not [taps] or [filters][taps]"
        )
    return taps


class Stream:
    """A causal convolution that gives each block's y at once, with no latency.

    y[t] = sum over s of k[s] u[t - s], with the same bits however the signal is cut
    into blocks. Threads may share a stream; it processes their blocks one by one.

    Parameters
    ----------
    k : filters [filters][taps], or [taps] for one filter.
    channels : a multiple of filters, None: as many; channel h has the filter
        h // (channels // filters).
    dtype : type of u and y: f32 or f64; None: f64 if k is f64 or integers, else f32.
    device : a Device or its name; on a GPU blocks are copied there and back.
    """

    def __init__(
        self,
        k: Any,
        *,
        channels: int | None = None,
        dtype: ElementType | None = None,
        device: Device | str | None = None,
    ):
        taps = _taps_of(k)
        if dtype is None:
            wide = taps.dtype == np.float64 or taps.dtype.kind in "biu"
            dtype = "f64" if wide else "f32"
        number = taps.shape[0] if channels is None else channels
        self.channels = whole(number, "channels", 1, INT64)
        self._code = real_code(dtype)
        self._device = device
        self._lock = threading.Lock()
        with chosen(self._device).in_use() as handle:
            made = self._create(handle, taps)
            self._handle = own(made, lib.danaus_stream_destroy, handle)

    def _create(self, handle: Any, taps: np.ndarray) -> Any:
        """The library's stream of these filters."""
        desc = ffi.new("danaus_stream_desc *")
        desc.filters, desc.filter_length = taps.shape
        desc.channels, desc.dtype = self.channels, self._code
        k = filters_of(taps, self._code, taps.shape, "k")
        place = ffi.new("danaus_stream **")
        check(lib.danaus_stream_create(handle, desc, pointer(k), place))
        return place[0]

    def replace(self, k: Any, fade: int = 0) -> None:
        """Filters k take the place of the present ones from the next value on, without
        a click, while other threads may run the stream.

        The share of the signal that k gets grows for `fade` values. The other filters
        get the rest, which rings out. On CPUs.

        k : filters [filters][taps], or [taps]; taps may be as many as before or not.
        """
        taps = _taps_of(k)
        numbers = whole(fade, "fade", 0, INT64)
        with chosen(self._device).in_use() as handle:
            made = self._create(handle, taps)
            with self._lock:
                try:
                    check(lib.danaus_stream_replace(self._handle, made, numbers))
                except BaseException:
                    lib.danaus_stream_destroy(made)
                    raise

    @exchanged
    def run(self, u: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The next values of every channel: y like u[channels][count], count >= 0.

        A stream of one channel takes u[count] too.

        out : the array for y, like u, which it does not overlap.
        """
        u = operand(u, self._code, "u")
        if u.shape[:-1] != (self.channels,) and (u.ndim, self.channels) != (1, 1):
            raise ValueError(
                f"u has the shape {u.shape}, where [{self.channels}][count] is needed"
            )
        y = result_like(out, u, self._code)
        with self._lock, chosen(self._device).operands([u], [y]) as places:
            handle, (source,), (target,) = places
            check(
                lib.danaus_stream_run(self._handle, handle, u.shape[-1], source, target)
            )
        return y

    def reset(self) -> None:
        """Starts a new signal."""
        with self._lock:
            check(lib.danaus_stream_reset(self._handle))

    def __reduce__(self):
        raise TypeError("a stream cannot be pickled or copied: make it again")


def run_in_place(stream: Stream, count: int, u: int, y: int, queue: int = 0) -> None:
    """Stream.run for arrays that lie in the device's memory, at these addresses, which
    nothing checks: row-major, of the stream's type, apart from each other. On a GPU the
    work is in the CUDA stream `queue`, and nothing waits."""
    places = (ffi.cast("void *", place) for place in (u, y))
    with stream._lock, chosen(stream._device).in_use() as handle:
        if queue:
            queue = ffi.cast("void *", queue)
            check(lib.danaus_device_set_stream(handle, queue))
        try:
            check(lib.danaus_stream_run(stream._handle, handle, count, *places))
        finally:
            if queue:
                lib.danaus_device_set_stream(handle, ffi.NULL)
