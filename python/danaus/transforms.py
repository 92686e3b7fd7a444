"""Known transforms as exact chains, with the permutation (and padding) they need.

A `Transform` is a SciPy LinearOperator: ``dct2(n) @ x``, ``.H``, ``.T``, SciPy's
solvers. Lengths have prime factors up to 61, those of Walsh-Hadamard transforms only 2;
others are refused with NotImplementedError.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from danaus._arrays import (
    INT,
    ElementType,
    converted,
    element_code,
    pointer,
    whole,
)
from danaus._library import check, ffi, lib
from danaus.chain import Chain


class Transform(LinearOperator):
    """x -> (K_1 ... K_L) x[permutation], of which the first N numbers count.

    Attributes
    ----------
    chain : the factors K_1 ... K_L.
    permutation : which number of x goes where. Where it is longer than x, those past
        the end are zero.
    """

    def __init__(self, name: str, n: int, chain: Chain, permutation: np.ndarray):
        super().__init__(chain.dtype, (n, n))
        self.name, self.chain, self.permutation = name, chain, permutation

    def _matmat(self, x: np.ndarray) -> np.ndarray:
        n, padded = self.shape[0], self.chain.shape[1]
        if padded > n:
            x = np.concatenate([x, np.zeros((padded - n, x.shape[1]), x.dtype)])
        return (self.chain @ x[self.permutation])[:n]

    def _rmatmat(self, y: np.ndarray) -> np.ndarray:
        n, padded = self.shape[0], self.chain.shape[0]
        if padded > n:
            y = np.concatenate([y, np.zeros((padded - n, y.shape[1]), y.dtype)])
        permuted = self.chain.H @ y
        x = np.empty_like(permuted)
        x[self.permutation] = permuted
        return x[:n]

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self._matmat(x.reshape(-1, 1))[:, 0]

    def _rmatvec(self, y: np.ndarray) -> np.ndarray:
        return self._rmatmat(y.reshape(-1, 1))[:, 0]

    def __repr__(self) -> str:
        return f"<danaus.Transform {self.name} of {self.shape[0]}: {self.chain!r}>"


def _make(
    name: str, kind: int, n: Any, code: int, values: np.ndarray | None = None
) -> Transform:
    n = whole(n, "n", 1, INT)
    length = 2 * n if kind == lib.DANAUS_TOEPLITZ else n
    permutation = np.empty(length, np.int64)
    place = ffi.new("danaus_chain **")
    order = ffi.cast("int64_t *", pointer(permutation))
    check(lib.danaus_chain_transform(kind, n, code, pointer(values), place, order))
    return Transform(name, n, Chain._adopt(place), permutation)


def dft(n: int, dtype: ElementType = "c64") -> Transform:
    """The discrete Fourier transform: exp(-2 pi i k j / n), as ``scipy.fft.fft``."""
    return _make("dft", lib.DANAUS_DFT, n, element_code(dtype))


def walsh_hadamard(n: int, dtype: ElementType = "f32") -> Transform:
    """The Walsh-Hadamard transform in natural order, as ``scipy.linalg.hadamard``."""
    return _make("walsh-hadamard", lib.DANAUS_WALSH_HADAMARD, n, element_code(dtype))


def dct2(n: int, dtype: ElementType = "f32") -> Transform:
    """The DCT-II: cos(pi k (2 j + 1) / (2 n)), half of what ``scipy.fft.dct`` gives."""
    return _make("dct-2", lib.DANAUS_DCT2, n, element_code(dtype))


def dst2(n: int, dtype: ElementType = "f32") -> Transform:
    """The DST-II: sin(pi (k + 1) (2 j + 1) / (2 n)), half of ``scipy.fft.dst``."""
    return _make("dst-2", lib.DANAUS_DST2, n, element_code(dtype))


def dct4(n: int, dtype: ElementType = "f32") -> Transform:
    """The DCT-IV: cos(pi (2 k + 1) (2 j + 1) / (4 n)), half of ``dct(type=4)``."""
    return _make("dct-4", lib.DANAUS_DCT4, n, element_code(dtype))


def _values(values: ArrayLike, what: str) -> np.ndarray:
    """Numbers in one dimension, integers as f64."""
    array = np.asarray(values)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{what} has the shape {array.shape} instead of [n]")
    return array.astype(np.float64) if array.dtype.kind in "biu" else array


def circulant(c: ArrayLike, dtype: ElementType | None = None) -> Transform:
    """The circulant matrix of first column c, as ``scipy.linalg.circulant``.

    dtype : None: that of c.
    """
    c = _values(c, "c")
    code = element_code(c.dtype if dtype is None else dtype)
    return _make("circulant", lib.DANAUS_CIRCULANT, c.size, code, converted(c, code))


def toeplitz(
    c: ArrayLike, r: ArrayLike | None = None, dtype: ElementType | None = None
) -> Transform:
    """The square Toeplitz matrix of first column c and first row r.

    As in ``scipy.linalg.toeplitz`` r is conj(c) by default, and r[0] does not count.

    dtype : None: the common type of c and r.
    """
    c = _values(c, "c")
    r = np.conj(c) if r is None else _values(r, "r")
    if r.shape != c.shape:
        raise ValueError(f"c has {c.size} numbers and r {r.size}: they are as many")
    v = np.concatenate([r[:0:-1], c])
    code = element_code(v.dtype if dtype is None else dtype)
    return _make("toeplitz", lib.DANAUS_TOEPLITZ, c.size, code, converted(v, code))
