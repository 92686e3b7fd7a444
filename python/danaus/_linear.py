"""SciPy's LinearOperator, with the types that SciPy does not give it.

Without types it is Any to mypy, and so is what inherits from it: ``2 * chain`` would be
an int.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union, overload

import numpy as np
from numpy.typing import ArrayLike

from danaus._exchange import OnDevice, exchanged

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
    """One that multiplies columns, also by its adjoint, in `_product`.

    Arrays of other libraries are multiplied where they lie, the result in the same.
    """

    def _product(self, x: Any, adjoint: bool) -> Any:
        raise NotImplementedError

    @exchanged
    def dot(self, x: Any) -> Any:
        if not isinstance(x, OnDevice):
            return super().dot(x)
        cols = self.shape[1]
        if x.ndim not in (1, 2) or x.shape[0] != cols:
            wanted = f"[{cols}] or [{cols}, columns]"
            raise ValueError(f"x has the shape {x.shape} instead of {wanted}")
        columns = x if x.ndim == 2 else x.reshape(-1, 1)
        return self._product(columns, False).reshape(self.shape[0], *x.shape[1:])

    matvec = exchanged(LinearOperator.matvec)
    rmatvec = exchanged(LinearOperator.rmatvec)
    matmat = exchanged(LinearOperator.matmat)
    rmatmat = exchanged(LinearOperator.rmatmat)
    __rmatmul__ = exchanged(LinearOperator.__rmatmul__)
    __rmul__ = exchanged(LinearOperator.__rmul__)

    def _adjoint(self) -> LinearOperator:
        return _Turned(self, conjugate=True)

    def _transpose(self) -> LinearOperator:
        return _Turned(self, conjugate=False)

    def _matmat(self, x: np.ndarray) -> np.ndarray:
        return self._product(x, adjoint=False)

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self._product(x.reshape(-1, 1), adjoint=False)[:, 0]

    def _rmatmat(self, x: np.ndarray) -> np.ndarray:
        return self._product(x, adjoint=True)

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        return self._product(x.reshape(-1, 1), adjoint=True)[:, 0]


class _Turned(Matrix):
    """The adjoint or, not `conjugate`, the transpose of a matrix."""

    def __init__(self, matrix: Matrix, conjugate: bool):
        self.args = matrix, conjugate
        super().__init__(matrix.dtype, matrix.shape[::-1])

    def _product(self, x: Any, adjoint: bool) -> Any:
        matrix, conjugate = self.args
        if conjugate:
            return matrix._product(x, not adjoint)
        return matrix._product(x.conj(), not adjoint).conj()
