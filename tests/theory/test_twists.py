"""A shape but for one thing."""

import numpy as np
import pytest

from klip.shapes import KLk2, parse
from klip.theory.fit import match
from klip.theory.samples import sample
from klip.theory.twists import power_at_one, twist_of
from klip.theory.views import pull_of

CLIP = pull_of(parse("clip(eps=0.3)").initial)


class Asked:
    """A pull that is asked like a loss."""

    def __init__(self, pull):
        self.pull = lambda x, a, old=None: pull(np.asarray(x), np.asarray(a))


def twist(pull):
    question = Asked(pull)
    samples = sample(question.pull)
    return twist_of(question, samples, 1e-6, match(samples))


@pytest.mark.parametrize(
    ("pull", "words"),
    [
        (lambda x, a: 3 * CLIP(x, a), "times 3"),
        (lambda x, a: -CLIP(x, a), "times -1"),
        (lambda x, a: -CLIP(-x, a), "with the ratio the other way round"),
        (lambda x, a: np.exp(x) * CLIP(x, a), "times w"),
        (lambda x, a: np.exp(2 * x) * CLIP(x, a), "times w^2"),
        (lambda x, a: CLIP(x, a) + 0.2 * x, "minus kl-k2(b=0.2), a penalty with the wrong sign"),
        (lambda x, a: CLIP(x, a) - 0.2,
         "minus kl-k1(b=0.2), a penalty with the wrong sign, or an entropy bonus"),
    ],
)  # fmt: skip
def test_one_thing_is_found(pull, words):
    found = twist(pull)
    assert (str(found.match), found.match.exact) == ("clip(eps=0.3)", False)
    assert found.match.twist == words


def test_the_penalty_is_known_even_if_the_shape_is_not():
    found = twist(lambda x, a: np.exp(x) * a * np.exp(-3 * abs(x) ** 3) + 0.2 * x)
    assert (found.penalty, found.match.twist) == (KLk2(b=0.2), "")


def test_a_stranger_has_no_twist():
    found = twist(lambda x, a: np.exp(x) * a * np.exp(-3 * abs(x) ** 3))
    assert (found.match.twist, found.hint, found.penalty, found.power) == ("", "", None, 1)


@pytest.mark.parametrize(("spelling", "power"), [("clip", 1), ("spo", 1), ("reinforce", 0)])
def test_the_power_of_the_ratio(spelling, power):
    pull = pull_of(parse(spelling).initial)
    assert power_at_one(pull, 1e-6) == power
    assert power_at_one(lambda x, a: np.exp(x) * pull(x, a), 1e-6) in (1, power + 1)
