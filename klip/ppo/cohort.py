"""Runs that advance in lockstep: one iteration of PPO, top to bottom.

    collect      act, step, normalise, store: T steps of every environment of every run
    advantages   values, old log-probabilities, GAE: one compiled call a run
    update       epochs x minibatches: one compiled call a run
    diagnostics  what to write down about it

Runs of a cohort share a task and array sizes, so one physics call and one act call serve them
all; shapes, seeds and other numbers may differ. No run's bytes depend on the others.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from klip.engine.job import State, Stopped
from klip.engine.random import episode_seed, stream
from klip.errors import KlipError
from klip.ppo import policy
from klip.ppo.advantages import Batch, Rollout, preparation
from klip.ppo.config import Config, lockstep_key
from klip.ppo.diagnostics import beta_quantiles, explained_variance
from klip.ppo.divergence import bad_action, bad_step, diagnosis, not_finite
from klip.ppo.normalise import Moments, RewardScale, normalise
from klip.ppo.update import Learner, Outcome, epochs, optimiser
from klip.shapes import Region, numbers, parse, structure
from klip.tasks import Box, Discrete, MultiDiscrete, Step, make_lanes
from klip.theory.partition import mark_of

Metrics = dict[str, Any]


@dataclass
class PPOMember:
    """One run of a cohort: what is its own between iterations."""

    config: Config
    value: Region
    learner: Learner
    controller: dict[str, Any]
    iteration: int = 0
    status: str = "running"
    """running, done, diverged (numbers stopped being finite), failed (its environment raised)"""
    reason: str = ""
    """why it diverged or failed"""
    traceback: str = ""
    """of what was raised, where it failed"""
    returns: list[tuple[float, int]] = field(default_factory=list)
    """(return, length) of the episodes that ended in the current rollout"""

    def end(self, status: str, reason: str, traceback: str = "") -> None:
        """End the run for a reason; if it has ended already, the first reason stays."""
        if self.status == "running":
            self.status, self.reason, self.traceback = status, reason, traceback


@functools.lru_cache(maxsize=256)
def program(c: Config) -> Config:
    """The config without what does not change the compiled program, so that runs share one."""
    return dataclasses.replace(c, shape="", code="", seed=0, steps=c.batch, lr=1.0, anneal=True)


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

        def seed_of(lane: int, episode: int) -> int:
            return episode_seed(configs[lane // envs].seed, lane % envs, episode)

        self.lanes = make_lanes(
            first.task, len(configs) * envs, seed_of, first.arguments, first.processes
        )
        self.layout = policy.layout_of(self.lanes.observation_size, self.lanes.action, first.hidden)
        self.action = _action(self.lanes.action)
        self.runs = [self._start(c) for c in configs]
        size = len(configs)
        self.gamma = np.array([[c.gamma] for c in configs])
        self.moments = Moments.of(size, self.lanes.observation_size)
        self.scale = RewardScale.of(size, envs)
        self.episode_return = np.zeros((size, envs))
        self.episode_length = np.zeros((size, envs), dtype=np.int64)
        self.observation = self._normalised(self._seen(self.lanes.reset()))
        self.seconds = {"collect": 0.0, "learn": 0.0}

    def _start(self, c: Config) -> PPOMember:
        vector = jax.numpy.asarray(policy.initial(self.layout, c.seed, c.log_std))
        value = parse(c.shape)
        controller = {k: jax.numpy.asarray(v, dtype="float32") for k, v in value.init().items()}
        return PPOMember(c, value, Learner(vector, optimiser(c).init(vector)), controller)

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
                except Exception as error:  # a shape is anybody's code, and ours may be wrong
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
        arrays = self.layout.split(np.stack([np.asarray(run.learner.vector) for run in self.runs]))
        noise = self._noise()
        box = lanes.action if isinstance(lanes.action, Box) else None
        observations = np.empty((runs, steps, envs, lanes.observation_size), np.float32)
        actions: list[NDArray[Any]] = []
        rewards = np.empty((runs, steps, envs), np.float32)
        ends = np.zeros((runs, steps, envs), np.float32)
        bootstrap = np.zeros((runs, steps, envs), np.float32)
        x = self.observation
        for t in range(steps):
            if stop():
                raise Stopped
            observations[:, t] = x
            action = policy.act(self.layout, arrays, x, noise[:, t])
            if not np.isfinite(action.sum()):
                action = self._without_bad(action, t)
            actions.append(action)
            step = lanes.step(self._for_lanes(action, box))
            if lanes.failed or not np.isfinite(step.reward.sum() + step.final.sum()):
                self._look_for_trouble(step, t)
            reward = step.reward.reshape(runs, envs)
            ended = (step.terminated | step.truncated).reshape(runs, envs)
            self.episode_return += reward
            self.episode_length += 1
            if ended.any():
                ends[:, t] = ended
                self._episodes_over(ended)
            rewards[:, t] = (
                self.scale(reward, ended, self.gamma, c.reward_clip)
                if c.normalise_rewards
                else reward
            )
            x = self._normalised(self._seen(step.observation))
            cut = step.truncated & ~step.terminated
            if cut.any():
                bootstrap[:, t] = self._final_values(arrays, step.final, cut.reshape(runs, envs))
        self.observation = x
        stacked = np.stack(actions, axis=1)
        return [
            Rollout(observations[r], x[r], stacked[r], rewards[r], ends[r], bootstrap[r])
            for r in range(runs)
        ]

    def learn(self, i: int, rollout: Rollout) -> Metrics | None:
        """Train one run on its rollout; its row of metrics, or None if it ended without one."""
        run = self.runs[i]
        c, k, value = run.config, run.iteration, run.value
        compiled = program(c)
        batch = preparation(self.layout, compiled)(run.learner.vector, rollout)
        names = numbers(value)
        orders = np.stack(
            [stream(c.seed, "order", k, e).permutation(c.batch) for e in range(c.epochs)]
        ).astype(np.int32)
        lr = c.lr * (1 - k / c.iterations) if c.anneal else c.lr
        outcome = epochs(self.layout, compiled, structure(value), tuple(names))(
            run.learner, run.controller, np.array(list(names.values()), np.float32), batch,
            orders, np.float32(lr), np.float32(k * c.batch), np.float32(k / c.iterations),
        )  # fmt: skip
        row = self._row(i, batch, outcome, lr)
        if int(outcome.trouble) or not_finite(row):
            run.end("diverged", diagnosis(c, k, rollout, batch, outcome, row))
            return None
        run.learner, run.controller = outcome.learner, outcome.controller
        run.iteration += 1
        run.returns = []
        if run.iteration == c.iterations:
            run.end("done", "")
        return row

    # -- a run's whole state ------------------------------------------------------------------

    def state(self, i: int) -> State:
        """Everything that a run's next iteration depends on, and how its actions are meant."""
        run = self.runs[i]
        adam = run.learner.optimiser[1]
        # JAX's arrays never change, so only what is changed in place is copied
        arrays = {"adam.mu": adam.mu, "adam.nu": adam.nu, "adam.count": adam.count}
        arrays |= {f"controller.{k}": v for k, v in run.controller.items()}
        arrays = {name: np.asarray(array) for name, array in arrays.items()}
        arrays |= self.layout.split(np.asarray(run.learner.vector)) | self.action
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
        empty, adam = run.learner.optimiser
        vector = self.layout.join({name: state[name] for name, _ in self.layout.shapes})
        moments = {k: jax.numpy.asarray(state[f"adam.{k}"]) for k in ("mu", "nu", "count")}
        run.learner = Learner(vector, (empty, adam._replace(**moments)))
        run.controller = {k: jax.numpy.asarray(state[f"controller.{k}"]) for k in run.controller}
        run.iteration = iteration
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
        """All random numbers that acting takes in one rollout, `[R, T, E, A]`."""
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
        return np.stack(drawn)

    def _for_lanes(self, action: NDArray[Any], box: Box | None) -> NDArray[Any]:
        flat = action.reshape(-1, action.shape[-1])
        if box is not None:
            bounded: NDArray[Any] = np.clip(flat, box.low, box.high)
            return bounded
        return flat[:, 0] if isinstance(self.lanes.action, Discrete) else flat

    def _normalised(self, x: NDArray[Any]) -> NDArray[np.float32]:
        if not self.shared.normalise_observations:
            return x.astype(np.float32)
        self.moments.update(x)
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

    def _look_for_trouble(self, step: Step, t: int) -> None:
        """End the runs whose environments raised or gave numbers that are not finite."""
        envs = self.shared.envs
        for lane, what in self.lanes.failed.items():
            what = f"{what} (environment {lane % envs} of the run)"
            self.runs[lane // envs].end("failed", what, self.lanes.tracebacks.get(lane, ""))
        bad = ~(np.isfinite(step.reward) & np.isfinite(step.final).all(axis=1))
        for lane in np.flatnonzero(bad).tolist():
            run = self.runs[lane // envs]
            played = int(self.episode_length[lane // envs, lane % envs]) + 1
            values = (step.reward[lane], step.final[lane])
            run.end("diverged", bad_step(run.config, run.iteration, t, lane % envs, played, values))

    def _episodes_over(self, ended: NDArray[np.bool_]) -> None:
        for r, e in zip(*np.nonzero(ended), strict=True):
            self.runs[r].returns.append(
                (float(self.episode_return[r, e]), int(self.episode_length[r, e]))
            )
        self.episode_return[ended] = 0.0
        self.episode_length[ended] = 0

    def _final_values(
        self, arrays: dict[str, Any], final: NDArray[Any], cut: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """V(final observation) where a time limit cut an episode off, 0 elsewhere, `[R, E]`."""
        x = final.reshape(*cut.shape, -1)
        if self.shared.normalise_observations:
            x = normalise(x, self.moments, self.shared.observation_clip)
        values = policy.forward(arrays, "value", x.astype(np.float32))[..., 0]
        return np.where(cut, values, np.float32(0))

    def _row(self, i: int, batch: Batch, outcome: Outcome, lr: float) -> Metrics:
        """One line of the metrics file."""
        run = self.runs[i]
        c = run.config
        returns = np.array([r for r, _ in run.returns])
        lengths = np.array([n for _, n in run.returns])
        metrics = jax.device_get(outcome.metrics)
        row: Metrics = {
            "iteration": run.iteration + 1,
            "step": (run.iteration + 1) * c.batch,
            "episodes": len(returns),
            "return_mean": float(returns.mean()) if returns.size else None,
            "return_iqm": _iqm(returns) if returns.size else None,
            "length_mean": float(lengths.mean()) if returns.size else None,
            "lr": lr,
        }
        row |= {k: v.tolist() for k, v in metrics.items()}
        mark = mark_of(run.value.initial)
        row |= beta_quantiles(np.asarray(outcome.beta), np.asarray(outcome.sets), mark)
        row["explained_variance"] = explained_variance(
            np.asarray(batch.target), np.asarray(batch.old_value)
        )
        row |= {f"controller.{k}": float(v) for k, v in run.controller.items()}
        row["unstable_episodes"] = int(self.lanes.warnings[self._lanes_of(i)].sum())
        return row


def _iqm(values: NDArray[Any]) -> float:
    """The mean of the middle half."""
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def _action(action: Box | Discrete | MultiDiscrete) -> dict[str, Any]:
    """How a policy's outputs become actions, for whoever uses it without the task."""
    if isinstance(action, Box):
        return {"action.low": action.low, "action.high": action.high}
    if isinstance(action, Discrete):
        return {"action.heads": np.array(action.n), "action.start": np.array(action.start)}
    start = action.start or (0,) * len(action.n)
    return {"action.heads": np.array(action.n), "action.start": np.array(start)}
