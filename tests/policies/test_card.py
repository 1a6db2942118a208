"""The model card says what there is, and shows hostile names as text."""

import dataclasses

import pytest

from klip.errors import KlipError
from klip.policies import evaluate, read
from klip.policies.card import escape, model_card


@pytest.fixture
def trained(runs):
    return read(runs["Hopper-v4"])


def with_config(trained, **fields):
    config = {**trained.policy.config, **fields}
    policy = dataclasses.replace(trained.policy, config=config)
    return dataclasses.replace(trained, policy=policy)


def test_it_says_how_it_was_trained_and_what_it_returns(trained):
    result = evaluate(trained.policy, 2)
    text = model_card(trained, result, 3e-7, ())
    assert "# clip(eps=0.2) on Hopper-v4" in text
    assert "J = min(wA, clip(w, 1-low, 1+high) A)" in text
    assert "48 steps, 3 iterations, seed 0; the run is done." in text
    assert "While training: **30.0**" in text
    assert "| 32 | 20.0 |" in text
    assert f"| mean return | {result.as_dict()['mean']:.1f} |" in text
    assert "| mujoco | 3." in text
    assert 'klip.load("path/to/this/folder")' in text
    assert "3.0e-07" in text
    assert "Apache License 2.0" in text
    assert "KLip-PPO" in text


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("evil.py:X", "was not run to write this card"),
        ("no-such-shape", "not a shape that this version of Klip knows"),
        ("clip(eps=__import__)", "not a shape that this version of Klip knows"),
        ("truncate(cap=2) * clip + kl-k3(b=0.1)", "the two coefficients add"),
        ("adaptive-kl", "b <- grow b if d > above target"),
    ],
)
def test_a_formula_needs_no_code_of_a_strangers(trained, shape, said):
    assert said in model_card(with_config(trained, shape=shape), None, None, ())


HOSTILE = [
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![x](https://evil.example/pixel.png)",
    "a|b\n# heading\n```\ncode",
    "`x` *y* _z_ ~~w~~ $m$ #1 @someone https://evil.example www.evil.example",
    "\x1b[31mred\x00\u202eback\u2028",
    "&lt;b&gt;",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_shown_as_text(name):
    shown = escape(name)
    assert shown.isprintable()
    bare = shown.replace("\\\\", "")
    for sign in "`*_[]|~$#":
        assert bare.count(sign) == bare.count("\\" + sign) + (sign == "#") * bare.count("&#")
    assert "<" not in shown
    assert "://" not in shown
    assert "@" not in shown


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_hostile_reaches_the_card(trained, name):
    machines = ({"since": name, name: name, "klip": name},)
    strange = dataclasses.replace(
        with_config(trained, task=name, shape=name, lr=name, hidden=[name]),
        machines=machines,
        status=name,
    )
    text = model_card(strange, None, None, (name,))
    assert "<script" not in text
    assert "](javascript" not in text.replace("\\](", "")
    assert "https://evil" not in text
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert len(headings) == 7
    assert text.count("\n```") % 2 == 0


def test_what_is_not_a_count_is_refused(trained):
    with pytest.raises(KlipError, match="seed='<b>', and that is a count"):
        model_card(with_config(trained, seed="<b>"), None, None, ())
