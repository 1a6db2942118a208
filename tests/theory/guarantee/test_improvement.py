"""T1: the verdicts that theory names, and shapes that fail by a known amount."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.shapes import SAPO, SigmoidGate, parse
from klip.theory.guarantee import recheck
from klip.theory.guarantee.improvement import improvement
from klip.theory.guarantee.law import ADVANTAGES, Law
from klip.theory.guarantee.verdict import Bandit
from klip.theory.views import integral
from tests.theory.guarantee.built import Bump, Crooked, LateReversal, Narrow

PASS = [
    "is",
    "clip",
    "clip-phi",
    "per-sample",
    "ramp",
    "spo",
    "ppo-rb",
    "kl-k1",
    "kl-k2",
    "kl-k3",
    "pspo",
    "tr-ppo",
]
FAIL = ["sapo", "cispo", "tis", "dual-clip"]


@pytest.mark.parametrize("name", PASS)
def test_what_keeps_improvement(name):
    verdict = improvement(parse(name).initial)
    assert verdict.outcome == "holds"
    assert verdict.points > 60_000
    assert verdict.headline.startswith(f"holds at {verdict.points:,} points")


@pytest.mark.parametrize("name", FAIL)
def test_what_does_not_has_three_arms_in_exact_fractions(name):
    shape = parse(name).initial
    verdict = improvement(shape)
    assert verdict.outcome == "refuted"
    assert verdict.checked == (recheck.FRACTIONS, recheck.SIMULATION)
    bandit = verdict.bandit
    assert len(bandit.old) == 3
    assert sum(bandit.old) == pytest.approx(1)
    assert sum(bandit.new) == pytest.approx(1)
    assert np.dot(bandit.old, bandit.advantages) == pytest.approx(0, abs=1e-12)
    assert bandit.change < 0 < bandit.gain
    assert f"return {bandit.change:+.4g}" in verdict.headline


def test_the_example_that_fits_on_a_napkin():
    """SAPO: the objective rises by .055 and the return falls by .080."""
    bandit = Bandit((0.1276, 0.5, 0.3724), (-1.0, 1.0, -1.0), (0.5103, 0.4601, 0.0296))
    gain, by = recheck.improvement(SAPO(), {}, bandit)
    assert gain == pytest.approx(0.05545, abs=1e-5)
    assert bandit.change == pytest.approx(-0.080, abs=5e-4)
    assert by == (recheck.FRACTIONS, recheck.SIMULATION)


def test_scale_and_gauge_are_said():
    assert "scale 0.9" in improvement(parse("pspo").initial).words
    assert "gauge 1" in improvement(parse("kl-k1").initial).words
    assert "gauge -1" in improvement(parse("kl-reverse").initial).words


def test_a_tangent_broken_by_a_thousandth_at_one_ratio():
    broken, whole = improvement(Bump()), improvement(Bump(height=-1e-3))
    assert broken.outcome == "refuted"
    assert "above its tangent by 0.001 at w = 1.52" in broken.words
    assert whole.outcome == "holds"


def test_a_gauge_that_depends_on_the_advantage():
    verdict = improvement(Crooked())
    assert verdict.outcome == "refuted"
    assert "no line" in verdict.words
    assert improvement(Crooked(bend=0.0)).outcome == "holds"


def test_bands_of_two_radii_break_the_anchor_of_a_sigmoid_gate():
    """Its scale at A > 0 is not that at A < 0: a first-order move shows it."""
    assert improvement(SigmoidGate()).outcome == "holds"
    verdict = improvement(SigmoidGate(low=0.2, high=0.28))
    assert verdict.outcome == "refuted"
    assert verdict.bandit.change < 0 < verdict.bandit.gain


def test_what_passes_narrowly():
    assert improvement(Narrow()).outcome == "holds"
    assert improvement(Narrow(tiny=-1e-4)).outcome == "refuted"
    assert improvement(LateReversal()).outcome == "holds"


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["clip", "ramp", "spo", "ppo-rb", "kl-k3", "kl-k1", "ano", "chi2"]),
    st.lists(st.floats(0.02, 1.0), min_size=3, max_size=5),
    st.integers(0, 2**32 - 1),
)
def test_no_move_of_a_shape_that_passes_raises_the_objective_and_lowers_the_return(
    name, masses, seed
):
    """F <= a S for any new policy, near or far."""
    rng = np.random.default_rng(seed)
    old = np.array(masses) / sum(masses)
    new = rng.dirichlet(np.full(old.size, 0.5)) * 0.999 + 0.001 * old
    a = rng.normal(size=old.size)
    a = a - old @ a
    law = Law(parse(name).initial)
    gain = sum(
        p * integral(law.pull, np.array([np.log(q / p)]), float(x))[0]
        for p, q, x in zip(old, new, a, strict=True)
    )
    assert gain <= new @ a + 1e-7


def test_the_far_tails_are_looked_at():
    assert max(ADVANTAGES) == 10
    assert improvement(Bump(place=5e3, width=200.0, height=50.0)).outcome != "holds"
