"""Groups of jobs, and their order, such that no core waits at the end; and how long they take.

A group cannot be cut in the middle, so a core that gets the last long one alone leaves the others
idle. Groups go out longest first, to whichever core is free; where that would still leave cores
idle, the longest are cut in two. What others need goes out before them. Runs of one name, which
share their compiled programs, stay together: a process compiles what its own group needs.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from klip.engine.job import Job, kind_of

ENOUGH = 0.97  # share of busy time above which groups are not cut further
LARGEST = 40  # most runs in a group


@dataclass(frozen=True)
class Schedule:
    """Groups in the order in which they start, and what is expected of them."""

    groups: tuple[tuple[Job, ...], ...]
    """the jobs of each group, which go in lockstep"""
    seconds: float
    """seconds until all are done"""
    busy: float
    """share of that time for which the cores are busy"""
    guessed: tuple[str, ...]
    """tasks whose cost nobody has measured"""


def schedule(jobs: Sequence[Job], cores: int) -> Schedule:
    """The groups of these jobs, in the order in which `cores` cores take them."""
    groups = in_lockstep(jobs, cores)
    seconds, busy = simulate([cost(group) for group in groups], cores)
    while groups and busy < ENOUGH:
        longest = max(groups, key=cost)
        if len(longest) == 1:
            break
        cut = [group for group in groups if group is not longest] + in_parts(longest, 2)
        new, share = simulate([cost(group) for group in cut], cores)
        if new >= seconds:  # smaller groups cost more, and here more than the idle core did
            break
        groups, seconds, busy = cut, new, share
    needed = {n.id for job in jobs for n in kind_of(job.kind).needs(job)}
    ordered = sorted(groups, key=lambda group: (group[0].id not in needed, -cost(group)))
    unknown = dict.fromkeys(job.task for job in jobs if not kind_of(job.kind).measured(job))
    return Schedule(tuple(tuple(group) for group in ordered), seconds, busy, tuple(unknown))


def in_lockstep(jobs: Sequence[Job], cores: int) -> list[list[Job]]:
    """Groups of jobs that can go in lockstep, enough for every core to have some."""
    alike: dict[tuple[str, Hashable], list[Job]] = defaultdict(list)
    for job in jobs:
        alike[job.kind, kind_of(job.kind).lockstep(job)].append(job)
    groups = []
    for members in alike.values():
        parts = cores * -(-len(members) // (cores * LARGEST))
        together = sorted(members, key=lambda job: job.names[0])
        groups += in_parts(together, min(parts, len(members)))
    return groups


def in_parts(jobs: Sequence[Job], parts: int) -> list[list[Job]]:
    """The jobs in so many runs of neighbours, of sizes that differ by one at most."""
    ends = [len(jobs) * part // parts for part in range(parts + 1)]
    return [list(jobs[begin:end]) for begin, end in itertools.pairwise(ends)]


def cost(group: Sequence[Job]) -> float:
    """Seconds that one core takes for a group, start included."""
    return kind_of(group[0].kind).seconds(group)


def simulate(costs: Sequence[float], cores: int) -> tuple[float, float]:
    """How long groups take, longest first, and the share of that time for which cores are busy.

    >>> simulate([3.0, 2.0, 1.0], 2)
    (3.0, 1.0)
    """
    ends = [0.0] * cores
    for seconds in sorted(costs, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + seconds)
    last = max(ends)
    return last, sum(costs) / (cores * last) if last else 1.0
