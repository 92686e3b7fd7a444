"""Convolutions along the length of rows, one filter a channel or shared by some.

    y = gate_out * (k (*) (gate_in * u) + skip * gate_in * u)

u, y and the gates are arrays [..., channels, length]; * is the elementwise product,
and (*) one of

    "causal"         sum over 0 <= s <= t of k[s] p[t - s]
    "circular"       sum over s of k[s] p[(t + centre - s) mod length]
    "bidirectional"  causal, plus sum over s >= 0 of k_reverse[s] p[t + 1 + s]
    "centred"        sum over s of k[s] p[t + centre - s].

Planes are arrays [..., channels, height, width] with filters [filters][height][width].
For them t, s and the centre are places (down, across), and circular planes repeat along
both axes.

Correlations are the adjoints of these, with the same filters: the causal one is the sum
over s of conj(k[s]) p[t + s], where p is zero outside of its row.

u, y and the gates are f32, f16, bf16, f64, c64 or c128, all of one type. C-contiguous
arrays are used in place, also those of other libraries (`danaus._exchange`); strided
ones, integers and lists are copied. Filters, skip and bias are converted to the type of
the sums: that of u, and f32 for 16 bits. They may have additional axes of size 1.
``dtype="bf16"`` is for bf16 in arrays of uint16.

Rows are transformed: a NaN or an infinite value anywhere in u or k makes y NaN in its
row, also before its place in a causal convolution. `short_conv` sums directly.

Source: Fu, Kumbong, Nguyen, Re, FlashFFTConv (arXiv 2311.05908); docs/conv.md.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from danaus._arrays import (
    INT,
    INT64,
    ElementType,
    choose,
    element_code,
    numpy_dtype,
    operand,
    pointer,
    short_name,
    sums_code,
    whole,
)
from danaus._conv_arguments import (
    ACCURACIES,
    KINDS,
    call_for,
    filters_of,
    four,
    like,
    offsets_of,
    one_axis,
    result_like,
    shapes_of,
    sizes,
    two_axes,
)
from danaus._exchange import OnDevice, exchanged, made
from danaus._library import check, ffi, lib, own, text
from danaus.device import Device, chosen
from danaus.plan import EFFORTS, ScratchBytes


class ConvGradients(NamedTuple):
    """Gradients of a loss; None if not requested or not defined."""

    du: np.ndarray | None = None
    dgate_in: np.ndarray | None = None
    dgate_out: np.ndarray | None = None
    dk: np.ndarray | None = None
    dk_reverse: np.ndarray | None = None
    dskip: np.ndarray | None = None


class ConvPlan:
    """How rows of one shape are convolved; immutable, for any thread.

    Parameters
    ----------
    channels, length : sizes of u[..., channels, length]. A length (height, width) is
        for planes u[..., channels, height, width].
    taps : length of k and k_reverse; 0: length. Of planes (height, width).
    filters : a divisor of channels, 0: channels; channel h has the filter
        h // (channels // filters).
    kind : "causal", "circular", "bidirectional" (not for planes) or "centred".
    centre : the tap k[centre] multiplies u[t] in y[t], in centred and circular plans: a
        number, or of planes (down, across). A centred plan is causal along an axis with
        centre 0. None: the middle tap, (taps - 1) // 2, of centred plans, else 0.
    correlate : correlations, in place of convolutions.
    signals : rows of u and the gates for each sample, a divisor of channels (0:
        channels): a filter bank. Channel h has signal h // (channels // signals). On
        CPUs, without gradients.
    dtype : type of u, y and the gates: f32, f16, bf16, f64, c64 or c128.
    effort : "estimate", "measure" (tenths of a second) or "table".
    batch : plan for batch * channels rows, 0: many; calls may have any number.
    accuracy : "fast" lets GPUs multiply in 16 bits, "accurate" does not; None, or
        "by_type", is fast for f16 and bf16 (danaus/conv.h).
    axes, keep : up to four sizes of a filter's array of frequencies, powers of two
        (0: 8), and how many of each are kept (0: all); danaus/conv.h, "Sparse
        spectra". A sparse causal filter is no longer causal.
    packed : for packed sequences of up to `length` values each; all calls then take
        offsets. Causal or bidirectional.
    device : where to plan and run; None: each thread's own CPU device.
    """

    def __init__(
        self,
        channels: int,
        length: int | Sequence[int],
        *,
        taps: int | Sequence[int] = 0,
        filters: int = 0,
        kind: str = "causal",
        centre: int | Sequence[int] | None = None,
        correlate: bool = False,
        signals: int = 0,
        dtype: ElementType = "f32",
        effort: str = "estimate",
        batch: int = 0,
        accuracy: str | None = None,
        axes: Sequence[int] | None = None,
        keep: Sequence[int] | None = None,
        packed: bool = False,
        device: Device | str | None = None,
    ):
        desc = ffi.new("danaus_conv_desc *")
        desc.channels = self.channels = whole(channels, "channels", 1, INT64)
        axes_of = two_axes if isinstance(length, Sequence) else one_axis
        desc.height, desc.length = axes_of(length, "length", 1)
        desc.filter_height, desc.filter_length = axes_of(taps, "taps", 0)
        desc.filters = whole(filters, "filters", 0, INT64)
        desc.signals = whole(signals, "signals", 0, INT)
        self.signals = desc.signals or self.channels
        desc.kind = choose(kind, KINDS, "kind")
        desc.dtype = self._code = element_code(dtype)
        desc.effort = choose(effort, EFFORTS, "effort")
        desc.batch = whole(batch, "batch", 0, INT64)
        word = "by_type" if accuracy is None else accuracy
        desc.accuracy = choose(word, ACCURACIES, "accuracy")
        desc.axes, desc.keep = four(axes, "axes"), four(keep, "keep")
        desc.packed = self.packed = bool(packed)
        desc.correlate = self.correlate = bool(correlate)
        self.kind = kind
        self.filters = desc.filters or self.channels
        self._row, self._filter = shapes_of(desc)
        self.length = self._row if desc.height else desc.length
        self.taps = self._filter if desc.height else self._filter[0]
        if centre is None:
            middle = [(size - 1) // 2 for size in self._filter]
            centre = middle if kind == "centred" else [0] * len(middle)
            centre = centre if desc.height else centre[0]
        desc.centre = axes_of(centre, "centre", 0)
        self._device = device
        place = ffi.new("danaus_conv_plan **")
        with chosen(self._device).in_use() as handle:
            check(lib.danaus_conv_plan_create(handle, desc, place))
            self._handle = own(place[0], lib.danaus_conv_plan_destroy, handle)

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype of u, y and the gates."""
        return numpy_dtype(self._code)

    def describe(self) -> str:
        """What will run, in one line, then why: the terms of the cost model."""
        size = lib.danaus_conv_plan_describe(self._handle, ffi.NULL, 0) + 1
        place = ffi.new("char[]", size)
        lib.danaus_conv_plan_describe(self._handle, place, size)
        return text(place)

    def scratch_bytes(self, batch: int = 1, *, offsets: Any = None) -> ScratchBytes:
        """Bytes of scratch for `batch` times channels rows, or for packed sequences,
        with the current threads."""
        number = whole(batch, "batch", 1, INT64)
        rows = [number] if offsets is None else offsets_of(offsets)
        forward, gradient = ffi.new("size_t *"), ffi.new("size_t *")
        call = call_for("danaus_conv_scratch_bytes", offsets)
        with chosen(self._device).in_use() as handle:
            check(call(self._handle, handle, *rows, forward, gradient))
        return ScratchBytes(forward[0], gradient[0])

    def spectrum(self, k: Any, *, k_reverse: Any = None, skip: Any = None) -> Spectrum:
        """Filters, transformed for this plan: see `Spectrum`."""
        return Spectrum(self, k, k_reverse=k_reverse, skip=skip)

    def _rows(self, u: np.ndarray, offsets: Any) -> list[Any]:
        """What tells the library of the rows of u, after u was found to fit: the batch,
        or packed sequences."""
        if offsets is None:
            return [self._batch(u)]
        count, starts = offsets_of(offsets)
        columns = starts[count]
        if u.shape != (self.signals, columns):
            raise ValueError(
                f"u has the shape {u.shape}, where the plan and the offsets need "
                f"[{self.signals}, {columns}]"
            )
        return [count, starts]

    def _result_shape(self, u: np.ndarray) -> tuple[int, ...]:
        """That of y: u's with the plan's channels."""
        axis = -1 - len(self._row)
        return (*u.shape[:axis], self.channels, *u.shape[axis + 1 or u.ndim :])

    def _batch(self, u: np.ndarray) -> int:
        """Rows of u over channels, after u was found to fit."""
        rows = (self.signals, *self._row)
        if u.shape[-len(rows) :] != rows:
            raise ValueError(
                f"u has the shape {u.shape}, where the plan needs "
                f"[..., {', '.join(map(str, rows))}]"
            )
        return math.prod(u.shape[: -len(rows)])

    def __reduce__(self):
        raise TypeError("a plan cannot be pickled or copied: make it again")

    def __repr__(self) -> str:
        kind = self.kind + " correlation" * self.correlate
        return (
            f"<danaus.ConvPlan {kind}, {self.channels} channels of "
            f"{sizes(self._row)}, {self.filters} filters of {sizes(self._filter)}, "
            f"{short_name(self._code)}>"
        )


