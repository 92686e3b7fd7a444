"""Sequences of unequal length: padded rows and a mask, or packed without padding."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from danaus.torch._conv_functions import fail, offsets_of
from danaus.torch._split import Ranks, Splittable, next_of, ranks_of, sum_over
from danaus.torch.models.base import Pretrained
from danaus.torch.models.loss import IGNORED


class Packing(NamedTuple):
    """How rows of a batch [batch, length] lie in packed ones [1, tokens].

    offsets is None where every row is a whole one, and nothing is packed. With ranks,
    rows are pieces, and offsets those of the whole sequences.
    """

    offsets: Tensor | None
    mask: Tensor | None
    longest: int
    ranks: Ranks | None = None

    def pack(self, x: Tensor) -> Tensor:
        """[batch, length, ...] as [1, tokens, ...]."""
        return x if self.mask is None else x[self.mask][None]

    def unpack(self, x: Tensor) -> Tensor:
        """The other way round, with zeros where the mask has them."""
        if self.mask is None:
            return x
        y = x.new_zeros(*self.mask.shape, *x.shape[2:])
        y[self.mask] = x[0]
        return y

    def _columns(self, x: Tensor) -> Tensor:
        """Where columns of x [batch, columns, ...] lie in whole rows."""
        at = torch.arange(x.shape[1], device=x.device)
        return at if self.ranks is None else at + self.ranks.rank * x.shape[1]

    def places(self, ids: Tensor) -> Tensor:
        """The place of each token of packed ids [batch, tokens] in its sequence."""
        at = self._columns(ids)
        if self.offsets is None:
            return at.expand(ids.shape)
        starts = self.offsets[:-1].repeat_interleave(self.offsets.diff())
        return (at - starts.to(ids.device)[at])[None]

    def firsts(self, x: Tensor) -> Tensor:
        """The first row of each sequence, [sequences, ...]; on all ranks."""
        if self.ranks is not None:
            return self._firsts_of_ranks(x, self.ranks)
        if self.offsets is None:
            return x[:, 0]
        return x[0, self.offsets[:-1].to(x.device)]

    def _firsts_of_ranks(self, x: Tensor, ranks: Ranks) -> Tensor:
        firsts = torch.zeros(1) if self.offsets is None else self.offsets[:-1]
        columns = x.shape[1]
        at = firsts.to(x.device, torch.int64) - ranks.rank * columns
        is_own = (at >= 0) & (at < columns)
        rows = x[:, at.clamp(0, columns - 1)].where(is_own[:, None], 0)
        return sum_over(ranks, rows.flatten(0, 1))

    def means(self, x: Tensor) -> Tensor:
        """The mean row of each sequence, [sequences, ...]; on all ranks."""
        if self.offsets is None:
            mean = x.mean(1)
            return mean if self.ranks is None else self._total(mean) / self.ranks.size
        lengths = self.offsets.diff().to(x.device)
        own = torch.arange(len(lengths), device=x.device).repeat_interleave(lengths)
        sums = x.new_zeros(len(lengths), x.shape[2])
        sums = sums.index_add(0, own[self._columns(x)], x[0])
        return self._total(sums) / lengths[:, None]

    def _total(self, x: Tensor) -> Tensor:
        return x if self.ranks is None else sum_over(self.ranks, x)

    def shifted(self, labels: Tensor) -> Tensor:
        """For each token the label of the next one in its sequence, or -100."""
        after = labels.new_full(labels[:, :1].shape, IGNORED)
        if self.ranks is not None:
            after = next_of(self.ranks, labels[:, :1], IGNORED)
        y = torch.cat([labels[:, 1:], after], 1)
        if self.offsets is not None:
            last = self.offsets[1:][self.offsets.diff() > 0] - 1
            ends = torch.isin(self._columns(y), last.to(y.device))
            y = y.masked_fill(ends, IGNORED)
        return y

    def counted(self, labels: Tensor) -> Tensor | None:
        """What a rank divides its sum over labels by, so that the mean of all ranks is
        the mean over all labels. None: by their number."""
        if self.ranks is None:
            return None
        own = (labels != IGNORED).sum()
        return sum_over(self.ranks, own).double() / self.ranks.size


def _check_ids(ids: Tensor, mask: Tensor | None, table: Tensor, words: int) -> None:
    """Raises unless the inputs are ids of words, on a device that has numbers if the
    table of words has. Hooks may offload the table, but not the inputs."""
    if not isinstance(ids, Tensor):
        fail(f"input_ids have to be a tensor, not {type(ids).__name__}")
    if ids.dim() != 2 or ids.dtype not in (torch.int32, torch.int64):
        fail(
            f"input_ids have the shape {list(ids.shape)} and the type {ids.dtype}; "
            "they need two dimensions of int32 or int64"
        )
    if ids.is_meta and not table.is_meta:
        fail(f"input_ids lie on meta, the model on {table.device}")
    if ids.device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = ids[(ids < 0) | (ids >= words)]
        if len(wrong):
            fail(f"an id is {int(wrong[0])}; the words are 0 to {words - 1}")
    if mask is None:
        return
    if not isinstance(mask, Tensor):
        fail(f"attention_mask has to be a tensor, not {type(mask).__name__}")
    if mask.shape != ids.shape:
        fail(f"attention_mask is {list(mask.shape)}, input_ids {list(ids.shape)}")
    if mask.is_meta:
        fail(f"attention_mask lies on meta, input_ids on {ids.device}")


def packing_of(
    ids: Tensor,
    mask: Tensor | None,
    offsets,
    most: int,
    words: int,
    table: Tensor,
    group=None,
) -> Packing:
    """The packing of a model's inputs: ids [batch, length] and a mask of that shape, or
    packed ids [1, tokens] and offsets; sequences of at most `most` tokens. Ids in host
    memory are checked; ids on a GPU are not, which would have to wait for them. With a
    group, ids are a piece of each sequence, and there is no mask."""
    _check_ids(ids, mask, table, words)
    ranks = ranks_of(group)
    if mask is not None and ranks is not None:
        fail("a group takes no attention_mask: pack sequences, with offsets")
    if mask is not None and offsets is not None:
        fail("attention_mask and offsets exclude each other")
    pieces = 1 if ranks is None else ranks.size
    longest = pieces * ids.shape[1]
    if mask is not None:
        mask = mask.bool()
        if mask.all():
            mask = None
        else:
            lengths = mask.sum(1)
            offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).cpu()
    elif offsets is not None:
        offsets = offsets_of(offsets, ids[..., None], 1, pieces)
    if offsets is not None and not torch.compiler.is_compiling():
        longest = int(offsets.diff().max())
    if longest < 1 or longest > most:
        fail(f"a sequence of {longest} tokens; the model takes 1 to {most}")
    return Packing(offsets, mask, longest, ranks)


class Sequences(Pretrained, Splittable):
    """A model of sequences of ids, with a table of words."""

    main_input_name = "input_ids"
    no_plain_form = "it packs sequences; torch.onnx.export takes the model itself"
    supports_gradient_checkpointing = True

    def embedder(self) -> nn.Module:
        """The module that has the table, word_embeddings."""
        raise NotImplementedError

    def get_input_embeddings(self) -> nn.Module:
        return self.embedder().word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embedder().word_embeddings = value
