"""The transformer for scikit-learn."""

# SPDX-License-Identifier: Apache-2.0
import pickle

import numpy as np
import pytest

import danaus

pytest.importorskip("sklearn")

from sklearn.decomposition import PCA  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from danaus.sklearn import Butterfly  # noqa: E402


@parametrize_with_checks([Butterfly(), Butterfly(rank=2, whiten=True)])
def test_estimators_checks(estimator, check):
    check(estimator)


def a_butterfly(rng, n, factors):
    """An orthogonal matrix that is a chain of such patterns."""
    matrix = np.eye(n)
    for p in danaus.patterns.make("monarch", n, n, order=factors):
        blocks = rng.standard_normal((p.a, p.d, p.b, p.c))
        w = np.linalg.qr(blocks)[0].transpose(0, 2, 3, 1)
        matrix = matrix @ danaus.Chain.from_weights([w]).to_dense()
    return matrix


@pytest.mark.parametrize("n", [4, 8, 16])
@pytest.mark.parametrize("whiten", [False, True])
def test_axes_that_are_a_butterfly_are_found(rng, n, whiten):
    axes = a_butterfly(rng, n, n.bit_length() - 1)
    scales = np.linspace(1, 4, n)[::-1]
    z = np.linalg.qr(rng.standard_normal((200, n)) - 0)[0]
    z = np.linalg.qr(z - z.mean(0))[0] * scales  # no correlations at all
    x = z @ axes + rng.standard_normal(n)
    found = Butterfly(whiten=whiten).fit(x)
    assert found.error_ < 1e-6
    exact = PCA(whiten=whiten).fit(x)
    np.testing.assert_allclose(found.explained_variance_, exact.explained_variance_)
    made, should = found.transform(x), exact.transform(x)
    signs = np.sign((made * should).sum(0))
    np.testing.assert_allclose(made, should * signs, atol=1e-6 * np.abs(should).max())


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 12])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_full_rank_is_exact_for_any_number_of_features(rng, n, dtype):
    x = rng.standard_normal((50, n)).astype(dtype)
    found = Butterfly(rank=n, factors=2).fit(x)
    made = found.transform(x)
    assert made.dtype == dtype
    centred = x.astype(float) - x.astype(float).mean(0)
    should = centred @ found.components_.T
    limit = 1e-4 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(made, should, atol=limit)
    covariance = np.cov(centred @ found.components_.T, rowvar=False).reshape(n, n)
    variances = np.diag(found.explained_variance_)
    np.testing.assert_allclose(covariance, variances, atol=limit)


def test_the_error_is_that_of_the_outputs_and_falls_with_the_rank(rng):
    x = rng.standard_normal((300, 16)) @ rng.standard_normal((16, 16))
    errors = []
    for rank in 1, 2, 4:
        found = Butterfly(rank=rank, factors=2).fit(x)
        should = (x - x.mean(0)) @ found.components_.T
        gap = np.linalg.norm(found.transform(x) - should) / np.linalg.norm(should)
        assert abs(found.error_ - gap) < 1e-6
        errors.append(gap)
    assert errors[0] > errors[1] > errors[2]


def test_fewer_samples_than_features_and_constant_data(rng):
    x = rng.standard_normal((3, 8))
    found = Butterfly(whiten=True).fit(x)
    assert np.isfinite(found.transform(x)).all()
    assert (found.explained_variance_[2:] == 0).all()
    same = np.ones((5, 4))
    assert (Butterfly().fit(same).transform(same) == 0).all()


def test_it_is_part_of_pipelines_and_pickled(rng):
    x = rng.standard_normal((40, 8))
    line = make_pipeline(StandardScaler(), Butterfly(patterns="2,4,4,1 1,2,2,4"))
    made = line.fit_transform(x)
    again = pickle.loads(pickle.dumps(line)).transform(x)
    np.testing.assert_array_equal(again, made)
    assert list(line[-1].get_feature_names_out())[:2] == ["butterfly0", "butterfly1"]


def test_wrong_settings_are_named(rng):
    x = rng.standard_normal((9, 4))
    with pytest.raises(TypeError, match="factors has to be a whole number"):
        Butterfly(factors=1.5).fit(x)
    with pytest.raises(ValueError, match="4"):
        Butterfly(patterns="1,8,8,1").fit(x)
