"""What PyTorch has to know of the operators for convolutions and of the Hyena operator:
shapes of results without numbers, derivatives, and where they have kernels."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from danaus.torch import _conv_vmap
from danaus.torch._conv_fft import _conv1d_short_conv, _fft_long_conv, fft_hyena
from danaus.torch._exporting import is_standard
from danaus.torch._ops import (
    check_one_device,
    in_forward_mode,
    in_transform,
    is_traced,
    ops,
)

_warned = False


# ---- shapes ----


def _like(x: Tensor, *others) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _channels_of(u: Tensor, order: int) -> Tensor:
    return u.new_empty(u.shape[0], u.shape[1] // (order + 1), u.shape[2])


def _hyena_like(u: Tensor, taps, bias, k: Tensor, skip) -> Tensor:
    return _channels_of(u, k.shape[0] + 1)


def _spectrum(like: Tensor) -> Tensor:
    size = torch.library.get_ctx().new_dynamic_size()
    return like.new_empty(size, dtype=torch.uint8)


@torch.library.register_fake("danaus::long_conv_pack")
def _(like, k, k_reverse, skip, *options):
    check_one_device(like, k, k_reverse, skip)
    return _spectrum(like)


@torch.library.register_fake("danaus::hyena_pack")
def _(u, taps, bias, k, skip, *options):
    check_one_device(u, taps, bias, k, skip)
    return _spectrum(u)


@torch.library.register_fake("danaus::long_conv_apply")
def _(u, spectrum, gate_in, gate_out, *options):
    check_one_device(u, spectrum, gate_in, gate_out)
    return _like(u)


@torch.library.register_fake("danaus::hyena_apply")
def _(u, taps, bias, spectra, order, *options):
    check_one_device(u, taps, bias, spectra)
    return _channels_of(u, order)


# ---- operators with derivatives ----


class Operator(NamedTuple):
    """danaus::NAME, which has derivatives.

    Its inputs are tensors, options and, if it knows packed sequences, offsets and an
    accuracy. Those of danaus::NAME_backward are dy, the tensors that derivatives depend
    on, options, a bit for each gradient that is wanted, offsets, the accuracy and, if
    the operator has spectra, those that danaus::_NAME returned beside y, or None.
    """

    name: str
    tensors: int  # how many
    needed: int  # how many of the first tensors derivatives depend on
    options: int  # how many
    result: Callable[..., Tensor]  # empty, of the tensors
    by_torch: Callable[..., Tensor]  # of the tensors, options and offsets
    places: Callable[..., _conv_vmap.Places]  # of channels, of the tensors and options
    has_spectra: bool = False

    def all_of(self, needed) -> list[Tensor]:
        """All tensors. A bias, on which no derivative depends, is zeros: one for each
        row of tensor 1."""
        missing = self.tensors - self.needed
        return [*needed, *(needed[1].new_zeros(len(needed[1])) for _ in range(missing))]

    def fake(self, *inputs) -> Tensor:
        check_one_device(*inputs[: self.tensors])
        return self.result(*inputs[: self.tensors])

    def fake_and_spectra(self, *inputs) -> tuple[Tensor, Tensor]:
        return self.fake(*inputs), inputs[0].new_empty(0, dtype=torch.uint8)

    def fake_backward(self, dy, *inputs) -> tuple[Tensor, ...]:
        needed, wanted = inputs[: self.needed], inputs[self.needed + self.options]
        check_one_device(dy, *needed)
        return tuple(
            _like(x) if wanted >> i & 1 else needed[0].new_empty(0)
            for i, x in enumerate(self.all_of(needed))
        )

    def result_of(self, found) -> Tensor:
        """y of what danaus::_NAME returned."""
        return found[0] if self.has_spectra else found

    def derivative(self) -> tuple[type[torch.autograd.Function], ...]:
        """The operator for autograd without a compiler, which costs less than the
        operator's way: for transforms of torch.func, and for others."""
        plain, end = getattr(ops, f"_{self.name}"), self.tensors + self.options
        second = self.second_derivative()
        run_backward = _runner(f"{self.name}_backward", second, second, tuple)

        def remember(ctx, inputs, kept=None):
            ctx.options, ctx.accuracy = inputs[self.tensors : end], inputs[end + 1 :]
            spectra = (kept,) if self.has_spectra else ()
            rest = *inputs[end : end + 1], *spectra
            ctx.save_for_backward(*inputs[: self.needed], *rest)

        class Forward(torch.autograd.Function):
            """Without spectra, for torch.func: PyTorch binds its inputs by name at each
            call."""

            generate_vmap_rule = True

            @staticmethod
            def forward(*inputs):
                return self.result_of(plain(*inputs))

            @staticmethod
            def setup_context(ctx, inputs, output):
                remember(ctx, inputs)

            @staticmethod
            def backward(ctx, dy):
                needs, saved = ctx.needs_input_grad, ctx.saved_tensors
                wanted = sum(1 << i for i in range(self.tensors) if needs[i])
                needed, rest = saved[: self.needed], saved[self.needed :]
                inputs = dy.contiguous(), *needed, *ctx.options, wanted, *rest[:1]
                gradients = run_backward(*inputs, *ctx.accuracy, *rest[1:])
                rest = [None] * (len(needs) - self.tensors)
                return *(g if n else None for g, n in zip(gradients, needs)), *rest

        class Eager(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                found = plain(*inputs)
                y, kept = found if self.has_spectra else (found, None)
                remember(
                    ctx, inputs, kept if kept is not None and kept.numel() else None
                )
                return y

            backward = Forward.backward

        return Forward, Eager

    def second_derivative(self) -> type[torch.autograd.Function]:
        """danaus::NAME_backward for autograd. Second derivatives, which few need, are
        autograd's of PyTorch's own functions."""
        plain, first = getattr(ops, f"_{self.name}_backward"), 1 + self.needed
        end = first + self.options

        class Backward(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(*inputs):
                return plain(*inputs)

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.options, ctx.wanted = inputs[first:end], inputs[end]
                ctx.save_for_backward(*inputs[:first], *inputs[end + 1 : end + 2])

            @staticmethod
            def backward(ctx, *outer):
                dy, *needed = ctx.saved_tensors[:first]
                offsets = ctx.saved_tensors[first:]

                def function(*inputs):
                    return self.by_torch(*inputs, *ctx.options, *offsets)

                inputs = self.all_of(needed)
                found = _differentiate_again(function, dy, inputs, outer, ctx.wanted)
                rest = [None] * (len(ctx.needs_input_grad) - first)
                return *found[:first], *rest

        return Backward


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


def _runner(name: str, function: type[torch.autograd.Function], eager, result_of):
    """Registers the derivatives of danaus::NAME; runs it in the way that suits who
    asks. eager: the function where nothing transforms it."""
    public, plain = getattr(ops, name), getattr(ops, f"_{name}")
    torch.library.register_autograd(
        f"danaus::{name}", function.backward, setup_context=function.setup_context
    )

    def run(*inputs):
        if is_traced():
            return public(*inputs)
        if in_transform():
            return function.apply(*inputs)
        if torch.is_grad_enabled():
            return eager.apply(*inputs)
        return result_of(plain(*inputs))

    return run


def _registered(operator: Operator):
    """A function that runs the operator."""
    has_spectra = operator.has_spectra
    plain = operator.fake_and_spectra if has_spectra else operator.fake
    for prefix, fake in (("", operator.fake), ("_", plain)):
        name = f"danaus::{prefix}{operator.name}"
        torch.library.register_fake(name)(fake)
        torch.library.register_fake(f"{name}_backward")(operator.fake_backward)
    rules = _conv_vmap.Rules(*operator[1:4], operator.places)
    _conv_vmap.register(operator.name, ops, rules, operator.result_of)
    return _runner(operator.name, *operator.derivative(), operator.result_of)


_LONG = _like, _fft_long_conv, _conv_vmap.places_long
_SHORT = _like, _conv1d_short_conv, _conv_vmap.places_short
_HYENA = _hyena_like, fft_hyena, _conv_vmap.places_hyena
run_long_conv = _registered(Operator("long_conv", 6, 6, 2, *_LONG, has_spectra=True))
run_short_conv = _registered(Operator("short_conv", 3, 2, 2, *_SHORT))
run_hyena = _registered(Operator("hyena", 5, 5, 0, *_HYENA, has_spectra=True))


# ---- devices ----


def has_kernels(device: torch.device) -> bool:
    """True if the operators run on the device; warns once in a process where they do
    not. In forward mode PyTorch's own functions run, which have its derivatives, and
    in exports to ONNX, which know no others."""
    global _warned
    if is_standard():
        return False
    if not is_traced() and in_forward_mode():
        return False
    if device.type in ("cpu", "cuda", "meta"):
        return True
    if not _warned and not is_traced():
        _warned = True
        warnings.warn(
            f"danaus has no kernels for convolutions on {device.type} devices: "
            "torch.fft and torch.nn.functional.conv1d make them, with the same results",
            stacklevel=3,
        )
    return False
