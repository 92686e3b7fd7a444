"""SciPy's LinearOperator, with the types that SciPy does not give it.

Without types it is Any to mypy, and so is what inherits from it: ``2 * chain`` would be
an int.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union, overload

import numpy as np
from numpy.typing import ArrayLike

Number = Union[complex, np.number]

if not TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

    AnyOperator = LinearOperator
else:
    from scipy.sparse.linalg import LinearOperator as _Untyped

    class LinearOperator:
        ndim: int
        shape: tuple[int, int]
        dtype: np.dtype[Any]
        __array_ufunc__: None

        def __init__(self, dtype: Any, shape: tuple[int, int]) -> None: ...

        @property
        def T(self) -> LinearOperator: ...
        @property
        def H(self) -> LinearOperator: ...
        def transpose(self) -> LinearOperator: ...
        def adjoint(self) -> LinearOperator: ...

        def matvec(self, x: ArrayLike) -> np.ndarray: ...
        def rmatvec(self, x: ArrayLike) -> np.ndarray: ...
        def matmat(self, X: ArrayLike) -> np.ndarray: ...
        def rmatmat(self, X: ArrayLike) -> np.ndarray: ...

        @overload
        def dot(self, x: Number) -> LinearOperator: ...
        @overload
        def dot(self, x: ArrayLike) -> np.ndarray: ...
        @overload
        def dot(self, x: AnyOperator) -> LinearOperator: ...
        __call__ = dot
        __mul__ = dot
        __rmul__ = dot

        @overload
        def __matmul__(self, other: ArrayLike) -> np.ndarray: ...
        @overload
        def __matmul__(self, other: AnyOperator) -> LinearOperator: ...
        __rmatmul__ = __matmul__

        def __truediv__(self, other: Number) -> LinearOperator: ...
        def __pow__(self, p: int) -> LinearOperator: ...
        def __add__(self, x: AnyOperator) -> LinearOperator: ...
        def __sub__(self, x: AnyOperator) -> LinearOperator: ...
        def __neg__(self) -> LinearOperator: ...

    AnyOperator = Union[LinearOperator, _Untyped]


class Matrix(LinearOperator):
    """One that multiplies columns, also by its adjoint, in `_product`."""

    def _product(self, x: np.ndarray, adjoint: bool) -> np.ndarray:
        raise NotImplementedError

    def _matmat(self, x: np.ndarray) -> np.ndarray:
        return self._product(x, adjoint=False)

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self._product(x.reshape(-1, 1), adjoint=False)[:, 0]

    def _rmatmat(self, x: np.ndarray) -> np.ndarray:
        return self._product(x, adjoint=True)

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        return self._product(x.reshape(-1, 1), adjoint=True)[:, 0]
