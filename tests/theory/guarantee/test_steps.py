"""T2: what keeps the sign of A may take any step; what does not falls on two arms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.shapes import parse
from klip.theory.guarantee import recheck
from klip.theory.guarantee.law import Law
from klip.theory.guarantee.slopes import SLOPES
from klip.theory.guarantee.steps import against, any_step
from klip.theory.guarantee.verdict import Bandit
from tests.theory.guarantee.built import LateReversal

KEEP = ["is", "clip", "ramp", "dual-clip", "tis", "cispo", "sapo", "dppo-tv", "pspo"]


@pytest.mark.parametrize("name", KEEP)
def test_what_keeps_the_sign(name):
    assert any_step(parse(name).initial).outcome == "holds"


@pytest.mark.parametrize("name", ["spo", "ppo-rb", "kl-k3", "kl-reverse", "ano", "chi2", "tv"])
def test_what_reverses_falls_on_two_arms(name):
    verdict = any_step(parse(name).initial)
    assert verdict.outcome == "refuted"
    assert verdict.bandit.change < 0
    shape, figures = parse(name).initial, verdict.figures
    again = recheck.two_arms(shape, {}, verdict.bandit, figures["rate"], figures["steps"])
    assert again == pytest.approx(verdict.bandit.new, rel=1e-6)
    assert (recheck.FRACTIONS in verdict.checked) == (shape.name in SLOPES)
    assert recheck.SIMULATION in verdict.checked
    w, a = figures["w"], figures["A"]
    gauge = -1.0 if name == "kl-reverse" else 0.0
    assert (float(shape.multiplier(np.log(w), a)) - gauge * w) * a < 0


def test_k1_and_k3_are_the_same_flow():
    bandit = Bandit((0.2, 0.3, 0.5), (1.0, 0.5, -0.7), (0.2, 0.3, 0.5))
    ends = [
        recheck.two_arms(parse(name).initial, {}, bandit, 0.1, 50) for name in ("kl-k1", "kl-k3")
    ]
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)


def test_a_reversal_at_fifty_is_seen():
    _, place = against(Law(LateReversal()))
    assert place[0] == pytest.approx(50, rel=0.01)
    assert place[1] > 0
    assert any_step(LateReversal(place=1e30)).outcome == "holds"


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(KEEP),
    st.lists(st.floats(0.02, 1.0), min_size=2, max_size=5),
    st.floats(0.01, 300.0),
    st.integers(1, 30),
    st.integers(0, 2**32 - 1),
)
def test_no_rate_and_no_number_of_steps_lowers_the_return(name, masses, rate, steps, seed):
    rng = np.random.default_rng(seed)
    old = np.array(masses) / sum(masses)
    a = rng.normal(size=old.size)
    a = a - old @ a
    bandit = Bandit.made(old, a, old)
    new = np.array(recheck.two_arms(parse(name).initial, {}, bandit, rate, steps))
    assert new @ a >= -1e-9
