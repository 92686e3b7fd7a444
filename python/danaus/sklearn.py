"""A transformer for scikit-learn, which this module needs and `danaus` does not."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted, validate_data

from danaus._apply import apply
from danaus._arrays import whole
from danaus.factorize import factorize
from danaus.patterns import Patterns, make


class Butterfly(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal components by a butterfly: a fast transform that approximates them.

    `fit` finds the n principal axes of data of n features, as PCA with all components
    does, and a chain K of Kronecker-sparse factors whose outputs on the centred data
    come close to the components, in least squares (`danaus.factorize` with inputs).
    `transform` multiplies by K: for n = 2^L and rank 1 in 2 n L operations for each
    sample, not n^2. How much is lost depends on the data: see `error_`.

    Parameters
    ----------
    patterns : the factors' patterns, for as many rows and columns as features; None:
        those of `factors` and `rank`.
    factors : number of factors, at least 2; None: as many as n has prime factors.
    rank : block rank between neighbours. A greater one is nearer and costs more, soon
        more than the dense matrix.
    whiten : components get variance 1, except those without variance.
    refine : the most passes over the factors; 0: 4.

    Attributes
    ----------
    chain_ : the chain K.
    mean_ : of each feature.
    components_ : the exact axes that K approximates, one a row, scaled if `whiten`.
    explained_variance_ : of the exact components, the largest first.
    error_ : of the chain's outputs on the data, relative, in the Frobenius norm.
    """

    def __init__(
        self,
        patterns: Patterns | None = None,
        *,
        factors: int | None = None,
        rank: int = 1,
        whiten: bool = False,
        refine: int = 0,
    ):
        self.patterns, self.factors, self.rank = patterns, factors, rank
        self.whiten, self.refine = whiten, refine

    def fit(self, X: ArrayLike, y: Any = None) -> Butterfly:
        """Finds mean, axes and chain of X[samples][features]; y is not used."""
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        self.mean_ = X.mean(0)
        centred = X - self.mean_
        self.explained_variance_, axes = _principal_axes(centred)
        if self.whiten:
            deviations = np.sqrt(self.explained_variance_)[:, None]
            axes = np.divide(axes, deviations, out=axes, where=deviations > 0)
        self.components_ = axes
        samples = {"inputs": centred} if centred.any() else {}
        found = factorize(axes, self._chosen(), refine=self.refine, **samples)
        self.chain_, self.error_ = found.chain, found.error
        self._n_features_out = self.n_features_in_
        return self

    def _chosen(self) -> Patterns:
        if self.patterns is not None:
            return self.patterns
        n, factors = self.n_features_in_, self.factors
        factors = max(2, _prime_factors(n)) if factors is None else factors
        order = whole(factors, "factors", 2, 64)
        return make("monarch", n, n, order=order, rank=self.rank)

    def transform(self, X: ArrayLike) -> np.ndarray:
        """K (x - mean) of every row x, in the type of the data of `fit`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=self.mean_.dtype, reset=False)
        return apply(self.chain_, X - self.mean_)


def _principal_axes(centred: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances, the largest first, and their axes, one a row.

    The largest entry of each axis is positive. Variances that are rounding are 0.
    """
    samples, n = centred.shape
    _, values, axes = np.linalg.svd(centred, full_matrices=samples < n)
    variances = np.zeros(n, centred.dtype)
    variances[: values.size] = values**2 / max(samples - 1, 1)
    least = max(centred.shape) * np.finfo(centred.dtype).eps * values[0]
    variances[: values.size][values <= least] = 0
    largest = np.abs(axes).argmax(1)
    return variances, axes * np.sign(axes[np.arange(n), largest])[:, None]


def _prime_factors(number: int) -> int:
    count, divisor = 0, 2
    while number > 1:
        while number % divisor == 0:
            number, count = number // divisor, count + 1
        divisor += 1
    return count
