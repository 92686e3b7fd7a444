#!/usr/bin/env python3
"""Times convolutions of few taps and their gradients (du, dk and dbias in one call)
beside the time of copying as many bytes, and beside PyTorch's depthwise conv1d where it
is installed and has the layout.

    short_peers.py LIBRARY OUT.csv [--threads N] [--seconds S] [PROBLEM ...]

A problem is "layout,length,taps,batch,channels", layout first or last. All take turns;
times are medians. limit: bytes of u and y (u, dy and du), read once or written once, at
the rate of copies on all threads of the same run.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import concurrent.futures
import ctypes
import os
import statistics
import time

import numpy as np

import capi
import origin

try:
    import torch
except ImportError:
    torch = None

FIELDS = ("layout length taps batch channels threads forward forward_limit gradient "
          "gradient_limit torch_forward torch_gradient").split()
PROBLEMS = [f"{layout},{shape}" for layout in ("first", "last")
            for shape in ("4096,4,16,768", "65536,3,1,768", "1024,4,64,768", "16384,7,8,256",
                          "16384,64,8,256")]


def aligned(values):
    """The same array at an address that is a multiple of 64, as danaus_alloc() gives."""
    memory = np.empty(values.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    a = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    a[...] = values
    return a


def in_turns(runs, least):
    """Median seconds of each, in rounds, until each has had `least` seconds."""
    times = {name: [] for name in runs}
    for run in runs.values():
        run()
    while min(map(sum, times.values())) < least or len(times["copy"]) < 5:
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def torch_runs(length, taps, channels, k, bias, u, dy):
    """Causal convolutions in conv1d's layout: both ends are padded, and y is cut."""
    weight, bias, u, dy = (torch.from_numpy(a) for a in (
        k[:, None, ::-1].copy(), bias, u, np.pad(dy, ((0, 0), (0, 0), (0, taps - 1)))))

    def forward():
        torch.conv1d(u, weight, bias, 1, taps - 1, 1, channels)

    def gradient():
        torch.ops.aten.convolution_backward(
            dy, u, weight, [channels], [1], [taps - 1], [1], False, [0], channels,
            [True, True, True])

    return {"torch_forward": forward, "torch_gradient": gradient}


def measure(library, problem, options, pool):
    layout, *sizes = problem.split(",")
    length, taps, batch, channels = map(int, sizes)
    r = np.random.default_rng(length)
    shape = (batch, channels, length) if layout == "first" else (batch, length, channels)
    u, dy = (aligned(r.random(shape, np.float32) - np.float32(0.5)) for _ in range(2))
    y, du = aligned(np.zeros_like(u)), aligned(np.zeros_like(u))
    k, bias = (r.random(s, np.float32) - np.float32(0.5) for s in ((channels, taps), channels))
    dk, dbias = np.zeros_like(k), np.zeros_like(bias)
    d = capi.ShortDescription(channels, length, taps, 0, int(layout == "last"))
    g = capi.ShortGradients(du.ctypes.data, dk.ctypes.data, dbias.ctypes.data)
    n = ctypes.c_int64(batch)
    part = u.nbytes // options.threads // 64 * 64

    def copy():
        list(pool.map(lambda i: ctypes.memmove(y.ctypes.data + i * part, u.ctypes.data + i * part,
                                               part), range(options.threads)))

    runs = {
        "copy": copy,
        "forward": lambda: library(
            "danaus_short_conv", library.device, ctypes.byref(d), n,
            *map(capi.address, (k, bias, u, y))),
        "gradient": lambda: library(
            "danaus_short_conv_gradient", library.device, ctypes.byref(d), n,
            *map(capi.address, (k, u, dy)), ctypes.byref(g)),
    }
    if torch and layout == "first":
        runs |= torch_runs(length, taps, channels, k, bias, u, dy)
    times = in_turns(runs, options.seconds)
    record = dict(layout=layout, length=length, taps=taps, batch=batch, channels=channels,
                  threads=options.threads, forward_limit=times["copy"],
                  gradient_limit=1.5 * times.pop("copy")) | times
    return {name: f"{x:.5g}" if isinstance(x, float) else x for name, x in record.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("out")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("problems", nargs="*")
    options = parser.parse_intermixed_args()
    if torch:
        torch.set_num_threads(options.threads)
    library = capi.Library(options.library, "cpu", options.threads)
    with open(options.out, "w", newline="") as file, \
            concurrent.futures.ThreadPoolExecutor(options.threads) as pool:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        for problem in options.problems or PROBLEMS:
            record = measure(library, problem, options, pool)
            out.writerow(record)
            file.flush()
            print(problem, *(f"{name} {record[name]}" for name in FIELDS[6:] if name in record),
                  flush=True)


if __name__ == "__main__":
    main()
