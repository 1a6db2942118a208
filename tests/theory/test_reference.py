"""The penalty to a reference policy, told from one to the old policy."""

import pytest

from klip.shapes import Chi2, KLInverseK3, KLk1, KLk2, KLk3, KLReverseK3, parse
from klip.theory.blackbox import open_box
from klip.theory.fit import compare
from klip.theory.reduction import Question, Reduction, is_elementwise
from klip.theory.reference import penalty_in, spelled, to_reference, use_of_reference
from klip.theory.samples import sample
from klip.theory.views import pull_of

torch = pytest.importorskip("torch")


def held(penalty):
    """PPO-Clip with a penalty, a function of log w and u = log new - log reference."""

    def loss(new, old, ref, advantages):
        x = new - old
        w = torch.exp(x)
        surrogate = torch.min(w * advantages, w.clamp(0.8, 1.2) * advantages)
        return (-surrogate + 0.1 * penalty(x, new - ref)).mean()

    return loss


def question(penalty):
    box = open_box(held(penalty), "torch", is_elementwise)
    return Question(box, Reduction("mean", 1, 1))


@pytest.mark.parametrize(
    ("penalty", "shape", "use"),
    [
        (lambda x, u: torch.exp(-u) - 1 + u, KLInverseK3(b=0.1), "penalty"),
        (lambda x, u: u * u / 2, KLk2(b=0.1), "penalty"),
        (lambda x, u: x.exp() * (torch.exp(-u) - 1 + u), KLReverseK3(b=0.1), "penalty"),
        (lambda x, u: torch.exp(u) - 1 - u, KLk3(b=0.1), "penalty"),
        (lambda x, u: torch.exp(x) - 1 - x, KLk3(b=0.1), "unused"),
        (lambda x, u: u, KLk1(b=0.1), "unused"),
        (lambda x, u: 0.0 * u, None, "unused"),
        (lambda x, u: (u * u + x * x) / 4, KLk2(b=0.1), "unknown"),
        (lambda x, u: u * u / 2, None, "unknown"),
    ],
)
def test_moving_the_reference_tells(penalty, shape, use):
    assert use_of_reference(question(penalty), shape, 1.0, 1e-6) == use


def test_a_penalty_with_the_wrong_sign_is_one_to_the_reference_too():
    asked = question(lambda x, u: -u * u / 2)
    assert use_of_reference(asked, KLk2(b=0.1), -1.0, 1e-6) == "penalty"


@pytest.mark.parametrize(
    ("text", "spelling", "name"),
    [
        ("clip + kl-inverse-k3(b=0.1)", "clip(eps=0.2) + reference-kl(b=0.1, estimator=k3)",
         "clip + reference-kl"),
        ("kl-k2(b=0.1)", "is + reference-kl(b=0.1, estimator=k2)", "is + reference-kl"),
        ("clip + kl-k3(b=0.1)", "clip(eps=0.2) + kl-k3(b=0.1) to the reference",
         "clip + reference-kl"),
    ],
)  # fmt: skip
def test_a_match_is_spelled_with_it(text, spelling, name):
    shape = parse(text).initial
    pull = pull_of(shape)
    match = compare(shape, sample(lambda x, a, old: pull(x, a)), exact=True)
    there = to_reference(match, penalty_in(shape))
    assert (str(there), there.name) == (spelling, name)


def test_penalties_have_a_spelling():
    assert spelled(KLInverseK3(b=0.5)) == "reference-kl(b=0.5, estimator=k3)"
    assert spelled(Chi2(b=0.5)) == "chi2(b=0.5) to the reference"
    assert penalty_in(parse("clip + kl-k3(b=0.1)").initial) == KLk3(b=0.1)
    assert penalty_in(parse("clip").initial) is None
