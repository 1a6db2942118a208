"""What a token weighs: the weights of a mean add up to 1, and an empty sequence weighs nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.tokens import (
    ConstantLength,
    Denominator,
    MeanOfMeans,
    MeanOfSums,
    TokenMean,
    token_loss,
)
from tests.tokens.batches import REDUCERS, draw, gradient, reduced

counts = st.lists(st.integers(0, 40), min_size=1, max_size=12).map(
    lambda n: torch.tensor(n, dtype=torch.float64)[:, None]
)


def total(reducer, count):
    """The weights of all tokens that count, added up."""
    return (reducer.weight(count) * count).sum().item()


@given(counts)
def test_the_weights_of_a_mean_add_up_to_1(count):
    for reducer in (TokenMean(), MeanOfMeans()):
        assert total(reducer, count) == pytest.approx(1.0 if count.any() else 0.0, rel=1e-12)


@given(counts)
def test_a_mean_of_means_weighs_sequences_alike(count):
    of_sequences = (MeanOfMeans().weight(count) * count)[count > 0]
    assert of_sequences.tolist() == pytest.approx(
        [1 / max(len(of_sequences), 1)] * len(of_sequences)
    )


@given(counts)
def test_sums_weigh_tokens_alike_and_add_up_to_the_mean_length(count):
    full = count[count > 0]
    assert MeanOfSums().weight(count).shape == ()
    expected = full.mean().item() if len(full) else 0.0
    assert total(MeanOfSums(), count) == pytest.approx(expected)


@given(counts, st.integers(1, 100))
def test_constants_do_not_look_at_what_was_generated(count, constant):
    rows = torch.zeros_like(count)
    for reducer in (ConstantLength(constant), Denominator(constant)):
        assert torch.equal(reducer.weight(count), reducer.weight(rows))
    assert ConstantLength(constant).weight(count).item() == pytest.approx(
        1 / (constant * len(count))
    )
    assert Denominator(constant).weight(count).item() == pytest.approx(1 / constant)


@given(counts)
def test_an_empty_row_changes_the_weights_of_constant_length_alone(count):
    more = torch.cat([count, torch.zeros(1, 1, dtype=count.dtype)])
    for name, reducer in REDUCERS.items():
        here, there = (reducer.weight(c).expand_as(c)[: len(count)] for c in (count, more))
        if name == "constant":
            torch.testing.assert_close(there, here * len(count) / len(more))
        else:
            assert torch.equal(here, there), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", REDUCERS)
def test_a_weight_is_the_derivative_of_the_reduction_written_out(name, dtype):
    mask = draw(7)["mask"]
    leaf = torch.zeros(mask.shape, dtype=dtype, requires_grad=True)
    expected = gradient(reduced(name, leaf, mask), leaf)
    weight = REDUCERS[name].weight(mask.sum(-1, keepdim=True).to(dtype))
    assert weight.dtype == dtype
    torch.testing.assert_close(torch.where(mask, weight, 0.0), expected)


@pytest.mark.parametrize("name", [n for n in REDUCERS if n != "constant"])
def test_a_masked_sequence_is_as_good_as_left_out(name):
    batch = draw(8)
    few = {n: x[:-1].detach() for n, x in batch.items() if isinstance(x, torch.Tensor)}
    whole = token_loss(reducer=REDUCERS[name], **batch)
    part = token_loss(reducer=REDUCERS[name], **few)
    assert whole.loss.item() == pytest.approx(part.loss.item(), rel=1e-14)


@pytest.mark.parametrize("reducer", [Denominator, ConstantLength])
@pytest.mark.parametrize("wrong", [0, -1])
def test_a_constant_must_be_positive(reducer, wrong):
    with pytest.raises(KlipError, match=f"={wrong} must be greater than 0"):
        reducer(wrong)
