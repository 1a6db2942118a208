"""The second recomputation: each way against a closed form, and against a fault of known size."""

import math

import numpy as np
import pytest

from klip.shapes import ANO, SPO, ImportanceSampling, KLk3, SoftMin, parse
from klip.theory.guarantee import recheck, second
from klip.theory.guarantee.improvement import improvement
from klip.theory.guarantee.mdps import random_mdps, to_fields
from klip.theory.guarantee.verdict import Bandit

THREE = Bandit((0.02, 0.5, 0.48), (-1.0, 1.0, -1.0), (0.14, 0.48, 0.38))


def test_quadrature_in_closed_form():
    """SPO's J = wA - |A| (w-1)^2 / (2 eps), arm by arm."""
    by_hand = sum(
        p * ((w - 1) * a - abs(a) * (w - 1) ** 2 / 0.4)
        for p, w, a in zip(THREE.old, THREE.ratios, THREE.advantages, strict=True)
    )
    assert second.gain(SPO(eps=0.2), {}, THREE) == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("spelling", ["dppo-tv", "soft-min", "truly-ppo", "kl"])
def test_quadrature_and_simulation_agree(spelling):
    """With a jump, with none, with a gate by the state's KL, and with a KL in closed form."""
    shape = parse(spelling).initial
    simulated = recheck.simulated_gain(shape, {}, THREE, 200_000)
    assert second.gain(shape, {}, THREE) == pytest.approx(simulated, rel=1e-3, abs=1e-6)


def test_odds_in_closed_form():
    bandit = Bandit((0.25, 0.75), (1.5, -0.5), (0.25, 0.75))
    odds = math.log(1 / 3) + 7 * 0.3 * 2.0
    new = second.by_odds(ImportanceSampling(), {}, bandit, 0.3, 7)
    assert new == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-12)


def test_the_way_ends_where_the_pulls_are_the_same():
    """For k3 with weight b: A1 - A2 = b (1/w2 - 1/w1), solved for the first arm's ratio."""
    p, a, b = (0.3, 0.7), (0.7, -0.3), 1.0
    low, high = 1.0, 1 / 0.3
    for _ in range(80):
        w = (low + high) / 2
        gap = a[0] - a[1] - b * (0.7 / (1 - 0.3 * w) - 1 / w)
        low, high = (w, high) if gap > 0 else (low, w)
    for share, expected in ((1.0, True), (1.01, False)):
        new = 0.3 * low * share
        assert second.leads(KLk3(b=b), {}, Bandit(p, a, (new, 1 - new))) is expected


@pytest.mark.parametrize("spelling", ["clip", "spo", "kl", "dppo-tv", "truly-ppo", "kl-reverse"])
def test_both_simulations_of_an_mdp_agree(spelling):
    """A hand-made gradient and sweeps on one side, JAX and linear systems on the other."""
    about = to_fields(random_mdps(np.random.default_rng(3), 1, shared=True), 0)
    shape = parse(spelling).initial
    ours, theirs = second.mdp(shape, about, 0.2, 25), recheck.mdp(shape, about, 0.2, 25)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert recheck.fallen(shape, about, ours, 0.2, 25) == ()  # it rose: no refutation


def test_a_refutation_stands_only_if_both_ways_say_so(monkeypatch):
    """A witness that one of the two does not find is no witness."""
    p, a = (0.5, 0.5), (1.0, -1.0)
    new = recheck.two_arms(ANO(), {}, Bandit(p, a, p), 1.0, 2)
    fell = Bandit(p, a, (new[0], new[1]))
    assert recheck.any_step(ANO(), {}, fell, 1.0, 2)
    monkeypatch.setattr(second, "by_odds", lambda *_: fell.new[0] * 1.01)
    assert recheck.any_step(ANO(), {}, fell, 1.0, 2) == ()

    up = improvement(SoftMin()).bandit
    assert recheck.improvement(SoftMin(), {}, up)[1] == (recheck.SIMULATION, second.QUADRATURE)
    monkeypatch.setattr(second, "gain", lambda *_: up.gain * 1.01)
    assert recheck.improvement(SoftMin(), {}, up) is None
