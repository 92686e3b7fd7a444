"""The sequence mixer of Monarch Mixer BERT: gated convolutions that look both ways.

Source: Fu et al., Monarch Mixer, NeurIPS 2023 (arXiv 2310.12109), as the authors' code
has it (MonarchMixerSequenceMixing of HazyResearch/m2).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.torch._conv_functions import fail, long_conv, offsets_of, short_conv
from danaus.torch._errors import refuse_proxy
from danaus.torch._packed import Traceable, is_hooked
from danaus.torch._split import (
    Split,
    Splittable,
    on_whole_rows,
    size_of,
    split_of,
)
from danaus.torch.conv import _longest
from danaus.torch.functional import autocast
from danaus.torch.implicit import HyenaFilter
from danaus.torch.projections import from_rows, is_usual, rows_by, to_rows
from danaus.torch.short_filter import ShortFilter

__all__ = ["M2Mixer"]

_INPUT_EPSILON = 1e-5  # of the normalisation before mixing


class M2Mixer(Traceable, Splittable):
    """Mixes a sequence in place of attention, and looks both ways:

        x1, x2, v = short_filter(in_linear(u)),   u = x, or layernorm(x)
        y = out_linear(x2 * conv(x1 * v) + conv2(u)),

    where conv and conv2 are bidirectional long convolutions with implicit filters. x
    and y are [batch, length, width] or, with offsets, packed sequences [1, tokens,
    width]. There is no mask: padding counts.

    Parameters
    ----------
    width, length : int
        Channels of x and y; length of the longest sequence.
    bidirectional : bool
        False: both convolutions are causal.
    residual : bool
        False: there is no conv2.
    normed : bool
        True: u is normalised ("hyena_training_additions" of the authors' code).
    filter : dict
        Options of both `HyenaFilter`.
    accuracy, group : as for `LongConv`.

    Attributes
    ----------
    in_linear, out_linear : Linear; short_filter : ShortFilter
    filter_fn, filter_fn2 : HyenaFilter, whose bias is the convolution's skip
    layernorm : LayerNorm or None
    """

    def __init__(
        self,
        width: int,
        length: int,
        *,
        bidirectional: bool = True,
        residual: bool = True,
        normed: bool = False,
        filter: dict | None = None,
        accuracy: str | None = None,
        group=None,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self._set_group(group)
        made = {"device": device, "dtype": dtype}
        options = {"features": 5, "order": 128, "learned": True} | (filter or {})
        options |= {"reverse": bidirectional} | made
        self.width, self.accuracy = width, accuracy
        self.kind = "bidirectional" if bidirectional else "causal"
        self.in_linear = torch.nn.Linear(width, 3 * width, **made)
        self.out_linear = torch.nn.Linear(width, width, **made)
        self.short_filter = ShortFilter(3 * width, **made)
        self.filter_fn = HyenaFilter(width, length, **options)
        self.filter_fn2 = HyenaFilter(width, length, **options) if residual else None
        self.layernorm = None
        if normed:
            self.layernorm = torch.nn.LayerNorm(width, eps=_INPUT_EPSILON, **made)

    def forward(
        self, x: Tensor, offsets: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        refuse_proxy(x)
        if x.dim() != 3 or x.shape[2] != self.width:
            fail(f"x has the shape {list(x.shape)}; [any, any, {self.width}] is needed")
        split = split_of(self.group, x, self.width, call=(offsets,))
        offsets = offsets_of(offsets, x, 1, size_of(self.group))
        u = autocast(x if self.layernorm is None else self.layernorm(x))
        if split is not None:
            return from_rows(self.out_linear, self._mix_split(split, u, offsets))
        length = _longest(u.mT, offsets)
        x1, x2, v = self._parts(u, offsets)
        y = self._convolve(self._filter(self.filter_fn, length), v, x1, x2, offsets)
        if self.filter_fn2 is not None:
            filters = self._filter(self.filter_fn2, length)
            y = y + self._convolve(filters, u.mT, None, None, offsets)
        return from_rows(self.out_linear, y)

    def _mix_split(self, split: Split, u: Tensor, offsets) -> Tensor:
        """All but the projections, of a piece of u."""
        if is_hooked(self.short_filter):
            fail("a mixer with a group cannot have hooks on its short filter alone")
        short, own = self.short_filter, split.filters(self.width)
        few = [x.unflatten(0, (3, -1)) for x in (short.taps(), short.bias)]
        taps, bias = (split.of_all(x, self.width, 1) for x in few)
        length = _longest(u.mT, offsets, split.ranks.size)
        long = [
            [split.by_parts(x, self.width) for x in self._filter(fn, length, own)]
            for fn in (self.filter_fn, self.filter_fn2)
            if fn is not None
        ]

        def run(x: Tensor, n: int) -> Tensor:
            rows = x[:, :3].flatten(1, 2), taps[n].flatten(0, 1), bias[n].flatten()
            x1, x2, v = short_conv(*rows, offsets=offsets).chunk(3, 1)
            filters, *others = ([k[n] for k in each] for each in long)
            y = self._convolve(filters, v, x1, x2, offsets)
            for filters in others:
                y = y + self._convolve(filters, x[:, 3], None, None, offsets)
            return y

        rows = to_rows(self.in_linear, u).chunk(3, 1)
        more = [] if self.filter_fn2 is None else [u.mT]
        return on_whole_rows(run, [*rows, *more], split)

    def _parts(self, u: Tensor, offsets) -> list[Tensor]:
        """x1, x2 and v [batch, width, length]. A usual layer computes them one by one,
        so that each is contiguous, and its gradients, too."""
        layer, short = self.in_linear, self.short_filter
        if not is_usual(layer) or is_hooked(short):
            return list(short(to_rows(layer, u), offsets).chunk(3, 1))
        parts = zip(layer.weight.chunk(3), layer.bias.chunk(3))
        taps = zip(short.taps().chunk(3), short.bias.chunk(3))
        return [
            short_conv(rows_by(weight, bias, u), *few, offsets=offsets)
            for (weight, bias), few in zip(parts, taps)
        ]

    def _filter(
        self, filter: HyenaFilter, length: int, own: slice | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """k, k_reverse and skip of own channels, or all."""
        made = filter(length) if own is None else filter(length, own)
        k, k_reverse = made if isinstance(made, tuple) else (made, None)
        return k, k_reverse, filter.bias if own is None else filter.bias[own]

    def _convolve(self, filters, u, gate_in, gate_out, offsets) -> Tensor:
        options = {"kind": self.kind, "offsets": offsets, "accuracy": self.accuracy}
        return long_conv(u, *filters, gate_in, gate_out, **options)
