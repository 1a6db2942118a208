"""Why a run stopped, in words that a person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from klip.ppo.advantages import Batch, Rollout
from klip.ppo.config import Config
from klip.ppo.update import TROUBLES, Outcome

_GENTLER = "a smaller lr, fewer epochs or a shape that bounds the multiplier may hold it"


def bad_step(
    c: Config, iteration: int, t: int, env: int, played: int, values: tuple[float, NDArray[Any]]
) -> str:
    """An environment gave a reward or an observation that is not finite."""
    reward, observation = values
    if np.isfinite(reward):
        place = int(np.flatnonzero(~np.isfinite(observation))[0])
        what = f"observation[{place}] is {observation[place]}"
    else:
        what = f"the reward is {reward}"
    return (
        f"{what} at step {played} of an episode of environment {env}, in {_when(c, iteration, t)}: "
        "mend the environment, or let it end the episode before that"
    )


def bad_action(c: Config, iteration: int, t: int) -> str:
    """The policy's own output is not finite, though its parameters are."""
    return (
        f"the policy's action is not finite in {_when(c, iteration, t)}, though its parameters "
        f"are: they have grown too large; {_GENTLER}"
    )


def beyond(c: Config, iteration: int, what: str, variance: NDArray[Any]) -> str:
    """The environment's numbers are finite, and so large that their variance is not."""
    flat = np.ravel(variance)
    place = f"[{np.flatnonzero(~np.isfinite(flat))[0]}]" if what == "observation" else ""
    return (
        f"the variance of the {what}{place} is {flat[~np.isfinite(flat)][0]} in iteration "
        f"{iteration + 1} of {c.iterations}: the environment gives numbers near 1e154 or beyond; "
        "let it scale them"
    )


def not_finite(row: Mapping[str, Any]) -> str:
    """The first metric that is not finite, or nothing.

    >>> not_finite({"kl": 0.1, "return_mean": None, "beta": [0.0, float("inf")]})
    'beta'
    """
    for name, value in row.items():
        numbers = value if isinstance(value, list) else [value]
        if not np.all(np.isfinite([x for x in numbers if x is not None])):
            return name
    return ""


def diagnosis(
    c: Config,
    iteration: int,
    rollout: Rollout,
    batch: Batch,
    outcome: Outcome,
    row: Mapping[str, Any],
) -> str:
    """Something stopped being finite between the rollout and the new parameters."""
    when = (
        f"in the update of iteration {iteration + 1} of {c.iterations}; nothing of it was applied"
    )
    for name, values, hint in (
        ("observation", rollout.observation, "it does not fit float32: let it be normalised"),
        ("reward", rollout.reward, "it does not fit float32: let it be normalised"),
        ("log-probability of its own actions", batch.old_log_prob, "the policy has collapsed"),
        ("value estimate", batch.old_value, "the value network has grown too large"),
        ("advantage", batch.advantage, "rewards or values are too large"),
    ):
        if not np.all(np.isfinite(np.asarray(values))):
            return f"the {name} is not finite {when}: {hint}"
    trouble = TROUBLES[int(outcome.trouble)]
    what = f"the {trouble}" if int(outcome.trouble) else not_finite(row)
    least, most = row["ratio_min"], row["ratio_max"]
    ratios = f"ratios of new to old policy ranged from {least:.3g} to {most:.3g}"
    return f"{what} is not finite {when}: {ratios}; {_GENTLER}"


def _when(c: Config, iteration: int, t: int) -> str:
    step = iteration * c.batch + t * c.envs
    return f"iteration {iteration + 1} of {c.iterations} (environment step {step:,})"
