"""What a shape answers for itself: its band, its objective, m and J in one pass."""

import inspect
import math

import jax.numpy as jnp
import numpy as np
import pytest

from klip.errors import KlipError
from klip.shapes import (
    DCPO,
    KL,
    SPO,
    AgeConditioned,
    ByAge,
    Clip,
    ClipHigher,
    Context,
    Discount,
    KLk3,
    Penalty,
    PerSample,
    PositionAware,
    Ramp,
    Sample,
    Value,
    by_sign,
    catalogue,
    parse,
)
from tests.shapes.samples import convert, draw_samples

torch = pytest.importorskip("torch")


def test_a_view_takes_arrays_or_the_sample():
    x, a, context = np.array([0.1, 0.5]), np.ones(2), Context(age=np.array([0.0, 9.0]))
    shape = Discount() * Clip(eps=ByAge())
    for view in ("multiplier", "beta", "objective", "kl_weight", "effective_advantage"):
        ask = getattr(shape, view)
        np.testing.assert_array_equal(ask(x, a, context), ask(Sample(x, a, context)))
    assert str(inspect.signature(SPO.multiplier)) == str(inspect.signature(Clip.multiplier))
    assert list(inspect.signature(SPO().multiplier).parameters) == [
        "log_ratio", "advantage", "context"
    ]  # fmt: skip
    with pytest.raises(TypeError, match=r"SPO\.multiplier needs an advantage"):
        SPO().multiplier(0.5)


@pytest.mark.parametrize(
    ("banded", "band"),
    [
        (Clip(low=0.25, high=0.5), (0.75, 1.5)),
        (ClipHigher(), (0.8, 1.28)),
        (SPO(), None),
        (Clip(eps=0.5) + KLk3(), (0.5, 1.5)),
        (Discount() * SPO(), None),
        (by_sign(Clip(eps=0.5), Ramp(eps=0.25)), (0.75, 1.5)),
        (by_sign(SPO(), Ramp(eps=0.25)), (0.75, math.inf)),
        (by_sign(SPO(), KLk3()), None),
        (AgeConditioned(eps=0.5, half_life=4.0), (0.75, 1.25)),
        (Clip(eps=ByAge(0.5, 4.0)), (0.75, 1.25)),
        (PositionAware(eps_start=0.25, eps_end=0.75), (0.5, 1.5)),
        (DCPO(), pytest.approx((0.5, 0.5 + 0.5 * math.sqrt(1 + 0.8 * math.e)))),  # at q = 1/e
    ],
    ids=str,
)
def test_a_shape_knows_its_band(banded, band):
    given = {"age": 4.0, "position": 5.0, "length": 11.0, "old_log_prob": -1.0}
    context = Context(**{name: given[name] for name in banded.needs})
    assert banded.band(context) == band


def test_a_composition_has_an_objective_where_its_parts_have_one():
    x, a = np.array([0.1, 0.5]), np.array([1.0, -1.0])
    assert (Clip() + KLk3()).published
    assert not (Ramp() + KLk3()).published
    assert not by_sign(Clip(), Ramp()).published
    value = Clip().objective(x, a) - 0.1 * (np.exp(x) - 1 - x)
    np.testing.assert_allclose((Clip() + KLk3(b=0.1)).objective(x, a), value)
    gated = (Discount(factor=0.5) * Clip()).objective(x, a, Context(age=np.ones(2)))
    np.testing.assert_array_equal(gated, 0.5 * Clip().objective(x, a))
    with pytest.raises(KlipError, match="ramp has no published objective"):
        by_sign(Clip(), Ramp()).objective(x, a)


def test_a_penalty_that_nobody_published_costs_nothing():
    class Silent(Penalty):
        def beta(self, s):
            return -s.log_w

    x, a = np.array([0.1, 0.5]), np.ones(2)
    m, value = (Clip() + Silent()).evaluate(x, a)
    np.testing.assert_array_equal(m, Clip().multiplier(x, a) - x)
    np.testing.assert_array_equal(value, Clip().objective(x, a))
    assert not (Clip() + Silent()).published


@pytest.mark.parametrize("to", [np.asarray, jnp.asarray, torch.tensor])
def test_one_pass_gives_what_two_give(shape, to):
    """`evaluate` is (m, J), bit for bit, in every framework."""
    x, a, given = draw_samples(shape, np.random.default_rng(0), 200, 25.0)
    x, a, *rest = (v.astype(np.float32) for v in (x, a, *given.values()))
    context = convert(dict(zip(given, rest, strict=True)), to)
    m, value = shape.evaluate(to(x), to(a), context)
    same = np.testing.assert_array_equal
    same(np.asarray(m), np.asarray(shape.multiplier(to(x), to(a), context)))
    assert (value is not None) == shape.published
    if value is not None:
        same(np.asarray(value), np.asarray(shape.objective(to(x), to(a), context)))


def test_the_second_channel_is_no_part_of_the_objective():
    assert KL(b=0.5).objective(0.0, 1.0) == 1.0


def test_no_class_is_both_used_and_subclassed():
    """An abstract class is a base, any other is used: nothing inherits by accident."""
    for cls in catalogue(Value).values():
        shipped = [c for c in cls.__subclasses__() if c.__module__.startswith("klip.")]
        assert shipped == [], cls


def test_a_value_knows_its_parts_and_its_formula():
    shape = parse("truncate * (clip(eps=by-age) + kl-k3)")
    assert [part.name for part in shape.parts()] == [
        "gated", "truncate", "sum", "clip", "by-age", "kl-k3"
    ]  # fmt: skip
    assert PerSample().formula.startswith("beta = -wA on the kill set, 0 elsewhere: PPO-Clip")
    assert all(cls().formula for cls in catalogue(Value).values())


def test_a_label_leaves_out_what_is_usual():
    spelled = "truncate * (clip(eps=0.3) + kl-k3)"
    assert parse(spelled).brief == spelled
    assert parse(parse(spelled).brief) == parse(spelled)
    assert parse("by-sign(positive=clip, negative=ramp(width=0.1))").brief == (
        "by-sign(clip, ramp(width=0.1))"
    )
