"""What knobs are searched over, as one writes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.ppo.config import config
from klip.studies.ranges import USUAL, Range, ranges_in


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("lr=1e-5..1e-2", Range("lr", (), 1e-5, 1e-2)),
        ("epochs=3..20", Range("epochs", (), 3, 20, True)),
        ("epochs=10,3", Range("epochs", (3, 10))),
        ("gamma=0.9, 0.99", Range("gamma", (0.9, 0.99))),
        ("anneal", Range("anneal", (False, True))),
        ("anneal=yes,no", Range("anneal", (True, False))),
        ("activation=relu,tanh", Range("activation", ("relu", "tanh"))),
        ("eps", Range("eps", (), 0.05, 0.8)),
        ("shape.eps=0.1..0.2", Range("shape.eps", (), 0.1, 0.2)),
        ("lag", Range("lag", (0, 1, 2))),
    ],
)
def test_words(word, expected):
    assert ranges_in("clip", [word]) == (expected,)
    assert ranges_in("clip", [str(expected)]) == (expected,), "it reads what it writes"


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ([], "there is nothing to search over"),
        (["lr", "lr=1..2"], "the knob 'lr' is named twice"),
        (["lr=2..1"], "lr=2..1 is empty: give the smaller end first"),
        (["lr=fast..slow"], "lr='fast' must be a number"),
        (["lr=1e-3"], "lr=0.001 is no choice: give two values or more"),
        (["lr=1e-3,1e-3,2e-3"], "has a value twice"),
        (["lr=nan..1"], "lr='nan' must be a number"),
        (["epochs=1,2.5"], "epochs='2.5' must be a whole number"),
        (["anneal=maybe,no"], "anneal='maybe' must be true or false"),
        (["activation=tanh..relu"], "is no range, since activation is no number"),
        (["hidden=64,32"], "hidden cannot be searched over"),
        (["correction_cap"], "correction_cap has no usual range: give one, such as"),
        (["width"], "'width' is no config field, and clip has no such number: it has eps"),
        (["seed=1,2"], "'seed' is no config field"),
        ([3], "over has 3: write lr"),
        ({"lr": 3}, "lr=3 is no choice"),
    ],
)  # fmt: skip
def test_what_is_none(over, message):
    with pytest.raises(KlipError, match=message) as caught:
        ranges_in("clip", over)
    assert "\n" not in str(caught.value)


def test_a_number_that_is_not_positive_has_no_usual_range():
    with pytest.raises(KlipError, match=r"give its range, as below=LOW\.\.HIGH"):
        ranges_in("tv-step-size", ["below"])


def test_a_mapping_says_the_same():
    assert ranges_in("clip", {"lr": "1e-4..1e-2", "eps": [0.3, 0.1], "epochs": None}) == ranges_in(
        "clip", ["lr=1e-4..1e-2", "eps=0.1,0.3", "epochs"]
    )


@pytest.mark.parametrize("name", USUAL)
def test_every_usual_range_can_be_trained(name):
    (each,) = ranges_in("clip", [name])
    fields = {"envs": 4, "rollout": 512, "minibatch": 32, name: None}
    for end in each.ends:
        made = config("CartPole-v1", **{**fields, name: end})
        assert getattr(made, name) == end


@given(st.floats(1e-6, 1e3), st.floats(1.01, 1e6), st.floats(0, 1))
def test_values_have_four_digits_and_wide_ranges_a_logarithm(low, factor, share):
    each = Range("lr", (), low, low * factor)
    assert each.log == (each.high / low >= 10)
    number = low + share * (each.high - low)
    assert each.value(number) == pytest.approx(number, rel=5.1e-4)
