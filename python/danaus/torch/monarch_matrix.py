"""Monarch matrices of order 2 by their two factors: products and inverses.

A pair (L, R) of tensors [b, c, c] and [c, b, b] stands for the N x N matrix, N = b c,

    M = P^T diag(L_0, .., L_{b-1}) P diag(R_0, .., R_{c-1}),
    M[i1 b + i0, j1 b + j0] = L_{i0}[i1, j1] R_{j1}[i0, j0],

where P transposes the c x b view of a vector.

Source: Fu et al., Monarch Mixer, NeurIPS 2023 (arXiv 2310.12109), section 4.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import Tensor

from danaus.torch._conv_functions import fail
from danaus.torch._exporting import refuse_onnx
from danaus.torch._ops import in_transform, is_traced
from danaus.torch._precision import without_autocast
from danaus.torch.functional import ks_linear

__all__ = ["monarch_inverse", "monarch_product", "monarch_product_reversed"]

Pair = tuple[Tensor, Tensor]
_TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


@without_autocast
def monarch_product(x: Tensor, pair: Pair) -> Tensor:
    """M x along the last axis: R comes first.

    Parameters
    ----------
    x : Tensor [..., b c]
    pair : L [b, c, c] and R [c, b, b], of one type; real x are made complex for them

    Raises
    ------
    ValueError
        Shapes that do not fit.
    """
    left, right = checked_pair("the matrix", pair, x.shape[-1])
    return _product(x, [_spread(left), right[..., None]])


@without_autocast
def monarch_product_reversed(x: Tensor, pair: Pair) -> Tensor:
    """diag(R) P^T diag(L) P x: L comes first, as in inverses and transposes."""
    left, right = checked_pair("the matrix", pair, x.shape[-1])
    return _product(x, [right[..., None], _spread(left)])


@without_autocast
def monarch_inverse(pair: Pair, name: str = "the matrix") -> Pair:
    """Inverses of all blocks. `monarch_product_reversed` of them is M^-1 x.

    Raises
    ------
    ValueError
        A block is singular in the numbers' precision.
    """
    left, right = checked_pair(name, pair, None)
    refuse_onnx("a MonarchConv, which inverts matrices at each call,")
    return (
        _inverses(f"L of {name}", left),
        _inverses(f"R of {name}", right),
    )


def transposed(pair: Pair) -> Pair:
    """Blocks of M^T, for the other order of the factors."""
    return pair[0].mT, pair[1].mT


def swap_digits(x: Tensor, slow: int, fast: int) -> Tensor:
    """The last axis, read as slow x fast, in the order of its transpose."""
    return x.unflatten(-1, (slow, fast)).mT.flatten(-2)


def check_numbers(name: str, *tensors) -> None:
    """They are dense tensors of one type that systems are solved in, on one device."""
    for x in tensors:
        if not isinstance(x, Tensor):
            fail(f"{name} is made of tensors, not of {type(x).__name__}")
        if x.dtype not in _TYPES or x.dtype != tensors[0].dtype:
            fail(
                f"{name} has numbers of type {x.dtype}; one of float32, float64, "
                "complex64 and complex128 is needed for all"
            )
        if x.device != tensors[0].device:
            fail(f"{name} lies on {x.device} and on {tensors[0].device}")


def checked_pair(name: str, pair: Pair, size: int | None) -> Pair:
    """The pair; ValueError unless it makes a matrix of that size, None being any."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        fail(f"{name} is a pair of tensors, L and R")
    left, right = pair
    check_numbers(name, left, right)
    shapes = f"{list(left.shape)} and {list(right.shape)}"
    if left.dim() != 3 or right.dim() != 3:
        fail(f"{name} has factors of the shapes {shapes}; [b, c, c], [c, b, b] fit")
    b, c = left.shape[:2]
    if left.shape != (b, c, c) or right.shape != (c, b, b) or b * c == 0:
        fail(f"{name} has factors of the shapes {shapes}; [b, c, c], [c, b, b] fit")
    if size is not None and b * c != size:
        fail(f"{name} has {b * c} rows; {size} numbers are multiplied")
    return left, right


def may_read(x: Tensor) -> bool:
    """True if numbers can be looked at: neither traced, nor transformed, nor meta."""
    return not (is_traced() or in_transform() or x.is_meta)


def _product(x: Tensor, weights: list[Tensor]) -> Tensor:
    dtype = torch.promote_types(x.dtype, weights[0].dtype)
    return ks_linear(x.to(dtype), [w.to(dtype) for w in weights], tf32=False)


def _spread(left: Tensor) -> Tensor:
    """The pattern (1, c, c, b) of P^T diag(L) P."""
    return left.permute(1, 2, 0)[None]


def _inverses(name: str, blocks: Tensor) -> Tensor:
    inverses, info = torch.linalg.inv_ex(blocks)
    if may_read(blocks):
        with torch.no_grad():
            norms = [torch.linalg.matrix_norm(x, 1) for x in (blocks, inverses)]
            condition = norms[0] * norms[1]
            bad = (info != 0) | ~(condition * torch.finfo(blocks.dtype).eps < 1)
        if bad.any():
            fail(f"block {int(bad.int().argmax())} of {name} is singular")
    return inverses
