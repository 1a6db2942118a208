"""Intervals that hold at every look: their law, their limits, and what they say."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.studies.sequential import (
    FIRST,
    PRIOR,
    interval,
    looks,
    reach,
    seeds_until_clear,
    verdict,
)

ALPHAS = st.floats(1e-4, 0.2)
SAMPLES = st.integers(FIRST + 6, 80).flatmap(
    lambda n: st.builds(lambda seed: np.random.default_rng(seed).normal(size=n), st.integers(0, 99))
)


def martingale(differences, mu, prior=PRIOR):
    """e_n as its definition has it."""
    n = len(differences)
    t = (differences.mean() - mu) / (differences.std(ddof=1) / np.sqrt(n))
    u, r = t**2 / (n - 1), prior / (n + prior)
    return np.sqrt(r) * ((1 + u) / (1 + r * u)) ** (n / 2)


@given(SAMPLES, ALPHAS)
def test_the_ends_are_where_the_martingale_reaches_its_bound(differences, alpha):
    low, high = interval(differences, alpha)
    for end, inside, outside in ((low, low + 1e-3, low - 1e-3), (high, high - 1e-3, high + 1e-3)):
        assert martingale(differences, end) == pytest.approx(1 / alpha, rel=1e-6)
        assert martingale(differences, inside) < 1 / alpha < martingale(differences, outside)


@given(SAMPLES, ALPHAS, st.floats(0.1, 10), st.floats(-5, 5))
def test_another_unit_and_origin_move_the_interval_alike(differences, alpha, scale, shift):
    there = np.array(interval(scale * differences + shift, alpha))
    assert there == pytest.approx(scale * np.array(interval(differences, alpha)) + shift, rel=1e-6)


@given(SAMPLES)
def test_surer_is_wider(differences):
    (low, high), (lower, higher) = interval(differences, 0.05), interval(differences, 0.01)
    assert lower < low < high < higher


@given(st.integers(2, 500), ALPHAS)
def test_it_is_wider_than_students_which_holds_at_one_look(n, alpha):
    from scipy import stats

    assert reach(n, alpha) > stats.t.isf(alpha / 2, n - 1)


def test_few_seeds_and_equal_differences_bound_nothing():
    assert np.isinf(interval(np.array([1.0, 2.0, 1.5]), 0.05)).all()
    assert np.isinf(interval(np.full(20, 3.0), 0.05)).all()


def test_it_holds_at_all_looks_at_once():
    """2000 experiments of 60 seeds, looked at after each: at most 5 % are ever wrong."""
    draws = np.random.default_rng(1).normal(size=(2000, 60))
    wrong = np.zeros(2000, bool)
    for n in range(2, 61):
        low, high = interval(draws[:, :n], 0.05)
        wrong |= (low > 0) | (high < 0)
    assert 0.005 < wrong.mean() < 0.05


@given(st.integers(FIRST, 1000))
def test_looks_rise_to_the_last(most):
    at = looks(most)
    assert (at[0], at[-1]) == (FIRST, most)
    assert all(a < b <= max(a + 2, 1.25 * a + 1) for a, b in pairwise(at))


@given(st.integers(FIRST, 1000), st.integers(FIRST, 1000))
def test_a_larger_budget_looks_where_a_smaller_did(few, many):
    """Else a question asked again with more seeds might forget its answer."""
    few, many = sorted((few, many))
    assert set(looks(few)[:-1]) <= set(looks(many))


def test_too_few_seeds_for_a_look():
    with pytest.raises(KlipError, match="max_seeds=5 is too few for the first look, which has 6"):
        looks(5)


@given(st.floats(-9, 9), st.floats(0, 9), st.floats(0.1, 5))
def test_the_other_way_round_the_answer_is_the_opposite(low, width, margin):
    opposite = {"better": "worse", "worse": "better"}
    said = verdict(low, low + width, margin)
    assert verdict(-low - width, -low, margin) == opposite.get(said, said)


def test_what_intervals_say():
    assert verdict(-0.5, 0.5, 1.0) == "equivalent"
    assert verdict(-0.5, 1.0, 1.0) == "open"
    assert verdict(0.1, 0.2, 1.0) == "better"
    assert verdict(-np.inf, np.inf, 1.0) == "open"


@given(st.floats(0.05, 3), st.floats(0.01, 2))
def test_as_many_seeds_as_announced_do_and_one_fewer_does_not(difference, margin):
    n = seeds_until_clear(difference, 1.0, margin, 0.05)
    room = max(difference, margin - difference)

    def half(n):
        return reach(n, 0.05) / np.sqrt(n)

    assert half(n) < room
    assert n == FIRST or half(n - 1) >= room


def test_a_hopeless_case_has_no_number():
    assert seeds_until_clear(1e-4, 1.0, 1e-4, 0.05) is None
