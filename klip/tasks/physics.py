"""The MuJoCo tasks as lanes: one call of the physics, then NumPy on its live views.

The order of the floating-point operations is Gymnasium's throughout, since the bits must be.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import mujoco  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from klip.tasks.clock import Clock
from klip.tasks.lanes import (
    ALL,
    Action,
    Bools,
    Box,
    EnvironmentFailed,
    EpisodeSeed,
    Floats,
    Ints,
    State,
    Step,
    TaskSpec,
    check_action,
    read_only,
    with_rows,
)
from klip.tasks.robots import ROBOTS, Healthy, Robot
from klip.tasks.simulations import Failures, InTurn, Simulations, Together


def load_model(xml: str) -> mujoco.MjModel:
    """Gymnasium's model file, compiled to the very bytes that Gymnasium gets.

    HalfCheetah's file sets its total mass by an attribute that MuJoCo calls deprecated, with a
    line on the terminal and a log file in the working directory at every load: that is kept
    quiet. Setting the mass after compiling, as MuJoCo advises, would be another model, since the
    solver's scale (`stat.meaninertia`) then stays that of the old mass.
    """
    assets = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    with quiet_mujoco(xml):
        return mujoco.MjModel.from_xml_path(str(assets / xml))


@contextmanager
def quiet_mujoco(whose: str) -> Iterator[None]:
    """Turn what MuJoCo would print and log into warnings, all but the one about HalfCheetah."""
    messages: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(messages.append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
    for message in messages:
        if "settotalmass" not in message:
            warnings.warn(f"{whose}: {message}", RuntimeWarning, stacklevel=3)


@functools.cache
def describe_robot(task: str, limit: int | None) -> TaskSpec:
    """The sizes of a MuJoCo task, from its model alone, which is compiled for it once."""
    model = load_model(ROBOTS[task].xml)
    return TaskSpec(task, _observation_size(ROBOTS[task], model), _bounds(model), limit)


class MujocoLanes:
    """`lanes` simulations of one robot; see `Lanes`."""

    def __init__(self, task: str, lanes: int, episode_seed: EpisodeSeed, limit: int | None) -> None:
        self._robot = robot = ROBOTS[task]
        self._model = model = load_model(robot.xml)
        self.task = task
        self.observation_size = _observation_size(robot, model)
        self.action: Action = _bounds(model)
        self._clock = Clock(task, lanes, episode_seed, limit)
        self._seconds = model.opt.timestep * robot.frame_skip
        self._velocities = slice(model.nq - robot.hidden, None)
        if robot.healthy is not None:
            self._low, self._high = _health_bounds(robot.healthy, model.nq + model.nv)
        self._allocate(lanes)

    def _allocate(self, lanes: int) -> None:
        """Make the simulations, and every array that has a row for each."""
        robot, model = self._robot, self._model
        self.lanes = lanes
        self._action_shape = (lanes, model.nu)
        self._physics: Simulations = (InTurn if robot.forces else Together)(model, lanes)
        self._controls = self._physics.bind("ctrl")  # [N, A] live
        self._qpos = self._physics.bind("qpos")  # [N, nq] live
        self._qvel = self._physics.bind("qvel")  # [N, nv] live
        # positions and velocities lie side by side behind the time: one view of both
        start = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_TIME.value)
        motion = self._physics.state[:, start : start + model.nq + model.nv]
        self._position = _position(robot, model, self._physics, motion)
        self._observation: Floats = np.zeros((lanes, self.observation_size))
        self._x: Floats = np.zeros(lanes)  # [N] where the last step ended
        self._warned: Ints = np.zeros(lanes, np.int64)  # [N] unstable episodes before this one
        self._marked: Bools = np.zeros(lanes, np.bool_)  # [N] unstable before it was restored
        # [N, 6B] the contact forces on every body, and as they are observed
        self._forces = self._physics.bind("cfrc_ext").reshape(lanes, -1) if robot.forces else None
        self._seen_forces = self._forces
        if self._forces is not None and robot.clip_forces is not None:
            self._seen_forces = self._forces.copy()
        self._parts = _observed(robot, self._physics, motion, self._seen_forces)
        self._judged: Floats | None = None
        if robot.healthy is not None:
            first = robot.healthy.first
            self._judged = motion[:, first : first + len(self._low)]

    @property
    def failed(self) -> dict[int, str]:
        return self._clock.failed

    @property
    def tracebacks(self) -> dict[int, str]:
        return self._clock.tracebacks

    def reset(self) -> Floats:
        self._clock.begin()
        self._begin(np.arange(self.lanes))
        self._warned[:] = 0
        self._observation = self._observe(np.zeros_like(self._observation))
        return self._observation

    def step(self, action: NDArray[Any]) -> Step:
        check_action(self.task, action, self._action_shape)
        robot, action = self._robot, np.ascontiguousarray(action)
        self._controls[:] = action
        going = self._clock.going() if self.failed else None
        self._note(self._physics.step(robot.frame_skip, going), "stepping")
        if robot.clip_forces is not None:
            self._clip_forces(robot.clip_forces)
        healthy = self._healthy()
        reward = self._reward(action, healthy)
        terminated = np.zeros(self.lanes, np.bool_) if healthy is None else ~healthy
        truncated = self._clock.tick()
        if self.failed:
            still = list(self.failed)
            reward[still], terminated[still] = 0.0, False
        final = observation = self._observe(self._observation)
        ended = self._clock.advance(truncated if healthy is None else terminated | truncated)
        if len(ended):
            self._begin(ended)
            observation = self._observe(final)
        self._observation = observation
        return Step(observation, reward, terminated, truncated, final)

    def state(self, where: slice = ALL) -> dict[str, NDArray[Any]]:
        return self._clock.state(where) | {
            "physics": self._physics.state[where].copy(),  # [n, S]
            "x": self._x[where].copy(),  # not in the physics where it lags one substep behind
            "warned": self._warned[where].copy(),
            "unstable": self._unstable()[where],
            "observation": self._observation[where].copy(),
        }

    def restore(self, where: slice, state: State) -> Floats:
        saved = self._clock.check(where, state)
        physics = saved.array("physics", np.float64, self._physics.state.shape[1])
        x = saved.array("x", np.float64)
        warned = saved.counts("warned")
        unstable = saved.array("unstable", np.bool_)
        observation = saved.array("observation", np.float64, self.observation_size)
        self._clock.restore(where, saved)
        self._physics.restart(np.arange(self.lanes)[where])
        self._physics.state[where] = physics
        self._x[where], self._warned[where], self._marked[where] = x, warned, unstable
        self._observation = with_rows(self._observation, where, observation)
        return read_only(observation.copy())

    def keep(self, chosen: Sequence[int]) -> None:
        state = self.state()
        self._clock.keep(chosen)
        failed = dict(self.failed)
        self._allocate(len(chosen))
        self.restore(ALL, {key: array[list(chosen)] for key, array in state.items()})
        for lane, reason in failed.items():
            self._clock.stop(lane, reason)

    @property
    def warnings(self) -> Ints:
        return self._warned + self._unstable()

    def close(self) -> None:
        """Nothing to let go of: the simulations are plain memory."""

    def _begin(self, lanes: Ints) -> None:
        """Start the present episode of some lanes, as `reset` and `reset_model` do."""
        robot, noise = self._robot, self._robot.reset_noise
        nq, nv = self._qpos.shape[1], self._qvel.shape[1]
        self._warned[lanes] += self._unstable()[lanes]
        self._marked[lanes] = False
        self._physics.restart(lanes)
        for lane in lanes:
            random = self._clock.generator(lane)
            self._qpos[lane] += random.uniform(-noise, noise, nq)
            if robot.normal_velocity:
                self._qvel[lane] += noise * random.standard_normal(nv)
            else:
                self._qvel[lane] += random.uniform(-noise, noise, nv)
        self._note(self._physics.forward(lanes), "resetting")
        self._x[lanes] = self._position()[lanes]
        if robot.clip_forces is not None:
            self._clip_forces(robot.clip_forces)

    def _note(self, failures: Failures, doing: str) -> None:
        """Let the lanes that MuJoCo raised an error in stand still."""
        for lane, reason in failures.items():
            self._clock.stop(lane, str(EnvironmentFailed(self.task, lane, doing, reason)))

    def _unstable(self) -> Bools:
        """[N] whether MuJoCo marked the present episode."""
        return self._marked | self._physics.unstable()

    def _reward(self, action: NDArray[Any], healthy: Bools | None) -> Floats:
        """[N] progress along x, plus the reward of being alive, minus the costs."""
        robot, x = self._robot, self._position()
        reward: Floats = x - self._x
        reward /= self._seconds
        self._x = x.copy()
        if robot.forward != 1.0:
            reward *= robot.forward
        if robot.always_alive:
            reward += robot.alive
        elif healthy is not None:
            reward += healthy * robot.alive
        # rows of a C-ordered array are summed as Gymnasium sums one action, in its precision
        controls = self._controls if robot.cost_of_applied else action
        cost = robot.control_cost * np.add.reduce(np.square(controls), axis=1)
        if self._seen_forces is not None and robot.contact_cost:
            contact = robot.contact_cost * np.add.reduce(np.square(self._seen_forces), axis=1)
            cost = cost + np.minimum(contact, robot.contact_cost_limit)
        reward -= cost
        return reward

    def _healthy(self) -> Bools | None:
        """[N] whether every judged number is within its bounds; None if nothing is judged."""
        if self._judged is None:
            return None
        within = self._judged > self._low
        within &= self._judged < self._high
        healthy: Bools = np.logical_and.reduce(within, axis=1)
        return healthy

    def _observe(self, before: Floats) -> Floats:
        """[N, D] from the live views, a new array; as `before` in the lanes that failed."""
        parts, limit = self._parts, self._robot.clip_velocity
        observation = parts[0].copy() if len(parts) == 1 else np.concatenate(parts, axis=1)
        if limit is not None:
            velocity = observation[:, self._velocities]
            np.maximum(velocity, -limit, out=velocity)
            np.minimum(velocity, limit, out=velocity)
        if self.failed:
            still = list(self.failed)
            observation[still] = before[still]
        return read_only(observation)

    def _clip_forces(self, limit: float) -> None:
        if self._forces is not None and self._seen_forces is not None:
            np.maximum(self._forces, -limit, out=self._seen_forces)
            np.minimum(self._seen_forces, limit, out=self._seen_forces)


def _bounds(model: mujoco.MjModel) -> Box:
    """The actuators' ranges, rounded to float32 as Gymnasium does."""
    low, high = model.actuator_ctrlrange.astype(np.float32).T
    return Box(read_only(low.copy()), read_only(high.copy()))


