"""One run of a cohort: what is its own between iterations, and that as a state and back."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from klip.engine.job import State
from klip.errors import KlipError
from klip.ppo import policy
from klip.ppo.config import Config
from klip.ppo.optimising import optimiser
from klip.ppo.policy import Layout
from klip.ppo.replay import Slot, from_arrays, to_arrays
from klip.ppo.update import Learner
from klip.shapes import Region, parse


@dataclass
class PPOMember:
    """One run of a cohort."""

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
    past: tuple[Any, ...] = ()
    """parameters `[P]` of the last `lag` iterations, oldest first: the oldest act"""
    slots: tuple[Slot, ...] = ()
    """rollouts that the next iteration learns from too, newest first"""

    @property
    def acting(self) -> Any:
        """The parameters `[P]` that act."""
        return self.past[0] if self.past else self.learner.vector

    @property
    def version(self) -> int:
        """The iteration at whose start they stood."""
        return self.iteration - len(self.past)

    def end(self, status: str, reason: str, traceback: str = "") -> None:
        """End the run for a reason; if it has ended already, the first reason stays."""
        if self.status == "running":
            self.status, self.reason, self.traceback = status, reason, traceback

    def step_sizes(self) -> tuple[float, float]:
        """Adam's step sizes in this iteration, for the policy and for the value network."""
        c, scale = self.config, float(self.value.step_scale(self.controller))
        share = schedule(c, self.iteration)
        return c.lr * share * scale, (c.value_lr or c.lr) * share * scale

    def move(self, learner: Learner, controller: dict[str, Any], slots: tuple[Slot, ...]) -> None:
        """Go on to the next iteration, which learns from `slots` too."""
        c = self.config
        self.past = (*self.past, self.learner.vector)[-c.lag :] if c.lag else ()
        self.slots = slots
        self.learner, self.controller = learner, controller
        self.iteration += 1
        self.returns = []
        if self.iteration == c.iterations:
            self.end("done", "")


def schedule(c: Config, iteration: int) -> float:
    """The share of its first value that a step size has in an iteration, counted from 0.

    >>> from klip.ppo.config import config
    >>> c = config("Hopper-v4", steps=20480, decay="cosine", lr_end=0.5, warmup=0.2)
    >>> [round(schedule(c, k), 3) for k in (0, 1, 5, 9)]
    [0.5, 0.988, 0.75, 0.512]
    """
    done, share = iteration / c.iterations, 1.0
    if c.anneal:
        left = 1 - done if c.decay == "linear" else (1 + math.cos(math.pi * done)) / 2
        share = left if not c.lr_end else c.lr_end + (1 - c.lr_end) * left
    if c.warmup:
        share *= min(1.0, (iteration + 1) / (c.warmup * c.iterations))
    return share


def begun(layout: Layout, c: Config) -> PPOMember:
    """A run before its first iteration."""
    start = policy.Start(*(getattr(c, name) for name in policy.Start._fields))
    vector = jax.numpy.asarray(policy.initial(layout, c.seed, start))
    value = parse(c.shape)
    controller = {k: jax.numpy.asarray(v, dtype="float32") for k, v in value.init().items()}
    return PPOMember(c, value, Learner(vector, optimiser(c).init(vector)), controller)


@functools.lru_cache(maxsize=256)
def program(c: Config) -> Config:
    """The config without what does not change the compiled program, so that runs share one."""
    used_elsewhere = ("anneal", "decay", "lr_end", "warmup", *policy.Start._fields)
    return dataclasses.replace(
        c, shape="", code="", seed=0, steps=c.batch, lr=1.0, value_lr=float(c.value_lr > 0),
        lag=0 if c.fresh else 1, **{name: getattr(Config, name) for name in used_elsewhere},
    )  # fmt: skip


def arrays_of(layout: Layout, run: PPOMember) -> State:
    """What a run's next iteration depends on of all this; a run that is done keeps no old samples.

    JAX's arrays never change, and neither do rollouts that are kept: nothing is copied.
    """
    adam = run.learner.optimiser[1]
    arrays = {"adam.mu": adam.mu, "adam.nu": adam.nu, "adam.count": adam.count}
    arrays |= {f"controller.{k}": v for k, v in run.controller.items()}
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    arrays |= layout.split(np.asarray(run.learner.vector))
    if run.status == "done":
        return arrays
    if run.past:
        arrays["past"] = np.stack([np.asarray(vector) for vector in run.past])
    return arrays | to_arrays(run.slots)


def take(layout: Layout, run: PPOMember, iteration: int, state: State) -> None:
    """Put a run where a state says; raises `KlipError` if what is old in it does not fit."""
    vector = layout.join({name: state[name] for name, _ in layout.shapes})
    past = _past(run.config, iteration, vector.shape, state)
    slots = tuple(from_arrays(layout, run.config, iteration, state))
    empty, adam = run.learner.optimiser
    moments = {k: jax.numpy.asarray(state[f"adam.{k}"]) for k in ("mu", "nu", "count")}
    run.learner = Learner(vector, (empty, adam._replace(**moments)))
    run.controller = {k: jax.numpy.asarray(state[f"controller.{k}"]) for k in run.controller}
    run.iteration, run.past, run.slots = iteration, past, slots


def _past(c: Config, iteration: int, size: tuple[int, ...], state: State) -> tuple[Any, ...]:
    """The parameters of iterations before."""
    count = min(iteration, c.lag)
    if not count:
        return ()
    past = state.get("past")
    if past is None or past.shape != (count, *size) or past.dtype != np.float32:
        raise KlipError(f"the checkpoint's 'past' does not fit a lag of {c.lag}")
    return tuple(jax.numpy.asarray(vector) for vector in past)
