#!/usr/bin/env python3
"""Peak memory of a causal convolution beyond its rows, filters and spectra.

    conv_memory.py LIBRARY [LENGTH BATCH CHANNELS]
"""
# SPDX-License-Identifier: Apache-2.0
import sys

import numpy as np

import capi


def status(name):
    """A line of Linux's /proc/self/status, in MiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024


def main():
    length, batch, channels = map(int, sys.argv[2:5] or (1 << 20, 8, 8))
    u = np.ones((batch, channels, length), np.float32)
    y, k = np.ones_like(u), np.ones((channels, length), np.float32)
    library = capi.Library(sys.argv[1], "cpu")
    before = status("VmRSS")
    convolve = library.convolution(length, batch, k)
    convolve(u, y)
    grown, lines = status("VmHWM") - before, convolve.describe()
    spectra = channels * float(lines[1].split()[1])  # "memory: 8 MiB a filter, ..."
    print(f"{lines[0]}\n{grown:.1f} MiB, {spectra:.1f} of them spectra: {grown - spectra:.1f}")


if __name__ == "__main__":
    main()
