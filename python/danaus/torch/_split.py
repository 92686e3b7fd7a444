"""Rows that are split along their length, a piece for each rank of a process group.

Ranks exchange channels for length: each gets whole rows of its share of the channels,
computes, and gives the results back. A share has a few parts. While one is convolved,
others are under way.

    piece, all channels  --all-to-all-->  whole rows, own channels
    piece of the result  <--all-to-all--  whole rows of the result

DeepSpeed Ulysses does so with the heads of attention (Jacobs et al., arXiv 2309.14509).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import itertools
import math
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from danaus.torch._errors import fail
from danaus.torch._gather import Gather, GatheredParts

PARTS = 4  # of a share, if it has as many units
_known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # calls, by group


class Ranks(NamedTuple):
    """The processes of a group, and which one this is."""

    group: Any
    rank: int
    size: int


def ranks_of(group) -> Ranks | None:
    """The ranks that sequences are split over; None for no group, or a group of one.
    True and "world" are the default group."""
    if group is None:
        return None
    if not dist.is_available() or not dist.is_initialized():
        fail("a group needs torch.distributed.init_process_group() first")
    group = dist.group.WORLD if group in (True, "world") else group
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        fail("this process is not in the group")
    if not isinstance(group, dist.ProcessGroup):
        fail(f'a group is a ProcessGroup, True or "world", not {group!r}')
    found = Ranks(group, dist.get_rank(group), dist.get_world_size(group))
    return None if found.size == 1 else found


class _Group:
    """A group that copies of a module share, and that files do not have."""

    def __init__(self, given=None):
        self.given = given

    def __deepcopy__(self, memo: dict) -> _Group:
        return self

    def __reduce__(self):
        return _Group, ()


class Splittable:
    """A module whose sequences may be split over the ranks of its `group`."""

    _group = _Group()

    @property
    def group(self):
        """What the module or `split_sequence` was given; None: whole sequences."""
        return self._group.given

    def _set_group(self, group) -> None:
        self._group = _Group(group)


def _eager(function: Callable) -> Callable:
    """The function, in which torch.compile compiles nothing."""

    @functools.wraps(function)
    def run(*inputs):
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*inputs)
        return function(*inputs)

    return run


# ---- shares of channels ----


def _shares(count: int, parts: int) -> list[int]:
    """Nearly equal whole numbers; the first ones are greater."""
    return [count // parts + (i < count % parts) for i in range(parts)]


class Split(NamedTuple):
    """Which channels each rank convolves: rank r the r-th of nearly equal ranges of
    units, in as many parts as all ranks have. Ranks beyond the last unit have none."""

    ranks: Ranks
    channels: int
    unit: int
    sizes: list[list[int]]  # channels of each part of each rank

    @property
    def parts(self) -> list[range]:
        """The channels that this rank computes. One without a share computes with the
        last unit, for zeros."""
        own = self.sizes[self.ranks.rank]
        if not own[0]:
            return [range(self.channels - self.unit, self.channels)]
        start = sum(map(sum, self.sizes[: self.ranks.rank]))
        ends = list(itertools.accumulate(own, initial=start))
        return [range(a, b) for a, b in zip(ends, ends[1:])]

    def channels_of(self, n: int) -> list[int]:
        """How many channels part n of each rank has."""
        return [sizes[n] for sizes in self.sizes]

    def own_channels(self, n: int) -> int:
        """How many channels part n of this rank has."""
        return self.sizes[self.ranks.rank][n]

    def filters(self, count: int) -> slice:
        """Which of so many filters belong to this rank's channels."""
        per, parts = self.channels // count, self.parts
        return slice(parts[0].start // per, -(-parts[-1].stop // per))

    def by_parts(self, k: Tensor | None, count: int, dim: int = 0) -> list:
        """The filters of each part, from k, which has `filters(count)` along a
        dimension. Where a part has pieces of filters' channels, filters are repeated:
        each belongs to the same number of the part's channels."""
        parts = self.parts
        if k is None:
            return [None] * len(parts)
        per, first = self.channels // count, self.filters(count).start
        steps = [math.gcd(per, part.start, part.stop) for part in parts]
        if all(step == per for step in steps):
            return list(k.split([len(part) // per for part in parts], dim))
        places = [
            [c // per - first for c in part[::step]] for part, step in zip(parts, steps)
        ]
        return [k.index_select(dim, torch.tensor(p, device=k.device)) for p in places]

    def of_all(self, k: Tensor | None, count: int, dim: int = 0) -> list:
        """The same from all filters."""
        if k is None:
            return self.by_parts(k, count)
        own = self.filters(count)
        return self.by_parts(k.narrow(dim, own.start, own.stop - own.start), count, dim)

    def gathered(self, k: Tensor | None, count: int) -> Sequence:
        """The same. Where every filter belongs to one part, the gradient of k is on all
        ranks the mean over them; each part is then to be read once."""
        per, sizes = self.channels // count, list(itertools.chain(*self.sizes))
        wanted = k is not None and k.requires_grad and torch.is_grad_enabled()
        if not wanted or any(size % per for size in sizes):
            return self.of_all(k, count)
        return self._gathered(k, per, sizes)

    @_eager
    def _gathered(self, k: Tensor, per: int, sizes: list[int]) -> GatheredParts:
        ends = [end // per for end in itertools.accumulate(sizes, initial=0)]
        every, parts = list(map(slice, ends, ends[1:])), len(self.sizes[0])
        rows = [every[n::parts] for n in range(parts)]
        places = [slice(part.start // per, part.stop // per) for part in self.parts]
        return GatheredParts(k, places, Gather(self.ranks, k, rows))


def size_of(group) -> int:
    """How many pieces a sequence has."""
    ranks = ranks_of(group)
    return 1 if ranks is None else ranks.size


def split_of(
    group, u, channels: int | None = None, unit: int = 1, call: tuple = ()
) -> Split | None:
    """How channels, by default those of u [batch, channels, length], are shared in a
    group; None on one rank. call: tensors, numbers and names that have to be the same
    on all ranks.

    Raises
    ------
    ValueError
        On all ranks, if their calls differ.
    """
    return None if group is None else _split_of(group, u, channels, unit, call)


@_eager
def _split_of(group, u, channels: int | None, unit: int, call: tuple) -> Split | None:
    ranks = ranks_of(group)
    if ranks is None:
        return None
    if not isinstance(u, Tensor) or u.dim() != 3:
        fail("a signal has to be a tensor with three dimensions")
    _compare(ranks, u, call)
    channels = u.shape[1] if channels is None else channels
    shares = _shares(channels // unit, ranks.size)
    parts = max(1, min(PARTS, shares[-1]))
    sizes = [[unit * n for n in _shares(share, parts)] for share in shares]
    return Split(ranks, channels, unit, sizes)


def _summary(x):
    """Gates and filters by their shapes, offsets by their numbers."""
    if not isinstance(x, Tensor):
        return repr(x)
    return tuple(x.shape) if x.is_floating_point() else repr(x.tolist())


def _is_learned(x) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _compare(ranks: Ranks, u: Tensor, call: tuple) -> None:
    """Raises unless all ranks make the same call with pieces of the same shape. On a
    GPU, which has to be waited for, only calls of new shapes are compared."""
    given = tuple(None if x is None else _is_learned(x) for x in call)
    key = tuple(u.shape), u.dtype, torch.is_grad_enabled(), u.requires_grad, given
    known = _known.setdefault(ranks.group, set())
    if u.is_meta or (key in known and u.device.type != "cpu"):
        return
    every_option = repr((key, [_summary(x) for x in call]))
    own = torch.tensor([*u.shape, zlib.crc32(every_option.encode())], device=u.device)
    found = [torch.empty_like(own) for _ in range(ranks.size)]
    dist.all_gather(found, own, group=ranks.group)
    every = torch.stack(found).tolist()
    if any(x[:3] != every[0][:3] for x in every):
        shapes = ", ".join(str(x[:3]) for x in every)
        fail(f"ranks have pieces of the shapes {shapes}, which have to be the same")
    if any(x != every[0] for x in every):
        fail(
            "ranks make different calls: types, options, gates, offsets and wanted "
            "gradients have to be the same"
        )
    known.add(key)


# ---- exchanges ----


class _Exchange:
    """An all-to-all of rows, `sent` and `received` for each rank; and the way back,
    which gradients take."""

    def __init__(self, ranks: Ranks, sent: list[int], received: list[int]):
        self.ranks, self.sent, self.received = ranks, sent, received
        self.under_way: tuple = ()

    def start(self, x: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Where the rows will be."""
        x = x.contiguous()
        y = x.new_empty(sum(received), *x.shape[1:])
        work = dist.all_to_all_single(
            y, x, received, sent, group=self.ranks.group, async_op=True
        )
        self.under_way = work, x, y
        return y

    def finish(self) -> Tensor:
        """The rows, for which the current stream waits or, on a CPU, the caller."""
        work, _, y = self.under_way
        self.under_way = ()
        work.wait()
        return y


class _Start(torch.autograd.Function):
    """Its derivative has what `_Finish`'s has started; the dy between is not used."""

    @staticmethod
    def forward(ctx, x, exchange):
        ctx.exchange = exchange
        return exchange.start(x, exchange.sent, exchange.received)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return ctx.exchange.finish(), None


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, exchange):
        ctx.exchange = exchange
        exchange.finish()
        return y.view_as(y)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        exchange = ctx.exchange
        exchange.start(dy, exchange.received, exchange.sent)
        return dy, None


@_eager
def on_whole_rows(
    run: Callable[[Tensor, int], Tensor], rows: Sequence[Tensor], split: Split
) -> Tensor:
    """What run() makes of whole rows, [batch, channels, length of a piece].

    Each of `rows` is shaped like the result. run(x, n) gets part n of this rank's
    channels, x [batch, rows, channels of the part, whole length], and returns [batch,
    channels of the part, whole length].

    All parts are sent at first, and fetched one by one. Autograd runs what was recorded
    last first. So it also sends all parts of dy at first.
    """
    flat = [size for sizes in split.sizes for size in sizes]
    pieces = [x.split(flat, 1) for x in rows]
    numbers = range(len(split.parts))
    coming = [_send_rows(pieces, split, n) for n in numbers]
    going = []
    for n in numbers:
        x = _fetch_rows(coming[n], len(rows), split, n)
        coming[n] = None
        going.append(_send_back(_run_part(run, x, n, split.unit), split, n))
    own = [_fetch_back(going[n], split, n) for n in numbers]
    return torch.cat([part for rank in zip(*own) for part in rank], 1)


def _run_part(run: Callable, x: Tensor, n: int, unit: int) -> Tensor:
    """run(x, n), of zeros if there are no channels: all ranks have the same graph."""
    if x.shape[2]:
        return run(x, n)
    return run(torch.nn.functional.pad(x, (0, 0, 0, unit)), n)[:, :0]


def _start(
    split: Split, x: Tensor, sent: list[int], received: list[int]
) -> tuple[Tensor, _Exchange]:
    exchange = _Exchange(split.ranks, sent, received)
    return _Start.apply(x, exchange), exchange


def _send_rows(pieces: list, split: Split, n: int) -> tuple[Tensor, _Exchange]:
    """[rank, rows, channels of its part n, batch, length of a piece]."""
    ranks, parts = split.ranks.size, len(split.parts)
    own = [x[rank * parts + n].transpose(0, 1) for rank in range(ranks) for x in pieces]
    sent = [len(pieces) * channels for channels in split.channels_of(n)]
    received = [len(pieces) * split.own_channels(n)] * ranks
    return _start(split, torch.cat(own), sent, received)


def _fetch_rows(coming: tuple, rows: int, split: Split, n: int) -> Tensor:
    """[batch, rows, channels, length]."""
    sizes = split.ranks.size, rows, split.own_channels(n)
    x = _Finish.apply(*coming).unflatten(0, sizes)
    return x.permute(3, 1, 2, 0, 4).flatten(3)


def _send_back(y: Tensor, split: Split, n: int) -> tuple[Tensor, _Exchange]:
    """[rank, channels, batch, length of a piece]."""
    ranks = split.ranks.size
    y = y.unflatten(2, (ranks, y.shape[2] // ranks)).permute(2, 1, 0, 3).flatten(0, 1)
    return _start(split, y, [split.own_channels(n)] * ranks, split.channels_of(n))


def _fetch_back(going: tuple, split: Split, n: int) -> Sequence[Tensor]:
    """[batch, channels, length of a piece] of each rank's part n."""
    return _Finish.apply(*going).transpose(0, 1).split(split.channels_of(n), 1)


# ---- sums over ranks ----


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ranks):
        ctx.ranks = ranks
        y = x.clone()
        dist.all_reduce(y, group=ranks.group)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return _Sum.forward(ctx, dy.contiguous(), ctx.ranks), None


def sum_over(ranks: Ranks, x: Tensor) -> Tensor:
    """The sum of x of all ranks, on each; its gradient is the sum of theirs."""
    return _Sum.apply(x.contiguous(), ranks)


def next_of(ranks: Ranks, x: Tensor, last: float) -> Tensor:
    """x of the next rank; the last one gets this number."""
    every = [torch.empty_like(x) for _ in range(ranks.size)]
    dist.all_gather(every, x.contiguous(), group=ranks.group)
    every.append(torch.full_like(x, last))
    return every[ranks.rank + 1]
