"""Old samples: the published formulas by hand, and that it does not matter what w divides by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.shapes import A3PO, IMPACT, P3OESS, TIS, VACO, Clip, Context, GePPO, ratio
from tests.shapes.samples import seeds

SHAPES = [GePPO(), GePPO(low=0.2, high=0.3), A3PO(), IMPACT(), P3OESS()]


def draw(seed, size=300, fresh=False):
    """log pi - log mu, log pi_k - log mu, advantages, and what does not depend on the ratio."""
    rng = np.random.default_rng(seed)
    moved, c = rng.normal(0, 0.4, size), rng.normal(0, 0.4, size) * (not fresh)
    age = rng.integers(0, 9, size) * (not fresh)
    whole = {"age": age.astype(float), "effective_size": 1.0 if fresh else 0.7, "deviation": 0.3}
    return moved + c, c, rng.normal(0, 1, size), whole


def over_sampler(shape, log_w_b, log_c, whole):
    """The log-ratio and the context of a trainer whose ratio divides by the sampler."""
    known = whole | {"behaviour_log_ratio": 0.0 * log_c, "proximal_log_ratio": -log_c}
    return log_w_b, Context(**{k: v for k, v in known.items() if k in shape.needs})


def over_start(shape, log_w_b, log_c, whole):
    """Those of a trainer whose ratio divides by the policy at the start."""
    known = whole | {"behaviour_log_ratio": log_c, "proximal_log_ratio": 0.0 * log_c}
    return log_w_b - log_c, Context(**{k: v for k, v in known.items() if k in shape.needs})


@pytest.mark.parametrize("region", SHAPES, ids=str)
@settings(max_examples=10)
@given(seed=seeds)
def test_it_does_not_matter_what_the_ratio_divides_by(region, seed):
    log_w_b, log_c, a, whole = draw(seed)
    results = []
    for view in (over_sampler, over_start):
        log_w, context = view(region, log_w_b, log_c, whole)
        results.append(region.multiplier(log_w, a, context))
    np.testing.assert_allclose(*results, rtol=1e-12)


@pytest.mark.parametrize(
    ("region", "plain"),
    [(GePPO(eps=0.2), Clip()), (A3PO(), Clip()), (IMPACT(), Clip(eps=0.4)), (P3OESS(), TIS())],
    ids=str,
)
@settings(max_examples=10)
@given(seed=seeds)
def test_fresh_samples_meet_the_plain_shape_to_the_last_bit(region, plain, seed):
    log_w, log_c, a, whole = draw(seed, fresh=True)
    log_w, a, log_c = (x.astype(np.float32) for x in (log_w, a, log_c))
    log_w, context = over_sampler(region, log_w, log_c, whole)
    m = region.multiplier(log_w, a, context)
    expected = plain.multiplier(log_w, a)
    np.testing.assert_array_equal(m, expected)


@settings(max_examples=20)
@given(seed=seeds, eps=st.floats(0.05, 0.5))
def test_geppo_by_hand(seed, eps):
    """min(w_b A, clip(w_b, c - e, c + e) A); and c times the clip of w_p with a radius of e/c."""
    log_w_b, log_c, a, whole = draw(seed)
    w_b, c = np.exp(log_w_b), np.exp(log_c)
    shape = GePPO(eps=eps)
    log_w, context = over_sampler(shape, log_w_b, log_c, whole)
    value = np.minimum(w_b * a, np.clip(w_b, c - eps, c + eps) * a)
    np.testing.assert_allclose(shape.objective(log_w, a, context), value, rtol=1e-12, atol=1e-12)
    free = np.where(a > 0, w_b <= c + eps, w_b >= c - eps)
    np.testing.assert_allclose(shape.multiplier(log_w, a, context), w_b * a * free, rtol=1e-12)
    narrow = [
        Clip(eps=eps / x).multiplier(y - np.log(x), z)
        for x, y, z in zip(c, log_w_b, a, strict=True)
    ]
    np.testing.assert_allclose(c * narrow, w_b * a * free, rtol=1e-12, atol=1e-12)


@settings(max_examples=20)
@given(seed=seeds)
def test_a3po_by_hand(seed):
    """The decoupled clip, its start interpolated by versions: v_now is one ahead of the start."""
    log_w_b, log_c, a, whole = draw(seed)
    v_now, v_mu = 100.0, 99.0 - whole["age"]
    alpha = (v_now - 1 - v_mu) / (v_now - v_mu)
    log_mu, log_pi = -2.0, -2.0 + log_w_b
    log_start = log_mu + alpha * (log_pi - log_mu)
    behaviour, clipped = np.exp(log_start - log_mu), Clip().multiplier(log_pi - log_start, a)
    _, context = over_sampler(A3PO(), log_w_b, log_c, whole)
    m = A3PO().multiplier(log_w_b, a, context)
    np.testing.assert_allclose(m, behaviour * clipped, rtol=1e-10, atol=1e-12)


@settings(max_examples=20)
@given(seed=seeds)
def test_impact_by_hand(seed):
    """RLlib's: min(mu / target, 2) pi / mu, clipped with 0.4."""
    log_w_b, log_c, a, whole = draw(seed)
    r = np.minimum(np.exp(-log_c), 2.0) * np.exp(log_w_b)
    value = np.minimum(a * r, a * np.clip(r, 0.6, 1.4))
    log_w, context = over_start(IMPACT(), log_w_b, log_c, whole)
    np.testing.assert_allclose(IMPACT().objective(log_w, a, context), value, rtol=1e-12, atol=1e-12)


