"""The second opinion: it says no to what is no refutation."""

import numpy as np
import pytest

from klip.shapes import SPO, Clip, DualClip, ImportanceSampling, parse
from klip.theory.guarantee import recheck, second
from klip.theory.guarantee.mdps import random_mdps, to_fields
from klip.theory.guarantee.verdict import Bandit

DUAL = Bandit((0.02, 0.5, 0.48), (-1.0, 1.0, -1.0), (0.14, 0.48, 0.38))


def test_by_hand():
    """Dual clip, arm by arm: 0.02 (-2) - 0.5 (0.04) + 0.48 (1 - 0.8), clipped at 3 and at 0.8."""
    by_hand = 0.02 * (-3 + 1) + 0.5 * (0.96 - 1) + 0.48 * (1 - 0.8)
    gain, by = recheck.improvement(DualClip(), {}, DUAL)
    assert gain == pytest.approx(by_hand, abs=1e-9)
    assert DUAL.change == pytest.approx(-0.04)
    assert by == (recheck.FRACTIONS, recheck.SIMULATION)


@pytest.mark.parametrize(
    "wrong",
    [
        Bandit((0.02, 0.5, 0.5), (-1.0, 1.0, -1.0), (0.14, 0.48, 0.38)),
        Bandit((0.02, 0.5, 0.48), (-1.0, 1.1, -1.0), (0.14, 0.48, 0.38)),
        Bandit((0.02, 0.5, 0.48), (-1.0, 1.0, -1.0), (0.14, 0.48, 0.48)),
        Bandit((0.02, 0.5, 0.48), (-1.0, 1.0, -1.0), (0.02, 0.52, 0.46)),
    ],
)
def test_what_does_not_add_up_or_does_not_fall_is_no_witness(wrong):
    assert recheck.improvement(DualClip(), {}, wrong) is None


def test_a_shape_that_keeps_its_promise_is_not_refuted_by_it():
    assert recheck.improvement(Clip(), {}, DUAL) is None
    assert recheck.improvement(parse("ano").initial, {}, DUAL) is None


def test_exponentiated_gradient_in_closed_form():
    """Without a region, w = e^(rate K A) / Z: that bounds its ratio after K steps."""
    p, a = np.array([0.25, 0.75]), np.array([1.5, -0.5])
    bandit = Bandit.made(p, a, p)
    new = recheck.two_arms(ImportanceSampling(), {}, bandit, 0.3, 7)
    expected = p * np.exp(0.3 * 7 * a)
    assert new == pytest.approx(expected / expected.sum(), rel=1e-12)


FELL = Bandit((0.5, 0.5), (1.0, -1.0), (0.02619, 0.97381))


def test_two_steps_of_spo_by_hand():
    """G = A at w = 1, so log w = +-1 - log cosh 1; then G = A - |A| (w-1)/eps once more."""
    w = np.exp([1.0, -1.0]) / np.cosh(1.0)
    x = np.log(w) + np.array([1.0, -1.0]) - (w - 1) / 0.2
    new = 0.5 * np.exp(x) / (0.5 * np.exp(x)).sum()
    low, high = recheck.enclosed_change(SPO(eps=0.2), FELL, 1.0, 2)
    assert float(low) == pytest.approx(new @ [1.0, -1.0], rel=1e-12)
    assert high - low < 1e-30
    fallen = Bandit.made(FELL.old, FELL.advantages, new)
    both = (recheck.FRACTIONS, recheck.SIMULATION)
    assert recheck.any_step(SPO(eps=0.2), {}, fallen, 1.0, 2) == both
    assert recheck.any_step(SPO(eps=0.2), {}, fallen, 1.0, 3) == ()
    assert recheck.any_step(SPO(eps=0.2), {}, fallen, 0.9, 2) == ()
    assert recheck.any_step(Clip(), {}, fallen, 1.0, 2) == ()


def test_a_shape_whose_formula_is_not_known_is_computed_in_a_second_way():
    new = recheck.two_arms(parse("ano").initial, {}, FELL, 1.0, 2)
    fallen = Bandit.made(FELL.old, FELL.advantages, new)
    assert recheck.enclosed_change(parse("ano").initial, fallen, 1.0, 2) is None
    assert recheck.any_step(parse("ano").initial, {}, fallen, 1.0, 2) == (
        recheck.SIMULATION,
        second.ODDS,
    )


def test_bounds_that_grow_too_wide_say_nothing():
    assert recheck.enclosed_change(parse("kl-k3").initial, FELL, 100.0, 60) is None


@pytest.mark.parametrize(("ends", "led"), [(20.8, True), (20.5, False), (21.0, False)])
def test_the_clip_is_led_to_its_end_and_no_farther(ends, led):
    """1 + 0.2 * 99 = 20.8: below it the other arm still pushes, beyond it nothing does."""
    arms = Bandit((0.01, 0.99), (1.0, -1 / 99), (0.01 * ends, 1 - 0.01 * ends))
    assert recheck.is_led_to(Clip(eps=0.2), arms) is led
    assert recheck.is_led_to(parse("ano").initial, arms) is None
    ratio, checked = recheck.runs_away(Clip(eps=0.2), {}, arms, 0.4, 2000)
    assert ratio == pytest.approx(20.8, rel=0.05)
    assert checked == ((recheck.FRACTIONS, recheck.SIMULATION) if led else ())


def test_a_simulation_that_ends_elsewhere_confirms_nothing():
    arms = Bandit((0.01, 0.99), (1.0, -1 / 99), (0.3, 0.7))
    assert recheck.runs_away(parse("ano").initial, {}, arms, 0.4, 200)[1] == ()


def test_an_mdp_by_iteration_does_not_move_at_rate_zero():
    suite = random_mdps(np.random.default_rng(3), 1, shared=True)
    about = to_fields(suite, 0)
    assert recheck.mdp(Clip(), about, 0.0, 5) == pytest.approx(0, abs=1e-12)
    assert recheck.mdp(ImportanceSampling(), about, 0.01, 1) > 0
