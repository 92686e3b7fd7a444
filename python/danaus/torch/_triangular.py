"""Lower triangular blocks with ones on the diagonal, and matrices made of them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from danaus.torch import _standard
from danaus.torch._exporting import is_standard
from danaus.torch._packed import Factors
from danaus.torch._precision import wide


class TriangularBasis(torch.nn.Module):
    """A lower triangular matrix C = K_0 ... K_{p-1} with ones on its diagonal.

    Factor K_a replaces digit a of an index; digit 0 is the fastest. It is
    Kronecker-sparse, of the pattern (product of blocks above a, b_a, b_a, product of
    blocks below a), with lower triangular blocks; if shared, they do not depend on the
    digits above. Parameters hold the entries below the diagonals: zeros make C = I.
    """

    def __init__(self, blocks: Sequence[int], shared: bool, made: dict):
        super().__init__()
        sizes = list(blocks)
        self.above = [math.prod(sizes[a + 1 :]) for a in range(len(sizes))]
        self.below = Factors(
            torch.nn.Parameter(
                torch.zeros(
                    1 if shared else self.above[a], b, b, math.prod(sizes[:a]), **made
                )
            )
            for a, b in enumerate(sizes)
        )

    def blocks(self) -> list[Tensor]:
        """Weights [1 or a, b, b, d] of K_0, K_1, ..."""
        return [
            with_ones(w.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) for w in self.below()
        ]

    def factors(self) -> list[Tensor]:
        """Weights [a, b, b, d] of K_0, K_1, ..."""
        return self._spread(self.blocks())

    def inverse(self) -> list[Tensor]:
        """Weights of the factors of the inverse, the leftmost first."""
        return self._spread([_inverse(w) for w in self.blocks()])[::-1]

    def _spread(self, weights: list[Tensor]) -> list[Tensor]:
        return [w.expand(a, -1, -1, -1) for w, a in zip(weights, self.above)]


def with_ones(x: Tensor) -> Tensor:
    """Matrices [..., b, b] that are x below the diagonal and the identity elsewhere."""
    return x.tril(-1) + torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def triangular_inverse(x: Tensor, unit: bool = False) -> Tensor:
    """Inverses of lower triangular matrices [..., b, b]; if unit, of ones on their
    diagonals."""
    if is_standard():
        return _standard.triangular_inverse(x)
    ones = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand_as(x)
    return torch.linalg.solve_triangular(x, ones, upper=False, unitriangular=unit)


def _inverse(w: Tensor) -> Tensor:
    """Block by block; of 16 bits in f32."""
    solved = triangular_inverse(wide(w).permute(0, 3, 1, 2), unit=True)
    return solved.permute(0, 2, 3, 1).to(w.dtype)
