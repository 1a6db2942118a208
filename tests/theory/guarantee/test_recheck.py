"""The second opinion: it says no to what is no refutation."""

import numpy as np
import pytest

from klip.shapes import Clip, DualClip, ImportanceSampling, parse
from klip.theory.guarantee import recheck
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


def test_an_mdp_by_iteration_does_not_move_at_rate_zero():
    suite = random_mdps(np.random.default_rng(3), 1, shared=True)
    about = to_fields(suite, 0)
    assert recheck.mdp(Clip(), about, 0.0, 5) == pytest.approx(0, abs=1e-12)
    assert recheck.mdp(ImportanceSampling(), about, 0.01, 1) > 0
