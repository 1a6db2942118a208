"""Parameters: ranges, spelling, numbers that may be replaced, needs."""

import math

import numpy as np
import pytest

from klip.errors import KlipError
from klip.shapes import (
    CISPO,
    ByAge,
    Clip,
    Context,
    DualClip,
    Gate,
    KLk3,
    MissingContext,
    ParameterError,
    Shape,
    TrulyPPO,
    Truncate,
    check_needs,
    numbers,
    structure,
    with_numbers,
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Clip(eps=-0.1), r"clip: eps=-0.1 must be greater than 0"),
        (lambda: Clip(eps=0), r"clip: eps=0 must be greater than 0"),
        (lambda: Clip(low=-0.1, high=0.2), r"clip: low=-0.1 must be greater than 0"),
        (lambda: Clip(eps=math.nan), r"clip: eps=nan must be finite"),
        (lambda: Clip(eps="wide"), r"clip: eps='wide' must be a number"),
        (lambda: Clip(eps=True), r"clip: eps=True must be a number"),
        (lambda: Clip(eps=0.1, low=0.2, high=0.3), r"give eps, or low and high"),
        (lambda: DualClip(cap=0.5), r"dual-clip: cap=0.5 must be greater than 1"),
        (lambda: CISPO(floor=-1), r"cispo: floor=-1 must be at least 0"),
        (lambda: TrulyPPO(estimator="k9"), r"estimator='k9' must be one of closed-form, k3"),
    ],
)
def test_bad_parameters_are_named(build, message):
    """The thing, the value and what it may be."""
    with pytest.raises(ParameterError, match=message):
        build()


def test_one_band_has_one_value():
    """Equal trust regions are equal values, so that they hash to one run."""
    assert Clip(0.3) == Clip(eps=0.3) == Clip(low=0.3, high=0.3)
    assert Clip(high=0.28) == Clip(low=0.2, high=0.28)
    assert Clip(low=0.1, high=0.3).edges == (0.9, 1.3)
    assert str(Clip(low=0.1, high=0.3)) == "clip(low=0.1, high=0.3)"


def test_numbers_reach_into_parts():
    shape = Truncate(cap=2.0) * (Clip(eps=ByAge(fresh=0.3)) + KLk3(b=0.1))
    found = numbers(shape)
    assert found["gate.cap"] == 2.0
    assert found["shape.shape.eps.fresh"] == 0.3
    changed = with_numbers(shape, {"shape.penalty.b": 0.7})
    assert numbers(changed)["shape.penalty.b"] == 0.7
    assert numbers(shape)["shape.penalty.b"] == 0.1


def test_structure_forgets_numbers_only():
    assert structure(Clip(eps=0.1)) == structure(Clip(eps=0.3))
    assert structure(Clip(eps=0.1)) != structure(Clip(low=0.1, high=0.2))
    assert structure(TrulyPPO()) != structure(TrulyPPO(estimator="k3"))
    assert hash(structure(Clip())) == hash(structure(Clip(eps=0.3)))


def test_needs_are_known_before_any_sample():
    shape = Truncate() * Clip(eps=ByAge())
    assert shape.needs == {"behaviour_log_ratio", "age"}
    check_needs(shape, {"behaviour_log_ratio", "age", "entropy"})
    with pytest.raises(MissingContext, match="needs age"):
        check_needs(shape, {"behaviour_log_ratio"})
    with pytest.raises(MissingContext, match="age"):
        shape.multiplier(np.zeros(2), np.ones(2), Context(behaviour_log_ratio=np.zeros(2)))


def test_a_need_that_no_context_has_is_refused_at_once():
    with pytest.raises(KlipError, match="requires colour"):

        class Painted(Shape):
            requires = ("colour",)

            def multiplier(self, s):
                return s.log_w


@pytest.mark.parametrize("arguments", ["self, log_ratio, advantage, context", "self", "self, s, t"])
@pytest.mark.parametrize("view", ["multiplier", "beta", "objective", "kl_weight", "evaluate"])
def test_a_view_that_does_not_take_one_sample_is_refused_at_once(view, arguments):
    method = eval(f"lambda {arguments}: 0.0")
    told = rf"Old.{view}\({arguments}\) must .* `def {view}\(self, s\)`"
    with pytest.raises(KlipError, match=told):
        type("Old", (Shape,), {view: method})


def test_so_is_a_gates_weight():
    with pytest.raises(KlipError, match=r"write `def weight\(self, s\)`"):

        class Old(Gate):
            def weight(self, log_ratio, advantage, context):
                return 1.0


def test_what_a_class_is_stands_in_its_body():
    class Named(Shape):
        name = "another-name"
        number = "99"
        family = "kin"
        reference = "here"
        requires = "age"

        def multiplier(self, s):
            return s.w / s.age

    class Heir(Named):
        requires = ("kl",)

    assert (Named.name, Named.number, Named.reference) == ("another-name", "99", "here")
    assert Named().needs == {"age"}
    assert (Heir.name, Heir.number, Heir.reference, Heir.family) == ("heir", "", "", "kin")
    assert Heir().needs == {"age", "kl"}
    with pytest.raises(KlipError, match=r"Old: write requires = \.\.\. in the body of the class"):

        class Old(Shape, requires=("age",)):
            pass


def test_a_parameter_cannot_hide_a_method():
    with pytest.raises(KlipError, match="cannot be called 'band', which every Shape has"):

        class Hiding(Shape):
            band: float = 0.2


def test_a_shape_that_says_nothing_is_refused_at_once():
    with pytest.raises(KlipError, match="define multiplier"):

        class Silent(Shape):
            pass
