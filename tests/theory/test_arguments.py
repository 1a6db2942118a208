"""Which parameter of a loss is which array."""

import functools

import pytest

from klip.errors import KlipError
from klip.theory.arguments import Arguments, arguments_of, describe

NEW, OLD, REF, ADV, MASK = "new", "old", "reference", "advantage", "mask"


@pytest.mark.parametrize(
    ("signature", "order"),
    [
        ("new, old, a", (NEW, OLD, ADV)),
        ("n, o, adv, m", (NEW, OLD, ADV, MASK)),
        ("old_log_probs, log_probs, advantages", (OLD, NEW, ADV)),
        ("newlogprob, oldlogprob, mb_advantages, clip_coef=0.2", (NEW, OLD, ADV)),
        ("logps, old_logps, ref_logps, advantages, mask", (NEW, OLD, REF, ADV, MASK)),
        ("logp, logp_old, logp_ref, adv, loss_mask, beta=0.04", (NEW, OLD, REF, ADV, MASK)),
        ("log_probs, ref_log_probs, old_log_probs, advantages", (NEW, REF, OLD, ADV)),
        ("log_probs, old_log_probs, base_log_probs, advantages, action_mask",
         (NEW, OLD, REF, ADV, MASK)),
        ("logps, ref_logps, advantages, mask", (NEW, REF, ADV, MASK)),
        ("log_probs, advantages", (NEW, ADV)),
        ("trainer_logprobs, inference_logprobs, advantages, loss_mask", (NEW, OLD, ADV, MASK)),
        ("*args", (NEW, OLD, ADV)),
        ("new, old, returns", (NEW, OLD, ADV)),
        ("new, old, a, threshold=0.1, ref_free=False, mask_truncated=True", (NEW, OLD, ADV)),
    ],
)  # fmt: skip
def test_names_and_order_tell(signature, order):
    loss = eval(f"lambda {signature}: 0")
    assert next(arguments_of(loss)) == Arguments(order)


def test_what_may_be_left_out_is_given_first_and_then_left_out():
    def loss(new, old, advantages, mask=None, beta=0.1, ref_logps=None):
        return 0

    assert list(arguments_of(loss)) == [
        Arguments((NEW, OLD, ADV, MASK), (("ref_logps", REF),)),
        Arguments((NEW, OLD, ADV, MASK)),
    ]


def test_keywords_are_passed_by_name():
    def loss(new, old, *, advantages, token_mask):
        return 0

    named = (("advantages", ADV), ("token_mask", MASK))
    assert next(arguments_of(loss)) == Arguments((NEW, OLD), named)


def test_a_setting_makes_what_follows_it_a_keyword():
    def loss(new, old, clip_eps, advantages):
        return 0

    taken = next(arguments_of(functools.partial(loss, clip_eps=0.2)))
    assert taken == Arguments((NEW, OLD), (("advantages", ADV),))
    assert MASK not in taken
    with pytest.raises(KlipError, match=r"loss needs 'clip_eps', .*a setting, clip_eps=VALUE"):
        next(arguments_of(loss))


@pytest.mark.parametrize("name", ["values", "entropy", "cfg", "logits", "rollout_log_probs"])
def test_an_array_that_is_none_of_these_is_named(name):
    loss = eval(f"lambda new, old, advantages, {name}: 0")
    with pytest.raises(KlipError, match=f"needs '{name}'"):
        next(arguments_of(loss))


def test_a_loss_is_called_by_its_name():
    assert describe(describe) == "describe"
    assert describe(functools.partial(describe)) == "describe"
