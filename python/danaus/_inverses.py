"""Inverses of chains of square blocks (b = c): factor by factor, and block by block."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from danaus._arrays import (
    converted,
    is_complex,
    numbers_of,
    pointer,
    product_code,
    short_name,
)
from danaus._exchange import exchanged
from danaus._library import check, ffi, lib
from danaus.plan import LAYOUTS

if TYPE_CHECKING:
    from danaus.chain import Chain  # which is one of these


class Condition(NamedTuple):
    """Condition numbers ||B||_1 ||B^-1||_1 of a chain of square blocks."""

    bound: float  # that of W is at most this, the product of its factors'
    largest: float  # of a block,
    factor: int  # of this factor,
    block: tuple[int, int]  # (i, j), i < a and j < d


@contextlib.contextmanager
def _linear_algebra() -> Iterator[None]:
    """What the library refuses is raised as NumPy's linear algebra does."""
    try:
        yield
    except ValueError as error:
        raise np.linalg.LinAlgError(str(error)) from None


class Invertible:
    """What a chain of square blocks has beside its products."""

    if TYPE_CHECKING:
        _handle: Any
        _code: int
        shape: tuple[int, int]

        @classmethod
        def _adopt(cls, place: Any) -> Chain: ...
        def _judge(self, made: np.ndarray, what: str, *operands: np.ndarray): ...
        def astype(self, dtype: str) -> Chain: ...

    def inv(self) -> Chain:
        """The chain of W^-1, made block by block in double precision.

        LinAlgError where a block is singular, naming it, or not square.
        """
        with _linear_algebra():
            place = ffi.new("danaus_chain **")
            check(lib.danaus_chain_invert(self._handle, 0, place, ffi.NULL))
            return self._adopt(place)

    @exchanged
    def solve(self, b: ArrayLike) -> np.ndarray:
        """x with W x = b, for b[N] or columns b[N][K], without the inverse.

        The elimination runs in double precision; x has the common type.
        """
        b, rows = numbers_of(b, "b"), self.shape[0]
        if b.ndim not in (1, 2) or len(b) != rows:
            raise ValueError(f"b has shape {b.shape} where [{rows}, ...] is needed")
        code = product_code(self._code, b.dtype)
        x = np.array(converted(b, code, what="b"))
        chain = self if code == self._code else self.astype(short_name(code))
        batch, place = b.size // rows, pointer(x)
        arguments = 0, LAYOUTS["batch-last"], batch, place, place, ffi.NULL
        right = x.copy()
        with _linear_algebra():
            check(lib.danaus_chain_solve(chain._handle, *arguments))
        chain._judge(x, "x", right)
        return x

    def slogdet(self) -> tuple[float | complex, float]:
        """Sign (or phase) and logarithm of the modulus of det W, as NumPy has them."""
        modulus, phase = ffi.new("double *"), ffi.new("double [2]")
        with _linear_algebra():
            check(lib.danaus_chain_determinant(self._handle, 0, modulus, phase))
        real = not is_complex(self._code)
        return phase[0] if real else complex(phase[0], phase[1]), modulus[0]

    def condition(self) -> Condition:
        """How far W is from singular, by estimates of LAPACK."""
        c = ffi.new("danaus_condition *")
        with _linear_algebra():
            nothing = 0, 0, 0, ffi.NULL, ffi.NULL
            check(lib.danaus_chain_solve(self._handle, *nothing, c))
        return Condition(c.bound, c.largest, c.factor, (c.i, c.j))
