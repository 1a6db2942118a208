"""What an adapter may be given, and what it refuses before any training."""

import pytest
import torch

from klip.adapters.common import (
    CORRECTING,
    OF_SAMPLER,
    check_fields,
    defaults,
    given_region,
    given_shape,
    of_two_ratios,
    say_once,
    shown_metrics,
)
from klip.errors import KlipError
from klip.shapes import (
    CONTEXT_FIELDS,
    Clip,
    Context,
    Gate,
    IcePop,
    KLk3,
    Shape,
    Truncate,
    catalogue,
    parse,
)
from klip.tokens import (
    OPSM,
    ReferenceKL,
    SequenceMean,
    TokenRegion,
    token_context,
    token_loss,
)
from klip.tokens.region import ROOMS


@pytest.mark.parametrize("cls", catalogue(Shape).values(), ids=lambda cls: cls.name)
def test_every_shape_passes_where_everything_is_known(cls):
    """And by its spelling as by its value."""
    assert given_shape(cls(), "T", CONTEXT_FIELDS) == cls()
    assert given_shape(str(cls()), "T", CONTEXT_FIELDS) == cls()


@pytest.mark.parametrize("cls", catalogue(Shape).values(), ids=lambda cls: cls.name)
def test_every_need_is_asked_for(cls):
    """Without context a shape passes if it needs none and weighs no closed-form KL."""
    shape = cls()
    weighs = {"kl", "p3o", "truly-ppo"}
    if not shape.needs and shape.name not in weighs:
        assert given_shape(shape, "T", ()) == shape
        return
    with pytest.raises(KlipError, match=r"does not reach the loss in T|T does not compute"):
        given_shape(shape, "T", ())


@pytest.mark.parametrize("spelling", ["kl(b=1)", "clip + kl(b=1)", "by-sign(clip, kl(b=1))", "p3o"])
def test_a_closed_form_kl_is_found_wherever_it_is(spelling):
    with pytest.raises(KlipError, match=r"closed-form KL .* T does not compute.* kl-k3"):
        given_shape(spelling, "T", {"old_log_prob", "mask"})
    assert given_shape(spelling, "T", {"kl"}) == parse(spelling)


def test_thresholds_and_gates_count():
    with pytest.raises(KlipError, match=r"needs age .* which does not reach the loss in T"):
        given_shape("clip(eps=by-age(fresh=0.2))", "T", {"position"})
    with pytest.raises(KlipError, match="behaviour_log_ratio"):
        given_shape(Truncate() * Clip(), "T", {"position"})
    with pytest.raises(KlipError, match="it has no context"):
        check_fields([Clip(), IcePop()], "T", ())
    check_fields([Clip(), IcePop(), KLk3()], "T", {"behaviour_log_ratio"})


def test_what_there_is_is_said():
    with pytest.raises(KlipError, match=r"it has mask, position$"):
        given_shape("age-conditioned", "T", ["position", "mask"])


@pytest.mark.parametrize("spelling", ["adaptive-kl", "espo"])
def test_controllers_are_refused_with_a_way_out(spelling):
    with pytest.raises(KlipError, match=rf"{spelling} adapts between updates, and T keeps .*kl-k3"):
        given_shape(spelling, "T", CONTEXT_FIELDS)


@pytest.mark.parametrize("wrong", [0.2, None, Clip, Truncate()])
def test_what_is_no_shape_is_refused(wrong):
    with pytest.raises(KlipError, match="must be a shape or its spelling"):
        given_shape(wrong, "T", ())


@pytest.mark.parametrize("wrong", ["clap", "clip(", "clip(eps=-1)", "truncate(cap=2)"])
def test_what_does_not_spell_a_shape_is_refused(wrong):
    with pytest.raises(KlipError):
        given_shape(wrong, "T", ())


def test_a_region_is_read_and_every_part_of_it_is_checked():
    fields = {"mask", "reference_log_ratio"}
    given = ("clip", "sequence-mean", ["opsm(delta=0.1)"], ["reference-kl"])
    values = TokenRegion(Clip(), SequenceMean(), (OPSM(delta=0.1),), (ReferenceKL(),))
    assert given_region("T", fields, *given) == values
    assert given_region("T", fields, "clip + reference-kl").needs == {"reference_log_ratio"}
    for left in fields:
        with pytest.raises(KlipError, match=f"needs {left} .* does not reach the loss in T"):
            given_region("T", fields - {left}, *given)


NEAR = {
    "behaviour_log_ratio": -0.05, "proximal_log_ratio": 0.0, "old_log_prob": -1.0, "age": 1.0,
    "deviation": 0.05, "effective_size": 1.0, "second_moment": 0.0025, "mask": 1.0,
    "sequence": 0.0, "position": 0.0, "length": 2.0,
}  # fmt: skip
"""A sampler that is 5 % away from the old policy, within every threshold."""


@pytest.mark.parametrize("kind", [Shape, Gate])
def test_all_that_weigh_by_the_sampler_are_known_to(kind):
    """Where nothing has moved, they pull less on what the sampler liked more; others do not."""
    weigh, known = set(), set()
    for name, cls in catalogue(kind, ROOMS).items():
        part = cls()
        if not part.needs & OF_SAMPLER:
            continue
        context = Context(**{name: torch.full((1, 2), NEAR[name]) for name in part.needs})
        batch = (torch.zeros(1, 2), torch.ones(1, 2), context)
        pull = part.weight(*batch) if kind is Gate else part.multiplier(*batch)
        if bool((pull != 1).any()):
            assert (pull > 0.9).all()
            assert (pull < 0.96).all()
            weigh.add(name)
        if cls in CORRECTING:
            known.add(name)
    assert weigh == known
    assert len(known) > 2


def test_defaults_of_a_trainers_settings():
    assert defaults(Clip) == defaults(Clip(eps=0.5)) == {"eps": None, "low": None, "high": None}


@pytest.mark.parametrize(("shape", "mark"), [("clip", ""), ("sapo", "@0.2")])
def test_a_short_log_keeps_the_two_ratios_apart(shape, mark):
    """Two kill counts and two sets of quantiles, of which one moves and the other is as it was."""
    new, old = torch.tensor([[0.1, 0.5, -0.3]]), torch.zeros(1, 3)
    context = token_context(new, old, behaviour_log_prob=old - 0.4)
    row = token_loss(new, old, torch.ones(1), None, shape, context).diagnostics.metrics()
    shown = shown_metrics("few")(row)
    assert set(of_two_ratios(mark)) <= shown.keys()
    assert shown[f"move/kill{mark}"] == pytest.approx(1 / 3)
    assert shown[f"mismatch/kill{mark}"] == 1.0
    w = torch.tensor([0.1, 0.4]).exp().tolist()
    assert (shown["move/ratio_p50"], shown["mismatch/ratio_p50"]) == pytest.approx(tuple(w))
    assert shown["mismatch/ratio_p01"] == shown["mismatch/ratio_p99"]


def test_what_is_said_once_is_said_once():
    say_once.cache_clear()
    with pytest.warns(UserWarning, match="this"):
        say_once("this")
    say_once("this")  # a warning would be an error
