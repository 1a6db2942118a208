"""Parameters that follow the context."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import (
    AgeConditioned,
    AtAge,
    ByAge,
    ByEntropy,
    ByPosition,
    ByProgress,
    ByStep,
    Clip,
    Context,
    FromEnd,
    PerAge,
    PositionAware,
    Ramp,
    matched_at_ages,
)

torch = pytest.importorskip("torch")


@given(st.integers(1, 50), st.floats(0.01, 1), st.floats(0.01, 1))
def test_position_runs_from_start_to_end(length, start, end):
    """Also for a sequence of a single token, which is all start."""
    position = np.arange(length)
    value = ByPosition(start, end).value(Context(position=position, length=np.asarray(length)))
    assert value[0] == pytest.approx(start)
    assert value[-1] == pytest.approx(end if length > 1 else start)
    assert np.all(np.diff(value) * (end - start) >= -1e-12)


def test_one_over_age_above_its_floor():
    value = PerAge(fresh=0.3, floor=0.1).value(Context(age=np.array([0, 1, 3])))
    np.testing.assert_allclose(value, [0.3, 0.2, 0.15])


@given(st.lists(st.floats(0.01, 1), min_size=6, max_size=6), st.floats(0, 40))
def test_a_table_by_age_is_linear_between_its_ages(values, age):
    table = AtAge(*values)
    expected = np.interp(age, [0, 1, 2, 4, 8, 16], values)
    assert float(table.value(Context(age=np.asarray(age)))) == pytest.approx(expected)


@given(st.integers(0, 2**32 - 1), st.floats(0.02, 0.4))
def test_a_matched_table_kills_an_equal_share_at_every_age(seed, kill):
    """The older the wider spread: a constant radius would kill the old ones alone."""
    rng = np.random.default_rng(seed)
    age = np.repeat([0.0, 1.0, 2.0, 4.0, 8.0, 16.0], 500)
    log_w = rng.normal(0, 0.1 * np.sqrt(1 + age))
    a = rng.choice([-1.0, 1.0], age.size)
    table = matched_at_ages(log_w, a, age, kill)
    m = Clip(eps=table).multiplier(log_w, a, Context(age=age))
    shares = (m.reshape(6, 500) == 0).mean(1)
    np.testing.assert_allclose(shares, kill, atol=1 / 500 + 1e-9)


def test_a_matched_table_repeats_what_it_has_not_seen_and_refuses_nonsense():
    table = matched_at_ages(np.log([1.1, 1.3]), np.ones(2), np.array([3, 3]), kill=0.5)
    assert list(table.parameters.values()) == pytest.approx([0.2] * 6)
    inwards = matched_at_ages(np.log([1.1, 1.3]), -np.ones(2), np.array([0, 0]), kill=0.5)
    assert inwards.at_0 == 1e-3
    with pytest.raises(KlipError, match=r"kill=1\.5 must be a share"):
        matched_at_ages(np.zeros(1), np.ones(1), np.zeros(1), kill=1.5)
    with pytest.raises(KlipError, match="no samples"):
        matched_at_ages(np.zeros(0), np.zeros(0), np.zeros(0), kill=0.5)


def test_age_halves_above_its_floor():
    ages = np.array([0, 4, 8])
    value = ByAge(fresh=0.3, half_life=4.0, floor=0.1).value(Context(age=ages))
    np.testing.assert_allclose(value, [0.3, 0.2, 0.15])


def test_the_others():
    assert ByEntropy(0.2, 0.4, cut=1.0).value(Context(entropy=np.array([0.5, 2.0]))).tolist() == [
        0.2,
        0.4,
    ]
    steps = ByStep(start=0.2, end=0.1, steps=100).value(Context(step=np.array([0, 50, 500])))
    np.testing.assert_allclose(steps, [0.2, 0.15, 0.1])
    when = Context(progress=np.array([0, 0.25, 0.5, 1]))
    halfway = ByProgress(start=0.2, end=0.1, until=0.5).value(when)
    np.testing.assert_allclose(halfway, [0.2, 0.15, 0.1, 0.1])
    tail = FromEnd(tail=0.1, body=0.3, count=2).value(
        Context(position=np.arange(4), length=np.asarray(4))
    )
    assert tail.tolist() == [0.3, 0.3, 0.1, 0.1]


def test_integer_context_keeps_the_samples_dtype():
    """Positions and ages are integers in practice; float32 stays float32, in torch too."""
    x, a = np.zeros(3, np.float32), np.ones(3, np.float32)
    context = Context(age=np.arange(3), position=np.arange(3), length=np.asarray(3))
    for shape in (Clip(eps=ByAge()), Ramp(width=ByPosition()), AgeConditioned(), PositionAware()):
        assert shape.multiplier(x, a, context).dtype == np.float32
    ages = Context(age=torch.arange(3))
    m = Ramp(width=ByAge()).multiplier(torch.zeros(3), torch.ones(3), ages)
    assert m.dtype == torch.float32


def test_position_aware_is_soft_first_and_sharp_last():
    x, a = np.full(3, np.log(1.35)), np.ones(3)
    context = Context(position=np.array([0.0, 5.0, 10.0]), length=np.asarray(11.0))
    start, _, end = PositionAware().multiplier(x, a, context)
    assert 0 < start < 1.35
    assert end == 0


def test_a_fresh_sample_meets_ppo_clip():
    rng = np.random.default_rng(0)
    x, a = rng.normal(0, 0.5, 200), rng.normal(0, 1, 200)
    fresh = AgeConditioned(eps=0.2, discount=0.5).multiplier(x, a, Context(age=np.zeros(200)))
    np.testing.assert_array_equal(fresh, Clip(eps=0.2).multiplier(x, a))
    old = AgeConditioned(eps=0.2, half_life=2.0, discount=0.5).multiplier(
        x, a, Context(age=np.full(200, 2.0))
    )
    np.testing.assert_allclose(old, 0.25 * Clip(eps=0.1).multiplier(x, a))
