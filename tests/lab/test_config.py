"""What a token run is a function of: what is refused, by name and value, and what makes an id."""

import dataclasses
import math

import pytest

from klip.engine.fields import types_of
from klip.errors import KlipError
from klip.lab.config import TokenConfig, Warmup, check, check_warmup

GOOD = TokenConfig("group", "arm", "clip(eps=0.1)")
MAY_BE_NOTHING = {"seed", "place", "replay", "slip", "forget", "keep_tokens"}


def numbers(cls):
    return [name for name, kind in types_of(cls).items() if kind in (int, float)]


def test_what_is_usual_can_be_run():
    check(GOOD)
    check_warmup(Warmup())
    check(dataclasses.replace(GOOD, replay=7, place=0, seed=0))


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, "1"])
@pytest.mark.parametrize(
    ("good", "name"),
    [(c, name) for c in (GOOD, GOOD.warmup) for name in numbers(type(c))],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_every_number_is_checked(good, name, wrong):
    least = "0 or more" if name in MAY_BE_NOTHING else "more than 0"
    words = least if wrong == -1 else "a (whole|finite) number"

    def make_and_check():
        c = dataclasses.replace(good, **{name: wrong})
        check(dataclasses.replace(GOOD, warmup=c) if isinstance(c, Warmup) else c)

    with pytest.raises(KlipError, match=f"^{name}={wrong!r} must be {words}"):
        make_and_check()


def test_whole_numbers_may_be_written_as_floats():
    made = TokenConfig("g", "a", "clip", iterations=4e1, warmup=Warmup(steps=1.4e3))
    assert made == TokenConfig("g", "a", "clip")
    assert made.id == TokenConfig("g", "a", "clip").id
    with pytest.raises(KlipError, match="seed=9223372036854775808 must be a whole number"):
        TokenConfig("g", "a", "clip", seed=2**63)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"minibatches": 7}, "minibatches=7 must divide the 512 completions of an iteration"),
        ({"completions": 1}, "completions=1 leaves every advantage 0"),
        ({"arm": ""}, "arm='' must be a line of text"),
        ({"group": "two\nlines"}, r"group='two\\nlines' must be a line of text"),
        ({"arm": "x" * 1000}, "must be a line of text"),
        ({"shape": "clap"}, "no shape is called 'clap'"),
        ({"shape": "adaptive-kl"}, "adaptive-kl is a controller"),
        (
            {"shape": "clip(eps=by-entropy)"},
            "needs entropy; of a token the lab knows age, behaviour_log",
        ),
        ({"code": "0123"}, r"the file of the shape clip\(eps=0.1\) has changed"),
        ({"warmup": Warmup(width=68)}, "width=68 must be a multiple of twice the 4 heads"),
        ({"warmup": Warmup(slip=1.5)}, "slip=1.5 and forget=0.45 must be probabilities"),
        ({"warmup": Warmup(forget=2.0)}, "forget=2.0 must be probabilities"),
    ],
)
def test_mistakes_are_named(fields, message):
    with pytest.raises(KlipError, match=message):
        check(dataclasses.replace(GOOD, **fields))


def test_every_field_is_part_of_the_id():
    for good in (GOOD, Warmup()):
        ids = {good.id, dataclasses.replace(good).id}
        assert len(ids) == 1
        for field in dataclasses.fields(good):
            value = getattr(good, field.name)
            other = Warmup(seed=9) if isinstance(value, Warmup) else value + type(value)("1")
            ids.add(dataclasses.replace(good, **{field.name: other}).id)
        assert len(ids) == 1 + len(dataclasses.fields(good))
    assert GOOD.stored["kind"] == "tokens"
    assert Warmup().stored["kind"] == "warm-up"


def test_what_follows_from_the_fields():
    c = dataclasses.replace(GOOD, prompts=3, completions=5, replay=2)
    assert (c.batch, c.task, GOOD.task) == (15, "addition-replay2", "addition")
    assert c.names == ("arm", "clip(eps=0.1)")
    assert Warmup(steps=7).iterations == 7
    assert Warmup(digits=2).longest == len("47+85=" + "7+5=12,4+8+1=13#132$")
