"""Convolutions by their definition in f64, and random cases of them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

KINDS = ("causal", "circular", "bidirectional")
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
ERRORS = dict(zip(TYPES, (4e-6, 1e-13, 2e-3, 1.6e-2)))  # of the largest result


def numbers(x) -> np.ndarray | None:
    """A tensor's in f64."""
    return None if x is None else x.detach().cpu().to(torch.float64).numpy()


def convolve(p: np.ndarray, k: np.ndarray, k_reverse, kind: str) -> np.ndarray:
    """One row and one filter."""
    length = len(p)
    if kind == "circular":
        return sum(tap * np.roll(p, s) for s, tap in enumerate(k))
    y = np.convolve(p, k)[:length]
    if kind == "bidirectional":
        for s in range(min(len(k_reverse), length - 1)):
            y[: length - 1 - s] += k_reverse[s] * p[1 + s :]
    return y


def direct(u, k, k_reverse, skip, gate_in, gate_out, kind) -> np.ndarray:
    """long_conv by its definition."""
    u, k, k_reverse, skip = (numbers(x) for x in (u, k, k_reverse, skip))
    gate_in, gate_out = (numbers(x) for x in (gate_in, gate_out))
    p = u if gate_in is None else u * gate_in
    y = np.empty_like(p)
    for b, h in np.ndindex(*p.shape[:2]):
        f = h // (p.shape[1] // k.shape[0])
        back = None if k_reverse is None else k_reverse[f]
        y[b, h] = convolve(p[b, h], k[f], back, kind)
        y[b, h] += 0 if skip is None else skip[f] * p[b, h]
    return y if gate_out is None else y * gate_out


def direct_short(u, k, bias, layout: str, centred: bool) -> np.ndarray:
    """short_conv by its definition."""
    u, k, bias = (numbers(x) for x in (u, k, bias))
    if layout == "channels_last":
        u = u.transpose(0, 2, 1)
    taps, length = k.shape[1], u.shape[2]
    shift = (taps - 1) // 2 if centred else 0
    y = np.zeros_like(u) if bias is None else np.zeros_like(u) + bias[:, None]
    for t in range(length):
        for s in range(taps):
            if 0 <= t + shift - s < length:
                y[:, :, t] += k[:, s] * u[:, :, t + shift - s]
    return y.transpose(0, 2, 1) if layout == "channels_last" else y


def random_long(
    rng, batch, channels, length, filters, taps, kind, dtype, extras=7, device="cpu"
) -> tuple:
    """Arguments of long_conv; extras: 1 for skip, 2 for gate_in, 4 for gate_out."""

    def make(shape, to=dtype):
        return torch.from_numpy(rng.standard_normal(shape)).to(device, to)

    sums = torch.float64 if dtype == torch.float64 else torch.float32
    u, k = make((batch, channels, length)), make((filters, taps), sums)
    k_reverse = make((filters, taps), sums) if kind == "bidirectional" else None
    skip = make((filters,), sums) if extras & 1 else None
    gate_in = make(u.shape) if extras & 2 else None
    gate_out = make(u.shape) if extras & 4 else None
    return u, k, k_reverse, skip, gate_in, gate_out, kind


def expect_close(found, exact: np.ndarray, dtype=None) -> None:
    """Within the error of the type, relative to the largest exact number."""
    scale = np.abs(exact).max(initial=1e-300)
    assert found.shape == exact.shape
    error = np.abs(numbers(found) - exact).max(initial=0)
    assert error <= ERRORS[dtype or found.dtype] * scale
