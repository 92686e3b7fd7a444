"""Permutations in which a matrix is near to a chain of two factors."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

import danaus


def monarch(rng, rows, cols, blocks, rank):
    """A random Monarch matrix of `blocks` groups of rows and columns."""
    patterns = danaus.patterns.make(
        "monarch", rows, cols, order=2, rank=rank,
        row_radices=(rows // blocks, blocks), col_radices=(blocks, cols // blocks),
    )  # fmt: skip
    weights = [rng.standard_normal((p.a, p.b, p.c, p.d)) for p in patterns]
    return danaus.Chain.from_weights(weights).to_dense(), patterns


def test_a_shuffled_monarch_matrix_is_found_again(rng):
    dense, patterns = monarch(rng, 36, 48, 4, 3)
    rows, cols = rng.permutation(36), rng.permutation(48)
    shuffled = dense[rows][:, cols]
    found = danaus.find_permutations(shuffled, patterns)
    assert found.before > 0.3 and found.after < 1e-7
    again = shuffled[found.rows][:, found.cols]
    assert danaus.factorize(again, patterns).error < 1e-12
    assert danaus.factorize(shuffled, patterns).error == pytest.approx(found.before)


def test_sides_that_stay_and_classes(rng):
    dense, patterns = monarch(rng, 24, 24, 4, 1)
    dense = dense[rng.permutation(24)].astype(np.float32)
    classes = np.arange(24) // 12
    found = danaus.find_permutations(dense, patterns, cols=False, row_classes=classes)
    assert (found.cols == np.arange(24)).all()
    assert (classes[found.rows] == classes).all()
    assert found.after < found.before


def test_wrong_arguments(rng):
    dense, patterns = monarch(rng, 24, 24, 4, 1)
    with pytest.raises(ValueError, match="make"):
        danaus.find_permutations(dense[:20], patterns)
    with pytest.raises(ValueError, match="classes"):
        danaus.find_permutations(dense, patterns, row_classes=[1, 2])
    with pytest.raises(ValueError, match="rounds"):
        danaus.find_permutations(dense, patterns, rounds=-1)
    with pytest.raises(NotImplementedError, match="two factors"):
        danaus.find_permutations(np.eye(8), danaus.patterns.make("dyadic", 8, 8))
    with pytest.raises(ValueError, match="NaN"):
        danaus.find_permutations(np.full((24, 24), np.nan), patterns)
