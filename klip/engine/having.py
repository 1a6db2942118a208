"""Runs that have ended elsewhere: a plan goes on from packs as it does from its own folder."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, Protocol

from klip.engine.job import Job, kind_of
from klip.runs.machine import differences, this_machine


class Held(Protocol):
    """A run in a pack, as far as the engine looks at it."""

    @property
    def status(self) -> str:
        """done or diverged"""

    @property
    def reason(self) -> str:
        """Why it diverged."""

    @property
    def final(self) -> float | None:
        """Its final return; None where it diverged."""

    @property
    def machines(self) -> Sequence[Mapping[str, Any]]:
        """Versions and processors that it was trained with, the last one last."""


@dataclass(frozen=True)
class Have:
    """What packs have: runs that need not be trained again, and choices of leagues."""

    runs: Mapping[str, Held] = field(default_factory=dict)
    """By id: those that are done or diverged."""
    places: Mapping[str, Path] = field(default_factory=dict)
    """The pack of each run, by its id."""
    choices: Mapping[Path, Mapping[str, bytes]] = field(default_factory=dict)
    """What leagues have frozen: files by pack and name."""


def having(packs: Sequence[str | Path]) -> Have:
    """What packs have, each read once and checked whole.

    >>> have = having(["results/tokens"])
    >>> len(have.runs), {run.status for run in have.runs.values()}
    (50, {'done'})

    Args:
        packs: folders that `klip.pack` wrote

    """
    if isinstance(packs, (str, Path)):
        packs = [packs]
    if not packs:
        return Have()
    # asked for by name: packs are read by a room that knows this one
    have: Have = importlib.import_module("klip.studies.gathering").read_have(packs)
    return have


def taken_words(have: Have, taken: Sequence[str], missing: Sequence[Job]) -> str:
    """How many runs are taken from which packs, in words; and what differs here, if jobs train.

    Args:
        have: what packs have
        taken: ids of runs that are taken from them
        missing: jobs that will be trained here

    """
    counts = Counter(str(have.places[id]) for id in taken)
    if not counts:
        return ""
    words = ", ".join(f"{count} from {place}" for place, count in counts.items())
    verb = "is" if len(taken) == 1 else "are"
    return f"{words} {verb} taken as packed{_other_machines(have, taken, missing)}"


def _other_machines(have: Have, taken: Sequence[str], missing: Sequence[Job]) -> str:
    """In words, what was otherwise where runs were trained than where jobs will be."""
    libraries = {name for job in missing for name in kind_of(job.kind).libraries}
    if not libraries:
        return ""
    try:
        here = this_machine(tuple(sorted(libraries)))
    except PackageNotFoundError:  # said where it is needed, before anything starts
        return ""
    apart, other = 0, dict[str, None]()
    for id in taken:
        then = have.runs[id].machines[-1] if have.runs[id].machines else {}
        found = differences({k: str(v) for k, v in then.items() if k in here}, here)
        other |= dict.fromkeys(found)
        apart += bool(found)
    if not apart:
        return ""
    return f" ({apart} trained under other conditions, so bytes may differ: {'; '.join(other)})"
