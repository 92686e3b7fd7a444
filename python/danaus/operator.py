"""Operators: chains with orders around them, and sums of such.

Examples are a sum whose patterns do not agree (``A + B``) and a transform with its own
order of inputs or outputs. One plan runs an operator.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from danaus._arrays import (
    by_parts,
    element_code,
    is_complex,
    numpy_dtype,
    operand,
    pointer,
    product_code,
    short_name,
    sums_code,
)
from danaus._exchange import device_for, exchanged, made
from danaus._library import check, ffi, handle_of, lib, own, path_bytes
from danaus._linear import AnyOperator, LinearOperator, Matrix
from danaus.chain import Chain
from danaus.device import Device, default_device
from danaus.plan import LAYOUTS, Gradients


class Operator(Matrix):
    """A sum of terms, each of chains with orders: S_0 (K_1 + I) S_1 .. (K_C + I) S_C.

    An order indexes values, ``v[order]``, with zeros where it is -1. Values beyond the
    columns of a chain bypass it and follow its rows. The first order gives the outputs,
    the last takes the inputs. An operator is a SciPy LinearOperator, which multiplies
    without the bias; `danaus.apply` adds it. It is copied and pickled by value.

    Attributes
    ----------
    chains : the chains of all terms, the leftmost first.
    """

    def __init__(self, name: str, handle: Any):
        self.name, self._handle = name, handle
        handle_of(self, "danaus_operator *", "a transform, a sum or load()")
        count = lib.danaus_operator_count(handle)
        self.chains = tuple(self._chain(i) for i in range(count))
        self._code = lib.danaus_operator_dtype(handle)
        self._products = threading.local()
        shape = lib.danaus_operator_rows(handle), lib.danaus_operator_cols(handle)
        super().__init__(numpy_dtype(product_code(self._code)), shape)

    def _chain(self, index: int) -> Chain:
        """A chain that belongs to the operator, which lives as long."""
        start = lib.danaus_operator_chain(self._handle, index)
        start = ffi.cast("danaus_chain *", start)
        return Chain(own(start, lambda _: None, self._handle))

    # ---- making ----

    @classmethod
    def load(cls, path: str | os.PathLike) -> Operator:
        """Reads what `save`, ``danaus combine`` or ``danaus transform`` has written.

        A chain file is read, too.
        """
        place = ffi.new("danaus_operator **")
        check(lib.danaus_operator_load(path_bytes(path), place))
        return cls(os.fsdecode(path), own(place[0], lib.danaus_operator_destroy))

    @classmethod
    def sum(cls, terms: Sequence[Chain | Operator]) -> Operator:
        """The sum of copies, in their common type, without biases."""
        dtypes = [numpy_dtype(product_code(term._code)) for term in terms]
        codes = {term._code for term in terms}
        code = codes.pop() if len(codes) == 1 else element_code(np.result_type(*dtypes))
        copies: list[Any] = []
        try:
            for term in terms:
                copies += _copies(term, code)
            return Operator("sum", _added(copies))
        except Exception:
            for copy in copies:
                lib.danaus_operator_destroy(copy)
            raise

    # ---- what it holds ----

    @property
    def terms(self) -> int:
        """Number of terms of the sum; 1 if it is no sum."""
        return lib.danaus_operator_terms(self._handle)

    @property
    def orders(self) -> tuple[np.ndarray, ...]:
        """Arrays of indices of a single term, one more than chains, the leftmost first.

        ValueError for sums of terms.
        """
        if self.terms > 1:
            raise ValueError(f"{self.name} has {self.terms} terms with orders each")
        return _orders(self._handle)

    @property
    def chain(self) -> Chain:
        """The only chain; ValueError if there are more."""
        if len(self.chains) > 1:
            raise ValueError(f"{self.name} has {len(self.chains)} chains: see .chains")
        return self.chains[0]

    @property
    def permutation(self) -> np.ndarray:
        """The last order, indices into x; -1 for zeros."""
        return self.orders[-1]

    @property
    def bias(self) -> np.ndarray | None:
        """A copy of the values that `danaus.apply` adds; None: none."""
        start = lib.danaus_operator_bias(self._handle)
        if not start:
            return None
        dtype = numpy_dtype(self._code)
        memory = bytes(ffi.buffer(start, self.shape[0] * dtype.itemsize))
        return np.frombuffer(memory, np.uint8).view(dtype).copy()

    @property
    def parameters(self) -> int:
        """Weights of all chains."""
        return lib.danaus_operator_parameters(self._handle)

    def to_dense(self) -> np.ndarray:
        """The matrix, in the chains' type."""
        dense = np.empty(self.shape, numpy_dtype(self._code))
        check(lib.danaus_operator_to_dense(self._handle, pointer(dense)))
        return dense

    def save(self, path: str | os.PathLike) -> None:
        """Writes a file with all terms and orders, in one step; `load` reads it."""
        check(lib.danaus_operator_save(self._handle, path_bytes(path)))

    # ---- products ----

    def _product(self, x: Any, adjoint: bool) -> Any:
        """A x or A^H x for the columns of a matrix."""
        code = product_code(self._code, x.dtype)
        if is_complex(code) and not is_complex(self._code):
            return by_parts(self._product, x, code, adjoint)
        x = x.astype(numpy_dtype(code), copy=False)
        by_columns = x.flags.f_contiguous
        x = x.T if by_columns else operand(x, code, "x")
        layout = "batch-first" if by_columns else "batch-last"
        batch = x.shape[0] if by_columns else x.shape[1]
        rows = self.shape[1] if adjoint else self.shape[0]
        y = made((batch, rows) if by_columns else (rows, batch), x.dtype, x)
        held = self._planned(code, layout, adjoint, batch, device_for(x))
        with held.device.operands([x], [y]) as (handle, inputs, outputs):
            arguments = held.plan, handle, batch, inputs[0], outputs[0]
            check(lib.danaus_operator_execute(*arguments))
        return y.T if by_columns else y

    @exchanged
    def gradient(
        self, x: np.ndarray, dy: np.ndarray, *, dx: bool = True, dw: bool = True
    ) -> Gradients:
        """Gradients of a loss with the gradient dy at y = A @ x.

        x is (N, columns) and dy (M, columns), contiguous and of the operator's type.
        dx = A^H dy; dw has an array [a][b][c][d] for each factor of all chains, in
        their order, in the type of sums, as by `Plan.gradient`.
        """
        rows, cols = self.shape
        code = product_code(self._code)
        x = operand(x, code, "x")
        if x.ndim != 2 or x.shape[0] != cols:
            raise ValueError(f"x has shape {x.shape} instead of ({cols}, columns)")
        batch = x.shape[1]
        dy = operand(dy, code, "dy", shape=(rows, batch))
        sums = numpy_dtype(sums_code(code))
        patterns = [pattern for chain in self.chains for pattern in chain.patterns]
        gradients = Gradients(
            made(x.shape, x.dtype, x) if dx else None,
            tuple(made(p, sums, x) for p in patterns) if dw else None,
            None,
        )
        kind = code, "batch-last", False, batch, device_for(x)
        held = self._planned(*kind, gradients=True)
        results = [gradients.dx, *(gradients.dw or ())]
        with held.device.operands([x, dy], results) as (handle, given, places):
            to = ffi.new("danaus_ks_gradients *")
            arrays = ffi.new("void *[]", places[1:])
            to.dx, to.dw = places[0], arrays if dw else ffi.NULL
            check(lib.danaus_operator_gradient(held.plan, handle, batch, *given, to))
        return gradients

    def _planned(
        self,
        code: int,
        layout: str,
        adjoint: bool,
        batch: int,
        place: str,
        gradients: bool = False,
    ) -> _Planned:
        """This thread's plan for such products, with the weights as they are now.

        They are packed again only where a view of a chain's weights lives, or was made
        since they were packed.
        """
        key = code, layout, adjoint, gradients, place
        size, device = batch.bit_length(), default_device(place)
        held = self._products.__dict__.get(key)
        marks = [chain._views.mark for chain in self.chains]
        living = any(chain._views.living for chain in self.chains)
        if held is None or held.size != size or held.device is not device:
            held = _Planned(size, device, self._plan(*key[:4], batch, device), marks)
        elif living or held.marks != marks:
            held = held._replace(marks=marks)
            self._pack(held)
        self._products.__dict__[key] = held
        return held

    def _plan(
        self,
        code: int,
        layout: str,
        adjoint: bool,
        gradients: bool,
        batch: int,
        device: Device,
    ) -> Any:
        desc = ffi.new("danaus_ks_desc *")
        desc.layout, desc.dtype = LAYOUTS[layout], code
        desc.adjoint, desc.gradients, desc.batch = adjoint, gradients, batch
        place = ffi.new("danaus_operator_plan **")
        with device.in_use() as handle:
            check(lib.danaus_operator_plan_create(handle, self._handle, desc, place))
            plan = own(place[0], lib.danaus_operator_plan_destroy, handle)
        if lib.danaus_operator_bias(self._handle):
            none = np.zeros(self.shape[0], numpy_dtype(code))
            with device.operands([none], []) as (handle, places, _):
                arguments = plan, handle, code, ffi.NULL, *places
                check(lib.danaus_operator_plan_update(*arguments))
        return plan

    def _pack(self, held: _Planned) -> None:
        factors = ((c, i, p) for c in self.chains for i, p in enumerate(c.patterns))
        arrays = [chain._array(i, pattern) for chain, i, pattern in factors]
        with held.device.operands(arrays, []) as (handle, places, _):
            table = ffi.new("void *[]", places)
            arguments = held.plan, handle, self._code, table, ffi.NULL
            check(lib.danaus_operator_plan_update(*arguments))

    # ---- what Python asks for ----

    @overload
    def __add__(self, other: Chain | Operator) -> Operator: ...
    @overload
    def __add__(self, other: AnyOperator) -> LinearOperator: ...
    def __add__(self, other: Any) -> Any:
        """One operator with the terms of both, if the other one is of this package."""
        if isinstance(other, (Chain, Operator)):
            return Operator.sum([self, other])
        return super().__add__(other)

    def __reduce__(self):
        terms, chains = [], list(self.chains)
        for index in range(self.terms):
            term = lib.danaus_operator_term(self._handle, index)
            count = lib.danaus_operator_count(term)
            terms.append((chains[:count], _orders(term)))
            del chains[:count]
        dtype = short_name(self._code)
        return _again, (type(self), self.name, dtype, self.shape[1], terms, self.bias)

    def __getitem__(self, index: Any):
        kind = type(self).__name__.lower()
        raise TypeError(f"no {kind} has a subscript; slice {kind}.to_dense()")

    def __repr__(self) -> str:
        rows, cols = self.shape
        chains = "; ".join(" ".join(map(str, c.patterns)) for c in self.chains)
        return (
            f"<danaus.{type(self).__name__} {self.name}, {rows} x {cols} {self.dtype}: "
            f"{chains}; {self.parameters} parameters>"
        )


