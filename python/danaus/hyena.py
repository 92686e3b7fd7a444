"""The Hyena operator: short convolutions, gates and long convolutions in one call.

u[..., (order + 1) channels, length] has groups x_0, ..., x_{order-1}, v of channels,
and z is a causal convolution of few taps of each of its rows. Then

    v_0 = v,   v_{o+1} = k[o] (*) p + skip[o] p,   p = x_{order-1-o} * v_o,
    y = x_0 * v_{order-1},        y[..., channels, length].

Order 2 is y = x_0 * (k (*) (x_1 * v) + skip * x_1 * v). Types are as in `danaus.conv`.

Source: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv 2302.10866).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from danaus._arrays import (
    INT64,
    ElementType,
    checked,
    choose,
    disjoint,
    numbers_of,
    numpy_dtype,
    operand,
    pointer,
    sums_code,
    whole,
)
from danaus._conv_arguments import (
    ACCURACIES,
    call_for,
    filters_of,
    offsets_of,
    real_code,
)
from danaus._exchange import exchanged, made
from danaus._library import check, ffi, lib, own
from danaus.device import Device, chosen
from danaus.plan import EFFORTS


class HyenaGradients(NamedTuple):
    """Gradients of a loss; None if not requested or not defined."""

    du: np.ndarray | None = None
    dtaps: np.ndarray | None = None
    dbias: np.ndarray | None = None
    dk: np.ndarray | None = None
    dskip: np.ndarray | None = None


class HyenaPlan:
    """How the operator runs for one shape; immutable, for any thread.

    Parameters
    ----------
    channels, length : sizes of y[..., channels, length].
    taps : length of the short filters, 1 to 128.
    order : 2 to 8.
    long_taps : length of the filters k; 0: length.
    filters, dtype, effort, batch, accuracy, device
        Settings of the long convolutions, as for `ConvPlan`.
    packed : for packed sequences of up to `length` values each; all calls then take
        offsets.
    """

    def __init__(
        self,
        channels: int,
        length: int,
        taps: int = 3,
        order: int = 2,
        *,
        long_taps: int = 0,
        filters: int = 0,
        dtype: ElementType = "f32",
        effort: str = "estimate",
        batch: int = 0,
        accuracy: str | None = None,
        packed: bool = False,
        device: Device | str | None = None,
    ):
        desc = ffi.new("danaus_hyena_desc *")
        desc.channels = self.channels = whole(channels, "channels", 1, INT64)
        desc.length = self.length = whole(length, "length", 1, INT64)
        desc.taps = self.taps = whole(taps, "taps", 1, INT64)
        desc.order = self.order = whole(order, "order", 2, INT64)
        desc.filter_length = whole(long_taps, "long_taps", 0, INT64)
        desc.filters = whole(filters, "filters", 0, INT64)
        desc.dtype = self._code = real_code(dtype)
        desc.effort = choose(effort, EFFORTS, "effort")
        desc.batch = whole(batch, "batch", 0, INT64)
        word = "by_type" if accuracy is None else accuracy
        desc.accuracy = choose(word, ACCURACIES, "accuracy")
        desc.packed = self.packed = bool(packed)
        self.filters = desc.filters or self.channels
        self.long_taps = desc.filter_length or self.length
        self._device = device
        place = ffi.new("danaus_hyena_plan **")
        with chosen(self._device).in_use() as handle:
            check(lib.danaus_hyena_plan_create(handle, desc, place))
            self._handle = own(place[0], lib.danaus_hyena_plan_destroy, handle)

    def workspace_bytes(self, batch: int = 1) -> tuple[int, int]:
        """Bytes of memory that a call and its gradient take for so many members or, in
        packed plans, columns."""
        forward, gradient = ffi.new("size_t *"), ffi.new("size_t *")
        number = whole(batch, "batch", 1, INT64)
        call = call_for("danaus_hyena_workspace_bytes", self.packed or None)
        check(call(self._handle, number, forward, gradient))
        return forward[0], gradient[0]

    def operator(
        self, taps: Any, k: Any, *, bias: Any = None, skip: Any = None
    ) -> Hyena:
        """The operator with these filters: see `Hyena`."""
        return Hyena(self, taps, k, bias=bias, skip=skip)

    def __reduce__(self):
        raise TypeError("a plan cannot be pickled or copied: make it again")

    def __repr__(self) -> str:
        return (
            f"<danaus.HyenaPlan of order {self.order}, {self.channels} channels of "
            f"{self.length}, {self.taps} taps, {self.filters} filters of "
            f"{self.long_taps}>"
        )


@contextlib.contextmanager
def _workspace(handle: Any, size: int) -> Iterator[Any]:
    """Memory of the device for one call; waits for the call before freeing it."""
    place = ffi.new("void **")
    check(lib.danaus_alloc(handle, max(size, 1), place))
    try:
        yield place[0]
        check(lib.danaus_device_sync(handle))
    finally:
        lib.danaus_free(handle, place[0])


class Hyena:
    """The operator of a plan, with filters.

    Parameters
    ----------
    taps : [(order + 1) channels][taps]; taps[r, s] multiplies u[r, t - s].
    k : [order - 1][filters][long_taps], or [filters][long_taps] for order 2.
    bias : [(order + 1) channels] or None, for the short convolutions.
    skip : [order - 1][filters], [filters] for order 2, or None.
    """

    def __init__(
        self,
        plan: HyenaPlan,
        taps: Any,
        k: Any,
        *,
        bias: Any = None,
        skip: Any = None,
    ):
        if not isinstance(plan, HyenaPlan):
            raise TypeError(f"plan has to be a HyenaPlan, not {type(plan).__name__}")
        self.plan = plan
        rows, code = (plan.order + 1) * plan.channels, plan._code
        taps = numbers_of(taps, "taps")
        self._taps = filters_of(taps, code, (rows, plan.taps), "taps")
        if bias is not None:
            bias = filters_of(numbers_of(bias, "bias"), code, (rows,), "bias")
        self._bias = bias
        shape = (plan.order - 1, plan.filters, plan.long_taps)
        k = filters_of(_whole(k, "k", 3), code, shape, "k")
        if skip is not None:
            skip = filters_of(_whole(skip, "skip", 2), code, shape[:2], "skip")
        self._has_skip = skip is not None
        conv = lib.danaus_hyena_plan_conv(plan._handle)
        self._spectra = []
        with chosen(plan._device).in_use() as handle:
            for o in range(plan.order - 1):
                place = ffi.new("danaus_spectrum **")
                jump = ffi.NULL if skip is None else pointer(skip[o])
                given = pointer(k[o]), ffi.NULL, jump
                check(lib.danaus_spectrum_create(conv, handle, *given, place))
                destroy = lib.danaus_spectrum_destroy
                self._spectra.append(own(place[0], destroy, plan._handle, handle))
        self._list = ffi.new("danaus_spectrum *[]", self._spectra)

    def _rows(self, u: np.ndarray, offsets: Any) -> tuple[list[Any], int]:
        """What tells the library of the rows of u, after u was found to fit: the batch,
        or packed sequences; and what the workspace depends on."""
        plan, rows = self.plan, (self.plan.order + 1) * self.plan.channels
        told, columns = [], plan.length
        if offsets is not None:
            told = list(offsets_of(offsets))
            columns = told[1][told[0]]
        shape = u.shape
        if shape[-2:] != (rows, columns) or (told and len(shape) > 2):
            raise ValueError(
                f"u has the shape {shape}, where the plan"
                f"{' and the offsets need [' if told else ' needs [..., '}"
                f"{rows}, {columns}]"
            )
        batch = math.prod(shape[:-2])
        return (told, columns) if told else ([batch], batch)

    def _operands(self, places: list[Any]) -> Any:
        operands = ffi.new("danaus_hyena_operands *")
        operands.u, operands.taps, operands.bias = places
        operands.spectra = ffi.cast("danaus_spectrum **", self._list)
        return operands

    @exchanged
    def __call__(
        self, u: np.ndarray, *, out: np.ndarray | None = None, offsets: Any = None
    ) -> np.ndarray:
        """y[..., channels, length] for u[..., (order + 1) channels, length]; the same
        bits for any number of threads.

        out : where y goes, which does not overlap u.
        offsets : for packed plans, as for `Spectrum`: u and y are [..., columns].
        """
        plan, u = self.plan, operand(u, self.plan._code, "u")
        rows, members = self._rows(u, offsets)
        shape = (*u.shape[:-2], plan.channels, u.shape[-1])
        if out is None:
            out = made(shape, u.dtype, u)
        checked(out, plan._code, "out", shape=shape, writable=True)
        disjoint(out, "out", u, "u")
        if not members:
            return out
        size, _ = plan.workspace_bytes(members)
        inputs = [u, self._taps, self._bias]
        with chosen(plan._device).operands(inputs, [out]) as (handle, x, to):
            operands = self._operands(x)
            with _workspace(handle, size) as memory:
                call = call_for("danaus_hyena_execute", offsets)
                check(call(plan._handle, handle, *rows, operands, memory, *to))
        return out

    @exchanged
    def gradient(
        self,
        u: np.ndarray,
        dy: np.ndarray,
        *,
        wrt: Iterable[str] | None = None,
        offsets: Any = None,
    ) -> HyenaGradients:
        """Gradients of a loss with the gradient dy at y.

        du is like u. Those of taps, bias, k[order - 1][filters][long_taps] and
        skip[order - 1][filters] are sums over the batch, in the type of sums.

        wrt : names among "u", "taps", "bias", "k", "skip"; None: all given operands.
        """
        plan, u = self.plan, operand(u, self.plan._code, "u")
        rows, members = self._rows(u, offsets)
        shape = (*u.shape[:-2], plan.channels, u.shape[-1])
        dy = operand(dy, plan._code, "dy", shape=shape)
        if not members:
            raise ValueError("gradients need a batch of at least 1")
        sums = numpy_dtype(sums_code(plan._code))
        convs = (plan.order - 1, plan.filters)
        kinds = {"u": (u.shape, u.dtype), "taps": (self._taps.shape, sums)}
        if self._bias is not None:
            kinds["bias"] = self._bias.shape, sums
        kinds |= {"k": ((*convs, plan.long_taps), sums), "skip": (convs, sums)}
        wanted = set(kinds) - (set() if self._has_skip else {"skip"})
        if wrt is not None:
            wanted = {wrt} if isinstance(wrt, str) else set(wrt)
        if wanted - set(kinds):
            missing = ", ".join(sorted(map(str, wanted - set(kinds))))
            there = ", ".join(sorted(kinds))
            raise ValueError(f"wrt has {missing}; there are gradients of {there}")
        names = ("u", "taps", "bias", "k", "skip")
        results = [
            made(*kinds[name], u) if name in wanted else None for name in names
        ]
        _, size = plan.workspace_bytes(members)
        inputs = [u, self._taps, self._bias, dy]
        desc = ffi.new("danaus_hyena_gradients *")
        with chosen(plan._device).operands(inputs, results) as (handle, x, to):
            desc.du, desc.dtaps, desc.dbias, desc.dk, desc.dskip = to
            operands = self._operands(x[:3])
            with _workspace(handle, size) as memory:
                call = call_for("danaus_hyena_gradient", offsets)
                check(call(plan._handle, handle, *rows, operands, x[3], memory, desc))
        return HyenaGradients(*results)

    def __reduce__(self):
        raise TypeError("an operator cannot be pickled or copied: make it again")


def _whole(array: Any, what: str, ndim: int) -> np.ndarray:
    """Filters with an axis of convolutions, which may be left out for order 2."""
    array = numbers_of(array, what)
    return array[None] if array.ndim == ndim - 1 else array
