"""Repeated products: a plan holds shapes and kernels, packed weights hold values.

C-contiguous arrays of the plan's type are used in place, also those of other libraries
(`danaus._exchange`); a GPU copies those of the host to its memory and back. Strided
inputs, integers and lists are copied. Another floating type is a TypeError.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from danaus._arrays import (
    INT64,
    ElementType,
    checked,
    choose,
    disjoint,
    element_code,
    numpy_dtype,
    operand,
    short_name,
    sums_code,
    whole,
)
from danaus._exchange import exchanged, is_foreign, lent, made
from danaus._library import check, ffi, handle_of, lib, own, text
from danaus.device import Device, chosen
from danaus.patterns import Patterns, as_patterns, pattern_array

LAYOUTS = {
    "batch-first": lib.DANAUS_BATCH_FIRST,
    "batch-last": lib.DANAUS_BATCH_LAST,
}
MATHS = {"f32": lib.DANAUS_MATH_F32, "tf32": lib.DANAUS_MATH_TF32}
EFFORTS = {
    "estimate": lib.DANAUS_ESTIMATE,
    "measure": lib.DANAUS_MEASURE,
    "table": lib.DANAUS_TABLE_ONLY,
}
ACTIVATIONS = {
    None: lib.DANAUS_ACTIVATION_NONE,
    "relu": lib.DANAUS_RELU,
    "gelu": lib.DANAUS_GELU,
    "silu": lib.DANAUS_SILU,
    "gelu_tanh": lib.DANAUS_GELU_TANH,
}


class Gradients(NamedTuple):
    """Gradients of a loss; None for those not requested."""

    dx: np.ndarray | None  # like x
    dw: tuple[np.ndarray, ...] | None  # [a][b][c][d] a factor, in the type of sums
    dbias: np.ndarray | None  # [M], in the type of sums


class ScratchBytes(NamedTuple):
    """Scratch memory that calls of one batch size need."""

    forward: int
    gradient: int


def batched_shape(shape: tuple[int, ...], size: int, layout: int) -> tuple[int, ...]:
    """A shape with another size of the feature axis, the last one if batch-first."""
    if layout == lib.DANAUS_BATCH_LAST:
        return (size, *shape[1:])
    return (*shape[:-1], size)


def batch_of(x: np.ndarray, size: int, layout: int, what: str) -> int:
    """How many columns an operand has; ValueError where its rows are not `size`."""
    axis = 0 if layout == lib.DANAUS_BATCH_LAST else -1
    if not x.ndim or x.shape[axis] != size:
        place = "first" if axis == 0 else "last"
        raise ValueError(f"{what} has shape {x.shape}, its {place} axis not {size}")
    return x.size // size


class Plan:
    """Kernels chosen for products with a chain W of these patterns.

    y = activation(scale W x + bias), plus a residual if the plan expects one. A plan
    never changes: threads share it, each running it on a device of its own.

    Parameters
    ----------
    patterns : the factors' patterns, the leftmost first.
    dtype : type of x, y and bias.
    layout : "batch-first": x[..., N] and y[..., M]; "batch-last": x[N, ...], y[M, ...].
    math : "f32", or "tf32": products of f32 by 10-bit numbers where a GPU gains from
        it.
    effort : how kernels are chosen: "estimate" (tuning table, else cost model),
        "measure" (time every kernel that may be best) or "table"
        (NotImplementedError if it has no row).
    adjoint : y = W^H x, without a bias.
    gradients : `gradient` will be called.
    fresh_weights : weights change before each run, so the planner counts packing.
    keep_factors : never multiply neighbouring factors out.
    batch : choose kernels for this batch; 0: a large one. Calls may have any.
    activation : None, "relu", "gelu", "silu" or "gelu_tanh"; not with gradients.
    bias : expect weights with a bias; any may have one, or none.
    scale : multiplies W x, in the packed weights; not with gradients.
    residual : calls of `execute` have one.
    gated : y = activation(u) v, u the first half of the rows of scale W x + bias and
        v the second; NotImplementedError if no kernel has that (all CPUs).
    batch_invariant : the bits of a vector's result do not depend on the batch around
        it, on `batch` or on the number of threads (danaus/ks.h says what is promised);
        effort is "estimate", and `gradient` means its dx. May be slower.
    int8 : weights and rows of x are rounded to 8 bits, as danaus/ks.h says; rows are
        f32, f16 or bf16, without `gradient`, on CPUs.
    device : a Device, or a name: each thread then uses its own; None: "cpu".
    """

    def __init__(
        self,
        patterns: Patterns,
        *,
        dtype: ElementType = "f32",
        layout: str = "batch-first",
        math: str = "f32",
        effort: str = "estimate",
        adjoint: bool = False,
        gradients: bool = False,
        fresh_weights: bool = False,
        keep_factors: bool = False,
        batch: int = 0,
        activation: str | None = None,
        bias: bool = False,
        scale: float = 1.0,
        residual: bool = False,
        gated: bool = False,
        batch_invariant: bool = False,
        int8: bool = False,
        device: Device | str | None = None,
    ):
        self.patterns = as_patterns(patterns)
        self._code = element_code(dtype)
        self._layout = choose(layout, LAYOUTS, "layout")
        self._adjoint, self._gated = bool(adjoint), bool(gated)
        self._place = device
        desc = ffi.new("danaus_ks_desc *")
        desc.layout, desc.dtype = self._layout, self._code
        desc.math = choose(math, MATHS, "math")
        desc.effort = choose(effort, EFFORTS, "effort")
        desc.activation = choose(activation, ACTIVATIONS, "activation")
        desc.adjoint, desc.gradients = bool(adjoint), bool(gradients)
        desc.bias, desc.residual, desc.gated = bool(bias), bool(residual), bool(gated)
        desc.scale = float(scale)
        if not desc.scale:
            raise ValueError("the scale is 0: so is W x")
        desc.fresh_weights, desc.keep_factors = bool(fresh_weights), bool(keep_factors)
        desc.batch_invariant = bool(batch_invariant)
        desc.int8 = bool(int8)
        desc.batch = whole(batch, "batch", 0, INT64)
        array, count = pattern_array(self.patterns)
        place = ffi.new("danaus_ks_plan **")
        with self.device.in_use() as handle:
            check(lib.danaus_ks_plan_create(handle, array, count, desc, place))
            self._handle = own(place[0], lib.danaus_ks_plan_destroy, handle)

    @property
    def device(self) -> Device:
        """The Device that was given, or this thread's own one of that name."""
        return chosen(self._place)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N) of the chain, also where the plan is adjoint."""
        return self.patterns[0].rows, self.patterns[-1].cols

    @property
    def dtype(self) -> np.dtype:
        """NumPy's type of x, y and bias."""
        return numpy_dtype(self._code)

    def describe(self) -> str:
        """What will run, a line for each step."""
        size = lib.danaus_ks_plan_describe(self._handle, ffi.NULL, 0) + 1
        place = ffi.new("char[]", size)
        lib.danaus_ks_plan_describe(self._handle, place, size)
        return text(place)

    def scratch_bytes(
        self, batch: int, device: Device | str | None = None
    ) -> ScratchBytes:
        """Bytes of scratch that `execute` and `gradient` of so many columns need."""
        number = whole(batch, "batch", 0, INT64)
        sizes = ffi.new("size_t[2]")
        with self._device(device).in_use() as handle:
            places = sizes, sizes + 1
            check(lib.danaus_ks_scratch_bytes(self._handle, handle, number, *places))
        return ScratchBytes(*sizes)

    def pack(self, chain: Any = None, device: Device | str | None = None) -> Weights:
        """A chain of the same patterns, packed; without one, zeros to be updated."""
        return Weights(self, chain, device)

    @exchanged
    def execute(
        self,
        weights: Weights,
        x: np.ndarray,
        out: np.ndarray | None = None,
        device: Device | str | None = None,
        residual: np.ndarray | None = None,
    ) -> np.ndarray:
        """y = activation(scale W x + bias), written to `out` if it is given.

        The residual, for plans that expect one, has the shape of y, to which it is
        added; it may be `out`. The same bits for any number of threads.
        """
        rows, cols = self.shape[::-1] if self._adjoint else self.shape
        rows = rows // 2 if self._gated else rows
        x = operand(x, self._code, "x")
        batch = batch_of(x, cols, self._layout, "x")
        shape = batched_shape(x.shape, rows, self._layout)
        if out is None:
            out = made(shape, x.dtype, x)
        else:
            checked(out, self._code, "out", shape=shape, writable=True)
            disjoint(out, "out", x, "x")
        packed = handle_of(weights, "danaus_ks_weights *", "packed weights")
        if residual is not None:
            residual = operand(residual, self._code, "residual", shape=shape)
        adds = residual is not None
        given = [x, residual] if adds else [x]
        execute = lib.danaus_ks_execute_residual if adds else lib.danaus_ks_execute
        with self._device(device).operands(given, [out]) as (handle, places, to):
            check(execute(self._handle, handle, packed, batch, *places, *to))
        return out

    @exchanged
    def gradient(
        self,
        weights: Weights,
        x: np.ndarray,
        dy: np.ndarray,
        *,
        dx: bool = True,
        dw: bool = True,
        dbias: bool = False,
        device: Device | str | None = None,
    ) -> Gradients:
        """Gradients of a loss with the gradient dy at y; dx, dw and dbias select them.

        For complex types dx = W^H dy and dw = dy x^H, as in PyTorch.
        """
        rows, cols = self.shape[::-1] if self._adjoint else self.shape
        x = operand(x, self._code, "x")
        batch = batch_of(x, cols, self._layout, "x")
        shape = batched_shape(x.shape, rows, self._layout)
        dy = operand(dy, self._code, "dy", shape=shape)
        sums = numpy_dtype(sums_code(self._code))
        gradients = Gradients(
            made(x.shape, x.dtype, x) if dx else None,
            tuple(made(p, sums, x) for p in self.patterns) if dw else None,
            made(self.shape[:1], sums, x) if dbias else None,
        )
        packed = handle_of(weights, "danaus_ks_weights *", "packed weights")
        results = [gradients.dx, gradients.dbias, *(gradients.dw or ())]
        with self._device(device).operands([x, dy], results) as (handle, given, places):
            to = ffi.new("danaus_ks_gradients *")
            to.dx, to.dbias = places[:2]
            arrays = ffi.new("void *[]", places[2:])
            to.dw = arrays if dw else ffi.NULL
            arguments = self._handle, handle, packed, batch, *given, to
            check(lib.danaus_ks_gradient(*arguments))
        return gradients

    def _device(self, device: Device | str | None) -> Device:
        return self.device if device is None else chosen(device)

    def __repr__(self) -> str:
        patterns = " ".join(map(str, self.patterns))
        return f"<danaus.Plan {patterns} {short_name(self._code)}>"

    def __reduce__(self):
        raise TypeError("a plan cannot be pickled or copied: make it again")


