"""What the engine knows of a job, and of a kind of jobs.

A job is the config of one run: a frozen value with an id. Its kind says how jobs come from a plan
or from a folder, what they cost and need, and how a group of them is trained. A new kind is a
`Kind` in a module of its own, and a line in `KINDS`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from klip.errors import KlipError
from klip.runs import Record

KINDS = {
    "ppo": "klip.ppo.job:PPO",
    "tokens": "klip.lab.job:TOKENS",
    "warm-up": "klip.lab.job:WARM_UP",
}
"""Each kind by its name; its module is imported when a job of that kind is met."""
USUAL = "ppo"
"""The kind of a plan or of a config on disk that does not name one."""

Fields = Mapping[str, Any]
"""A config as it lies on disk."""
State = dict[str, NDArray[Any]]
"""Everything that a run's next iteration depends on, by name."""


class Stopped(Exception):
    """Somebody asked to stop in the middle of an iteration; nothing of it counts."""


class Job(Protocol):
    """The config of one run."""

    @property
    def kind(self) -> str:
        """The name of its kind."""

    @property
    def id(self) -> str:
        """A hash of all its fields: equal ids are equal runs."""

    @property
    def task(self) -> str:
        """What is learned; the first part of the folder's path."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names to ask for it by; the first is the second part of the folder's path."""

    @property
    def seed(self) -> int:
        """The seed of everything random in it."""

    @property
    def iterations(self) -> int:
        """The number of iterations in all."""

    @property
    def batch(self) -> int:
        """Steps per iteration."""

    @property
    def stored(self) -> dict[str, Any]:
        """The config as it lies on disk."""


class Member(Protocol):
    """A run within a group."""

    @property
    def iteration(self) -> int:
        """Iterations done."""

    @property
    def status(self) -> str:
        """running; done, diverged or failed when it has ended"""

    @property
    def reason(self) -> str:
        """Why it diverged or failed."""

    @property
    def traceback(self) -> str:
        """Python's traceback of what was raised, where it failed."""


class Group(Protocol):
    """Runs that one process advances in lockstep. No run's bytes depend on the others."""

    @property
    def runs(self) -> Sequence[Member]:
        """The runs that go on."""

    def iterate(self, stop: Callable[[], bool]) -> Sequence[dict[str, Any] | None]:
        """Advance every run by an iteration; return each one's row, or None where it failed.

        Raises `Stopped` as soon as `stop` says so.
        """

    def state(self, i: int) -> State:
        """All that run i's next iteration depends on, which later iterations do not change."""

    def restore(self, i: int, iteration: int, state: State) -> None:
        """Put run i where a state says; raises `KlipError` if it cannot go on exactly."""

    def keep(self, chosen: Sequence[int]) -> None:
        """Go on with these runs only, at least one."""

    def close(self) -> None:
        """Let go of what the group holds."""


class Entry(NamedTuple):
    """One [[runs]] of a plan, with what it shares with the others."""

    where: str
    """its place in the plan in words, for errors"""
    table: Mapping[str, Any]
    """its values under the keys of its kind"""
    fields: Mapping[str, Any]
    """config fields: the plan's, and over them its own"""
    seeds: Sequence[int]


class OldSamples(NamedTuple):
    """Bytes that a group keeps of samples and policies of earlier iterations."""

    memory: int = 0
    """in its process, at most"""
    checkpoint: int = 0
    """in each checkpoint of the run that keeps most"""


