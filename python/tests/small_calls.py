"""A small chain and filters of whole numbers, for tests of how calls take arrays."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np

import danaus

FILTERS = np.arange(1.0, 9).reshape(4, 2)
PATTERNS = "1,2,2,2 2,2,2,1"


def a_chain(dtype="f64"):
    rng = np.random.default_rng(1)
    shapes = [tuple(p) for p in danaus.patterns.parse(PATTERNS)]
    weights = [rng.integers(1, 4, shape).astype(float) for shape in shapes]
    return danaus.Chain.from_weights(weights, dtype=dtype)
