"""Types of numbers, and functions that compute in f32 at least: they solve systems."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

# The types of linear layers, and the C library's names of them.
TYPES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


def wide(x: Tensor) -> Tensor:
    """x in a type that systems are solved in: float32 for 16 bits."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def without_autocast(function: Callable) -> Callable:
    """The function, whose products autocast does not bring to 16 bits."""

    @functools.wraps(function)
    def call(*args, **options):
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                with torch.autocast(kind, enabled=False):
                    return call(*args, **options)
        return function(*args, **options)

    return call
