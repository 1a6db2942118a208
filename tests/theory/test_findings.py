"""What is odd about a pull, and whether it is meant."""

import numpy as np
import pytest

from klip.shapes import PSPO, DualClip, KLk1, KLk3, StrictClip, parse
from klip.theory.findings import dead_regions, of_batch, of_pull, of_reference, pull_at_zero
from klip.theory.fit import Match
from klip.theory.reduction import Coupling, Reduction
from klip.theory.sharing import MEAN_RATIO, SEQUENCE_MEAN
from klip.theory.twists import Twist
from klip.theory.views import pull_of

NO_MATCH = Match(None, "none", {}, 0.0, False, (1.0, 0.0), [])


def codes(pull, published=None):
    return {f.code: f for f in of_pull(pull, Twist(NO_MATCH), published, 1e-6)}


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("clip", set()),
        ("spo", set()),
        ("pspo", {"anchor"}),
        ("kl-k1", {"anchor", "zero-advantage"}),
        ("kl-k3", {"zero-advantage"}),
        ("strict-clip", {"pass-killed"}),
        ("dual-clip", {"pass-killed"}),
    ],
)
def test_each_oddity_has_its_code(spelling, expected):
    pull = pull_of(parse(spelling).initial)
    assert codes(pull).keys() == expected
    assert not any(f.by_design for f in codes(pull).values())
    assert all(f.by_design for f in codes(pull, published=pull).values())


def test_an_anchor_is_described():
    assert "A + 0.5 and not A: a gauge" in codes(pull_of(KLk1(b=0.5)))["anchor"].message
    assert "the pull is 0.9 A" in codes(pull_of(PSPO(alpha=0.1)))["anchor"].message
    flipped = codes(lambda x, a: -np.exp(x) * a)["anchor"].message
    assert "a missing minus sign" in flipped
    squared = codes(lambda x, a: np.exp(x) * a * np.abs(a))["anchor"].message
    assert "transforming advantages" in squared


def test_where_nothing_pulls_back():
    (up, (low, high)), (down, (_, top)) = dead_regions(pull_of(StrictClip()))
    assert (up, down) == (1.0, -1.0)
    assert (low, round(high, 6)) == (0.0, 0.8)
    assert top == np.inf
    assert len(dead_regions(pull_of(DualClip()))) == 1


def test_a_pull_without_advantage():
    w, m = pull_at_zero(pull_of(KLk3()), 1e-6)
    assert m == pytest.approx(1 - w)
    assert pull_at_zero(pull_of(StrictClip()), 1e-6) is None


def test_what_shows_in_a_batch():
    told = {f.code for f in of_batch(Coupling(True, False), Reduction("x", problem="vary"))}
    assert told == {"batch-dependent", "reduction"}
    assert list(of_batch(Coupling(False, False), Reduction("mean", 1, 1))) == []
    (leak,) = of_batch(Coupling(False, False), Reduction("mean", 1, 1), "it leaks")
    assert leak.code == "masked-gradient"


def test_a_shared_ratio_is_by_design_if_a_level_is_like_it():
    mean = Reduction("mean", 1, 1)
    for sharing, by_design in ((SEQUENCE_MEAN, True), (MEAN_RATIO, False)):
        (found,) = of_batch(Coupling(False, True), mean, sharing=sharing)
        assert (found.by_design, sharing.words in found.message) == (by_design, True)
    (found,) = of_batch(Coupling(True, False), mean, sharing=SEQUENCE_MEAN)  # of a whole batch
    assert not found.by_design


def test_a_penalty_that_rewards_is_named_with_its_coefficient():
    for penalty, words in ((KLk3(b=0.3), "wrong sign and drives"), (KLk1(b=0.3), "entropy bonus")):
        twist = Twist(NO_MATCH, penalty=penalty)
        (found,) = of_pull(lambda x, a: np.exp(x) * a, twist, None, 1e-6)
        assert found.code == "penalty-sign"
        assert f"{penalty.name} with the coefficient -0.3" in found.message
        assert words in found.message


def test_a_reference_that_is_not_used():
    (found,) = of_reference("unused", KLk3(b=0.1))
    assert "its penalty, kl-k3(b=0.1), holds the policy to the old one" in found.message
    assert not [*of_reference("unused", None), *of_reference("penalty", KLk3())]
