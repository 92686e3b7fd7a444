"""Convolutions along the length of a signal, for PyTorch: long ones, with filters that
may be as long as the signal, and short ones of a few taps.

CPUs and NVIDIA GPUs run danaus' own kernels (docs/conv.md). On other devices PyTorch's
functions give the same results, with one warning. Source of the long ones,
with their gates: Fu, Kumbong, Nguyen, Re, FlashFFTConv, ICLR 2024 (arXiv 2311.05908).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from danaus._arrays import need_one_of
from danaus.torch._conv_functions import (
    KINDS,
    LAYOUTS,
    MOST_TAPS,
    accuracy_of,
    centred_form,
    check_packed,
    check_tensor,
    fail,
    filter_sizes,
    filters_of,
    long_conv,
    offsets_of,
    planned_batch,
    rows_of,
    run_long_conv,
    run_rows,
    short_conv,
    sparse_of,
    split_long_conv,
)
from danaus.torch._conv_ops import has_kernels
from danaus.torch._ops import in_transform, is_traced, ops
from danaus.torch._packed import Freezable, Prepared, Traceable, wait
from danaus.torch._split import Split, Splittable, size_of, split_of
from danaus.torch.functional import ACTIVATIONS, activation_name, wants_gradients
from danaus.torch.implicit import HyenaFilter

__all__ = ["LongConv", "ShortConv", "long_conv", "short_conv"]


def keeps(module: Freezable, rows: Sequence[Tensor | None]) -> bool:
    """True if a module can keep the spectra of its filters for such signals.

    A GPU transforms filters that are not frozen at each call: this launch takes less
    time than checking them for changes. Captured graphs do so too.
    """
    if is_traced() or in_transform():
        return False
    there = [x for x in rows if x is not None]
    u = there[0]
    if any(type(x) not in (Tensor, torch.nn.Parameter) for x in there):
        return False
    if u.is_meta or not has_kernels(u.device):
        return False
    frozen = module._is_frozen()
    if u.is_cuda and (not frozen or torch.cuda.is_current_stream_capturing()):
        return False
    return not wants_gradients(there if frozen else [*there, *module.parameters()])


class LongConv(Freezable, Splittable):
    """A long convolution of every channel with a filter of its own, or a shared one.

    Parameters
    ----------
    channels : int
    length : int
        Length of filters, unless `taps` is given. Signals may have any length.
    kind : "causal", "circular", "bidirectional" or "centred"
    filters : int
        A divisor of channels; channel h has filter ``h // (channels // filters)``.
        Default: one for each channel.
    taps : int
    centre : int
        Of centred and circular convolutions, as for `long_conv`.
    skip : bool
        True to add ``skip * u``, with a learned value for each filter.
    filter : Tensor or Module
        Filters k[filters, taps] to learn instead of random ones (bidirectional: a pair
        with k_reverse), or a module that makes them: ``filter(length)`` returns k, or
        the pair, for signals of that length.
    axes, keep : up to four numbers
        Sparse spectra, as for `long_conv`.
    accuracy : None, "accurate" or "fast"
        Accuracy in 16 bits on GPUs, as for `long_conv`.
    group : ProcessGroup, True or "world"
        Signals are pieces of longer ones, as for `long_conv`.

    Attributes
    ----------
    weight, weight_reverse : Parameter [filters, taps]
        k and k_reverse; None if a module computes them. Initial values are normal, of
        variance 1 / taps, without counting taps beyond the signal: y[length - 1], or
        y[length / 2] of a bidirectional convolution, has the variance of u.
    skip : Parameter [filters]
        Initial values are normal with variance 1, as in S4 and Hyena.
    filter : Module or None

    A call uses the current filters, however they were written, and calls a filter
    module. Without gradients a CPU keeps the transformed filter as long as the filter
    has the same bits; a GPU transforms it at each call. Frozen modules (`freeze`) keep
    it for the latest length, and call no filter module for that length again. CUDA
    graphs transform filters whenever they run, and so do modules with a group.
    """

    def __init__(
        self,
        channels: int,
        length: int,
        kind: str = "causal",
        *,
        filters: int | None = None,
        taps: int | None = None,
        skip: bool = True,
        filter=None,
        axes: Sequence[int] | None = None,
        keep: Sequence[int] | None = None,
        accuracy: str | None = None,
        centre: int | None = None,
        group=None,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self._set_group(group)
        need_one_of(KINDS, kind, "kind")
        filters, taps = filter_sizes(channels, length, filters, taps)
        self.channels, self.length, self.kind = channels, length, kind
        self.filters, self.taps = filters, taps
        self.axes, self.keep = axes, keep
        self.accuracy = accuracy
        accuracy_of(accuracy)
        self.centre = centre
        form = centred_form(centre, taps, kind)
        self._form = sparse_of(axes, keep, kind) or form
        self._prepared = Prepared()
        self.filter = filter if isinstance(filter, torch.nn.Module) else None
        self.weight = self.weight_reverse = None
        made = {"device": device, "dtype": dtype}
        self.skip = torch.nn.Parameter(torch.empty(filters, **made)) if skip else None
        if self.filter is None:
            shape = (filters, taps)
            self.weight = torch.nn.Parameter(torch.empty(shape, **made))
            if kind == "bidirectional":
                self.weight_reverse = torch.nn.Parameter(torch.empty(shape, **made))
        self.reset_parameters()
        if filter is not None and self.filter is None:
            self._take(filter)

    def reset_parameters(self) -> None:
        """Random numbers, as the class says; a filter module is left alone."""
        met = {
            "causal": min(self.taps, self.length),
            "centred": min(self.taps, self.length),
            "circular": self.taps,
            "bidirectional": min(2 * self.taps, self.length),
        }[self.kind]
        for weight in (self.weight, self.weight_reverse):
            if weight is not None:
                torch.nn.init.normal_(weight, std=met**-0.5)
        if self.skip is not None:
            torch.nn.init.normal_(self.skip)

    def _pair(self, filter) -> tuple[Tensor, ...]:
        """Filters that were given or made: k, or k and k_reverse."""
        given = (filter,) if isinstance(filter, Tensor) else filter
        if not isinstance(given, (tuple, list)):
            fail(f"a filter has to be a tensor or a pair, not {type(filter).__name__}")
        given = [x for x in given if x is not None]
        needed = 2 if self.kind == "bidirectional" else 1
        if len(given) != needed:
            fail(f"{len(given)} filters given; a {self.kind} convolution has {needed}")
        return tuple(given)

    def _take(self, filter) -> None:
        own = [w for w in (self.weight, self.weight_reverse) if w is not None]
        for w, x in zip(own, self._pair(filter)):
            check_tensor("a filter", x, (self.filters, self.taps), x.device)
            with torch.no_grad():
                w.copy_(x)

    def filters_for(
        self, length: int, own: slice | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """k and k_reverse for signals of that length, of all filters or own ones."""
        if self.filter is None:
            return self.weight, self.weight_reverse
        if own is not None and isinstance(self.filter, HyenaFilter):
            found, own = self._pair(self.filter(length, own)), None
        else:
            found = self._pair(self.filter(length))
        k, *k_reverse = (x if own is None else x[own] for x in found)
        return k, k_reverse[0] if k_reverse else None

    def filters_by_parts(self, split: Split, length: int) -> list[Sequence]:
        """k, k_reverse and skip of this rank's channels, for signals of that length."""
        skip = split.of_all(self.skip, self.filters)
        if self.filter is None:
            found = self.weight, self.weight_reverse
            return [*(split.gathered(x, self.filters) for x in found), skip]
        found = self.filters_for(length, split.filters(self.filters))
        return [*(split.by_parts(x, self.filters) for x in found), skip]

    def forward(
        self,
        u: Tensor,
        gate_in: Tensor | None = None,
        gate_out: Tensor | None = None,
        offsets: Tensor | Sequence[int] | None = None,
    ) -> Tensor:
        """u, gates and the result are [batch, channels, length] or, with offsets,
        packed sequences [1, channels, columns], as for `long_conv`. A filter module is
        then called with the longest sequence's length."""
        return self._run(u, gate_in, gate_out, offsets, self._form)

    def _run(self, u, gate_in, gate_out, offsets, form: list[int]) -> Tensor:
        call = gate_in, gate_out, offsets, self.weight, self.weight_reverse
        split = split_of(self.group, u, call=call)
        u, gate_in, gate_out = rows_of(u, gate_in, gate_out)
        offsets = offsets_of(offsets, u, pieces=size_of(self.group))
        check_packed(offsets, self.kind, form)
        if u.shape[1] != self.channels:
            fail(f"u has {u.shape[1]} channels; {self.channels} are needed")
        if split is not None:
            length = _longest(u, offsets, split.ranks.size)
            filters = self.filters_by_parts(split, length)
            options = self.kind, self.axes, self.keep, offsets, self.accuracy
            options += (self.centre,)
            return split_long_conv(split, (u, gate_in, gate_out), filters, *options)
        if keeps(self, [u, gate_in, gate_out]):
            return self._infer(u, gate_in, gate_out, offsets, form)
        length = u.shape[2] if self.filter is None else _longest(u, offsets)
        k, k_reverse = self.filters_for(length)
        filters, gates = (k, k_reverse, self.skip), (gate_in, gate_out)
        return run_rows(u, filters, gates, self.kind, form, offsets, self.accuracy)

    def _forget(self) -> None:
        self._prepared.forget()

    def _infer(self, u, gate_in, gate_out, offsets, form: list[int]) -> Tensor:
        length = _longest(u, offsets)
        if offsets is not None and self.filter is None:  # the same for similar ones
            length = 1 << (length - 1).bit_length()
        options = self.kind, form, planned_batch(u, offsets)
        options += (0 if offsets is None else length,)
        accuracy = accuracy_of(self.accuracy)
        question = length, u.dtype, u.device, accuracy, *form, *options[-2:]

        def transform(k, k_reverse, skip):
            filters = k, k_reverse, skip
            spectrum = ops.long_conv_pack(u, *filters, *options, accuracy)
            wait(spectrum)
            return spectrum, k.shape

        frozen = self._is_frozen()
        found = self._prepared.find(question) if frozen else None
        if found is None:
            k, k_reverse = self.filters_for(length)
            own = filters_of(u, k, k_reverse, self.skip, self.kind)
            if wants_gradients(own):
                inputs = u, *own, gate_in, gate_out, self.kind, form, offsets
                return run_long_conv(*inputs, accuracy)
            found = self._prepared.get(question, own, frozen, transform)
        spectrum, (filters, taps) = found
        if u.is_cuda:  # it may be forgotten while this stream reads it
            spectrum.record_stream(torch.cuda.current_stream(u.device))
        return ops.long_conv_apply(
            u, spectrum, gate_in, gate_out, filters, taps, *options, offsets, accuracy
        )

    def stream(self, batch: int = 1):
        """A stepper that convolves a signal block by block (LongStream).
        It copies the current filters."""
        from danaus.torch._conv_stream import LongStream

        return LongStream(self, batch)

    def extra_repr(self) -> str:
        shared = "" if self.filters == self.channels else f", filters={self.filters}"
        taps = "" if self.taps == self.length else f", taps={self.taps}"
        centre = "" if self.centre is None else f", centre={self.centre}"
        rest = "" if self.accuracy is None else f", accuracy={self.accuracy!r}"
        rest = shared + taps + centre + rest
        return f"{self.channels}, {self.length}, {self.kind!r}{rest}"


