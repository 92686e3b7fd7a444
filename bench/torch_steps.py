#!/usr/bin/env python3
"""Times training steps with layers that pack apart, and together after each step.

    torch_steps.py OUT.csv [--device cuda|cpu] [--rounds N] [--only TEXT] [--tiny]

Networks are ViT-S/16 (torch_networks.py) for 1, 8 and 128 images, layers those of
bench/suites/vit.csv for 196 and 25,088 rows. A step is a forward and a backward pass
under autocast, and AdamW's. It is timed with dense layers, with `KSLinear`, and with
`KSLinear` after `danaus.torch.pack_after`, eager and as a CUDA graph: medians of rounds
in which all three take turns.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import copy
import dataclasses
import pathlib
import statistics
import sys

import torch
from torch import nn
from torch_layers import DTYPES, Dense, as_graph, layer_of, once
from torch_networks import NETWORKS, network, read_suite

from danaus.torch import pack_after

sys.path.insert(0, str(pathlib.Path(__file__).parent / "baselines"))
import origin  # noqa: E402

FIELDS = (
    "device torch kind name dtype rows way rounds dense_ns danaus_ns packed_ns ratio "
    "packed_ratio"
).split()
CALLS = {"network": 3, "layer": 30}  # that follow each other


def step_of(o, net: nn.Module, x: torch.Tensor, dtype: str, together: bool):
    gpu = o.device == "cuda"
    options = {"fused": True, "capturable": True} if gpu else {}
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4, **options)
    if together:
        pack_after(optimizer, net)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        x.grad = None
        with torch.autocast(o.device, DTYPES[dtype]):
            y = net(x)
        y.float().square().mean().backward()
        optimizer.step()

    return step


def in_turns(o, runs: dict, calls: int) -> dict:
    found: dict = {name: [] for name in runs}
    for _ in range(o.rounds):
        for name, run in runs.items():
            found[name].append(once(o.device, run, calls))
    return {name: statistics.median(times) for name, times in found.items()}


def measure(o, record: dict, make, width: int) -> None:
    """make(replaced) is the dense network or layer, or that of chains."""
    x = torch.randn(record["rows"], width, device=o.device, requires_grad=True)
    steps = {}
    for name, replaced in (("dense", False), ("danaus", True), ("packed", True)):
        torch.manual_seed(1)
        net = make(replaced).to(o.device)
        steps[name] = step_of(o, net, x, record["dtype"], name == "packed")
        for _ in range(3):
            steps[name]()
    for way in ("eager", "graph"):
        if way == "graph" and o.device == "cpu":
            continue
        runs = steps if way == "eager" else {k: as_graph(s) for k, s in steps.items()}
        found = in_turns(o, runs, CALLS[record["kind"]])
        o.write(record | {"way": way}, found)


def measure_network(o, images: int, dtype: str) -> None:
    small = {"blocks": 1, "tokens": 4} if o.tiny else {}
    shape = dataclasses.replace(NETWORKS[0], images=images, **small)
    rows = images * shape.tokens
    record = {"kind": "network", "name": shape.name, "dtype": dtype, "rows": rows}
    measure(o, record, lambda r: network(shape, r, False, False), shape.width)


def measure_layer(o, problem: str, rows: int, dtype: str) -> None:
    torch.manual_seed(0)
    ours = layer_of(o, "vit", problem, "f32")
    record = {"kind": "layer", "name": problem, "dtype": dtype, "rows": rows}

    def make(replaced: bool) -> nn.Module:
        return copy.deepcopy(ours) if replaced else Dense(ours)

    measure(o, record, make, ours.in_features)


class Options:
    """The program's arguments, and the table that it writes."""

    def __init__(self):
        parser = argparse.ArgumentParser(
            description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("out")
        parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
        parser.add_argument("--rounds", type=int, default=9)
        parser.add_argument("--only", default="", help="jobs whose name has this text")
        parser.add_argument("--tiny", action="store_true")
        self.__dict__.update(vars(parser.parse_args()))
        gpu = self.device == "cuda"
        self.facts = {
            "device": torch.cuda.get_device_name() if gpu else "cpu",
            "torch": torch.__version__,
            "rounds": self.rounds,
        }
        self.is_new = True

    def write(self, record: dict, seconds: dict) -> None:
        times = {f"{name}_ns": 1e9 * time for name, time in seconds.items()}
        dense, ours, packed = times.values()
        ratios = {"ratio": ours / dense, "packed_ratio": packed / dense}
        with open(self.out, "w" if self.is_new else "a", newline="") as file:
            table = origin.Table(file, FIELDS)
            if self.is_new:
                table.writeheader()
            table.writerow(self.facts | record | times | ratios)
        self.is_new = False
        size = " ".join(str(record[f]) for f in ("name", "dtype", "rows", "way"))
        print(f"{size:46} dense {dense / 1e3:9.1f} us, apart {ratios['ratio']:.3f}, "
              f"together {ratios['packed_ratio']:.3f}", flush=True)  # fmt: skip


def main() -> None:
    o = Options()
    images = (1,) if o.tiny else (1, 8, 128)
    rows = (2,) if o.tiny else (196, 25088)
    for dtype in ("bf16",) if o.tiny else ("f16", "bf16"):
        for count in images:
            if o.only in f"network {dtype}":
                measure_network(o, count, dtype)
        for problem in read_suite("vit"):
            for n in rows:
                if o.only in f"layer {dtype}":
                    measure_layer(o, problem, n, dtype)


if __name__ == "__main__":
    main()
