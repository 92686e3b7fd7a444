#!/usr/bin/env python3
"""Times a training step of a causal long convolution whose sequences several GPUs share.

    group.py OUT.csv [--ranks 1,2,4,8] [--length N] [--batch N] [--channels N] [--dtype bf16]
        [--kind causal] [--rounds N] [--seed SEED] [--device cuda|cpu] [--tiny]

A step is forward and backward of LongConv with gradients of u and of the filters, and the
mean of the filters' gradients over the ranks, on every rank. Each rank has 1 / ranks of
the length. "seconds" is the median over rounds of the slowest rank's time; "local" that of
steps in which filters' gradients stay on the ranks that made them; "exchange" is the time
of the two all-to-alls of a forward pass alone, in one part each. All are of steps one
after the other, timed by the host. "ratio" is the time of the first number of
ranks over "seconds"; "memory" the most bytes of the GPU's memory on a rank in a step. The
error is that of y of 4 channels against f64, relative in L2. By default ranks are 1, 2, 4
and so on, up to the number of GPUs. --tiny runs all of it at small sizes.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from unittest import mock

import torch
from gpu_conv import TYPES, origin, padded, relative_error
from torch import Tensor
from torch import distributed as dist

import danaus
from danaus.torch import LongConv, average_gradients

CHECKED = 4  # channels
FIELDS = (
    "version torch device dtype kind ranks length batch channels seconds local exchange "
    "ratio memory error"
).split()


class Step:
    """A rank's piece of the problem; all ranks draw the same numbers."""

    def __init__(self, o: argparse.Namespace, rank: int, ranks: int):
        self.device = f"cuda:{rank}" if o.device == "cuda" else "cpu"
        self.o, self.rank, self.ranks = o, rank, ranks
        torch.manual_seed(o.seed)
        shape = (o.batch, o.channels, o.length)
        whole = torch.randn(2, *shape, device=self.device).to(TYPES[o.dtype])
        self.first = whole[0, :1, :CHECKED].clone()
        u, dy = (x.chunk(ranks, 2)[rank].clone() for x in whole)
        self.u, self.dy = u.requires_grad_(), dy
        self.conv = LongConv(o.channels, o.length, o.kind, skip=False, group="world")
        self.conv.to(self.device)

    def run(self) -> None:
        self.u.grad = self.conv.weight.grad = None
        self.conv(self.u).backward(self.dy)
        average_gradients(self.conv)

    def local(self) -> None:
        with mock.patch.object(dist, "batch_isend_irecv", lambda pairs: []):
            self.run()

    def exchange(self) -> None:
        """There and back: channels * length / ranks numbers of each rank."""
        if self.ranks > 1:
            x = self.u.detach().flatten()
            x = x[: len(x) // self.ranks * self.ranks]
            for _ in range(2):
                dist.all_to_all_single(torch.empty_like(x), x)

    def wait(self) -> None:
        if self.o.device == "cuda":
            torch.cuda.synchronize()

    def seconds(self, call) -> float:
        """Of a call on the slowest rank."""
        call()
        found = []
        for _ in range(self.o.rounds):
            self.wait()
            dist.barrier()
            start = time.perf_counter()
            for _ in range(self.o.calls):
                call()
            self.wait()
            took = torch.tensor(time.perf_counter() - start, device=self.device)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            found.append(float(took) / self.o.calls)
        return statistics.median(found)

    def memory(self) -> int:
        if self.o.device == "cpu":
            return 0
        torch.cuda.reset_peak_memory_stats()
        self.run()
        self.wait()
        return torch.cuda.max_memory_allocated()

    @torch.no_grad()
    def error(self) -> float:
        own = self.conv(self.u)[:1, :CHECKED].contiguous()
        pieces = [torch.empty_like(own) for _ in range(self.ranks)]
        dist.all_gather(pieces, own)
        n = padded(self.o.kind, self.o.length)
        spectrum = torch.fft.rfft(self.conv.weight[:CHECKED].double(), n)
        return relative_error(torch.cat(pieces, 2), exact(self.first, spectrum, n))


def exact(u: Tensor, spectrum: Tensor, n: int) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(u.double(), n) * spectrum, n)[..., : u.shape[2]]


def run_rank(o: argparse.Namespace) -> None:
    """One of `ranks` processes, which meet at a file; the first writes what was found."""
    rank, ranks, meet = o.rank
    if o.device == "cuda":
        torch.cuda.set_device(int(rank))
    backend = "nccl" if o.device == "cuda" else "gloo"
    sizes = {"rank": int(rank), "world_size": int(ranks)}
    dist.init_process_group(backend, init_method=f"file://{meet}", **sizes)
    step = Step(o, int(rank), int(ranks))
    found = {
        "seconds": step.seconds(step.run),
        "local": step.seconds(step.local),
        "exchange": step.seconds(step.exchange),
        "memory": step.memory(),
        "error": step.error(),
    }
    if rank == "0":
        pathlib.Path(o.out).write_text(json.dumps(found))
    dist.destroy_process_group()


def measure(ranks: int) -> dict:
    """What so many processes of this program find."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "found")
        command = [sys.executable, __file__, str(out), *sys.argv[2:], "--rank"]
        more = str(ranks), f"{folder}/meet"
        started = [subprocess.Popen([*command, str(r), *more]) for r in range(ranks)]
        if any([process.wait() for process in started]):
            raise SystemExit(f"a process of {ranks} failed")
        return json.loads(out.read_text())


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--ranks")
    p.add_argument("--length", type=int, default=1 << 20)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--channels", type=int, default=128)
    p.add_argument("--dtype", default="bf16", choices=TYPES)
    p.add_argument("--kind", default="causal", choices=("causal", "circular"))
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)
    o = p.parse_args()
    o.calls = 5
    if o.tiny:
        o.length, o.channels, o.rounds, o.calls = 120, 6, 1, 1
    gpus = torch.cuda.device_count() if o.device == "cuda" else 2
    usual = [1 << i for i in range(gpus.bit_length())]
    o.ranks = [int(n) for n in o.ranks.split(",")] if o.ranks else usual
    return o


def main() -> None:
    o = options()
    if o.rank:
        return run_rank(o)
    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    about = {"version": danaus.__version__, "torch": torch.__version__}
    about |= {"device": name.replace(" ", "_"), "dtype": o.dtype, "kind": o.kind}
    about |= {"length": o.length, "batch": o.batch, "channels": o.channels}
    first = None
    with open(o.out, "w", newline="", buffering=1) as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        for ranks in o.ranks:
            found = measure(ranks)
            first = first or found["seconds"]
            ratio = first / found["seconds"]
            names = "seconds", "local", "exchange", "error"
            numbers = {name: f"{found[name]:.4g}" for name in names}
            numbers |= {"memory": found["memory"], "ratio": f"{ratio:.2f}"}
            out.writerow(about | {"ranks": ranks} | numbers)
            print(
                f"{ranks} ranks  {1e3 * found['seconds']:8.3f} ms, x{ratio:5.2f}  local "
                f"{1e3 * found['local']:8.3f} ms  exchange "
                f"{1e3 * found['exchange']:8.3f} ms  error {found['error']:.2g}",
                flush=True,
            )


if __name__ == "__main__":
    main()