class Weights:
    """A chain packed for a plan, made by `Plan.pack`; threads share it for running."""

    def __init__(self, plan: Plan, chain: Any, device: Device | str | None):
        handle_of(plan, "danaus_ks_plan *", "a plan")
        self.plan = plan
        place = ffi.new("danaus_ks_weights **")
        with plan._device(device).in_use() as handle:
            arguments = plan._handle, handle, _chain_handle(chain), place
            check(lib.danaus_ks_weights_create(*arguments))
            keep = handle, plan._handle
            self._handle = own(place[0], lib.danaus_ks_weights_destroy, *keep)

    def __call__(
        self,
        x: np.ndarray,
        out: np.ndarray | None = None,
        residual: np.ndarray | None = None,
    ) -> np.ndarray:
        """y = activation(scale W x + bias): `Plan.execute` with these weights."""
        return self.plan.execute(self, x, out, residual=residual)

    def update(self, chain: Any, device: Device | str | None = None) -> None:
        """Packs again, after a chain's weights or bias have changed.

        No product with these weights may run meanwhile.
        """
        with self.plan._device(device).in_use() as handle:
            packed = handle_of(chain, "danaus_chain *", "a chain")
            check(lib.danaus_ks_weights_update(self._handle, handle, packed))

    def update_from(
        self,
        weights: Sequence[np.ndarray | None] | None,
        bias: np.ndarray | None = None,
        *,
        dtype: ElementType | None = None,
        device: Device | str | None = None,
    ) -> None:
        """Packs again, from arrays w[a][b][c][d] of each factor.

        A factor that is None stays as it is; give all factors that the plan has merged,
        or none. All arrays have one type, `dtype`, by default that of the first. It may
        differ from the plan's if both are real or both complex.
        """
        patterns = self.plan.patterns
        rows = [None] * len(patterns) if weights is None else list(weights)
        if len(rows) != len(patterns):
            raise ValueError(f"{len(rows)} arrays for {len(patterns)} factors")
        given = [*(f"weights[{i}]" for i in range(len(rows))), "bias"]
        *rows, bias = map(_array_or_none, [*rows, bias], given)
        if dtype is None:
            kinds = (a.dtype for a in (*rows, bias) if hasattr(a, "dtype"))
            dtype = next((t for t in kinds if t.kind not in "biu"), self.plan.dtype)
        code = element_code(dtype)
        for index, (array, pattern) in enumerate(zip(rows, patterns)):
            if array is not None:
                rows[index] = operand(array, code, given[index], shape=tuple(pattern))
        if bias is not None:
            bias = operand(bias, code, "bias", shape=self.plan.shape[:1])
        device = self.plan._device(device)
        with device.operands([*rows, bias], []) as (handle, places, _):
            table = ffi.new("void *[]", places[:-1])
            arguments = self._handle, handle, code, table, places[-1]
            check(lib.danaus_ks_weights_update_from(*arguments))

    def __repr__(self) -> str:
        return f"<danaus.Weights for {self.plan!r}>"

    def __reduce__(self):
        raise TypeError("packed weights cannot be pickled or copied: pack again")


def _array_or_none(x: Any, what: str) -> Any:
    return lent(x, what) if is_foreign(x) else x


def _chain_handle(chain: Any) -> Any:
    return ffi.NULL if chain is None else handle_of(chain, "danaus_chain *", "a chain")
