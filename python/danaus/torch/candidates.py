"""Ways to replace a linear layer, fitted to moments of its inputs and targets.

For rows x of X and targets y of Y a candidate with the matrix K minimises the mean of
||S^T (y - K x - bias)||^2 + lambda ||S^T (W - K)||^2, bias = mean(y) - K mean(x), where
S S^T weighs the errors of the outputs. With A = mean x x^T + lambda 1 = L L^T and
C = mean y x^T + lambda W, both centred, this is ||S^T (C A^-1 - K) L||^2 and a part
that no K changes: the loss of a candidate. Low rank has a closed form, the truncated
singular value decomposition of S^T C L^-T (reduced-rank regression: Izenman,
J. Multivariate Anal. 5, 1975); others are fitted by `danaus.compress`.
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
from danaus.torch.linear import KSLinear

GROUPS = "monarch", "column_groups", "row_groups"  # better in other orders

# Kinds that `danaus.compress` fits, and its names of them.
CHAINS = {kind: kind.replace("_", "-") for kind in (*GROUPS, "sum")}
KINDS = "interpolated", "low_rank", *CHAINS

# Classes in which rows and columns may be permuted; None: they stay.
Free = tuple[Optional[np.ndarray], Optional[np.ndarray]]
STAY: Free = (None, None)

ROUNDING = 1e-6  # of sums over rows, as a share of mean squares

ROUNDS = 20  # of a search for permutations: later ones gain little on trained layers


def sums_of(rows: Tensor, others: Tensor) -> Tensor:
    """rows^T others in f64. A batch of less than f64 is multiplied in f32.

    That costs a third of the time. Its errors, 1e-6 of the largest numbers, are far
    below those of sampling inputs, and do not add up from batch to batch.
    """
    common = torch.promote_types(rows.dtype, others.dtype)
    common = torch.promote_types(common, torch.float32)
    return (rows.to(common).T @ others.to(common)).double()


class Moments:
    """Sums over rows of X[rows][N] and Y[rows][M] in f64, added batch by batch."""

    def __init__(self, rows: int, cols: int, device: torch.device):
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.count = 0
        self.x, self.y = zeros(cols), zeros(rows)
        self.xx, self.yx = zeros(cols, cols), zeros(rows, cols)
        self.energy = 0.0  # sum of y^2

    def add(self, x: Tensor, y: Tensor, xx: Tensor | None = None) -> None:
        """Adds a batch; xx is x^T x where it is known already."""
        self.count += len(x)
        self.x += x.sum(0, dtype=torch.float64)
        self.y += y.sum(0, dtype=torch.float64)
        self.xx += sums_of(x, x) if xx is None else xx
        self.yx += sums_of(y, x)
        self.energy += float(y.double().square().sum())


@dataclass
class Problem:
    """The least-squares problem of a candidate, as moments in f64 on the host."""

    weight: np.ndarray  # W of the dense layer, [M][N]
    mean_x: np.ndarray
    mean_y: np.ndarray
    gram: np.ndarray  # A
    cross: np.ndarray  # C
    energy: float  # mean ||y - mean(y)||^2
    ridge: float  # lambda
    side: np.ndarray | None  # S, lower triangular; None: the unit matrix
    uncalibrated: bool = False  # nothing is known of inputs

    def __post_init__(self) -> None:
        self.root = np.linalg.cholesky(self.gram)
        half = scipy.linalg.solve_triangular(self.root, self.cross.T, lower=True)
        self.whitened = self._weigh(half.T)  # S^T C L^-T

    @classmethod
    def of(
        cls,
        moments: Moments,
        weight: Tensor,
        side: Tensor | None,
        ridge: float,
        bias: bool,
    ) -> Problem:
        """The problem of some moments; lambda is `ridge` times the mean of x^2.

        Without a bias means count as zero.
        """
        n = moments.count
        if n < 2:
            raise ValueError(f"a layer saw {n} rows of calibration data; it needs more")
        mean_x, mean_y = moments.x / n * bias, moments.y / n * bias
        gram = moments.xx / n - mean_x.outer(mean_x)
        cross = moments.yx / n - mean_y.outer(mean_x)
        if not (gram.isfinite().all() and cross.isfinite().all()):
            raise ValueError(
                "a layer saw numbers that are not finite: the calibration data or the "
                "model has such"
            )
        # Sums are rounded: nothing is known of variances far below the mean squares.
        known = ROUNDING * float(moments.xx.diagonal().mean()) / n
        scale = max(ridge * float(gram.diagonal().mean()), known, 1e-30)
        wide = weight.detach().double()
        energy = moments.energy / n - float(mean_y.square().sum())
        energy = max(energy, ROUNDING * moments.energy / n)
        wide, mean_x, mean_y, gram, cross = (
            t.cpu().numpy() for t in (wide, mean_x, mean_y, gram, cross)
        )
        side_array = None if side is None else side.cpu().numpy()
        while True:
            ridged = gram + scale * np.eye(len(gram)), cross + scale * wide
            try:
                return cls(wide, mean_x, mean_y, *ridged, energy, scale, side_array)
            except np.linalg.LinAlgError:  # of many columns that hardly vary
                if scale > known / ROUNDING:
                    raise
                scale *= 10

    @classmethod
    def plain(cls, weight: Tensor, bias: Tensor | None) -> Problem:
        """That of the matrix alone: inputs of mean 0, covariance 1; the bias stays."""
        wide = weight.detach().double().cpu().numpy()
        if not np.isfinite(wide).all():
            raise ValueError("its weights are not all finite")
        rows, cols = wide.shape
        mean_y = np.zeros(rows)
        if bias is not None:
            mean_y = bias.detach().double().cpu().numpy()
        energy = float(np.square(wide).sum())
        eye = np.eye(cols)
        return cls(wide, np.zeros(cols), mean_y, eye, wide, energy, 0.0, None, True)

    def _weigh(self, matrix: np.ndarray) -> np.ndarray:
        return matrix if self.side is None else self.side.T @ matrix

    def loss(self, dense: np.ndarray) -> float:
        """||S^T (C A^-1 - K) L||^2, a mean over rows."""
        return float(np.square(self.whitened - self._weigh(dense @ self.root)).sum())

    def error(self, dense: np.ndarray) -> float:
        """||Y - X K^T - 1 bias^T|| / ||Y - mean(Y)||, unweighted, without the ridge.

        Without a bias of the layer it is ||Y - X K^T|| / ||Y||.
        """
        gram = self.gram - self.ridge * np.eye(len(self.gram))
        cross = self.cross - self.ridge * self.weight
        square = self.energy + float(((dense @ gram - 2 * cross) * dense).sum())
        return math.sqrt(max(square, 0.0) / max(self.energy, 1e-300))

    def bias(self, dense: np.ndarray) -> np.ndarray:
        """mean(y) - K mean(x)."""
        return self.mean_y - dense @ self.mean_x

    def permuted(self, rows: np.ndarray | None, cols: np.ndarray | None) -> Problem:
        """The problem with outputs and inputs in another order; None: as they are."""
        if rows is None and cols is None:
            return self
        rows = np.arange(len(self.mean_y)) if rows is None else rows
        cols = np.arange(len(self.mean_x)) if cols is None else cols
        side = self.side
        if side is not None:  # of the permuted S S^T
            side = np.linalg.qr(side[rows].T, mode="r").T
        return replace(
            self,
            weight=self.weight[np.ix_(rows, cols)],
            mean_x=self.mean_x[cols],
            mean_y=self.mean_y[rows],
            gram=self.gram[np.ix_(cols, cols)],
            cross=self.cross[np.ix_(rows, cols)],
            side=side,
        )

    def row_weights(self) -> np.ndarray:
        """How much an output's error counts: roots of the diagonal of S S^T.

        None is below a millionth of the largest.
        """
        if self.side is None:
            return np.ones(len(self.weight))
        scale = np.sqrt(np.square(self.side).sum(1))
        return np.maximum(scale, 1e-6 * scale.max())

    def solution(self) -> np.ndarray:
        """The matrix C A^-1, which has the least loss of all."""
        return scipy.linalg.cho_solve((self.root, True), self.cross.T).T


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
