"""Sums of chains: fits, certificates, and the best of a budget."""

# SPDX-License-Identifier: Apache-2.0
import pytest
from test_factorize import layer, relative

import danaus

MONARCH = [(1, 8, 4, 4), (4, 4, 8, 1)]
TURNED = [(4, 8, 4, 1), (1, 4, 8, 4)]
LOW = [(1, 32, 2, 1), (1, 2, 32, 1)]


def total(chains):
    return sum(chain.to_dense() for chain in chains)


def test_errors_are_those_of_the_sum(rng):
    dense = rng.standard_normal((32, 32))
    found = danaus.factorize_sum(dense, [LOW, MONARCH, TURNED], lower_bound=True)
    assert [c.patterns for c in found.chains] == [
        tuple(t) for t in (LOW, MONARCH, TURNED)
    ]
    assert found.error == pytest.approx(relative(total(found.chains), dense))
    errors = [step.error for step in found.steps]
    assert errors == sorted(errors, reverse=True)
    assert found.lower_bound <= found.error <= errors[-1] <= found.upper_bound
    assert found.parameters == sum(c.parameters for c in found.chains)


def test_terms_of_one_pattern_are_at_their_optimum(rng):
    dense = rng.standard_normal((32, 32))
    found = danaus.factorize_sum(dense, [MONARCH] * 3)
    whole = danaus.factorize(dense, [(1, 8, 12, 4), (4, 12, 8, 1)])
    assert found.error == pytest.approx(whole.error)
    assert found.lower_bound == pytest.approx(whole.error)
    combined = danaus.add(*found.chains)
    assert combined.patterns == whole.chain.patterns


def test_calibrated_sums_fit_their_targets(rng):
    dense, inputs, targets = layer(rng)
    rows, cols = dense.shape
    low = [(1, rows, 2, 1), (1, 2, cols, 1)]
    found = danaus.factorize_sum(
        dense,
        [low, [(2, rows // 2, cols // 2, 1)]],
        inputs=inputs,
        targets=targets,
        bias=True,
    )
    made = danaus.apply(found.chains[0], inputs) + inputs @ found.chains[1].to_dense().T
    assert found.error == pytest.approx(relative(made, targets), abs=1e-4)
    assert found.lower_bound is None


def test_the_best_sum_of_a_budget(rng):
    parts = (
        danaus.Chain.from_weights([rng.standard_normal(p) for p in t])
        for t in (MONARCH, TURNED)
    )
    dense = total(parts)
    found = danaus.compress_sum(dense, 0.5, refine=50)
    taken = next(c for c in found.candidates if c.taken)
    assert len(taken.counts) == len(found.chains) > 1
    assert found.error == pytest.approx(relative(total(found.chains), dense))
    assert found.error < danaus.compress(dense, 0.5).error
    assert found.parameters <= 0.5 * dense.size
    named = danaus.compress_sum(dense, 0.5, candidates=["sums"])
    assert {c.kind for c in named.candidates} == {"sums"}
    alone = danaus.compress_sum(dense, 0.5, terms=1)
    assert len(alone.chains) == 1


def test_wrong_arguments_are_refused(rng):
    dense = rng.standard_normal((32, 32))
    with pytest.raises(ValueError, match="terms"):
        danaus.factorize_sum(dense, [])
    with pytest.raises(ValueError, match="32 x 32"):
        danaus.factorize_sum(dense, [LOW, [(1, 4, 4, 1)]])
    with pytest.raises(TypeError, match="refinement"):
        danaus.factorize_sum(dense, [LOW], refinement=3)
    with pytest.raises(ValueError, match="terms"):
        danaus.compress_sum(dense, 0.5, terms=9)
    with pytest.raises(ValueError, match="'sum'"):
        danaus.compress(dense, 0.5, candidates=["sums"])
