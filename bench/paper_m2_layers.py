#!/usr/bin/env python3
"""Times Monarch matrices beside dense ones of N x N (Monarch Mixer, tables 1 and 2).

    PYTHONPATH=build/python/tree paper_m2_layers.py OUT.csv [--device cuda|cpu]
        [--sizes 4096,16384,65536,262144] [--width 768] [--rounds 7] [--tiny]

"M2" is M_2 (k * (M_1 x)) for x [N][width]: two Monarch matrices of order 2, each of two
factors with blocks of the root of N, and a product number by number between them. Dense is
one matrix of N x N. Both run in f16, batch-last, and M2 also where the dense matrix does
not fit. `operations` and `dense_operations` are those of the matrix products, 8 and 2 N
N^(1/2) width, and 2 N^2 width. `used` and `dense_used` are their rates over that of a dense product of
8,192 x 8,192 in the same run. `ratio` is the dense time over that of M2. `error` is that of
M2 against f32, relative in L2.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import math

import torch
from gpu_conv import origin, relative_error
from paper_conv_cost import product_rate
from torch import Tensor, nn
from torch_layers import forward_of, in_turns

import danaus
from danaus.torch import KSLinear, freeze

FIELDS = (
    "version torch device dtype size width seconds dense_seconds ratio operations "
    "dense_operations peak used dense_used error"
).split()
PEAK = 8192


class Mixed(nn.Module):
    """M_2 (k * (M_1 x)) for x [N][width]."""

    def __init__(self, size: int, width: int):
        super().__init__()
        root = math.isqrt(size)
        chain = f"1,{root},{root},{root} {root},{root},{root},1"
        make = {"bias": False, "layout": "batch_last"}
        self.first, self.last = (KSLinear(size, size, chain, **make) for _ in "12")
        self.k = nn.Parameter(torch.randn(size, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.k * self.first(x))


class Dense(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size) / size**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight @ x


def build(o, make, *sizes) -> nn.Module | None:
    """None where the device's memory is too small."""
    kind = torch.get_default_dtype()
    torch.set_default_dtype(o.dtype)
    try:
        with torch.device(o.device):
            return make(*sizes)
    except torch.OutOfMemoryError:
        return None
    finally:
        torch.set_default_dtype(kind)


@torch.no_grad()
def error(o, mixed: Mixed, x: Tensor) -> float:
    wide = build(o, Mixed, *mixed.k.shape).float()
    wide.load_state_dict(mixed.state_dict())
    return relative_error(mixed(x), wide(x.float()))


def measure(o, size: int, peak: float) -> dict:
    torch.manual_seed(size)
    mixed, dense = build(o, Mixed, size, o.width), build(o, Dense, size)
    x = torch.randn(size, o.width, device=o.device).to(o.dtype)
    found = {"operations": 8 * size * math.isqrt(size) * o.width}
    found |= {"dense_operations": 2 * size**2 * o.width, "error": error(o, mixed, x)}
    freeze(mixed, o.width)
    runs = {"": forward_of(mixed, x)}
    if dense is not None:
        runs["dense_"] = forward_of(dense, x)
    for name, seconds in in_turns(o.device, runs, o.rounds).items():
        found[f"{name}seconds"] = seconds
        found[f"{name}used"] = found[f"{name}operations"] / seconds / peak
    if dense is not None:
        found["ratio"] = found["dense_seconds"] / found["seconds"]
    return {"size": size, "width": o.width, "peak": peak} | found


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--sizes", default="4096,16384,65536,262144")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tiny", action="store_true", help="small sizes, one round")
    o = parser.parse_args()
    if o.tiny:
        o.sizes, o.width, o.rounds = "64,256", 16, 1
    o.dtype = torch.float16 if o.device == "cuda" else torch.float32
    return o


def main() -> None:
    o = options()
    gpu = o.device == "cuda"
    start = {"version": danaus.__version__, "torch": torch.__version__}
    start |= {"device": torch.cuda.get_device_name() if gpu else "cpu"}
    start |= {"dtype": "f16" if gpu else "f32"}
    peak = product_rate(o.device, o.dtype, 64 if o.tiny else PEAK)
    with open(o.out, "w", newline="") as file:
        table = origin.Table(file, FIELDS)
        table.writeheader()
        for size in map(int, o.sizes.split(",")):
            found = measure(o, size, peak)
            shown = {
                k: f"{v:.4g}" if isinstance(v, float) else v for k, v in found.items()
            }
            table.writerow(start | shown)
            file.flush()
            print(*shown.values(), flush=True)


if __name__ == "__main__":
    main()
