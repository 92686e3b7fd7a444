"""From a dense matrix to a chain of Kronecker-sparse factors, with its error certified.

Source: Zheng, Riccietti, Gribonval (arXiv 2110.01230); Le et al. (arXiv 2411.04506).
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
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
    numbers_of,
    pointer,
    whole,
)
from danaus._library import Progress, check, ffi, known_options, lib, listening
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
    """A chain and its errors, Frobenius norms relative to ||W||.

    Calibrated errors, from X to Y = X W^T or to targets Y, are relative to ||Y||.
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
    """Sums over inputs x (rows of X) and targets y of a layer, enough for a fit.

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
        x = matrix_of(inputs, "inputs")
        y = None if targets is None else matrix_of(targets, "targets")
        if y is not None and len(y) != len(x):
            raise ValueError(f"{len(x)} inputs have {len(y)} targets")
        common = x.dtype if y is None else np.result_type(x, y)
        x, y = (m if m is None else m.astype(common, copy=False) for m in (x, y))
        code, wide = element_code(common), np.result_type(common, np.float64)
        cols, rows = x.shape[1], 0 if y is None else y.shape[1]
        made = [np.zeros(s, wide) for s in ((cols, cols), cols, (rows, cols), rows)]
        sums = ffi.new("danaus_calibration *")
        sums.gram, sums.input_sum = map(pointer, made[:2])
        if y is not None:
            sums.cross, sums.target_sum = map(pointer, made[2:])
        shape = rows or cols, cols, len(x)
        check(lib.danaus_calibration_add(sums, code, *shape, pointer(x), pointer(y)))
        if y is None:
            return cls(len(x), *made[:2])
        return cls(len(x), *made[:3], sums.energy, made[3])

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


def matrix_of(array: ArrayLike, what: str) -> np.ndarray:
    """A contiguous matrix in the machine's byte order; integers become f64."""
    array = numbers_of(array, what)
    if array.ndim != 2:
        raise ValueError(f"{what} has {array.ndim} dimensions instead of 2")
    dtype = np.float64 if array.dtype.kind in "biu" else array.dtype.newbyteorder("=")
    return np.ascontiguousarray(array, dtype)


def _sums(
    calibration: Calibration, shape: tuple[int, int], code: int, keep: list
) -> Any:
    """The library's sums; `keep` gets the arrays that they refer to."""
    if not isinstance(calibration, Calibration):
        raise TypeError(f"calibration has to be a Calibration, not {calibration!r:.40}")
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
    rows = matrix_of(array, what)
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
    if they are not contiguous or of another type. Ctrl-C cancels the call.

    Parameters
    ----------
    patterns : the factors' patterns, which `danaus.patterns.check_chainable` accepts.
    order : "auto" (the cheaper sweep), "left", "right" or "balanced".
    fast : iterative SVDs; there is no lower bound then.
    refine : pair sweeps after the factorization; calibrated, the most passes over the
        factors, 0: 4.
    square_roots : split with square roots, never orthonormalise: larger errors, no
        bounds.
    threads : 0: one for each processor.
    inputs : X[samples][N], inputs of the layer.
    targets : Y[samples][M], target outputs; None: X W^T.
    calibration : sums over inputs and targets, instead of these.
    ridge : lambda as a share of the mean of ||x_k||^2 over the columns; 0: 1e-6.
    bias : the chain gets the best bias, mean(y) - K mean(x).
    progress : called with the share done, in [0, 1], or True for a bar of tqdm. An
        exception that it raises cancels the call and is raised from it.
    """
    dense = matrix_of(dense, "the matrix")
    code = element_code(dense.dtype)
    array, count = pattern_array(patterns)
    check_shape(dense.shape, array, count)
    keep: list[Any] = []
    desc = fit_desc(
        dense,
        keep,
        order=order,
        fast=fast,
        refine=refine,
        square_roots=square_roots,
        threads=threads,
        inputs=inputs,
        targets=targets,
        calibration=calibration,
        ridge=ridge,
        bias=bias,
    )
    place, result = ffi.new("danaus_chain **"), ffi.new("danaus_factorize_result *")
    with listening(progress, "factorize") as (desc.progress, desc.user):
        arguments = pointer(dense), code, array, count, desc, place, result
        check(lib.danaus_factorize(*arguments))
        chain = Chain._adopt(place)
    return Factorization(chain, *facts_of(result))


def fit_desc(
    dense: np.ndarray,
    keep: list,
    *,
    order: str,
    fast: bool,
    refine: int,
    square_roots: bool,
    threads: int,
    inputs: ArrayLike | None,
    targets: ArrayLike | None,
    calibration: Calibration | None,
    ridge: float,
    bias: bool,
) -> Any:
    """The options of `factorize` for the library; `keep` gets their arrays."""
    desc = ffi.new("danaus_factorize_desc *")
    desc.order, desc.fast = choose(order, ORDERS, "order"), bool(fast)
    desc.refine, desc.square_roots = whole(refine, "refine", 0, INT), bool(square_roots)
    desc.threads = whole(threads, "threads", 0, INT)
    desc.ridge, desc.bias = float(ridge), bool(bias)
    if inputs is not None:
        keep.append(_samples(inputs, dense, 1, "inputs"))
        desc.inputs, desc.samples = pointer(keep[-1]), len(keep[-1])
    if targets is not None:
        keep.append(_samples(targets, dense, 0, "targets"))
        if len(keep[-1]) != desc.samples:
            raise ValueError(f"{desc.samples} inputs have {len(keep[-1])} targets")
        desc.targets = pointer(keep[-1])
    if calibration is not None:
        code = element_code(dense.dtype)
        desc.calibration = _sums(calibration, dense.shape, code, keep)
    return desc


def fit_options(dense: np.ndarray, keep: list, options: dict[str, Any]) -> Any:
    """As `fit_desc`, with the defaults of `factorize`."""
    known_options(options, fit_desc, "a factorization")
    known = inspect.signature(factorize).parameters.values()
    defaults = {p.name: p.default for p in known if p.kind is p.KEYWORD_ONLY}
    del defaults["progress"]
    return fit_desc(dense, keep, **{**defaults, **options})


def facts_of(result: Any) -> tuple:
    """A danaus_factorize_result as the fields of a Factorization after the chain."""
    bound = result.lower_bound if result.lower_bound >= 0 else None
    errors = result.error, bound, result.upper_bound, result.off_support
    return *errors, result.dense_error, result.seconds, result.parameters


def check_shape(shape: tuple[int, int], array: object, count: int) -> None:
    """Raises ValueError unless the matrix has the shape of these patterns."""
    check(lib.danaus_patterns_check(array, count))
    rows = array[0].a * array[0].b * array[0].d
    last = array[count - 1]
    cols = last.a * last.c * last.d
    if shape != (rows, cols):
        raise ValueError(
            f"the matrix is {shape[0]} x {shape[1]}, the patterns {rows} x {cols}"
        )
