#!/usr/bin/env python3
"""The cost model of FlashFFTConv's equation 3, with constants measured on a device.

    paper_conv_cost.py OUT.csv [--device cuda|cpu] [--tiny]
    paper_conv_cost.py --plot OUT.png RECORDS.csv

The cost of one value of a convolution of N values, in p factors N_1 ... N_p of N, is

    C / (B H N) = sum over i of 16 N_i / gamma(N_i) + 4 s / omega(i),

where a complex number of 16 bits has s = 4 bytes. gamma is the rate of matrix units from
N_i = 16 on, and else that of other arithmetic. omega is the rate of memory on the chip if
N_i ... N_p fit there together (32,768 complex numbers), and else that of the device's
memory. Measured are "matrix" and "arithmetic", the rates of a large product in f16 and in
f32, and "chip" and "memory", those of copies of arrays that fit the second cache, and of
arrays that are much larger. PyTorch cannot time memory nearer to the processors. The
second form draws C for p = 2, 3 and 4.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import csv
import math

ORDERS, SIZES = (2, 3, 4), range(8, 23)  # SIZES: log2 of N
UNIT, ON_CHIP = 16, 32768  # the least factor of matrix units; complex numbers
BYTES = 4  # of a complex number
FIELDS = "version torch device constant value".split()


# ---- the model ----


def factors(bits: int, order: int) -> list[int]:
    """2^bits in so many factors that are as equal as possible, the largest last."""
    small, more = divmod(bits, order)
    return [1 << (small + (i >= order - more)) for i in range(order)]


def cost(bits: int, order: int, constants: dict[str, float]) -> float:
    """Seconds of one value of 2^bits."""
    total, sizes = 0.0, factors(bits, order)
    for i, size in enumerate(sizes):
        rate = constants["matrix" if size >= UNIT else "arithmetic"]
        near = math.prod(sizes[i:]) <= ON_CHIP
        moved = 4 * BYTES / constants["chip" if near else "memory"]
        total += 16 * size / rate + moved
    return total


def best_order(bits: int, constants: dict[str, float]) -> int:
    return min(ORDERS, key=lambda order: cost(bits, order, constants))


def read(path: str) -> dict[str, float]:
    with open(path, newline="") as file:
        return {r["constant"]: float(r["value"]) for r in csv.DictReader(file)}


def plot(out: str, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    constants = read(path)
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for order in ORDERS:
        costs = [1e12 * cost(bits, order, constants) for bits in SIZES]
        axes.loglog([1 << bits for bits in SIZES], costs, label=f"p = {order}")
    axes.set(xlabel="length", ylabel="cost of a value, ps")
    axes.legend()
    figure.savefig(out, dpi=120)


# ---- constants ----


def product_rate(device: str, dtype, size: int) -> float:
    """Operations a second."""
    import torch
    from gpu_conv import timed

    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / timed(device, lambda: a @ b)


def measured(device: str, tiny: bool) -> dict[str, float]:
    import torch
    from gpu_conv import copy_rate
    from torch_layers import set_math

    set_math("f32")
    size, small, large = (64, 1 << 12, 1 << 16) if tiny else (8192, 1 << 22, 1 << 28)
    half = torch.float16 if device == "cuda" else torch.float32
    return {
        "matrix": product_rate(device, half, size),
        "arithmetic": product_rate(device, torch.float32, size),
        "chip": copy_rate(device, small),
        "memory": copy_rate(device, large),
    }


def write(o) -> None:
    import torch
    from gpu_conv import origin

    import danaus

    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    start = {"version": danaus.__version__, "torch": torch.__version__, "device": name}
    with open(o.out, "w", newline="") as file:
        table = origin.Table(file, FIELDS)
        table.writeheader()
        for constant, value in measured(o.device, o.tiny).items():
            table.writerow(start | {"constant": constant, "value": f"{value:.4g}"})
            print(constant, f"{value:.4g}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out")
    parser.add_argument("--plot", metavar="PNG", help="draw the records OUT")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    o = parser.parse_args()
    if o.plot:
        plot(o.plot, o.out)
    else:
        write(o)


if __name__ == "__main__":
    main()
