"""From a dense matrix to a sum of chains, with certified bounds."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from danaus._arrays import INT, INT64, choose, element_code, pointer, whole
from danaus._library import Progress, check, ffi, lib, listening
from danaus.chain import Chain
from danaus.compress import MOST, SUM_CANDIDATES, Candidate, candidate_of
from danaus.factorize import check_shape, facts_of, fit_options, matrix_of
from danaus.patterns import Patterns, pattern_array, share_of


@dataclass(frozen=True)
class Step:
    """Error of the first terms after the first round, and its bounds."""

    error: float
    lower_bound: float | None
    upper_bound: float
    off_support: float
    dense_error: float
    seconds: float
    parameters: int


@dataclass(frozen=True)
class SumFactorization:
    """Chains whose sum approximates a matrix; norms as in `danaus.Factorization`."""

    chains: tuple[Chain, ...]
    error: float
    lower_bound: float | None  # no sum of such terms does better; None: unknown
    upper_bound: float  # what the first round's splits guarantee
    off_support: float
    dense_error: float
    seconds: float
    parameters: int
    steps: tuple[Step, ...] = ()  # one for each term
    candidates: tuple[Candidate, ...] = ()  # of `compress_sum`


def factorize_sum(
    dense: ArrayLike,
    terms: Iterable[Patterns],
    *,
    rounds: int = 0,
    lower_bound: bool = False,
    progress: Progress = None,
    **options: Any,
) -> SumFactorization:
    """Factorises dense[M][N] into K_1 + K_2 + ..., a chain for each term's patterns.

    Each chain is fitted to the residual of the chains before it, then in rounds to the
    residual of all others, which never raises the error. Terms of two factors that
    differ only in their block ranks are fitted as one, to their optimum.

    Parameters
    ----------
    terms : the patterns of each term.
    rounds : maximum after the first one; 0: 4; -1: none.
    lower_bound : compute one, by decompositions, if theory has one.
    progress : as in `danaus.factorize`.
    options : passed to `danaus.factorize`: refine, inputs, targets, calibration, ...
    """
    dense = matrix_of(dense, "the matrix")
    terms = (terms,) if isinstance(terms, str) else terms
    arrays = [pattern_array(term) for term in terms]
    for array, count in arrays:
        check_shape(dense.shape, array, count)
    keep: list[Any] = []
    fit = fit_options(dense, keep, options)
    desc = ffi.new("danaus_sum_desc *")
    desc.rounds = whole(rounds, "rounds", -1, INT)
    desc.lower_bound, desc.fit = bool(lower_bound), fit
    counts = [count for _, count in arrays]
    patterns = ffi.new("danaus_pattern[]", [p for a, n in arrays for p in a[0:n]])
    places = ffi.new("danaus_chain *[]", len(arrays))
    result = ffi.new("danaus_factorize_result *")
    steps = ffi.new("danaus_factorize_result[]", len(arrays))
    with listening(progress, "factorize_sum") as (fit.progress, fit.user):
        matrix = pointer(dense), element_code(dense.dtype)
        wanted = patterns, counts, len(arrays), desc
        check(lib.danaus_factorize_sum(*matrix, *wanted, places, result, steps))
        chains = tuple(Chain._adopt(places + n) for n in range(len(arrays)))
    taken = tuple(Step(*facts_of(step)) for step in steps)
    return SumFactorization(chains, *facts_of(result), taken)


def compress_sum(
    dense: ArrayLike,
    parameters: int | float,
    *,
    terms: int = lib.DANAUS_CANDIDATE_TERMS,
    candidates: Iterable[str] = (),
    reduced: bool = False,
    progress: Progress = None,
    **options: Any,
) -> SumFactorization:
    """The sum of chains with the least error for dense[M][N] and at most so many
    parameters.

    Like `danaus.compress`, but sums are tried, too.

    Parameters
    ----------
    terms : chains in a sum, at most 3.
    candidates : as for `danaus.compress`, and "sums": Monarch with its transpose's
        patterns, of two sizes, the fitted chain twice, also with low rank; none: all.
    """
    dense = matrix_of(dense, "the matrix")
    keep: list[Any] = []
    fit = fit_options(dense, keep, options)
    desc = ffi.new("danaus_compress_desc *")
    desc.parameters = whole(share_of(parameters, *dense.shape), "parameters", 0, INT64)
    desc.reduced, desc.fit = bool(reduced), fit
    most = whole(terms, "terms", 1, lib.DANAUS_CANDIDATE_TERMS)
    for name in (candidates,) if isinstance(candidates, str) else candidates:
        desc.candidates |= choose(name, SUM_CANDIDATES, "a candidate")
    places = ffi.new("danaus_chain *[]", most)
    result = ffi.new("danaus_factorize_result *")
    report, found = ffi.new("danaus_candidate[]", MOST), ffi.new("int[2]")
    with listening(progress, "compress_sum") as (fit.progress, fit.user):
        matrix = pointer(dense), element_code(dense.dtype), *dense.shape
        results = places, most, found, result, report, MOST, found + 1
        check(lib.danaus_compress_sum(*matrix, desc, *results))
        chains = tuple(Chain._adopt(places + n) for n in range(found[0]))
    tried = tuple(candidate_of(c) for c in report[0 : found[1]])
    return SumFactorization(chains, *facts_of(result), (), tried)
