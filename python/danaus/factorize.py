"""From a dense matrix to a chain of Kronecker-sparse factors, with its error certified.

Source: Zheng, Riccietti, Gribonval (arXiv 2110.01230); Le et al. (arXiv 2411.04506).
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from danaus._arrays import (
    INT,
    INT64,
    checked,
    choose,
    converted,
    element_code,
    is_complex,
    pointer,
    whole,
)
from danaus._library import Progress, check, ffi, lib, listening
from danaus.chain import Chain
from danaus.patterns import Patterns, pattern_array

ORDERS = {
    "auto": lib.DANAUS_ORDER_AUTO,
    "left": lib.DANAUS_ORDER_LEFT_TO_RIGHT,
    "right": lib.DANAUS_ORDER_RIGHT_TO_LEFT,
    "balanced": lib.DANAUS_ORDER_BALANCED,
}


@dataclass(frozen=True)
class Factorization:
    """A chain and how near it is, by Frobenius norms relative to ||W||.

    Calibrated ones, from X to Y = X W^T or to targets Y, are relative to ||Y||.
    """

    chain: Chain
    error: float  # ||W - K||, calibrated ||Y - X K^T||, with K = K_1 ... K_L
    lower_bound: float | None  # no factors of these patterns do better; None: unknown
    upper_bound: float  # what the split errors guarantee; at least `error`
    off_support: float  # part of W that no weights can reach; within `error`
    dense_error: float  # ||W - K|| / ||W||, also where calibrated
    seconds: float
    parameters: int  # without the bias


@dataclass(frozen=True)
class Calibration:
    """Sums over inputs x (rows of X) and targets y of a layer, all that a fit needs.

    `Calibration.of` makes them, and sums of several batches add up by ``+``. Errors
    below 1e-8 cannot be told from sums.
    """

    samples: int
    gram: np.ndarray  # X^T conj(X), [N][N], f64 or c128, as all
    input_sum: np.ndarray  # [N]
    cross: np.ndarray | None = None  # Y^T conj(X), [M][N]; None: targets are X W^T
    energy: float = 0.0  # ||Y||^2
    target_sum: np.ndarray | None = None  # [M]

    @classmethod
    def of(cls, inputs: ArrayLike, targets: ArrayLike | None = None) -> Calibration:
        """The sums over X[samples][N] and Y[samples][M]."""
        x = _wide(inputs, "inputs")
        if targets is None:
            return cls(len(x), x.T @ x.conj(), x.sum(0))
        y = _wide(targets, "targets")
        if len(y) != len(x):
            raise ValueError(f"{len(x)} inputs have {len(y)} targets")
        sums = x.T @ x.conj(), x.sum(0), y.T @ x.conj()
        return cls(len(x), *sums, float(np.vdot(y, y).real), y.sum(0))

    def __add__(self, other: Calibration) -> Calibration:
        if not isinstance(other, Calibration):
            return NotImplemented
        if (self.cross is None) != (other.cross is None):
            raise ValueError("sums with targets and sums without do not add up")
        ours, theirs = (
            (c.samples, c.gram, c.input_sum, c.cross, c.energy, c.target_sum)
            for c in (self, other)
        )
        sums = (a if a is None else a + b for a, b in zip(ours, theirs))
        return Calibration(*sums)


def _matrix(array: ArrayLike, what: str) -> np.ndarray:
    """A contiguous matrix in the machine's byte order; integers become f64."""
    array = np.asarray(array)
    if array.ndim != 2:
        raise ValueError(f"{what} has {array.ndim} dimensions instead of 2")
    dtype = np.float64 if array.dtype.kind in "biu" else array.dtype.newbyteorder("=")
    return np.ascontiguousarray(array, dtype)


def _wide(array: ArrayLike, what: str) -> np.ndarray:
    matrix = _matrix(array, what)
    element_code(matrix.dtype)
    return matrix.astype(np.result_type(matrix.dtype, np.float64), copy=False)


def _sums(
    calibration: Calibration, shape: tuple[int, int], code: int, keep: list
) -> Any:
    """The library's sums; `keep` gets the arrays that they refer to."""
    if not isinstance(calibration, Calibration):
        raise TypeError(f"calibration is a Calibration, not {calibration!r:.40}")
    wide = lib.DANAUS_C128 if is_complex(code) else lib.DANAUS_F64
    rows, cols = shape

    def place(array: np.ndarray | None, shape: tuple[int, ...], what: str) -> Any:
        if array is not None:
            keep.append(converted(np.asarray(array), wide))
            checked(keep[-1], wide, what, shape=shape)
        return pointer(None if array is None else keep[-1])

    sums = ffi.new("danaus_calibration *")
    sums.samples = whole(calibration.samples, "samples", 0, INT64)
    sums.energy = calibration.energy
    sums.gram = place(calibration.gram, (cols, cols), "gram")
    sums.cross = place(calibration.cross, (rows, cols), "cross")
    sums.input_sum = place(calibration.input_sum, (cols,), "input_sum")
    sums.target_sum = place(calibration.target_sum, (rows,), "target_sum")
    keep.append(sums)
    return sums


