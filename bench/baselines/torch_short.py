#!/usr/bin/env python3
"""Times danaus.torch's convolutions of few taps, and their gradients, beside PyTorch's
depthwise conv1d and, where it is installed, causal_conv1d, in one process; on a GPU, or on
the processor where there is none.

    PYTHONPATH=build/python/tree torch_short.py OUT.csv [--dtypes f16,bf16,f32]
        [--layouts first,last] [--forms forward,gradient] [--taps 3,4,7] [--bytes N]
        [LENGTH ...]

u and y have BATCH x 768 rows of each length, BATCH being 64, or less where u would have more
than --bytes. Filters see the past alone; all have a bias. `gradient` is du, dk and dbias.
floor: u and y once, or u, dy and du, at the rate of copying in the same run; caches
hold nothing of the operands. Before anything is timed the results are compared with
conv1d's in f64, on some channels: `error` is relative, in L2, the largest of all results.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import statistics

import torch

import danaus
import origin
from danaus.torch.functional import short_conv
from torch_place import DTYPES, Gpu, Processor, time_call

try:
    from causal_conv1d import causal_conv1d_fn
except ImportError:
    causal_conv1d_fn = None

BATCH, CHANNELS, CHECKED = 64, 768, 4
LENGTHS = [1 << p for p in (10, 12, 14, 16, 18, 20)] + [1000, 4095]
LIMITS = {"f16": 2e-3, "bf16": 1.5e-2, "f32": 1e-5}
FIELDS = ("version torch device dtype layout form length taps batch channels seconds floor "
          "over_floor conv1d_seconds causal_conv1d_seconds ratio error").split()


def by_conv1d(u, k, bias, last):
    """In the layout of u; k[channels][taps] in the order of danaus."""
    rows = u.transpose(1, 2) if last else u
    taps = k.shape[1]
    y = torch.nn.functional.conv1d(
        rows, k.flip(1)[:, None].to(u.dtype), bias.to(u.dtype), padding=taps - 1,
        groups=k.shape[0])[..., :u.shape[1] if last else u.shape[2]]
    return y.transpose(1, 2) if last else y


def by_causal_conv1d(u, k, bias, last):
    rows = u.transpose(1, 2) if last else u
    y = causal_conv1d_fn(rows, k.flip(1).contiguous(), bias)
    return y.transpose(1, 2) if last else y


class Problem:
    """Tensors of a problem, and each way to make its results."""

    def __init__(self, place, length, taps, last, name, most):
        self.last, self.type = last, DTYPES[name][0]
        size = self.type.itemsize
        self.batch = max(1, min(BATCH, most // (CHANNELS * length * size)))
        shape = (length, CHANNELS) if last else (CHANNELS, length)
        torch.manual_seed(length + taps)
        self.u, self.dy = (
            torch.randn(self.batch, *shape, device=place.name, dtype=self.type) for _ in range(2))
        self.k = torch.randn(CHANNELS, taps, device=place.name)
        self.bias = torch.randn(CHANNELS, device=place.name)

    def ways(self):
        found = {"danaus": lambda u, k, b: short_conv(
            u, k, b, "channels_last" if self.last else "channels_first")}
        found["conv1d"] = lambda u, k, b: by_conv1d(u, k, b, self.last)
        if causal_conv1d_fn and 2 <= self.k.shape[1] <= 4:
            found["causal_conv1d"] = lambda u, k, b: by_causal_conv1d(u, k, b, self.last)
        return found

    def runs(self, form):
        """Each way as a function that makes its results, a tuple."""
        runs = {}
        for name, way in self.ways().items():
            if form == "forward":
                runs[name] = lambda way=way: (way(self.u, self.k, self.bias),)
                continue
            needed = [x.detach().requires_grad_() for x in (self.u, self.k, self.bias)]
            y = way(*needed)
            runs[name] = lambda y=y, needed=needed: torch.autograd.grad(
                y, needed, self.dy, retain_graph=True)
        return runs

    def error(self, form, found):
        """The error of some channels."""
        cut = (slice(None), slice(None), slice(CHECKED)) if self.last else (
            slice(None), slice(CHECKED))
        u, dy = (x[cut].double() for x in (self.u, self.dy))
        needed = [x.requires_grad_() for x in (
            u, self.k[:CHECKED].double(), self.bias[:CHECKED].double())]
        y = by_conv1d(*needed, self.last)
        exact = (y,) if form == "forward" else torch.autograd.grad(y, needed, dy)
        parts = [found[0][cut], *(x[:CHECKED] for x in found[1:])]
        return max(((a.double() - b).norm() / b.norm()).item() for a, b in zip(parts, exact))


def measure(place, problem, form, name, rate):
    """Fields of a record."""
    with torch.set_grad_enabled(form == "gradient"):
        runs = problem.runs(form)
        error = problem.error(form, runs["danaus"]())
        if not error < LIMITS[name]:
            raise RuntimeError(f"danaus and conv1d differ: {error}")
        times = {way: statistics.median(time_call(place, run)) for way, run in runs.items()}
    seconds = times["danaus"]
    floor = (2 if form == "forward" else 3) * problem.u.nbytes / rate
    record = {
        "seconds": f"{seconds:.5g}", "floor": f"{floor:.5g}",
        "over_floor": f"{seconds / floor:.3f}", "error": f"{error:.2e}",
        "conv1d_seconds": f"{times['conv1d']:.5g}",
        "ratio": f"{min(v for way, v in times.items() if way != 'danaus') / seconds:.2f}",
    }
    if "causal_conv1d" in times:
        record["causal_conv1d_seconds"] = f"{times['causal_conv1d']:.5g}"
    return record


def copy_rate(place):
    data = torch.zeros(place.copied, dtype=torch.uint8, device=place.name)
    to = torch.empty_like(data)
    seconds = statistics.median(time_call(place, lambda: to.copy_(data)))
    return 2 * place.copied / seconds


def problems_of(options):
    return [(name, layout, int(taps), length)
            for name in options.dtypes.split(",") for layout in options.layouts.split(",")
            for taps in options.taps.split(",") for length in options.lengths or LENGTHS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--dtypes", default="f16,bf16,f32")
    parser.add_argument("--layouts", default="first,last")
    parser.add_argument("--forms", default="forward,gradient")
    parser.add_argument("--taps", default="3,4,7")
    parser.add_argument("--bytes", type=int, default=4 << 30)
    parser.add_argument("lengths", nargs="*", type=int)
    options = parser.parse_intermixed_args()
    torch.backends.cudnn.allow_tf32 = False
    place = Gpu() if torch.cuda.is_available() else Processor()
    rate = copy_rate(place)
    print(f"{place.describe()}: copies at {rate / 1e12:.2f} TB/s")
    with open(options.out, "w", newline="") as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        for name, layout, taps, length in problems_of(options):
            problem = Problem(place, length, taps, layout == "last", name, options.bytes)
            for form in options.forms.split(","):
                record = measure(place, problem, form, name, rate)
                out.writerow({
                    "version": danaus.version(), "torch": torch.__version__,
                    "device": place.describe(), "dtype": name, "layout": layout,
                    "form": form, "length": length, "taps": taps,
                    "batch": problem.batch, "channels": CHANNELS, **record})
                file.flush()
                print(name, layout, taps, "taps", length, form, record["seconds"],
                      "over floor", record["over_floor"], "others / danaus",
                      record["ratio"], flush=True)
            del problem
            place.forget()


if __name__ == "__main__":
    main()
