"""Cayley transforms of blocks, with gradients: orthogonal matrices of any matrices."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from danaus.torch._ops import check_one_device, in_transform, is_tracing, ops

MOST = 32  # rows of a block on a GPU: DANAUS_CAYLEY_MOST
_CAYLEY, _BACKWARD = ops._cayley.default, ops._cayley_backward.default


@torch.library.register_fake("danaus::_cayley")
def _(r, transposed):
    return r.new_empty(r.shape)


@torch.library.register_fake("danaus::_cayley_backward")
def _(q, dq, transposed):
    check_one_device(q, dq)
    return q.new_empty(q.shape)


def _gradient(twice: Tensor, dq: Tensor) -> Tensor:
    """(M^T - M) / 4 for M = twice^T dq twice^T, where `twice` is q + I."""
    with torch.autocast(dq.device.type, enabled=False):
        m = twice.mT @ dq @ twice.mT
    return (m.mT - m) / 4


class _Cayley(torch.autograd.Function):
    """The library's transform, in one launch."""

    @staticmethod
    def forward(ctx: Any, r: Tensor, transposed: bool, shape: Sequence[int]) -> Tensor:
        q = _CAYLEY(r, transposed).view(shape)
        ctx.transposed, ctx.shape = transposed, r.shape
        ctx.save_for_backward(q)
        return q

    @staticmethod
    def backward(ctx: Any, dq: Tensor) -> tuple[Tensor, None, None]:
        q = ctx.saved_tensors[0].view(ctx.shape)
        dq = dq.reshape(ctx.shape)
        if not torch.is_grad_enabled():
            return _BACKWARD(q, dq, ctx.transposed), None, None
        eye = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
        dr = _gradient(q + eye, dq)
        return -dr if ctx.transposed else dr, None, None


class _Inverse(torch.autograd.Function):
    """2 (I + K)^-1 of the skew part K of each block: PyTorch's own has twice the calls.

    I + K has an inverse whatever K is, so nothing is checked, for which a GPU would
    have to be waited for.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(r: Tensor, eye: Tensor) -> Tensor:
        sum_ = torch.add(eye, r - r.mT, alpha=0.5)
        return torch.linalg.solve_ex(sum_, (2 * eye).expand_as(r)).result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None]:
        return _gradient(ctx.saved_tensors[0], d), None


def _is_taken(r: Tensor) -> bool:
    """True where the library's transform is to be used."""
    if in_transform() or is_tracing():
        return False
    if r.is_cuda:
        return r.dtype == torch.float32 and r.shape[-1] <= MOST
    return r.is_cpu


def cayley(
    r: Tensor, transposed: bool = False, shape: Sequence[int] | None = None
) -> Tensor:
    """(I - K) (I + K)^-1 for the skew part K of each block of r[..., b, b], or its
    transpose, in f32 or f64, and in the shape of r or another one.

    `danaus_cayley()` makes it where it can. Elsewhere it is 2 (I + K)^-1 - I.
    """
    shape = r.shape if shape is None else shape
    if r.dtype not in (torch.float32, torch.float64):
        r = r.to(torch.float32)
    if _is_taken(r):
        return _Cayley.apply(r, transposed, shape)
    eye = torch.eye(r.shape[-1], dtype=r.dtype, device=r.device)
    return (_Inverse.apply(r.mT if transposed else r, eye) - eye).view(shape)
