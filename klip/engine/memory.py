"""Whether the old samples that runs keep fit into this machine's memory, before anything starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from klip.engine.job import Job, kind_of
from klip.errors import KlipError

PROCESS: Final = 600_000_000
"""Bytes that a process takes that trains without old samples."""
LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
"""Where Linux says how much a container may take."""


class Demand(NamedTuple):
    """What the old samples of some groups take, in bytes."""

    process: int
    """in the process that holds most of them"""
    together: int
    """in all processes that run at once, at most"""
    checkpoint: int
    """in each checkpoint of the run that keeps most"""

    @property
    def words(self) -> str:
        """As a part of a sentence; nothing where there are no old samples."""
        if not self.process:
            return ""
        return (
            f"old samples and policies take up to {size(self.process)} of memory a process, and "
            f"{size(self.checkpoint)} in a run's checkpoint"
        )


def demand(groups: Sequence[Sequence[Job]], cores: int) -> Demand:
    """What groups keep of old samples, of which `cores` run at once."""
    kept = [kind_of(group[0].kind).old_samples(group) for group in groups]
    largest = sorted((each.memory for each in kept), reverse=True)[:cores]
    checkpoint = max((each.checkpoint for each in kept), default=0)
    return Demand(max(largest, default=0), sum(largest), checkpoint)


def check_memory(groups: Sequence[Sequence[Job]], cores: int) -> None:
    """Raise if the old samples of the groups that run at once are more than this machine holds."""
    asked, processes = demand(groups, cores), min(cores, len(groups))
    there = memory_here()
    if asked.process and asked.together + processes * PROCESS > there:
        several = f"{processes} processes" if processes > 1 else "1 process"
        raise KlipError(
            f"the old samples of these runs take {size(asked.together)} in {several}, and this "
            f"machine has {size(there)} of memory: give a smaller replay, fewer seeds or fewer "
            "workers"
        )


def memory_here() -> int:
    """Bytes of memory that this machine has, or that its container may take."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(there, int(LIMIT.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return there


def size(count: float) -> str:
    """Bytes as people say them.

    >>> size(999), size(25_300_000), size(1.5e9)
    ('1 kB', '25 MB', '1.5 GB')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.{1 if count < 10 * unit else 0}f} {name}"
    return f"{count / 1e3:.0f} kB"
