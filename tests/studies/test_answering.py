"""From runs to an answer: scales, margins, runs that diverged, and runs that are the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.studies.answering import Ending, Pair, Readings, look, outcome
from klip.studies.reading import read_one
from tests.studies.folders import config, make_run, small


def side(values, first=0.0, name="x"):
    """A shape's runs on a task, by their final returns; None is a run that diverged."""
    return [Ending(v, v and v / 2, first, f"{name}{i}") for i, v in enumerate(values)]


def drawn(seed, n=20, level=100.0, spread=5.0):
    return (level + spread * np.random.default_rng(seed).normal(size=n)).tolist()


def one(reference, shape, margin=0.05):
    return look({"a": reference}, {"a": shape}, margin, 0.05).pooled["final"]


def test_a_difference_of_one_task_is_in_returns():
    seen = one(side(drawn(0)), side(drawn(1, level=150.0), name="y"))
    assert seen.answer == "better"
    assert seen.low < 50 < seen.high
    assert seen.margin == pytest.approx(0.05 * np.mean(drawn(0)))


def test_the_margin_is_a_share_of_what_was_learned():
    """Returns may have any origin: those of Pendulum are negative."""
    low = one(side(drawn(0), 50.0), side(drawn(1), 50.0, "y"))
    high = one(side([v - 300 for v in drawn(0)], -250.0),
               side([v - 300 for v in drawn(1)], -250.0, "y"))  # fmt: skip
    assert high.margin == pytest.approx(low.margin)
    assert (high.low, high.high) == pytest.approx((low.low, low.high))


def test_the_same_curves_are_equivalent_and_the_same_scores_are_not():
    values = drawn(0, 6)
    same = one(side(values), side(values))
    assert (same.answer, same.difference, same.low, same.high) == ("equivalent", 0.0, 0.0, 0.0)
    other = one(side(values), side(values, name="y"))
    assert (other.answer, other.low, other.high) == ("open", None, None)


def test_runs_that_diverged_count_at_the_lowest_score():
    shape = [None, None, *drawn(1, 18)]
    seen = one(side(drawn(0), 10.0), side(shape, 10.0, "y"))
    counted = one(side(drawn(0), 10.0), side([10.0, 10.0, *shape[2:]], 10.0, "y"))
    assert seen == counted


def test_several_tasks_are_strata_of_normalised_scores():
    reference = {"a": side(drawn(0)), "b": side(drawn(1, level=1000.0, spread=50.0))}
    shape = {"a": side(drawn(2, level=120.0), name="y"),
             "b": side(drawn(3, level=1200.0, spread=50.0), name="y")}  # fmt: skip
    seen = look(reference, shape, 0.05, 0.05)
    assert seen.pooled["final"].difference == pytest.approx(0.2, abs=0.03)
    assert seen.pooled["final"].margin == 0.05
    assert seen.tasks["b"]["final"].difference == pytest.approx(200, abs=30)
    # averaging strata makes the pooled interval narrower than that of either alone
    width = {t: (by["final"].high - by["final"].low) for t, by in seen.tasks.items()}
    pooled = seen.pooled["final"].high - seen.pooled["final"].low
    assert pooled < min(width["a"] / 100, width["b"] / 1000)


@given(st.permutations(["a", "b", "c"]))
def test_the_order_of_tasks_does_not_matter(order):
    reference = {t: side(drawn(i)) for i, t in enumerate("abc")}
    shape = {t: side(drawn(i + 9), name="y") for i, t in enumerate("abc")}
    seen = look(reference, shape, 0.05, 0.05).pooled["final"]
    turned = look({t: reference[t] for t in order}, {t: shape[t] for t in order}, 0.05, 0.05)
    assert turned.pooled["final"].low == pytest.approx(seen.low)


def test_a_reference_that_learned_nothing_gives_no_scale():
    flat = {"a": side([0.0] * 6), "b": side(drawn(0, 6))}
    with pytest.raises(KlipError, match="learned nothing on a, so scores there have no scale"):
        look(flat, {t: side(drawn(1, 6), name="y") for t in "ab"}, 0.05, 0.05)


def test_what_is_needed_of_a_run(tmp_path):
    done = outcome(read_one(make_run(tmp_path, config(**small()))))
    again = outcome(
        read_one(make_run(tmp_path / "b", config(shape="per-sample(eps=0.2)", **small())))
    )
    assert (done.final, done.curve) == (again.final, again.curve)
    assert done.first < done.area < done.final
    stopped = outcome(read_one(make_run(tmp_path, config(seed=1, **small()), 5, "diverged", "no")))
    assert (stopped.final, stopped.area) == (None, None)
    assert np.isfinite(stopped.first)


def test_a_run_without_a_return_is_an_error_that_names_it(tmp_path):
    path = make_run(tmp_path, config(**small()), without=("return_mean",))
    with pytest.raises(KlipError, match=r"CartPole-v1.* has no final return"):
        outcome(read_one(path))


def test_a_pair_says_how_many_seeds_are_missing():
    seen = look({"a": side(drawn(0, 8))}, {"a": side(drawn(1, 8, 101.0), name="y")}, 0.01, 0.05)
    pair = Pair("y", "x", "final", 0.05, (seen,))
    assert pair.answer == "open"
    assert pair.more > 10
    assert pair.fields["more_seeds"] == pair.more
    assert {"answer", "difference", "low", "high", "seeds", "margin"} <= pair.fields.keys()
    assert pair.fields["tasks"]["a"]["final"]["low"] == pair.fields["low"]
    assert Pair("y", "x", "final", 0.05).fields["answer"] == "open"
    assert Readings({}, {}).pooled == {}
