"""Gradients of filters, of which each rank of a group makes its own rows.

    own rows of part n  --to all other ranks-->  the whole gradient, on every rank

Rows are on their way while other parts are computed. What they make is the mean over
the ranks of gradients that have a rank's own rows and zeros. The mean of these means is
the same: DDP and FSDP2 change nothing.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

# The group and the version, by the memory of a gradient.
_complete: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def is_complete(gradient: Tensor, group) -> bool:
    """Says whether a gradient is a mean over the group by `Gather`, and nothing was
    added to it or written since."""
    found = _complete.get(gradient.untyped_storage())
    return found == (group, gradient._version)


class Gather:
    """A gradient of k [filters, ...]. rows[n][r]: which filters rank r has in part n
    of its channels. All ranks start the same parts in the same order."""

    def __init__(self, ranks: Any, k: Tensor, rows: list[list[slice]]):
        self.ranks, self.shape, self.rows = ranks, k.shape, rows
        self.mean: Tensor | None = None
        self.under_way: list = []

    def start(self, dk: Tensor, n: int) -> None:
        """Sends the rows of part n. A rank without channels has dk of others' rows."""
        if self.mean is None:
            self.mean = dk.new_empty(self.shape)
        group, rank, size = self.ranks
        every = [self.mean[rows] for rows in self.rows[n]]
        own = every[rank]
        torch.div(dk[: len(own)], size, out=own)
        pairs = [
            dist.P2POp(operation, x, group=group, group_peer=other)
            for other, theirs in enumerate(every)
            for operation, x in ((dist.isend, own), (dist.irecv, theirs))
            if other != rank and len(x)
        ]
        self.under_way += dist.batch_isend_irecv(pairs)

    def finish(self) -> Tensor:
        """The mean, for which the current stream waits or, on a CPU, the caller."""
        for work in self.under_way:
            work.wait()
        mean, self.mean, self.under_way = self.mean, None, []
        _complete[mean.untyped_storage()] = self.ranks.group, mean._version
        return mean


class _Whole(torch.autograd.Function):
    """A token of k, from which the parts come. Its derivative has what those of the
    parts have started."""

    @staticmethod
    def forward(ctx, k, gather):
        ctx.gather = gather
        return k.new_empty(0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dtoken):
        return ctx.gather.finish(), None


class _Part(torch.autograd.Function):
    @staticmethod
    def forward(ctx, token, k, gather, n):
        ctx.gather, ctx.n = gather, n
        return k.view_as(k)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dk):
        ctx.gather.start(dk, ctx.n)
        return None, None, None, None


class GatheredParts:
    """Parts of k, `places` of each. Each is to be read once, where it is used: autograd
    runs what was recorded last first, and so sends its rows before other parts are
    computed."""

    def __init__(self, k: Tensor, places: list[slice], gather: Gather):
        self.k, self.places, self.gather = k.detach(), places, gather
        self.token = _Whole.apply(k, gather)

    def __getitem__(self, n: int) -> Tensor:
        return _Part.apply(self.token, self.k[self.places[n]], self.gather, n)
