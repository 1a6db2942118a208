"""What a shape may know about a token."""

import pytest

from klip.errors import KlipError
from klip.shapes import ByAge, Clip, Context
from klip.tokens.context import ages, from_batch, given_fields, in_dtype, token_context

torch = pytest.importorskip("torch")

ROWS = torch.zeros(2, 3)


def test_ratios_follow_from_log_probs():
    half = token_context(ROWS.half(), ROWS.half() - 1, behaviour_log_prob=ROWS.half() - 3)
    assert half.behaviour_log_ratio.dtype == torch.float32
    assert half.behaviour_log_ratio.tolist() == [[2.0] * 3] * 2
    assert half.given == {"behaviour_log_ratio", "proximal_log_ratio"}
    assert half.proximal_log_ratio == 0  # the old policy is the start, unless that is given too


def test_the_old_policy_is_the_sampler_if_only_the_start_is_given():
    context = token_context(ROWS, ROWS - 1, start_log_prob=ROWS - 3)
    assert context.behaviour_log_ratio == 0
    assert context.proximal_log_ratio.tolist() == [[2.0] * 3] * 2
    assert token_context(ROWS, ROWS).given == frozenset()


def test_an_unknown_field_is_named():
    with pytest.raises(KlipError, match="no context has colour; there are old_log_prob"):
        token_context(ROWS, ROWS, colour=1.0)


def test_ages_count_updates():
    assert ages(torch.tensor([3, 5]), 5).tolist() == [[2.0], [0.0]]
    with pytest.raises(KlipError, match="a sample of version 7 is newer than now=5"):
        ages(torch.tensor([7]), 5)
    with pytest.raises(KlipError, match=r"version \[1, 1\] must be \[B\]"):
        ages(torch.tensor([[7]]), 8)


def test_fields_fit_the_batch():
    needs = frozenset({"age", "position"})
    fields = given_fields(Context(age=torch.ones(2)), needs, ROWS, {"position": ROWS})
    assert fields["age"].shape == (2, 1)
    assert fields["position"] is not None
    with pytest.raises(KlipError, match=r"context age \[5\] must be|context age \[5, 1\] must be"):
        given_fields(Context(age=torch.ones(5)), needs, ROWS, {})


def test_what_the_caller_gives_goes_first():
    fields = given_fields(Context(age=2.0), frozenset({"age"}), ROWS, {"age": 1.0})
    assert fields == {"age": 2.0}


def test_the_batch_itself_tells_places():
    active = torch.tensor([[True, True, False], [True, True, True]])
    known = from_batch(frozenset({"position", "sequence", "mask"}), ROWS, active)
    assert known["sequence"].tolist() == [[0], [1]]
    assert known["mask"] is active
    assert known["position"][1].tolist() == [0.0, 1.0, 2.0]


def test_numbers_are_rounded_as_arrays_are():
    rounded = in_dtype(Clip(eps=ByAge(fresh=0.1)), torch.float32)
    assert rounded.eps.fresh == float(torch.tensor(0.1))
    assert in_dtype(Clip(eps=0.1), torch.float64) == Clip(eps=0.1)
