"""Why a run stopped: what was not finite, when, and what may help."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.ppo.advantages import Batch, Rollout
from klip.ppo.config import config
from klip.ppo.divergence import bad_action, bad_step, diagnosis, not_finite
from klip.ppo.update import TROUBLES, Outcome

C = config("CartPole-v1", rollout=8, envs=2, steps=16 * 5, minibatch=16)
JUNK = (math.nan, math.inf, -math.inf)
ROW = {"kl": 0.1, "ratio_min": 0.25, "ratio_max": 4.0}


def told(where="", trouble="none", row=ROW, junk=math.nan):
    """The diagnosis of iteration 3 in which one array, or one part of the update, went wrong."""
    rollout = {name: np.zeros((8, 2)) for name in Rollout._fields}
    batch = {name: np.zeros(16) for name in Batch._fields}
    for arrays in (rollout, batch):
        if where in arrays:
            arrays[where].flat[5] = junk
    fields = dict.fromkeys(Outcome._fields) | {"trouble": np.array(TROUBLES.index(trouble))}
    return diagnosis(C, 2, Rollout(**rollout), Batch(**batch), Outcome(**fields), row)


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(
    ("values", "what"),
    [
        (lambda junk: (junk, np.zeros(3)), "the reward is {}"),
        (lambda junk: (1.0, np.array([0.0, junk, junk])), "observation[1] is {}"),
        (lambda junk: (junk, np.array([junk])), "the reward is {}"),
    ],
    ids=["reward", "observation", "both"],
)
def test_a_bad_step_names_the_number_and_its_place(values, what, junk):
    said = bad_step(C, 2, 5, 1, 17, values(junk))
    assert said.startswith(what.format(junk))
    assert "at step 17 of an episode of environment 1" in said
    assert "in iteration 3 of 5 (environment step 42)" in said  # 2 * 16 + 5 * 2
    assert "mend the environment" in said


def test_a_bad_action_is_the_policys_own():
    said = bad_action(C, 0, 7)
    assert "the policy's action is not finite in iteration 1 of 5 (environment step 14)" in said
    assert "a smaller lr" in said


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("observation", "the observation is not finite"),
        ("reward", "the reward is not finite"),
        ("old_log_prob", "the log-probability of its own actions is not finite"),
        ("old_value", "the value estimate is not finite"),
        ("advantage", "the advantage is not finite"),
    ],
)
def test_the_first_array_that_went_wrong_is_named(where, what, junk):
    said = told(where, trouble="parameters", junk=junk)  # which follow from the array
    assert said.startswith(what)
    assert "in the update of iteration 3 of 5; nothing of it was applied: " in said


@pytest.mark.parametrize("trouble", TROUBLES[1:])
def test_the_part_of_the_update_that_went_wrong_is_named(trouble):
    said = told(trouble=trouble)
    assert said.startswith(f"the {trouble} is not finite in the update of iteration 3 of 5")
    assert "ratios of new to old policy ranged from 0.25 to 4; a smaller lr" in said


def test_a_metric_is_named_where_all_else_is_finite():
    assert told(row={**ROW, "entropy": math.nan}).startswith("entropy is not finite in the update")


numbers = st.floats(allow_nan=False, allow_infinity=False)
values = numbers | st.none() | st.lists(numbers, max_size=3)


@given(st.dictionaries(st.text(min_size=1, max_size=4), values, max_size=5), st.sampled_from(JUNK))
def test_the_first_metric_that_is_not_finite(row, junk):
    """A metric that is missing is None, and no trouble."""
    assert not_finite(row) == ""
    assert not_finite({**row, "bad one": junk, "another": junk}) == "bad one"
    assert not_finite({**row, "list": [0.0, junk]}) == "list"
