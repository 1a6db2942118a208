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
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from klip.errors import KlipError
from klip.ppo import policy
from klip.ppo.advantages import Batch, Rollout, preparation
from klip.ppo.config import Config, lockstep_key
from klip.ppo.diagnostics import beta_quantiles, explained_variance
from klip.ppo.normalise import Moments, RewardScale, normalise
from klip.ppo.random import episode_seed, stream
from klip.ppo.update import Learner, Outcome, epochs, optimiser
from klip.shapes import Controller, Shape, numbers, parse, structure
from klip.tasks import Box, make_lanes

Metrics = dict[str, Any]


@dataclass
class Run:
    """One run's own state between iterations."""

    config: Config
    value: Shape | Controller
    learner: Learner
    controller: dict[str, Any]
    iteration: int = 0
    diverged: str = ""
    """why it stopped, if it did"""
    returns: list[tuple[float, int]] = field(default_factory=list)
    """(return, length) of the episodes that ended in the current rollout"""


def program(c: Config) -> Config:
    """The config with everything removed that does not change the compiled program."""
    return dataclasses.replace(c, shape="", seed=0, steps=c.batch, lr=1.0, anneal=True)


class Cohort:
    """The runs of one process."""

    def __init__(self, configs: Sequence[Config]) -> None:
        first = configs[0]
        if any(lockstep_key(c) != lockstep_key(first) for c in configs):
            raise KlipError("the runs of a cohort must share their task and their array sizes")
        self.shared, envs = first, first.envs

        def seed_of(lane: int, episode: int) -> int:
            return episode_seed(configs[lane // envs].seed, lane % envs, episode)

        self.lanes = make_lanes(first.task, len(configs) * envs, seed_of)
        self.layout = policy.layout_of(self.lanes.observation_size, self.lanes.action, first.hidden)
        self.runs = [self._start(c) for c in configs]
        size = len(configs)
        self.gamma = np.array([[c.gamma] for c in configs])
        self.moments = Moments.of(size, self.lanes.observation_size)
        self.scale = RewardScale.of(size, envs)
        self.episode_return = np.zeros((size, envs))
        self.episode_length = np.zeros((size, envs), dtype=np.int64)
        self.observation = self._normalised(self.lanes.reset())
        self.seconds = {"collect": 0.0, "learn": 0.0}

    def _start(self, c: Config) -> Run:
        vector = jax.numpy.asarray(policy.initial(self.layout, c.seed, c.log_std))
        value = parse(c.shape)
        state = value.init() if isinstance(value, Controller) else {}
        controller = {k: jax.numpy.asarray(v, dtype="float32") for k, v in state.items()}
        return Run(c, value, Learner(vector, optimiser(c).init(vector)), controller)

    # -- one iteration, in the order in which it happens --------------------------------------

    def iterate(self) -> list[Metrics | None]:
        """Advance every run by one iteration; None for a run that has diverged."""
        began = time.perf_counter()
        rollouts = self.collect()
        collected = time.perf_counter()
        self.seconds["collect"] += collected - began
        rows = [
            None if run.diverged else self.learn(run, rollout)
            for run, rollout in zip(self.runs, rollouts, strict=True)
        ]
        self.seconds["learn"] += time.perf_counter() - collected
        return rows

    def collect(self) -> list[Rollout]:
        """T steps of all lanes."""
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
            observations[:, t] = x
            action = policy.act(self.layout, arrays, x, noise[:, t])
            actions.append(action)
            step = lanes.step(self._for_lanes(action, box))
            reward = step.reward.reshape(runs, envs)
            ended = step.terminated | step.truncated
            self.episode_return += reward
            self.episode_length += 1
            if ended.any():
                ended = ended.reshape(runs, envs)
                ends[:, t] = ended
                self._episodes_over(ended)
            else:
                ended = ended.reshape(runs, envs)
            rewards[:, t] = (
                self.scale(reward, ended, self.gamma, c.reward_clip)
                if c.normalise_rewards
                else reward
            )
            x = self._normalised(step.observation)
            cut = step.truncated & ~step.terminated
            if cut.any():
                bootstrap[:, t] = self._final_values(arrays, step.final, cut.reshape(runs, envs))
        self.observation = x
        stacked = np.stack(actions, axis=1)
        return [
            Rollout(observations[r], x[r], stacked[r], rewards[r], ends[r], bootstrap[r])
            for r in range(runs)
        ]

    def learn(self, run: Run, rollout: Rollout) -> Metrics | None:
        """Advantages, epochs and diagnostics of one run."""
        c, k, value = run.config, run.iteration, run.value
        compiled = program(c)
        batch = preparation(self.layout, compiled)(run.learner.vector, rollout)
        names = numbers(value)
        orders = np.stack(
            [stream(c.seed, "order", k, e).permutation(c.batch) for e in range(c.epochs)]
        ).astype(np.int32)
        lr = c.lr * (1 - k / c.iterations) if c.anneal else c.lr
        outcome = epochs(self.layout, compiled, structure(value), tuple(names))(
            run.learner, run.controller, np.array(list(names.values()), np.float32), batch, orders,
            np.float32(lr), np.float32(k * c.batch),
        )  # fmt: skip
        if not bool(outcome.finite):
            run.diverged = _diagnosis(batch, outcome)
            return None
        row = self._row(run, batch, outcome, lr)
        run.learner, run.controller = outcome.learner, outcome.controller
        run.iteration += 1
        run.returns = []
        return row

    def arrays(self, run: int) -> dict[str, NDArray[Any]]:
        """A run's parameters, optimiser state and statistics, by name."""
        learner = self.runs[run].learner
        adam = learner.optimiser[1]
        found = {k: np.asarray(v) for k, v in self.layout.split(np.asarray(learner.vector)).items()}
        found |= {"adam.mu": np.asarray(adam.mu), "adam.nu": np.asarray(adam.nu),
                  "adam.count": np.asarray(adam.count)}  # fmt: skip
        found |= self.moments.arrays("observation", run) | self.scale.moments.arrays("return", run)
        found |= {f"controller.{k}": np.asarray(v) for k, v in self.runs[run].controller.items()}
        return found

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
        return flat[:, 0] if len(self.layout.heads) == 1 else flat

    def _normalised(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        x = observation.reshape(len(self.runs), self.shared.envs, -1)
        if not self.shared.normalise_observations:
            return x.astype(np.float32)
        self.moments.update(x)
        return normalise(x, self.moments, self.shared.observation_clip)

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

    def _row(self, run: Run, batch: Batch, outcome: Outcome, lr: float) -> Metrics:
        """One line of the metrics file."""
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
        row |= beta_quantiles(np.asarray(outcome.beta), np.asarray(outcome.sets))
        row["explained_variance"] = explained_variance(
            np.asarray(batch.target), np.asarray(batch.old_value)
        )
        row |= {f"controller.{k}": float(v) for k, v in run.controller.items()}
        return row


def _iqm(values: NDArray[Any]) -> float:
    """The mean of the middle half."""
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def _diagnosis(batch: Batch, outcome: Outcome) -> str:
    """Where the first number that is not finite was seen."""
    for name in ("observation", "reward", "old_log_prob", "old_value", "advantage"):
        if not np.all(np.isfinite(np.asarray(getattr(batch, name)))):
            return f"{name} is not finite in the rollout"
    worst = float(np.asarray(outcome.metrics["ratio_max"]))
    return f"a loss, gradient or parameter is not finite in the update (largest ratio {worst:.3g})"
