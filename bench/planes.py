#!/usr/bin/env python3
"""Times long convolutions of planes beside torch.fft and, on a CPU, SciPy.

    planes.py OUT.csv [--sizes N,N,...] [--few TAPS,...] [--kinds causal,centred,circular]
        [--dtype f32] [--threads N] [--device cuda|cpu] [--tiny]

A problem has planes of N x N numbers of up to 8 x 96 channels, 2^25 numbers at most (2^27 on a
GPU), and filters as large as a plane or of few taps along each axis. Four calls are timed: "ready"
has its spectrum, "fresh" transforms its filters, "step" is forward and backward with gradients
of u and of the filters, and "own" is "fresh" with filters for each sample, over the time of
as many filters that are those of the channels of one sample. Floors, at
the rate of copying in the same run, are u and y once. torch.fft works in f32 and has the better of
two paddings; its circular convolutions need none. SciPy has the better of fftconvolve and
oaconvolve. The error is that of y of 4 channels against f64.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import pathlib
import sys

import torch
from few_rows import smooth
from gpu_conv import TYPES, copy_rate, relative_error, timed
from torch import Tensor

import danaus
from danaus.torch import LongConv2d
from danaus.torch.functional import long_conv2d

sys.path.insert(0, str(pathlib.Path(__file__).parent / "baselines"))
import origin  # noqa: E402

BATCH, CHANNELS = 8, 96
SIZES, FEW = "64,128,256,512,1024,2048", "7,31"
CALLS = ("ready", "fresh", "step")
FIELDS = "version torch device threads kind dtype size taps batch channels".split()
for _call in CALLS:
    FIELDS += [_call, f"{_call}_over_floor", f"{_call}_torch", f"{_call}_ratio"]
FIELDS += ["own", "scipy", "scipy_ratio", "error"]


class Problem:
    """Planes and filters of one size."""

    def __init__(self, o: argparse.Namespace, kind: str, size: int, taps: int):
        torch.manual_seed(size + taps)
        most = 1 << (14 if o.tiny else 27 if o.device == "cuda" else 25)
        rows = max(1, most // size**2)
        self.kind, self.size, self.taps, self.device = kind, size, taps, o.device
        self.channels = min(CHANNELS, rows)
        self.batch = max(1, min(BATCH, rows // self.channels))
        shape = (self.batch, self.channels, size, size)
        self.u = torch.randn(shape, device=o.device).to(TYPES[o.dtype])
        self.dy = torch.randn(shape, device=o.device).to(TYPES[o.dtype])
        self.k = torch.randn(self.channels, taps, taps, device=o.device) / taps
        self.centre = (taps - 1) // 2 if kind == "centred" else 0

    def paddings(self) -> set[int]:
        if self.kind == "circular":
            return {self.size}
        whole = self.size + self.taps - 1
        return {smooth(whole), 1 << (whole - 1).bit_length()}

    def step(self, convolve) -> tuple[Tensor, ...]:
        u, k = self.u.detach().requires_grad_(), self.k.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(convolve(u, k), (u, k), self.dy)

    def calls_of(self, ready, convolve) -> dict:
        return {
            "ready": torch.no_grad()(lambda: ready(self.u)),
            "fresh": torch.no_grad()(lambda: convolve(self.u, self.k)),
            "step": lambda: self.step(convolve),
        }

    def ours(self) -> dict:
        options = {"skip": False, "filter": self.k, "taps": self.taps}
        conv = LongConv2d(self.channels, self.size, self.kind, **options)
        conv.to(self.device).freeze()
        return self.calls_of(conv, lambda u, k: long_conv2d(u, k, kind=self.kind))

    def theirs(self, n: int) -> dict:
        first = self.centre

        def by_spectrum(u: Tensor, spectrum: Tensor) -> Tensor:
            z = torch.fft.rfft2(u.to(spectrum.real.dtype), (n, n)) * spectrum
            y = torch.fft.irfft2(z, (n, n))[..., first : first + self.size, :]
            return y[..., first : first + self.size].to(u.dtype)

        def convolve(u: Tensor, k: Tensor) -> Tensor:
            return by_spectrum(u, torch.fft.rfft2(k, (n, n)))

        spectrum = torch.fft.rfft2(self.k, (n, n))
        return self.calls_of(lambda u: by_spectrum(u, spectrum), convolve)

    def own(self) -> float:
        """How much longer it takes if each sample has filters of its own."""
        rows = self.u.flatten(0, 1)[None]
        own = self.k.repeat(self.batch, 1, 1)
        each = own.unflatten(0, (self.batch, -1))
        shared, apart = (
            torch.no_grad()(lambda u=u, k=k: long_conv2d(u, k, kind=self.kind))
            for u, k in ((rows, own), (self.u, each))
        )
        return timed(self.device, apart) / timed(self.device, shared)

    def by_scipy(self, threads: int) -> float:
        """Seconds of the faster of SciPy's ways on as many threads; circular: none."""
        if self.device != "cpu" or self.kind == "circular":
            return 0
        from scipy import fft, signal

        u, k = self.u.float().numpy(), self.k[None].numpy()
        mode = "same" if self.kind == "centred" else "full"
        with fft.set_workers(threads):
            return min(
                timed("cpu", lambda f=f: f(u, k, mode, (-2, -1)), 3)
                for f in (signal.fftconvolve, signal.oaconvolve)
            )

    def error(self, y: Tensor) -> float:
        exact = self.theirs(min(self.paddings()))
        u, k = self.u, self.k
        self.u, self.k = u[:1, :4].double(), k[:4].double()
        value = exact["fresh"]()
        self.u, self.k = u, k
        return relative_error(y[:1, :4], value)

    def measure(self, rate: float, threads: int) -> dict:
        found = {"batch": self.batch, "channels": self.channels, "kind": self.kind}
        found |= {"size": self.size, "taps": self.taps}
        ours, floor = self.ours(), 2 * self.u.nbytes / rate
        theirs = [self.theirs(n) for n in self.paddings()]
        seconds = {call: timed(self.device, ours[call]) for call in CALLS}
        for call in CALLS:
            torch_seconds = min(timed(self.device, t[call], 3) for t in theirs)
            found |= {
                call: f"{seconds[call]:.4g}",
                f"{call}_over_floor": f"{seconds[call] / floor:.2f}",
                f"{call}_torch": f"{torch_seconds:.4g}",
                f"{call}_ratio": f"{torch_seconds / seconds[call]:.2f}",
            }
        scipy = self.by_scipy(threads)
        if scipy:
            found["scipy"] = f"{scipy:.4g}"
            found["scipy_ratio"] = f"{scipy / seconds['fresh']:.2f}"
        found["own"] = f"{self.own():.2f}"
        return found | {"error": f"{self.error(ours['fresh']()):.2g}"}


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--sizes", default=SIZES)
    p.add_argument("--few", default=FEW)
    p.add_argument("--kinds", default="causal,centred,circular")
    p.add_argument("--dtype", default="f32", choices=TYPES)
    p.add_argument("--threads", type=int, default=torch.get_num_threads())
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--tiny", action="store_true")
    o = p.parse_args()
    if o.tiny:
        o.sizes, o.few = "9,16", "3"
    torch.set_num_threads(o.threads)
    return o


def main() -> None:
    o = options()
    rate = copy_rate(o.device, 1 << (20 if o.tiny else 28))
    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    about = {
        "version": danaus.__version__,
        "torch": torch.__version__,
        "device": name.replace(" ", "_"),
        "threads": o.threads,
        "dtype": o.dtype,
    }
    few = [int(n) for n in o.few.split(",")]
    with open(o.out, "w", newline="", buffering=1) as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        for size in (int(n) for n in o.sizes.split(",")):
            for kind in o.kinds.split(","):
                for taps in [*(n for n in few if n < size), size]:
                    found = Problem(o, kind, size, taps).measure(rate, o.threads)
                    out.writerow(about | found)
                    print(about["device"], *found.values(), flush=True)


if __name__ == "__main__":
    main()
