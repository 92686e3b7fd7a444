#!/usr/bin/env python3
"""Times packed sequences beside as many numbers in equal rows, in the same rounds.

    packed_conv.py OUT.csv [--device cuda|cpu] [--lengths 100,8000] [--sequences N,N,...]
        [--channels N] [--dtypes f16,bf16,f32] [--forms forward,gated,backward]
        [--rounds N] [--threads N] [--tiny]

Lengths are drawn evenly between two. Equal rows are as many, of the mean length, causal
like the sequences, with filters as long as the longest. Filters are transformed before
("forward", "gated") or, with "backward", at each call, as autograd does. Times are
medians over rounds, in each of which both are run, by a GPU's own clock. The error is that
of y of some sequences against f64, relative in L2. --tiny runs all of it at small sizes.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import itertools
import random
import statistics

import torch
from gpu_conv import TYPES, once, origin, padded, relative_error
from torch import Tensor

import danaus
from danaus.torch import LongConv
from danaus.torch.functional import long_conv

FORMS = ("forward", "gated", "backward")
FIELDS = (
    "version torch device dtype form least most sequences channels numbers seconds "
    "equal_seconds ratio error"
).split()


def draw(least: int, most: int, sequences: int) -> list[int]:
    """Lengths whose sum is a multiple of their number."""
    chance = random.Random(sequences)
    lengths = [chance.randint(least, most) for _ in range(sequences)]
    for _ in range(sum(lengths) % sequences):
        lengths[lengths.index(max(lengths))] -= 1
    return lengths


class Problem:
    """The same numbers as sequences u[1, channels, numbers] and as equal rows."""

    def __init__(self, o, sequences: int, dtype: str):
        torch.manual_seed(sequences)
        lengths = draw(*o.range, sequences)
        self.offsets = torch.tensor([0, *itertools.accumulate(lengths)])
        self.numbers = sum(lengths)
        self.u = torch.randn(1, o.channels, self.numbers, device=o.device)
        self.u = self.u.to(TYPES[dtype])
        self.rows = self.u.reshape(sequences, o.channels, -1)
        self.k = torch.randn(o.channels, o.range[1], device=o.device)
        self.k /= o.range[1] ** 0.5

    def forward(self, gated: bool):
        # A module keeps the filters of its last call: one for each kind of rows.
        made = [LongConv(*self.k.shape, skip=False, filter=self.k) for _ in range(2)]
        conv = [m.to(self.u.device).freeze() for m in made]

        def call(u: Tensor, offsets) -> Tensor:
            with torch.no_grad():
                gates = (u, u) if gated else ()
                return conv[offsets is None](u, *gates, offsets=offsets)

        return call

    def backward(self):
        kept = {}

        def call(u: Tensor, offsets) -> tuple:
            if (offsets is None) not in kept:
                x, k = u.detach().requires_grad_(), self.k.detach().requires_grad_()
                y = long_conv(x, k, offsets=offsets)
                kept[offsets is None] = y, (x, k), torch.randn_like(y)
            y, inputs, dy = kept[offsets is None]
            return torch.autograd.grad(y, inputs, dy, retain_graph=True)

        return call

    def error(self) -> float:
        y, worst = self.forward(False)(self.u, self.offsets), 0.0
        for begin, end in itertools.islice(itertools.pairwise(self.offsets), 4):
            u, k = self.u[0, :4, begin:end].double(), self.k[:4, : end - begin].double()
            n = padded("causal", int(end - begin))
            exact = exact_rows(u, k, n)
            worst = max(worst, relative_error(y[0, :4, begin:end], exact))
        return worst

    def measure(self, form: str, rounds: int) -> dict:
        call = self.backward() if form == "backward" else self.forward(form == "gated")
        runs = (lambda: call(self.u, self.offsets)), (lambda: call(self.rows, None))
        times = [[once(self.u.device.type, run) for run in runs] for _ in range(rounds)]
        packed, equal = (statistics.median(t) for t in zip(*times[2:]))
        return {
            "numbers": self.numbers,
            "seconds": f"{packed:.4g}",
            "equal_seconds": f"{equal:.4g}",
            "ratio": f"{packed / equal:.3f}",
            "error": f"{self.error():.2g}",
        }


def exact_rows(u: Tensor, k: Tensor, n: int) -> Tensor:
    z = torch.fft.rfft(u, n) * torch.fft.rfft(k, n)
    return torch.fft.irfft(z, n)[..., : u.shape[-1]]


def run(o, out) -> None:
    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    asked = {"version": danaus.__version__, "torch": torch.__version__}
    asked |= {"device": name.replace(" ", "_"), "channels": o.channels}
    asked |= dict(zip(("least", "most"), o.range))
    for sequences, dtype in itertools.product(o.sequences, o.dtypes.split(",")):
        problem = Problem(o, sequences, dtype)
        for form in o.forms.split(","):
            found = problem.measure(form, o.rounds + 2)
            this = {"dtype": dtype, "form": form, "sequences": sequences}
            out.writerow(asked | this | found)
            print(
                f"{sequences:5} sequences, {dtype:5} {form:9} "
                f"{1e3 * float(found['seconds']):9.3f} ms, equal rows "
                f"{1e3 * float(found['equal_seconds']):9.3f} ms: x{found['ratio']}  "
                f"error {found['error']}",
                flush=True,
            )


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--lengths", default="100,8000")
    p.add_argument("--sequences", default="64")
    p.add_argument("--channels", type=int, default=768)
    p.add_argument("--dtypes", default="f16,f32")
    p.add_argument("--forms", default=",".join(FORMS))
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--threads", type=int)
    p.add_argument("--tiny", action="store_true")
    o = p.parse_args()
    if o.tiny:
        o.lengths, o.sequences, o.channels, o.dtypes = "5,300", "1,7", 4, "f16,f32"
    o.range = [int(n) for n in o.lengths.split(",")]
    o.sequences = [int(n) for n in o.sequences.split(",")]
    return o


def main() -> None:
    o = options()
    if o.threads:
        torch.set_num_threads(o.threads)
    with open(o.out, "w", newline="", buffering=1) as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        run(o, out)


if __name__ == "__main__":
    main()
