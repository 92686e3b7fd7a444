"""Moments of a layer's inputs and targets, and the least-squares problem of both.

For rows x of X and targets y of Y a candidate with the matrix K minimises the mean of
||S^T (y - K x - bias)||^2 + lambda ||S^T (W - K)||^2, bias = mean(y) - K mean(x), where
S S^T weighs the errors of the outputs. With A = mean x x^T + lambda 1 = L L^T and
C = mean y x^T + lambda W, both centred, this is ||S^T (C A^-1 - K) L||^2 and a part
that no K changes: the loss of a candidate.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

ROUNDING = 1e-6  # of sums over rows, as a share of mean squares


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
