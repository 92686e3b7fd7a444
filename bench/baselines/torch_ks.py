#!/usr/bin/env python3
"""Times danaus beside PyTorch on one GPU, in one process, on the same inputs.

    torch_ks.py LIBRARY OUT.csv [--suite FILE] [--batch N] [--dtypes f16,f32]
                [--layouts first,last] [PROBLEM ...]

A problem is a pattern "a,b,c,d" or a chain "a,b,c,d a,b,c,d". PyTorch's ways: bmm (with
its permutations: appendix A.1 of arXiv 2405.15013), einsum, and the dense product.
Before each of 11 runs the second cache is filled with other data; times are medians.
limit = 3 us + max(bytes / copy rate, operations / peak), x and y of a chain once; rates
are an H200's (--rates). f32's peak is a third of tf32's. The error is that of danaus
against f64, on some columns of the batch.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import csv
import ctypes
import math
import statistics

import torch

DTYPES = {  # name: torch, danaus dtype, danaus math, peak by name
    "f32": (torch.float32, 1, 0, "f32"),
    "tf32": (torch.float32, 1, 1, "tf32"),
    "f16": (torch.float16, 2, 0, "f16"),
    "bf16": (torch.bfloat16, 3, 0, "bf16"),
}
RATES = {"copy": 4.27e12, "f32": 380e12 / 3, "tf32": 380e12, "f16": 764e12, "bf16": 796e12}
FIELDS = (
    "device torch operation problem dtype layout batch kernel median_us limit_us ratio "
    "error bmm_us einsum_us dense_us best best_us speedup"
).split()


class Pattern(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in "abcd"]


class Description(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int)
        for name in "layout dtype math effort adjoint gradients fresh keep".split()
    ] + [("batch", ctypes.c_int64), ("reserved", ctypes.c_uint32 * 8)]


class Danaus:
    """The C library through its ABI."""

    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.danaus_error_detail.restype = ctypes.c_char_p
        self.c.danaus_chain_weights.restype = ctypes.c_void_p
        self.c.danaus_ks_plan_describe.restype = ctypes.c_size_t
        self.device = ctypes.c_void_p()
        self("danaus_device_open", b"cuda:0", ctypes.byref(self.device))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self("danaus_device_set_stream", self.device, stream)

    def __call__(self, name, *arguments):
        if getattr(self.c, name)(*arguments):
            raise RuntimeError(self.c.danaus_error_detail().decode())

    def product(self, weights, dtype, last, batch):
        """(function of (x, y), description) for factors w[a][b][c][d]."""
        count = len(weights)
        patterns = (Pattern * count)(*(Pattern(*w.shape) for w in weights))
        chain, plan, packed = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self("danaus_chain_create", patterns, count, 1, ctypes.byref(chain))
        for i, w in enumerate(weights):
            data = w.float().cpu().contiguous()
            to = self.c.danaus_chain_weights(chain, i)
            ctypes.memmove(to, data.data_ptr(), data.numel() * 4)
        d = Description(int(last), dtype[1], dtype[2], keep=1, batch=batch)
        self(
            "danaus_ks_plan_create", self.device, patterns, count, ctypes.byref(d),
            ctypes.byref(plan),
        )
        self(
            "danaus_ks_weights_create", plan, self.device, chain, ctypes.byref(packed)
        )
        self.c.danaus_chain_destroy(chain)
        text = ctypes.create_string_buffer(4096)
        self.c.danaus_ks_plan_describe(plan, text, ctypes.c_size_t(4096))

        def run(x, y):
            self(
                "danaus_ks_execute", plan, self.device, packed, ctypes.c_int64(batch),
                ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()),
            )

        def free():
            self.c.danaus_ks_weights_destroy(packed)
            self.c.danaus_ks_plan_destroy(plan)

        names = [line.split(" by ")[-1] for line in text.value.decode().splitlines()]
        return run, free, ";".join(names)


def bmm(w, last):
    a, b, c, d = w.shape
    blocks = w.permute(0, 3, 1, 2).reshape(a * d, b, c).contiguous()

    def run_last(x):
        x = x.view(a, c, d, -1).permute(0, 2, 1, 3).reshape(a * d, c, -1)
        return torch.bmm(blocks, x).view(a, d, b, -1).permute(0, 2, 1, 3).reshape(a * b * d, -1)

    def run_first(x):
        x = x.view(-1, a, c, d).permute(1, 3, 0, 2).reshape(a * d, -1, c)
        y = torch.bmm(x, blocks.transpose(1, 2)).view(a, d, -1, b)
        return y.permute(2, 0, 3, 1).reshape(-1, a * b * d)

    return run_last if last else run_first


def einsum(w, last):
    a, b, c, d = w.shape
    if last:
        return lambda x: torch.einsum("abcd,acdn->abdn", w, x.view(a, c, d, -1)).reshape(a * b * d, -1)
    return lambda x: torch.einsum("abcd,nacd->nabd", w, x.view(-1, a, c, d)).reshape(-1, a * b * d)


def dense_matrix(w):
    a, b, c, d = w.shape
    full = torch.zeros(a, b, d, a, c, d, dtype=w.dtype, device=w.device)
    i = torch.arange(a, device=w.device).repeat_interleave(d)
    j = torch.arange(d, device=w.device).repeat(a)
    full[i, :, j, i, :, j] = w[i, :, :, j]
    return full.view(a * b * d, a * c * d)


def chained(parts):
    """Factor 0 is the leftmost, applied last."""

    def run(x):
        for part in reversed(parts):
            x = part(x)
        return x

    return run


def seconds(function, other):
    for _ in range(2):
        function()
    events = []
    for _ in range(11):
        other.max()
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        pair[0].record()
        function()
        pair[1].record()
        events.append(pair)
    torch.cuda.synchronize()
    return statistics.median(p[0].elapsed_time(p[1]) for p in events) * 1e-3


def limit(weights, size, batch, kind):
    cols = math.prod(weights[-1].shape) // weights[-1].shape[1]
    rows = math.prod(weights[0].shape) // weights[0].shape[2]
    entries = sum(w.numel() for w in weights)
    move = size * (batch * (rows + cols) + entries) / RATES["copy"]
    return 3e-6 + max(move, 2 * batch * entries / RATES[kind])


def measure(library, problem, name, last, batch, other):
    dtype = DTYPES[name]
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    torch.manual_seed(len(problem) + batch)
    shapes = [tuple(map(int, p.split(","))) for p in problem.split()]
    weights = [
        (torch.randn(s, device="cuda") / math.sqrt(s[2])).to(dtype[0]) for s in shapes
    ]
    a, b, _, d = shapes[0]
    rows, cols = a * b * d, shapes[-1][0] * shapes[-1][2] * shapes[-1][3]
    shape = (cols, batch) if last else (batch, cols)
    x = torch.randn(shape, device="cuda").to(dtype[0])
    y = torch.full((rows, batch) if last else (batch, rows), math.nan, device="cuda").to(dtype[0])
    run, free, kernel = library.product(weights, dtype, last, batch)
    record = {"kernel": kernel}
    run(x, y)
    some = torch.randint(batch, (200,), device="cuda")
    exact = chained([einsum(w.double(), False) for w in weights])(
        (x[:, some].T if last else x[some]).double().contiguous()
    )
    got = (y[:, some].T if last else y[some]).double()
    record["error"] = ((got - exact).norm() / exact.norm()).item()
    if not torch.isfinite(y).all():
        record["error"] = math.nan
    ours = seconds(lambda: run(x, y), other)
    free()
    del y, got, exact
    ways = {
        "bmm": chained([bmm(w, last) for w in weights]),
        "einsum": chained([einsum(w, last) for w in weights]),
    }
    if rows * cols < 2**28 and rows * cols * batch < 2**41:
        matrix = dense_matrix(weights[0])
        for w in weights[1:]:
            matrix = (matrix.float() @ dense_matrix(w).float()).to(dtype[0])
        ways["dense"] = lambda x: matrix @ x if last else torch.nn.functional.linear(x, matrix)
    times = {way: seconds(lambda f=f: f(x), other) for way, f in ways.items()}
    best = min(times, key=times.get)
    floor = limit(weights, x.element_size(), batch, dtype[3])
    record |= {f"{way}_us": f"{t * 1e6:.2f}" for way, t in times.items()}
    record |= {
        "median_us": f"{ours * 1e6:.2f}",
        "limit_us": f"{floor * 1e6:.2f}",
        "ratio": f"{ours / floor:.3f}",
        "best": best,
        "best_us": f"{times[best] * 1e6:.2f}",
        "speedup": f"{times[best] / ours:.3f}",
        "error": f"{record['error']:.2e}",
    }
    return record


def suite(path):
    with open(path, newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [row["problem"] for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("out")
    parser.add_argument("--suite")
    parser.add_argument("--batch", type=int, default=25088)
    parser.add_argument("--dtypes", default="f16,bf16,tf32,f32")
    parser.add_argument("--layouts", default="first,last")
    parser.add_argument("problems", nargs="*")
    options = parser.parse_intermixed_args()
    library = Danaus(options.library)
    other = torch.zeros(96 << 20, dtype=torch.int32, device="cuda")
    problems = options.problems + (suite(options.suite) if options.suite else [])
    with open(options.out, "w", newline="") as file:
        out = csv.DictWriter(file, FIELDS)
        out.writeheader()
        for name in options.dtypes.split(","):
            for layout in options.layouts.split(","):
                for problem in problems:
                    base = {
                        "device": torch.cuda.get_device_name(),
                        "torch": torch.__version__,
                        "operation": "ks",
                        "problem": problem,
                        "dtype": name,
                        "layout": layout,
                        "batch": options.batch,
                    }
                    try:
                        base |= measure(
                            library, problem, name, layout == "last", options.batch, other
                        )
                    except (RuntimeError, torch.OutOfMemoryError) as error:
                        print(problem, name, layout, error, flush=True)
                        continue
                    out.writerow(base)
                    file.flush()
                    print(*(base.get(f, "") for f in FIELDS[3:]), flush=True)


if __name__ == "__main__":
    main()
