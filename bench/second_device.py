#!/usr/bin/env python3
"""What a second device object on a GPU costs, as CSV.

    python3 bench/second_device.py LIBDANAUS.so [DEVICE]

A device is opened; then, ROUNDS times, another one on the same GPU: seconds by the host's
clock, and bytes of the GPU's memory that are gone meanwhile, by the driver's count. The
record has the first round, which nothing has warmed up, and the median of all.
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes
import statistics
import sys
import time

ROUNDS = 21


class Library:
    """The calls of libdanaus that are needed; a failure ends the program."""

    def __init__(self, path):
        self.calls = ctypes.CDLL(path)
        self.calls.danaus_error_detail.restype = ctypes.c_char_p

    def open(self, name):
        device = ctypes.c_void_p()
        if self.calls.danaus_device_open(name.encode(), ctypes.byref(device)):
            sys.exit(self.calls.danaus_error_detail().decode())
        return device

    def close(self, device):
        self.calls.danaus_device_close(device)


def free_memory(driver, ordinal):
    """Bytes, in the GPU's primary context, which a device of ours keeps alive."""
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    failed = (
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal)
        or driver.cuCtxPushCurrent_v2(context)
        or driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        or driver.cuCtxPopCurrent_v2(ctypes.byref(context))
        or driver.cuDevicePrimaryCtxRelease_v2(ordinal)
    )
    if failed:
        sys.exit(f"the driver says {failed}")
    return free.value


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    library = Library(sys.argv[1])
    name = sys.argv[2] if len(sys.argv) == 3 else "cuda:0"
    ordinal = int(name.partition(":")[2] or 0)
    driver = ctypes.CDLL("libcuda.so.1")
    first = library.open(name)
    seconds, taken = [], []
    for _ in range(ROUNDS):
        before = free_memory(driver, ordinal)
        start = time.perf_counter()
        second = library.open(name)
        seconds.append(time.perf_counter() - start)
        taken.append(before - free_memory(driver, ordinal))
        library.close(second)
    library.close(first)
    print("device,first_ns,median_ns,first_bytes,most_bytes")
    print(
        f"{name},{seconds[0] * 1e9:.0f},{statistics.median(seconds) * 1e9:.0f},"
        f"{taken[0]},{max(taken)}"
    )


if __name__ == "__main__":
    main()
