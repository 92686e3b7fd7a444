"""Convolutions and their gradients by their definition, in f64, with error bounds.

A row is y = gate_out * (G p) with p = gate_in * u, where G[t][s] is the filter at the
lag t - s. An f32 transform of log2 n layers errs by at most t = 5 u log2 n in norm, so
a number of the result by (2 t |k|_2 + t |k|_1) |p|_2 (docs/conv.md, "Errors"), and 8 u
for what happens beside transforms.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import NamedTuple

import numpy as np

# unit of sums, unit of storage, half the smallest number
UNITS = {
    "f32": (2.0**-24, 2.0**-24, 2.0**-149),
    "f16": (2.0**-24, 2.0**-11, 2.0**-25),
    "bf16": (2.0**-24, 2.0**-8, 2.0**-134),
    "f64": (2.0**-53, 2.0**-53, 2.0**-1074),
}
_NUMPY = {"f32": np.float32, "f16": np.float16, "f64": np.float64}


def stored(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers in a type; bf16, cut off, as uint16."""
    if dtype == "bf16":
        return (numbers.astype("<f4").view("<u4") >> 16).astype(np.uint16)
    return numbers.astype(_NUMPY[dtype])


def wide(array: np.ndarray | None) -> np.ndarray | None:
    """What an array holds, in f64."""
    if array is None:
        return None
    if array.dtype == np.uint16 or array.dtype.name == "bfloat16":
        array = (array.view(np.uint16).astype("<u4") << 16).view("<f4")
    return array.astype(np.float64)


def lag_table(kind: str, length: int, taps: int) -> tuple[np.ndarray, np.ndarray]:
    """For each tap s the places (t, s') of G that k[s] is in, and k_reverse[s]."""
    lag = np.subtract.outer(np.arange(length), np.arange(length))
    number = np.arange(taps)[:, None, None]
    if kind == "circular":
        return (lag - number) % length == 0, np.zeros((taps, length, length), bool)
    return lag == number, -lag - 1 == number


class Case(NamedTuple):
    """A convolution: arrays as they are stored, gates and filters may be None."""

    kind: str
    dtype: str
    u: np.ndarray
    k: np.ndarray
    k_reverse: np.ndarray | None
    skip: np.ndarray | None
    gate_in: np.ndarray | None
    gate_out: np.ndarray | None
    dy: np.ndarray


def random_case(rng: np.random.Generator, kind: str, dtype: str) -> Case:
    """Rows up to 70, filters up to 90, shared or not, with gates or not."""
    filters, share, length = rng.integers(1, (4, 4, 70))
    shape = (*rng.integers(1, 3, rng.integers(0, 3)), filters * share, length)
    sums = "f64" if dtype == "f64" else "f32"
    taps = (filters, rng.integers(1, 90))

    def signal(chance: float) -> np.ndarray | None:
        wanted = rng.random() < chance
        return stored(rng.uniform(-1, 1, shape), dtype) if wanted else None

    def filters_like(size, chance: float) -> np.ndarray | None:
        wanted = rng.random() < chance
        return stored(rng.uniform(-1, 1, size), sums) if wanted else None

    back = float(kind == "bidirectional")
    made = (signal(1), filters_like(taps, 1), filters_like(taps, back))
    made += (filters_like(filters, 0.5), signal(0.5), signal(0.5), signal(1))
    return Case(kind, dtype, *made)


class Direct:
    """Results and gradients of a case with a bound of the error of every number."""

    def __init__(self, case: Case):
        self.case = case
        *batch, channels, length = case.u.shape
        filters, taps = case.k.shape
        self.share = channels // filters
        self.unit, self.storage, self.tiny = UNITS[case.dtype]
        ahead, back = lag_table(case.kind, length, taps)
        g = np.einsum("fs,stp->ftp", wide(case.k), ahead)
        if case.k_reverse is not None:
            g += np.einsum("fs,stp->ftp", wide(case.k_reverse), back)
        if case.skip is not None:
            g += wide(case.skip)[:, None, None] * np.eye(length)
        self.tables = ahead, back
        self.g = np.repeat(g, self.share, axis=0)
        log = np.log2(4.0 * (length + taps) + 1024)
        self.t = 5 * self.unit * log
        ones = np.ones_like(wide(case.u))
        self.gate_in = ones if case.gate_in is None else wide(case.gate_in)
        self.gate_out = ones if case.gate_out is None else wide(case.gate_out)
        self.p = self.gate_in * wide(case.u)
        self.q = self.gate_out * wide(case.dy)

    def _filter_error(self, signal: np.ndarray) -> np.ndarray:
        """The error of every number of a product of G, or its transpose, and a signal.

        Filters beyond the row and lags that cancel when they are folded count in full.
        """
        case = self.case
        taps = [wide(k) for k in (case.k, case.k_reverse) if k is not None]
        if case.skip is not None:
            taps.append(wide(case.skip)[:, None])
        taps = np.repeat(np.concatenate(taps, axis=1), self.share, axis=0)
        one, two = np.abs(taps).sum(axis=1), np.linalg.norm(taps, axis=1)
        other = 8 * self.unit
        size = (2 * self.t + other) * two + (self.t + other) * one
        return (size * np.linalg.norm(signal, axis=-1))[..., None]

    def _result(self, value, factor, error) -> tuple[np.ndarray, np.ndarray]:
        value = factor * value
        bound = np.abs(factor) * error * (1 + self.storage)
        return value, bound + self.storage * np.abs(value) + self.tiny

    def results(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """y, du and those of the gates: what each should be, and how far off."""
        case = self.case
        c = np.einsum("htp,...hp->...ht", self.g, self.p)
        dp = np.einsum("htp,...ht->...hp", self.g, self.q)
        error, back = self._filter_error(self.p), self._filter_error(self.q)
        return {
            "y": self._result(c, self.gate_out, error),
            "du": self._result(dp, self.gate_in, back),
            "dgate_in": self._result(dp, wide(case.u), back),
            "dgate_out": self._result(c, wide(case.dy), error),
        }

    def filter_gradients(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """dk, dk_reverse and dskip: sums over rows of correlations of q and p."""
        filters, taps = self.case.k.shape
        length = self.p.shape[-1]
        q = self.q.reshape(-1, filters, self.share, length)
        p = self.p.reshape(-1, filters, self.share, length)
        dg = np.einsum("bfht,bfhp->ftp", q, p)
        norm_q = np.linalg.norm(q, axis=-1)
        norm_p, sum_p = np.linalg.norm(p, axis=-1), np.abs(p).sum(axis=-1)
        other = (8 + q.shape[0] * self.share) * self.unit
        each = norm_q * ((2 * self.t + other) * norm_p + (self.t + other) * sum_p)
        error = each.sum(axis=(0, 2)) * -(-taps // length)  # folded filters meet more
        rows = {"dk": self.tables[0], "dk_reverse": self.tables[1]}
        found = {}
        for name, table in rows.items():
            value = np.einsum("ftp,stp->fs", dg, table)
            found[name] = (value, error[:, None] + self.unit * np.abs(value))
        skip = np.trace(dg, axis1=1, axis2=2)
        found["dskip"] = (skip, error + self.unit * np.abs(skip))
        return found
