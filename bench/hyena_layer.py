#!/usr/bin/env python3
"""Times a Hyena layer beside the same through torch.fft, in the same rounds.

    hyena_layer.py OUT.csv [--device cuda|cpu] [--width 864] [--lengths 2048,8192]
        [--tokens 65536] [--dtypes f16,bf16] [--orders 2] [--forms rows] [--rounds N]
        [--tiny]

The layer is `danaus.torch.HyenaOperator`, with explicit filters as long as its sequences;
the other one has its parameters, torch.nn.Linear, a depthwise Conv1d, and transforms in
f32 of twice the length, as the authors' code has. Phases are "forward", without gradients,
and "training", a forward and a backward by autograd to x and all parameters. "operator"
is what lies between the projections. The form "packed" has sequences of half the length to
all of it, one behind the other, where the other layer has rows that zeros fill up. Times
are medians over rounds in which both take turns, by a GPU's own clock. The error is that
of y against the other layer's in f64, relative in L2. --tiny runs all of it at small sizes.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import copy
import itertools
import random
import statistics

import torch
from gpu_conv import TYPES, once, origin, relative_error
from torch import Tensor, nn

import danaus
from danaus.torch import HyenaOperator, freeze

FIELDS = (
    "version torch device form part dtype order width length batch phase seconds "
    "torch_seconds ratio error"
).split()


class ByFFT(nn.Module):
    """The formulation of Hyena's authors, with the parameters of a HyenaOperator."""

    def __init__(self, like: HyenaOperator):
        super().__init__()
        self.like = like

    def mix(self, u: Tensor) -> Tensor:
        short, length = self.like.short, u.shape[2]
        taps = short.weight.flip(1)[:, None].to(u.dtype)
        z = nn.functional.conv1d(
            u,
            taps,
            short.bias.to(u.dtype),
            padding=short.taps - 1,
            groups=u.shape[1],
        )[..., :length]
        *gates, v = z.split(self.like.width, 1)
        wide = torch.promote_types(u.dtype, torch.float32)
        for conv, gate in zip(self.like.long, reversed(gates)):
            v = v * gate
            k = torch.fft.rfft(conv.weight.to(wide), 2 * length)
            y = torch.fft.rfft(v.to(wide), 2 * length) * k
            y = torch.fft.irfft(y, 2 * length)[..., :length]
            v = (y + v * conv.skip[:, None]).to(u.dtype)
        return v * gates[0]

    def forward(self, x: Tensor) -> Tensor:
        u = self.like.in_proj(x).mT
        return self.like.out_proj(self.mix(u).mT)


