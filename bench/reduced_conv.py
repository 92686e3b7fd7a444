#!/usr/bin/env python3
"""Times causal convolutions with partial filters and sparse spectra beside whole ones.

    reduced_conv.py OUT.csv [--device cuda|cpu] [--lengths N,N,...] [--rows N]
        [--dtypes f16,f32] [--boxes usual|paper] [--rounds N] [--tiny]

Partial filters have a 16th of the taps. Sparse spectra keep so many of 8 parts on each of four
axes (danaus/conv.h): a quarter of all frequencies along the last two axes, 9 % along all of
them and along the first two, on which time falls most. --boxes paper has FlashFFTConv's axes
of 32 x 32 x 32 x 64 frequencies instead, and spectra of which 50 to 91 % are zeros, most of
them on the first axes. Rows are 64 x 768, or as many as lie in 2 GiB of f32 or
--rows says. Times are medians over rounds in which all take turns, by a GPU's own clock.
--tiny runs all of it at small sizes.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import itertools
import math
import statistics

import torch
from gpu_conv import BATCH, CHANNELS, MOST_BYTES, TYPES, once, origin

import danaus
from danaus.torch import LongConv

AXES = {"usual": (8, 8, 8, 8), "paper": (32, 32, 32, 64)}
SPARSE = {  # what is kept on each axis
    "usual": {
        "a quarter": (8, 8, 4, 4),
        "9 %": (5, 6, 4, 3),
        "9 % of two axes": (2, 3, 8, 8),
    },
    "paper": {
        "50 % zeros": (16, 32, 32, 64),
        "75 % zeros": (16, 16, 32, 64),
        "79 % zeros": (16, 16, 27, 64),
        "84 % zeros": (16, 16, 20, 64),
        "91 % zeros": (16, 12, 16, 64),
    },
}
FIELDS = (
    "version torch device dtype length batch channels form kept seconds whole_seconds "
    "ratio"
).split()


def convolutions(o, channels: int, length: int) -> dict:
    """For each form: what it keeps of the filter, and the module."""
    axes = AXES[o.boxes]

    def make(**options):
        made = LongConv(channels, length, skip=False, device=o.device, **options)
        return made.freeze()

    made = {
        "whole": (1.0, make()),
        "1/16 of the taps": (1 / 16, make(taps=length // 16)),
    }
    for name, keep in SPARSE[o.boxes].items():
        share = math.prod(keep) / math.prod(axes)
        made[f"sparse, {name}"] = share, make(axes=axes, keep=keep)
    return made


@torch.no_grad()
def measure(o, length: int, dtype: str, record: dict, out) -> None:
    most = max(1, min(o.rows, MOST_BYTES // (length * 4)))
    channels = max(1, min(CHANNELS, most // BATCH or most))
    batch = max(1, min(BATCH, most // channels))
    forms = convolutions(o, channels, length)
    u = torch.randn(batch, channels, length, device=o.device).to(TYPES[dtype])
    times = {name: [] for name in forms}
    for _ in range(o.rounds + 2):
        for name, (_, conv) in forms.items():
            times[name].append(once(o.device, lambda conv=conv: conv(u)))
    whole = statistics.median(times["whole"][2:])
    for name, (kept, _) in forms.items():
        seconds = statistics.median(times[name][2:])
        found = {"form": name, "kept": f"{kept:.4g}", "seconds": f"{seconds:.4g}"}
        found |= {"whole_seconds": f"{whole:.4g}", "ratio": f"{whole / seconds:.2f}"}
        shape = {"length": length, "batch": batch, "channels": channels}
        out.writerow(record | {"dtype": dtype} | shape | found)
        print(
            f"{length:8} {dtype:4} {name:20} {1e3 * seconds:9.3f} ms: "
            f"x{found['ratio']} of whole",
            flush=True,
        )


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--lengths", default="4096,16384,65536,524288,2097152")
    p.add_argument("--rows", type=int, default=BATCH * CHANNELS)
    p.add_argument("--dtypes", default="f16")
    p.add_argument("--boxes", choices=AXES, default="usual")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--tiny", action="store_true")
    o = p.parse_args()
    if o.tiny:
        o.lengths, o.rows, o.dtypes, o.rounds = "64,5000", 2, "f16,f32", 1
    return o


def main() -> None:
    o = options()
    name = "cpu" if o.device == "cpu" else torch.cuda.get_device_name()
    record = {"version": danaus.__version__, "torch": torch.__version__}
    record["device"] = name.replace(" ", "_")
    with open(o.out, "w", newline="") as file:
        out = origin.Table(file, FIELDS)
        out.writeheader()
        lengths = map(int, o.lengths.split(","))
        for length, dtype in itertools.product(lengths, o.dtypes.split(",")):
            measure(o, length, dtype, record, out)


if __name__ == "__main__":
    main()
