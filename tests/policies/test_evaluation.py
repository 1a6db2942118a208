"""Fixed episodes, each a function of policy, seed and number alone."""

import dataclasses
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tests.tasks.own  # noqa: F401  registers Corridor and others
from klip.engine.random import EpisodeSeeds
from klip.errors import KlipError
from klip.policies import evaluate, load
from klip.policies.evaluation import action_stream, episode_seed
from klip.policies.policy import policy_of
from klip.tasks import describe, make_lanes
from tests.policies.runs import arrays_of, config_of


def policy_for(task, **fields):
    spec, config = describe(task), config_of(task, **fields)
    return policy_of(config, arrays_of(config, spec.observation_size, spec.action))


def by_hand(policy, task, number, seed, sampled):
    """One episode in Gymnasium's own environment, the policy asked as a user would."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        env = gymnasium.make(task, disable_env_checker=True)
    observation, _ = env.reset(seed=episode_seed(seed, number))
    rng, total, length, over = action_stream(seed, number), 0.0, 0, False
    while not over:
        action = policy.act(observation, not sampled, rng)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, length, over = total + float(reward), length + 1, terminated or truncated
    env.close()
    return total, length, bool(terminated)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize(
    "task", ["CartPole-v1", "Hopper-v4", "Corridor-v0", "TwoCorridors-v0", "Pendulum-v1"]
)
def test_episodes_are_gymnasiums_bit_for_bit(task, sampled):
    policy = policy_for(task)
    found = evaluate(policy, 3, 5, sampled=sampled, lanes=2)
    for episode in found.episodes:
        expected = by_hand(policy, task, episode.number, 5, sampled)
        assert (episode.total, episode.length, episode.terminated) == expected


@pytest.mark.parametrize("task", ["CartPole-v1", "Hopper-v5", "Corridor-v0"])
@pytest.mark.parametrize("sampled", [False, True])
def test_the_number_of_lanes_does_not_matter(task, sampled):
    policy = policy_for(task, hidden=(64, 64))
    first = evaluate(policy, 13, 1, sampled=sampled, lanes=13)
    for lanes in (1, 2, 5, 12, 40):
        assert evaluate(policy, 13, 1, sampled=sampled, lanes=lanes) == first


def test_a_shorter_evaluation_is_the_beginning_of_a_longer_one():
    policy = policy_for("CartPole-v1")
    longer = evaluate(policy, 40, 3).episodes
    assert [e.number for e in longer] == list(range(40))
    assert evaluate(policy, 7, 3).episodes == longer[:7]
    assert evaluate(policy, 7, 4).episodes != longer[:7]


class Uneven(gymnasium.Env):
    """Episodes of very different lengths; the return is the length."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 100 if self.np_random.random() < 0.5 else 1
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(2, np.float32), 1.0, self.left == 0, False, {}


class Endless(Uneven):
    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Spoiled(Uneven):
    def step(self, action):
        return np.full(2, np.nan, np.float32), 1.0, False, False, {}


class Priceless(Uneven):
    def step(self, action):
        return np.zeros(2, np.float32), np.inf, True, False, {}


for kind in (Uneven, Endless, Spoiled, Priceless):
    gymnasium.register(f"{kind.__name__}-v0", kind)


def test_short_episodes_do_not_count_more():
    """The first to finish would nearly all be short ones."""
    found = evaluate(policy_for("Uneven-v0"), 200, 0, lanes=8)
    long = sum(e.length == 100 for e in found.episodes)
    assert len(found.episodes) == 200
    assert 70 < long < 130


def test_seeds_are_never_those_of_training():
    seen = {episode_seed(seed, number) for seed in range(5) for number in range(200)}
    assert len(seen) == 1000
    assert min(seen) >= 2**31
    assert max(seen) < 2**32
    training = EpisodeSeeds()
    assert max(training(0, env, k) for env in range(20) for k in range(20)) < 2**31


def test_the_summary_is_of_the_episodes():
    found = evaluate(policy_for("CartPole-v1"), 9)
    r, totals = found.as_dict(), [e.total for e in found.episodes]
    assert r["mean"] == np.mean(totals)
    assert r["std"] == np.std(totals)
    assert (r["min"], r["max"]) == (min(totals), max(totals))
    assert r["terminated"] + r["truncated"] == len(r["episodes"]) == 9
    assert r["episodes"][4]["return"] == totals[4]


