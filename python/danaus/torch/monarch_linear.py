"""Linear layers whose matrix is a Monarch matrix."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numbers
from typing import Any

import torch
from torch import Tensor, nn

from danaus import patterns as named
from danaus.patterns import Patterns
from danaus.torch.linear import KSLinear, check_sizes


def _monarch(
    in_features: int, out_features: int, blocks: int | None, order: int, rank: int
) -> Patterns:
    """Patterns of a Monarch matrix, as `MonarchLinear` says."""
    check_sizes(in_features, out_features)
    radices: dict[str, Any] = {}
    if blocks is not None:
        if isinstance(blocks, bool) or not isinstance(blocks, numbers.Integral):
            raise TypeError(
                f"blocks has to be a whole number, not {blocks!r}: use bias= for a bias"
            )
        sizes = in_features, out_features
        if order != 2 or blocks < 1 or any(size % blocks for size in sizes):
            raise ValueError(
                f"blocks is {blocks}; an order of 2 and a divisor of both sizes, "
                f"{in_features} and {out_features}, are needed"
            )
        radices = {
            "row_radices": (out_features // blocks, blocks),
            "col_radices": (blocks, in_features // blocks),
        }
    sizes = out_features, in_features
    return named.make("monarch", *sizes, order=order, rank=rank, **radices)


class MonarchLinear(KSLinear):
    """A `KSLinear` whose matrix is a Monarch matrix.

    Parameters
    ----------
    blocks : a divisor q of both sizes: two factors, each of q blocks side by side, with
        q (N + M) weights for rank 1.
    order, rank : without blocks: number of factors, of nearly equal sizes
        (`danaus.patterns.make`), and rank of the blocks between neighbours.
    bias, activation, layout, device, dtype, tf32, batch_invariant : as `KSLinear` has
        them.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        blocks: int | None = None,
        *,
        order: int = 2,
        rank: int = 1,
        bias: bool = True,
        activation: str | None = None,
        layout: str = "batch_first",
        device: Any = None,
        dtype: torch.dtype | None = None,
        tf32: bool | None = None,
        batch_invariant: bool = False,
    ):
        super().__init__(
            in_features,
            out_features,
            _monarch(in_features, out_features, blocks, order, rank),
            bias=bias,
            activation=activation,
            layout=layout,
            device=device,
            dtype=dtype,
            tf32=tf32,
            batch_invariant=batch_invariant,
        )

    @classmethod
    def from_linear(  # type: ignore[override]
        cls,
        linear: nn.Linear,
        blocks: int | None = None,
        *,
        order: int = 2,
        rank: int = 1,
        inputs: Tensor | None = None,
        activation: str | None = None,
        layout: str = "batch_first",
        tf32: bool | None = None,
        batch_invariant: bool = False,
    ) -> MonarchLinear:
        """A Monarch matrix that approximates a torch.nn.Linear: `KSLinear.from_linear`,
        with blocks, or order and rank, as the class has them."""
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"a torch.nn.Linear is needed, not {type(linear).__name__}")
        sizes = linear.in_features, linear.out_features
        return super().from_linear(
            linear,
            patterns=_monarch(*sizes, blocks, order, rank),
            inputs=inputs,
            activation=activation,
            layout=layout,
            tf32=tf32,
            batch_invariant=batch_invariant,
        )
