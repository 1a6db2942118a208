"""Drift, objective value and equilibrium, against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import (
    CISPO,
    SPO,
    Chi2,
    Clip,
    Hellinger2,
    ImportanceSampling,
    Kimi,
    KLk1,
    KLk3,
    KLReverseK3,
    Shape,
    SigmoidGate,
    TotalVariation,
    catalogue,
    parse,
)
from klip.theory.views import (
    drift,
    equilibrium,
    jumps,
    objective_value,
    pull_of,
    raised_by,
    reference_context,
)

X = np.linspace(-2.5, 2.5, 41)


# An objective that holds a weight fixed is not the integral of its gradient.
DETACHED = {
    "cispo",
    "tis",
    "gppo",
    "topr",
    "tr-ppo",
    "dppo-kl",
    "dppo-tv",
    "trgppo",
    "kpop",
    "gipo",
    "p3o-ess",
}
INTEGRABLE = [
    cls() for name, cls in catalogue(Shape).items()
    if "objective" in cls.definitions and name not in DETACHED
]  # fmt: skip


@pytest.mark.parametrize("shape", INTEGRABLE, ids=lambda s: s.name)
@pytest.mark.parametrize("advantage", [1.0, -0.7])
def test_the_integral_is_the_published_objective(shape, advantage):
    """J by quadrature is the published J up to a constant: jumps and kinks included."""
    a = np.full_like(X, advantage)

    def published(x):
        known = reference_context(shape, x, np.full_like(x, advantage), {"kl": 1.0})
        return shape.objective(x, np.full_like(x, advantage), known)

    value = objective_value(shape, X, a, {"kl": 1.0})
    expected = published(X) - published(np.zeros(1)) + advantage
    np.testing.assert_allclose(value, expected, atol=1e-8)


def test_the_drift_of_ppo_clip_is_phi():
    for advantage in (1.0, -2.0):
        w = np.exp(X)
        phi = np.maximum((w - np.clip(w, 0.8, 1.2)) * advantage, 0)
        np.testing.assert_allclose(drift(Clip(), X, np.full_like(X, advantage)), phi, atol=1e-10)


@given(st.floats(-3, 3), st.floats(-2, 2).filter(lambda a: a != 0))
@settings(max_examples=30)
def test_value_and_drift_make_up_the_unconstrained_surrogate(x, a):
    for shape in (Clip(), SPO(), parse("clip + kl-k3(b=0.3)"), parse("clip(eps=by-age)")):
        total = drift(shape, x, a) + objective_value(shape, x, a)
        np.testing.assert_allclose(total, np.exp(x) * a, atol=1e-9)


@pytest.mark.parametrize(
    ("shape", "advantage", "expected"),
    [
        (Clip(low=0.1, high=0.3), 2.0, 1.3),
        (Clip(low=0.1, high=0.3), -2.0, 0.9),
        (SPO(eps=0.4), 0.1, 1.4),
        (KLReverseK3(b=2.0), 1.0, np.exp(0.5)),
        (Kimi(tau=0.1), 1.0, np.exp(10.0)),
        (KLk3(b=1.0), 0.3, 1 / 0.7),
        (KLk3(b=1.0), 1.5, "none"),
        (KLk3(b=1.0), -1.0, 0.5),
        (Chi2(b=1.0), 2.0, 2.0),
        (Hellinger2(b=1.0), 0.3, 1 / 0.49),
        (TotalVariation(b=1.0), 0.3, 1.0),
        (KLk1(b=1.0), 1.0, "none"),
        (ImportanceSampling(), -1.0, "none"),
        (CISPO(), 1.0, "none"),
        (SigmoidGate(), 1.0, "decays"),
    ],
    ids=str,
)
def test_equilibrium(shape, advantage, expected):
    found = equilibrium(shape, advantage)
    assert found == (expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-9))


def test_an_equilibrium_needs_a_direction():
    with pytest.raises(KlipError, match="other than 0"):
        equilibrium(Clip(), 0.0)


def test_jumps_are_found_where_they_are():
    found = jumps(pull_of(parse("dual-clip(eps=0.2, cap=3)")), -1.0, -4, 4)
    places = [(pytest.approx(np.log(0.8)), pytest.approx(-0.8)),
              (pytest.approx(np.log(3.0)), pytest.approx(3.0))]  # fmt: skip
    assert found == places
    assert jumps(pull_of(SigmoidGate(temperature=0.001)), 1.0, -4, 4) == []


def test_what_a_shape_raises_is_told_in_a_line():
    words = r"^clip raises ValueError: one two \(test_views.py, line \d+"
    with pytest.raises(KlipError, match=words), raised_by("clip"):
        raise ValueError("one\n  two")
    with pytest.raises(KlipError, match=r"^mine$"), raised_by("clip"):
        raise KlipError("mine")


def test_small_jumps_can_be_left_out():
    def stairs(log_ratio, advantage):
        return np.floor(20 * log_ratio) / 20 + (log_ratio > 1)

    assert len(jumps(stairs, 1.0, -2, 2)) > 70
    ((place, size),) = jumps(stairs, 1.0, -2, 2, least=0.1)
    assert (place, size) == (pytest.approx(1.0), pytest.approx(1.05))


def test_context_can_be_assumed_and_is_checked():
    early = pull_of(parse("position-aware"), {"position": 0.0})
    late = pull_of(parse("position-aware"), {"position": 100.0})
    assert early(np.log(1.15), 1.0) > 0
    assert late(np.log(1.15), 1.0) == 0
    with pytest.raises(KlipError, match="no context has a field 'colour'"):
        pull_of(Clip(), {"colour": 1.0})(X, X)
