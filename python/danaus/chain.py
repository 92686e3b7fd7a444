"""Chains W = K_1 ... K_L of Kronecker-sparse factors, on the host."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike

from danaus._arrays import (
    ElementType,
    by_parts,
    checked,
    convert,
    converted,
    element_code,
    is_complex,
    numbers_of,
    numpy_dtype,
    pointer,
    product_code,
    short_name,
    whole,
)
from danaus._exchange import device_for
from danaus._inverses import Condition, Invertible
from danaus._library import check, ffi, handle_of, lib, own, path_bytes
from danaus._linear import AnyOperator, LinearOperator, Matrix, Number
from danaus.device import default_device
from danaus.patterns import Pattern, Patterns, pattern_array
from danaus.plan import Plan, Weights

if TYPE_CHECKING:
    from danaus.operator import Operator  # which is made of chains

__all__ = ["Chain", "Condition"]


class _Views:
    """Views of weights that live, and a mark that changes when one begins or ends."""

    def __init__(self):
        self.living: set[object] = set()
        self.mark = object()

    def begin(self) -> Callable[[Any], None]:
        """Registers a view; returns the function to call when it ends."""
        view = object()
        self.living.add(view)
        self.mark = view

        def ended(memory: Any) -> None:
            self.mark = object()  # before: who finds no view finds a new mark
            self.living.discard(view)

        return ended


def _is_number(x: Any) -> bool:
    """True if it is a scalar; NumPy counts text as one."""
    if isinstance(x, (str, bytes)):
        raise TypeError(f"a chain is multiplied by arrays and numbers, not {x!r:.40}")
    return np.isscalar(x)


class Chain(Invertible, Matrix):
    """An M x N matrix W = K_1 ... K_L as patterns and weights, and a bias or None.

    A chain is a SciPy LinearOperator: `chain @ x`, `chain.H @ y`, `chain.T @ y`,
    SciPy's solvers. These multiply by W without the bias; `danaus.apply` adds it. They
    use the current weights and run on this thread's default device, in the common type
    of chain and operand, which are converted and made contiguous as by SciPy. The chain
    keeps a plan and packed weights for the next product of the same kind; `Plan` gives
    control of both.

    Chains are made by `Chain.create`, `from_weights`, `load` and `danaus.factorize`.
    They are copied and pickled by value.
    """

    def __init__(self, handle: Any):
        self._handle = handle
        handle_of(self, "danaus_chain *", "Chain.create(), from_weights() or load()")
        self._products = threading.local()
        self._views = _Views()
        shape = lib.danaus_chain_rows(handle), lib.danaus_chain_cols(handle)
        super().__init__(numpy_dtype(product_code(self._code)), shape)

    @property
    def _code(self) -> int:
        return lib.danaus_chain_dtype(self._handle)

    # ---- making, reading and writing ----

    @classmethod
    def _adopt(cls, place: Any) -> Chain:
        """The chain that a call has put in its place."""
        return cls(own(place[0], lib.danaus_chain_destroy))

    @classmethod
    def create(cls, patterns: Patterns, dtype: ElementType = "f32") -> Chain:
        """A chain of these patterns with all weights zero and no bias."""
        place = ffi.new("danaus_chain **")
        array, count = pattern_array(patterns)
        check(lib.danaus_chain_create(array, count, element_code(dtype), place))
        return cls._adopt(place)

    @classmethod
    def from_weights(
        cls,
        weights: Sequence[ArrayLike],
        bias: ArrayLike | None = None,
        dtype: ElementType | None = None,
    ) -> Chain:
        """A chain of copies of arrays w[a][b][c][d], whose shapes are the patterns.

        dtype : None: the arrays' common type, f64 of whole numbers with a sign.
        """
        arrays = [numbers_of(w, f"weights[{i}]") for i, w in enumerate(weights)]
        for index, array in enumerate(arrays):
            if array.ndim != 4:
                dimensions = f"{array.ndim} dimensions instead of a, b, c, d"
                raise ValueError(f"weights[{index}] has {dimensions}")
        if dtype is None:
            dtype = np.result_type(*arrays) if arrays else "f32"
            if arrays and dtype.kind in "biu" and dtype != np.uint16:  # maybe bf16
                dtype = "f64"
        chain = cls.create([array.shape for array in arrays], dtype)
        for index, (view, array) in enumerate(zip(chain.weights, arrays)):
            view[...] = converted(array, chain._code, what=f"weights[{index}]")
        chain.bias = bias
        return chain

    @classmethod
    def from_dense(cls, w: ArrayLike, dtype: ElementType | None = None) -> Chain:
        """A matrix w[M][N] as a chain of one factor, (1, M, N, 1)."""
        return cls._from_matrix(w, "w", dtype)

    @classmethod
    def _from_matrix(
        cls, w: ArrayLike, what: str, dtype: ElementType | None = None
    ) -> Chain:
        w = numbers_of(w, what)
        if w.ndim != 2 or not w.size:
            raise ValueError(
                f"{what} has the shape {w.shape}; a matrix has two sizes from 1 on"
            )
        return cls.from_weights([w[None, :, :, None]], dtype=dtype)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Chain:
        """Reads a chain file: safetensors with factor.0, factor.1, ... and bias."""
        place = ffi.new("danaus_chain **")
        check(lib.danaus_chain_load(path_bytes(path), place))
        return cls._adopt(place)

    def save(self, path: str | os.PathLike, weights: str | None = None) -> None:
        """Writes a chain file, in one step: a failure leaves an older one as it was.

        weights="int8" rounds weights to 8-bit integers and a scale for each row and
        lane, as `Plan(int8=True)` does. `load` gives the rounded chain, in f32.
        """
        if weights not in (None, "int8"):
            raise ValueError(f"weights is None or 'int8', not {weights!r}")
        save = lib.danaus_chain_save_int8 if weights else lib.danaus_chain_save
        check(save(self._handle, path_bytes(path)))

    def _made(self, call: Callable[..., int], *arguments: Any) -> Chain:
        """The chain that a call of the library makes of this one."""
        place = ffi.new("danaus_chain **")
        check(call(self._handle, *arguments, place))
        return Chain._adopt(place)

    def astype(self, dtype: ElementType) -> Chain:
        """A copy of another type, values rounded once; not from complex to real."""
        code = element_code(dtype)
        if is_complex(self._code) and not is_complex(code):
            raise TypeError("complex numbers do not become real ones: take their .real")
        return self._made(lib.danaus_chain_convert, code)

    def reduced(self) -> Chain:
        """A copy of the same product with as few values as it has degrees of freedom.

        Blocks of the right factors get an identity, which need not be stored.
        """
        chain = copy.copy(self)
        check(lib.danaus_chain_reduce(chain._handle))
        return chain

    # ---- what it holds ----

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
    def element_type(self) -> str:
        """The short name of the weights' type ("f32", "bf16", ...)."""
        return short_name(self._code)

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        """Views w[a][b][c][d] of each factor's weights, to be read or filled.

        They keep the chain's memory alive. Without ml_dtypes, views of a bf16 chain are
        uint16.
        """
        return tuple(self._view(i, p) for i, p in enumerate(self.patterns))

    def _view(self, factor: int, pattern: Pattern) -> np.ndarray:
        """A view that keeps the chain's memory, and is known while it lives."""
        ended = self._views.begin()
        # The view keeps the buffer, that the pointer, and that the chain.
        start = lib.danaus_chain_weights(self._handle, factor)
        return self._array(factor, pattern, own(start, ended, self._handle))

    def _array(self, factor: int, pattern: Pattern, start: Any = None) -> np.ndarray:
        """The weights of a factor, in place."""
        dtype = numpy_dtype(self._code)
        start = start or lib.danaus_chain_weights(self._handle, factor)
        memory = ffi.buffer(start, pattern.parameters * dtype.itemsize)
        return np.frombuffer(memory, np.uint8).view(dtype).reshape(pattern)

    @property
    def bias(self) -> np.ndarray | None:
        """A copy of the M values that `danaus.apply` adds to W x; assign to it."""
        start = lib.danaus_chain_bias(self._handle)
        if not start:
            return None
        dtype = numpy_dtype(self._code)
        memory = bytes(ffi.buffer(start, self.shape[0] * dtype.itemsize))
        return np.frombuffer(memory, np.uint8).view(dtype).copy()

    @bias.setter
    def bias(self, bias: ArrayLike | None) -> None:
        if bias is not None:
            bias = converted(bias, self._code, what="bias")
            checked(bias, self._code, "bias", shape=self.shape[:1])
        check(lib.danaus_chain_set_bias(self._handle, pointer(bias)))

    def to_dense(self) -> np.ndarray:
        """W as an array [M][N] of the chain's type, without bias.

        RuntimeWarning if values exceed the range of that type, and are infinite;
        ValueError if all of them fall below it.
        """
        dense = np.empty(self.shape, numpy_dtype(self._code))
        check(lib.danaus_chain_to_dense(self._handle, pointer(dense)))
        self._judge(dense, "W")
        return dense

    def _infinite(self, array: np.ndarray) -> int:
        """How many numbers of an array of the chain's type are infinite or NaN."""
        if self._code == lib.DANAUS_BF16:
            array = convert(array, "f32", "bf16")
        return array.size - np.count_nonzero(np.isfinite(array))

    def _judge(self, made: np.ndarray, what: str, *operands: np.ndarray) -> None:
        """Warns of numbers that are not finite where all weights and operands are."""
        lost = self._infinite(made)
        if lost:
            operands += tuple(self._array(i, p) for i, p in enumerate(self.patterns))
        if lost and not any(map(self._infinite, operands)):
            warnings.warn(
                f"{lost} of {made.size} numbers of {what} are infinite or NaN although "
                "all operands are finite: they exceed the range of "
                f"{self.element_type}",
                RuntimeWarning,
                stacklevel=3,
            )

    # ---- products ----

    def _product(self, x: Any, adjoint: bool) -> Any:
        """W x or W^H x for the columns of a matrix."""
        code = product_code(self._code, x.dtype)
        if is_complex(code) and not is_complex(self._code):
            return by_parts(self._product, x, code, adjoint)
        x = x.astype(numpy_dtype(code), copy=False)
        by_columns = x.flags.f_contiguous
        layout = "batch-first" if by_columns else "batch-last"
        kind = code, layout, adjoint, device_for(x)
        weights = self._packed(*kind, x.shape[1])
        return weights(x.T).T if by_columns else weights(x)

    def _packed(
        self, code: int, layout: str, adjoint: bool, place: str, batch: int
    ) -> Weights:
        """Weights of this thread for such products, packed as they are now.

        They are kept. Since weights change through views alone, they are packed again
        only where a view lives, or was made since they were packed.
        """
        kind, size = (code, layout, adjoint, place), batch.bit_length()
        held, device = self._products.__dict__.get(kind), default_device(place)
        if held is None or held[0] != size or held[1].plan.device is not device:
            plan = Plan(
                self.patterns,
                dtype=short_name(code),
                layout=layout,
                adjoint=adjoint,
                batch=batch,
                device=device,
            )
            held = size, plan.pack(), object()
        mark = self._views.mark
        if self._views.living or mark is not held[2]:
            arrays = [self._array(i, p) for i, p in enumerate(self.patterns)]
            held[1].update_from(arrays, dtype=self.element_type)
            held = self._products.__dict__[kind] = size, held[1], mark
        return held[1]

    # ---- algebra: chains of chains ----

    @staticmethod
    def _combined(how: int, chains: Sequence[Chain]) -> Chain:
        """One chain of many, in their common type."""
        codes = {chain._code for chain in chains}
        if len(codes) > 1:
            types = [numpy_dtype(product_code(code)) for code in codes]
            dtype = short_name(element_code(np.result_type(*types)))
            chains = [chain.astype(dtype) for chain in chains]
        place = ffi.new("danaus_chain **")
        handles = ffi.new("danaus_chain *[]", [chain._handle for chain in chains])
        check(lib.danaus_chain_combine(how, handles, len(chains), place))
        return Chain._adopt(place)

    @overload
    def dot(self, x: Chain | Number) -> Chain: ...
    @overload
    def dot(self, x: ArrayLike) -> np.ndarray: ...
    @overload
    def dot(self, x: AnyOperator) -> LinearOperator: ...
    def dot(self, x: Any) -> Any:
        """W x of an array; the chain of the product if x is a chain or a number.

        Chains are copied: later changes of their weights have no effect.
        """
        if isinstance(x, Chain):
            return Chain._combined(lib.DANAUS_PRODUCT, (self, x))
        return self._times(x) if _is_number(x) else super().dot(x)

    @overload
    def __matmul__(self, x: Chain) -> Chain: ...
    @overload
    def __matmul__(self, x: ArrayLike) -> np.ndarray: ...
    @overload
    def __matmul__(self, x: AnyOperator) -> LinearOperator: ...
    def __matmul__(self, x: Any) -> Any:
        return super().__matmul__(x)

    @overload
    def __mul__(self, x: Chain | Number) -> Chain: ...
    @overload
    def __mul__(self, x: ArrayLike) -> np.ndarray: ...
    @overload
    def __mul__(self, x: AnyOperator) -> LinearOperator: ...
    def __mul__(self, x: Any) -> Any:
        return super().__mul__(x)

    @overload
    def __rmul__(self, x: Number) -> Chain: ...
    @overload
    def __rmul__(self, x: ArrayLike) -> np.ndarray: ...
    @overload
    def __rmul__(self, x: AnyOperator) -> LinearOperator: ...
    def __rmul__(self, x: Any) -> Any:
        return self._times(x) if _is_number(x) else super().__rmul__(x)

    def __truediv__(self, x: Number) -> Chain:
        return self._times(1 / x) if _is_number(x) else NotImplemented

    def __neg__(self) -> Chain:
        return self._times(-1)

    @overload
    def __add__(self, other: Chain) -> Chain | Operator: ...
    @overload
    def __add__(self, other: Operator) -> Operator: ...
    @overload
    def __add__(self, other: AnyOperator) -> LinearOperator: ...
    def __add__(self, other: Any) -> Any:
        """One chain where the patterns agree (`danaus.add`), else one operator."""
        from danaus.operator import Operator

        if isinstance(other, Chain):
            try:
                return Chain._combined(lib.DANAUS_SUM, (self, other))
            except ValueError:
                pass  # two chains that are no single one
        if isinstance(other, (Chain, Operator)) and other.shape == self.shape:
            return Operator.sum([self, other])
        return super().__add__(other)

    @overload
    def __sub__(self, other: Chain) -> Chain | Operator: ...
    @overload
    def __sub__(self, other: AnyOperator) -> LinearOperator: ...
    def __sub__(self, other: Any) -> Any:
        return super().__sub__(other)

    def _times(self, number: Any) -> Chain:
        code = product_code(self._code)
        dtype = np.result_type(numpy_dtype(code), number)
        return self.astype(dtype).scaled(np.full(self.shape[0], number))

    def transposed(self, conjugate: bool = False) -> Chain:
        """The chain of W^T, or of W^H; `.T` and `.H` multiply without one."""
        return self._made(lib.danaus_chain_transpose, bool(conjugate))

    def scaled(
        self, rows: ArrayLike | None = None, cols: ArrayLike | None = None
    ) -> Chain:
        """diag(rows) W diag(cols), with the same number of weights."""
        sides = []
        for side, size, what in zip((rows, cols), self.shape, ("rows", "cols")):
            if side is not None:
                side = converted(side, self._code, what=what)
                checked(side, self._code, what, shape=(size,))
            sides.append(side)
        return self._made(lib.danaus_chain_scale, *map(pointer, sides))

    def fused(self, start: int = 0, stop: int | None = None) -> Chain:
        """The same W with factors start .. stop - 1 multiplied out into one.

        ValueError where their product is not Kronecker-sparse.
        """
        count = len(self.patterns)
        start = whole(start, "start", 0, count)
        stop = count if stop is None else whole(stop, "stop", 0, count)
        return self._made(lib.danaus_chain_fuse, start, stop)

    # ---- what Python asks for ----

    def __getitem__(self, index: Any):
        raise TypeError(
            "a chain cannot be sliced: some rows of a product of factors are no such "
            "product; slice chain.to_dense()"
        )

    def __reduce__(self):
        weights = [np.array(w) for w in self.weights]
        return Chain.from_weights, (weights, self.bias, self.element_type)

    def __repr__(self) -> str:
        rows, cols = self.shape
        patterns = " ".join(map(str, self.patterns))
        bias = "" if self.bias is None else ", bias"
        share = self.parameters / (rows * cols)
        return (
            f"<danaus.Chain {rows} x {cols} {self.element_type}: {patterns}; "
            f"{self.parameters} parameters, {share:.3g} of dense{bias}>"
        )
