"""Runs that advance in lockstep: one iteration of PPO, top to bottom.

    collect      act, step, normalise, store: T steps of every environment of every run
    advantages   values, old log-probabilities, GAE: one compiled call a run, or one a rollout
                 where an iteration learns from old ones too
    update       epochs x minibatches: one compiled call a run
    diagnostics  what to write down about it

Runs of a cohort share a task and array sizes, so one physics call and one act call serve them
all; shapes, seeds and other numbers may differ. No run's bytes depend on the others.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klip.engine.job import State, Stopped
from klip.engine.random import EpisodeSeeds, stream
from klip.errors import KlipError
from klip.ppo import policy
from klip.ppo.advantages import Rollout, preparation
from klip.ppo.config import Config, lockstep_key
from klip.ppo.divergence import bad_action, bad_step, beyond, diagnosis, not_finite
from klip.ppo.member import PPOMember, arrays_of, begun, program, take
from klip.ppo.normalise import Moments, RewardScale, Weights, normalise
from klip.ppo.replay import Learned, kept, learned, learned_late, orders, to_keep
from klip.ppo.rows import Metrics, row_of
from klip.ppo.update import epochs
from klip.shapes import numbers, structure
from klip.tasks import Box, Discrete, MultiDiscrete, Step, make_lanes


class Cohort:
    """The runs that one process advances together.

    Args:
        configs: one for each run; they must share their task and their array sizes

    """

    def __init__(self, configs: Sequence[Config]) -> None:
        first = configs[0]
        if any(lockstep_key(c) != lockstep_key(first) for c in configs):
            raise KlipError("the runs of a cohort must share their task and their array sizes")
        self.shared, envs = first, first.envs
        seeds = EpisodeSeeds()

        def seed_of(lane: int, episode: int) -> int:
            return seeds(configs[lane // envs].seed, lane % envs, episode)

        self.lanes = make_lanes(
            first.task, len(configs) * envs, seed_of, first.arguments, first.processes
        )
        self.layout = policy.layout_of(
            self.lanes.observation_size, self.lanes.action, first.hidden, **first.networks
        )
        self.action = _action(self.lanes.action)
        self.runs = [begun(self.layout, c) for c in configs]
        size = len(configs)
        self.gamma = np.array([[c.gamma] for c in configs])
        self.moments = Moments.of(size, self.lanes.observation_size)
        self.scale = RewardScale.of(size, envs)
        self.episode_return = np.zeros((size, envs))
        self.episode_length = np.zeros((size, envs), dtype=np.int64)
        (weights,) = self.moments.ahead(1, envs)
        self.observation = self._normalised(self._seen(self.lanes.reset()), weights)
        self.seconds = {"collect": 0.0, "learn": 0.0}

    # -- one iteration, in the order in which it happens --------------------------------------

    def iterate(self, stop: Callable[[], bool] = lambda: False) -> list[Metrics | None]:
        """Advance every run by one iteration; None for a run that could not.

        Raises `Stopped` as soon as `stop` says so; nothing of the iteration counts then.
        """
        began = time.perf_counter()
        # Numbers that are not finite are looked for, and reported run by run.
        with np.errstate(all="ignore"):
            rollouts = self.collect(stop)
        collected = time.perf_counter()
        self.seconds["collect"] += collected - began
        rows: list[Metrics | None] = []
        for i, (run, rollout) in enumerate(zip(self.runs, rollouts, strict=True)):
            if stop():
                raise Stopped
            row = None
            if run.status == "running":
                try:
                    row = self.learn(i, rollout)
                except (
                    Exception,
                    SystemExit,
                ) as error:  # a shape is anybody's code, and ours may be wrong
                    what = f"{type(error).__name__}: {error}"
                    what = f"learning with the shape {run.config.shape} raised {what}"
                    run.end("failed", what, traceback.format_exc())
            rows.append(row)
        self.seconds["learn"] += time.perf_counter() - collected
        return rows

    def collect(self, stop: Callable[[], bool] = lambda: False) -> list[Rollout]:
        """Take T steps in all lanes; the rollout of every run."""
        c, runs = self.shared, len(self.runs)
        steps, envs, lanes = c.rollout, c.envs, self.lanes
        arrays = self.layout.split(np.stack([np.asarray(run.acting) for run in self.runs]))
        noise = self._noise()
        draw = policy.actor(self.layout, arrays, noise)
        critic = policy.layers(self.layout, arrays, "value")
        box = _wide(lanes.action, lanes.lanes) if isinstance(lanes.action, Box) else None
        observations = np.empty((steps, runs, envs, lanes.observation_size), np.float32)
        actions = np.empty(noise.shape, np.float32 if self.layout.gaussian else np.int64)
        rewards: NDArray[np.float64] = np.empty((steps, runs * envs))
        ended = np.zeros((steps, runs, envs), np.bool_)
        bootstrap = np.zeros((steps, runs, envs), np.float32)
        finals: list[list[tuple[int, NDArray[np.float32]]]] = [[] for _ in self.runs]
        x = self.observation
        for t, weights in enumerate(self.moments.ahead(steps, envs)):
            if stop():
                raise Stopped
            observations[t] = x
            action = draw(x, t)
            if box is not None and not _finite(action):
                action = self._without_bad(action, t)
            actions[t] = action
            step = lanes.step(self._for_lanes(action, box))
            rewards[t] = step.reward
            if lanes.failed or not (_finite(step.final) and _finite(step.reward)):
                self._look_for_trouble(step, ended[:t])
            x = self._normalised(self._seen(step.observation), weights)
            if step.final is step.observation:
                continue  # no episode ended
            ended[t] = (step.terminated | step.truncated).reshape(runs, envs)
            cut = (step.truncated & ~step.terminated).reshape(runs, envs)
            if np.count_nonzero(cut):
                final = self._final(step.final)
                values = policy.forward(self.layout, critic, final)[..., 0]
                bootstrap[t] = np.where(cut, values, np.float32(0))
                for r, e in zip(*np.nonzero(cut), strict=True):
                    finals[r].append((t * envs + e, final[r, e]))
        self.observation = x
        rewards = rewards.reshape(steps, runs, envs)
        self._count_episodes(rewards, ended)
        if c.normalise_rewards:
            rewards = self.scale(rewards, ended, self.gamma, c.reward_clip)
        whole = (actions, rewards.astype(np.float32), ended.astype(np.float32), bootstrap)
        return [
            self._rollout(run, finals[r], observations[:, r], x[r], *(each[:, r] for each in whole))
            for r, run in enumerate(self.runs)
        ]

    def _rollout(
        self, run: PPOMember, finals: Sequence[tuple[int, NDArray[np.float32]]], *parts: Any
    ) -> Rollout:
        """What one run collected, and what its config needs to know of time limits."""
        rollout = Rollout(*parts)
        if run.config.time_limits == "skip":
            skipped = np.zeros(rollout.ended.shape, np.float32)
            skipped.flat[[place for place, _ in finals]] = 1
            rollout = rollout._replace(skipped=skipped)
        return rollout if run.config.fresh else to_keep(rollout, finals, run.config.replay > 1)

    def learn(self, i: int, rollout: Rollout) -> Metrics | None:
        """Train one run on its rollout; its row of metrics, or None if it ended without one."""
        run = self.runs[i]
        c, k, value = run.config, run.iteration, run.value
        for what, moments in (("observation", self.moments), ("return", self.scale.moments)):
            if not np.isfinite(moments.variance[i]).all():
                run.end("diverged", beyond(c, k, what, moments.variance[i]))
                return None
        data = self._data(run, rollout)
        names = numbers(value)
        rows, there = orders(c, k, len(data.ages))
        lr, value_lr = run.step_sizes()
        sizes = np.array([lr, value_lr] if c.value_lr else lr, np.float32)
        outcome = epochs(self.layout, program(c), structure(value), tuple(names))(
            run.learner, run.controller, np.array(list(names.values()), np.float32), data.batch,
            rows, there, sizes, np.float32(k * c.batch), np.float32(k / c.iterations),
        )  # fmt: skip
        row = row_of(run, data, outcome, lr)
        if c.value_lr:
            row["value_lr"] = value_lr
        row["unstable_episodes"] = int(self.lanes.warnings[self._lanes_of(i)].sum())
        if int(outcome.trouble) or not_finite(row):
            run.end("diverged", diagnosis(c, k, rollout, data.batch, outcome, row))
            return None
        run.move(outcome.learner, outcome.controller, tuple(data.slots[: c.replay - 1]))
        return row

    def _data(self, run: PPOMember, rollout: Rollout) -> Learned:
        """What an iteration learns from: its own rollout, and with replay those before it."""
        c, vector = program(run.config), run.learner.vector
        if c.fresh:
            return Learned(preparation(self.layout, c)(vector, rollout), [], [0])
        ranked = "second_moment" in run.value.needs
        if c.replay == 1:
            age = run.iteration - run.version
            return learned_late(self.layout, c, run.acting, vector, age, rollout, ranked)
        slots = [kept(self.layout, run.acting, run.version, rollout), *run.slots]
        return learned(self.layout, c, vector, run.iteration, slots, ranked)

    # -- a run's whole state ------------------------------------------------------------------

    def state(self, i: int) -> State:
        """Everything that a run's next iteration depends on, and how its actions are meant."""
        arrays = arrays_of(self.layout, self.runs[i]) | self.action
        # only what is changed in place is copied
        changing = self.moments.arrays("observation", i) | self.scale.moments.arrays("return", i)
        changing |= {name: array[i] for name, array in self._between().items()}
        arrays |= {name: np.array(array) for name, array in changing.items()}
        arrays |= {f"lanes.{k}": v for k, v in self.lanes.state(self._lanes_of(i)).items()}
        return arrays

    def restore(self, i: int, iteration: int, state: State) -> None:
        """Put a run where a state says; raises `KlipError` if it cannot go on exactly."""
        run, expected = self.runs[i], self.state(i)
        for name, array in expected.items():
            given = state.get(name)
            if not name.startswith("lanes.") and (given is None or given.shape != array.shape):
                raise KlipError(f"the checkpoint's {name!r} does not fit {run.config.task}")
        lanes = {k.removeprefix("lanes."): v for k, v in state.items() if k.startswith("lanes.")}
        self.lanes.restore(self._lanes_of(i), lanes)
        take(self.layout, run, iteration, state)
        self.moments.take("observation", i, state)
        self.scale.moments.take("return", i, state)
        for name, array in self._between().items():
            array[i] = state[name]

    def keep(self, chosen: Sequence[int]) -> None:
        """Go on with these runs only; none of their bytes change."""
        self.lanes.keep([lane for i in chosen for lane in range(*self._lanes_of(i).indices(10**9))])
        rows = list(chosen)
        self.runs = [self.runs[i] for i in rows]
        self.gamma = self.gamma[rows]
        self.moments, self.scale = self.moments.only(rows), self.scale.only(rows)
        self.episode_return = self.episode_return[rows]
        self.episode_length = self.episode_length[rows]
        self.observation = self.observation[rows]

    def close(self) -> None:
        """Let go of the environments."""
        self.lanes.close()

    def _between(self) -> dict[str, NDArray[Any]]:
        """What passes from one rollout to the next, `[R, E, ...]` each."""
        return {
            "next.observation": self.observation,
            "episode.return": self.episode_return,
            "episode.length": self.episode_length,
            "episode.discounted": self.scale.discounted,
        }

    def _lanes_of(self, i: int) -> slice:
        return slice(i * self.shared.envs, (i + 1) * self.shared.envs)

    # -- its parts ----------------------------------------------------------------------------

    def _noise(self) -> NDArray[np.float32]:
        """All random numbers that acting takes in one rollout, `[T, R, E, A]`."""
        c = self.shared
        heads = self.layout.heads
        shape = (c.rollout, c.envs, sum(heads) if self.layout.gaussian else len(heads))
        drawn = []
        for run in self.runs:
            rng = stream(run.config.seed, "act", run.iteration)
            drawn.append(
                rng.standard_normal(shape, np.float32)
                if self.layout.gaussian
                else rng.random(shape, np.float32)
            )
        return np.stack(drawn, axis=1)

    def _for_lanes(self, action: NDArray[Any], box: Box | None) -> NDArray[Any]:
        flat = action.reshape(-1, action.shape[-1])
        if box is not None:
            return policy.bounded(self.layout, flat, box)
        return flat[:, 0] if isinstance(self.lanes.action, Discrete) else flat

    def _normalised(self, x: NDArray[Any], weights: Weights) -> NDArray[np.float32]:
        if not self.shared.normalise_observations:
            return x.astype(np.float32)
        self.moments.update(x, weights)
        return normalise(x, self.moments, self.shared.observation_clip)

    def _seen(self, observation: NDArray[Any]) -> NDArray[Any]:
        """The lanes' observations, run by run, `[R, E, D]`."""
        return observation.reshape(len(self.runs), self.shared.envs, -1)

    def _without_bad(self, action: NDArray[Any], t: int) -> NDArray[Any]:
        """End the runs whose policy gives actions that are not finite; no environment sees them."""
        bad = ~np.isfinite(action).reshape(len(self.runs), -1).all(axis=1)
        for i in np.flatnonzero(bad):
            self.runs[i].end("diverged", bad_action(self.runs[i].config, self.runs[i].iteration, t))
        return np.where(bad[:, None, None], np.float32(0), action)

    def _look_for_trouble(self, step: Step, ended: NDArray[np.bool_]) -> None:
        """End the runs whose environments raised or gave numbers that are not finite.

        `ended` `[t, R, E]` says where episodes ended in the rollout before this step.
        """
        envs, t = self.shared.envs, len(ended)
        for lane, what in self.lanes.failed.items():
            what = f"{what} (environment {lane % envs} of the run)"
            self.runs[lane // envs].end("failed", what, self.lanes.tracebacks.get(lane, ""))
        bad = ~(np.isfinite(step.reward) & np.isfinite(step.final).all(axis=1))
        for lane in np.flatnonzero(bad).tolist():
            run, (r, e) = self.runs[lane // envs], divmod(lane, envs)
            ends = np.flatnonzero(ended[:, r, e])
            played = t - ends[-1] if len(ends) else t + 1 + self.episode_length[r, e]
            values = (step.reward[lane], step.final[lane])
            run.end("diverged", bad_step(run.config, run.iteration, t, e, int(played), values))

    def _count_episodes(self, reward: NDArray[Any], ended: NDArray[np.bool_]) -> None:
        """Returns and lengths of the episodes that ended in a rollout, `[T, R, E]` each."""
        for r, run in enumerate(self.runs):
            over: list[tuple[int, int, float, int]] = []
            for e in range(self.shared.envs):
                ends = np.flatnonzero(ended[:, r, e])
                pieces = np.split(reward[:, r, e], ends + 1)
                total, length = self.episode_return[r, e], int(self.episode_length[r, e])
                for t, piece in zip([*ends, -1], pieces, strict=True):
                    # added one by one, as if at each step
                    total = np.add.accumulate(np.concatenate([[total], piece]))[-1]
                    length += len(piece)
                    if t >= 0:
                        over.append((int(t), e, float(total), length))
                        total, length = 0.0, 0
                self.episode_return[r, e], self.episode_length[r, e] = total, length
            run.returns += [(total, length) for _, _, total, length in sorted(over)]

    def _final(self, final: NDArray[Any]) -> NDArray[np.float32]:
        """Final observations as the networks see them, `[R, E, D]`; they count in no statistics."""
        x = self._seen(final)
        if self.shared.normalise_observations:
            return normalise(x, self.moments, self.shared.observation_clip)
        return x.astype(np.float32)


def _wide(box: Box, lanes: int) -> Box:
    """Bounds with a row for each lane, so that NumPy need not stretch them at every step."""
    return Box(np.tile(box.low, (lanes, 1)), np.tile(box.high, (lanes, 1)))


def _finite(x: NDArray[Any]) -> bool:
    """Whether the sum of all squares is finite: False if a number is not, or for a huge one."""
    flat = x.ravel()
    return math.isfinite(flat.dot(flat))


def _action(action: Box | Discrete | MultiDiscrete) -> dict[str, Any]:
    """How a policy's outputs become actions, for whoever uses it without the task."""
    if isinstance(action, Box):
        return {"action.low": action.low, "action.high": action.high}
    if isinstance(action, Discrete):
        return {"action.heads": np.array(action.n), "action.start": np.array(action.start)}
    start = action.start or (0,) * len(action.n)
    return {"action.heads": np.array(action.n), "action.start": np.array(start)}
