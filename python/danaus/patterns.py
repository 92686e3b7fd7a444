"""Patterns of Kronecker-sparse factors, and chains of them to choose from.

A factor of pattern (a, b, c, d) has the support I_a (x) 1_{b x c} (x) I_d: it is an
(a b d) x (a c d) matrix with weights w[a][b][c][d]. Wherever patterns are asked for,
they may be a string "a,b,c,d a,b,c,d", one pattern or a sequence of them; the leftmost
factor, which is applied last, comes first.

Source: Gonon, Zheng, Carrivain, Le (arXiv 2405.15013), section 2.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Union

from danaus._arrays import INT, INT64, choose, whole
from danaus._library import check, ffi, lib


class Pattern(NamedTuple):
    """One factor's four sizes, each at least 1."""

    a: int
    b: int
    c: int
    d: int

    @property
    def rows(self) -> int:
        """Rows of the factor, a b d."""
        return self.a * self.b * self.d

    @property
    def cols(self) -> int:
        """Columns of the factor, a c d."""
        return self.a * self.c * self.d

    @property
    def parameters(self) -> int:
        """Weights of the factor, a b c d."""
        return self.a * self.b * self.c * self.d

    @property
    def transposed(self) -> Pattern:
        """The pattern of the transposed factor."""
        return Pattern(self.a, self.c, self.b, self.d)

    def __str__(self) -> str:
        return f"{self.a},{self.b},{self.c},{self.d}"


Patterns = Union[str, Sequence[int], Sequence[Sequence[int]]]

_KINDS = {
    "dense": lib.DANAUS_CHAIN_DENSE,
    "low-rank": lib.DANAUS_CHAIN_LOW_RANK,
    "dyadic": lib.DANAUS_CHAIN_DYADIC,
    "block-butterfly": lib.DANAUS_CHAIN_BLOCK_BUTTERFLY,
    "monarch": lib.DANAUS_CHAIN_MONARCH,
    "kaleidoscope": lib.DANAUS_CHAIN_KALEIDOSCOPE,
    "radices": lib.DANAUS_CHAIN_RADICES,
}


def _listed(array: Any, count: int) -> tuple[Pattern, ...]:
    return tuple(Pattern(p.a, p.b, p.c, p.d) for p in array[0:count])