def _observation_size(robot: Robot, model: mujoco.MjModel) -> int:
    skip = 0 if robot.bodies == "all" else 1
    size = model.nq - robot.hidden + model.nv
    if robot.bodies != "none":
        size += 16 * (model.nbody - skip) + model.nv - 6 * skip
    return int(size + (6 * (model.nbody - skip) if robot.forces else 0))


def _health_bounds(healthy: Healthy, columns: int) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the judged columns, [columns from the first judged on]."""
    ranges = list(healthy.ranges)
    if healthy.rest is not None:
        free = columns - healthy.first - len(ranges)
        ranges += [(-healthy.rest, healthy.rest)] * free
    low, high = np.array(ranges).T
    return low, high


def _position(
    robot: Robot, model: mujoco.MjModel, physics: Simulations, motion: Floats
) -> Callable[[], Floats]:
    """The x that the reward follows, [N]: of the root joint, the torso or the centre of mass.

    The last two are computed by the physics before its last substep, and stay so in Gymnasium.
    """
    if robot.position == "joint":
        joint = motion[:, 0]
        return lambda: joint
    if robot.position == "torso":
        torso = physics.bind("xpos")[:, 1, 0]
        return lambda: torso
    centres, masses = physics.bind("xipos"), model.body_mass.copy()
    total = masses.sum()
    # einsum, since it rounds like Gymnasium's einsum; a product and a sum do not
    return lambda: np.einsum("b,nbj->nj", masses, centres)[:, 0] / total


def _observed(
    robot: Robot, physics: Simulations, motion: Floats, forces: Floats | None
) -> list[Floats]:
    """The live views, each [N, ...], that one after the other make the observation."""
    parts = [motion[:, robot.hidden :]]
    skip = 0 if robot.bodies == "all" else 1  # the first body is the world
    if robot.bodies != "none":
        lanes = motion.shape[0]
        parts += [
            physics.bind("cinert").reshape(lanes, -1)[:, 10 * skip :],
            physics.bind("cvel").reshape(lanes, -1)[:, 6 * skip :],
            physics.bind("qfrc_actuator")[:, 6 * skip :],  # the root joint has no actuator
        ]
    if forces is not None:
        parts.append(forces[:, 6 * skip :])
    return parts
