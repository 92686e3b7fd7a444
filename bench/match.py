#!/usr/bin/env python3
"""Times normalised correlations of templates with a signal beside EQcorrscan's FFTW.

    match.py OUT.csv [--templates N] [--taps N] [--length N] [--rounds N] [--tiny]

danaus.match_templates(subtract_mean=True) and eqcorrscan.utils.correlate.fftw_normxcorr(), if that
is installed, make the same coefficients [templates][length - taps + 1] in f32, in turns, each in
new memory; medians of rounds. EQcorrscan 0.5.2 builds with setuptools before 81 and NumPy before
2 (pip install --no-build-isolation). "scipy" is scipy.fft in blocks of 2^17 numbers without
norms, in memory that is used again. All have as many threads as there are processors.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import time

import numpy as np
from scipy import fft

import danaus

sys.path.insert(0, str(pathlib.Path(__file__).parent / "baselines"))
import origin  # noqa: E402

FIELDS = "version templates taps length threads seconds eqcorrscan ratio scipy".split()
FIELDS += ["scipy_ratio", "difference"]
BLOCK = 1 << 17


def by_scipy(u: np.ndarray, k: np.ndarray) -> None:
    taps, threads = k.shape[1], os.cpu_count()
    block = min(BLOCK, fft.next_fast_len(u.size + taps, True))
    spectra = fft.rfft(k[:, ::-1], block, workers=threads)
    for first in range(0, u.size - taps + 1, block - taps + 1):
        part = fft.rfft(u[first : first + block], block)
        fft.irfft(spectra * part, block, workers=threads)


def by_eqcorrscan(u: np.ndarray, k: np.ndarray):
    """Its coefficients; None where it is not installed."""
    try:
        from eqcorrscan.utils.correlate import fftw_normxcorr
    except ImportError:
        return None
    return fftw_normxcorr(k.copy(), u.copy(), [0] * len(k), threaded=False)[0]


def seconds_of(run) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--templates", type=int, default=100)
    p.add_argument("--taps", type=int, default=1500)
    p.add_argument("--length", type=int, default=8_640_000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tiny", action="store_true")
    o = p.parse_args()
    if o.tiny:
        o.templates, o.taps, o.length, o.rounds = 3, 20, 500, 1
    return o


def main() -> None:
    o, rng = options(), np.random.default_rng(0)
    u = rng.standard_normal(o.length).astype("f4")
    k = rng.standard_normal((o.templates, o.taps)).astype("f4")
    peer, times = by_eqcorrscan(u, k), {"seconds": [], "eqcorrscan": [], "scipy": []}
    difference = ""
    if peer is not None:
        ours = danaus.match_templates(u, k, subtract_mean=True)
        difference = f"{np.abs(ours - peer).max():.2g}"
        del ours
    has_peer, peer = peer is not None, None
    for _ in range(o.rounds):
        run = danaus.match_templates
        times["seconds"].append(seconds_of(lambda: run(u, k, subtract_mean=True)))
        times["scipy"].append(seconds_of(lambda: by_scipy(u, k)))
        if has_peer:
            times["eqcorrscan"].append(seconds_of(lambda: by_eqcorrscan(u, k)))
    found = {name: statistics.median(t) for name, t in times.items() if t}
    record = {"version": danaus.__version__, "threads": os.cpu_count()}
    record |= {"templates": o.templates, "taps": o.taps, "length": o.length}
    record |= {name: f"{t:.4g}" for name, t in found.items()}
    record["scipy_ratio"] = f"{found['scipy'] / found['seconds']:.2f}"
    record["difference"] = difference
    if has_peer:
        record["ratio"] = f"{found['eqcorrscan'] / found['seconds']:.2f}"
    with open(o.out, "w", newline="") as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        out.writerow(record)
    print(*(f"{name} {value}" for name, value in record.items()), sep="  ")


if __name__ == "__main__":
    main()