class Spectrum:
    """Filters k[filters][taps] or k[filters][height][width], transformed for a plan.

    Parameters
    ----------
    plan : the plan, which must fit.
    k : filters; k_reverse : filters for negative lags, in bidirectional plans only.
    skip : a value for each filter, or None.
    """

    def __init__(
        self, plan: ConvPlan, k: Any, *, k_reverse: Any = None, skip: Any = None
    ):
        if not isinstance(plan, ConvPlan):
            raise TypeError(f"plan has to be a ConvPlan, not {type(plan).__name__}")
        self.plan = plan
        self.update(k, k_reverse=k_reverse, skip=skip)

    def update(self, k: Any, *, k_reverse: Any = None, skip: Any = None) -> None:
        """Takes other filters from the next call on; running calls use the old ones."""
        plan = self.plan
        shape = (plan.filters, *plan._filter)
        k = filters_of(k, plan._code, shape, "k")
        if (k_reverse is None) == (plan.kind == "bidirectional"):
            word = "need" if k_reverse is None else "take no"
            raise ValueError(f"{plan.kind} convolutions {word} k_reverse")
        if k_reverse is not None:
            k_reverse = filters_of(k_reverse, plan._code, shape, "k_reverse")
        if skip is not None:
            skip = filters_of(skip, plan._code, shape[:1], "skip")
        self._transform([k, k_reverse, skip])
        self._has_skip = skip is not None

    def _transform(self, filters: list[Any]) -> None:
        plan, place = self.plan, ffi.new("danaus_spectrum **")
        there = any(isinstance(array, OnDevice) for array in filters)
        with chosen(plan._device).in_use() as handle:
            given = [ffi.NULL] * 3 if there else map(pointer, filters)
            check(lib.danaus_spectrum_create(plan._handle, handle, *given, place))
            destroy = lib.danaus_spectrum_destroy
            spectrum = own(place[0], destroy, plan._handle, handle)
        if there:
            code = sums_code(plan._code)
            with chosen(plan._device).operands(filters, []) as (handle, given, _):
                check(lib.danaus_spectrum_update_from(spectrum, handle, code, *given))
        self._handle = spectrum

    @exchanged
    def __call__(
        self,
        u: np.ndarray,
        *,
        gate_in: np.ndarray | None = None,
        gate_out: np.ndarray | None = None,
        out: np.ndarray | None = None,
        offsets: Any = None,
    ) -> np.ndarray:
        """y like u, which is [..., channels, length] or of planes
        [..., channels, height, width]; the same bits for any number of threads.

        out : where y goes, an array like u that overlaps no input.
        offsets : for packed plans, [sequences + 1]: u is [channels, columns], and
            sequence i is columns offsets[i] to offsets[i + 1] - 1; they begin with 0
            and end with columns.
        """
        plan, spectrum = self.plan, self._handle
        u = operand(u, plan._code, "u")
        rows = plan._rows(u, offsets)
        gates = [like(gate_in, u, plan._code, "gate_in")]
        gates.append(like(gate_out, u, plan._code, "gate_out"))
        y = result_like(out, u, plan._code, *gates, shape=plan._result_shape(u))
        if not y.size:
            return y
        with chosen(plan._device).operands([u, *gates], [y]) as (handle, x, to):
            call = call_for("danaus_conv_execute", offsets)
            check(call(plan._handle, handle, spectrum, *rows, *x, *to))
        return y

    def __reduce__(self):
        raise TypeError("a spectrum cannot be pickled or copied: make it again")

    def _wanted(self, names: Iterable[str] | None, gates: Sequence[Any]) -> set[str]:
        """Names of the gradients to make; ValueError for one that does not exist."""
        possible = {"u", "k", "skip"}
        possible |= {"k_reverse"} if self.plan.kind == "bidirectional" else set()
        possible |= {n for n, g in zip(("gate_in", "gate_out"), gates) if g is not None}
        if names is None:
            return possible if self._has_skip else possible - {"skip"}
        wanted = {names} if isinstance(names, str) else set(names)
        if wanted - possible:
            missing = ", ".join(sorted(map(str, wanted - possible)))
            there = ", ".join(sorted(possible))
            raise ValueError(f"wrt has {missing}; there are gradients of {there}")
        return wanted

    @exchanged
    def gradient(
        self,
        u: np.ndarray,
        dy: np.ndarray,
        *,
        gate_in: np.ndarray | None = None,
        gate_out: np.ndarray | None = None,
        wrt: Iterable[str] | None = None,
        offsets: Any = None,
    ) -> ConvGradients:
        """Gradients of a loss whose gradient at y is dy.

        Gradients of u and the gates are like u. dk and dk_reverse like the filters,
        and dskip [filters], are sums over a filter's rows, in the type of sums. Those
        of complex numbers are dL/dre + i dL/dim, as dy is.

        wrt : names among "u", "gate_in", "gate_out", "k", "k_reverse", "skip"; None:
            all given operands.
        """
        plan, spectrum = self.plan, self._handle
        u = operand(u, plan._code, "u")
        rows = plan._rows(u, offsets)
        inputs = [u, like(gate_in, u, plan._code, "gate_in")]
        inputs.append(like(gate_out, u, plan._code, "gate_out"))
        wanted = self._wanted(wrt, inputs[1:])
        inputs.append(operand(dy, plan._code, "dy", shape=u.shape))
        sums = numpy_dtype(sums_code(plan._code))
        signal = u.shape, u.dtype
        filters = (plan.filters, *plan._filter), sums
        kinds = {"u": signal, "gate_in": signal, "gate_out": signal, "k": filters}
        kinds |= {"k_reverse": filters, "skip": (plan.filters, sums)}
        results = [
            made(*to, u) if name in wanted else None for name, to in kinds.items()
        ]
        desc = ffi.new("danaus_conv_gradients *")
        with chosen(plan._device).operands(inputs, results) as (handle, x, to):
            desc.du, desc.dgate_in, desc.dgate_out = to[:3]
            desc.dk, desc.dk_reverse, desc.dskip = to[3:]
            call = call_for("danaus_conv_gradient", offsets)
            check(call(plan._handle, handle, spectrum, *rows, *x, desc))
        return ConvGradients(*results)
