"""The Hyena operator as a function of tensors, and what its arguments have to be."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from danaus.torch._conv_fft import fft_hyena
from danaus.torch._conv_functions import (
    MOST_TAPS,
    accuracy_of,
    check_signal,
    check_tensor,
    fail,
    long_conv,
    offsets_of,
    short_conv,
)
from danaus.torch._conv_ops import has_kernels, run_hyena
from danaus.torch._ops import sum_dtype
from danaus.torch._split import Split, on_whole_rows, size_of, split_of

MOST_ORDER = 8


def _filters_of(u: Tensor, k, skip) -> tuple[Tensor, Tensor | None]:
    """Long filters [order - 1, filters, taps] and skips for a signal, checked."""
    if not isinstance(k, Tensor):
        fail(f"k has to be a tensor, not {type(k).__name__}")
    k = k[None] if k.dim() == 2 else k
    check_tensor("k", k, (None, None, None), u.device)
    order, filters = k.shape[0] + 1, k.shape[1]
    if not 2 <= order <= MOST_ORDER or u.shape[1] % (order + 1):
        fail(
            f"u has {u.shape[1]} rows, and k is for order {order}: rows are order + 1 "
            f"groups of channels, and 2 to {MOST_ORDER} are possible"
        )
    channels = u.shape[1] // (order + 1)
    if filters < 1 or k.shape[2] < 1 or channels % filters:
        fail(
            f"k has the shape {list(k.shape)}: the number of filters has to divide "
            f"the {channels} channels, and a filter needs a tap"
        )
    if skip is not None:
        if not isinstance(skip, Tensor):
            fail(f"skip has to be a tensor, not {type(skip).__name__}")
        skip = skip[None] if skip.dim() == 1 else skip
        check_tensor("skip", skip, (order - 1, filters), u.device)
    return k, skip


def operands_of(u, taps, bias, k, skip) -> list[Tensor | None]:
    """All operands, checked, filters in the type that sums have."""
    check_signal(u)
    check_tensor("taps", taps, (u.shape[1], None), u.device)
    if not 1 <= taps.shape[1] <= MOST_TAPS:
        fail(f"{taps.shape[1]} taps; 1 to {MOST_TAPS} are possible")
    if bias is not None:
        check_tensor("bias", bias, (u.shape[1],), u.device)
    k, skip = _filters_of(u, k, skip)
    sums = sum_dtype(u.dtype)
    own = [
        None if x is None else x.to(sums).contiguous() for x in (taps, bias, k, skip)
    ]
    return [u.contiguous(), *own]


def hyena(
    u: Tensor,
    taps: Tensor,
    bias: Tensor | None,
    k: Tensor,
    skip: Tensor | None = None,
    accuracy: str | None = None,
    offsets: Tensor | Sequence[int] | None = None,
    group=None,
) -> Tensor:
    """The Hyena operator. Let z be a causal short convolution of every row of u, and
    x_0, ..., x_{order-1}, v its rows in groups of `channels`. With

        v_0 = v,   v_{o+1} = k[o] (*) p + skip[o] * p,   p = x_{order-1-o} * v_o,

    for o = 0, ..., order - 2, the result is ``x_0 * v_{order-1}``. Order 2 is
    ``x_0 * (k (*) (x_1 * v) + skip * x_1 * v)``. Differentiable in all tensors.

    Parameters
    ----------
    u : Tensor [batch, (order + 1) channels, length]
        float32, float64, float16 or bfloat16
    taps : Tensor [(order + 1) channels, short taps]
        taps[r, s] multiplies u[r, t - s], as in `short_conv`.
    bias : Tensor [(order + 1) channels]
    k : Tensor [order - 1, filters, long taps], or [filters, long taps] for order 2
        Causal; channel h has the filter ``h // (channels // filters)``.
    skip : Tensor [order - 1, filters], or [filters] for order 2
    accuracy : None, "accurate" or "fast"
        As for `long_conv`.
    offsets : Tensor [sequences + 1] of int32 or int64, or whole numbers
        u is packed sequences, a batch of 1, as for `long_conv`.
    group : ProcessGroup, True or "world"
        u and the result are pieces of longer rows, as for `long_conv`.

    Returns
    -------
    Tensor [batch, channels, length], of u's type.

    Raises
    ------
    ValueError
        Shapes, types or devices that do not fit.
    """
    operands = operands_of(u, taps, bias, k, skip)
    channels, filters = len(operands[1]) // (len(operands[3]) + 2), operands[3].shape[1]
    split = split_of(group, u, channels, call=(*operands[1:], accuracy, offsets))
    offsets = offsets_of(offsets, u, pieces=size_of(group))
    if split is not None:
        u, taps, bias, k, skip = operands
        k = [split.gathered(x, filters) for x in k]
        skip = [split.of_all(x, filters) for x in ([None] if skip is None else skip)]
        options = {"accuracy": accuracy, "offsets": offsets}
        return split_hyena(split, u, taps, bias, k, skip, **options)
    accuracy = accuracy_of(accuracy)
    if not has_kernels(u.device):
        return fft_hyena(*operands, offsets)
    return run_hyena(*operands, offsets, accuracy)


def mix_heads(z: Tensor, head_dim: int, conv: Callable[[Tensor], Tensor]) -> Tensor:
    """The gates and the long convolution of the Hyena operator of order 2 with heads:

        y[h, j] = sum_i x_0[h, i] * conv(x_1[h, i] * v[h, j]),

    where channel h head_dim + i is channel i of head h. z [batch, 3 channels, length]
    has the rows x_0, x_1 and v; conv convolves channels head_dim rows (h, i, j).
    """
    x_0, x_1, v = z.unflatten(1, (3, -1, head_dim)).unbind(1)
    p = (x_1[:, :, :, None] * v[:, :, None]).flatten(1, 3)
    w = conv(p).unflatten(1, (-1, head_dim, head_dim))
    return (x_0[:, :, :, None] * w).sum(2).flatten(1, 2)


def stacked(x: Sequence[Tensor | None]) -> Tensor | None:
    """One tensor is not copied."""
    if x[0] is None:
        return None
    return torch.stack(x) if len(x) > 1 else x[0][None]


def split_hyena(
    split: Split, u, taps, bias, k: list, skip: list, head_dim: int = 1, **options
) -> Tensor:
    """`hyena`, or the operator with heads, of pieces of u. k and skip: of this rank's
    channels for each long convolution, by their parts."""
    check_tensor("taps", taps, (u.shape[1], None), u.device)
    groups = u.shape[1] // split.channels
    few = [None if x is None else x.unflatten(0, (groups, -1)) for x in (taps, bias)]
    few = [split.of_all(x, split.channels, 1) for x in few]

    def run(x: Tensor, n: int) -> Tensor:
        taps, bias = (None if x[n] is None else x[n].flatten(0, 1) for x in few)
        own, skips = ([parts[n] for parts in each] for each in (k, skip))
        if head_dim == 1:
            long = stacked(own), stacked(skips)
            return hyena(x.flatten(1, 2), taps, bias, *long, **options)
        return mix_heads(
            short_conv(x.flatten(1, 2), taps, bias, offsets=options["offsets"]),
            head_dim,
            lambda p: long_conv(p, own[0], skip=skips[0], **options),
        )

    return on_whole_rows(run, u.unflatten(1, (groups, -1)).unbind(1), split)
