#!/usr/bin/env python3
"""Times causal convolutions of danaus beside other libraries' transforms, in one process,
on the same inputs, in turns of danaus and one of them.

    conv_peers.py LIBRARY OUT.csv [--suite FILE] [--threads N] [--seconds S] [PROBLEM ...]

A problem is "length,taps,batch,channels"; of a suite of "danaus-bench conv" the plain
causal ones are taken. Peers are those that can be imported: scipy.fft (pocketfft), ducc0
(its successor), torch (MKL in PyPI's builds). Each pads the rows, makes r2c, product and
c2r in f32 with filters transformed before, at the fastest of several ways: the padded
length is a power of two or the least product of 2, 3, 5 and 7; all rows at once, or slabs
of rows that stay in caches. Buffers are kept where the library lets one, and the result
is left as a part of the padded rows, without a last copy. Results are compared with
danaus's; its error is that of one row against scipy.fft in f64.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import csv
import importlib
import os
import statistics
import time

import numpy as np
import scipy.fft

import capi
import origin

ROTATED = 128 << 20  # bytes of inputs, more than twice a last cache
PEERS = ("scipy", "ducc0", "torch")
FIELDS = "length taps batch channels threads plan seconds p10 p90 error".split()
for _peer in PEERS:
    FIELDS += [f"{_peer}_{what}" for what in ("version", "seconds", "way", "ratio")]
FIELDS += ["best", "best_ratio"]


# ---- peers: (rows of u, padded length, their filters' spectra, threads) -> y ----


class Scipy:
    def __init__(self):
        self.version = importlib.import_module("scipy").__version__

    def spectra(self, k, n):
        return scipy.fft.rfft(k, n)

    def convolve(self, u, n, kf, threads):
        z = scipy.fft.rfft(u, n, workers=threads)
        z *= kf
        return scipy.fft.irfft(z, n, workers=threads, overwrite_x=True)[..., : u.shape[-1]]

    def result(self, y):
        return y


class Ducc:
    def __init__(self):
        self.ducc = importlib.import_module("ducc0")
        self.version, self.kept = self.ducc.__version__, {}

    def spectra(self, k, n):
        padded = np.zeros((*k.shape[:-1], n), np.float32)
        padded[..., : k.shape[-1]] = k
        return self.ducc.fft.r2c(padded, axes=[-1])

    def convolve(self, u, n, kf, threads):
        key = (*u.shape, n)
        if self.kept.get("key") != key:
            self.kept = {"key": key, "x": np.zeros((*u.shape[:-1], n), np.float32),
                         "z": np.empty((*u.shape[:-1], n // 2 + 1), np.complex64),
                         "y": np.empty((*u.shape[:-1], n), np.float32)}
        x, z, y = (self.kept[name] for name in "xzy")
        x[..., : u.shape[-1]] = u
        self.ducc.fft.r2c(x, axes=[-1], nthreads=threads, out=z)
        z *= kf
        self.ducc.fft.c2r(z, axes=[-1], lastsize=n, forward=False, inorm=2,
                          nthreads=threads, out=y)
        return y[..., : u.shape[-1]]

    def result(self, y):
        return y


class Torch:
    def __init__(self):
        self.torch = importlib.import_module("torch")
        self.version, self.threads, self.kept = self.torch.__version__, None, {}

    def spectra(self, k, n):
        return self.torch.fft.rfft(self.torch.from_numpy(k), n)

    def convolve(self, u, n, kf, threads):
        if threads != self.threads:
            self.torch.set_num_threads(threads)
            self.threads = threads
        u = self.torch.from_numpy(u)
        key = (*u.shape, n)
        if self.kept.get("key") != key:
            lead = u.shape[:-1]
            self.kept = {"key": key, "x": self.torch.zeros(*lead, n),
                         "z": self.torch.empty(*lead, n // 2 + 1, dtype=self.torch.complex64),
                         "y": self.torch.empty(*lead, n)}
        x, z, y = (self.kept[name] for name in "xzy")
        x[..., : u.shape[-1]] = u
        self.torch.fft.rfft(x, n, out=z)
        z *= kf
        self.torch.fft.irfft(z, n, out=y)
        return y[..., : u.shape[-1]]

    def result(self, y):
        return y.numpy()


def smooth(least):
    while True:
        rest = least
        for p in (2, 3, 5, 7):
            while rest % p == 0:
                rest //= p
        if rest == 1:
            return least
        least += 1


class Way:
    """A padded length, slabs of so many batch entries or of one entry's channels, and how
    many threads a transform has."""

    def __init__(self, peer, k, n, batch, slab_rows, threads):
        channels = k.shape[0]
        self.peer, self.n, self.threads, self.name = peer, n, threads, f"{n}"
        if slab_rows > channels:
            slab_rows -= slab_rows % channels
        kf = peer.spectra(k, n)
        if slab_rows >= batch * channels:
            self.slabs = [(slice(None), slice(None), kf)]
        elif slab_rows >= channels:
            step = slab_rows // channels
            self.slabs = [(slice(b, b + step), slice(None), kf) for b in range(0, batch, step)]
        else:
            self.slabs = [(slice(b, b + 1), slice(h, h + slab_rows), kf[h : h + slab_rows])
                          for b in range(batch) for h in range(0, channels, slab_rows)]
        if len(self.slabs) > 1:
            self.name += f" by {slab_rows} rows"
        if threads == 1:
            self.name += " on one thread"

    def run(self, u, take=None):
        for b, h, kf in self.slabs:
            y = self.peer.convolve(u[b, h], self.n, kf, self.threads)
            if take is not None:
                take[b, h] = self.peer.result(y)


def ways(peer, k, length, batch, most):
    """All that are worth a try."""
    need, every = length + min(k.shape[1], length) - 1, batch * k.shape[0]
    for n in sorted({smooth(need), 1 << (need - 1).bit_length()}):
        row = 12 * n  # padded, spectrum and result
        slabs = {min(size // row, every) for size in (1 << 62, 32 << 20, 2 << 20)}
        for rows in sorted(slabs - {0}, reverse=True):
            for threads in sorted({1, most} if every * n < 1 << 20 else {most}, reverse=True):
                yield lambda n=n, r=rows, t=threads: Way(peer, k, n, batch, r, t)


def clock(function, *arguments, now=time.perf_counter):
    start = now()
    function(*arguments)
    return now() - start


def fastest(peer, k, inputs, batch, options):
    """The way of least time, of two calls each; those are left out that need too much.
    Large batches are tried, and later taken, entry by entry."""
    best, entry = None, inputs[0][0].size
    some = 1 if entry * batch > 1 << 24 else batch
    for make in ways(peer, k, inputs[0].shape[-1], some, options.threads):
        way = make()
        rows = some * k.shape[0] / len(way.slabs)
        if 20 * rows * way.n > options.memory << 30:
            continue
        seconds = clock(way.run, inputs[0][:some])
        if not best or seconds < 3 * best[0]:
            seconds = min(seconds, clock(way.run, inputs[-1][:some]))
        if not best or seconds < best[0]:
            best = (seconds, way)
        peer.kept = {}
    if best and some < batch:
        slabs = best[1].slabs
        best[1].slabs = [(slice(b, b + 1), h, kf) for b in range(batch) for _, h, kf in slabs]
    return best and best[1]


def in_turns(runs, least, now=time.perf_counter):
    """Medians of calls until each has had `least` seconds, at least three calls of each."""
    times = {name: [] for name in runs}
    for run in runs.values():
        run(0)
    for turn in range(1, 10000):
        for name, run in runs.items():
            calls, spent = 0, 0.0
            while calls < 1 or spent < least / 10:
                times[name].append(clock(run, turn + calls, now=now))
                spent += times[name][-1]
                calls += 1
        if turn >= 3 and all(sum(t) >= least for t in times.values()):
            break
    return times


def measure(library, peers, problem, options):
    length, taps, batch, channels = problem
    r = np.random.default_rng(length)
    k = r.uniform(-1, 1, (channels, taps)).astype(np.float32)
    copies = 1 + ROTATED // (4 * length * batch * channels)
    inputs = [r.random((batch, channels, length), np.float32) - np.float32(0.5)
              for _ in range(min(copies, 512))]
    outputs = [np.zeros_like(inputs[0]) for _ in inputs]
    ours = library.convolution(length, batch, k)
    ours(inputs[0], outputs[0])
    exact = scipy.fft.irfft(
        scipy.fft.rfft(inputs[0][0, 0].astype(float), 2 * smooth(length + taps))
        * scipy.fft.rfft(k[0].astype(float), 2 * smooth(length + taps)))[:length]
    norm = np.linalg.norm
    record = dict(length=length, taps=taps, batch=batch, channels=channels,
                  threads=options.threads, plan=ours.describe()[0],
                  error=f"{norm(outputs[0][0, 0] - exact) / norm(exact):.3e}")
    danaus = lambda i: ours(inputs[i % len(inputs)], outputs[i % len(inputs)])
    mine, ratios = [], {}
    for name, peer in peers.items():
        way = fastest(peer, k, inputs, batch, options)
        if not way:
            continue
        result = np.empty_like(inputs[0])
        way.run(inputs[0], result)
        if not norm(result - outputs[0]) <= 1e-5 * norm(outputs[0]):
            raise RuntimeError(f"{name} and danaus differ")
        del result
        # One peer at a time: threads of two may wait for work in each other's turns.
        times = in_turns({"danaus": danaus, name: lambda i: way.run(inputs[i % len(inputs)])},
                         options.seconds)
        peer.kept = {}
        mine += times["danaus"]
        seconds = statistics.median(times[name])
        ratios[name] = seconds / statistics.median(times["danaus"])
        record |= {f"{name}_version": peer.version, f"{name}_way": way.name,
                   f"{name}_seconds": f"{seconds:.6g}", f"{name}_ratio": f"{ratios[name]:.3f}"}
    mine.sort()
    if mine:
        record |= dict(seconds=f"{statistics.median(mine):.6g}",
                       p10=f"{mine[len(mine) // 10]:.6g}",
                       p90=f"{mine[len(mine) * 9 // 10]:.6g}")
    if ratios:
        best = min(ratios, key=ratios.get)
        record |= dict(best=best, best_ratio=f"{ratios[best]:.3f}")
    ours.free()
    return record, ratios


def suite(path):
    with open(path, newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [",".join(row[f] for f in FIELDS[:4]) for row in rows
                if row["kind"] == "causal" and row["extras"] == "plain"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("out")
    parser.add_argument("--suite")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--memory", type=int, default=10, help="GiB for a peer's buffers")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("problems", nargs="*")
    options = parser.parse_intermixed_args()
    library, peers = capi.Library(options.library, "cpu", options.threads), {}
    for name in options.peers.split(","):
        try:
            peers[name] = {"scipy": Scipy, "ducc0": Ducc, "torch": Torch}[name]()
        except ImportError:
            print(f"{name} is not installed")
    worst = []
    with open(options.out, "w", newline="") as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        for text in options.problems + (suite(options.suite) if options.suite else []):
            problem = tuple(map(int, text.split(",")))
            record, ratios = measure(library, peers, problem, options)
            out.writerow(record)
            file.flush()
            print(text, record.get("seconds"),
                  *(f"{name} {ratio:.2f}" for name, ratio in ratios.items()), flush=True)
            worst += [min(ratios.values())] if ratios else []
    if worst:
        print(f"times faster than the best: median {statistics.median(worst):.2f}, "
              f"least {min(worst):.2f}")


if __name__ == "__main__":
    main()
