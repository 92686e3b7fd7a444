"""From a dense matrix to a chain of Kronecker-sparse factors, with its error certified.

Source: Zheng, Riccietti, Gribonval (arXiv 2110.01230); Le et al. (arXiv 2411.04506).
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from danaus._arrays import INT, choose, element_code, pointer, whole
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
    """A chain and how near it is, by Frobenius norms relative to ||W|| or ||X W^T||."""

    chain: Chain
    error: float  # ||W - K_1 ... K_L||, with inputs ||X (W - K_1 ... K_L)^T||
    lower_bound: float | None  # no factors of these patterns do better; None: unknown
    upper_bound: float  # what the split errors guarantee; at least `error`
    off_support: float  # part of W that no weights can reach; within `error`
    dense_error: float  # the unweighted error, also where inputs are given
    seconds: float
    parameters: int


def _matrix(array: ArrayLike, what: str) -> np.ndarray:
    """A contiguous matrix in the machine's byte order; integers become f64."""
    array = np.asarray(array)
    if array.ndim != 2:
        raise ValueError(f"{what} has {array.ndim} dimensions instead of 2")
    dtype = np.float64 if array.dtype.kind in "biu" else array.dtype.newbyteorder("=")
    return np.ascontiguousarray(array, dtype)


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
    progress: Progress = None,
) -> Factorization:
    """Factorises dense[M][N] (f32, f64, c64 or c128) into a chain of the same type.

    The matrix and the inputs are copied where they are not contiguous. Ctrl-C gives up.

    Parameters
    ----------
    patterns : the factors' patterns; `danaus.patterns.check_chainable` says which do.
    order : "auto" (the cheaper sweep), "left", "right" or "balanced".
    fast : iterative SVDs; there is no lower bound then.
    refine : pair sweeps after the factorization; with inputs the most passes, 0: 4.
    square_roots : split with square roots, never orthonormalise: larger errors, no
        bounds.
    threads : 0: one for each processor.
    inputs : calibration X[samples][N] of the matrix's type: ||X W^T - X (K_1..K_L)^T||
        is minimised instead of ||W - K_1..K_L||.
    progress : called with the share done, in [0, 1], or True for a bar of tqdm. What it
        raises gives up and is raised here.
    """
    dense = _matrix(dense, "the matrix")
    code = element_code(dense.dtype)
    array, count = pattern_array(patterns)
    desc = ffi.new("danaus_factorize_desc *")
    desc.order, desc.fast = choose(order, ORDERS, "order"), bool(fast)
    desc.refine, desc.square_roots = whole(refine, "refine", 0, INT), bool(square_roots)
    desc.threads = whole(threads, "threads", 0, INT)
    _check_shape(dense.shape, array, count)
    if inputs is not None:
        inputs = _matrix(inputs, "inputs").astype(dense.dtype, copy=False)
        if inputs.shape[1] != dense.shape[1]:
            raise ValueError(
                f"inputs have {inputs.shape[1]} columns, the matrix {dense.shape[1]}"
            )
        desc.inputs, desc.samples = pointer(inputs), inputs.shape[0]
    place = ffi.new("danaus_chain **")
    result = ffi.new("danaus_factorize_result *")
    with listening(progress, "factorize") as (desc.progress, desc.user):
        arguments = pointer(dense), code, array, count, desc, place, result
        check(lib.danaus_factorize(*arguments))
        chain = Chain._adopt(place)
    bound = result.lower_bound if result.lower_bound >= 0 else None
    return Factorization(
        chain,
        result.error,
        bound,
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
