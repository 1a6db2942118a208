"""The way in: from the name of a task to its sizes, or to lanes of it."""

from __future__ import annotations

from gymnasium.envs.registration import EnvSpec

from klip.tasks.lanes import EpisodeSeed, Lanes, TaskError, TaskSpec
from klip.tasks.lookup import find
from klip.tasks.robots import ROBOTS


def describe(task: str) -> TaskSpec:
    """A task's sizes and time limit, or a `TaskError` that says why it cannot be trained on.

    >>> describe("CartPole-v1").action
    Discrete(n=2, start=0)
    """
    spec = find(task)
    # late imports: who asks about CartPole needs neither MuJoCo nor Box2D
    if _is_gymnasiums(spec, "CartPole-v1"):
        from klip.tasks.cartpole import describe_cartpole

        return describe_cartpole(task, spec.max_episode_steps)
    if _is_gymnasiums(spec, *ROBOTS):
        from klip.tasks.physics import describe_robot

        return describe_robot(task, spec.max_episode_steps)
    from klip.tasks.adapter import describe_environment

    return describe_environment(task)


def make_lanes(task: str, lanes: int, episode_seed: EpisodeSeed) -> Lanes:
    """Independent copies of a task; call `reset` or `restore` before stepping them.

    Lane i gives exactly what `gymnasium.make(task)` gives when its episode k starts with
    `reset(seed=episode_seed(i, k))`.

    Args:
        task: Gymnasium's id, or `module:Id-v0` for one that a module registers
        lanes: how many copies
        episode_seed: (lane, episode, counted from 0) -> the seed of that reset

    >>> import numpy as np
    >>> lanes = make_lanes("CartPole-v1", 2, lambda lane, episode: 1000 * lane + episode)
    >>> lanes.reset().shape
    (2, 4)
    >>> lanes.step(np.array([0, 1])).reward
    array([1., 1.])

    """
    if lanes < 1:
        raise TaskError(f"{task}: {lanes} lanes were asked for; there must be at least 1")
    spec = find(task)
    if _is_gymnasiums(spec, "CartPole-v1"):
        from klip.tasks.cartpole import CartPoleLanes

        return CartPoleLanes(task, lanes, episode_seed, spec.max_episode_steps)
    if _is_gymnasiums(spec, *ROBOTS):
        from klip.tasks.physics import MujocoLanes

        return MujocoLanes(task, lanes, episode_seed, spec.max_episode_steps)
    from klip.tasks.adapter import GymnasiumLanes

    return GymnasiumLanes(task, lanes, episode_seed)


def _is_gymnasiums(spec: EnvSpec, *ids: str) -> bool:
    """Whether an id means what it means in Gymnasium: a user may have registered it anew."""
    own = isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs.")
    return own and spec.id in ids and not spec.kwargs and not spec.additional_wrappers
