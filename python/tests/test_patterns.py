"""Patterns: forms, checks, named chains, the search by number of parameters."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from danaus import Pattern, patterns, select_ks_pattern

TEXT = "1,192,48,2 2,48,192,1"
ROWS = (Pattern(1, 192, 48, 2), Pattern(2, 48, 192, 1))


@pytest.mark.parametrize(
    "form",
    [TEXT, ROWS, [list(p) for p in ROWS], np.array(ROWS), [np.array(p) for p in ROWS]],
)
def test_every_form_is_the_same_chain(form):
    assert patterns.as_patterns(form) == ROWS
    patterns.check_composable(form)


@pytest.mark.parametrize("form", ["1,2,3,4", Pattern(1, 2, 3, 4), [1, 2, 3, 4]])
def test_one_pattern_is_a_chain(form):
    assert patterns.as_patterns(form) == (Pattern(1, 2, 3, 4),)


def test_a_pattern_knows_its_matrix():
    pattern = Pattern(2, 3, 4, 5)
    assert (pattern.rows, pattern.cols, pattern.parameters) == (30, 40, 120)
    assert pattern.transposed == Pattern(2, 4, 3, 5)
    assert str(pattern) == "2,3,4,5"
    assert patterns.parse(" ".join(map(str, ROWS))) == ROWS


def test_what_does_not_compose_is_named():
    with pytest.raises(ValueError, match="factor 0 has 96 columns"):
        patterns.check_composable("1,192,48,2 2,49,192,1")
    with pytest.raises(ValueError, match="pattern 1 has 3 sizes"):
        patterns.as_patterns([(1, 2, 3, 4), (1, 2, 3)])
    with pytest.raises(ValueError, match="a size of pattern 0"):
        patterns.as_patterns([(0, 2, 3, 4)])


def test_what_cannot_be_factorised_is_named():
    patterns.check_chainable(TEXT)
    with pytest.raises(ValueError, match="factor"):
        patterns.check_chainable("2,2,3,1 3,2,2,1")


@pytest.mark.parametrize(
    "kind, rows, cols, options, count",
    [
        ("dense", 6, 10, {}, 1),
        ("low-rank", 6, 10, {"rank": 2}, 2),
        ("dyadic", 16, 16, {}, 4),
        ("block-butterfly", 24, 24, {"rank": 3}, 3),
        ("monarch", 12, 20, {"rank": 2}, 2),
        ("monarch", 24, 60, {"order": 3}, 3),
        ("monarch", 12, 20, {"row_radices": [3, 4], "col_radices": [4, 5]}, 2),
        ("kaleidoscope", 16, 16, {}, 8),
        (
            "radices",
            12,
            30,
            {"row_radices": (2, 3, 2), "col_radices": (3, 2, 5), "ranks": (1, 2)},
            3,
        ),
    ],
)
def test_named_chains_have_the_shape_that_was_asked_for(
    kind, rows, cols, options, count
):
    made = patterns.make(kind, rows, cols, **options)
    assert len(made) == count
    assert made[0].rows == rows and made[-1].cols == cols
    patterns.check_composable(made)
    if kind != "kaleidoscope":
        patterns.check_chainable(made)


def test_lists_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="col_radices has 3 sizes where 2"):
        patterns.make("radices", 12, 12, row_radices=[3, 4], col_radices=[2, 2, 3])
    with pytest.raises(ValueError, match="ranks has 2 sizes where 1"):
        patterns.make("monarch", 12, 12, ranks=[1, 1])
    with pytest.raises(ValueError, match="'monarch'"):
        patterns.make("monarchs", 12, 12)


@pytest.mark.parametrize("budget", [0.1, 0.3, 20_000])
def test_a_fitting_chain_keeps_the_budget(budget):
    made = patterns.fit(384, 256, budget)
    most = budget * 384 * 256 if budget < 1 else budget
    assert most / 2 <= sum(p.parameters for p in made) <= most
    assert made[0].rows == 384 and made[-1].cols == 256
    with pytest.raises(ValueError):
        patterns.fit(384, 256, 3)


@pytest.mark.parametrize(
    "rows, cols, least, pattern",
    [
        (12, 18, 1, "6,2,3,1"),
        (12, 18, 3, "3,4,6,1"),
        (12, 18, 12, "1,12,18,1"),
        (384, 1536, 48, "8,48,192,1"),
        (7, 9, 1, "1,7,9,1"),
    ],
)
def test_the_rule_of_h_takes_the_smallest_blocks(rows, cols, least, pattern):
    found = select_ks_pattern(rows, cols, 1.0, least_block=least)
    assert (str(found), found.rows, found.cols) == (pattern, rows, cols)


def test_no_pattern_of_the_rule_has_a_greater_h():
    every = [
        Pattern(a, 24 // (a * d), 36 // (a * d), d)
        for a in range(1, 13)
        for d in range(1, 13)
        if 12 % (a * d) == 0 and 24 // (a * d) >= 4
    ]
    best = max((p.b + p.c) / (p.b * p.c) for p in every)
    found = select_ks_pattern(24, 36, 1.0, least_block=4)
    assert (found.b + found.c) / (found.b * found.c) == best


def test_a_budget_of_the_rule_is_kept():
    assert select_ks_pattern(12, 18, 36).parameters == 36
    assert select_ks_pattern(12, 18, 0.17).parameters == 36
    with pytest.raises(ValueError, match="36 parameters or more, not 35"):
        select_ks_pattern(12, 18, 35)
    with pytest.raises(ValueError, match="72 parameters or more, not 36"):
        select_ks_pattern(12, 18, 36, least_block=4)


@pytest.mark.parametrize(
    "arguments, options, error, sentence",
    [
        ((0, 3, 1), {}, ValueError, "rows has to be from 1"),
        ((3, 2.0, 1), {}, TypeError, "cols has to be a whole number"),
        ((3, 3, 0), {}, ValueError, "parameters has to be from 1"),
        ((3, 3, 1.5), {}, ValueError, "a share of parameters"),
        ((3, 3, float("nan")), {}, ValueError, "a share of parameters"),
        ((3, 3, 9), {"least_block": 0}, ValueError, "least_block has to be from 1"),
        ((3, 3, 9), {"least_block": 4}, ValueError, "no blocks of 4 x 4"),
    ],
)
def test_the_rule_refuses(arguments, options, error, sentence):
    with pytest.raises(error, match=sentence):
        select_ks_pattern(*arguments, **options)
