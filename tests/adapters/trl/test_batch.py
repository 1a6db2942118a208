"""What TRL knows of a batch reaches the shape, and so does where its answers are."""

import pytest
import torch

from klip.adapters.trl_batch import ANSWER, VERSION, look, mark
from klip.shapes import ByAge, ByEntropy, Clip, MissingContext, Truncate
from klip.tokens import OPSM, TokenRegion

NEW = torch.tensor([[0.0, 0.3, 0.3, 0.0], [0.0, 0.3, 0.0, 0.0]])
OLD = torch.zeros(2, 4)


def a_batch(**more):
    return {
        "completion_ids": torch.tensor([[5, 9, 7, 8], [5, 6, 7, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
        "advantages": torch.ones(2),
        "old_per_token_logps": OLD,
        **more,
    }


def region(shape, **more):
    return TokenRegion(shape, **more)


def test_age_is_the_number_of_updates_since():
    narrowing = region(Clip(eps=ByAge(fresh=0.5, half_life=1.0)))
    batch = a_batch(**{VERSION: torch.tensor([7, 5])})
    seen = look(narrowing, batch, NEW, None, now=7)  # w = 1.35: within 1.5, beyond 1.125
    assert (seen.m[:, 1] == 0).tolist() == [False, True]
    assert {"age=0/kill", "age=2-3/kill"} <= seen.metrics().keys()


def test_a_batch_without_ages_serves_no_shape_that_needs_them():
    with pytest.raises(MissingContext, match="age"):
        look(region(Clip(eps=ByAge())), a_batch(), NEW, None, now=0)


def test_entropy_is_the_policys():
    entropy = torch.tensor([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    seen = look(region(Clip(eps=ByEntropy(0.2, 0.4, 1.0))), a_batch(), NEW, entropy, now=0)
    assert (seen.m == 0).tolist() == [[False, False, True, False], [False, True, False, True]]


def test_the_sampler_is_what_the_gate_sees():
    sampler = OLD - 1.0
    sampler[0, 0] = float("nan")  # could not be scored: no correction
    gated = region(Clip(), gates=(Truncate(cap=2.0),))
    seen = look(gated, a_batch(sampling_per_token_logps=sampler), NEW, None, now=0)
    assert seen.m[0, 0] == 1
    assert seen.m[1, 0] == 2
    dropping = region(Clip(), gates=(OPSM(delta=0.5, anchor="behaviour"),))
    batch = a_batch(sampling_per_token_logps=OLD + 1.0, advantages=-torch.ones(2))
    assert not look(dropping, batch, NEW, None, now=0).m.any()


def test_what_a_tool_said_is_neither_answer_nor_reasoning():
    batch = a_batch(tool_mask=torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]))
    answer = mark(batch, lambda ids: "".join("abcdefghi#"[i] for i in ids), "#")
    assert answer.mask.int().tolist() == [[0, 0, 1, 0], [0, 0, 0, 0]]
    assert answer.found.tolist() == [True, False]
    seen = look(region(Clip()), {**batch, ANSWER: answer.mask}, NEW, None, now=0)
    found = seen.metrics()
    assert (found["answer/tokens"], found["reasoning/tokens"]) == (1, 5)
