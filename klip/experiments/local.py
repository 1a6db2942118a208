"""A plan on this machine: in the order of its schedule, with its length said beforehand."""

from __future__ import annotations

from collections.abc import Sequence

from klip.experiments.schedule import schedule
from klip.ppo.advance import Keeping
from klip.ppo.config import Config
from klip.ppo.train import Runner, look
from klip.ppo.workers import run_here


def here_in_order(cores: int) -> Runner:
    """On this machine, longest cohorts first."""
    return lambda configs, keeping, stop: run_here(
        configs, schedule(configs, cores).jobs, keeping, stop, cores
    )


def estimate(configs: Sequence[Config], keeping: Keeping, cores: int, where: str) -> str:
    """What is missing of these runs, and how long it will take, in a sentence or two."""
    missing = [c for c in configs if look(c, keeping.path(c)) is None]
    if not missing:
        return f"all {len(configs)} runs have ended"
    steps = sum(c.iterations * c.batch for c in missing)
    planned = schedule(missing, cores)
    machines = f"{cores} core{'s' if cores > 1 else ''} {where}"
    text = (
        f"{len(missing)} of {len(configs)} runs are missing, {steps / 1e6:.1f} million steps: "
        f"about {duration(planned.seconds)} on {machines}, {planned.busy:.0%} of it busy"
    )
    if planned.guessed:
        text += f" (a guess for {', '.join(planned.guessed)}, which nobody has measured)"
    return text


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42), duration(160), duration(9000)
    ('42 s', '3 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
