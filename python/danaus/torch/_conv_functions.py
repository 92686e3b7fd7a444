"""Convolutions as functions of tensors, and what their arguments have to be."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from danaus._arrays import need_one_of
from danaus._conv_arguments import four
from danaus.torch._conv_fft import _conv1d_short_conv, _fft_long_conv
from danaus.torch._conv_ops import (
    has_kernels,
    run_long_conv,
    run_short_conv,
)
from danaus.torch._errors import fail, refuse_proxy
from danaus.torch._ops import in_transform, is_traced, sum_dtype
from danaus.torch._split import Split, on_whole_rows, size_of, split_of

KINDS = ("causal", "circular", "bidirectional", "centred")
LAYOUTS = ("channels_first", "channels_last")
ACCURACIES = (None, "accurate", "fast")
MOST_TAPS = 128  # of short convolutions
MOST_LENGTH = 1 << 28  # of signals and filters
FEW_ROWS = 16  # so many, or more, are planned for alike
_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


# ---- what arguments have to be ----


def check_tensor(name: str, x, shape: tuple, device: torch.device) -> None:
    """x is a real tensor on that device of that shape; None stands for any size."""
    if not isinstance(x, Tensor):
        fail(f"{name} has to be a tensor, not {type(x).__name__}")
    if x.dtype not in _TYPES:
        fail(
            f"{name} has numbers of type {x.dtype}; float32, float64, float16 and "
            "bfloat16 are possible"
        )
    if x.layout != torch.strided:
        fail(f"{name} has the layout {x.layout}; it has to be a dense tensor")
    if x.device != device:
        fail(f"{name} lies on {x.device}, u on {device}")
    if x.dim() != len(shape) or any(
        want is not None and size != want for size, want in zip(x.shape, shape)
    ):
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        fail(f"{name} has the shape {list(x.shape)}; [{wanted}] is needed")


def check_rows(x, features: int, device: torch.device | None = None) -> None:
    """Raises unless x is a real tensor on that device with so many numbers in a row."""
    if not isinstance(x, Tensor):
        refuse_proxy(x)
        fail(f"x has to be a tensor, not {type(x).__name__}")
    check_tensor("x", x, (*x.shape[:-1], features), x.device)
    if device is not None and x.device != device:
        fail(f"x lies on {x.device}, the module on {device}")


def check_signal(u) -> None:
    """Raises unless u has three dimensions; only the first may be empty."""
    if not isinstance(u, Tensor):
        refuse_proxy(u)
        fail(f"u has to be a tensor, not {type(u).__name__}")
    check_tensor("u", u, (None, None, None), u.device)
    if u.shape[1] < 1 or u.shape[2] < 1:
        fail(f"u has the shape {list(u.shape)}; only the batch may be empty")


def filter_sizes(
    channels: int, length: int, filters: int | None, taps: int | None
) -> tuple[int, int]:
    """How many filters and taps a module has: as many as channels and as the length
    where None is given."""
    filters = channels if filters is None else filters
    taps = length if taps is None else taps
    if min(channels, length, filters, taps) < 1 or channels % filters:
        fail(
            f"{filters} filters of {taps} taps for {channels} channels of length "
            f"{length}: all are at least 1, and filters divides channels"
        )
    return filters, taps


def rows_of(u, gate_in, gate_out) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """A signal and its gates, checked, of one type, row-major."""
    check_signal(u)
    dtype = u.dtype
    for name, gate in (("gate_in", gate_in), ("gate_out", gate_out)):
        if gate is not None:
            check_tensor(name, gate, tuple(u.shape), u.device)
            dtype = torch.promote_types(dtype, gate.dtype)
    return _as(u, dtype), _as(gate_in, dtype), _as(gate_out, dtype)


def filters_of(
    u: Tensor, k, k_reverse, skip, kind
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """k, k_reverse and skip for a signal, checked, in the type that its sums have."""
    need_one_of(KINDS, kind, "kind")
    check_tensor("k", k, (None, None), u.device)
    filters, taps = k.shape
    if filters < 1 or taps < 1 or u.shape[1] % filters:
        fail(
            f"k has the shape {list(k.shape)}: the number of filters has to divide "
            f"the {u.shape[1]} channels, and a filter needs a tap"
        )
    longest = taps if is_traced() else max(taps, u.shape[2])
    if longest > MOST_LENGTH:
        fail(f"a length of {longest}; {MOST_LENGTH} is the longest")
    if (k_reverse is not None) != (kind == "bidirectional"):
        fail("k_reverse is given with bidirectional convolutions and no others")
    if k_reverse is not None:
        check_tensor("k_reverse", k_reverse, (filters, taps), u.device)
    if skip is not None:
        check_tensor("skip", skip, (filters,), u.device)
    sums = sum_dtype(u.dtype)
    return _as(k, sums), _as(k_reverse, sums), _as(skip, sums)


def sparse_of(axes, keep, kind: str) -> list[int]:
    """Sparse spectra as the operators take them: nothing, or four axes and how many
    frequencies of each to keep."""
    axes, keep = four(axes, "axes"), four(keep, "keep")
    if not any(keep):
        return []
    if kind not in ("causal", "bidirectional"):
        fail(f"{kind} convolutions keep whole spectra")
    axes = [axis or 8 for axis in axes]
    keep = [kept or axis for kept, axis in zip(keep, axes)]
    for axis, kept in zip(axes, keep):
        if axis & (axis - 1) or kept > axis:
            fail(f"{kept} of an axis of {axis}: powers of two, and no more than these")
    if math.prod(axes) > MOST_LENGTH:
        fail(f"axes of {math.prod(axes)} frequencies; {MOST_LENGTH} is the most")
    return axes + keep


def centre_of(centre, taps: Sequence[int], kind: str) -> list[int]:
    """A place of filters with these taps along each axis, checked; None: the middle of
    centred ones, else the beginning."""
    if centre is None:
        return [(t - 1) // 2 if kind == "centred" else 0 for t in taps]
    try:
        places = [operator.index(c) for c in centre]
    except TypeError:
        fail(f"a centre is whole numbers, not {centre!r}")
    if len(places) != len(taps) or any(not 0 <= c < t for c, t in zip(places, taps)):
        fail(f"the centre {places} is no place of a filter of {list(taps)} taps")
    if any(places) and kind not in ("centred", "circular"):
        fail("only centred and circular convolutions have a centre")
    return places


def centred_form(centre: int | None, taps: int, kind: str) -> list[int]:
    """Rows with a centre as the operators take them; without one, nothing."""
    centre = centre_of(None if centre is None else [centre], [taps], kind)
    return [0, 0, 0, *centre] if any(centre) else []


def check_packed(offsets: Tensor | None, kind: str, form: Sequence[int]) -> None:
    """Raises unless sequences can be packed for such a convolution."""
    if offsets is not None and (form or kind not in ("causal", "bidirectional")):
        fail("packed sequences are causal or bidirectional, with whole spectra")


def accuracy_of(accuracy: str | None) -> str:
    """The operators' name for an accuracy."""
    need_one_of(ACCURACIES, accuracy, "accuracy")
    return accuracy or "by_type"


