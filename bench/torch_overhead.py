#!/usr/bin/env python3
"""What a call of a tiny KSLinear costs beside torch.nn.Linear of the same sizes.

    PYTHONPATH=build/python/tree python3 bench/torch_overhead.py [--device cuda] [--runs N]

Layers are 8 x 8 with a bias and see 4 rows, so that what is timed is the way to the
kernel: Python, PyTorch's dispatcher, the operator, the library. A line is the least
time a call of many short runs, in microseconds (other programs make runs longer, never
shorter), for both layers, and what KSLinear costs more. On a GPU the clock runs until
all work is done; with a graph, ten calls are captured and replayed.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import gc
import time
from collections.abc import Callable

import torch

from danaus.torch import KSLinear, freeze

CALLS = 50


def seconds(call: Callable[[], object], device: str, runs: int) -> float:
    """Seconds of one call: the least of `runs` times of CALLS calls."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    least = float("inf")
    for _ in range(20):
        call()
    for _ in range(runs):
        wait()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        wait()
        least = min(least, time.perf_counter() - start)
    return least / CALLS


def captured(layer: torch.nn.Module, x: torch.Tensor) -> Callable[[], object]:
    """Replays a graph of ten calls."""
    with torch.no_grad():
        layer(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(10):
                layer(x)
    return graph.replay


def without_gradients(layer: torch.nn.Module, x: torch.Tensor) -> Callable[[], object]:
    return torch.no_grad()(lambda: layer(x))


def forward(layer: torch.nn.Module, x: torch.Tensor) -> Callable[[], object]:
    return lambda: layer(x)


def training(layer: torch.nn.Module, x: torch.Tensor) -> Callable[[], object]:
    dy = torch.ones_like(x)
    return lambda: layer(x).backward(dy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--runs", type=int, default=400)
    options = parser.parse_args()
    device = options.device
    torch.set_num_threads(1)
    gc.disable()
    x = torch.randn(4, 8, device=device)
    layers = [
        torch.nn.Linear(8, 8, device=device),
        KSLinear(8, 8, "1,8,4,1 1,4,8,1", device=device),
    ]
    frozen = [layers[0], freeze(KSLinear(8, 8, "1,8,4,1 1,4,8,1", device=device), 4)]
    ways = [
        ("without gradients", without_gradients, layers, 1),
        ("frozen", without_gradients, frozen, 1),
        ("forward with gradients", forward, layers, 1),
        ("forward and backward", training, layers, 1),
    ]
    if device == "cuda":
        ways.append(("in a graph", captured, layers, 10))
    print(f"{'':24s} nn.Linear  KSLinear      more   (us, {device})")
    for name, way, pair, calls in ways:
        times = [seconds(way(layer, x), device, options.runs) for layer in pair]
        dense, ks = (1e6 * time / calls for time in times)
        print(f"{name:24s} {dense:9.2f} {ks:9.2f} {ks - dense:9.2f}")


if __name__ == "__main__":
    main()
