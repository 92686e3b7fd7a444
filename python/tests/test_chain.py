"""Chains: products against f64 oracles, views, files."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from conftest import dense_chain, random_array, random_patterns

import danaus


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("factors", [1, 2, 3])
def test_apply_matches_the_dense_product(rng, dtype, factors):
    chain = danaus.Chain.create(random_patterns(rng, factors), dtype)
    for w in chain.weights:
        w[...] = random_array(rng, w.shape, w.dtype)
    dense = dense_chain(chain.weights)
    x = random_array(rng, (7, chain.shape[1]), chain.dtype)
    error = np.abs(danaus.apply(chain, x) - x @ dense.T).max()
    tolerance = 1e-4 if dtype in ("f32", "c64") else 1e-12
    assert error <= tolerance * np.abs(x).max() * np.abs(dense).sum(1).max()
