"""Functions of tensors: products with Kronecker-sparse chains, convolutions."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

from danaus._arrays import need_one_of
from danaus.torch._conv_functions import long_conv, short_conv
from danaus.torch._convolve import convolve
from danaus.torch._errors import refuse_proxy
from danaus.torch._exporting import is_standard, refuse_onnx
from danaus.torch._hyena_functions import hyena
from danaus.torch._ops import Linear, in_transform, is_traced, is_tracing, linear, ops
from danaus.torch._packed import Packed
from danaus.torch._planes import long_conv2d
from danaus.torch._standard import chain_product

__all__ = ["convolve", "hyena", "ks_linear", "long_conv", "long_conv2d", "short_conv"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda v: v,
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
}
_NARROW = torch.float32, torch.float16, torch.bfloat16  # what autocast casts
_DTYPES = *_NARROW, torch.float64, torch.complex64, torch.complex128

# The arguments of operators beside their tensors: patterns, four numbers for each,
# activation, batch_last, tf32, batch_invariant.
Question = tuple[list[int], str, bool, bool, bool]


def activation_name(activation: str | None) -> str:
    """The name that operators know; ValueError for others."""
    name = "none" if activation is None else activation
    need_one_of(ACTIVATIONS, name, "activation")
    return name


def is_batch_last(layout: str) -> bool:
    """True if the layout is "batch_last"; ValueError unless it is a layout."""
    need_one_of(("batch_first", "batch_last"), layout, "layout")
    return layout == "batch_last"


def allows_tf32(tf32: bool | None, x: Tensor) -> bool:
    """True if f32 products may be made in tf32; None: as PyTorch's products are."""
    if not x.is_cuda or x.dtype != torch.float32:
        return False
    if tf32 is not None:
        return tf32
    return _pytorch_allows_tf32()


def _pytorch_allows_tf32() -> bool:
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


# torch.compiler.assume_constant_result(), without importing the compiler: not every
# PyTorch can trace the question.
_pytorch_allows_tf32._dynamo_marked_constant = True


def autocast(x: Tensor) -> Tensor:
    """x in the type that autocast has for products, where it is in use."""
    kind = "cuda" if x.is_cuda else "cpu"
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        if x.dtype is not dtype and x.dtype in _NARROW:
            return x.to(dtype)
    return x


def check_input(
    x: Tensor,
    dtype: torch.dtype,
    device: torch.device,
    features: int,
    batch_last: bool,
) -> None:
    """Raises unless x can be multiplied by such weights with so many columns."""
    if not isinstance(x, Tensor):
        refuse_proxy(x)
        raise TypeError(f"the input has to be a tensor, not {type(x).__name__}")
    if x.is_nested:
        raise ValueError("the input is nested: danaus has dense tensors only")
    if x.dim() == 0:
        raise ValueError("the input has no dimension of features")
    found = x.shape[0 if batch_last else -1]
    if found != features:
        raise ValueError(f"the input has {found} features, not {features}")
    if x.dtype not in _DTYPES:
        names = ", ".join(str(dtype) for dtype in _DTYPES)
        raise ValueError(f"the input is {x.dtype}: danaus has {names}")
    if x.is_complex() != dtype.is_complex:
        raise ValueError(f"the input is {x.dtype}, the weights are {dtype}")
    if x.device != device:
        raise ValueError(f"the input is on {x.device}, the weights on {device}")
    if x.device.type not in ("cpu", "cuda", "meta"):
        kind = x.device.type
        raise NotImplementedError(f"danaus runs on CPUs and CUDA, not on {kind}")
    if x.layout != torch.strided:
        raise ValueError(f"the input is {x.layout}: danaus has dense tensors only")


def check_residual(
    residual: Tensor, x: Tensor, features: int, batch_last: bool
) -> None:
    """Raises unless the residual can be added to a product with so many features."""
    if not isinstance(residual, Tensor):
        kind = type(residual).__name__
        raise TypeError(f"the residual has to be a tensor, not {kind}")
    rest = x.shape[1:] if batch_last else x.shape[:-1]
    shape = (features, *rest) if batch_last else (*rest, features)
    if tuple(residual.shape) != shape:
        found = tuple(residual.shape)
        raise ValueError(f"the residual has the shape {found}, the result {shape}")
    if residual.device != x.device:
        raise ValueError(
            f"the residual is on {residual.device}, the input on {x.device}"
        )


