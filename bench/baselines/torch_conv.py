#!/usr/bin/env python3
"""Times danaus.torch's causal long convolutions beside torch.fft in one process, on the
same tensors, in turns.

    PYTHONPATH=build/python/tree torch_conv.py OUT.csv [--threads N] [--seconds S] [--cpu-time]
        [PROBLEM ...]

A problem is "length,batch,channels"; every channel has a filter as long as the signal, in
f32. Three forms: "forward", with filters transformed at each call; "cached", a frozen
LongConv beside a product with a spectrum that was made before; "train", forward
and all gradients by autograd. torch.fft pads rows to the faster of two lengths, the least
power of two and the least product of 2, 3, 5 and 7. Before anything is timed the results
are compared, those of gradients too; `error` is that of danaus against f64. --cpu-time
counts the time that the processors work, for one thread on a machine with others at work.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import functools
import os
import statistics
import time

import torch

import danaus
import origin
from conv_peers import in_turns, smooth
from danaus.torch import LongConv
from danaus.torch.functional import long_conv

FORMS = ("forward", "cached", "train")
FIELDS = ("version torch threads form length batch channels runs seconds p10 p90 error "
          "torch_seconds torch_padded ratio").split()
PROBLEMS = [f"{1 << p},{batch},{channels}" for p in range(8, 17)
            for batch, channels in ((8, 64), (1, 64))]
PROBLEMS += [f"{length},{batch},64" for length in (1000, 44100) for batch in (8, 1)]
PROBLEMS += [f"{1 << p},1,64" for p in (17, 18, 19)] + [f"{1 << 20},1,16"]


def by_fft(n, length, u, kf):
    return torch.fft.irfft(torch.fft.rfft(u, n) * kf, n)[..., :length]


def train(convolve, u, k, dy):
    return torch.autograd.grad(convolve(u, k), (u, k), dy)


class Problem:
    """Tensors, and every form as a function of both sides."""

    def __init__(self, length, batch, channels):
        torch.manual_seed(length)
        self.length = length
        self.u, self.dy = (torch.randn(batch, channels, length) for _ in range(2))
        self.conv = LongConv(channels, length, skip=False).freeze()
        self.k = self.conv.weight.detach()
        self.needed = [x.clone().requires_grad_() for x in (self.u, self.k)]

    def ours(self, form):
        if form == "cached":
            return lambda: self.conv(self.u)
        if form == "forward":
            return lambda: long_conv(self.u, self.k)
        return lambda: train(long_conv, *self.needed, self.dy)

    def theirs(self, form, n):
        convolve = functools.partial(by_fft, n, self.length)
        if form == "cached":
            kf = torch.fft.rfft(self.k, n)
            return lambda: convolve(self.u, kf)

        def whole(u, k):
            return convolve(u, torch.fft.rfft(k, n))

        if form == "forward":
            return lambda: whole(self.u, self.k)
        return lambda: train(whole, *self.needed, self.dy)


def difference(found, exact):
    """The largest relative difference in norm of two tensors, or of tuples of tensors."""
    pairs = [(found, exact)] if torch.is_tensor(found) else zip(found, exact)
    return max(float((a.double() - b).norm() / b.double().norm()) for a, b in pairs)


def error_of(problem, form, found):
    """On the first four channels."""
    some = [x[..., :4, :].double().requires_grad_() for x in (problem.u, problem.k)]
    exact = Problem.__new__(Problem)
    exact.u, exact.k = (x.detach() for x in some)
    exact.length, exact.needed = problem.length, some
    exact.dy = problem.dy[:, :4].double()
    cut = found[:, :4] if torch.is_tensor(found) else [x[..., :4, :] for x in found]
    return difference(cut, exact.theirs(form, 2 * problem.length)())


def measure(problem, form, options):
    """Fields of a record."""
    lengths = {smooth(2 * problem.length - 1), 1 << (2 * problem.length - 2).bit_length()}
    with torch.set_grad_enabled(form == "train"):
        ours = problem.ours(form)
        theirs = {n: problem.theirs(form, n) for n in lengths}
        found = ours()
        for run in theirs.values():
            if not difference(found, run()) < 1e-5:
                raise RuntimeError("torch.fft and danaus differ")
        error = error_of(problem, form, found)
        del found
        runs = {"danaus": ours} | theirs
        times = in_turns({name: lambda _, run=run: run() for name, run in runs.items()},
                         options.seconds, options.now)
    mine = sorted(times.pop("danaus"))
    best = min(times, key=lambda n: statistics.median(times[n]))
    seconds, other = statistics.median(mine), statistics.median(times[best])
    return {
        "runs": len(mine), "seconds": f"{seconds:.6g}",
        "p10": f"{mine[len(mine) // 10]:.6g}", "p90": f"{mine[len(mine) * 9 // 10]:.6g}",
        "error": f"{error:.3e}", "torch_seconds": f"{other:.6g}", "torch_padded": best,
        "ratio": f"{other / seconds:.3f}",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.3, help="for each side and form")
    parser.add_argument("--cpu-time", dest="now", action="store_const",
                        const=time.process_time, default=time.perf_counter)
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("problems", nargs="*")
    options = parser.parse_intermixed_args()
    torch.set_num_threads(options.threads)
    ratios = {form: [] for form in options.forms.split(",")}
    with open(options.out, "w", newline="") as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        for text in options.problems or PROBLEMS:
            length, batch, channels = map(int, text.split(","))
            problem = Problem(length, batch, channels)
            for form in ratios:
                record = measure(problem, form, options)
                ratios[form].append(float(record["ratio"]))
                out.writerow({
                    "version": danaus.version(), "torch": torch.__version__,
                    "threads": options.threads, "form": form, "length": length,
                    "batch": batch, "channels": channels, **record})
                file.flush()
                print(text, form, record["seconds"], "torch.fft / danaus", record["ratio"],
                      flush=True)
    for form, found in ratios.items():
        print(f"{form}: median {statistics.median(found):.2f}, least {min(found):.2f}")


if __name__ == "__main__":
    main()
