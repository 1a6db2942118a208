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


CONVENTIONS = (
    {"value_lr": 1e-3, "decay": "cosine", "lr_end": 0.1, "warmup": 0.5, "grad_clip": "separate"},
    {"shape": "target-kl(clip, target=1e-5)", "stop_at": "step", "stop_value": False},
    {"time_limits": "skip", "advantage_form": "next-return", "epochs": 2, "minibatch": 32,
     "init": "lecun", "max_grad_norm": 0.0, "entropy_weight": 0.01},
)  # fmt: skip


@pytest.mark.parametrize("networks", [{"shared_trunk": False}, {"state_std": True, "squash": True}])
def test_conventions_side_by_side_and_after_a_stop(networks):
    """Each alone, together with the others, and from a state in the middle: the same bytes."""
    networks = {**networks, "activation": "swish", "layer_norm": True, "task_args": CUT}
    configs = [config("Pendulum-v1", **{**SMALL, **networks, **c}) for c in CONVENTIONS]
    together, rows, _ = train(configs)
    assert rows[0][0]["value_lr"] == pytest.approx(1e-3 * 2 / 3)
    of_policy, of_value = together[1]["adam.count"].tolist()
    assert of_policy < of_value
    chosen = configs[1 if "squash" in networks else 2]
    (alone,), (own,), _ = train([chosen])
    same(alone, together[configs.index(chosen)])
    assert own == rows[configs.index(chosen)]
    cohort = Cohort([chosen])
    cohort.iterate()
    again = Cohort([chosen])
    again.restore(0, 1, cohort.state(0))
    for _ in range(chosen.iterations - 1):
        again.iterate()
    same(again.state(0), alone)


CUT = {"max_episode_steps": 20}
OLD = ({"lag": 2}, {"replay": 3}, {"lag": 2, "replay": 3})


@pytest.mark.parametrize("task", ["CartPole-v1", "Hopper-v4"])
def test_the_forms_of_ppo_clip_are_one_with_old_samples(task):
    """With a lag, with a replay, with both: the same bytes; a wrong coefficient is told apart."""
    fields = {**SMALL, "steps": 5 * 64, "epochs": 4, "lr": 0.02}
    forms = ("clip", "per-sample", "clip-phi", "per-sample(eps=0.21)")
    configs = [config(task, shape=form, **fields, **old) for old in OLD for form in forms]
    arrays, rows, _ = train(configs)
    for first in range(0, len(configs), len(forms)):
        clip, *others = range(first, first + len(forms))
        assert max(row["kill"] for row in rows[clip]) > 0
        for other in others[:2]:
            same(arrays[clip], arrays[other])
            assert rows[clip] == rows[other]
        wrong = rows[others[2]]
        apart = [a != b for a, b in zip(rows[clip], wrong, strict=True)]
        killing = next(k for k, row in enumerate(rows[clip]) if row["kill"] > 0)
        assert apart[killing]
        ages = [row["age.samples"] for row in rows[clip]]
        old = configs[clip]
        assert len(ages[0]) == old.lag + old.replay
        assert [k for k, share in enumerate(ages[-1]) if share] == list(
            range(old.lag, old.lag + old.replay)
        )
        (alone,), (own,), _ = train([configs[clip]])  # the same bytes as in company
        same(alone, arrays[clip])
        assert own == rows[clip]


def test_a_frozen_policy_is_as_if_every_sample_were_fresh():
    """Step size 0: c is 1 to the last bit, and ages are right all the same."""
    fields = {**SMALL, "steps": 5 * 64, "lr": 1e-46}
    configs = [config("CartPole-v1", **fields, **old) for old in OLD]
    _, rows, cohort = train(configs)
    for run, row in zip(cohort.runs, rows, strict=True):
        ages = range(run.config.lag, run.config.lag + run.config.replay)
        for name, value in {"ess": 1.0, "behaviour_ratio": 1.0, "ratio_mean": 1.0, "kl": 0.0,
                            "samples": 1 / len(ages)}.items():  # fmt: skip
            told = row[-1][f"age.{name}"]
            assert [told[age] for age in ages] == pytest.approx([value] * len(ages), abs=1e-6)
        assert row[-1]["tv"] < 1e-7


def test_shapes_of_old_samples_train():
    """Each gets what it needs; and a controller of the step size is obeyed."""
    fields = {**SMALL, "steps": 4 * 64, "epochs": 1, "hidden": (8,), "lag": 1, "replay": 2}
    shapes = [
        "tv-step-size(target=1e-9, factor=2)",
        "p3o-ess",
        "vaco * clip(eps=per-age)",
        "m2po * is",
    ]
    _, rows, cohort = train(
        [config("CartPole-v1", shape=s, anneal=False, **fields) for s in shapes]
    )
    assert [run.status for run in cohort.runs] == ["done"] * len(shapes), [
        run.reason for run in cohort.runs
    ]
    assert [row["lr"] for row in rows[0]] == [3e-4 / 2**k for k in range(4)]
    assert [row["lr"] for row in rows[1]] == [3e-4] * 4
    assert all(row["tv"] > 0 for row in rows[0])


@pytest.mark.parametrize("at", [1, 4])
def test_old_samples_survive_in_a_state(at):
    """Cut in two anywhere and restored among others, a run ends in the same bytes."""
    fields = {**SMALL, "steps": 6 * 64, "trace": "recorded", "gradient_steps": "grow"}
    c = config("Pendulum-v1", lag=2, replay=3, **fields)
    (whole,), (rows,), _ = train([c])
    first = Cohort([c])
    for _ in range(at):
        first.iterate()
    state = {name: np.array(array) for name, array in first.state(0).items()}
    assert sum(name.endswith("observation") for name in state if "replay" in name) == min(at, 2)
    second = Cohort([config("Pendulum-v1", seed=8, **fields), c])
    second.restore(1, at, state)
    again = [second.iterate()[1] for _ in range(at, c.iterations)]
    assert again == rows[at:]
    same(second.state(1), whole)
    state["replay.0.reward"] = state["replay.0.reward"][1:]
    with pytest.raises(KlipError, match=r"'replay.0.reward' does not fit"):
        Cohort([c]).restore(0, at, state)


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
