#!/usr/bin/env python3
"""Times long convolutions of few rows, with filters of their own, beside torch.fft.

    few_rows.py OUT.csv [--lengths N,N,...] [--batches 1,2,4,8] [--kinds causal,circular]
        [--dtype bf16] [--draw COUNT] [--seed SEED] [--seconds S] [--tiny]

Long sequences come one to eight at a time, and in training their filters change at every
step. A problem has `batch` rows of up to 768 channels, 2^27 numbers of a batch at most. Three
calls are timed: "ready" has its spectrum, "fresh" transforms its filters, "step" is forward and
backward with gradients of u and of the filters. Floors, at the rate of copying in the same run:
u and y once, for "fresh" also the filters in f32, for "step" 2.5 times u and y and 12 bytes a tap.
torch.fft works in f32 and has the better of two paddings, the next power of two and the next
product of small primes. "filter" is the time of "fresh" over that of "ready". The error is that of
y of 4 channels against f64. --draw has so many random problems, of any length from 2,048 to
1,048,576 numbers, instead of the listed ones.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import math
import pathlib
import random
import sys
import time

import torch
from gpu_conv import TYPES, by_fft, copy_rate, relative_error, timed
from torch import Tensor

import danaus
from danaus.torch import LongConv
from danaus.torch.functional import long_conv

sys.path.insert(0, str(pathlib.Path(__file__).parent / "baselines"))
import origin  # noqa: E402

CHANNELS, MOST_NUMBERS = 768, 1 << 27
LENGTHS = "2048,8192,32768,131072,1048576"
CALLS = ("ready", "fresh", "step")
FIELDS = "version torch device kind dtype length batch channels".split()
for _call in CALLS:
    FIELDS += [_call, f"{_call}_over_floor", f"{_call}_torch", f"{_call}_ratio"]
FIELDS += ["filter", "error"]


def smooth(n: int) -> int:
    """The least product of 2, 3, 5 and 7 that is n or more."""
    while True:
        left = n
        for prime in (2, 3, 5, 7):
            while left % prime == 0:
                left //= prime
        if left == 1:
            return n
        n += 1


def paddings(kind: str, length: int) -> set[int]:
    if kind == "circular":
        return {length}
    return {
        1 << (2 * length - 1).bit_length(),
        smooth(2 * length),
    }


class Problem:
    """A convolution of few rows."""

    def __init__(self, o: argparse.Namespace, kind: str, length: int, batch: int):
        torch.manual_seed(length + batch)
        self.kind, self.length, self.device = kind, length, o.device
        self.dtype = TYPES[o.dtype]
        most = (1 << 12 if o.tiny else MOST_NUMBERS) // length
        self.batch, self.channels = batch, max(1, min(CHANNELS, most))
        shape = (batch, self.channels, length)
        self.u = torch.randn(shape, device=o.device).to(self.dtype)
        self.dy = torch.randn(shape, device=o.device).to(self.dtype)
        self.k = torch.randn(self.channels, length, device=o.device) / length**0.5

    def step(self, convolve) -> tuple[Tensor, ...]:
        u, k = self.u.detach().requires_grad_(), self.k.detach().requires_grad_()
        return torch.autograd.grad(convolve(u, k), (u, k), self.dy)

    @torch.no_grad()
    def ours(self) -> dict:
        conv = LongConv(
            self.channels, self.length, self.kind, skip=False, filter=self.k
        )
        conv.to(self.device).freeze()

        def convolve(u: Tensor, k: Tensor) -> Tensor:
            return long_conv(u, k, kind=self.kind)

        def step() -> tuple[Tensor, ...]:
            with torch.enable_grad():
                return self.step(convolve)

        return {
            "ready": torch.no_grad()(lambda: conv(self.u)),
            "fresh": torch.no_grad()(lambda: convolve(self.u, self.k)),
            "step": step,
        }

    def theirs(self, n: int) -> dict:
        spectrum = torch.fft.rfft(self.k, n)

        def convolve(u: Tensor, k: Tensor) -> Tensor:
            return by_fft(u, torch.fft.rfft(k, n), n)

        return {
            "ready": torch.no_grad()(lambda: by_fft(self.u, spectrum, n)),
            "fresh": torch.no_grad()(lambda: convolve(self.u, self.k)),
            "step": lambda: self.step(convolve),
        }

    def error(self, y: Tensor) -> float:
        u, k = self.u[:1, :4].double(), self.k[:4].double()
        exact = by_fft(u, torch.fft.rfft(k, 2 * self.length), 2 * self.length)
        if self.kind == "circular":
            exact = torch.fft.irfft(torch.fft.rfft(u) * torch.fft.rfft(k), self.length)
        return relative_error(y[:1, :4], exact)

    def floors(self, rate: float) -> dict:
        rows, taps = 2 * self.u.nbytes, self.k.numel()
        bytes_ = {
            "ready": rows,
            "fresh": rows + 4 * taps,
            "step": 2.5 * rows + 12 * taps,
        }
        return {call: b / rate for call, b in bytes_.items()}

    def measure(self, rate: float) -> dict:
        found = {"batch": self.batch, "channels": self.channels, "length": self.length}
        ours, floors = self.ours(), self.floors(rate)
        theirs = [self.theirs(n) for n in paddings(self.kind, self.length)]
        seconds = {}
        for call in CALLS:
            seconds[call] = timed(self.device, ours[call])
            torch_seconds = min(timed(self.device, t[call], 3) for t in theirs)
            found |= {
                call: f"{seconds[call]:.4g}",
                f"{call}_over_floor": f"{seconds[call] / floors[call]:.2f}",
                f"{call}_torch": f"{torch_seconds:.4g}",
                f"{call}_ratio": f"{torch_seconds / seconds[call]:.2f}",
            }
        found["filter"] = f"{seconds['fresh'] / seconds['ready']:.2f}"
        return found | {
            "error": f"{self.error(ours['fresh']()):.2g}",
            "kind": self.kind,
        }


def listed(o: argparse.Namespace) -> list[tuple]:
    numbers = [[int(n) for n in text.split(",")] for text in (o.lengths, o.batches)]
    return [
        (k, n, b) for n in numbers[0] for b in numbers[1] for k in o.kinds.split(",")
    ]


def drawn(o: argparse.Namespace) -> list[tuple]:
    """Lengths spread evenly by their logarithm, a third of them powers of two."""
    r, problems = random.Random(o.seed), []
    for _ in range(o.draw):
        bits = r.uniform(11, 20)
        length = 1 << round(bits) if r.random() < 1 / 3 else int(2**bits)
        problems.append((r.choice(o.kinds.split(",")), length, r.choice((1, 2, 4, 8))))
    return problems


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--lengths", default=LENGTHS)
    p.add_argument("--batches", default="1,2,4,8")
    p.add_argument("--kinds", default="causal,circular")
    p.add_argument("--dtype", default="bf16", choices=TYPES)
    p.add_argument("--draw", type=int, default=0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--seconds", type=float, default=math.inf)
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--tiny", action="store_true")
    o = p.parse_args()
    if o.tiny:
        o.lengths, o.batches = "60,256", "1,2"
    return o


def main() -> None:
    o = options()
    begin, rate = time.time(), copy_rate(o.device, 1 << (20 if o.tiny else 28))
    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    about = {
        "version": danaus.__version__,
        "torch": torch.__version__,
        "dtype": o.dtype,
    }
    about["device"] = name.replace(" ", "_")
    with open(o.out, "w", newline="", buffering=1) as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        for kind, length, batch in drawn(o) if o.draw else listed(o):
            if time.time() - begin > o.seconds:
                return
            found = Problem(o, kind, length, batch).measure(rate)
            out.writerow(about | found)
            calls = "  ".join(
                f"{call} {1e3 * float(found[call]):8.3f} ms {found[f'{call}_over_floor']:>6} "
                f"floors, torch x{found[f'{call}_ratio']:>5}"
                for call in CALLS
            )
            print(
                f"{length:8} {kind:9} {batch} x {found['channels']:3}  {calls}  "
                f"filter {found['filter']}  error {found['error']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
