"""Composition: gates multiply, betas add, signs choose; the KL channel goes along."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import (
    KL,
    P3O,
    SPO,
    Asymmetric,
    ByAge,
    Clip,
    Context,
    Discount,
    IcePop,
    ImportanceSampling,
    KLk1,
    KLk3,
    MaxAge,
    Penalty,
    Ramp,
    Shape,
    TrulyPPO,
    Truncate,
    by_sign,
    catalogue,
)

samples = st.tuples(st.floats(-3, 3), st.floats(-3, 3))
penalties = st.sampled_from([cls for cls in catalogue(Shape).values() if issubclass(cls, Penalty)])


@given(samples, penalties, penalties)
def test_betas_add(sample, first, second):
    """(shape + p) + q has the sum of the betas, in either order."""
    x, a = map(np.asarray, sample)
    p, q = first(), second()
    total = (Clip() + p + q).beta(x, a)
    parts = Clip().beta(x, a) + p.beta(x, a) + q.beta(x, a)
    np.testing.assert_allclose(total, parts, rtol=1e-9, atol=1e-9 * (1 + np.exp(abs(x)) ** 2))
    np.testing.assert_allclose((p + q).beta(x, a), (q + p).beta(x, a), rtol=1e-9, atol=1e-9)


def test_the_unconstrained_surrogate_is_the_neutral_element():
    x, a = np.linspace(-2, 2, 41), np.ones(41)
    for shape in (Clip(), SPO()):
        total = shape + ImportanceSampling()
        np.testing.assert_array_equal(total.multiplier(x, a), shape.multiplier(x, a))


def test_only_a_penalty_can_be_added():
    assert (KLk3() + Clip()) == (Clip() + KLk3())
    with pytest.raises(KlipError, match="count w\\*A twice"):
        Clip() + SPO()
    with pytest.raises(TypeError):
        Clip() + 1


@given(samples, st.floats(-3, 3))
def test_gates_scale_the_whole_pull(sample, behaviour):
    x, a = map(np.asarray, sample)
    context = Context(behaviour_log_ratio=np.asarray(behaviour), age=np.asarray(3.0))
    m = Clip().multiplier(x, a)
    c = np.exp(behaviour)
    cases = [
        (Truncate(cap=2.0), min(c, 2.0)),
        (IcePop(floor=0.5, cap=5.0), c if 0.5 <= c <= 5 else 0.0),
        (Discount(factor=0.5), 0.125),
        (MaxAge(limit=2), 0.0),
        (MaxAge(limit=3), 1.0),
    ]
    for gate, weight in cases:
        np.testing.assert_allclose((gate * Clip()).multiplier(x, a, context), weight * m, rtol=1e-9)


@given(samples)
def test_signs_choose(sample):
    x, a = map(np.asarray, sample)
    got = by_sign(Clip(), SPO()).multiplier(x, a)
    np.testing.assert_array_equal(got, (Clip() if a > 0 else SPO()).multiplier(x, a))


@given(samples)
def test_the_asymmetric_shape_is_a_step_above_and_a_ramp_below(sample):
    x, a = map(np.asarray, sample)
    composed = by_sign(positive=Clip(), negative=Ramp(width=0.05))
    np.testing.assert_allclose(
        Asymmetric(width_below=0.05).multiplier(x, a), composed.multiplier(x, a), rtol=1e-9
    )


def test_the_closed_form_channel_goes_along():
    """Gated, added and chosen like the rest; absent where no part has one."""
    x, a = np.array([0.5, -0.5]), np.array([1.0, -1.0])
    context = Context(behaviour_log_ratio=np.log([3.0, 3.0]), kl=np.array([1.0, 0.0]))
    assert Clip().kl_weight(x, a) is None
    assert (Clip() + KLk1()).kl_weight(x, a) is None
    assert (Truncate() * Clip()).kl_weight(x, a, context) is None
    np.testing.assert_array_equal((Clip() + KL(b=0.5)).kl_weight(x, a), [0.5, 0.5])
    np.testing.assert_array_equal((P3O(b=0.1) + KL(b=0.5)).kl_weight(x, a), [0.6, 0.6])
    np.testing.assert_array_equal((Truncate() * KL(b=0.5)).kl_weight(x, a, context), [1, 1])
    np.testing.assert_array_equal(by_sign(KL(b=0.5), Clip()).kl_weight(x, a), [0.5, 0.0])
    np.testing.assert_array_equal(TrulyPPO(alpha=5.0).kl_weight(x, a, context), [5.0, 0.0])


def test_thresholds_work_in_every_parameter_of_every_part():
    context = Context(age=np.array([0.0, 4.0]), behaviour_log_ratio=np.zeros(2))
    x, a = np.log([1.15, 1.15]), np.ones(2)
    aged = Truncate() * (Clip(eps=ByAge(fresh=0.2, half_life=4.0)) + KLk3(b=ByAge(fresh=1.0)))
    m = aged.multiplier(x, a, context)
    np.testing.assert_allclose(m, [1.15 - 0.15, 0.0 - 0.5 * 0.15], rtol=1e-12)
