"""PPO runs as a kind of job: from plans and folders to cohorts, and what they cost.

    [[runs]]
    tasks = ["CartPole-v1", "Hopper-v4"]
    shapes = ["clip", "my_shapes.py:Mine"]

    config = { preset = "sb3", steps = 200_000 }
    grid = { lr = [1e-4, 1e-3], eps = [0.1, 0.2] }

Every shape meets every task with every seed; `config` takes any field of `klip.ppo.Config`, and a
preset below them. A grid takes every combination of values of knobs: fields, or numbers of shapes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klip.engine.fields import check_runs, typed, whole, with_seed
from klip.engine.job import Entry, Fields, Kind, OldSamples
from klip.engine.plan import names_in
from klip.errors import KlipError
from klip.ppo.acting import Layout, layout_of
from klip.ppo.arguments import arguments_in, spelled
from klip.ppo.checking import warn_of_densities
from klip.ppo.config import (
    OWN,
    Config,
    check,
    check_task,
    config,
    lockstep_key,
    settings_in,
    usual_settings,
)
from klip.ppo.knobs import combinations, turned
from klip.ppo.memory import bytes_kept
from klip.runs import Record
from klip.shapes import parse, structure
from klip.shapes.names import brief

if TYPE_CHECKING:
    from klip.ppo.cohort import Cohort
    from klip.tasks import TaskSpec

START = 7.0  # seconds in which a process starts
COMPILE = 6.0  # in which it compiles what all runs of a shape share
# Microseconds that one core takes for a step of a task, collected and trained on, in a large
# cohort (benchmarks/results/speed.json); each step of a cohort costs LOCKSTEP more, shared by all.
LOCKSTEP = 80.0
STEP = {
    "CartPole-v1": 18.0,
    "HalfCheetah-v4": 45.0,
    "Hopper-v4": 88.0,
    "Walker2d-v4": 116.0,
    "Ant-v4": 209.0,
    "Humanoid-v4": 259.0,
    "LunarLander-v3": 83.0,
}
TYPICAL = 100.0  # for a task that nobody has measured
PASS = 1.6  # of that, for each of the ten times that an iteration trains on a rollout


def planned(entries: Sequence[Entry]) -> list[Config]:
    """Entry by entry, seed by seed: every task with every shape."""
    configs = []
    for entry in entries:
        tasks, shapes = (names_in(entry.where, entry.table, key) for key in ("tasks", "shapes"))
        try:
            given = dict(entry.fields)
            preset = given.pop("preset", "paper")
            if "task_args" in given:
                given["task_args"] = spelled(given["task_args"])
            fields = typed(Config, given, OWN)
            knobs = combinations(entry.table.get("grid", {}))
            check_runs(len(tasks) * len(shapes) * len(knobs) * len(entry.seeds))
            settings = [turned(shape, fields, each) for shape in shapes for each in knobs]
            first = [
                config(task, preset=preset, shape=s.shape, seed=entry.seeds[0], **s.fields)
                for task in tasks
                for s in settings
            ]
            configs += [with_seed(made, seed) for seed in entry.seeds for made in first]
        except KlipError as error:
            raise KlipError(f"{entry.where}: {error}") from None
    return configs


def ready(configs: Sequence[Config]) -> None:
    """Raise, task by task, for what cannot be trained on this machine; executes tasks' code."""
    asked = {(c.task, c.task_args, c.processes): c for c in configs}
    troubles: dict[str, str] = {}  # by task
    for c in asked.values():
        try:
            check_task(c)
        except KlipError as error:
            troubles.setdefault(c.task, str(error))
    if not troubles:
        for c in {(c.task, c.task_args, c.shape): c for c in configs}.values():
            warn_of_densities(c)
        return
    able = dict.fromkeys(c.task for c in configs if c.task not in troubles)
    rest = f"; leave that out with --task {' '.join(able)}" if able else ""
    raise KlipError("; ".join(dict.fromkeys(troubles.values())) + rest)


def with_steps(c: Config, steps: int) -> Config:
    """The same run with another number of environment steps, checked."""
    made = dataclasses.replace(c, steps=steps)
    check(made)
    return made


def label(fields: Fields) -> str:
    """The shape in brief."""
    return brief(str(fields["shape"]))


def iterations(fields: Fields) -> int:
    """Whole iterations within the steps of a config on disk."""
    return int(fields["steps"] // (fields["envs"] * fields["rollout"]))


def seconds(cohort: Sequence[Config]) -> float:
    """That one core takes for a cohort, if it finds nothing compiled."""
    start = START + COMPILE * len({_structure(c.shape) for c in cohort})
    lanes = sum(c.envs for c in cohort)
    each = (_step(cohort[0].task) or TYPICAL) + LOCKSTEP / lanes
    costs = [c.iterations * c.batch * (each + PASS * (c.passes - 10)) for c in cohort]
    return start + sum(costs) * 1e-6


@functools.cache
def _structure(shape: str) -> str:
    """Equal for shapes that share compiled programs."""
    return repr(structure(parse(shape)))


def pace() -> float:
    """How many times as long this machine takes as the one where steps were measured."""
    from klip.tasks.pace import pace  # here, since it loads a simulator

    return pace()


def old_samples(cohort: Sequence[Config]) -> OldSamples:
    """What a cohort keeps of old samples and policies; executes tasks' code if there are some."""
    kept = [bytes_kept(_layout(c), c) for c in cohort if not c.fresh]
    if not kept:
        return OldSamples()
    memory = sum(each.memory for each in kept) + max(each.batch for each in kept)
    return OldSamples(memory, max(each.checkpoint for each in kept))


def _layout(c: Config) -> Layout:
    spec = _described(c.task, c.task_args, c.processes)
    return layout_of(spec.observation_size, spec.action, c.hidden, **c.networks)


@functools.cache
def _described(task: str, arguments: str, processes: int) -> TaskSpec:
    from klip.tasks import describe  # here, since it loads the simulators

    return describe(task, arguments_in(arguments), processes)


def _step(task: str) -> float | None:
    """The measured cost of a step; another version of a task costs about the same."""
    name = task.rpartition("-v")[0]
    return next((us for known, us in STEP.items() if known.rpartition("-v")[0] == name), None)


def _open(configs: Sequence[Config], needed: Sequence[Sequence[Record]]) -> Cohort:
    from klip.ppo.cohort import Cohort  # late: JAX counts its threads on import

    return Cohort(configs)


def portrait(c: Config) -> bytes:
    """How the shape looks, as it is kept in the run's folder."""
    return _portrait(c.shape, c.steps)


@functools.cache
def _portrait(shape: str, steps: int) -> bytes:
    from klip.theory.portrait import portrait, to_json  # late, as above

    # A page measures the shapes that it knows by name.
    return to_json(portrait(parse(shape), steps, profiled=":" in shape))


PPO = Kind(
    libraries=("jax", "jaxlib", "optax", "gymnasium", "mujoco"),
    brief=("iteration", "step", "return_mean", "zeroed", "kl"),
    read=lambda fields: whole(Config, fields),
    check=check,
    ready=ready,
    label=label,
    iterations=iterations,
    settings=settings_in,
    usual=usual_settings,
    lockstep=lockstep_key,
    seconds=seconds,
    pace=pace,
    old_samples=old_samples,
    measured=lambda c: _step(c.task) is not None,
    open=_open,
    keys=frozenset({"tasks", "shapes", "grid"}),
    plan=planned,
    starts="compiling",
    with_steps=with_steps,
    portrait=portrait,
)
