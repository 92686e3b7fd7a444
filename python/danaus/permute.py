"""Permutations in which a matrix is near to a chain."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from danaus._arrays import INT, element_code, integers, pointer, whole
from danaus._library import check, ffi, lib
from danaus.factorize import matrix_of
from danaus.patterns import Patterns, as_patterns, pattern_array


@dataclass(frozen=True)
class Permutations:
    """dense[rows][:, cols] is nearer to chains of the patterns than dense is.

    Errors are relative Frobenius distances from the nearest such chain.
    """

    rows: np.ndarray  # int64
    cols: np.ndarray
    before: float
    after: float


def find_permutations(
    dense: ArrayLike,
    patterns: Patterns,
    *,
    rows: bool = True,
    cols: bool = True,
    row_classes: ArrayLike | None = None,
    col_classes: ArrayLike | None = None,
    rounds: int = 0,
    threads: int = 0,
) -> Permutations:
    """Searches permutations of dense[M][N] for a chain of two factors, such as Monarch.

    It usually finds a shuffled Monarch matrix. It may find others, but never a larger
    error than without permutations. The result depends on the arguments only.

    Parameters
    ----------
    patterns : (1, b, c, q) (p, b, c, 1), without zeros in their product.
    rows, cols : True if rows, or columns, may be permuted.
    row_classes, col_classes : M and N integers; only rows (columns) of the same class
        are exchanged.
    rounds : maximum number of rounds of the search; 0: 100.
    threads : 0: one for each processor.
    """
    dense, patterns = matrix_of(dense, "the matrix"), as_patterns(patterns)
    shape = patterns[0].rows, patterns[-1].cols
    if dense.shape != shape:
        raise ValueError(f"the patterns make {shape} matrices, this is {dense.shape}")
    desc = ffi.new("danaus_permute_desc *")
    desc.keep_rows, desc.keep_cols = not rows, not cols
    desc.rounds = whole(rounds, "rounds", 0, INT)
    desc.threads = whole(threads, "threads", 0, INT)
    given = [_classes(row_classes, shape[0]), _classes(col_classes, shape[1])]
    desc.row_classes, desc.col_classes = (_int64(c) for c in given)
    found, errors = [np.empty(n, np.int64) for n in shape], ffi.new("double[2]")
    matrix = pointer(dense), element_code(dense.dtype), *pattern_array(patterns)
    check(lib.danaus_find_permutations(*matrix, desc, *map(_int64, found), errors))
    return Permutations(*found, *errors)


def _classes(classes: ArrayLike | None, count: int) -> np.ndarray | None:
    if classes is None:
        return None
    array = integers(classes, "classes")
    if array.shape != (count,):
        raise ValueError(f"there are classes of shape {array.shape}, not ({count},)")
    return array


def _int64(array: np.ndarray | None) -> Any:
    return ffi.NULL if array is None else ffi.from_buffer("int64_t[]", array)
