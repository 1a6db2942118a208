"""T3: where the inner loop ends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.shapes import SPO, Clip, ImportanceSampling, parse
from klip.theory.guarantee.ends import two_armed_end, where_it_ends
from klip.theory.guarantee.inner_loop import WORST, inner_loop, programme, reversal, vanishing
from klip.theory.guarantee.law import Law
from tests.theory.guarantee.built import LateReversal


@pytest.mark.parametrize("name", ["spo", "ppo-rb", "ano", "ppo-rb(low=0.1, high=0.3)"])
def test_what_reverses_at_its_edges_has_a_bound(name):
    verdict = inner_loop(parse(name).initial)
    assert verdict.outcome == "holds"
    low, high = (0.1, 0.3) if "low" in name else (0.2, 0.2)
    assert verdict.figures["low"] == pytest.approx(low, abs=1e-6)
    assert verdict.figures["high"] == pytest.approx(high, abs=1e-6)


@pytest.mark.parametrize("mass", [0.01, 0.05, 0.3, 0.5, 0.8])
def test_two_arms_of_the_clip_end_where_the_formula_says(mass):
    """W = 1 + eps max(1, P-/P+), as long as the other arm has the mass for it."""
    end = two_armed_end(Law(Clip(eps=0.2)), mass, (1.0, -mass / (1 - mass)))
    assert end == pytest.approx(1 + 0.2 * max(1.0, (1 - mass) / mass), rel=1e-6)


def test_the_clip_is_not_bounded_and_runs_to_twenty():
    verdict = inner_loop(Clip())
    assert verdict.outcome == "refuted"
    assert verdict.figures["ratio"] == pytest.approx(20.8)
    assert verdict.figures["simulated"] == pytest.approx(20.9, abs=0.3)
    assert "1 + max(0.2, 0.2 P-/P+)" in verdict.words
    assert verdict.checked == ("exact fractions", "simulation")


def test_without_a_region_all_mass_goes_to_the_better_arm():
    verdict = inner_loop(ImportanceSampling())
    assert verdict.outcome == "refuted"
    assert verdict.figures["ratio"] == 100
    old, a = np.array([0.1, 0.6, 0.3]), np.array([2.0, 0.0, -2 / 3])
    assert where_it_ends(Law(ImportanceSampling()), old, a) == pytest.approx([1, 0, 0], abs=1e-6)


def test_a_late_reversal_is_no_bound_near_one():
    edges = reversal(Law(LateReversal()), 0.0)
    assert edges is None
    assert vanishing(Law(LateReversal()), 0.0) is None
    assert inner_loop(LateReversal()).outcome != "holds"


@settings(max_examples=4, deadline=None)
@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=4), st.integers(0, 2**32 - 1))
def test_spos_lambda(masses, seed):
    """At the end A - |A| (w-1)/eps = lambda = (P+ - P-) / sum(p/|A|), where no arm dies."""
    rng = np.random.default_rng(seed)
    p = np.array(masses) / sum(masses)
    a = rng.uniform(0.5, 2.0, size=p.size) * np.where(np.arange(p.size) % 2, 1, -1)
    positive = a > 0
    a[positive] *= -(p @ np.where(positive, 0, a)) / (p @ np.where(positive, a, 0))
    level = (p[a > 0].sum() - p[a < 0].sum()) / (p / np.abs(a)).sum()
    w = 1 + 0.2 * (a - level) / np.abs(a)
    if (w > 0.05).all():
        assert where_it_ends(Law(SPO(eps=0.2)), p, a) / p == pytest.approx(w, rel=1e-4)
    tv = np.maximum(p * (w - 1), 0).sum()
    assert tv <= 0.2 * max(p[a > 0].sum(), p[a < 0].sum()) + 1e-9 or (w <= 0).any()


@pytest.mark.parametrize("name", ["kl-k3", "chi2"])
def test_the_programmes_witness_ends_where_it_says(name):
    verdict = inner_loop(parse(name).initial)
    assert verdict.outcome == "measured"
    state = verdict.bandit
    assert len(state.old) <= 3
    law = Law(parse(name).initial)
    end = where_it_ends(law, np.array(state.old), np.array(state.advantages))
    assert end == pytest.approx(state.new, abs=2e-3)
    assert verdict.figures["simulated"] == pytest.approx(verdict.figures["variation"], abs=2e-3)


def test_the_programme_is_stationary_and_worse_than_any_state_beside_it():
    """Reverse KL: w = e^((A - lambda)/b) on each arm, whatever the level."""
    law = Law(parse("kl-reverse-k3(b=1.0)").initial)
    state = programme(law, 0.5)
    assert state.ratios == pytest.approx(np.exp(np.array(state.advantages) - 0.5), rel=1e-6)
    w = np.exp(WORST - 0.5)
    rng = np.random.default_rng(0)
    for _ in range(200):
        i = rng.choice(len(w), 3, replace=False)
        rows = np.stack([np.ones(3), w[i], WORST[i]])
        p = np.linalg.solve(rows, [1, 1, 0]) if abs(np.linalg.det(rows)) > 1e-6 else -np.ones(3)
        if (p >= 0).all():
            assert np.maximum(p * (w[i] - 1), 0).sum() <= state.variation + 1e-9


def test_a_third_arm_without_advantage_takes_the_mass():
    """Neither SPO nor rollback bounds the ratio itself; the total variation stays below eps."""
    for name in ("spo", "ppo-rb"):
        law = Law(parse(name).initial)
        p, a = np.array([0.02, 0.01, 0.97]), np.array([1.94, 1e-4, -0.04])
        a[2] = -(p[0] * a[0] + p[1] * a[1]) / p[2]
        end = where_it_ends(law, p, a)
        assert 0.5 * np.abs(end - p).sum() < 0.2
