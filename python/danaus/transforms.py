"""Known transforms as exact chains, with the orders of inputs and outputs.

A `Transform` is a SciPy LinearOperator: ``dct2(n) @ x``, ``.H``, ``.T``, SciPy's
solvers. By default it has SciPy's precision: f64, and c128 if it is complex. Products
have the common type of transform and operand, with the errors of the narrower one.

Lengths have prime factors up to 61 (for ``dct1`` n - 1 has, for ``dst1`` n + 1); for
`walsh_hadamard`, `noiselet` and `givens` they are powers of two. Other lengths raise
NotImplementedError. docs/transforms.md has definitions, scales and sizes.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from danaus._arrays import (
    INT,
    ElementType,
    converted,
    element_code,
    numbers_of,
    pointer,
    short_name,
    whole,
)
from danaus._exchange import exchanged
from danaus._library import check, ffi, lib, own
from danaus.operator import Operator


class Transform(Operator):
    """An exact transform: one chain between two orders; wavelets have one a level."""


# ---- making ----


def _adopt(name: str, place: Any) -> Transform:
    return Transform(name, own(place[0], lib.danaus_operator_destroy))


def _make(
    kind: int,
    n: Any,
    code: int,
    *,
    name: str | None = None,
    values: np.ndarray | None = None,
    angles: np.ndarray | None = None,
    **fields: int,
) -> Transform:
    desc = ffi.new("danaus_transform_desc *", dict(fields, kind=kind, dtype=code))
    desc.n = whole(n, "n", 1, INT)
    desc.values = pointer(values)
    desc.angles = ffi.cast("double *", pointer(angles))
    place = ffi.new("danaus_operator **")
    check(lib.danaus_operator_transform(desc, place))
    name = name or ffi.string(lib.danaus_transform_name(kind)).decode()
    return _adopt(name, place)


def _flags(orthonormal: bool, inverse: bool) -> dict[str, int]:
    return {"orthonormal": int(bool(orthonormal)), "inverse": int(bool(inverse))}


def load(path: str | os.PathLike) -> Transform:
    """Reads what `Transform.save` or ``danaus transform`` has written, or a chain."""
    return Transform.load(path)


# ---- Fourier, Hartley, cosine, sine ----


def dft(
    n: int,
    dtype: ElementType = "c128",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The discrete Fourier transform: exp(-2 pi i k j / n), as ``scipy.fft.fft``."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_DFT, n, element_code(dtype), **flags)


def walsh_hadamard(
    n: int,
    dtype: ElementType = "f64",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The Walsh-Hadamard transform in natural order, as ``scipy.linalg.hadamard``."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_WALSH_HADAMARD, n, element_code(dtype), **flags)


def hartley(
    n: int,
    dtype: ElementType = "f64",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The Hartley transform: cos(2 pi k j / n) + sin(2 pi k j / n)."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_HARTLEY, n, element_code(dtype), **flags)


def dct1(
    n: int,
    dtype: ElementType = "f64",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The DCT-I: cos(pi k j / (n - 1)), n >= 2; SciPy doubles all but the ends of x."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_DCT1, n, element_code(dtype), **flags)


def dct2(
    n: int,
    dtype: ElementType = "f64",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The DCT-II: cos(pi k (2 j + 1) / (2 n)), half of what ``scipy.fft.dct`` gives."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_DCT2, n, element_code(dtype), **flags)


def dct3(
    n: int,
    dtype: ElementType = "f64",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The DCT-III: cos(pi (2 k + 1) j / (2 n)), the transpose of `dct2`."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_DCT3, n, element_code(dtype), **flags)


def dct4(
    n: int,
    dtype: ElementType = "f64",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The DCT-IV: cos(pi (2 k + 1) (2 j + 1) / (4 n)), half of ``dct(type=4)``."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_DCT4, n, element_code(dtype), **flags)


def dst1(
    n: int,
    dtype: ElementType = "f64",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The DST-I: sin(pi (k + 1) (j + 1) / (n + 1)), half of ``dst(type=1)``."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_DST1, n, element_code(dtype), **flags)


def dst2(
    n: int,
    dtype: ElementType = "f64",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The DST-II: sin(pi (k + 1) (2 j + 1) / (2 n)), half of ``scipy.fft.dst``."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_DST2, n, element_code(dtype), **flags)


def dst3(
    n: int,
    dtype: ElementType = "f64",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The DST-III: sin(pi (2 k + 1) (j + 1) / (2 n)), the transpose of `dst2`."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_DST3, n, element_code(dtype), **flags)


def dst4(
    n: int,
    dtype: ElementType = "f64",
    *,
    orthonormal: bool = False,
    inverse: bool = False,
) -> Transform:
    """The DST-IV: sin(pi (2 k + 1) (2 j + 1) / (4 n)), half of ``dst(type=4)``."""
    flags = _flags(orthonormal, inverse)
    return _make(lib.DANAUS_DST4, n, element_code(dtype), **flags)


# ---- butterflies ----


def noiselet(
    n: int, dtype: ElementType = "c128", *, inverse: bool = False
) -> Transform:
    """The noiselet transform of Coifman, Geshwind and Meyer, unitary; n = 2^L."""
    flags = _flags(False, inverse)
    return _make(lib.DANAUS_NOISELET, n, element_code(dtype), **flags)


def givens(
    angles: ArrayLike, dtype: ElementType = "f64", *, inverse: bool = False
) -> Transform:
    """The orthogonal matrix of rotations on a butterfly, n = 2^L.

    angles : [L][n/2], in radians; block (i, j) of factor l, whose pattern is
        (2^l, 2, 2, 2^(L-1-l)), is [cos -sin; sin cos] of angles[l][i 2^(L-1-l) + j].
    """
    angles = converted(angles, lib.DANAUS_F64, what="angles")
    if angles.ndim != 2 or angles.shape[1] != 2 ** (angles.shape[0] - 1):
        shape = f"{angles.shape} instead of [L][2^(L-1)]"
        raise ValueError(f"angles have the shape {shape}")
    n, flags = 2 * angles.shape[1], _flags(False, inverse)
    code = element_code(dtype)
    return _make(lib.DANAUS_GIVENS, n, code, angles=angles, **flags)


# ---- wavelets ----


def _moments(wavelet: str) -> int:
    """K of "dbK"."""
    number = wavelet[2:] if isinstance(wavelet, str) and wavelet[:2] == "db" else ""
    if wavelet == "haar":
        return 1
    if not number.isdecimal() or not 1 <= int(number) <= lib.DANAUS_MOST_MOMENTS:
        names = f"'haar' and 'db1' to 'db{lib.DANAUS_MOST_MOMENTS}'"
        raise ValueError(f"wavelets are {names}, not {wavelet!r}")
    return int(number)


def wavelet(
    n: int,
    wavelet: str = "haar",
    levels: int | None = None,
    dtype: ElementType = "f64",
    *,
    inverse: bool = False,
) -> Transform:
    """The periodic transform by Daubechies' wavelets, orthogonal.

    wavelet : "haar", or "dbK" of K vanishing moments and 2 K taps.
    levels : n is a multiple of 2^levels; None: as many as n allows.

    A level takes n averages a and gives n/2 averages ``h @ a[(2 k + arange(2 K)) % n]``
    and n/2 details, by g instead of h; the result is the averages of the last level,
    then the details of the last to the first.
    """
    fields = _flags(False, inverse)
    fields["moments"] = _moments(wavelet)
    fields["levels"] = 0 if levels is None else whole(levels, "levels", 1, INT)
    return _make(lib.DANAUS_WAVELET, n, element_code(dtype), name=wavelet, **fields)


def wavelet_filter(wavelet: str) -> np.ndarray:
    """Daubechies' filter h of "haar" or "dbK", [2 K] in f64, of minimal phase."""
    moments = _moments(wavelet)
    h = np.empty(2 * moments)
    check(lib.danaus_wavelet_filter(moments, ffi.cast("double *", pointer(h))))
    return h


