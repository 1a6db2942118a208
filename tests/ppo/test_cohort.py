"""A run is a pure function: the same bytes whoever trains beside it."""

import numpy as np
import pytest

from klip.errors import KlipError
from klip.ppo.cohort import Cohort
from klip.ppo.config import config

SMALL = {"rollout": 32, "envs": 2, "steps": 192, "minibatch": 24, "epochs": 3}


def train(configs, break_run=None):
    """The final arrays and the metrics of every config of one cohort."""
    cohort = Cohort(configs)
    rows = [[] for _ in configs]
    for k in range(configs[0].iterations):
        if break_run is not None and k == 1:
            run = cohort.runs[break_run]
            run.learner = run.learner._replace(vector=run.learner.vector * np.nan)
        for row, seen in zip(cohort.iterate(), rows, strict=True):
            seen.append(row)
    return [cohort.state(i) for i in range(len(configs))], rows, cohort


def same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize("task", ["CartPole-v1", "Hopper-v4"])
def test_alone_or_in_company(task):
    """Alone, among others with other shapes and seeds, and in another order."""
    chosen = config(task, shape="clip", seed=3, **SMALL)
    others = [config(task, shape=s, seed=k, **SMALL) for k, s in enumerate(("spo", "kl", "clip"))]
    (alone,), (rows,), _ = train([chosen])
    for company in ([*others, chosen], [chosen, *reversed(others)]):
        arrays, all_rows, _ = train(company)
        place = company.index(chosen)
        same(arrays[place], alone)
        assert all_rows[place] == rows


def test_beside_a_neighbour_that_diverges():
    """Its parameters stop being finite: it stops with a reason, and nobody else notices."""
    configs = [config("CartPole-v1", seed=k, **SMALL) for k in range(3)]
    healthy, rows, _ = train(configs)
    arrays, broken_rows, cohort = train(configs, break_run=1)
    for i in (0, 2):
        same(arrays[i], healthy[i])
        assert broken_rows[i] == rows[i]
    assert "not finite" in cohort.runs[1].reason
    assert broken_rows[1][1:] == [None, None]


def test_variants_share_everything_but_the_shape():
    """The same seed gives every shape the same weights, resets, noise and permutations."""
    first, second = (
        Cohort([config("Hopper-v4", shape=s, seed=5, **SMALL)]) for s in ("clip", "kl-k3")
    )
    a, b = first.collect()[0], second.collect()[0]
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def test_returns_are_raw_and_of_finished_episodes():
    """The logged return is the environment's own, whatever rewards are trained on."""
    cohort = Cohort([config("CartPole-v1", normalise_rewards=True, **SMALL)])
    rollout = cohort.collect()[0]
    ended = int(rollout.ended.sum())
    assert ended == len(cohort.runs[0].returns) > 0
    for value, length in cohort.runs[0].returns:
        assert value == length  # CartPole pays 1 a step
    assert rollout.reward.std() > 0


def test_truncation_bootstraps_and_termination_does_not():
    """Pendulum only ever truncates, CartPole at first only terminates."""
    fields = {**SMALL, "rollout": 250, "steps": 500}
    pendulum = Cohort([config("Pendulum-v1", **fields)]).collect()[0]
    assert pendulum.ended.sum() == 2
    assert np.all((pendulum.bootstrap != 0) == (pendulum.ended > 0))
    cart = Cohort([config("CartPole-v1", **SMALL)]).collect()[0]
    assert cart.ended.sum() > 0
    assert not cart.bootstrap.any()


def test_actions_are_stored_as_sampled():
    """Beyond the bounds, where the environment only ever saw the clipped copy."""
    cohort = Cohort([config("Pendulum-v1", log_std=2.0, **SMALL)])
    assert np.abs(cohort.collect()[0].action).max() > 2.0


def test_only_like_runs_form_a_cohort():
    with pytest.raises(KlipError, match="array sizes"):
        Cohort([config("CartPole-v1", **SMALL), config("CartPole-v1")])
