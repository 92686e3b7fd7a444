"""What PyTorch has to know of the operators of the Hyena operator: shapes of results
without numbers, derivatives, and the same by PyTorch's own functions."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor

from danaus.torch._conv_fft import _conv1d_short_conv, _fft_long_conv
from danaus.torch._conv_ops import (
    _chosen,
    _differentiate_again,
    _gradients_like,
    _run,
    _wanted,
)
from danaus.torch._ops import check_one_device, ops

INPUTS = 5  # u, taps, bias, k, skip


def _result_like(u: Tensor, order: int) -> Tensor:
    return u.new_empty(u.shape[0], u.shape[1] // (order + 1), u.shape[2])


def _fake(u, taps, bias, k, skip, offsets=None, accuracy="by_type"):
    check_one_device(u, taps, bias, k, skip)
    return _result_like(u, k.shape[0] + 1)


def _fake_backward(
    dy, u, taps, bias, k, skip, wanted, offsets=None, accuracy="by_type"
):
    check_one_device(dy, u, taps, bias, k, skip)
    return _gradients_like((u, taps, bias, k, skip), wanted)


for _name, _function in (("hyena", _fake), ("hyena_backward", _fake_backward)):
    torch.library.register_fake(f"danaus::{_name}")(_function)
    torch.library.register_fake(f"danaus::_{_name}")(_function)


@torch.library.register_fake("danaus::hyena_pack")
def _(u, taps, bias, k, skip, longest=0, accuracy="by_type"):
    check_one_device(u, taps, bias, k, skip)
    size = torch.library.get_ctx().new_dynamic_size()
    return u.new_empty(size, dtype=torch.uint8)


@torch.library.register_fake("danaus::hyena_apply")
def _(
    u, taps, bias, spectra, order, filters, long_taps, longest=0, offsets=None,
    accuracy="by_type",
):  # fmt: skip
    check_one_device(u, taps, bias, spectra)
    return _result_like(u, order)


# ---- derivatives ----


class _Hyena(torch.autograd.Function):
    """danaus::hyena without a compiler: it costs less than the operator's way, and
    torch.func knows it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return ops._hyena(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.accuracy = inputs
        ctx.save_for_backward(*tensors)  # offsets last

    @staticmethod
    def backward(ctx, dy):
        needed = ctx.needs_input_grad[:INPUTS]
        *tensors, offsets = ctx.saved_tensors
        options = _wanted(needed), offsets, ctx.accuracy
        inputs = (dy.contiguous(), *tensors, *options)
        gradients = _run("hyena_backward", _HyenaBackward, inputs)
        return (*_chosen(gradients, needed), None, None)


class _HyenaBackward(torch.autograd.Function):
    """Second derivatives, which few need, are autograd's of PyTorch's functions."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return ops._hyena_backward(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.wanted, offsets, _ = inputs
        ctx.save_for_backward(*tensors, offsets)

    @staticmethod
    def backward(ctx, *outer):
        dy, *inputs, offsets = ctx.saved_tensors

        def function(*inputs):
            return fft_hyena(*inputs, offsets)

        found = _differentiate_again(function, dy, inputs, outer, ctx.wanted)
        return (*found, None, None, None)


for _name, _function in (("hyena", _Hyena), ("hyena_backward", _HyenaBackward)):
    torch.library.register_autograd(
        f"danaus::{_name}", _function.backward, setup_context=_function.setup_context
    )


def run_hyena(*inputs) -> Tensor:
    """danaus::hyena."""
    return _run("hyena", _Hyena, inputs)


# ---- PyTorch's own functions ----


def fft_hyena(u: Tensor, taps: Tensor, bias, k: Tensor, skip, offsets=None) -> Tensor:
    """danaus::hyena through conv1d and torch.fft, with sums in the type of k: for
    devices without kernels, and a second opinion for tests. Autograd differentiates
    it."""
    if offsets is not None:
        parts = [p for p in u.split(offsets.diff().tolist(), 2) if p.shape[2]]
        return torch.cat([fft_hyena(p, taps, bias, k, skip) for p in parts], 2)
    z = _conv1d_short_conv(u, taps, bias, False, False)
    *gates, v = z.unflatten(1, (k.shape[0] + 2, -1)).unbind(1)
    for o in range(k.shape[0]):
        jump = None if skip is None else skip[o]
        v = _fft_long_conv(v, k[o], None, jump, gates[-1 - o], None, "causal")
    return gates[0] * v
