"""Two ways to be far apart: the binary KL in either direction, by hand and as prime-rl has it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from klip.shapes import DPPOKL, Context, KPop, KPopMask
from klip.shapes.probability import binary_kl
from tests.shapes.samples import seeds


@pytest.mark.parametrize(("p", "q", "wanted"), [
    (0.5, 0.75, 0.5 * math.log(2 / 3) + 0.5 * math.log(2)),  # 0.1438
    (0.75, 0.5, 0.75 * math.log(1.5) + 0.25 * math.log(0.5)),  # 0.1308
    (0.3, 0.3, 0.0),
    (1.0, 0.5, math.log(2)),  # to the limit of 1e-6
])  # fmt: skip
def test_the_binary_kl(p, q, wanted):
    assert binary_kl(math.log(p), math.log(q)) == pytest.approx(wanted, abs=2e-5)


def test_a_certain_action_is_finite():
    for log_p, log_q in ((0.0, 0.0), (0.0, -80.0), (-80.0, 0.0), (0.0, 50.0)):
        assert math.isfinite(binary_kl(log_p, log_q))


def test_the_direction_that_dppo_does_not_see():
    """p = .01, q = .11: KL(p || q) = .0814, KL(q || p) = .169."""
    rare = Context(old_log_prob=math.log(0.01))
    m = [s.multiplier(math.log(11.0), 1.0, rare) for s in (DPPOKL(delta=0.1), KPop(delta=0.1))]
    assert m == [pytest.approx(11.0), 0.0]


@settings(max_examples=20)
@given(seed=seeds)
def test_kpop_is_prime_rls(seed):
    """A token counts if D(p || q) <= phi and D(q || p) <= phi, both clamped by 1e-6."""
    rng = np.random.default_rng(seed)
    trainer, inference = -rng.exponential(1.0, (2, 200))
    a = rng.normal(0, 1, 200)
    p, q = (np.clip(np.exp(x), 1e-6, 1 - 1e-6) for x in (trainer, inference))
    forward = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    back = q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
    keep = (forward <= 0.1) & (back <= 0.1)
    assert 0.05 < keep.mean() < 0.95
    context = Context(old_log_prob=inference)
    m = KPop().multiplier(trainer - inference, a, context)
    np.testing.assert_allclose(m, np.where(keep, np.exp(trainer - inference) * a, 0), rtol=1e-12)
    sampled = Context(old_log_prob=trainer, behaviour_log_ratio=trainer - inference)
    weight = KPopMask().weight(0 * a, a, sampled)
    np.testing.assert_allclose(weight, np.where(keep, np.exp(trainer - inference), 0), rtol=1e-12)
