import numpy as np
import pytest

from klip.shapes import Band, Context, catalogue, numbers, parse
from klip.theory.fit import match
from klip.theory.samples import sample


def pull_of(shape):
    def pull(log_ratio, advantage, old):
        context = Context(old_log_prob=np.full_like(log_ratio, old))
        return np.broadcast_to(shape.multiplier(log_ratio, advantage, context), log_ratio.shape)

    return pull


def fitted(text):
    shape = parse(text).initial
    return match(sample(pull_of(shape), by_old="old_log_prob" in shape.needs))


WITHIN_REACH = [
    cls for cls in catalogue().values()
    if cls().needs <= {"old_log_prob"}
    and cls().kl_weight(0.0, 1.0, Context(old_log_prob=-5.0, kl=0.0)) is None
]  # fmt: skip


@pytest.mark.parametrize("cls", WITHIN_REACH, ids=lambda cls: cls.name)
def test_every_shape_of_the_catalogue_is_found(cls):
    found = fitted(str(cls()))
    spellings = [str(found), *found.equivalents]
    assert found.exact
    assert found.max_difference < 1e-9
    assert str(cls()) in spellings


def test_the_rest_of_the_catalogue_is_out_of_reach():
    names = set(catalogue()) - {cls.name for cls in WITHIN_REACH}
    assert {"kl", "p3o", "truly-ppo", "tr-ppo", "age-conditioned", "position-aware"} <= names


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("clip(eps=0.3)", "clip", {"eps": 0.3}),
        ("clip(low=0.2, high=0.28)", "clip-higher", {"low": 0.2, "high": 0.28}),
        ("clip(low=0.1, high=0.15)", "clip", {"low": 0.1, "high": 0.15}),
        ("clip(eps=0.0003)", "clip", {"eps": 0.0003}),
        ("per-sample(eps=0.123456)", "clip", {"eps": 0.123456}),
        ("dual-clip(eps=0.25, cap=10)", "dual-clip", {"eps": 0.25, "cap": 10.0}),
        ("tis(cap=5)", "cispo", {"cap": 5.0, "floor": 0.0}),
        ("tis(cap=1)", "tis", {"cap": 1.0}),
        ("cispo(cap=1.28, floor=0.8)", "cispo", {"cap": 1.28, "floor": 0.8}),
        ("sapo(tau_positive=4, tau_negative=4)", "scopic", {"tau": 4.0}),
        ("ramp(eps=0.3, width=0.1)", "ramp", {"eps": 0.3, "width": 0.1}),
        ("ramp(eps=0.2, width=0.004)", "ramp", {"eps": 0.2, "width": 0.004}),
        ("soft-min(eps=0.3, temperature=0.02)", "soft-min", {"eps": 0.3, "temperature": 0.02}),
        ("ppo-rb(eps=0.1, alpha=0.02)", "ppo-rb", {"eps": 0.1, "alpha": 0.02}),
        ("ano(eps=0.15, push=6, pull=2)", "ano", {"eps": 0.15, "push": 6.0, "pull": 2.0}),
        ("dppo-tv(delta=0.1)", "dppo-tv", {"delta": 0.1}),
        ("kl-k3(b=0.0001)", "kl-k3", {"b": 0.0001}),
        ("clip(eps=0.2) + kl-k3(b=0.001)", "clip + kl-k3", {"eps": 0.2, "b": 0.001}),
        ("sapo + kl-k2(b=0.3)", "sapo + kl-k2",
         {"tau_positive": 1.0, "tau_negative": 1.05, "b": 0.3}),
    ],
)  # fmt: skip
def test_parameters_are_read_off(text, name, parameters):
    found = fitted(text)
    assert (found.name, found.exact) == (name, True)
    assert found.parameters == pytest.approx(parameters, abs=1e-6)


def test_the_same_function_under_other_names_is_told():
    found = fitted("clip")
    assert {"per-sample(eps=0.2)", "clip-phi(eps=0.2)"} <= set(found.equivalents)
    assert {"ppo-rb(eps=0.2, alpha=0.0)", "ramp(eps=0.2, width=0.0)"} <= set(found.equivalents)
    assert not any("dual-clip" in text for text in found.equivalents)


def test_a_band_with_equal_sides_has_one_radius():
    found = fitted("strict-clip(low=0.4, high=0.4)")
    assert isinstance(found.shape, Band)
    assert numbers(found.shape) == {"eps": 0.4}


def test_a_stranger_gets_the_nearest_shape_and_where_it_differs():
    def pull(log_ratio, advantage, old):
        w = np.exp(log_ratio)
        return np.where((w > 1.5) & (w < 1.6), 0.0, w * advantage)

    found = match(sample(pull))
    assert found.shape is not None
    assert not found.exact
    assert found.max_difference > 0.1
    assert 1.4 < found.where[0] < 1.7


def test_nothing_matches_no_pull():
    found = match(sample(lambda log_ratio, advantage, old: 0 * log_ratio))
    assert (found.shape, found.exact, str(found)) == (None, False, "none")
