"""Chains W = K_1 ... K_L of Kronecker-sparse factors, on the host."""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from danaus._arrays import (
    ElementType,
    checked,
    choose,
    converted,
    element_code,
    is_complex,
    numpy_dtype,
    pointer,
    product_code,
    short_name,
)
from danaus._library import check, ffi, handle_of, lib, own, path_bytes
from danaus.device import Device, chosen, default_device
from danaus.patterns import Pattern, Patterns, pattern_array
from danaus.plan import LAYOUTS, Plan, Weights, batch_of, batched_shape


class _Views:
    """Views of weights that live, and a mark that changes when one begins or ends."""

    def __init__(self):
        self.living: set[object] = set()
        self.mark = object()

    def begin(self) -> Callable[[Any], None]:
        """What is to be called when the view ends."""
        view = object()
        self.living.add(view)
        self.mark = view

        def ended(memory: Any) -> None:
            self.mark = object()  # before: who finds no view finds a new mark
            self.living.discard(view)

        return ended


class Chain(LinearOperator):
    """An M x N matrix W = K_1 ... K_L as patterns and weights, and a bias or None.

    A chain is a SciPy LinearOperator: `chain @ x`, `chain.H @ y`, `chain.T @ y`,
    SciPy's solvers. These multiply by W alone; `danaus.apply` adds the bias. They take
    weights as they are at the time of the call and run on this thread's default device,
    in the common type of chain and operand, which are converted and made contiguous as
    SciPy does it. What is needed for the next product of the same kind stays with the
    chain; `Plan` has control of all that.

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

        dtype : None: the arrays' common type.
        """
        arrays = [np.asarray(w) for w in weights]
        for index, array in enumerate(arrays):
            if array.ndim != 4:
                dimensions = f"{array.ndim} dimensions instead of a, b, c, d"
                raise ValueError(f"weights[{index}] has {dimensions}")
        if dtype is None:
            dtype = np.result_type(*arrays) if arrays else "f32"
        chain = cls.create([array.shape for array in arrays], dtype)
        for view, array in zip(chain.weights, arrays):
            view[...] = converted(array, chain._code)
        chain.bias = bias
        return chain

    @classmethod
    def load(cls, path: str | os.PathLike) -> Chain:
        """Reads a chain file: safetensors with factor.0, factor.1, ... and bias."""
        place = ffi.new("danaus_chain **")
        check(lib.danaus_chain_load(path_bytes(path), place))
        return cls._adopt(place)

    def save(self, path: str | os.PathLike) -> None:
        """Writes a chain file, in one step: a failure leaves an older one as it was."""
        check(lib.danaus_chain_save(self._handle, path_bytes(path)))

    def astype(self, dtype: ElementType) -> Chain:
        """A copy of another type, numbers rounded once; not from complex to real."""
        code, bias = element_code(dtype), self.bias
        weights = [converted(w, code, self._code) for w in self.weights]
        if bias is not None:
            bias = converted(bias, code, self._code)
        return Chain.from_weights(weights, bias, short_name(code))

    def reduced(self) -> Chain:
        """A copy of the same product with as few numbers as it has degrees of freedom.

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

        They keep the chain's memory. Without ml_dtypes those of a bf16 chain are
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
        """The weights of a factor where they lie."""
        dtype = numpy_dtype(self._code)
        start = start or lib.danaus_chain_weights(self._handle, factor)
        memory = ffi.buffer(start, pattern.parameters * dtype.itemsize)
        return np.frombuffer(memory, np.uint8).view(dtype).reshape(pattern)

    @property
    def bias(self) -> np.ndarray | None:
        """A copy of the M numbers that `danaus.apply` adds to W x; assign to it."""
        start = lib.danaus_chain_bias(self._handle)
        if not start:
            return None
        dtype = numpy_dtype(self._code)
        memory = bytes(ffi.buffer(start, self.shape[0] * dtype.itemsize))
        return np.frombuffer(memory, np.uint8).view(dtype).copy()

    @bias.setter
    def bias(self, bias: ArrayLike | None) -> None:
        if bias is not None:
            bias = converted(np.asarray(bias), self._code)
            checked(bias, self._code, "bias", shape=self.shape[:1])
        check(lib.danaus_chain_set_bias(self._handle, pointer(bias)))

    def to_dense(self) -> np.ndarray:
        """W as an array [M][N] of the chain's type, without bias."""
        dense = np.empty(self.shape, numpy_dtype(self._code))
        check(lib.danaus_chain_to_dense(self._handle, pointer(dense)))
        return dense

    # ---- products, as SciPy asks for them ----

    def _matmat(self, x: np.ndarray) -> np.ndarray:
        return self._product(x, adjoint=False)

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self._product(x.reshape(-1, 1), adjoint=False)[:, 0]

    def _rmatmat(self, x: np.ndarray) -> np.ndarray:
        return self._product(x, adjoint=True)

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        return self._product(x.reshape(-1, 1), adjoint=True)[:, 0]

    def _product(self, x: np.ndarray, adjoint: bool) -> np.ndarray:
        """W x or W^H x for the columns of a matrix."""
        code = product_code(self._code, x.dtype)
        if is_complex(code) and not is_complex(self._code):
            # A real W multiplies real and imaginary parts as columns of their own.
            wide = np.ascontiguousarray(x, numpy_dtype(code))
            parts = self._product(wide.view(wide.real.dtype), adjoint)
            return np.ascontiguousarray(parts).view(wide.dtype)
        x = x.astype(numpy_dtype(code), copy=False)
        by_columns = x.flags.f_contiguous
        layout = "batch-first" if by_columns else "batch-last"
        weights = self._packed(code, layout, adjoint, x.shape[1])
        if by_columns:
            return weights(x.T).T
        return weights(np.ascontiguousarray(x))

    def _packed(self, code: int, layout: str, adjoint: bool, batch: int) -> Weights:
        """Weights of this thread for such products, packed as they are now.

        They are kept. Since weights change through views alone, they are packed again
        only where a view lives, or was made since they were packed.
        """
        kind, size = (code, layout, adjoint), batch.bit_length()
        held, device = self._products.__dict__.get(kind), default_device()
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


def apply(
    chain: Chain,
    x: np.ndarray,
    *,
    layout: str = "batch-first",
    device: Device | str | None = None,
) -> np.ndarray:
    """One product y = W x + bias, of the chain's own type.

    Parameters
    ----------
    x : [..., N] for "batch-first", [N, ...] for "batch-last"; contiguous.
    device : a Device, or the name of this thread's own one; None: "cpu".

    Returns
    -------
    y : [..., M] or [M, ...].
    """
    handle = handle_of(chain, "danaus_chain *", "a chain")
    x = checked(x, chain._code, "x")
    rows, cols = chain.shape
    code = choose(layout, LAYOUTS, "layout")
    batch = batch_of(x, cols, code, "x")
    y = np.empty(batched_shape(x.shape, rows, code), x.dtype)
    with chosen(device).in_use() as place:
        arguments = place, handle, code, batch, pointer(x), pointer(y)
        check(lib.danaus_ks_apply(*arguments))
    return y
