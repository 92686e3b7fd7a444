"""The best chain of many for a matrix, a budget and sample inputs."""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from danaus._arrays import INT64, choose, element_code, pointer, whole
from danaus._library import Progress, check, ffi, lib, listening
from danaus.chain import Chain
from danaus.factorize import Factorization, facts_of, fit_options, matrix_of
from danaus.patterns import Pattern, share_of

CANDIDATES = {
    "dense": lib.DANAUS_TRY_DENSE,
    "low-rank": lib.DANAUS_TRY_LOW_RANK,
    "column-groups": lib.DANAUS_TRY_COLUMN_GROUPS,
    "row-groups": lib.DANAUS_TRY_ROW_GROUPS,
    "monarch": lib.DANAUS_TRY_MONARCH,
    "fitted": lib.DANAUS_TRY_FITTED,
    "sum": lib.DANAUS_TRY_SUM,
}
LAYER_CANDIDATES = {
    name: kind for name, kind in CANDIDATES.items() if name not in ("dense", "low-rank")
}
SUM_CANDIDATES = CANDIDATES | {"sums": lib.DANAUS_TRY_SUMS}
_NAMES = {code: name for name, code in SUM_CANDIDATES.items()}
MOST = 64  # candidates that are reported


@dataclass(frozen=True)
class Candidate:
    """A candidate and its error."""

    kind: str
    patterns: tuple[Pattern, ...]
    parameters: int  # as they are counted for the budget
    error: float
    seconds: float
    passes: int  # over its factors; the best get more
    taken: bool
    first: int  # of the patterns these are the first chain's: all but for sums
    counts: tuple[int, ...]  # of the patterns these are each chain's


@dataclass(frozen=True)
class Compression(Factorization):
    """The chain of the smallest error, and all that were tried."""

    candidates: tuple[Candidate, ...] = ()
    second: Chain | None = None  # where a sum is best: W is near chain + second


def candidate_of(struct: Any) -> Candidate:
    rows = struct.patterns[0 : struct.count]
    patterns = tuple(Pattern(p.a, p.b, p.c, p.d) for p in rows)
    facts = struct.parameters, struct.error, struct.seconds, struct.passes
    kind, taken = _NAMES[struct.kind], bool(struct.taken)
    counts = tuple(n for n in struct.counts if n)
    return Candidate(kind, patterns, *facts, taken, struct.first, counts)


def compress(
    dense: ArrayLike,
    parameters: int | float,
    *,
    candidates: Iterable[str] = (),
    reduced: bool = False,
    progress: Progress = None,
    **options: Any,
) -> Compression:
    """The chain with the least error for dense[M][N] and at most so many parameters.

    Every candidate gets one pass over its factors, the best few `refine` of them.

    Parameters
    ----------
    parameters : a number, or as a float a share of M N; the bias is not counted.
    candidates : some of "dense", "low-rank", "column-groups", "row-groups" (a low-rank
        matrix for each group), "monarch" (groups of both), "fitted"
        (`danaus.patterns.fit`), and "sum" (low rank and blocks or Monarch, as a sum of
        two chains); none: all but sums.
    reduced : count degrees of freedom, and reduce the chain (`Chain.reduced`).
    progress : as in `danaus.factorize`.
    options : passed to `danaus.factorize`: inputs, targets, calibration, ridge, ...
    """
    dense = matrix_of(dense, "the matrix")
    keep: list[Any] = []
    fit = fit_options(dense, keep, options)
    desc = ffi.new("danaus_compress_desc *")
    desc.parameters = whole(share_of(parameters, *dense.shape), "parameters", 0, INT64)
    desc.reduced, desc.fit = bool(reduced), fit
    for name in (candidates,) if isinstance(candidates, str) else candidates:
        desc.candidates |= choose(name, CANDIDATES, "a candidate")
    places, result = ffi.new("danaus_chain *[2]"), ffi.new("danaus_factorize_result *")
    report, count = ffi.new("danaus_candidate[]", MOST), ffi.new("int *")
    with listening(progress, "compress") as (fit.progress, fit.user):
        matrix = pointer(dense), element_code(dense.dtype), *dense.shape
        results = places, result, report, MOST, count
        check(lib.danaus_compress(*matrix, desc, *results))
        chain = Chain._adopt(places)
        second = Chain._adopt(places + 1) if places[1] else None
    tried = tuple(candidate_of(c) for c in report[0 : min(count[0], MOST)])
    return Compression(chain, *facts_of(result), tried, second)
