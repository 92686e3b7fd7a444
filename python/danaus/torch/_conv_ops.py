"""What PyTorch has to know of the operators for convolutions: shapes of results without
numbers, derivatives, and where they have kernels."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import warnings

import torch
from torch import Tensor

from danaus.torch._conv_fft import _conv1d_short_conv, _fft_long_conv
from danaus.torch._ops import check_one_device, in_forward_mode, in_transform, ops

LONG_INPUTS = 6  # u, k, k_reverse, skip, gate_in, gate_out
_warned = False


# ---- shapes ----


def _like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _gradients_like(inputs: tuple, wanted: int) -> tuple[Tensor, ...]:
    return tuple(
        _like(x) if wanted >> i & 1 else inputs[0].new_empty(0)
        for i, x in enumerate(inputs)
    )


def _fake_long(
    u, k, k_reverse, skip, gate_in, gate_out, kind, sparse, offsets=None,
    accuracy="by_type",
):
    check_one_device(u, k, k_reverse, skip, gate_in, gate_out)
    return _like(u)


def _fake_long_backward(
    dy, u, k, k_reverse, skip, gate_in, gate_out, kind, sparse, wanted, offsets=None,
    accuracy="by_type",
):
    inputs = u, k, k_reverse, skip, gate_in, gate_out
    check_one_device(dy, inputs)
    return _gradients_like(inputs, wanted)


def _fake_short(u, k, bias, channels_last, centred):
    check_one_device(u, k, bias)
    return _like(u)


def _fake_short_backward(dy, u, k, channels_last, centred, wanted):
    check_one_device(dy, u, k)
    return _gradients_like((u, k, k[:, 0]), wanted)


for _name, _fake in (
    ("long_conv", _fake_long),
    ("long_conv_backward", _fake_long_backward),
    ("short_conv", _fake_short),
    ("short_conv_backward", _fake_short_backward),
):
    torch.library.register_fake(f"danaus::{_name}")(_fake)
    torch.library.register_fake(f"danaus::_{_name}")(_fake)


@torch.library.register_fake("danaus::long_conv_pack")
def _(
    like, k, k_reverse, skip, kind, sparse, batch, longest=0, accuracy="by_type"
):
    check_one_device(like, k, k_reverse, skip)
    size = torch.library.get_ctx().new_dynamic_size()
    return like.new_empty(size, dtype=torch.uint8)


@torch.library.register_fake("danaus::long_conv_apply")
def _(
    u, spectrum, gate_in, gate_out, filters, taps, kind, sparse, batch, longest=0,
    offsets=None, accuracy="by_type",
):
    check_one_device(u, spectrum, gate_in, gate_out)
    return _like(u)


# ---- derivatives ----


def _wanted(needed: tuple[bool, ...]) -> int:
    """One bit for each input that needs a gradient."""
    return sum(1 << i for i, need in enumerate(needed) if need)


def _chosen(gradients: tuple[Tensor, ...], needed: tuple[bool, ...]) -> list:
    return [g if need else None for g, need in zip(gradients, needed)]


class _Long(torch.autograd.Function):
    """danaus::long_conv without a compiler: it costs less than the operator's way, and
    torch.func knows it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return ops._long_conv(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.kind, ctx.sparse, offsets, ctx.accuracy = inputs
        ctx.save_for_backward(*tensors, offsets)

    @staticmethod
    def backward(ctx, dy):
        needed = ctx.needs_input_grad[:LONG_INPUTS]
        *tensors, offsets = ctx.saved_tensors
        options = ctx.kind, ctx.sparse, _wanted(needed), offsets, ctx.accuracy
        inputs = (dy.contiguous(), *tensors, *options)
        gradients = _run("long_conv_backward", _LongBackward, inputs)
        return (*_chosen(gradients, needed), None, None, None, None)


class _Short(torch.autograd.Function):
    """The same for danaus::short_conv."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return ops._short_conv(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.options = inputs[3:]

    @staticmethod
    def backward(ctx, dy):
        needed = ctx.needs_input_grad[:3]
        inputs = (dy.contiguous(), *ctx.saved_tensors, *ctx.options, _wanted(needed))
        gradients = _run("short_conv_backward", _ShortBackward, inputs)
        return (*_chosen(gradients, needed), None, None)


# ---- second derivatives, which few need: autograd's, of PyTorch's own functions ----


def _differentiate_again(function, dy, inputs, outer, wanted: int) -> list:
    """Gradients of <outer, gradients of function> by dy and the inputs."""
    outer = tuple(g for i, g in enumerate(outer) if wanted >> i & 1)
    if in_transform():
        return _differentiate_transformed(function, dy, inputs, outer, wanted)
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # Aliases: dy may itself be made from the inputs, which does not count here.
        every = [
            x if x is None else x.view_as(x).requires_grad_() for x in (dy, *inputs)
        ]
        dy, *inputs = every
        by = [x for i, x in enumerate(inputs) if wanted >> i & 1]
        first = torch.autograd.grad(function(*inputs), by, dy, create_graph=True)
        there = [x for x in every if x is not None]
        found = iter(
            torch.autograd.grad(
                first, there, outer, create_graph=again, allow_unused=True
            )
        )
    return [None if x is None else next(found) for x in every]


def _differentiate_transformed(function, dy, inputs, outer: tuple, wanted: int) -> list:
    """The same for torch.func, where tensors cannot be asked to have gradients."""
    places = [i for i, x in enumerate(inputs) if x is not None]

    def of_present(*present):
        every: list = [None] * len(inputs)
        for i, x in zip(places, present):
            every[i] = x
        return function(*every)

    def first(dy, *present):
        found = torch.func.vjp(of_present, *present)[1](dy)
        return tuple(g for i, g in zip(places, found) if wanted >> i & 1)

    present = [inputs[i] for i in places]
    to_dy, *found = torch.func.vjp(first, dy, *present)[1](outer)
    gradients: list = [None] * len(inputs)
    for i, g in zip(places, found):
        gradients[i] = g
    return [to_dy, *gradients]


class _LongBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return ops._long_conv_backward(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.kind, ctx.sparse, ctx.wanted, offsets, _ = inputs
        ctx.save_for_backward(*tensors, offsets)

    @staticmethod
    def backward(ctx, *outer):
        dy, *inputs, offsets = ctx.saved_tensors

        def function(*inputs):
            return _fft_long_conv(*inputs, ctx.kind, ctx.sparse, offsets)

        found = _differentiate_again(function, dy, inputs, outer, ctx.wanted)
        return (*found, None, None, None, None, None)


class _ShortBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return ops._short_conv_backward(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:3])
        *ctx.options, ctx.wanted = inputs[3:]

    @staticmethod
    def backward(ctx, *outer):
        dy, u, k = ctx.saved_tensors

        def function(u, k, bias):
            return _conv1d_short_conv(u, k, bias, *ctx.options)

        inputs = (u, k, k.new_zeros(k.shape[0]))  # whatever the bias is
        found = _differentiate_again(function, dy, inputs, outer, ctx.wanted)
        return (*found[:3], None, None, None)


for _name, _function in (
    ("long_conv", _Long),
    ("short_conv", _Short),
    ("long_conv_backward", _LongBackward),
    ("short_conv_backward", _ShortBackward),
):
    torch.library.register_autograd(
        f"danaus::{_name}", _function.backward, setup_context=_function.setup_context
    )


def _run(name: str, function, inputs: tuple):
    """An operator in the way that suits who asks."""
    if torch.compiler.is_compiling():
        return getattr(ops, name)(*inputs)
    if torch.is_grad_enabled() or in_transform():
        return function.apply(*inputs)
    return getattr(ops, "_" + name)(*inputs)


def run_long_conv(*inputs) -> Tensor:
    """danaus::long_conv."""
    return _run("long_conv", _Long, inputs)


def run_short_conv(*inputs) -> Tensor:
    """danaus::short_conv."""
    return _run("short_conv", _Short, inputs)


# ---- devices ----


def has_kernels(device: torch.device) -> bool:
    """Whether the operators run there; warns once, in a process, where they do not. In
    forward mode PyTorch's own functions run, which have its derivatives."""
    global _warned
    if not torch.compiler.is_compiling() and in_forward_mode():
        return False
    if device.type in ("cpu", "cuda", "meta"):
        return True
    if not _warned and not torch.compiler.is_compiling():
        _warned = True
        warnings.warn(
            f"danaus has no kernels for convolutions on {device.type} devices: "
            "torch.fft and torch.nn.functional.conv1d make them, with the same results",
            stacklevel=3,
        )
    return False
