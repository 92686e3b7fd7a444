"""The cross-entropy of a large vocabulary without all of its scores at once."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor

from danaus.torch.functional import autocast

IGNORED = -100  # a label that does not count
_MOST_SCORES = 1 << 27  # at once


class _CrossEntropy(torch.autograd.Function):
    """The gradients of the sum are computed with it, while its scores are there."""

    @staticmethod
    def forward(ctx, h, table, labels, counted, is_trained):
        exact = torch.float64 if h.dtype == torch.float64 else torch.float32
        counts = (labels != IGNORED)[:, None]
        count = (counts.sum() if counted is None else counted).to(exact)
        labels = labels[:, None].where(counts, 0)
        loss = h.new_zeros((), dtype=exact)
        rows = max(1, _MOST_SCORES // len(table))
        if is_trained:
            dh, dtable = torch.empty_like(h), torch.zeros_like(table, dtype=exact)
            room = h.new_empty(min(rows, len(h)), len(table))
        for some in (slice(i, i + rows) for i in range(0, len(h), rows)):
            scores = torch.log_softmax(h[some] @ table.T, 1, dtype=exact)
            chosen = scores.gather(1, labels[some])
            loss -= (chosen * counts[some]).sum()
            if is_trained:
                dscores = torch.exp(scores, out=room[: len(scores)])
                dscores.scatter_(1, labels[some], chosen.expm1_().to(h.dtype))
                dh[some] = (dscores @ table) * counts[some]
                dtable += dscores.T @ (h[some] * counts[some])
        if is_trained:
            ctx.save_for_backward(dh, dtable, count)
        return loss / count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dloss):
        dh, dtable, count = ctx.saved_tensors
        each = dloss / count
        dtable = (dtable * each).to(dh.dtype)
        return (dh * each).to(dh.dtype), dtable, None, None, None


def cross_entropy(
    h: Tensor, table: Tensor, labels: Tensor, counted: Tensor | None = None
) -> Tensor:
    """The mean cross-entropy of scores h table^T [rows, words] with labels [rows], of
    those that are not -100; in f32 at least. No more than 2^27 scores are in memory.
    counted: what the sum is divided by in place of their number.

    h [rows, width] and table [words, width] are cast under autocast.
    """
    h, table = autocast(h), autocast(table)
    is_trained = torch.is_grad_enabled() and (h.requires_grad or table.requires_grad)
    return _CrossEntropy.apply(h, table, labels, counted, is_trained)


def mean_loss(scores: Tensor, labels: Tensor, counted: Tensor | None) -> Tensor:
    """The same of scores [rows, words]."""
    if counted is None:
        return torch.nn.functional.cross_entropy(scores, labels)
    total = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
    return total / counted.to(total)
