"""Layers that mix a sequence by the Hyena operator.

Source: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv 2302.10866).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.torch._conv_functions import (
    accuracy_of,
    check_signal,
    fail,
    offsets_of,
    planned_batch,
    short_conv,
)
from danaus.torch._errors import refuse_proxy
from danaus.torch._hyena_functions import (
    MOST_ORDER,
    hyena,
    mix_heads,
    operands_of,
    run_hyena,
    split_hyena,
    stacked,
)
from danaus.torch._ops import ops, sum_dtype
from danaus.torch._packed import Freezable, Prepared, is_hooked, wait
from danaus.torch._split import Split, Splittable, size_of, split_of
from danaus.torch.conv import (
    LongConv,
    ShortConv,
    _longest,
    keeps,
    wants_gradients,
)
from danaus.torch.projections import from_rows, is_usual, to_rows

__all__ = ["GatedLongConv", "HyenaOperator"]


def _check_heads(width: int, head_dim: int, filters: int | None) -> int:
    """The number of filters: one a head by default, or a divisor of the heads."""
    if head_dim < 1 or width % head_dim:
        fail(f"heads of {head_dim} channels do not divide a width of {width}")
    heads = width // head_dim
    if filters is not None and (filters < 1 or heads % filters):
        fail(f"{filters} filters do not divide {heads} heads of {head_dim} channels")
    return heads if filters is None else filters


class _Mixer(Freezable, Splittable):
    """What both layers are: projections, a short convolution of rows, and long ones,
    which convolutions() lists."""

    def __init__(
        self,
        width: int,
        short: ShortConv,
        long: torch.nn.Module,
        bias: bool,
        head_dim: int,
        group,
        made: dict,
    ):
        super().__init__()
        self._set_group(group)
        self.width, self.head_dim = width, head_dim
        self.in_proj = torch.nn.Linear(width, short.channels, bias=bias, **made)
        self.short, self.long = short, long
        self.out_proj = torch.nn.Linear(width, width, bias=bias, **made)
        self._prepared = Prepared()

    def convolutions(self) -> Sequence[LongConv]:
        """The long convolutions, in the order in which they are applied."""
        raise NotImplementedError

    def filters_for(self, length: int) -> tuple[Tensor, Tensor | None]:
        """k [order - 1, filters, taps] and skip [order - 1, filters] for sequences of
        that length."""
        convs = self.convolutions()
        k = [conv.filters_for(length)[0] for conv in convs]
        return stacked(k), stacked([conv.skip for conv in convs])

    def forward(
        self, x: Tensor, offsets: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """x and the result are [batch, length, width] or, with offsets, packed
        sequences [1, columns, width], as for `long_conv`."""
        if not isinstance(x, Tensor):
            refuse_proxy(x)
            fail(f"x has to be a tensor, not {type(x).__name__}")
        if x.dim() != 3 or x.shape[2] != self.width:
            fail(f"x has the shape {list(x.shape)}; [any, any, {self.width}] is needed")
        if is_usual(self.in_proj) and x.device != self.in_proj.weight.device:
            fail(f"x lies on {x.device}, the module on {self.in_proj.weight.device}")
        return from_rows(self.out_proj, self.mix(to_rows(self.in_proj, x), offsets))

    def mix(self, u: Tensor, offsets: Tensor | Sequence[int] | None = None) -> Tensor:
        """`hyena` of u [batch, (order + 1) width, length] with the current filters."""
        check_signal(u)
        convs = self.convolutions()
        hooked = any(map(is_hooked, (self.short, *convs)))
        call = offsets, *(conv.weight for conv in convs)
        split = None
        if not hooked:
            split = split_of(self.group, u, self.width, self.head_dim, call)
        offsets = offsets_of(offsets, u, pieces=size_of(self.group))
        if split is not None:
            return self._mix_split(split, u, offsets)
        if hooked or self.head_dim > 1:
            return self._mix_by_calls(u, offsets)
        if keeps(self, [u]):
            return self._infer(u, offsets)
        length = _longest(u, offsets) if self._has_modules() else u.shape[2]
        k, skip = self.filters_for(length)
        short = self.short.weight, self.short.bias
        return hyena(u, *short, k, skip, convs[0].accuracy, offsets)

    def _mix_split(self, split: Split, u: Tensor, offsets: Tensor | None) -> Tensor:
        """The same of a piece of u."""
        convs = self.convolutions()
        length = _longest(u, offsets, split.ranks.size)
        k, _, skip = map(list, zip(*(c.filters_by_parts(split, length) for c in convs)))
        operands = u, self.short.weight, self.short.bias, k, skip
        options = {"accuracy": convs[0].accuracy, "offsets": offsets}
        return split_hyena(split, *operands, self.head_dim, **options)

    def _shorten(self, u: Tensor, offsets: Tensor | None) -> Tensor:
        """The short convolution of rows u."""
        if not is_hooked(self.short):
            options = {"offsets": offsets, "group": self.group}
            return short_conv(u, self.short.weight, self.short.bias, **options)
        last = self.short.layout == "channels_last"
        return self.short(u.mT, offsets).mT if last else self.short(u, offsets)

    def _mix_by_calls(self, u: Tensor, offsets: Tensor | None) -> Tensor:
        """The same by calls of the convolutions, which have heads or hooks."""
        z = self._shorten(u, offsets)
        if self.head_dim > 1:
            (conv,) = self.convolutions()
            return mix_heads(z, self.head_dim, lambda p: conv(p, offsets=offsets))
        *gates, v = z.unflatten(1, (-1, self.width)).unbind(1)
        for conv in self.convolutions():
            gate_out = gates[0] if len(gates) == 2 else None
            v = conv(v, gates.pop(), gate_out, offsets)
        return v

    def freeze(self):
        """Freezes the long convolutions, too."""
        super().freeze()
        for conv in self.convolutions():
            conv.freeze()
        return self

    def _forget(self) -> None:
        self._prepared.forget()

    def _has_modules(self) -> bool:
        """True if modules compute filters for a length."""
        return any(conv.filter is not None for conv in self.convolutions())

    def _infer(self, u: Tensor, offsets: Tensor | None) -> Tensor:
        accuracy = accuracy_of(self.convolutions()[0].accuracy)
        short = self.short.weight, self.short.bias
        length = _longest(u, offsets)
        if offsets is not None and not self._has_modules():  # the same for similar ones
            length = 1 << (length - 1).bit_length()
        longest = 0 if offsets is None else length
        batch = planned_batch(u[:, : self.width], offsets)
        question = length, u.dtype, u.device, accuracy, batch, longest
        sums = sum_dtype(u.dtype)
        few = [None if x is None else x.to(sums).contiguous() for x in short]

        def transform(k, skip):
            spectra = ops.hyena_pack(u.contiguous(), *few, k, skip, longest, accuracy)
            wait(spectra)
            return spectra, k.shape

        frozen = self._is_frozen()
        found = self._prepared.find(question) if frozen else None
        if found is None:
            operands = operands_of(u, *short, *self.filters_for(length))
            own = operands[3:]
            if wants_gradients(own):
                return run_hyena(*operands, offsets, accuracy)
            found = self._prepared.get(question, own, frozen, transform)
        spectra, (convolutions, filters, taps) = found
        if u.is_cuda:  # it may be forgotten while this stream reads it
            spectra.record_stream(torch.cuda.current_stream(u.device))
        sizes = convolutions + 1, filters, taps, longest
        return ops.hyena_apply(u.contiguous(), *few, spectra, *sizes, offsets, accuracy)


class GatedLongConv(_Mixer):
    """The Hyena operator of order 2, a layer that mixes a sequence as attention does:

        [q k v] = short(in_proj(x)),
        y = out_proj(q * (h (*) p + skip * p)),    p = k * v,

    with a causal short convolution of all three projections and a causal long one with
    the filters h; all but the projections are one call, `hyena`. x and y are [batch,
    length, width], and causal: y[t] depends on x up to t.

    Source: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv 2302.10866), section 3 and
    algorithm 3 with N = 2; its x^2, x^1 and v are q, k and v here, and rows 0 to
    width - 1 of in_proj make q, the next k, the last v, as in the authors' code
    (HyenaOperator of HazyResearch/safari, order=2) and in H3.

    Parameters
    ----------
    width, length : int
        Channels of x and y; length of the long filters (see LongConv).
    taps : int
        Length of the short filters.
    bias : bool
        True for a bias in both projections.
    filters, skip, filter, accuracy
        Settings of the long convolution, as for LongConv. filters: one for each head,
        or a divisor of the number of heads.
    head_dim : int
        Channels of a head, a divisor of width; above 1 there are heads:

            y = out_proj(r),
            r[n d + j] = sum_i q[n d + i] * (h[n] (*) p + skip[n] * p),
            p = k[n d + i] * v[n d + j],   d = head_dim,

        with one filter and skip for head n. They take d times the time and memory.
        Source: Fu et al., Hungry Hungry Hippos, ICLR 2023 (arXiv 2212.14052), whose
        code has the outputs in another order; used by M2-GPT (arXiv 2310.12109).
    group : ProcessGroup, True or "world"
        x is a piece of longer sequences, as for `long_conv`.

    Attributes
    ----------
    in_proj, out_proj : Linear; short : ShortConv; long : LongConv
    """

    def __init__(
        self,
        width: int,
        length: int,
        *,
        taps: int = 3,
        bias: bool = True,
        filters: int | None = None,
        skip: bool = True,
        filter=None,
        accuracy: str | None = None,
        head_dim: int = 1,
        group=None,
        device=None,
        dtype=None,
    ):
        made = {"device": device, "dtype": dtype}
        filters = _check_heads(width, head_dim, filters)
        own = {"filters": filters, "skip": skip, "filter": filter, "group": group}
        super().__init__(
            width,
            ShortConv(3 * width, taps, "channels_last", group=group, **made),
            LongConv(width * head_dim, length, accuracy=accuracy, **own, **made),
            bias,
            head_dim,
            group,
            made,
        )

    def convolutions(self) -> Sequence[LongConv]:
        return (self.long,)

    def stream(self, batch: int = 1):
        """A stepper for sequences in blocks: see GatedStream."""
        from danaus.torch._conv_stream import GatedStream

        return GatedStream(self, batch)


class HyenaOperator(_Mixer):
    """The Hyena operator as a layer that mixes a sequence as attention does:

        u = in_proj(x),   y = out_proj(hyena(u)),

    where `hyena` runs short convolutions, gates and long convolutions on u's rows in
    one call. x and y are [batch, length, width], and causal: y[t] depends on x up to t.
    Order 2 equals `GatedLongConv`, which also has streams.

    Source: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv 2302.10866), section 3 and
    algorithm 3 with N = order; rows of in_proj are x_0, ..., v in this order, as in the
    authors' code (HyenaOperator of HazyResearch/safari).

    Parameters
    ----------
    width, length : int
        Channels of x and y; length of the long filters. Sequences may have any length.
    order : int
        2 to 8: as many gates.
    taps : int
        Length of the short filters.
    bias : bool
        True for a bias in both projections.
    filters, skip, accuracy
        Settings of the long convolutions, as for LongConv.
    filter : as for LongConv, or a list or tuple with one for each of the order - 1
        convolutions.
    head_dim : int
        Channels of a head, as for `GatedLongConv`; above 1 only at order 2.
    group : as for `GatedLongConv`

    Attributes
    ----------
    in_proj, out_proj : Linear; short : ShortConv; long : ModuleList of LongConv
    """

    def __init__(
        self,
        width: int,
        length: int,
        order: int = 2,
        *,
        taps: int = 3,
        bias: bool = True,
        filters: int | None = None,
        skip: bool = True,
        filter: object | Sequence = None,
        accuracy: str | None = None,
        head_dim: int = 1,
        group=None,
        device=None,
        dtype=None,
    ):
        if not 2 <= order <= MOST_ORDER:
            fail(f"an order of {order}; 2 to {MOST_ORDER} are possible")
        if head_dim > 1 and order != 2:
            fail(f"heads of {head_dim} channels need the order 2, not {order}")
        filters = _check_heads(width, head_dim, filters)
        made = {"device": device, "dtype": dtype}
        given = filter if isinstance(filter, (list, tuple)) else [filter] * (order - 1)
        if len(given) != order - 1:
            fail(f"{len(given)} filters for {order - 1} convolutions")
        own = {"filters": filters, "skip": skip, "accuracy": accuracy, "group": group}
        sizes = width * head_dim, length
        convs = [LongConv(*sizes, filter=f, **own, **made) for f in given]
        short = ShortConv((order + 1) * width, taps, group=group, **made)
        long = torch.nn.ModuleList(convs)
        super().__init__(width, short, long, bias, head_dim, group, made)
        self.order, self.accuracy = order, accuracy

    def convolutions(self) -> Sequence[LongConv]:
        return self.long

    def extra_repr(self) -> str:
        rest = "" if self.head_dim == 1 else f", head_dim={self.head_dim}"
        rest += "" if self.accuracy is None else f", accuracy={self.accuracy!r}"
        return f"{self.width}, {self.long[0].length}, order={self.order}{rest}"
