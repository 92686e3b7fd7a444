"""Chains W = K_1 ... K_L of Kronecker-sparse factors, on the host."""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from typing import Any, Sequence

import numpy as np
from scipy.sparse.linalg import LinearOperator

from danaus._arrays import (
    ElementType,
    checked,
    element_code,
    numpy_dtype,
    pointer,
    short_name,
)
from danaus._library import check, ffi, lib, own, path_bytes
from danaus.device import Device, chosen
from danaus.patterns import Pattern, Patterns, pattern_array

LAYOUTS = {
    "batch-first": lib.DANAUS_BATCH_FIRST,
    "batch-last": lib.DANAUS_BATCH_LAST,
}


class Chain(LinearOperator):
    """Patterns and weights: an M x N matrix W, and a bias or None."""

    def __init__(self, handle: Any):
        self._handle = handle
        shape = lib.danaus_chain_rows(handle), lib.danaus_chain_cols(handle)
        super().__init__(numpy_dtype(self._code), shape)

    @property
    def _code(self) -> int:
        return lib.danaus_chain_dtype(self._handle)

    @classmethod
    def create(cls, patterns: Patterns, dtype: ElementType = "f32") -> Chain:
        """A chain of these patterns with all weights zero and no bias."""
        place = ffi.new("danaus_chain **")
        array, count = pattern_array(patterns)
        check(lib.danaus_chain_create(array, count, element_code(dtype), place))
        return cls(own(place[0], lib.danaus_chain_destroy))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Chain:
        """Reads a chain file."""
        place = ffi.new("danaus_chain **")
        check(lib.danaus_chain_load(path_bytes(path), place))
        return cls(own(place[0], lib.danaus_chain_destroy))

    def save(self, path: str | os.PathLike) -> None:
        """Writes a chain file, in one step."""
        check(lib.danaus_chain_save(self._handle, path_bytes(path)))

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The factors' patterns, the leftmost first."""
        count = lib.danaus_chain_count(self._handle)
        rows = [lib.danaus_chain_pattern(self._handle, i) for i in range(count)]
        return tuple(Pattern(p.a, p.b, p.c, p.d) for p in rows)

    @property
    def parameters(self) -> int:
        """Weights of all factors."""
        return lib.danaus_chain_parameters(self._handle)

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        """Views w[a][b][c][d] of each factor's weights, to be read or filled."""
        return tuple(self._view(i, p) for i, p in enumerate(self.patterns))

    def _view(self, factor: int, pattern: Pattern) -> np.ndarray:
        dtype = numpy_dtype(self._code)
        start = lib.danaus_chain_weights(self._handle, factor)
        # The view keeps the buffer, that the pointer, and that the chain.
        start = own(start, lambda memory: None, self._handle)
        memory = ffi.buffer(start, pattern.parameters * dtype.itemsize)
        return np.frombuffer(memory, np.uint8).view(dtype).reshape(pattern)


def apply(
    chain: Chain,
    x: np.ndarray,
    *,
    layout: str = "batch-first",
    device: Device | str | None = None,
) -> np.ndarray:
    """One product y = W x + bias, of the chain's own type."""
    x = checked(x, chain._code, "x")
    rows, cols = chain.shape
    last = LAYOUTS[layout] == lib.DANAUS_BATCH_LAST
    if not x.ndim or x.shape[0 if last else -1] != cols:
        raise ValueError(f"x has shape {x.shape} where {cols} columns are needed")
    shape = (rows, *x.shape[1:]) if last else (*x.shape[:-1], rows)
    y = np.empty(shape, x.dtype)
    with chosen(device).in_use() as handle:
        check(
            lib.danaus_ks_apply(
                handle,
                chain._handle,
                LAYOUTS[layout],
                x.size // cols,
                pointer(x),
                pointer(y),
            )
        )
    return y
