"""In what order, and in how large cohorts, so that no core waits at the end; and how long it takes.

A cohort cannot be cut in the middle, so a core that gets the last long one alone leaves the others
idle. Cohorts go out longest first, to whichever core is free; where that would still leave cores
idle, the longest are cut in two.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from klip.ppo.config import Config
from klip.ppo.workers import cohorts

ENOUGH = 0.97  # share of busy time above which cohorts are not cut further
START = 12.0  # seconds in which a process starts and compiles
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


@dataclass(frozen=True)
class Schedule:
    """Cohorts in the order in which they start, and what is expected of them."""

    jobs: tuple[tuple[int, ...], ...]
    """runs of each cohort, by their place among the configs"""
    seconds: float
    """until all are done"""
    busy: float
    """share of that time for which the cores are busy"""
    guessed: tuple[str, ...]
    """tasks whose cost nobody has measured"""


def schedule(configs: Sequence[Config], cores: int) -> Schedule:
    """The order of cohorts for so many cores."""
    jobs = cohorts(configs, cores)
    seconds, busy = simulate([cost([configs[i] for i in job]) for job in jobs], cores)
    while busy < ENOUGH:
        longest = max(jobs, key=lambda job: cost([configs[i] for i in job]))
        if len(longest) == 1:
            break
        cut = [job for job in jobs if job is not longest] + [longest[::2], longest[1::2]]
        new, share = simulate([cost([configs[i] for i in job]) for job in cut], cores)
        if new >= seconds:  # smaller cohorts cost more, and here more than the idle core did
            break
        jobs, seconds, busy = cut, new, share
    ordered = sorted(jobs, key=lambda job: -cost([configs[i] for i in job]))
    tasks = dict.fromkeys(c.task for c in configs)
    return Schedule(
        tuple(tuple(job) for job in ordered), seconds, busy,
        tuple(task for task in tasks if _base(task) is None),
    )  # fmt: skip


def cost(cohort: Sequence[Config]) -> float:
    """Seconds that one core takes for a cohort, start included."""
    lanes = sum(c.envs for c in cohort)
    each = (_base(cohort[0].task) or TYPICAL) + LOCKSTEP / lanes
    return START + sum(c.iterations * c.batch for c in cohort) * each * 1e-6


def simulate(costs: Sequence[float], cores: int) -> tuple[float, float]:
    """How long jobs take, longest first, and the share of that time for which cores are busy.

    >>> simulate([3.0, 2.0, 1.0], 2)
    (3.0, 1.0)
    """
    ends = [0.0] * cores
    for seconds in sorted(costs, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + seconds)
    last = max(ends)
    return last, sum(costs) / (cores * last) if last else 1.0


def _base(task: str) -> float | None:
    """The measured cost of a step; another version of a task costs about the same."""
    name = task.rpartition("-v")[0]
    return next((us for known, us in STEP.items() if known.rpartition("-v")[0] == name), None)
