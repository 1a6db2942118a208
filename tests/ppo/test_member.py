"""One run of a cohort: who acts, how it goes on, and its state and back."""

import numpy as np
import pytest

from klip.errors import KlipError
from klip.ppo import policy
from klip.ppo.config import config
from klip.ppo.member import arrays_of, begun, program, take
from klip.tasks import Discrete

LAYOUT = policy.layout_of(4, Discrete(2), (8,))
FIELDS = {"steps": 8 * 512}


def moved(run, times):
    """The run after some iterations; after k of them its parameters have grown by k."""
    for _ in range(times):
        run.move(run.learner._replace(vector=run.learner.vector + 1), run.controller, ())
    return run


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_the_policy_that_acts_is_that_of_lag_iterations_ago(lag):
    """In the first iterations there is none so old: the first one acts."""
    run = begun(LAYOUT, config("CartPole-v1", lag=lag, **FIELDS))
    start = np.asarray(run.learner.vector)
    for k in range(6):
        assert run.version == max(k - lag, 0)
        np.testing.assert_allclose(run.acting, start + run.version, rtol=1e-5)
        moved(run, 1)
    assert len(run.past) == lag


def test_a_state_and_back():
    c = config("CartPole-v1", shape="adaptive-kl", lag=2, **FIELDS)
    run = moved(begun(LAYOUT, c), 5)
    arrays = arrays_of(LAYOUT, run)
    other = begun(LAYOUT, c)
    take(LAYOUT, other, 5, arrays)
    for x, y in zip(run.past, other.past, strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(run.acting, other.acting)
    assert arrays_of(LAYOUT, other).keys() == arrays.keys()


@pytest.mark.parametrize("past", [None, np.zeros((1, 9), np.float32), np.zeros((2, 66))])
def test_past_policies_that_do_not_fit_are_refused(past):
    c = config("CartPole-v1", lag=2, **FIELDS)
    arrays = arrays_of(LAYOUT, moved(begun(LAYOUT, c), 5)) | {"past": past}
    with pytest.raises(KlipError, match="'past' does not fit a lag of 2"):
        take(LAYOUT, begun(LAYOUT, c), 5, {k: v for k, v in arrays.items() if v is not None})


def test_a_run_that_is_done_keeps_nothing_old():
    run = moved(begun(LAYOUT, config("CartPole-v1", lag=2, **FIELDS)), 8)
    assert run.status == "done"
    assert "past" not in arrays_of(LAYOUT, run)


def test_runs_of_other_lags_share_a_program():
    """Another lag compiles nothing anew; whether there is one does."""
    of = {lag: program(config("CartPole-v1", lag=lag, **FIELDS)) for lag in (0, 1, 2, 7)}
    assert of[1] == of[2] == of[7] != of[0]
