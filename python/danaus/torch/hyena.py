"""The layer that mixes a sequence by the Hyena operator.

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
    planned_batch,
)
from danaus.torch._conv_ops import has_kernels
from danaus.torch._hyena_functions import MOST_ORDER, hyena, operands_of
from danaus.torch._ops import ops, sum_dtype
from danaus.torch.conv import (
    LongConv,
    ShortConv,
    _are_plain,
    _keeps_nothing,
    _Prepared,
)

__all__ = ["HyenaOperator"]


def _rows(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """x [batch, cols, length] times weight [rows, cols], plus bias, row-major, without
    copies of x or the result."""
    matrix = weight.expand(x.shape[0], -1, -1)
    if bias is None:
        return torch.bmm(matrix, x)
    return torch.baddbmm(bias[:, None], matrix, x)


class HyenaOperator(torch.nn.Module):
    """The Hyena operator as a layer that mixes a sequence as attention does:

        u = in_proj(x),   y = out_proj(hyena(u)),

    with `hyena` of u's rows: short convolutions, gates and long convolutions in one
    call. x and y are [batch, length, width], and causal: y[t] depends on x up to t.
    Order 2 is what `GatedLongConv` is, which also takes packed sequences and streams.

    Source: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv 2302.10866), section 3 and
    algorithm 3 with N = order; rows of in_proj are x_0, ..., v in this order, as in the
    authors' code (HyenaOperator of HazyResearch/safari).

    Parameters
    ----------
    width, length : int
        length: of the long filters; sequences may have any.
    order : int
        2 to 8: as many gates.
    taps : int
        Of the short convolution.
    bias : bool
        Of both projections.
    filters, skip, accuracy
        Of the long convolutions, as for LongConv.
    filter : as for LongConv, or one for each of the order - 1 convolutions, in a list
        or a tuple.

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
        device=None,
        dtype=None,
    ):
        super().__init__()
        if not 2 <= order <= MOST_ORDER:
            fail(f"an order of {order}; 2 to {MOST_ORDER} are possible")
        made = {"device": device, "dtype": dtype}
        given = filter if isinstance(filter, (list, tuple)) else [filter] * (order - 1)
        if len(given) != order - 1:
            fail(f"{len(given)} filters for {order - 1} convolutions")
        self.width, self.order, self.accuracy = width, order, accuracy
        rows = (order + 1) * width
        self.in_proj = torch.nn.Linear(width, rows, bias=bias, **made)
        self.short = ShortConv(rows, taps, **made)
        own = {"filters": filters, "skip": skip, "accuracy": accuracy}
        self.long = torch.nn.ModuleList(
            LongConv(width, length, filter=f, **own, **made) for f in given
        )
        self.out_proj = torch.nn.Linear(width, width, bias=bias, **made)
        self._prepared = _Prepared()
        self.register_load_state_dict_post_hook(_forget)

    def filters_for(self, length: int) -> tuple[Tensor, Tensor | None]:
        """k [order - 1, filters, taps] and skip [order - 1, filters] for sequences of
        that length."""
        k = torch.stack([conv.filters_for(length)[0] for conv in self.long])
        skips = [conv.skip for conv in self.long]
        return k, None if skips[0] is None else torch.stack(skips)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 3 or x.shape[2] != self.width:
            fail(f"x has the shape {list(x.shape)}; [any, any, {self.width}] is needed")
        u = _rows(self.in_proj.weight, self.in_proj.bias, x.mT)
        y = self.mix(u).mT
        weight = self.out_proj.weight.mT.expand(x.shape[0], -1, -1)
        if self.out_proj.bias is None:
            return torch.bmm(y, weight)
        return torch.baddbmm(self.out_proj.bias, y, weight)

    def mix(self, u: Tensor) -> Tensor:
        """`hyena` of u [batch, (order + 1) width, length] with the filters of now."""
        check_signal(u)
        sources = self._sources(u)
        plain = sources and has_kernels(u.device) and _are_plain([u, *sources])
        if plain and not torch.compiler.is_compiling() and not _keeps_nothing(u):
            return self._infer(sources, u)
        k, skip = self.filters_for(u.shape[2])
        return hyena(u, self.short.weight, self.short.bias, k, skip, self.accuracy)

    def _sources(self, u: Tensor) -> list[Tensor]:
        """What the transformed filters are made of; empty where they cannot be kept."""
        if self.training and any(conv.filter is not None for conv in self.long):
            return []
        made_of = [*self.long.parameters(), *self.long.buffers()]
        if torch.is_grad_enabled() and any(
            x.requires_grad for x in (u, *made_of, *self.short.parameters())
        ):
            self._prepared.forget()  # what comes next may leave no trace of changes
            return []
        return made_of

    def _infer(self, sources: list[Tensor], u: Tensor) -> Tensor:
        accuracy = accuracy_of(self.accuracy)
        short = self.short.weight, self.short.bias
        length, batch = u.shape[2], planned_batch(u[:, : self.width])

        def transform():
            operands = operands_of(u, *short, *self.filters_for(length))
            spectra = ops.hyena_pack(*operands, accuracy)
            if u.is_cuda:  # any stream may read it then
                torch.cuda.current_stream(u.device).synchronize()
            return spectra, operands[3].shape

        spectra, (convolutions, filters, taps) = self._prepared.get(
            sources, (length, u.dtype, u.device, accuracy, batch), transform
        )
        if u.is_cuda:  # it may be forgotten while this stream reads it
            spectra.record_stream(torch.cuda.current_stream(u.device))
        sums = sum_dtype(u.dtype)
        few = [None if x is None else x.to(sums).contiguous() for x in short]
        sizes = convolutions + 1, filters, taps
        return ops.hyena_apply(u.contiguous(), *few, spectra, *sizes, accuracy)

    def extra_repr(self) -> str:
        rest = "" if self.accuracy is None else f", accuracy={self.accuracy!r}"
        return f"{self.width}, {self.long[0].length}, order={self.order}{rest}"


def _forget(module: HyenaOperator, keys) -> None:
    module._prepared.forget()  # some ways to shard parameters move no version
