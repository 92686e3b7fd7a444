"""Convolutions in one call: modes, and filters for each sample."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from danaus._arrays import (
    ElementType,
    array_of,
    choose,
    element_code,
    operand,
    short_name,
)
from danaus._conv_arguments import (
    KINDS,
    filter_rows,
    longest_of,
    signal_of,
    sizes,
)
from danaus._exchange import OnDevice, device_for, exchanged, made
from danaus.conv import ConvPlan
from danaus.device import Device

_MODES = {"full": 0, "same": 1, "valid": 2}


class _Operands(NamedTuple):
    """u [..., channels, length] and k [..., filters, taps]; of planes with a height."""

    u: Any  # NumPy's, or on a device
    k: Any
    axes: int
    code: int

    @property
    def row(self) -> tuple[int, ...]:
        return self.u.shape[-self.axes :]

    @property
    def taps(self) -> tuple[int, ...]:
        return self.k.shape[-self.axes :]


def _operands_of(
    u: Any, k: Any, axes: int, batched: bool, dtype: ElementType | None
) -> _Operands:
    if axes not in (1, 2):
        raise ValueError(f"axes has to be 1, for rows, or 2, for planes, not {axes!r}")
    rows, code = signal_of(u, dtype, element_code)
    rows = rows.reshape(1, *rows.shape) if rows.ndim == axes else rows
    taps = array_of(k, "k") if batched else filter_rows(k, axes)
    fits = taps.ndim == 1 + axes or (batched and taps.ndim > axes)
    if rows.ndim < 1 + axes or not fits or not taps.size:
        row, own = ("length", "taps") if axes == 1 else ("height, width",) * 2
        samples = "..., " if batched else ""
        raise ValueError(
            f"u has the shape {np.shape(u)} and k {np.shape(k)}: they are "
            f"[..., channels, {row}] and [{samples}filters, {own}], and k is not empty"
        )
    return _Operands(rows, taps, axes, code)


def _spread(array: Any, batch: tuple[int, ...], own: int) -> Any:
    """An array of samples as one of all their channels, or filters, in order: the first
    of its last `own` axes. None stays None."""
    if array is None:
        return None
    shape = np.shape(array)[-own:]
    every = np.broadcast_to(array, batch + shape)
    return np.ascontiguousarray(every).reshape(-1, *shape[1:])


def _check_mode(mode: str, o: _Operands, others: bool, shaped: bool) -> None:
    """others: options that a mode replaces are given; shaped: some that are like u."""
    choose(mode, _MODES, "mode")
    if others:
        raise ValueError(
            "a mode takes the place of kind and centre, and has neither k_reverse nor "
            "offsets"
        )
    if mode != "same" and shaped:
        raise ValueError(f"{mode} results are not like u: they take no gates, no skip")
    larger = [row >= taps for row, taps in zip(o.row, o.taps)]
    smaller = [row <= taps for row, taps in zip(o.row, o.taps)]
    if mode == "valid" and not all(larger) and not all(smaller):
        raise ValueError(
            f"no valid results of {sizes(o.row)} numbers and {sizes(o.taps)} taps: one "
            "has to be at least as large as the other along both axes"
        )


def _with_room(o: _Operands, mode: str | None) -> Any:
    """u with zeros behind it for the results of a mode."""
    if mode != "full" and (mode != "valid" or np.all(np.less_equal(o.taps, o.row))):
        return o.u
    room = [0] * (o.u.ndim - o.axes) + [taps - 1 for taps in o.taps]
    return np.pad(o.u, [(0, more) for more in room])


def _valid(y: np.ndarray, o: _Operands) -> np.ndarray:
    ends = [(min(pair) - 1, max(pair)) for pair in zip(o.row, o.taps)]
    cut = tuple(slice(*end) for end in ends)
    return np.ascontiguousarray(y[(..., *cut)])


def _run(o: _Operands, filters: dict[str, Any], gates: Any, options: Any) -> np.ndarray:
    """y of u and filters without axes of samples."""
    offsets = options.pop("offsets")
    row = o.row if offsets is None else (longest_of(offsets),)
    plan = ConvPlan(
        o.u.shape[-1 - o.axes],
        row if o.axes == 2 else row[0],
        taps=o.taps if o.axes == 2 else o.taps[0],
        filters=o.k.shape[0],
        dtype=short_name(o.code),
        batch=math.prod(o.u.shape[: -1 - o.axes]),
        packed=offsets is not None,
        **options,
    )
    spectrum = plan.spectrum(o.k, **filters)
    return spectrum(o.u, gate_in=gates[0], gate_out=gates[1], offsets=offsets)


def _run_batched(
    o: _Operands, filters: dict[str, Any], gates: Any, options: Any
) -> np.ndarray:
    """The same where samples have filters of their own: as channels of one sample."""
    own = 1 + o.axes
    if o.u.shape[-own] == 1:
        o = o._replace(u=np.repeat(o.u, o.k.shape[-own], -own))
    batch = np.broadcast_shapes(o.u.shape[:-own], o.k.shape[:-own])
    shape = batch + o.u.shape[-own:]
    if 0 in shape:
        return np.empty(shape, o.u.dtype)
    spread = o._replace(u=_spread(o.u, batch, own), k=_spread(o.k, batch, own))
    filters = {
        "k_reverse": _spread(filters["k_reverse"], batch, own),
        "skip": _spread(filters["skip"], batch, 1),
    }
    gates = [_spread(gate, batch, own) for gate in gates]
    return _run(spread, filters, gates, options).reshape(shape)


@exchanged
def convolve(
    u: np.ndarray,
    k: Any,
    *,
    axes: int = 1,
    mode: str | None = None,
    kind: str = "causal",
    centre: int | Sequence[int] | None = None,
    correlate: bool = False,
    batched: bool = False,
    k_reverse: Any = None,
    skip: Any = None,
    gate_in: np.ndarray | None = None,
    gate_out: np.ndarray | None = None,
    offsets: Any = None,
    dtype: ElementType | None = None,
    device: Device | str | None = None,
) -> np.ndarray:
    """Plan, transform and convolve in one call; a `ConvPlan` plans once for many.

    Parameters
    ----------
    u : [..., channels, length], or [length]; integers are convolved as f64.
    k : [filters][taps], or [taps] for one filter; k_reverse likewise.
    axes : 2 for planes: u [..., channels, height, width] and
        k [filters][height][width], or the last two axes alone.
    mode : "full", "same" or "valid", as in scipy.signal.convolve and correlate, in
        place of a kind and a centre. "full" and "valid" results are not like u: they
        take no gates and no skip.
    kind, centre, correlate : as for `ConvPlan`.
    batched : each sample has filters of its own: k and k_reverse are
        [..., filters, taps] and skip [..., filters], and the axes in front broadcast
        with those of u. One channel of u meets every filter.
    skip : [filters], or a number for one filter.
    offsets : where packed sequences in u [channels, columns] begin, as for `Spectrum`.
    dtype : u's element type, if its dtype does not give it.
    """
    choose(kind, KINDS, "kind")
    o = _operands_of(u, k, axes, batched, dtype)
    if isinstance(o.u, OnDevice) and (mode is not None or batched):
        raise NotImplementedError(
            f"modes and filters for each sample, of arrays on {o.u.place}: use a kind "
            "and filters for all samples, or arrays of the host"
        )
    shaped = {"gate_in": gate_in, "gate_out": gate_out, "skip": skip}
    if mode is not None:
        others = [x for x in (centre, k_reverse, offsets) if x is not None]
        others = kind != "causal" or bool(others)
        _check_mode(mode, o, others, any(x is not None for x in shaped.values()))
    if mode is not None and correlate:
        ends = tuple(range(-axes, 0))
        o, correlate = o._replace(k=np.conj(np.flip(o.k, ends))), False
        skip = None if skip is None else np.conj(skip)
    if mode == "same":
        kind = "centred"
    if 0 in o.u.shape[-1 - axes :]:
        return made(np.shape(u), o.u.dtype, o.u)
    filters = {"k_reverse": k_reverse, "skip": skip}
    if k_reverse is not None:
        filters["k_reverse"] = _operands_of(u, k_reverse, axes, batched, dtype).k
    if skip is not None:
        skip = array_of(skip, "skip")
        filters["skip"] = skip if skip.ndim else skip.reshape(1)
    gates = [
        None
        if shaped[name] is None
        else operand(shaped[name], o.code, name, shape=np.shape(u)).reshape(o.u.shape)
        for name in ("gate_in", "gate_out")
    ]
    options = {"kind": kind, "centre": centre, "correlate": correlate}
    options |= {"offsets": offsets, "device": device_for(o.u, device)}
    run = _run_batched if batched else _run
    y = run(o._replace(u=_with_room(o, mode)), filters, gates, options)
    if mode == "valid":
        y = _valid(y, o)
    alone = np.ndim(u) == axes and y.shape[:-axes] == (1,)
    return y.reshape(y.shape[1:]) if alone else y