def _as(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if x is None else x.to(dtype).contiguous()


def planned_batch(u: Tensor, offsets: Tensor | None = None) -> int:
    """The batch to transform filters for: 0 for any or, if rows are few, u's."""
    batch, channels, _ = u.shape
    return batch if channels * batch < FEW_ROWS and offsets is None else 0


def offsets_of(offsets, u: Tensor, dim: int = 2, pieces: int = 1) -> Tensor | None:
    """Where packed sequences begin along a dimension of u, and where the last one ends:
    checked, in the memory of the host. u is one of so many pieces."""
    if offsets is None:
        return None
    if not isinstance(offsets, Tensor):
        try:
            offsets = torch.tensor([operator.index(i) for i in offsets])
        except (TypeError, ValueError, RuntimeError, OverflowError):
            fail(f"offsets have to be whole numbers or their tensor, not {offsets!r}")
    if offsets.dim() != 1 or offsets.dtype not in (torch.int32, torch.int64):
        fail(
            f"offsets have the shape {list(offsets.shape)} and the type "
            f"{offsets.dtype}; they need one dimension of int32 or int64"
        )
    offsets = offsets.to("cpu", torch.int64).contiguous()
    if u.shape[0] != 1 or len(offsets) < 2:
        fail("packed sequences are a batch of 1, and at least one")
    if not is_traced() and not offsets.is_meta:
        falls = (offsets[1:] < offsets[:-1]).any()  # differences might overflow
        columns = pieces * u.shape[dim]
        if offsets[0] != 0 or offsets[-1] != columns or falls:
            fail(
                f"offsets are {offsets.tolist()}; they ascend from 0 to the "
                f"{columns} numbers of u"
            )
    return offsets


# ---- functions ----


def long_conv(
    u: Tensor,
    k: Tensor,
    k_reverse: Tensor | None = None,
    skip: Tensor | None = None,
    gate_in: Tensor | None = None,
    gate_out: Tensor | None = None,
    kind: str = "causal",
    axes: Sequence[int] | None = None,
    keep: Sequence[int] | None = None,
    offsets: Tensor | Sequence[int] | None = None,
    accuracy: str | None = None,
    centre: int | None = None,
    group=None,
) -> Tensor:
    """``gate_out * (k (*) p + skip * p)`` with ``p = gate_in * u``.

    `*` is the product number by number and `(*)` a convolution along the length, with
    p zero outside of it: "causal", ``sum_s k[s] p[t - s]``; "bidirectional", that plus
    ``sum_s k_reverse[s] p[t + 1 + s]``; "centred", ``sum_s k[s] p[t + centre - s]``;
    "circular", the same with ``t + centre - s`` mod the length. Differentiable in all
    tensors.

    Parameters
    ----------
    u, gate_in, gate_out : Tensor [batch, channels, length]
        float32, float64, float16 or bfloat16; if types differ, torch.promote_types says
        the type for all.
    k, k_reverse : Tensor [filters, taps]
        Any number of taps. Channel h has the filter ``h // (channels // filters)``.
        Sums, and spectra of k, are float64 if u is, else float32. With one axis more,
        [batch, filters, taps], each sample has filters of its own; skip has it, too.
    skip : Tensor [filters]
    axes, keep : up to four numbers
        Sparse spectra (docs/conv.md): up to four sizes of the array of frequencies that
        a filter has, powers of two (default: 8), and how many of each count. With the
        others set to zero, a causal filter and a skip are no longer causal.
    offsets : Tensor [sequences + 1] of int32 or int64, or whole numbers
        u and the gates are packed sequences [1, channels, columns], without padding:
        sequence i is columns ``offsets[i]`` to ``offsets[i + 1] - 1`` and is convolved
        as if it were alone. offsets begin with 0 and end with columns, as cu_seqlens
        do. They are read on the host: a tensor on a GPU is waited for. Only causal and
        bidirectional convolutions with whole spectra take offsets.
    accuracy : None, "accurate" or "fast"
        "fast" lets GPUs multiply in 16 bits by tensor cores (docs/conv.md (7)), with
        errors of some 7e-4 of the norm of y, 2e-3 in bfloat16; "accurate" does not.
        None: fast for float16 and bfloat16 only. Other devices are always accurate.
    centre : int
        Of centred and circular convolutions: ``k[centre]`` multiplies ``p[t]``. None:
        the middle tap, ``(taps - 1) // 2``, of centred ones, and 0 of circular ones.
    group : ProcessGroup, True or "world" (the default group)
        u, the gates and the result are this rank's pieces of longer rows: rank r has
        numbers r n to (r + 1) n - 1 of each, n on every rank. Filters are whole and the
        same on all ranks, offsets those of the whole rows. Gradients of filters are as
        docs/python.md, Several GPUs, says.

    Returns
    -------
    Tensor [batch, channels, length], of u's type.

    Raises
    ------
    ValueError
        Shapes, types or devices that do not fit.
    """
    call = gate_in, gate_out, k, k_reverse, skip, kind, axes, keep, offsets, centre
    split = split_of(group, u, call=call)
    u, gate_in, gate_out = rows_of(u, gate_in, gate_out)
    taps = k.shape[-1] if isinstance(k, Tensor) and k.dim() else 1
    form = sparse_of(axes, keep, kind) or centred_form(centre, taps, kind)
    offsets = offsets_of(offsets, u, pieces=size_of(group))
    filters, gates = (k, k_reverse, skip), (gate_in, gate_out)
    if split is None:
        return run_rows(u, filters, gates, kind, form, offsets, accuracy)
    filters = filters_of(u, *filters, kind)
    check_packed(offsets, kind, form)
    *long, skip = filters
    own = [split.gathered(x, len(k)) for x in long]
    own.append(split.of_all(skip, len(k)))
    options = kind, axes, keep, offsets, accuracy, centre
    return split_long_conv(split, (u, *gates), own, *options)


def run_rows(u, filters, gates, kind: str, form: list[int], offsets, accuracy):
    """y of checked rows and gates. Filters with one axis more are those of samples."""
    if isinstance(filters[0], Tensor) and filters[0].dim() == 3:
        if offsets is not None:
            fail("packed sequences have no filters of their own")
        return _run_samples(u, filters, gates, kind, form, accuracy)
    k, k_reverse, skip = filters_of(u, *filters, kind)
    offsets = offsets_of(offsets, u)
    check_packed(offsets, kind, form)
    operands = u, k, k_reverse, skip, *gates, kind, form, offsets
    accuracy = accuracy_of(accuracy)
    if not has_kernels(u.device):
        return _fft_long_conv(*operands)
    return run_long_conv(*operands, accuracy)


def _run_samples(u: Tensor, filters, gates, kind: str, form: list[int], accuracy):
    """Samples are channels of one sample, and so are their filters."""
    for x in filters:
        if x is not None and x.shape[:1] != u.shape[:1]:
            fail(f"filters of shape {list(x.shape)} for {u.shape[0]} samples")
    if not u.shape[0]:
        return u.clone()
    rows = [None if x is None else x.flatten(0, 1)[None] for x in (u, *gates)]
    own = [None if x is None else x.flatten(0, 1) for x in filters]
    return run_rows(rows[0], own, rows[1:], kind, form, None, accuracy).view(u.shape)


def split_long_conv(split: Split, rows: Sequence, filters: list, *options) -> Tensor:
    """`long_conv` of pieces of u and the gates. filters: k, k_reverse and skip of this
    rank's channels, by their parts."""

    def run(x: Tensor, n: int) -> Tensor:
        there = iter(x.unbind(1))
        u, *gates = (None if row is None else next(there) for row in rows)
        return long_conv(u, *(x[n] for x in filters), *gates, *options)

    return on_whole_rows(run, [x for x in rows if x is not None], split)


def short_conv(
    u: Tensor,
    k: Tensor,
    bias: Tensor | None = None,
    layout: str = "channels_first",
    centred: bool = False,
    offsets: Tensor | Sequence[int] | None = None,
    group=None,
) -> Tensor:
    """``y[t] = bias + sum_s k[s] u[t + shift - s]`` for each channel.

    u is zero outside of its length; shift is 0 or, centred, ``(taps - 1) // 2``. This
    is a convolution in the mathematical sense: torch.nn.Conv1d reverses the taps.
    Differentiable in all tensors.

    Parameters
    ----------
    u : Tensor [batch, channels, length], or [batch, length, channels] with the layout
        "channels_last"; float32, float64, float16 or bfloat16
    k : Tensor [channels, taps]
        1 to 128 taps. k and sums are float64 if u is, else float32.
    bias : Tensor [channels]
    offsets : Tensor or whole numbers, as for `long_conv`
        u is packed sequences, a batch of 1; y[t] depends on its own sequence only.
    group : ProcessGroup, True or "world"
        u and the result are pieces of longer rows, as for `long_conv`.

    Returns
    -------
    Tensor, like u.

    Raises
    ------
    ValueError
        Shapes, types or devices that do not fit.
    """
    need_one_of(LAYOUTS, layout, "layout")
    check_signal(u)
    last = layout == "channels_last"
    channels = u.shape[2 if last else 1]
    split = split_of(group, u, channels, call=(k, bias, layout, centred, offsets))
    check_tensor("k", k, (channels, None), u.device)
    if not 1 <= k.shape[1] <= MOST_TAPS:
        fail(f"k has {k.shape[1]} taps; 1 to {MOST_TAPS} are possible")
    if bias is not None:
        check_tensor("bias", bias, (channels,), u.device)
    k, bias = (_as(x, sum_dtype(u.dtype)) for x in (k, bias))
    offsets = offsets_of(offsets, u, 1 if last else 2, size_of(group))
    if split is not None:
        k, bias = (split.of_all(x, channels) for x in (k, bias))
        y = on_whole_rows(
            lambda x, n: short_conv(
                x[:, 0], k[n], bias[n], centred=centred, offsets=offsets
            ),
            [u.mT if last else u],
            split,
        )
        return y.mT if last else y
    run = run_short_conv if has_kernels(u.device) else _conv1d_short_conv
    y = run(u.contiguous(), k, bias, last, bool(centred))
    if offsets is None or k.shape[1] == 1:
        return y
    if not is_traced() and in_transform():
        y = y.clone()  # results of functions cannot be written to there
    after = (k.shape[1] - 1) // 2 if centred else 0
    rows = (u, y) if last else (u.mT, y.mT)
    _part_short(
        *rows,
        lambda x: run(x, k, bias, True, bool(centred)),
        after,
        k.shape[1] - 1,
        offsets,
    )
    return y


def _part_short(u: Tensor, y: Tensor, run, after: int, reach: int, offsets) -> None:
    """Makes those y [1, columns, channels] again whose taps reached other sequences:
    the last `after`, and the first ones, of each, from windows with zeros for the
    others.

    Where a sequence is shorter, places belong to another one: what that has there is
    written again, and counts once in gradients."""
    before, columns = reach - after, offsets[-1]
    first, end, step = offsets[:-1, None], offsets[1:, None], torch.arange(reach)
    head, tail = first + step, end - reach + step
    seen = torch.cat([head, tail]).clamp(min=0).minimum(columns - 1).to(u.device)
    inside = torch.cat([head < end, tail >= first]).to(u.device)
    made = run(u[0, seen].where(inside[..., None], 0)).tensor_split(2)
    value = torch.cat([made[0][:, :before], made[1][:, before:]], 1)
    new = torch.cat([head < end, tail >= first + before], 1)
    new = torch.cat([new[:, :before], new[:, reach + before :]], 1)
    head = head.where(head < columns, 0)[:, :before]
    tail = tail.where(tail >= 0, columns - 1)[:, before:]
    place = torch.cat([head, tail], 1)
    own = torch.searchsorted(offsets, place, right=True) - 1
    at = torch.cat(
        [head - offsets[own][:, :before], reach + tail - offsets[own + 1][:, before:]],
        1,
    )
    value = value[own.to(u.device), at.to(u.device)]
    value = value.where(new.to(u.device)[..., None], value.detach()).flatten(0, 1)
    y[0].index_copy_(0, place.flatten().to(u.device), value)