# ---- circulant and Toeplitz matrices ----


def _values(values: ArrayLike, what: str) -> np.ndarray:
    """Numbers in one dimension, integers as f64."""
    array = numbers_of(values, what)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{what} has the shape {array.shape} instead of [n]")
    return array.astype(np.float64) if array.dtype.kind in "biu" else array


def circulant(
    c: ArrayLike, dtype: ElementType | None = None, *, inverse: bool = False
) -> Transform:
    """The circulant matrix with first column c, as ``scipy.linalg.circulant``.

    dtype : None: c's.
    inverse : True for its inverse, again a circulant; ValueError if it is singular.
    """
    c = _values(c, "c")
    code = element_code(c.dtype if dtype is None else dtype)
    values, flags = converted(c, code, what="c"), _flags(False, inverse)
    return _make(lib.DANAUS_CIRCULANT, c.size, code, values=values, **flags)


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
    return _make(
        lib.DANAUS_TOEPLITZ, c.size, code, values=converted(v, code, what="c and r")
    )


@exchanged
def toeplitz_solve(
    c: ArrayLike,
    r: ArrayLike | None,
    b: ArrayLike,
    dtype: ElementType | None = None,
) -> np.ndarray:
    """x of ``toeplitz(c, r) @ x = b``, as ``scipy.linalg.solve_toeplitz((c, r), b)``.

    Fourier transforms turn it into a matrix that is eliminated with pivots in n^2
    operations, for any n. ValueError if a pivot is 0 up to rounding.

    b : [n] or [n, batch].
    dtype : None: the common type of c, r and b.
    """
    c = _values(c, "c")
    r = np.conj(c) if r is None else _values(r, "r")
    b = numbers_of(b, "b")
    if r.shape != c.shape or b.ndim not in (1, 2) or b.shape[0] != c.size:
        shapes = f"c {c.shape}, r {r.shape}, b {b.shape}"
        raise ValueError(f"the shapes {shapes} are not [n], [n] and [n] or [n, batch]")
    v = np.concatenate([r[:0:-1], c])
    common = np.result_type(v, b, np.float32) if dtype is None else dtype
    code = element_code(common)
    v, right = converted(v, code, what="c and r"), converted(b, code, what="b")
    x = np.empty(right.shape, right.dtype)
    batch = right.size // c.size
    arguments = c.size, pointer(v), lib.DANAUS_BATCH_LAST, batch, pointer(right)
    check(lib.danaus_toeplitz_solve(code, *arguments, pointer(x)))
    return x


