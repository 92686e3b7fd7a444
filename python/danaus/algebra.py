"""Chains of chains: sums, stacks, block diagonals and Kronecker products.

Operands are chains, or matrices, which count as chains of one factor. Results are
copies in the common type, without biases, with as many weights as their operands
together (docs/algebra.md). A ValueError has the reason if there is no such chain.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from numpy.typing import ArrayLike

from danaus._library import lib
from danaus.chain import Chain

Operand = Union[Chain, ArrayLike]


def _combined(how: int, operands: Sequence[Operand]) -> Chain:
    if isinstance(operands, (Chain, str)) or hasattr(operands, "__array__"):
        kind = type(operands).__name__
        raise TypeError(f"operands are a list of chains and matrices, not a {kind}")
    operands = list(operands)
    if not operands:
        raise ValueError("there is nothing to combine")
    chains = [
        x if isinstance(x, Chain) else Chain._from_matrix(x, f"operand {i}")
        for i, x in enumerate(operands)
    ]
    return Chain._combined(how, chains)


def add(*operands: Operand) -> Chain:
    """The sum. Two factors that can be factorised get the sum of their block ranks."""
    return _combined(lib.DANAUS_SUM, operands)


def hstack(operands: Sequence[Operand]) -> Chain:
    """[W_1 W_2 ...], side by side."""
    return _combined(lib.DANAUS_HSTACK, operands)


def vstack(operands: Sequence[Operand]) -> Chain:
    """W_1 above W_2 above ..."""
    return _combined(lib.DANAUS_VSTACK, operands)


def block_diag(*operands: Operand) -> Chain:
    """W_1, W_2, ... on the diagonal."""
    return _combined(lib.DANAUS_BLOCK_DIAGONAL, operands)


def kron(*operands: Operand) -> Chain:
    """The Kronecker product, its factors in the order of fewest weights."""
    return _combined(lib.DANAUS_KRONECKER, operands)
