#!/usr/bin/env python3
"""What packing weights again costs, from arrays in the device's memory, as CSV.

    python3 bench/update.py LIBDANAUS.so [DEVICE] [--updates N] [--rounds N]

Chains of f32 arrays for plans in f16 and f32, for products alone and for training. On a GPU
`graph_us` is an update's share of a graph that has N of them, between events, and
`call_us` its share of as many calls that are enqueued, by the host's clock from the first
to when all are done. `copy_gbs` is what a copy of COPY bytes reads and writes a second, in
the same run. `bytes` are those of the arrays and of what is packed of them, and `limit_us`
is 15 us and 3 times those bytes over the copy rate. On a CPU there is `call_us` alone.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import functools
import pathlib
import statistics
import sys
import time
from ctypes import byref, c_float, c_int, c_size_t, c_void_p

sys.path.insert(0, str(pathlib.Path(__file__).parent.resolve() / "baselines"))
import capi  # noqa: E402

COPY = 256 << 20
F32, F16 = 1, 2
SIZE = {F32: 4, F16: 2}
CHAINS = {
    "monarch-4096": [(1, 64, 64, 64), (64, 64, 64, 1)],
    "block-4096": [(64, 64, 64, 1)],
    "dense-1024": [(1, 1024, 1024, 1)],
}


class Driver:
    """CUDA's driver, in the primary context of a GPU; a failure ends the program."""

    def __init__(self, ordinal, rounds):
        self.rounds = rounds
        self.calls = ctypes.CDLL("libcuda.so.1")
        context, self.stream = c_void_p(), c_void_p()
        self("cuDevicePrimaryCtxRetain", byref(context), c_int(ordinal))
        self("cuCtxPushCurrent_v2", context)
        self("cuStreamCreate", byref(self.stream), 1)
        self.events = [c_void_p(), c_void_p()]
        for event in self.events:
            self("cuEventCreate", byref(event), 0)

    def __call__(self, name, *arguments):
        failed = getattr(self.calls, name)(*arguments)
        if failed:
            sys.exit(f"{name}: the driver says {failed}")

    def seconds(self, run):
        """Median of what run() takes between events on the stream."""
        times = []
        for _ in range(self.rounds):
            ms = c_float()
            self("cuEventRecord", self.events[0], self.stream)
            run()
            self("cuEventRecord", self.events[1], self.stream)
            self("cuStreamSynchronize", self.stream)
            self("cuEventElapsedTime", byref(ms), *self.events)
            times.append(ms.value / 1e3)
        return statistics.median(times)

    def graph(self, run):
        """What run() enqueues, as a function that launches it."""
        graph, made = c_void_p(), c_void_p()
        self("cuStreamBeginCapture_v2", self.stream, 0)
        run()
        self("cuStreamEndCapture", self.stream, byref(graph))
        self("cuGraphInstantiateWithFlags", byref(made), graph, ctypes.c_ulonglong(0))
        return lambda: self("cuGraphLaunch", made, self.stream)

    def copy_rate(self, memory):
        """Bytes a second, read and written, of copies within twice COPY bytes."""
        copy = lambda: self(  # noqa: E731
            "cuMemcpyAsync", ctypes.c_uint64(memory),
            ctypes.c_uint64(memory + COPY), c_size_t(COPY), self.stream)
        return 2 * COPY / self.seconds(copy)


def allocate(library, size):
    memory = c_void_p()
    library("danaus_alloc", library.device, c_size_t(size), byref(memory))
    return memory


def call_seconds(library, run, rounds):
    """Median of what run() takes, by the host's clock."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        library("danaus_device_sync", library.device)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


class Weights:
    """A chain's weights, and the f32 arrays that they are packed from."""

    def __init__(self, library, shapes, dtype, training):
        self.library = library
        self.numbers = [a * b * c * d for a, b, c, d in shapes]
        self.plan = library.plan(shapes, dtype, 0, False, 4096, int(training))
        self.packed = c_void_p()
        library(
            "danaus_ks_weights_create", self.plan, library.device, None,
            byref(self.packed))
        arrays = [allocate(library, n * SIZE[F32]) for n in self.numbers]
        for array, n in zip(arrays, self.numbers):
            zeros = (c_float * n)()
            library(
                "danaus_upload", library.device, array, zeros, c_size_t(n * SIZE[F32]))
        self.arrays = (c_void_p * len(arrays))(*arrays)

    def update(self, times=1):
        for _ in range(times):
            self.library(
                "danaus_ks_weights_update_from", self.packed, self.library.device,
                F32, self.arrays, None)

    def bytes(self, dtype, training):
        forms = 2 if training else 1
        return sum(self.numbers) * (SIZE[F32] + forms * SIZE[dtype])

    def free(self):
        self.library.c.danaus_ks_weights_destroy(self.packed)
        self.library.c.danaus_ks_plan_destroy(self.plan)
        for array in self.arrays:
            self.library.c.danaus_free(self.library.device, c_void_p(array))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("device", nargs="?", default="cuda:0")
    parser.add_argument("--updates", type=int, default=50, help="in a graph, or timed together")
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    name = options.device
    library = capi.Library(options.library, name)
    driver = rate = None
    if name.startswith("cuda"):
        driver = Driver(int(name.partition(":")[2] or 0), options.rounds)
        rate = driver.copy_rate(allocate(library, 2 * COPY).value)
        library.set_stream(driver.stream.value)
    print("device,chain,dtype,training,bytes,graph_us,call_us,copy_gbs,limit_us")
    for chain, shapes in CHAINS.items():
        for dtype, kind in ((F16, "f16"), (F32, "f32")):
            for training in (0, 1):
                weights = Weights(library, shapes, dtype, training)
                weights.update()
                size = weights.bytes(dtype, training)
                run = functools.partial(weights.update, options.updates)
                call = call_seconds(library, run, options.rounds) / options.updates * 1e6
                record = [name, chain, kind, training, size, "", f"{call:.2f}", "", ""]
                if driver:
                    graph = driver.seconds(driver.graph(run)) / options.updates
                    limit = 15 + 3e6 * size / rate
                    record[5] = f"{graph * 1e6:.2f}"
                    record[7:] = [f"{rate / 1e9:.0f}", f"{limit:.2f}"]
                print(*record, sep=",", flush=True)
                weights.free()


if __name__ == "__main__":
    main()
