"""Quantiles of what comes in parts are those of the whole: exactly, or within the stated error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.theory.diagnostics import quantiles
from klip.theory.ranked import ERROR, SMALL, Ranked, joined

numbers = st.floats(-1e6, 1e6, width=32)
parts = st.lists(st.lists(numbers, max_size=30), min_size=1, max_size=6).filter(any)


def whole(parts):
    return np.concatenate([np.asarray(part, np.float32) for part in parts])


@given(parts)
def test_few_numbers_are_kept_and_their_quantiles_are_exact(parts):
    some = joined([Ranked.of(np.asarray(part, np.float32)) for part in parts])
    assert some.counts is None
    assert some.quantiles() == quantiles(whole(parts))


@given(parts, st.integers(0, 40), st.randoms())
def test_many_numbers_have_the_stated_error_in_any_order(parts, limit, draw):
    order = draw.sample(parts, len(parts))
    pool = Ranked.of(np.zeros(0, np.float32))
    for part in order:
        pool = joined([pool, Ranked.of(np.asarray(part, np.float32))], limit)
    assert pool.size == whole(parts).size
    assert (pool.counts is None) == (pool.size <= limit)
    there = np.sort(whole(parts).astype(np.float64))
    for q, found in zip((1, 5, 10, 25, 50, 75, 90, 95, 99), pool.quantiles(), strict=True):
        rank = q / 100 * (there.size - 1)
        between = there[int(np.floor(rank))], there[int(np.ceil(rank))]
        slack = ERROR * 1.0001 * max(map(abs, between)) + SMALL
        exact = np.percentile(there, q)
        assert abs(found - exact) <= slack


def test_cells_do_not_depend_on_who_counted_first():
    draw = np.random.default_rng(0)
    batches = [Ranked.of(draw.normal(size=500).astype(np.float32)) for _ in range(8)]
    one = joined(batches, limit=100)
    tree = joined(
        [joined(batches[:3], 100), joined([joined(batches[3:5]), *batches[5:]], 100)], 100
    )
    assert np.array_equal(one.values, tree.values)
    assert np.array_equal(one.counts, tree.counts)


def test_memory_is_bounded_and_frequent_numbers_are_exact():
    draw = np.random.default_rng(0)
    pool = Ranked.of(np.zeros(0, np.float32))
    for _ in range(40):
        x = np.exp(draw.normal(size=5000)).astype(np.float32)
        x[:3000] = 1.0  # a ratio that has not moved
        pool = joined([pool, Ranked.of(x)])
    assert pool.size == 200_000
    assert pool.values.size < 5000
    assert pool.quantiles()[4] == 1.0


def test_no_numbers_have_no_quantiles():
    assert Ranked.of(np.zeros(0)).quantiles() is None
    assert joined([Ranked.of(np.zeros(0))]).quantiles() is None


def test_a_number_beyond_the_limit_is_enough():
    more = Ranked.of(np.arange(5.0))
    assert joined([more], limit=4).counts is not None
    assert joined([more], limit=5).quantiles() == pytest.approx(quantiles(np.arange(5.0)))