def _samples(array: ArrayLike, dense: np.ndarray, axis: int, what: str) -> np.ndarray:
    """Rows of the matrix's type, as many numbers as it has along that axis."""
    rows = _matrix(array, what)
    if np.iscomplexobj(rows) and not np.iscomplexobj(dense):
        raise TypeError(f"{what} are complex, the matrix is real")
    if rows.shape[1] != dense.shape[axis]:
        wanted = f"{dense.shape[axis]} columns are needed"
        raise ValueError(f"{what} have shape {rows.shape} where {wanted}")
    return rows.astype(dense.dtype, copy=False)


def factorize(
    dense: ArrayLike,
    patterns: Patterns,
    *,
    order: str = "auto",
    fast: bool = False,
    refine: int = 0,
    square_roots: bool = False,
    threads: int = 0,
    inputs: ArrayLike | None = None,
    targets: ArrayLike | None = None,
    calibration: Calibration | None = None,
    ridge: float = 0.0,
    bias: bool = False,
    progress: Progress = None,
) -> Factorization:
    """Factorises dense[M][N] (f32, f64, c64 or c128) into a chain of the same type.

    Without inputs and calibration the factors minimise ||W - K||, K = K_1 ... K_L. With
    one of them they minimise ||Y - X K^T||^2 + lambda ||W - K||^2. Arrays are copied
    where they are not contiguous or of another type. Ctrl-C gives up.

    Parameters
    ----------
    patterns : the factors' patterns; `danaus.patterns.check_chainable` says which do.
    order : "auto" (the cheaper sweep), "left", "right" or "balanced".
    fast : iterative SVDs; there is no lower bound then.
    refine : pair sweeps after the factorization; calibrated, the most passes over the
        factors, 0: 4.
    square_roots : split with square roots, never orthonormalise: larger errors, no
        bounds.
    threads : 0: one for each processor.
    inputs : X[samples][N], what the layer sees.
    targets : Y[samples][M], what it shall make of that; None: X W^T.
    calibration : sums over inputs and targets, instead of these.
    ridge : lambda as a share of the mean of ||x_k||^2 over the columns; 0: 1e-6.
    bias : the chain gets the bias that serves best, mean(y) - K mean(x).
    progress : called with the share done, in [0, 1], or True for a bar of tqdm. What it
        raises gives up and is raised here.
    """
    dense = _matrix(dense, "the matrix")
    code = element_code(dense.dtype)
    array, count = pattern_array(patterns)
    _check_shape(dense.shape, array, count)
    desc = ffi.new("danaus_factorize_desc *")
    desc.order, desc.fast = choose(order, ORDERS, "order"), bool(fast)
    desc.refine, desc.square_roots = whole(refine, "refine", 0, INT), bool(square_roots)
    desc.threads = whole(threads, "threads", 0, INT)
    desc.ridge, desc.bias = float(ridge), bool(bias)
    keep: list[Any] = []
    if inputs is not None:
        keep.append(_samples(inputs, dense, 1, "inputs"))
        desc.inputs, desc.samples = pointer(keep[-1]), len(keep[-1])
    if targets is not None:
        keep.append(_samples(targets, dense, 0, "targets"))
        if len(keep[-1]) != desc.samples:
            raise ValueError(f"{desc.samples} inputs have {len(keep[-1])} targets")
        desc.targets = pointer(keep[-1])
    if calibration is not None:
        desc.calibration = _sums(calibration, dense.shape, code, keep)
    place, result = ffi.new("danaus_chain **"), ffi.new("danaus_factorize_result *")
    with listening(progress, "factorize") as (desc.progress, desc.user):
        arguments = pointer(dense), code, array, count, desc, place, result
        check(lib.danaus_factorize(*arguments))
        chain = Chain._adopt(place)
    return Factorization(
        chain,
        result.error,
        result.lower_bound if result.lower_bound >= 0 else None,
        result.upper_bound,
        result.off_support,
        result.dense_error,
        result.seconds,
        result.parameters,
    )


def _check_shape(shape: tuple[int, int], array: object, count: int) -> None:
    """Raises ValueError unless the matrix has the shape of these patterns."""
    check(lib.danaus_patterns_check(array, count))
    rows = array[0].a * array[0].b * array[0].d
    last = array[count - 1]
    cols = last.a * last.c * last.d
    if shape != (rows, cols):
        raise ValueError(
            f"the matrix is {shape[0]} x {shape[1]}, the patterns {rows} x {cols}"
        )
