"""Sizes of the digits that an index has in a Monarch matrix."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Sequence

from danaus.torch._conv_functions import fail


def near_equal(length: int, order: int) -> list[int]:
    """So many sizes, nearly equal, whose product is at least length."""
    blocks, left = [], length
    for more in range(order, 0, -1):
        block = math.ceil(left ** (1 / more) - 1e-9)
        blocks.append(max(1, block))
        left = math.ceil(left / block)
    return blocks


def divided(size: int, order: int) -> list[int]:
    """So many sizes, ascending, whose product is `size` and whose largest is least."""
    if order == 1:
        return [size]
    least = range(1, int(size ** (1 / order) + 1e-9) + 1)
    found = ([b, *divided(size // b, order - 1)] for b in least if size % b == 0)
    return min(found, key=max)


def two_blocks(blocks: Sequence[int] | None, size: int) -> tuple[int, int]:
    """c and b with c b = size; None: as near each other as can be, c being larger."""
    if blocks is None:
        b, c = divided(size, 2)
        return c, b
    if len(blocks) != 2 or min(blocks) < 1 or math.prod(blocks) != size:
        fail(f"blocks {list(blocks)} are not two sizes that make {size} numbers")
    return blocks[0], blocks[1]