# ---- points that are not uniform ----


class Nufft:
    """Fourier transforms between n modes and any points, of types 1 and 2.

    Parameters
    ----------
    points : [m], in radians.
    n : modes k = -(n // 2) .. n - n // 2 - 1.
    tolerance : bound of errors relative to the sum of absolute values of the inputs;
        1e-13 (c64: 1e-6) to 0.1.
    negative : exp(-i k x) instead of exp(i k x).
    threads : 0: one for each processor. They change no bit of the result.

    The computations that depend only on the points are done once.
    """

    def __init__(
        self,
        points: ArrayLike,
        n: int,
        dtype: ElementType = "c128",
        *,
        tolerance: float = 1e-6,
        negative: bool = False,
        threads: int = 0,
    ):
        points = converted(points, lib.DANAUS_F64, what="points")
        if points.ndim != 1:
            raise ValueError(f"points have the shape {points.shape} instead of [m]")
        self._code = element_code(dtype)
        self._made_of = points, n, short_name(self._code), tolerance, negative, threads
        self.shape = points.size, whole(n, "n", 1, INT)
        desc = ffi.new("danaus_nufft_desc *")
        desc.points, desc.n = self.shape
        desc.x = ffi.cast("double *", pointer(points))
        desc.tolerance, desc.dtype = tolerance, self._code
        desc.negative = int(bool(negative))
        desc.threads = whole(threads, "threads", 0, INT)
        place = ffi.new("danaus_nufft_plan **")
        check(lib.danaus_nufft_plan_create(desc, place))
        self._handle = own(place[0], lib.danaus_nufft_plan_destroy)
        self._lock = threading.Lock()

    def __reduce__(self):
        return _nufft, self._made_of

    @exchanged
    def type1(self, numbers: ArrayLike) -> np.ndarray:
        """F[k] = sum over j of numbers[j] exp(i k x_j)."""
        return self._run(lib.danaus_nufft_type1, numbers, "numbers", *self.shape)

    @exchanged
    def type2(self, modes: ArrayLike) -> np.ndarray:
        """c[j] = sum over k of modes[k] exp(i k x_j)."""
        return self._run(lib.danaus_nufft_type2, modes, "modes", *self.shape[::-1])

    def _run(self, call: Any, x: ArrayLike, what: str, size: int, to: int):
        x = converted(x, self._code, what=what)
        if x.shape != (size,):
            raise ValueError(f"{what} have the shape {x.shape} instead of ({size},)")
        y = np.empty(to, x.dtype)
        with self._lock:
            check(call(self._handle, pointer(x), pointer(y)))
        return y


def _nufft(points, n, dtype, tolerance, negative, threads) -> Nufft:
    """The plan that was pickled or copied."""
    how = {"tolerance": tolerance, "negative": negative, "threads": threads}
    return Nufft(points, n, dtype, **how)