def _check_numbers(weights: Sequence[Tensor], bias: Tensor | None) -> None:
    if not weights:
        raise ValueError("a product needs at least one factor's weights")
    tensors = [*weights] if bias is None else [*weights, bias]
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"weights have to be tensors, not {type(tensor).__name__}")
        if tensor.dtype != weights[0].dtype or tensor.dtype not in _DTYPES:
            raise ValueError(f"weights and bias are {weights[0].dtype}, {tensor.dtype}")
        if tensor.device != weights[0].device:
            raise ValueError("weights and bias are on different devices")
    for n, w in enumerate(weights):
        if w.dim() != 4 or not w.numel():
            shape = tuple(w.shape)
            raise ValueError(f"weights[{n}] has the shape {shape}, not [a, b, c, d]")
    for n, (left, right) in enumerate(zip(weights, weights[1:])):
        cols = left.shape[0] * left.shape[2] * left.shape[3]
        rows = right.shape[0] * right.shape[1] * right.shape[3]
        if cols != rows:
            raise ValueError(
                f"factor {n} has {cols} columns, factor {n + 1} {rows} rows"
            )
    rows = weights[0].shape[0] * weights[0].shape[1] * weights[0].shape[3]
    if bias is not None and bias.shape != (rows,):
        raise ValueError(f"the bias has the shape {tuple(bias.shape)}, not [{rows}]")


def is_plain(x: Tensor) -> bool:
    """True if operators get x itself: no compiler or torch.func is at work, and no
    subclass of tensors."""
    at_work = is_compiling() or is_tracing() or in_transform()
    return type(x) is Tensor and not at_work


def requires_grad(tensors: Iterable[Tensor | None]) -> bool:
    """True if one of the tensors requires gradients."""
    for x in tensors:  # any() takes longer
        if x is not None and x.requires_grad:
            return True
    return False


def wants_gradients(tensors: Iterable[Tensor | None]) -> bool:
    """True if gradients of a function of these may be asked for."""
    return torch.is_grad_enabled() and requires_grad(tensors)


def product(
    x: Tensor,
    weights: list[Tensor],
    bias: Tensor | None,
    question: Question,
    kept: Packed | None = None,
) -> Tensor:
    """activation(W x + bias) of operands that were checked, with gradients.

    With gradients the activation is PyTorch's own, since its derivative needs its
    input. Without, a CPU packs weights of plain tensors only where they are not those
    that are kept. A GPU packs at each call: this launch takes less time than finding
    changes.
    """
    if kept is None and is_standard():
        if x.is_complex():
            refuse_onnx("a product of complex numbers")
        patterns, activation, batch_last, *_ = question
        v = chain_product(x, weights, bias, patterns, batch_last)
        return ACTIVATIONS[activation](v)
    # One graph, with and without gradients. PyTorch 2.10 cannot compile is_tracing().
    if kept is None and not is_compiling() and is_tracing():
        return ops.ks_linear(x, weights, bias, *question)
    derived = kept is None and not is_traced() and in_transform()
    if derived or (
        torch.is_grad_enabled() and (requires_grad(weights) or requires_grad((x, bias)))
    ):
        patterns, activation, *options = question
        if activation != "none":
            v = product(x, weights, bias, (patterns, "none", *options), kept)
            return ACTIVATIONS[activation](v)
        if kept is not None:  # what linear() would choose
            pack = kept.trained and kept.trained.pack_for(x, question)
            return Linear.apply(x, bias, (question, pack), *weights)
        return linear(x, weights, bias, question)
    if kept is not None and x.is_cpu and weights[0].is_cpu:
        return kept.apply(x, weights, bias, question)
    function = ops.ks_linear if is_traced() else ops._ks_linear
    return function(x, weights, bias, *question)


def ks_linear(
    x: Tensor,
    weights: Sequence[Tensor],
    bias: Tensor | None = None,
    *,
    activation: str | None = None,
    layout: str = "batch_first",
    tf32: bool | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    """y = activation(W x + bias) with W = K_1 ... K_L, differentiable twice.

    Parameters
    ----------
    x : [..., N] for "batch_first", [N, ...] for "batch_last"; f32, f16, bf16, f64, c64
        or c128. One that is not contiguous is copied.
    weights : w[l] of shape [a, b, c, d], the leftmost factor first; all of one type,
        which may differ from x's. Weights are rounded once to that; autocast casts x.
    bias : [M] of the weights' type.
    activation : None, "relu", "gelu", "silu" or "gelu_tanh".
    tf32 : f32 products on a GPU may be made in tf32; None: as PyTorch's own are.
    batch_invariant : the bits of a row of y do not depend on the other rows, nor do
        those of the gradient of a row of x. May be slower.

    Returns
    -------
    y : [..., M] or [M, ...] of x's type.

    Raises
    ------
    TypeError, ValueError : operands that do not fit together.
    NotImplementedError : devices other than CPUs and CUDA.
    """
    weights = list(weights)
    last = is_batch_last(layout)
    _check_numbers(weights, bias)
    patterns = [size for w in weights for size in w.shape]
    features = patterns[-4] * patterns[-2] * patterns[-1]
    check_input(x, weights[0].dtype, weights[0].device, features, last)
    name = activation_name(activation)
    if name != "none" and x.is_complex():
        raise ValueError("activations are for real numbers")
    x = autocast(x)
    question = patterns, name, last, allows_tf32(tf32, x), bool(batch_invariant)
    return product(x, weights, bias, question)
