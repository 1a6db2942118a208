"""Scores and what is said of them: divergence is carried, mistakes are named."""

import numpy as np
import pytest

from klip.errors import KlipError
from klip.studies.scores import Estimate, Scores, normalise, stack


def test_runs_have_no_order_and_cannot_be_changed():
    scores = Scores.of([3.0, None, 1.0, 2.0])
    assert scores.values.tolist() == [1.0, 2.0, 3.0]
    assert (scores.n, scores.diverged, scores.counted) == (3, 1, 0)
    with pytest.raises(ValueError, match="read-only"):
        scores.values[0] = 5.0


def test_diverged_runs_are_counted_at_the_score_that_was_given():
    scores = Scores.of([3.0, None, None]).counting(-1.0)
    assert scores.values.tolist() == [-1.0, -1.0, 3.0]
    assert (scores.n, scores.diverged, scores.counted) == (3, 2, 2)
    assert scores.counting(7.0).values.tolist() == [-1.0, -1.0, 3.0]


def test_the_callers_array_stays_his():
    mine = np.array([2.0, 1.0])
    Scores(mine)
    mine[0] = 3.0
    assert mine.tolist() == [3.0, 1.0]


def test_tasks_are_stacked_by_name_and_carry_their_divergence():
    hopper, ant = Scores.of([1.0, 2.0, None]), Scores.of([5.0, None]).counting(0.0)
    both = stack({"Hopper": hopper, "Ant": ant})
    assert both.tasks == ("Ant", "Hopper")
    assert both.values.tolist() == [[0.0, 5.0], [1.0, 2.0]]
    assert str(both) == "2 runs on each of 2 tasks, 1 of them diverged, 1 more diverged"


def test_scores_are_normalised_task_by_task():
    both = Scores(np.array([[10.0, 20.0], [0.0, 3.0]]))
    # (10 - 10) / 20, (20 - 10) / 20; (0 + 1) / 2, (3 + 1) / 2
    assert normalise(both, [10.0, -1.0], [30.0, 1.0]).values.tolist() == [[0.0, 0.5], [0.5, 2.0]]
    assert normalise(both, 0.0, 10.0).values.tolist() == [[1.0, 2.0], [0.0, 0.3]]


def test_an_estimate_says_all_it_rests_on():
    found = Estimate(12345.6, 9999.0, 20000.0, 5, "Student t", 0.95, diverged=1)
    assert str(found) == "12346 [9999, 20000], 0.95 Student t, 5 runs, 1 more diverged"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: Scores.of([]), "there are no scores; give at least one run"),
        (lambda: Scores.of([1.0, float("nan")]), "a score is nan; .* give None"),
        (lambda: Scores.of([float("inf")]), "a score is inf; .* give None"),
        (lambda: Scores(np.ones((1, 2, 3))), r"scores have 3 axes; give \[runs\]"),
        (lambda: Scores(np.ones(2), diverged=-1), "0 of -1 diverged"),
        (lambda: Scores(np.ones(2), diverged=1, counted=2), "2 of 1 diverged"),
        (lambda: Scores.of([None, None]).grid, "all 2 runs diverged: .*counting"),
        (lambda: Scores(np.ones((2, 2)), 1).counting(0.0), "before stacking"),
        (lambda: Scores.of([1.0, None]).counting(float("nan")), "a score is nan"),
        (lambda: stack({}), "there are no tasks"),
        (
            lambda: stack({"Ant": Scores.of([1.0, None]), "Hopper": Scores.of([1.0, 2.0])}),
            "Hopper has 2 runs, but Ant has 1 run, 1 more diverged: .*counting",
        ),
        (lambda: stack({"Ant": Scores(np.ones((2, 2)))}), "Ant is stacked already"),
        (lambda: normalise(Scores.of([1.0]), 2.0, 2.0), "high - low is 0; the score of 1"),
        (lambda: normalise(Scores.of([1.0]), 0.0, float("nan")), "high - low is nan"),
        (lambda: normalise(Scores.of([1.0]), [0.0, 1.0], 2.0), r"low has shape \[2\]; give a"),
    ],
)
def test_a_mistake_is_answered_with_the_way_out(call, told):
    with pytest.raises(KlipError, match=told):
        call()