@dataclass(frozen=True)
class Kind:
    """A kind of jobs; each kind has its own type of job, so it is `Any` here."""

    libraries: tuple[str, ...]
    """packages that compute, whose versions the bits of a run depend on; NumPy always does"""
    brief: tuple[str, ...]
    """metrics of a row that are shown while it trains"""
    read: Callable[[Fields], Any]
    """the job of a config on disk, in which anything may stand; executes nothing of it"""
    check: Callable[[Any], None]
    """raises, before anything starts, for a job that means nothing"""
    ready: Callable[[Sequence[Any]], None] = field(default=lambda jobs: None, kw_only=True)
    """raises, before anything starts, for what cannot run on this machine, and says it per task"""
    label: Callable[[Fields], str]
    """a config in brief, without task and seed; executes nothing of it"""
    iterations: Callable[[Fields], int]
    """number of iterations of a config on disk"""
    settings: Callable[[Fields], Mapping[str, Any]]
    """settings in a config on disk, by name: all that its names and its seed do not say"""
    usual: Callable[[str], Mapping[str, Any]]
    """settings that nobody changed, for a task, as JSON has them"""
    lockstep: Callable[[Any], Hashable]
    """equal for jobs that may share a group"""
    seconds: Callable[[Sequence[Any]], float]
    """seconds that one core takes for a group, its start included"""
    open: Callable[[Sequence[Any], Sequence[Sequence[Record]]], Group]
    """a group of jobs, each with the records of the runs that it needs"""
    old_samples: Callable[[Sequence[Any]], OldSamples] = lambda jobs: OldSamples()
    """what a group keeps of earlier iterations"""
    measured: Callable[[Any], bool] = lambda job: True
    """whether anybody has measured what such a job costs"""
    pace: Callable[[], float] = lambda: 1.0
    """how many times as long this machine takes as the one where that was measured"""
    needs: Callable[[Any], Sequence[Any]] = lambda job: ()
    """jobs that must be done before this one begins"""
    keys: frozenset[str] = frozenset()
    """keys of an entry in a plan, besides `config` and `seeds`"""
    plan: Callable[[Sequence[Entry]], Sequence[Any]] | None = None
    """jobs of a plan's entries, in the plan's order; None: others bring such jobs along"""
    starts: str = "starting"
    """what a process does until the first iteration is done"""
    with_steps: Callable[[Any, int], Any] = lambda job, steps: job
    """the job with another number of steps"""
    portrait: Callable[[Any], bytes] | None = None
    """how a job's shape looks, as it is kept in the run's folder; None: nothing is kept"""


def kind_of(name: str) -> Kind:
    """The kind of that name.

    >>> kind_of("ppo").brief[0]
    'iteration'
    """
    if not isinstance(name, str) or name not in KINDS:  # a file may say anything
        raise KlipError(f"there is no kind of job {str(name)[:80]!r}: choose {', '.join(KINDS)}")
    return _loaded(KINDS[name])


@functools.cache
def _loaded(place: str) -> Kind:
    module, _, value = place.partition(":")
    kind: Kind = getattr(importlib.import_module(module), value)
    return kind


def kind_in(fields: Fields) -> Kind:
    """The kind that a config on disk is of."""
    return kind_of(fields.get("kind", USUAL))


def read_job(fields: Fields) -> Job:
    """The job of a config on disk; raises `KlipError` if it is none."""
    job: Job = kind_in(fields).read(fields)
    return job


def iterations_of(fields: Fields) -> int:
    """How many iterations a config on disk asks for; 0 where it does not say.

    >>> iterations_of({"steps": 1000, "envs": 2, "rollout": 100})
    5
    """
    try:
        return max(int(kind_in(fields).iterations(fields)), 0)
    except (KlipError, KeyError, TypeError, ValueError, ArithmeticError):
        return 0


def label_of(job: Job) -> str:
    """A job in brief: its shape or arm, without task and seed."""
    return kind_of(job.kind).label(job.stored)


def unseeded(stored: Fields) -> str:
    """A config without its seeds, as text: equal for jobs that differ in their seed alone.

    >>> unseeded({"task": "Hopper-v4", "seed": 3})
    "[('task', 'Hopper-v4')]"
    """
    without = (
        (key, unseeded(value) if isinstance(value, dict) else value)
        for key, value in stored.items()
        if key != "seed"
    )
    return repr(sorted(without, key=lambda pair: pair[0]))


def with_needs(jobs: Sequence[Job]) -> list[Job]:
    """Jobs and all that they need, each once, needed ones first."""
    ordered: dict[str, Job] = {}
    for job in jobs:
        for needed in with_needs(kind_of(job.kind).needs(job)):
            ordered.setdefault(needed.id, needed)
    return list({**ordered, **{job.id: job for job in jobs}}.values())
