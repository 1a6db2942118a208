"""What is refused before anything starts; an error names the thing, the value and the way out."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Final

import numpy as np

from klip.errors import KlipError
from klip.runs import LONGEST_NAME
from klip.shapes import check_needs, parse
from klip.shapes.code import digest_of_code
from klip.shapes.names import brief

if TYPE_CHECKING:
    from klip.ppo.config import Config

TRAINER_CONTEXT = frozenset({"old_log_prob", "kl", "entropy", "reward", "step", "progress"})
"""What this trainer can tell a shape about a sample."""
OLD_CONTEXT = frozenset({"age", "behaviour_log_ratio", "proximal_log_ratio", "effective_size",
                         "deviation", "second_moment"})  # fmt: skip
"""What it can tell of a sample that may be old, with `lag` or `replay`."""
UNIFORM: Final = "uniform"
"""Weights of age that are all 1."""


def digest_of_task(task: str) -> str:
    """As `digest_of_code`, for a task that is in a file of yours, or in the current folder."""
    from klip.tasks.own import file_of  # here, since it loads Gymnasium

    place, _, name = task.rpartition(":")
    path = file_of(place)
    return digest_of_code(f"{path}:{name}") if path is not None else ""


def check(c: Config) -> None:
    """Raise, before anything starts, for what would mean nothing; `check_task` is apart."""
    for name, text in (("task", c.task), ("shape", c.shape)):
        if not text.isprintable() or not 0 < len(text) <= LONGEST_NAME:
            limit = f"at most {LONGEST_NAME} printable characters"
            raise KlipError(f"{name}={text[:80]!r} must be {limit}")
    changed = c.code != digest_of_code(c.shape) and f"shape {c.shape}"
    # a run from before tasks had digests has none
    if c.task_code and c.task_code != digest_of_task(c.task):
        changed = f"task {c.task}"
    if changed:
        raise KlipError(
            f"the file of the {changed} has changed since the run began: bring it back, or "
            "train anew"
        )
    _check_shape(c)
    _check_sizes(c)
    _check_numbers(c)
    _check_networks(c)
    _check_learning(c)


def _check_sizes(c: Config) -> None:
    """Raise for counts that are too small, or too large for one another."""
    for name in ("steps", "envs", "rollout", "epochs", "minibatch", "replay"):
        if getattr(c, name) < 1:
            raise KlipError(f"{name}={getattr(c, name)} must be at least 1")
    for name in ("seed", "processes", "lag"):
        if getattr(c, name) < 0:
            raise KlipError(f"{name}={getattr(c, name)} must be at least 0")
    if c.steps < c.batch:
        raise KlipError(
            f"steps={c.steps} is less than one rollout of {c.envs} x {c.rollout} = {c.batch}: "
            "give more steps, or a smaller rollout"
        )
    if c.minibatch > c.batch:
        raise KlipError(
            f"minibatch={c.minibatch} is larger than a rollout of {c.envs} x {c.rollout} = "
            f"{c.batch}: give at most that"
        )
    if c.batch < 2:
        raise KlipError("a rollout of one sample has no spread to normalise by: give at least 2")
    if (long := max(c.lag + 1, c.replay)) > c.iterations:
        what = f"lag={c.lag}" if long > c.replay else f"replay={c.replay}"
        raise KlipError(
            f"{what} is longer than the run of {c.iterations} iterations ({c.steps} steps in "
            f"rollouts of {c.batch}): give more steps, or less"
        )
    age_weights(c.age_weights, c.replay)


def _check_numbers(c: Config) -> None:
    """Raise for numbers out of their range."""
    for name in ("gamma", "gae_lambda", "lr_end"):
        if not 0 <= getattr(c, name) <= 1:
            raise KlipError(f"{name}={getattr(c, name)} must lie between 0 and 1")
    for name in ("adam_b1", "adam_b2", "warmup"):
        if not 0 <= getattr(c, name) < 1:
            raise KlipError(f"{name}={getattr(c, name)} must be at least 0 and less than 1")
    positive = ("lr", "adam_eps", "observation_clip", "reward_clip", "correction_cap")
    for name in (*positive, "hidden_gain", "policy_gain", "value_gain"):
        if not getattr(c, name) > 0:
            raise KlipError(f"{name}={getattr(c, name)} must be greater than 0")
    for name in ("max_grad_norm", "value_weight", "value_clip", "entropy_weight", "value_lr"):
        if not getattr(c, name) >= 0:
            raise KlipError(f"{name}={getattr(c, name)} must be at least 0")
    if c.advantage_ddof not in (0, 1):
        raise KlipError(f"advantage_ddof={c.advantage_ddof} must be 0 or 1")


def _check_networks(c: Config) -> None:
    """Raise for networks that there cannot be."""
    for name in ("hidden", "value_hidden"):
        widths = getattr(c, name)
        if (name == "hidden" and not widths) or min(widths, default=1) < 1:
            raise KlipError(f"{name}={widths} must be one or more positive widths")
    apart = {
        "value_hidden": c.value_hidden,
        "value_lr": c.value_lr,
        "grad_clip": "" if c.grad_clip == "joint" else c.grad_clip,
        "stop_value": "" if c.stop_value else "no",
    }
    for name, value in apart.items():
        if c.shared_trunk and value:
            raise KlipError(
                f"{name}={value} needs a policy and a value network of their own: leave out "
                "shared_trunk"
            )
    if c.state_std:
        from klip.ppo.acting import LEAST_STD  # here, since it loads Gymnasium

        if math.exp(min(c.log_std, 700.0)) > LEAST_STD:
            return
        raise KlipError(
            f"log_std={c.log_std:g} is a deviation that state_std cannot give: it must be greater "
            f"than {math.log(LEAST_STD):.3g}"
        )


def _check_learning(c: Config) -> None:
    """Raise for ways of learning that do not go together."""
    for name, usual in (("value_target", "lambda"), ("advantage_form", "gae")):
        if not c.fresh and getattr(c, name) != usual:
            raise KlipError(
                f"{name}={getattr(c, name)} is for fresh samples: leave out lag and replay"
            )
    if not c.fresh and c.time_limits == "skip":
        raise KlipError("time_limits=skip is for fresh samples: leave out lag and replay")


def _check_shape(c: Config) -> None:
    """Raise if the shape needs to know what this run cannot tell it."""
    shape = parse(c.shape)
    if c.fresh and (old := shape.needs & OLD_CONTEXT):
        raise KlipError(
            f"{c.shape} needs {', '.join(sorted(old))}, and there is none with lag=0 and replay=1, "
            "where every sample is fresh: give a lag, or a replay of 2 or more"
        )
    check_needs(shape, TRAINER_CONTEXT | OLD_CONTEXT)
    if c.ratio == "decoupled" and "behaviour_log_ratio" in shape.needs:
        raise KlipError(
            f"{c.shape} corrects for the policy that acted by itself, and ratio='decoupled' would "
            "do so once more: give ratio='proximal' or 'behaviour'"
        )


def age_weights(spelled: str, replay: int) -> tuple[float, ...]:
    """The weights of `replay` rollouts from the newest on, scaled to a mean of 1.

    GePPO's fall linearly, which is the largest effective sample size for its trust region.

    >>> [round(w / 4, 3) for w in age_weights("geppo", 4)]
    [0.4, 0.3, 0.2, 0.1]
    """
    if spelled in (UNIFORM, "geppo"):
        given = [1.0 if spelled == UNIFORM else float(replay - i) for i in range(replay)]
    else:
        try:
            given = [float(word) for word in spelled.replace(",", " ").split()]
        except ValueError:
            given = []
        fine = all(0 <= w < float("inf") for w in given) and given[:1] > [0.0]
        if not fine or len(given) != replay:
            raise KlipError(
                f"age_weights={spelled!r} must be uniform, geppo, or as many numbers as "
                f"replay={replay}, from the newest rollout on: the first above 0, none below"
            )
    total = sum(given)
    return tuple(w * replay / total for w in given)


def check_task(c: Config) -> None:
    """Raise unless the run's task is there, takes its arguments, and can be trained on here."""
    from klip.tasks import Box, describe  # here, since it loads the simulators

    action = describe(c.task, c.arguments, c.processes).action
    for name in ("state_std", "squash"):
        if getattr(c, name) and not isinstance(action, Box):
            raise KlipError(
                f"{name} is for actions that are real numbers, and {c.task} takes choices: leave "
                "it out, or give another preset"
            )
    if c.squash and isinstance(action, Box) and not np.isfinite([action.low, action.high]).all():
        raise KlipError(f"squash needs bounds, and actions of {c.task} have none: leave it out")


def warn_of_densities(c: Config) -> None:
    """Warn where a shape looks at an action's probability, and the task's actions have densities.

    A density may be any number: where it is small, as at first in many dimensions, such a shape
    holds nothing at all, and the run is one without a trust region.
    """
    from klip.tasks import Box, describe  # as above

    if "old_log_prob" not in parse(c.shape).needs:
        return
    if isinstance(describe(c.task, c.arguments, c.processes).action, Box):
        warnings.warn(
            f"{brief(c.shape)} looks at the probability of an action, and actions of {c.task} have "
            "densities, so it may hold nothing there: a shape of the ratio, such as clip or spo, "
            "does",
            RuntimeWarning,
            stacklevel=2,
        )
