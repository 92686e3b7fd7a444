#!/usr/bin/env python3
"""Times long convolutions on a GPU beside torch.fft, NVIDIA's kernels and the memory's
floor, in one process.

    gpu_conv.py OUT.csv [--seconds S] [--kinds causal,circular] [--dtypes f16,bf16,f32]
        [--forms forward,fresh,gated,backward] [--lengths N,N,...] [--rows N]
        [--accuracy accurate|fast] [--tiny]
    gpu_conv.py OUT.csv --any-length [--seconds S] [--dtypes f16] [--tiny]

Problems have 64 x 768 rows, or as many as --rows says, or as lie in 2 GiB; times are
those of 64 x 768 rows. Filters are transformed before ("forward", "gated") or, with
"fresh" and "backward", at each call, as autograd does. The floor is every array of the
size of u, once, at the rate of copying in the same run; torch.fft works in f32, padded to
a power of two unless the convolution is circular, and has its spectrum ready when we have
ours. fft_causal_conv1d of subquadratic-ops and that of cuDNN are timed where they are
installed: they are causal and take filters in time, so that they stand beside "fresh" and
"backward". The error is that of y of 4 filters against f64, and of gradients against
torch.fft's, relative in L2. --tiny runs all of it at small sizes, with --device cpu
without a GPU, to see that it works. bench/plot_conv.py draws the records.

--any-length has 40 lengths that are no powers of two, always the same: causal beside the
next power of two ("per_number": time for a number over that there) and circular beside
torch.fft; u has 512 MiB at most. All texts are compiled before, by several threads.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import concurrent.futures
import functools
import importlib
import pathlib
import random
import re
import statistics
import sys
import time

import torch
from torch import Tensor

import danaus
from danaus.torch import LongConv
from danaus.torch.functional import long_conv

sys.path.insert(0, str(pathlib.Path(__file__).parent / "baselines"))
import origin  # noqa: E402

BATCH, CHANNELS = 64, 768
MOST_BYTES = 1 << 31  # of u in f32
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
KINDS, FORMS = ("circular", "causal"), ("forward", "fresh", "gated", "backward")
PEERS = {"subquadratic": "subquadratic_ops_torch.fft_causal_conv1d", "cudnn": "cudnn.ops"}
FIELDS = (
    "version torch device kind dtype form length batch channels seconds floor "
    "over_floor torch_seconds ratio error accuracy model_seconds memory torch_memory "
    "subquadratic_seconds cudnn_seconds"
).split()
KNOWN = (1000, 1100, 3000, 44100, 65537, 1000003)  # of the lengths of --any-length
ANY_LENGTHS, COMPILERS = 40, 6
ANY_FIELDS = (
    "version torch device kind dtype length batch channels seconds over_floor next "
    "next_seconds per_number torch_seconds ratio error"
).split()


# ---- time ----


SHORT = 4e-3  # seconds: shorter calls follow each other
MOST_CALLS = 64


def once(device: str, run, calls: int = 1) -> float:
    """Seconds of so many calls, by a GPU's own clock."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return time.perf_counter() - start
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(calls):
        run()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) * 1e-3


def timed(device: str, run, rounds: int = 7) -> float:
    """Median seconds of a call, after two that do not count."""
    calls = 1
    once(device, run, 2)
    while once(device, run, calls) < SHORT and calls < MOST_CALLS:
        calls *= 2
    return statistics.median(once(device, run, calls) for _ in range(rounds)) / calls


def copy_rate(device: str, numbers: int) -> float:
    """Bytes read and written a second."""
    a = torch.empty(numbers, dtype=torch.float32, device=device)
    b = torch.empty_like(a)
    return 2 * a.nbytes / timed(device, lambda: b.copy_(a))


# ---- convolutions ----


def padded(kind: str, length: int) -> int:
    return length if kind == "circular" else 1 << (2 * length - 1).bit_length()


def by_fft(u: Tensor, spectrum: Tensor, n: int) -> Tensor:
    y = torch.fft.irfft(torch.fft.rfft(u.float(), n) * spectrum, n)
    return y[..., : u.shape[-1]].to(u.dtype)