@settings(max_examples=20)
@given(seed=seeds)
def test_p3o_with_the_effective_size_of_its_batch(seed):
    log_w_b, log_c, a, whole = draw(seed)
    w = np.exp(log_w_b)
    ess = w.sum() ** 2 / (w.size * (w**2).sum())
    log_w, context = over_start(P3OESS(), log_w_b, log_c, whole | {"effective_size": ess})
    m = P3OESS().multiplier(log_w, a, context)
    np.testing.assert_allclose(m, np.minimum(w, ess) * a - (1 - ess) * (1 - 1 / w), rtol=1e-10)


@pytest.mark.parametrize("region", SHAPES[:4], ids=str)
@pytest.mark.parametrize("view", [over_sampler, over_start])
@settings(max_examples=10)
@given(seed=seeds)
def test_the_band_is_where_nothing_is_killed(region, view, seed):
    log_w_b, log_c, a, whole = draw(seed)
    log_w, context = view(region, log_w_b, log_c, whole)
    bottom, top = region.band(context, log_w)
    w = ratio(log_w)
    killed = ((w > top) & (a > 0)) | ((w < bottom) & (a < 0))
    clear = np.minimum(np.abs(w - top), np.abs(w - bottom)) > 1e-9
    np.testing.assert_array_equal((region.multiplier(log_w, a, context) == 0)[clear], killed[clear])


@settings(max_examples=20)
@given(seed=seeds, far=st.booleans())
def test_vaco_drops_what_leads_further_and_only_in_a_batch_that_is_far(seed, far):
    log_w_b, log_c, a, whole = draw(seed)
    whole |= {"deviation": 0.3 if far else 0.1}
    gate = VACO(delta=0.2)
    for view, weight in ((over_sampler, 1.0), (over_start, np.exp(log_c))):
        log_w, context = view(gate, log_w_b, log_c, whole)
        leads_on = far & (np.sign(log_c) * a > 0)
        expected = np.where(leads_on, 0.0, weight)
        np.testing.assert_allclose(gate.weight(log_w, a, context), expected, rtol=1e-12)


def test_a3po_widens_with_age():
    """Its band of the behaviour ratio is the clip's to the power of 1 + age."""
    for age in range(5):
        bottom, top = A3PO().band(Context(behaviour_log_ratio=0.0, age=float(age)))
        assert (bottom, top) == pytest.approx((0.8 ** (1 + age), 1.2 ** (1 + age)))