class Problem:
    """Both layers, and what they are run on."""

    def __init__(self, o, form: str, length: int, dtype: str, order: int):
        torch.manual_seed(length)
        self.device, self.kind = o.device, TYPES[dtype]
        self.batch = max(1, o.tokens // length)
        made = {"device": o.device, "dtype": self.kind}
        self.ours = HyenaOperator(o.width, length, order, **made)
        self.other = ByFFT(self.ours)
        x = torch.randn(self.batch, length, o.width, **made)
        u = torch.randn(self.batch, (order + 1) * o.width, length, **made)
        self.inputs = {"layer": [x, x], "operator": [u, u]}
        self.offsets = None
        if form == "packed":
            self.pack(length)

    def pack(self, length: int) -> None:
        """Sequences are the first numbers of the other layer's rows."""
        chance = random.Random(length)
        lengths = [chance.randint(length // 2, length) for _ in range(self.batch)]
        self.offsets = torch.tensor([0, *itertools.accumulate(lengths)])
        x, u = self.inputs["layer"][1], self.inputs["operator"][1]
        x = torch.cat([row[:n] for row, n in zip(x, lengths)])[None]
        u = torch.cat([row[:, :n] for row, n in zip(u, lengths)], 1)[None]
        self.inputs["layer"][0], self.inputs["operator"][0] = x, u

    @torch.no_grad()
    def error(self) -> float:
        wide, (x, rows) = ByFFT(copy.deepcopy(self.ours).double()), self.inputs["layer"]
        n = rows.shape[1] if self.offsets is None else int(self.offsets[1])
        y = self.ours(x, self.offsets)[:1, :n]
        return relative_error(y, wide(rows[:1].double())[:, :n])

    def runs(self, part: str, phase: str) -> list:
        """Calls of both: of a layer, or of what is between its projections."""

        def run(layer: nn.Module, x: Tensor, *offsets):
            whole = layer if part == "layer" else layer.mix

            def call(x: Tensor) -> Tensor:
                return whole(x, *offsets)

            if phase == "forward":

                def forward():
                    with torch.no_grad():
                        return call(x)

                return forward
            x = x.detach().requires_grad_()
            used = self.ours if part == "layer" else [self.ours.short, self.ours.long]
            modules = [used] if isinstance(used, nn.Module) else used
            inputs = [x, *(p for module in modules for p in module.parameters())]
            dy = torch.randn_like(call(x))
            return lambda: torch.autograd.grad(call(x), inputs, dy)

        x, rows = self.inputs[part]
        ours = self.ours
        if phase == "forward":
            ours = freeze(copy.deepcopy(ours))
        return [run(ours, x, self.offsets), run(self.other, rows)]

    def measure(self, part: str, phase: str, rounds: int) -> dict:
        runs = self.runs(part, phase)
        times = [[once(self.device, run) for run in runs] for _ in range(rounds + 2)]
        ours, other = (statistics.median(t) for t in zip(*times[2:]))
        return {
            "seconds": f"{ours:.4g}",
            "torch_seconds": f"{other:.4g}",
            "ratio": f"{other / ours:.2f}",
        }


def run(o, out) -> None:
    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    known = {"version": danaus.__version__, "torch": torch.__version__}
    known |= {"device": name.replace(" ", "_"), "width": o.width}
    for asked in itertools.product(o.forms, o.lengths, o.dtypes, o.orders):
        problem = Problem(o, *asked)
        form, length, dtype, order = asked
        asked = dict(zip(("form", "length", "dtype", "order"), asked))
        asked |= {"batch": problem.batch, "error": f"{problem.error():.2g}"}
        for part, phase in itertools.product(
            ("layer", "operator"), ("forward", "training")
        ):
            found = problem.measure(part, phase, o.rounds)
            out.writerow(known | asked | {"part": part, "phase": phase} | found)
            print(
                f"{form} {problem.batch:3} x {length:6} {dtype:4} order {order} {part:8} "
                f"{phase:8} {1e3 * float(found['seconds']):9.3f} ms, torch.fft "
                f"{1e3 * float(found['torch_seconds']):9.3f} ms: x{found['ratio']}  "
                f"error {asked['error']}",
                flush=True,
            )


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--width", type=int, default=864)
    p.add_argument("--lengths", default="2048,8192")
    p.add_argument("--tokens", type=int, default=65536, help="of a batch")
    p.add_argument("--dtypes", default="f16,bf16")
    p.add_argument("--orders", default="2")
    p.add_argument("--forms", default="rows", help="rows,packed")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--tiny", action="store_true")
    o = p.parse_args()
    if o.tiny:
        o.width, o.lengths, o.tokens, o.orders, o.rounds = 4, "40,64", 128, "2,3", 1
        o.dtypes = "f32" if o.device == "cpu" else "f16,f32"
        o.forms = "rows,packed"
    o.lengths = [int(n) for n in o.lengths.split(",")]
    o.orders = [int(n) for n in o.orders.split(",")]
    o.dtypes, o.forms = o.dtypes.split(","), o.forms.split(",")
    return o


def main() -> None:
    o = options()
    with open(o.out, "w", newline="") as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        run(o, out)


if __name__ == "__main__":
    main()