class _Planned(NamedTuple):
    """A plan of a thread, and the weights that it has packed."""

    size: int  # of the batch, in bits
    device: Device
    plan: Any
    marks: list[object]


def _orders(handle: Any) -> tuple[np.ndarray, ...]:
    """The orders of a term."""
    length, orders = ffi.new("int64_t *"), []
    for index in range(lib.danaus_operator_count(handle) + 1):
        start = lib.danaus_operator_order(handle, index, length)
        memory = bytes(ffi.buffer(start, 8 * length[0]))
        orders.append(np.frombuffer(memory, np.int64))
    return tuple(orders)


def _added(terms: list[Any]) -> Any:
    """The sum of terms, which belong to it on success."""
    place = ffi.new("danaus_operator **")
    array = ffi.new("danaus_operator *[]", terms)
    check(lib.danaus_operator_add(array, len(terms), place))
    return own(place[0], lib.danaus_operator_destroy)


def _again(
    kind: type[Operator], name: str, dtype: str, cols: int, terms: Any, bias: Any
) -> Operator:
    """The operator that was pickled or copied."""
    made: list[Any] = []
    try:
        for chains, orders in terms:
            handles = [chain._handle for chain in chains]
            made.append(_made(handles, orders, cols, element_code(dtype)))
        if len(made) > 1:
            handle = _added(made)
        else:
            handle = own(made[0], lib.danaus_operator_destroy)
    except Exception:
        for term in made:
            lib.danaus_operator_destroy(term)
        raise
    if bias is not None:
        check(lib.danaus_operator_set_bias(handle, pointer(bias)))
    return kind(name, handle)