def peers() -> dict:
    """NVIDIA's causal convolutions that are installed: functions of u and filters."""
    found = {}
    for name, module in PEERS.items():
        try:
            found[name] = importlib.import_module(module).fft_causal_conv1d
        except (ImportError, AttributeError, OSError):
            print(f"{module} is not installed")
    return found


def peak_memory(device: str, run) -> int | str:
    """Bytes that PyTorch allocates in a call, its result included; unknown on a CPU."""
    if device == "cpu":
        return ""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return torch.cuda.max_memory_allocated() - before


def relative_error(y: Tensor, exact: Tensor) -> float:
    return float((y.double() - exact.double()).norm() / exact.double().norm())


class Problem:
    """A convolution with an input, gates and filters."""

    def __init__(self, o, kind: str, dtype: str, length: int):
        device, rows, self.accuracy = o.device, o.rows, o.accuracy
        self.others = o.peers
        torch.manual_seed(length)
        most = max(1, o.most_bytes // (length * 4))
        count = min(rows, BATCH * CHANNELS, most)
        self.channels = max(1, min(CHANNELS, count // BATCH))
        self.batch = max(1, min(BATCH, count // self.channels))
        self.device, self.kind, self.dtype, self.length = device, kind, dtype, length
        self.n = padded(kind, length)
        shape = (self.batch, self.channels, length)
        self.u = torch.randn(shape, device=device).to(TYPES[dtype])
        self.k = torch.randn(self.channels, length, device=device) / length**0.5
        self.scale = BATCH * CHANNELS / (self.batch * self.channels)

    def error(self, gates: tuple, y: Tensor) -> float:
        """The error of the first rows, against f64."""
        u, k, *gates = (
            x if x is None else x[..., :4, :].double() for x in (self.u, self.k, *gates)
        )
        p = u[:1] if gates[0] is None else u[:1] * gates[0][:1]
        z = torch.fft.rfft(p, self.n) * torch.fft.rfft(k, self.n)
        exact = torch.fft.irfft(z, self.n)[..., : self.length]
        exact = exact if gates[1] is None else exact * gates[1][:1]
        return relative_error(y[:1, :4], exact)

    @torch.no_grad()
    def forward(self, gated: bool) -> tuple:
        """Our call, PyTorch's, how many arrays they meet, our error."""
        conv = LongConv(
            self.channels,
            self.length,
            self.kind,
            skip=False,
            filter=self.k,
            accuracy=self.accuracy,
        ).to(self.device)
        conv.freeze()
        gates = (self.u.roll(1), self.u.roll(2)) if gated else (None, None)
        spectrum = torch.fft.rfft(self.k, self.n)

        @torch.no_grad()
        def ours() -> Tensor:
            return conv(self.u, *gates)

        @torch.no_grad()
        def theirs() -> Tensor:
            y = by_fft(self.u * gates[0] if gated else self.u, spectrum, self.n)
            return y * gates[1] if gated else y

        return ours, theirs, 4 if gated else 2, self.error(gates, ours())

    @torch.no_grad()
    def fresh(self) -> tuple:
        """The same, with filters that are transformed at each call."""

        @torch.no_grad()
        def ours() -> Tensor:
            return long_conv(self.u, self.k, kind=self.kind, accuracy=self.accuracy)

        @torch.no_grad()
        def theirs() -> Tensor:
            return by_fft(self.u, torch.fft.rfft(self.k, self.n), self.n)

        return ours, theirs, 2, self.error((None, None), ours())

    def plan(self) -> dict:
        """What the plan says: seconds by its model, bytes beside u and y."""
        kind, dtype, device = self.kind, self.dtype, self.device.replace("cuda", "cuda:0")
        options = {"kind": kind, "dtype": dtype, "accuracy": self.accuracy}
        plan = danaus.ConvPlan(self.channels, self.length, device=device, **options)
        row, spectrum = (
            float(re.search(rf"(\S+) {unit}", plan.describe())[1])
            for unit in ("us a row", "MiB a filter")
        )
        scratch = plan.scratch_bytes(self.batch).forward
        return {
            "model_seconds": f"{1e-6 * row * BATCH * CHANNELS:.4g}",
            "memory": int(spectrum * self.channels * 2**20) + scratch,
        }

    def peers(self, form: str) -> dict:
        """Seconds of NVIDIA's kernels for forms in which they do the same."""
        if self.kind != "causal" or form not in ("fresh", "backward"):
            return {}
        found = {}
        for name, convolve in self.others.items():
            try:
                seconds = timed(self.device, self.call(convolve, form), 3)
            except (RuntimeError, ValueError) as refused:  # they have limits of their own
                print(f"{name}: {str(refused).splitlines()[0]}")
            else:
                found[f"{name}_seconds"] = f"{seconds * self.scale:.4g}"
        return found

    def call(self, convolve, form: str):
        """A peer's forward, or its gradients, after its y was found to be right."""
        needed = form == "backward"
        u, k = (x.detach().to(self.u.dtype) for x in (self.u, self.k))
        u, k = u.requires_grad_(needed), k.requires_grad_(needed)
        y = convolve(u, k)
        if not self.error((None, None), y.detach()) < 2e-2:
            raise SystemExit("a peer's convolution is another one")
        if not needed:
            return functools.partial(convolve, u, k)
        dy = torch.randn_like(y)
        return functools.partial(
            torch.autograd.grad, y, (u, k), dy, retain_graph=True
        )

    def backward(self) -> tuple:
        u, k = self.u.requires_grad_(), self.k.requires_grad_()
        y = long_conv(u, k, kind=self.kind, accuracy=self.accuracy)
        z = by_fft(u, torch.fft.rfft(k, self.n), self.n)
        dy = torch.randn_like(y)

        def ours() -> tuple:
            return torch.autograd.grad(y, (u, k), dy, retain_graph=True)

        def theirs() -> tuple:
            return torch.autograd.grad(z, (u, k), dy, retain_graph=True)

        error = max(relative_error(a, b) for a, b in zip(ours(), theirs()))
        return ours, theirs, 3, error

    def made(self, form: str) -> tuple:
        if form in ("forward", "gated"):
            return self.forward(form == "gated")
        return self.fresh() if form == "fresh" else self.backward()

    def measure(self, form: str, rate: float, beside: bool = True) -> dict:
        """beside: torch.fft is timed, too."""
        ours, theirs, arrays, error = self.made(form)
        seconds = timed(self.device, ours) * self.scale
        floor = arrays * self.u.nbytes * self.scale / rate
        found = {
            "batch": self.batch,
            "channels": self.channels,
            "seconds": f"{seconds:.4g}",
            "floor": f"{floor:.4g}",
            "over_floor": f"{seconds / floor:.2f}",
            "error": f"{error:.2g}",
            "accuracy": self.accuracy or "by_type",
        }
        if beside:
            other = timed(self.device, theirs, 3) * self.scale
            found |= {
                "torch_seconds": f"{other:.4g}",
                "ratio": f"{other / seconds:.2f}",
                "torch_memory": peak_memory(self.device, theirs),
            }
            found |= self.peers(form)
        return found | (self.plan() if form == "forward" else {})


# ---- any length ----


def any_lengths(tiny: bool) -> list[int]:
    """From 300 to 1,048,575, about as many of each octave."""
    if tiny:
        return [60, 100]
    r, found = random.Random(8), set(KNOWN)
    while len(found) < ANY_LENGTHS:
        length = int(300 * (2**20 / 300) ** r.random())
        if length & (length - 1):
            found.add(length)
    return sorted(found)


def next_power(length: int) -> int:
    return 1 << length.bit_length()


@torch.no_grad()
def compile_one(o, kind: str, length: int, dtype: str) -> None:
    conv = LongConv(1, length, kind, skip=False, accuracy=o.accuracy)
    conv.to(o.device)(torch.zeros(2, 1, length, device=o.device, dtype=TYPES[dtype]))


def compile_all(o, asked: list[tuple]) -> None:
    begin = time.time()
    with concurrent.futures.ThreadPoolExecutor(COMPILERS) as pool:
        list(pool.map(lambda problem: compile_one(o, *problem), asked))
    print(f"compiled in {time.time() - begin:.0f} s", flush=True)


def measure_any(o, rate: float, asked: list[tuple]):
    """Records, the next powers of two first, until the time is over."""
    begin, powers = time.time(), {}
    for kind, length, dtype in asked:
        if time.time() - begin > o.seconds:
            print("the time is over")
            return
        made = Problem(o, kind, dtype, length)
        found = made.measure("forward", rate, kind == "circular")
        if not length & (length - 1):
            powers[length, dtype] = found["seconds"]
            continue
        found |= {"kind": kind, "dtype": dtype, "length": length}
        if kind == "causal":
            more = next_power(length)
            next_seconds = powers[more, dtype]
            per_number = float(found["seconds"]) / length * more / float(next_seconds)
            found |= {"next": more, "next_seconds": next_seconds}
            found |= {"per_number": f"{per_number:.2f}"}
        yield found


def run_any(o, out, rate: float, about: dict) -> None:
    lengths, all_found = any_lengths(o.tiny), {}
    powers = sorted({next_power(length) for length in lengths})
    asked = [
        (kind, length, dtype)
        for dtype in o.dtypes.split(",")
        for kind, of in (("causal", powers + lengths), ("circular", lengths))
        for length in of
    ]
    compile_all(o, asked)
    for found in measure_any(o, rate, asked):
        out.writerow(about | {name: found.get(name, "") for name in ANY_FIELDS[3:]})
        is_causal = found["kind"] == "causal"
        number = float(found["per_number"] if is_causal else found["ratio"])
        all_found.setdefault((found["kind"], found["dtype"]), []).append(number)
        says = "of the next power of two" if is_causal else "times torch.fft's speed"
        print(
            f"{found['length']:8} {found['kind']:9} {found['dtype']:5} "
            f"{1e3 * float(found['seconds']):9.3f} ms  {found['over_floor']:>6} floors "
            f" {number:5.2f} {says}  error {found['error']}",
            flush=True,
        )
    for (kind, dtype), numbers in all_found.items():
        missed = sum(n > 1.6 if kind == "causal" else n < 1 for n in numbers)
        worst = max(numbers) if kind == "causal" else min(numbers)
        print(f"{kind} {dtype}: {len(numbers)} lengths, worst {worst}, {missed} miss")


# ---- the program ----


def questions(o):
    for length in map(int, o.lengths.split(",")):
        for kind in o.kinds.split(","):
            for dtype in o.dtypes.split(","):
                for form in o.forms.split(","):
                    yield length, kind, dtype, form


def run(o, out) -> None:
    begin, rate = time.time(), copy_rate(o.device, 1 << (20 if o.tiny else 28))
    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    print(f"copies at {rate / 1e12:.2f} TB/s")
    if o.any_length:
        about = {"version": danaus.__version__, "torch": torch.__version__}
        run_any(o, out, rate, about | {"device": name.replace(" ", "_")})
        return
    for length, kind, dtype, form in questions(o):
        if time.time() - begin > o.seconds:
            return
        asked = {"kind": kind, "dtype": dtype, "form": form, "length": length}
        asked |= {"version": danaus.__version__, "torch": torch.__version__}
        found = Problem(o, kind, dtype, length).measure(form, rate)
        out.writerow(asked | {"device": name.replace(" ", "_")} | found)
        print(
            f"{length:8} {kind:9} {dtype:5} {form:9} "
            f"{1e3 * float(found['seconds']):9.3f} ms  {found['over_floor']:>6} floors  "
            f"torch x{found['ratio']:>6}  error {found['error']}",
            flush=True,
        )


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--seconds", type=float, default=500)
    p.add_argument("--kinds", default=",".join(KINDS))
    p.add_argument("--dtypes")
    p.add_argument("--forms", default="forward")
    p.add_argument("--lengths", default=",".join(str(1 << i) for i in range(8, 23)))
    p.add_argument("--rows", type=int, default=BATCH * CHANNELS)
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--accuracy", choices=("accurate", "fast"))
    p.add_argument("--any-length", action="store_true")
    p.add_argument("--tiny", action="store_true")
    o = p.parse_args()
    o.dtypes = o.dtypes or ("f16" if o.any_length else "f16,f32")
    o.peers = {} if o.any_length else peers()
    o.most_bytes = MOST_BYTES // (2 if o.any_length else 1)
    if o.tiny:
        o.lengths, o.rows = "60,256", 128
        o.dtypes, o.forms = ",".join(TYPES), ",".join(FORMS)
    return o


def main() -> None:
    o = options()
    with open(o.out, "w", newline="", buffering=1) as file:
        out = origin.Table(file, ANY_FIELDS if o.any_length else FIELDS)
        out.writeheader()
        run(o, out)


if __name__ == "__main__":
    main()
