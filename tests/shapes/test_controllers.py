"""Controllers: explicit state, pure steps, and the published rules by hand-worked numbers."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import (
    ESPO,
    KL,
    AdaptiveKL,
    Clip,
    Controller,
    DualAscent,
    Feedback,
    KLk3,
    ProportionalKL,
    TargetKL,
    TVStepSize,
    catalogue,
    numbers,
    parse,
)
from klip.shapes.region import FEEDBACK_FIELDS, MissingFeedback


def after(controller, *kls, samples=0):
    state = controller.init()
    for kl in kls:
        state = controller.update(state, Feedback(kl=kl, samples=samples))
    return float(state["b"])


def test_ppos_adaptive_rule():
    """Doubled above 1.5 target, halved below target/1.5, left alone between; both edges stay."""
    c = AdaptiveKL(target=0.02)
    assert after(c, 0.0301) == 2.0
    assert after(c, 0.03) == 1.0
    assert after(c, 0.0133) == 0.5
    assert after(c, 0.0134) == 1.0
    assert after(c, *[1.0] * 40) == 1e4
    assert after(c, *[0.0] * 40) == 1e-4


def test_rllibs_rule_is_the_same_controller_with_other_numbers():
    c = AdaptiveKL(target=0.02, grow=1.5, shrink=0.5, above=2.0, below=0.5)
    assert [after(c, kl) for kl in (0.05, 0.03, 0.009)] == [1.5, 1.0, 0.5]


def test_rlhfs_proportional_rule():
    c = ProportionalKL(target=0.02, limit=0.2, horizon=1000)
    assert after(c, 0.021, samples=100) == pytest.approx(1 + 0.05 * 0.1)
    assert after(c, 1.0, samples=100) == pytest.approx(1.02)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_dual_ascent_never_goes_below_zero(kls):
    b = 1.0
    for kl in kls:
        b = max(b + 10.0 * (kl - 0.02), 0.0)
    assert after(DualAscent(rate=10.0, target=0.02), *kls) == pytest.approx(b)


def test_espo_stops_the_epochs_and_leaves_the_surrogate_alone():
    c = ESPO(delta=0.25)
    assert not c.stop(c.init(), Feedback(ratio_deviation=0.25))
    assert c.stop(c.init(), Feedback(ratio_deviation=0.2501))
    assert str(c.shape_at(c.init())) == "is"


def test_geppos_step_size_falls_while_the_policy_moves_too_far():
    """Divided by 1.03 above eps/2, else left alone; an earlier version raised it below eps/4."""
    c, first = TVStepSize(target=0.05), TVStepSize(target=0.05, below=0.025)
    sizes = []
    for rule, tv in ((c, 0.0501), (c, 0.05), (c, 0.001), (first, 0.0249), (first, 0.025)):
        state = rule.update(rule.init(), Feedback(tv=tv))
        sizes.append(float(rule.step_scale(state)))
    assert sizes == pytest.approx([1 / 1.03, 1, 1, 1.03, 1])
    assert str(c.shape_at(c.init())) == "geppo(eps=0.1)"


@given(st.lists(st.floats(0, 1), max_size=20))
def test_geppos_step_size_is_a_product(tvs):
    c = TVStepSize(target=0.05)
    state = c.init()
    for tv in tvs:
        state = c.update(state, Feedback(tv=tv))
    fallen = sum(tv > 0.05 for tv in tvs)
    assert float(c.step_scale(state)) == pytest.approx(1.03**-fallen)


@pytest.mark.parametrize(
    ("estimator", "field"), [("k3", "k3"), ("k1", "k1"), ("closed-form", "kl")]
)
def test_a_target_kl_reads_the_estimate_that_it_is_told_to(estimator, field):
    """Its factor is that of Spinning Up and Stable-Baselines3; CleanRL's is 1."""
    stop = TargetKL(target=0.02, estimator=estimator)
    assert stop.stop({}, Feedback(**{field: 0.0301}))
    assert not stop.stop({}, Feedback(**{field: 0.03}))
    assert TargetKL(target=0.02, factor=1).stop({}, Feedback(k3=0.021))
    assert stop.shape == Clip()


@pytest.mark.parametrize("field", sorted(FEEDBACK_FIELDS))
def test_what_a_trainer_does_not_give_is_named(field):
    with pytest.raises(MissingFeedback, match=f"the feedback has no {field} "):
        getattr(Feedback(), field)


def test_state_sets_the_shapes_own_parameter():
    c = AdaptiveKL(shape=Clip() + KLk3(b=0.25))
    assert c.init() == {"b": 0.25}
    assert numbers(c.shape_at({"b": 3.0}))["penalty.b"] == 3.0
    assert AdaptiveKL().shape_at({"b": 3.0}) == KL(b=3.0)


def test_a_shape_without_a_coefficient_cannot_be_steered():
    with pytest.raises(KlipError, match="has 0 of them"):
        AdaptiveKL(shape=Clip())
    with pytest.raises(KlipError, match="has 2 of them"):
        DualAscent(shape=Clip() + KL() + KLk3())


@pytest.mark.parametrize("cls", catalogue(Controller).values(), ids=lambda cls: cls.name)
def test_controllers_are_pure_and_can_be_traced(cls):
    """The same inside jit, so that a trainer may keep the state on its device."""
    controller = cls()
    state = controller.init()
    for kl, deviation in ((0.1, 0.3), (0.001, 0.1)):
        feedback = Feedback(kl=kl, k3=kl, ratio_deviation=deviation, tv=kl, samples=2048)

        @jax.jit
        def step(state, kl, deviation):
            traced = Feedback(kl=kl, k3=kl, ratio_deviation=deviation, tv=kl, samples=2048)
            return controller.update(state, traced), controller.stop(state, traced)

        new, stop = step(state, kl, deviation)
        assert bool(stop) == bool(controller.stop(state, feedback))
        for key, value in controller.update(state, feedback).items():
            np.testing.assert_allclose(new[key], value, rtol=1e-6)
    assert parse(str(controller)) == controller