def parse(text: str) -> tuple[Pattern, ...]:
    """Reads "a,b,c,d a,b,c,d ..."; ValueError where that is malformed."""
    if not isinstance(text, str):
        raise TypeError(f"patterns to parse are a string, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError("patterns cannot contain a null character")
    array = ffi.new("danaus_pattern[]", lib.DANAUS_MAX_FACTORS)
    count = ffi.new("int *")
    encoded = text.encode(errors="replace")
    check(lib.danaus_patterns_parse(encoded, array, lib.DANAUS_MAX_FACTORS, count))
    return _listed(array, count[0])


def as_patterns(patterns: Patterns) -> tuple[Pattern, ...]:
    """Patterns in any of their forms as a tuple; sizes are whole numbers of 63 bits."""
    if isinstance(patterns, str):
        return parse(patterns)
    try:
        rows = list(patterns)
        if len(rows) == 4 and not any(hasattr(row, "__len__") for row in rows):
            rows = [rows]
        rows = [tuple(row) for row in rows]
    except TypeError:
        raise TypeError(
            'patterns are a string "a,b,c,d ..." or a sequence of four numbers each'
        ) from None
    for index, row in enumerate(rows):
        if len(row) != 4:
            raise ValueError(f"pattern {index} has {len(row)} sizes instead of four")
    return tuple(
        Pattern(*(whole(size, f"a size of pattern {i}", 1, INT64) for size in row))
        for i, row in enumerate(rows)
    )


def pattern_array(patterns: Patterns) -> tuple[Any, int]:
    """Patterns as the library takes them: an array and their number."""
    rows = as_patterns(patterns)
    return ffi.new("danaus_pattern[]", rows), len(rows)


def check_composable(patterns: Patterns) -> None:
    """Raises ValueError, naming the factor, unless the patterns make a chain."""
    check(lib.danaus_patterns_check(*pattern_array(patterns)))


def check_chainable(patterns: Patterns) -> None:
    """Raises ValueError unless `danaus.factorize` can factorise into these patterns."""
    check(lib.danaus_patterns_check_chainable(*pattern_array(patterns)))


def _sizes(values: Sequence[int] | None, count: int, what: str) -> Any:
    """A C array of `count` sizes; NULL for None."""
    if values is None:
        return ffi.NULL
    if len(values) != count:
        raise ValueError(f"{what} has {len(values)} sizes where {count} are needed")
    sizes = [whole(v, f"a size of {what}", 0, INT64) for v in values]
    return ffi.new("int64_t[]", sizes)


def make(
    kind: str,
    rows: int,
    cols: int,
    *,
    order: int = 0,
    rank: int = 0,
    row_radices: Sequence[int] | None = None,
    col_radices: Sequence[int] | None = None,
    ranks: Sequence[int] | None = None,
) -> tuple[Pattern, ...]:
    """The patterns of a named chain for a matrix of rows x cols.

    Parameters
    ----------
    kind : "dense", "low-rank", "dyadic", "block-butterfly", "monarch", "kaleidoscope"
        or "radices" (every chain that can be factorised: row_radices x col_radices).
    order : number of factors of "monarch" (0: 2); for "radices" the lists' length.
    rank : block rank, or the rank of "low-rank"; 0: 1.
    row_radices, col_radices : `order` sizes each; None: as equal as possible.
    ranks : order - 1 block ranks between neighbours; None: rank.
    """
    lists = [v for v in (row_radices, col_radices) if v is not None]
    most = lib.DANAUS_MAX_FACTORS
    order = whole(order or (len(lists[0]) if lists else 0), "order", 0, most)
    factors = order or 2
    kept = [
        _sizes(row_radices, factors, "row_radices"),
        _sizes(col_radices, factors, "col_radices"),
        _sizes(ranks, factors - 1, "ranks"),
    ]
    desc = ffi.new("danaus_chain_desc *")
    desc.kind = choose(kind, _KINDS, "kind")
    desc.rows, desc.cols = whole(rows, "rows", 1, INT64), whole(cols, "cols", 1, INT64)
    desc.order, desc.rank = order, whole(rank, "rank", 0, INT64)
    desc.row_radices, desc.col_radices, desc.ranks = kept
    array, count = ffi.new("danaus_pattern[]", most), ffi.new("int *")
    check(lib.danaus_patterns_make(desc, array, most, count))
    return _listed(array, count[0])


def share_of(parameters: int | float, rows: int, cols: int) -> int:
    """A number of parameters; a float is a share of rows * cols."""
    if isinstance(parameters, bool):
        raise TypeError(f"parameters are a number or a share, not {parameters}")
    if not isinstance(parameters, float):
        return parameters
    if not 0 < parameters <= 1:
        raise ValueError(f"a share of parameters is in (0, 1], not {parameters}")
    return int(parameters * rows * cols)


def freedom(patterns: Patterns) -> int:
    """Degrees of freedom of products of a chain that can be factorised into.

    Its weights less r^2 for each block of rank r of every split (docs/ks.md, 2).
    """
    numbers = ffi.new("int64_t *")
    check(lib.danaus_patterns_freedom(*pattern_array(patterns), numbers))
    return numbers[0]


def fit(rows: int, cols: int, parameters: int | float) -> tuple[Pattern, ...]:
    """The chain of at most ``parameters`` weights that is expected to approximate best.

    A float is a share of the rows * cols weights of the dense matrix.
    """
    rows, cols = whole(rows, "rows", 1, INT64), whole(cols, "cols", 1, INT64)
    budget = whole(share_of(parameters, rows, cols), "parameters", 0, INT64)
    most = lib.DANAUS_MAX_FACTORS
    array, count = ffi.new("danaus_pattern[]", most), ffi.new("int *")
    check(lib.danaus_patterns_fit(rows, cols, budget, array, most, count))
    return _listed(array, count[0])


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return small + [number // n for n in small]


def select_ks_pattern(
    rows: int, cols: int, parameters: int | float, *, least_block: int = 1
) -> Pattern:
    """The pattern of rows x cols within a budget that has the greatest h.

    arXiv 2405.15013 recommends a great h = (b + c) / (b c), which is the memory traffic
    of a product over its operations. With rows = a b d and cols = a c d it is
    a d (1 / rows + 1 / cols), so that the smallest blocks win. Patterns of equal h
    differ in d; the rule leaves that open, and d = 1 is taken. `fit` chooses by the
    expected error instead.

    Parameters
    ----------
    parameters : the most weights; a float is a share of rows * cols.
    least_block : the least b and c.
    """
    rows, cols = whole(rows, "rows", 1, INT), whole(cols, "cols", 1, INT)
    budget = whole(share_of(parameters, rows, cols), "parameters", 1, INT64)
    least = whole(least_block, "least_block", 1, INT)
    if min(rows, cols) < least:
        raise ValueError(f"a {rows} x {cols} matrix has no blocks of {least} x {least}")
    most = min(rows, cols) // least
    a = max(n for n in _divisors(math.gcd(rows, cols)) if n <= most)
    pattern = Pattern(a, rows // a, cols // a, 1)
    if pattern.parameters > budget:
        raise ValueError(
            f"a pattern of {rows} x {cols} with b and c of at least {least} has"
            f" {pattern.parameters} parameters or more, not {budget}"
        )
    return pattern
