"""The best of many chains for a matrix, a budget and a layer's inputs."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from test_factorize import layer, relative

import danaus


def test_the_best_candidate_is_returned(rng):
    dense, inputs, targets = layer(rng)
    found = danaus.compress(dense, 0.4, inputs=inputs, targets=targets, bias=True)
    taken = [c for c in found.candidates if c.taken]
    assert len(taken) == 1 and taken[0].patterns == found.chain.patterns
    assert found.error <= min(c.error for c in found.candidates) * (1 + 1e-9)
    assert found.chain.parameters <= 0.4 * dense.size
    error = relative(danaus.apply(found.chain, inputs), targets)
    assert found.error == pytest.approx(error)
    assert {"low-rank", "monarch"} <= {c.kind for c in found.candidates}


def test_low_rank_matrices_become_low_rank(rng):
    dense = rng.standard_normal((30, 4)) @ rng.standard_normal((4, 40))
    found = danaus.compress(dense, 4 * 70, candidates=["low-rank", "dense"])
    assert [c.kind for c in found.candidates] == ["low-rank"]
    assert found.error < 1e-12 and found.parameters == 280
    fewer = danaus.compress(dense, 4 * 66, reduced=True)
    assert fewer.error < 1e-12 and danaus.patterns.freedom(fewer.chain.patterns) == 264


def test_a_sum_of_two_chains_may_be_best(rng):
    blocks = np.kron(np.eye(4), np.ones((8, 8))) * rng.standard_normal((32, 32))
    dense = blocks + rng.standard_normal((32, 1)) @ rng.standard_normal((1, 32))
    dense += 0.1 * rng.standard_normal(dense.shape)
    found = danaus.compress(dense, 400, candidates=["sum", "low-rank"], refine=30)
    taken = next(c for c in found.candidates if c.taken)
    assert taken.kind == "sum" and 0 < taken.first < len(taken.patterns)
    assert taken.patterns[: taken.first] == found.chain.patterns
    assert taken.patterns[taken.first :] == found.second.patterns
    both = found.chain.to_dense() + found.second.to_dense()
    assert found.error == pytest.approx(relative(both, dense), rel=1e-6)
    assert found.error < min(c.error for c in found.candidates if c.kind != "sum")
    alone = danaus.compress(dense, 400, candidates=["low-rank"])
    assert alone.second is None


def test_a_reduced_chain_is_the_same_product(rng):
    weights = [rng.standard_normal(p) for p in ((1, 8, 4, 4), (4, 4, 8, 1))]
    chain = danaus.Chain.from_weights(weights)
    reduced = chain.reduced()
    assert relative(reduced.to_dense(), chain.to_dense()) < 1e-12
    w = reduced.weights[1]
    stored = np.count_nonzero(w) - np.count_nonzero(w == 1)
    freedom = danaus.patterns.freedom(chain.patterns)
    assert stored + weights[0].size == freedom < chain.parameters


def test_an_unknown_option_is_refused(rng):
    with pytest.raises(TypeError, match="refinement"):
        danaus.compress(np.eye(4), 8, refinement=3)
    with pytest.raises(ValueError, match="'low-rank'"):
        danaus.compress(np.eye(4), 8, candidates=["low rank"])
    with pytest.raises(ValueError, match="no candidate"):
        danaus.compress(np.eye(4), 1)