def _longest(u: Tensor, offsets: Tensor | None, pieces: int = 1) -> int:
    """The length of u, one of so many pieces, or of the longest of packed sequences."""
    return pieces * u.shape[2] if offsets is None else max(1, int(offsets.diff().max()))


class ShortConv(Traceable, Splittable):
    """A depthwise convolution with short filters (`short_conv`), then an activation.

    Parameters
    ----------
    channels, taps : int
    layout : "channels_first" ([batch, channels, length]) or "channels_last"
    bias : bool
    activation : None, "relu", "gelu", "silu" or "gelu_tanh"
    centred : bool
        True: y[t] depends on as many values after t as before. False: on none after t.
    group : ProcessGroup, True or "world"
        Signals are pieces of longer ones, as for `long_conv`.

    Attributes
    ----------
    weight : Parameter [channels, taps]; weight[h, s] multiplies u[h, t - s]
    bias : Parameter [channels] or None
        Initial values are uniform in +-1 / sqrt(taps), as in torch.nn.Conv1d.
    """

    def __init__(
        self,
        channels: int,
        taps: int,
        layout: str = "channels_first",
        bias: bool = True,
        activation: str | None = None,
        *,
        centred: bool = False,
        group=None,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self._set_group(group)
        if channels < 1 or not 1 <= taps <= MOST_TAPS:
            fail(f"{channels} channels of {taps} taps; 1 to {MOST_TAPS} are possible")
        need_one_of(LAYOUTS, layout, "layout")
        self.channels, self.taps, self.layout = channels, taps, layout
        self.activation, self.centred = activation_name(activation), centred
        made = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(channels, taps, **made))
        self.bias = torch.nn.Parameter(torch.empty(channels, **made)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for x in (self.weight, self.bias):
            if x is not None:
                torch.nn.init.uniform_(x, -(self.taps**-0.5), self.taps**-0.5)

    def forward(
        self, u: Tensor, offsets: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        options = self.layout, self.centred, offsets, self.group
        return self.activate(short_conv(u, self.weight, self.bias, *options))

    def activate(self, y: Tensor) -> Tensor:
        """The activation alone."""
        return ACTIVATIONS[self.activation](y)

    def stream(self, batch: int = 1):
        """A stepper that convolves a signal block by block (ShortStream).
        It copies the current taps."""
        from danaus.torch._conv_stream import ShortStream

        return ShortStream(self, batch)

    def extra_repr(self) -> str:
        rest = "" if self.activation == "none" else f", activation={self.activation!r}"
        rest += ", centred=True" if self.centred else ""
        bias = self.bias is not None
        return f"{self.channels}, {self.taps}, {self.layout!r}, bias={bias}{rest}"
