"""Shapes that look at the place or the age of a token are the plain ones where nothing varies."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.shapes import (
    AgeConditioned,
    ByAge,
    ByPosition,
    Clip,
    Context,
    FromEnd,
    PerSample,
    PositionAware,
    Ramp,
)
from klip.tokens import after_marker, ages, part_position, token_loss
from tests.shapes.samples import seeds
from tests.tokens.batches import draw, gradient

eps = st.floats(0.01, 0.9)
width = st.floats(0.0, 0.5)


def same(one, two, batch):
    left, right = (token_loss(shape=shape, **batch) for shape in (one, two))
    assert torch.equal(left.diagnostics.m, right.diagnostics.m)
    assert torch.equal(left.loss, right.loss)
    slopes = [gradient(x.loss, batch["log_prob"]) for x in (left, right)]
    assert torch.equal(*slopes)
    for ours, plain in zip(left.diagnostics.sets(), right.diagnostics.sets(), strict=True):
        assert torch.equal(ours, plain)


@given(seeds, eps, width)
def test_equal_thresholds_by_position(seed, eps, width):
    batch = draw(seed)
    same(Clip(eps=ByPosition(eps, eps)), Clip(eps=eps), batch)
    same(Clip(eps=FromEnd(tail=eps, body=eps, count=2)), Clip(eps=eps), batch)
    same(PositionAware(eps, eps, width, width), Ramp(eps=eps, width=width), batch)


@given(seeds, eps)
def test_equal_thresholds_by_age(seed, eps):
    batch = draw(seed, needs={"age"})
    same(Clip(eps=ByAge(eps, 4.0, floor=eps)), Clip(eps=eps), batch)
    same(AgeConditioned(eps=eps, floor=eps), PerSample(eps=eps), batch)


@given(seeds, eps)
def test_fresh_samples_meet_the_plain_clip(seed, eps):
    batch = draw(seed) | {"context": Context(age=torch.zeros(5))}
    same(AgeConditioned(eps=eps), PerSample(eps=eps), batch)


@given(seeds, eps, width)
def test_so_in_float32(seed, eps, width):
    batch = draw(seed, dtype=torch.float32, needs={"age"})
    same(Clip(eps=ByPosition(eps, eps)), Clip(eps=eps), batch)
    same(Clip(eps=FromEnd(tail=eps, body=eps, count=2)), Clip(eps=eps), batch)
    same(Clip(eps=ByAge(eps, 4.0, floor=eps)), Clip(eps=eps), batch)
    same(PositionAware(eps, eps, width, width), Ramp(eps=eps, width=width), batch)
    same(AgeConditioned(eps=eps, floor=eps), PerSample(eps=eps), batch)


def test_sharp_on_the_answer_and_wide_before_it():
    ids = torch.tensor([[1, 2, 9, 3, 4]])
    new = torch.full((1, 5), 0.25)
    answer = after_marker(ids, torch.ones(1, 5), [(9,)]).mask
    place, length = part_position(answer)
    shape = Clip(eps=FromEnd(tail=0.1, body=0.5, count=1))
    context = Context(position=place, length=length)
    spans = {"answer": answer, "reasoning": ~answer}
    _, seen = token_loss(new, torch.zeros(1, 5), torch.ones(1), None, shape, context, spans=spans)
    assert (seen.m > 0).tolist() == [[True, True, True, False, False]]
    found = seen.metrics()
    assert (found["answer/kill"], found["reasoning/kill"]) == (1, 0)
    assert found["kill"] == pytest.approx(2 / 5)


def test_the_region_narrows_with_age():
    new = torch.full((3, 2), 0.12)
    context = Context(age=ages(torch.tensor([10, 8, 2]), now=10))
    _, seen = token_loss(new, torch.zeros(3, 2), torch.ones(3), None, AgeConditioned(), context)
    found = seen.metrics()
    assert [found[f"age={a}/kill"] for a in ("0", "2-3", "8-15")] == [0, 0, 1]
    assert "age=1/kill" not in found
