"""The way in: from the name of a task to its sizes, or to lanes of it."""

from __future__ import annotations

from gymnasium.envs.registration import EnvSpec

from klip.tasks.lanes import NONE, Arguments, EpisodeSeed, Lanes, TaskError, TaskSpec
from klip.tasks.lookup import find
from klip.tasks.robots import ROBOTS


def describe(task: str, arguments: Arguments = NONE, processes: int = 0) -> TaskSpec:
    """A task's sizes and time limit, or a `TaskError` that says why it cannot be trained on.

    Args:
        task: as for `make_lanes`, like the others
        arguments: keyword arguments of the environment
        processes: how many are to step it

    >>> describe("CartPole-v1").action
    Discrete(n=2, start=0)

    """
    spec = _checked(task, arguments, processes)
    # late imports: who asks about CartPole needs neither MuJoCo nor Box2D
    if _is_gymnasiums(spec, arguments, "CartPole-v1"):
        from klip.tasks.cartpole import describe_cartpole

        return describe_cartpole(task, spec.max_episode_steps)
    if _is_gymnasiums(spec, arguments, *ROBOTS):
        from klip.tasks.physics import describe_robot

        return describe_robot(task, spec.max_episode_steps)
    from klip.tasks.adapter import describe_environment

    return describe_environment(task, arguments)


def make_lanes(
    task: str,
    lanes: int,
    episode_seed: EpisodeSeed,
    arguments: Arguments = NONE,
    processes: int = 0,
) -> Lanes:
    """Independent copies of a task; call `reset` or `restore` before stepping them.

    Lane i gives exactly what `gymnasium.make(task, **arguments)` gives when its episode k starts
    with `reset(seed=episode_seed(i, k))`.

    Args:
        task: Gymnasium's id; `module:Id-v0` or `file.py:Id-v0` for one of your own
        lanes: how many copies
        episode_seed: (lane, episode, counted from 0) -> the seed of that reset
        arguments: keyword arguments of the environment
        processes: how many step the copies; 0 steps them here. The bits are the same

    >>> import numpy as np
    >>> lanes = make_lanes("CartPole-v1", 2, lambda lane, episode: 1000 * lane + episode)
    >>> lanes.reset().shape
    (2, 4)
    >>> lanes.step(np.array([0, 1])).reward
    array([1., 1.])

    """
    if lanes < 1:
        raise TaskError(f"{task}: {lanes} lanes were asked for; there must be at least 1")
    spec = _checked(task, arguments, processes)
    if _is_gymnasiums(spec, arguments, "CartPole-v1"):
        from klip.tasks.cartpole import CartPoleLanes

        return CartPoleLanes(task, lanes, episode_seed, spec.max_episode_steps)
    if _is_gymnasiums(spec, arguments, *ROBOTS):
        from klip.tasks.physics import MujocoLanes

        return MujocoLanes(task, lanes, episode_seed, spec.max_episode_steps)
    from klip.tasks.adapter import GymnasiumLanes

    return GymnasiumLanes(task, lanes, episode_seed, arguments, processes)


def _checked(task: str, arguments: Arguments, processes: int) -> EnvSpec:
    """What the task is registered as; raises where processes would have nothing to do."""
    spec = find(task)
    if processes and _is_gymnasiums(spec, arguments, "CartPole-v1", *ROBOTS):
        raise TaskError(
            f"{task} steps all its copies in one call, so processes={processes} could only slow "
            "it down: leave it out"
        )
    return spec


def _is_gymnasiums(spec: EnvSpec, arguments: Arguments, *ids: str) -> bool:
    """Whether an id means what it means in Gymnasium: a user may have registered it anew."""
    own = isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs.")
    usual = not (spec.kwargs or spec.additional_wrappers or arguments)
    return own and spec.id in ids and usual