def _copies(term: Chain | Operator, code: int) -> list[Any]:
    """Copies of the terms of a chain or an operator, which nobody owns."""
    if isinstance(term, Chain):
        return [_made([term._handle], None, term.shape[1], code)]
    terms = [lib.danaus_operator_term(term._handle, i) for i in range(term.terms)]
    copies = []
    for one in terms:
        count = lib.danaus_operator_count(one)
        chains = [lib.danaus_operator_chain(one, i) for i in range(count)]
        copies.append(_made(chains, _orders(one), term.shape[1], code))
    return copies


def _made(chains: Sequence[Any], orders: Any, cols: int, code: int) -> Any:
    """A term of copies of chains in a type, without biases."""
    copies = ffi.new("danaus_chain *[]", len(chains))
    made = ffi.new("danaus_operator **")
    try:
        for index, chain in enumerate(chains):
            check(lib.danaus_chain_convert(chain, code, copies + index))
            check(lib.danaus_chain_set_bias(copies[index], ffi.NULL))
        places = [pointer(order) for order in orders or ()]
        table = ffi.new("int64_t *[]", [ffi.cast("int64_t *", p) for p in places])
        lengths = ffi.new("int64_t[]", [len(order) for order in orders or ()])
        none = ffi.NULL
        arguments = (table, lengths) if orders else (none, none)
        check(lib.danaus_operator_create(copies, len(chains), *arguments, cols, made))
    except Exception:
        for chain in copies:
            lib.danaus_chain_destroy(chain)
        raise
    return made[0]