def test_truncation_is_told_from_termination():
    r = evaluate(policy_for("Pendulum-v1"), 2).as_dict()
    assert (r["terminated"], r["truncated"]) == (0, 2)
    assert r["length_mean"] == r["length_max"] == 200


def test_statistics_stay_frozen():
    policy = policy_for("Hopper-v4")
    before = policy.moments.mean.copy(), policy.moments.variance.copy()
    evaluate(policy, 4)
    assert np.array_equal(before, (policy.moments.mean, policy.moments.variance))
    # they are used: other statistics act otherwise
    other = dataclasses.replace(
        policy, moments=dataclasses.replace(policy.moments, mean=policy.moments.mean + 1)
    )
    assert evaluate(other, 4) != evaluate(policy, 4)


def test_a_failing_environment_is_named():
    policy = policy_for("Breaks-v0")
    with pytest.raises(KlipError, match=r"Breaks-v0: episode \d+ .*the wheel came off"):
        evaluate(policy, 8, sampled=True)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("Endless-v0", "has not ended after 50 steps: give the task a time limit"),
        ("Spoiled-v0", "observation or a reward that is not finite at step 1"),
        ("Priceless-v0", "has the return inf"),
    ],
)
def test_an_episode_that_comes_to_no_good_end_is_named(task, said):
    with pytest.raises(KlipError, match=rf"{task}: episode \d \(reset with seed \d+\) .*{said}"):
        evaluate(policy_for(task), 3, longest=50)


def test_unstable_episodes_are_counted(monkeypatch):
    """A speed that is not finite, put into lane 1 during its first episode, number 1 of 4."""
    made, steps = [], iter(range(10**6))

    def make(*given):
        made.append(make_lanes(*given))
        return made[0]

    def spoil(observation):
        if next(steps) == 3:
            state = made[0].state(slice(1, 2))
            state["physics"][0, 4] = np.inf
            made[0].restore(slice(1, 2), state)

    monkeypatch.setattr("klip.policies.evaluation.make_lanes", make)
    with np.errstate(invalid="ignore"):
        found = evaluate(policy_for("HalfCheetah-v4"), 4, lanes=2, see=spoil)
    assert [e.unstable for e in found.episodes] == [False, True, False, False]
    assert found.as_dict()["unstable"] == 1


def test_a_task_that_would_be_imported_needs_trust(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    marker = tmp_path / "ran"
    (tmp_path / "klip_test_task.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    policy = policy_for("CartPole-v1")
    theirs = dataclasses.replace(
        policy, config={**policy.config, "task": "klip_test_task:CartPole-v1"}
    )
    with pytest.raises(KlipError, match="runs its code: if you trust it, give --trust-task"):
        evaluate(theirs, 1)
    assert not marker.exists()
    evaluate(theirs, 1, trust_task=True)
    assert marker.exists()
    del sys.modules["klip_test_task"]


def test_another_task_must_fit(runs):
    policy = load(runs["Hopper-v4"])
    assert evaluate(policy, 1, task="Hopper-v5").task == "Hopper-v5"
    with pytest.raises(KlipError, match=r"Walker2d-v4 observes 17 numbers, .* takes 11"):
        evaluate(policy, 1, task="Walker2d-v4")
    with pytest.raises(KlipError, match="there is no environment Hoper-v4: did you mean"):
        evaluate(policy, 1, task="Hoper-v4")
    with pytest.raises(KlipError, match="Pendulum-v1 observes 3"):
        evaluate(policy, 1, task="Pendulum-v1")
    acrobot = policy_for("Uneven-v0")
    with pytest.raises(KlipError, match=r"Corridor-v0 takes Discrete\(n=3, .*Discrete\(n=2,"):
        evaluate(acrobot, 1, task="Corridor-v0")


@pytest.mark.parametrize("fields", [{"episodes": 0}, {"seed": -1}])
def test_impossible_wishes_are_refused(fields):
    with pytest.raises(KlipError, match="must be at least 1, and seed"):
        evaluate(policy_for("CartPole-v1"), **fields)


def test_progress_and_observations_are_told():
    policy = policy_for("CartPole-v1")
    told, seen = [], []
    found = evaluate(policy, 5, progress=lambda *now: told.append(now), see=seen.append)
    assert told[-1] == (5, sum(e.length for e in found.episodes))
    assert sum(map(len, seen)) == told[-1][1]
