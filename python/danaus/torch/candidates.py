"""Ways to replace a linear layer, fitted to moments of its inputs and targets.

A candidate minimises the loss of a `danaus.torch.moments.Problem`, in the letters that
are explained there. Low rank has a closed form, the truncated singular value
decomposition of S^T C L^-T (reduced-rank regression: Izenman, J. Multivariate Anal. 5,
1975); others are fitted by `danaus.compress`.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

import numpy as np
import scipy.linalg
import torch
from torch import Tensor, nn

from danaus.chain import Chain
from danaus.compress import compress
from danaus.factorize import Calibration, factorize
from danaus.patterns import Pattern
from danaus.permute import find_permutations
from danaus.torch.composed import InterpolatedLinear, SumLinear
from danaus.torch.int8 import narrow, widen
from danaus.torch.linear import KSLinear
from danaus.torch.moments import Problem

GROUPS = "monarch", "column_groups", "row_groups"  # better in other orders

# Kinds that `danaus.compress` fits, and its names of them.
CHAINS = {kind: kind.replace("_", "-") for kind in (*GROUPS, "sum")}
KINDS = "interpolated", "low_rank", *CHAINS

# Classes in which rows and columns may be permuted; None: they stay.
Free = tuple[Optional[np.ndarray], Optional[np.ndarray]]
STAY: Free = (None, None)

ROUNDS = 20  # of a search for permutations: later ones gain little on trained layers


@dataclass
class Candidate:
    """A fitted layer; `chains` has a list of factors w[a][b][c][d] for each chain."""

    kind: str
    chains: list[list[np.ndarray]]
    dense: np.ndarray
    rows: list[int] | None = None  # of the basis, where the kind is "interpolated"
    loss: float = math.inf
    # Which of the problem's outputs and inputs the rows and columns are; None: all its.
    order: tuple[np.ndarray | None, np.ndarray | None] = (None, None)

    @property
    def parameters(self) -> int:
        """Weights, without the bias."""
        return sum(w.size for chain in self.chains for w in chain)

    @property
    def patterns(self) -> str:
        """Those of each chain; " + " is between chains."""
        chains = (" ".join(str(Pattern(*w.shape)) for w in c) for c in self.chains)
        return " + ".join(chains)

    def rounded(self) -> Candidate:
        """The same with weights of 8 bits."""
        chains = [[_rounded(w) for w in chain] for chain in self.chains]
        made = [Chain.from_weights(chain).to_dense() for chain in chains]
        if self.rows is None:
            return replace(self, chains=chains, dense=sum(made))
        dense = np.empty_like(self.dense)
        others = np.setdiff1d(np.arange(len(dense)), self.rows)
        dense[self.rows], dense[others] = made[0], made[1] @ made[0]
        return replace(self, chains=chains, dense=dense)

    def groups(self, side: int) -> np.ndarray:
        """Numbers of rows (side 0) or columns (1): equal ones may change places."""
        found = np.zeros(self.dense.shape[side], np.int64)
        for chain in self.chains if self.rows is None else []:
            a, b, c, d = chain[-side].shape
            middle = c if side else b
            place = np.arange(a * d).reshape(a, 1, d).repeat(middle, 1).ravel()
            found = found * (a * d) + place
        return found

    def moved(self, side: int, order: np.ndarray) -> Candidate:
        """The same with rows (side 0) or columns (1) in another order of groups."""
        dense = self.dense.take(order, axis=side)
        if self.rows is not None and side == 0:
            return self._rows_moved(order, dense)
        # The outputs of the basis are no columns of the dense matrix.
        count = 1 if self.rows is not None else len(self.chains)
        chains = [list(chain) for chain in self.chains]
        for chain in chains[:count]:
            chain[-side] = _moved(chain[-side], side, order)
        return replace(self, chains=chains, dense=dense)

    def _rows_moved(self, order: np.ndarray, dense: np.ndarray) -> Candidate:
        place = order.argsort()  # of each row there was
        others = np.setdiff1d(np.arange(len(order)), self.rows)
        rest = self.chains[1][0][:, place[others].argsort()]
        chains = [self.chains[0], [rest]]
        return replace(self, chains=chains, dense=dense, rows=place[self.rows].tolist())

    def module(self, bias: np.ndarray | None, like: Tensor) -> nn.Module:
        """The layer, with weights of the type of `like` and on its device."""
        if self.rows is None:
            first = _layer(self.chains[0], bias, like)
            if len(self.chains) == 1:
                return first
            return SumLinear(first, _layer(self.chains[1], None, like))
        kept = rest = None
        if bias is not None:
            kept = bias[self.rows]
            others = np.setdiff1d(np.arange(len(bias)), self.rows)
            rest = bias[others] - self.chains[1][0][0, :, :, 0] @ kept
        basis, others = (_layer(c, b, like) for c, b in zip(self.chains, (kept, rest)))
        return InterpolatedLinear(basis, others, self.rows)


def _moved(weights: np.ndarray, side: int, order: np.ndarray) -> np.ndarray:
    """A factor w[a][b][c][d] with its rows or columns in another order."""
    axes = (0, 2, 3, 1) if side else (0, 1, 3, 2)
    turned = weights.transpose(axes)
    rows = turned.reshape(len(order), -1)[order]
    return rows.reshape(turned.shape).transpose(np.argsort(axes))


def _rounded(w: np.ndarray) -> np.ndarray:
    found = widen(*narrow(torch.from_numpy(np.ascontiguousarray(w))))
    return found.numpy().astype(w.dtype)


def _layer(chain: list[np.ndarray], bias: np.ndarray | None, like: Tensor) -> KSLinear:
    patterns = [Pattern(*w.shape) for w in chain]
    layer = KSLinear(
        patterns[-1].cols,
        patterns[0].rows,
        patterns,
        bias=bias is not None,
        device=like.device,
        dtype=like.dtype,
    )
    with torch.no_grad():
        for to, w in zip(layer.weights, chain):
            to.copy_(torch.from_numpy(np.ascontiguousarray(w)))
        if bias is not None:
            layer.bias.copy_(torch.from_numpy(bias))
    return layer


# ---- parameters and ranks ----


def interpolated_parameters(rows: int, cols: int, rank: int) -> int:
    """Weights of an `InterpolatedLinear` of that rank."""
    return rank * (rows + cols - rank)


def interpolated_rank(rows: int, cols: int, parameters: int) -> int:
    """The largest rank with so many weights: the smaller root of a quadratic."""
    half = (rows + cols) / 2
    rank = int(half - math.sqrt(max(half * half - parameters, 0.0)))
    rank = min(max(rank - 1, 0), min(rows, cols))
    while (
        rank < min(rows, cols)
        and interpolated_parameters(rows, cols, rank + 1) <= parameters
    ):
        rank += 1
    return rank


# ---- fits ----


def _factor(matrix: np.ndarray) -> np.ndarray:
    """A matrix as the one factor (1, b, c, 1)."""
    return matrix[None, :, :, None]


def _low_rank(problem: Problem, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """U[M][r], V[r][N] with the smallest loss of U V."""
    white, rows = problem.whitened, len(problem.whitened)
    size = min(white.shape)
    square = white @ white.T if rows == size else white.T @ white
    _, basis = scipy.linalg.eigh(square, subset_by_index=[size - rank, size - 1])
    left, right = (basis, basis.T @ white) if rows == size else (white @ basis, basis.T)
    if problem.side is not None:
        left = scipy.linalg.solve_triangular(problem.side.T, left, lower=False)
    right = scipy.linalg.solve_triangular(problem.root.T, right.T, lower=False).T
    return left, right


def fit_low_rank(problem: Problem, rank: int) -> Candidate:
    """The best two factors (1, M, r, 1) (1, r, N, 1)."""
    left, right = _low_rank(problem, rank)
    return Candidate("low_rank", [[_factor(left), _factor(right)]], left @ right)


def fit_interpolated(problem: Problem, rank: int) -> Candidate:
    """The same matrix as `fit_low_rank`'s, by r of its rows.

    They are those that QR with column pivoting of U^T takes first, so that the numbers
    of T are small.
    """
    left, right = _low_rank(problem, rank)
    q, upper, order = scipy.linalg.qr(left.T, mode="economic", pivoting=True)
    rows = np.sort(order[:rank])
    others = np.setdiff1d(np.arange(len(left)), rows)
    basis = left[rows] @ right
    rest = np.linalg.solve(left[rows].T, left[others].T).T
    dense = np.empty_like(problem.weight)
    dense[rows], dense[others] = basis, rest @ basis
    chains = [[_factor(basis)], [_factor(rest)]]
    return Candidate("interpolated", chains, dense, [int(r) for r in rows])


def fit_dense(problem: Problem) -> Candidate:
    """The matrix of the least loss of all."""
    dense = problem.solution()
    return Candidate("dense", [[_factor(dense)]], dense)


class Scaled:
    """A problem as `danaus.factorize` takes it.

    The diagonal of S S^T weighs its outputs: rows of a factor cannot be mixed without
    leaving its support, but scaled.
    """

    def __init__(self, problem: Problem):
        self.scale = problem.row_weights()
        self.matrix = self.scale[:, None] * problem.weight
        self.options: dict[str, Any] = {}
        if problem.uncalibrated:
            return
        rows, cols = problem.weight.shape
        # The sums are those of two rows, which have the right means, and contain the
        # ridge.
        self.options["calibration"] = Calibration(
            2,
            2 * problem.gram,
            np.zeros(cols),
            2 * self.scale[:, None] * problem.cross,
            2 * float(np.square(self.scale) @ _row_energies(problem)),
            np.zeros(rows),
        )

    def candidate(self, kind: str, *chains: Chain) -> Candidate:
        """The chains of the scaled matrix, or their sum, as a candidate."""
        dense = np.zeros_like(self.matrix)
        weights = []
        for chain in chains:
            dense += np.asarray(chain.to_dense())
            factors = [np.array(w, np.float64) for w in chain.weights]
            a, b, _, d = factors[0].shape
            factors[0] = factors[0] / self.scale.reshape(a, b, 1, d)
            weights.append(factors)
        return Candidate(kind, weights, dense / self.scale[:, None])


def fit_chain(
    problem: Problem,
    patterns: Sequence[Pattern],
    kind: str = "chain",
    tell: Callable[[float], object] | None = None,
) -> Candidate:
    """A chain of these patterns by `danaus.factorize`."""
    scaled = Scaled(problem)
    found = factorize(scaled.matrix, patterns, progress=tell, **scaled.options)
    return scaled.candidate(kind, found.chain)


def fit_best(
    problem: Problem, budget: int, kinds: Sequence[str], free: Free
) -> list[Candidate]:
    """The best chain, or sum of two, of some kinds of `danaus.compress`.

    Where rows or columns may be permuted, a better order is searched for every chain of
    groups that it tried.
    """
    scaled = Scaled(problem)
    names = [CHAINS[kind] for kind in kinds]
    taken = compress(scaled.matrix, budget, candidates=names, **scaled.options)
    chains = [chain for chain in (taken.chain, taken.second) if chain is not None]
    kind_of = {name: kind for kind, name in CHAINS.items()}
    (best,) = (tried for tried in taken.candidates if tried.taken)
    found = [scaled.candidate(kind_of[best.kind], *chains)]
    if all(classes is None for classes in free):
        return found
    # Orders suit the solution without structure, weighed by the diagonals of S S^T, A.
    weighed = scaled.scale[:, None] * problem.solution()
    weighed *= np.sqrt(problem.gram.diagonal())
    for tried in taken.candidates:
        kind = kind_of[tried.kind]
        if kind in GROUPS:
            found += fit_permuted(problem, weighed, tried.patterns, kind, free)
    return found


def fit_permuted(
    problem: Problem,
    weighed: np.ndarray,
    patterns: Sequence[Pattern],
    kind: str,
    free: Free,
) -> list[Candidate]:
    """A chain for the order that suits `weighed`, if that is better than none."""
    better = find_permutations(
        weighed,
        patterns,
        rows=free[0] is not None,
        cols=free[1] is not None,
        row_classes=free[0],
        col_classes=free[1],
        rounds=ROUNDS,
    )
    if better.after >= better.before:
        return []
    moved = problem.permuted(better.rows, better.cols)
    candidate = fit_chain(moved, patterns, kind)
    candidate.order = better.rows, better.cols
    candidate.loss = moved.loss(candidate.dense)
    return [candidate]


def _row_energies(problem: Problem) -> np.ndarray:
    """At least ||C A^-1 L||^2 of each row: what `danaus_calibration` calls energy."""
    half = scipy.linalg.solve_triangular(problem.root, problem.cross.T, lower=True)
    return np.square(half).sum(0) * (1 + 1e-9)


# ---- the choice ----


def _least_groups(rows: int, cols: int, groups: Sequence[tuple[int, int]]) -> int:
    """The fewest weights of (1, M/q, p r, q) (p, q r, N/p, 1); groups are p, q."""
    found = (
        p * rows + q * cols
        for p, q in groups
        if rows % q == 0 and cols % p == 0 and min(rows // q, cols // p) > 1
    )
    return min(found, default=rows * cols)


def least_parameters(rows: int, cols: int, kinds: Sequence[str]) -> int:
    """The fewest weights that a candidate of these kinds has; rows cols: only dense."""
    blocks = [q for q in (4, 8, 16) if rows % q == 0 and cols % q == 0]
    terms = [rows * cols // q for q in blocks]
    terms += [(2 * q - 1) * (rows + cols) for q in blocks]
    least = {
        "interpolated": rows + cols - 1,
        "low_rank": rows + cols,
        "column_groups": _least_groups(rows, cols, [(p, 1) for p in (2, 3, 4, 8)]),
        "row_groups": _least_groups(rows, cols, [(1, q) for q in (2, 3, 4, 8)]),
        "monarch": _least_groups(rows, cols, [(2, 2)]),
        "sum": rows + cols + min(terms, default=rows * cols),
    }
    return min(rows * cols, *(least[kind] for kind in kinds))


def candidates(
    problem: Problem, budget: int, kinds: Sequence[str], free: Free = STAY
) -> list[Candidate]:
    """Fitted candidates of at most `budget` weights, with their losses."""
    rows, cols = problem.weight.shape
    if budget >= rows * cols:
        found = [fit_dense(problem)]
    else:
        found = []
        most = min(rows, cols) - 1
        if "interpolated" in kinds:
            rank = min(interpolated_rank(rows, cols, budget), most)
            found += [fit_interpolated(problem, rank)] if rank > 0 else []
        if "low_rank" in kinds:
            rank = min(budget // (rows + cols), most)
            found += [fit_low_rank(problem, rank)] if rank > 0 else []
        chains = [kind for kind in kinds if kind in CHAINS]
        if chains and budget >= least_parameters(rows, cols, chains):
            found += fit_best(problem, budget, chains, free)
    for candidate in found:
        if candidate.loss == math.inf:
            candidate.loss = problem.loss(candidate.dense)
    return found


def best(
    problem: Problem, budget: int, kinds: Sequence[str], free: Free = STAY
) -> Candidate:
    """The candidate of least loss; ValueError where the budget pays for none."""
    found = candidates(problem, budget, kinds, free)
    if not found:
        rows, cols = problem.weight.shape
        raise ValueError(
            f"{budget} weights are too few for a layer {rows} x {cols} of the kinds "
            f"{', '.join(kinds)}"
        )
    return min(found, key=lambda candidate: candidate.loss)
