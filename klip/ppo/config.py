"""Everything that a run is a function of. The defaults are the paper's."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from klip.engine.fields import LATE, conform, stored, types_of
from klip.errors import KlipError
from klip.ppo.arguments import arguments_in, spelled
from klip.runs import LONGEST_NAME, config_id
from klip.runs.checkpoint import HOW
from klip.shapes import check_needs, parse
from klip.shapes.code import digest_of_code

OWN: Final[tuple[str, ...]] = ("task", "shape", "seed", "code", "task_code")
"""Fields of a config that are no settings: they are given by themselves, or follow from those."""
TRAINER_CONTEXT = frozenset({"old_log_prob", "kl", "entropy", "reward", "step", "progress"})
"""What this trainer can tell a shape about a sample."""
OLD_CONTEXT = frozenset({"age", "behaviour_log_ratio", "proximal_log_ratio", "effective_size",
                         "deviation", "second_moment"})  # fmt: skip
"""What it can tell of a sample that may be old, with `lag` or `replay`."""


@dataclass(frozen=True)
class Config:
    """One run: a task, a shape, a seed, and the conventions of PPO.

    The type of every field is checked when a config is made, however it is made. `check` says
    whether it means something that can be trained.
    """

    kind: ClassVar[str] = "ppo"
    """of job"""
    task: str
    """Gymnasium id; one of your own is `module:Id-v0` or `file.py:Id-v0`"""
    shape: str = "clip(eps=0.2)"
    """trust region or controller, spelled as on the command line"""
    seed: int = 0
    """of everything random: weights, resets, noise, permutations; the same for every shape"""
    steps: int = 1_000_000
    """environment steps in all; whole iterations only"""
    envs: int = 1
    """environments that one run steps together"""
    rollout: int = 2048
    """steps of each environment between updates"""
    epochs: int = 10
    """passes over each rollout"""
    minibatch: int = 64
    """samples per gradient step; the last one of an epoch may be smaller"""
    gamma: float = 0.99
    """discount"""
    gae_lambda: float = 0.95
    """lambda of generalised advantage estimation"""
    lr: float = 3e-4
    """Adam's step size at the start"""
    anneal: bool = True
    """step size falls linearly: lr * (1 - (k-1)/N) at iteration k of N"""
    adam_b1: float = 0.9
    """Adam's first decay"""
    adam_b2: float = 0.999
    """Adam's second decay"""
    adam_eps: float = 1e-5
    """Adam's epsilon"""
    max_grad_norm: float = 0.5
    """global gradient norm is clipped here"""
    value_weight: float = 0.5
    """weight of the value loss, which is itself half a mean square"""
    value_clip: float = 0.2
    """value predictions move at most this far from the old ones; 0: unclipped"""
    entropy_weight: float = 0.0
    """weight of the entropy bonus"""
    normalise_observations: bool = True
    """by running mean and variance"""
    normalise_rewards: bool = True
    """by the running deviation of the discounted return"""
    observation_clip: float = 10.0
    """normalised observations lie within +-this"""
    reward_clip: float = 10.0
    """normalised rewards lie within +-this"""
    normalise_advantages: Literal["rollout", "minibatch", "weighted", "none"] = "rollout"
    """once per rollout (the paper), per minibatch (CleanRL, SB3), likewise with the samples'
    weights and corrections for their age (GePPO), or not at all"""
    hidden: tuple[int, ...] = (64, 64)
    """widths of the tanh layers of policy and value network, which are separate"""
    log_std: float = 0.0
    """initial log standard deviation of a Gaussian policy"""
    per_epoch: bool = False
    """diagnostics of each epoch too, with the share of samples that changed class"""
    code: str = ""
    """digest of the Python file that defines the shape, if one does: edited, it is another run"""
    task_args: str = field(default="", metadata=LATE)
    """keyword arguments of the task, such as size=3 goal=left"""
    task_code: str = field(default="", metadata=LATE)
    """digest of the Python file that defines the task, if one of yours does, likewise"""
    processes: int = field(default=0, metadata=LATE)
    """processes that step the environments of a task that is slow; 0: the trainer's own"""
    lag: int = field(default=0, metadata=LATE)
    """the policy that acts is that of so many iterations ago"""
    replay: int = field(default=1, metadata=LATE)
    """an iteration learns from so many rollouts, the newest ones"""
    gradient_steps: Literal["equal", "grow"] = field(default="equal", metadata=LATE)
    """of an iteration with replay: as many as with the newest rollout alone, or so many times more
    as there are rollouts"""
    ratio: Literal["behaviour", "decoupled", "proximal"] = field(default="behaviour", metadata=LATE)
    """which ratio of an old sample the shape sees: to the policy that acted; to the policy at the
    start of the iteration, weighted by the one over the other; or the latter without a weight"""
    correction_cap: float = field(default=5.0, metadata=LATE)
    """the weight of the decoupled ratio is at most this"""
    trace: Literal["corrected", "recorded"] = field(default="corrected", metadata=LATE)
    """advantages of old samples: computed anew each iteration, with the critic of now and ratios
    truncated at 1, or once when they are collected, as if they were fresh"""
    age_weights: str = field(default="uniform", metadata=LATE)
    """of the rollouts in replay: uniform, geppo, or numbers from the newest on, such as 3 2 1"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "task_args", spelled(self.task_args))
        conform(self)

    @property
    def batch(self) -> int:
        """Samples collected in an iteration."""
        return self.envs * self.rollout

    @property
    def learned(self) -> int:
        """Samples that an iteration learns from, once all rollouts of the replay are there."""
        return self.batch * self.replay

    @property
    def passes(self) -> int:
        """How often an iteration trains on as many samples as a rollout has."""
        return self.epochs * (self.replay if self.gradient_steps == "grow" else 1)

    @property
    def fresh(self) -> bool:
        """Whether every sample is of the policy that learns from it."""
        return self.lag == 0 and self.replay == 1

    @property
    def newest_first(self) -> tuple[float, ...]:
        """The weight of each rollout in replay, from the newest to the oldest; their mean is 1."""
        return age_weights(self.age_weights, self.replay)

    @property
    def iterations(self) -> int:
        """Whole iterations within `steps`."""
        return self.steps // self.batch

    @functools.cached_property
    def id(self) -> str:
        """A hash of everything above that results depend on: equal ids are equal runs."""
        return config_id(self.stored)

    @property
    def names(self) -> tuple[str, ...]:
        """What it can be asked for by, within its task."""
        return (self.shape,)

    @property
    def stored(self) -> dict[str, Any]:
        """As it lies on disk."""
        return stored(self)

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of its task."""
        return arguments_in(self.task_args)


# What the paper sets otherwise, task by task; its MuJoCo tasks take the defaults.
NO_NORMALISATION: dict[str, Any] = {"normalise_observations": False, "normalise_rewards": False}
PAPER_TASKS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"envs": 4, "rollout": 128, "steps": 100_000, **NO_NORMALISATION},
    "LunarLander-v3": {
        "envs": 16,
        "rollout": 1024,
        "gamma": 0.999,
        "gae_lambda": 0.98,
        "entropy_weight": 0.01,
        **NO_NORMALISATION,
    },
}


@functools.cache
def _defaults() -> Mapping[str, Any]:
    return dict(json.loads(json.dumps(dataclasses.asdict(Config(task="")))))


def usual_settings(task: str) -> dict[str, Any]:
    """Every field of a config as the paper has it for this task, or at its default; as JSON has it.

    >>> usual_settings("CartPole-v1")["envs"], usual_settings("Pendulum-v1")["envs"]
    (4, 1)
    """
    return {**_defaults(), **PAPER_TASKS.get(task, {})}


def settings_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a config on disk; what it does not name is at its default.

    >>> settings_in({"task": "Hopper-v4", "seed": 1})["lr"]
    0.0003
    """
    whole = {**_defaults(), **fields}
    return {key: value for key, value in whole.items() if key not in {*OWN, *HOW}}


def config(task: str, **fields: Any) -> Config:
    """The paper's configuration of a task, with fields replaced; checked, but for the task itself.

    >>> config("CartPole-v1").envs
    4
    """
    known = {f.name for f in dataclasses.fields(Config)}
    for name in fields:
        if name not in known:
            raise KlipError(f"no config field is called '{name}'; there are {', '.join(known)}")
    given = {**PAPER_TASKS.get(task, {}), **fields}
    if "shape" in given:
        given["shape"] = str(parse(str(given["shape"])))
        given["code"] = digest_of_code(given["shape"])
    if ":" in task:
        given["task_code"] = digest_of_task(task)
    made = Config(task=task, **given)
    check(made)
    return made


def lockstep_key(c: Config) -> tuple[Any, ...]:
    """Equal for runs that may share a cohort."""
    own = {"shape", "seed", "code", "lr", "anneal", "gamma", "gae_lambda", "entropy_weight",
           "value_weight", "value_clip", "max_grad_norm", "adam_b1", "adam_b2", "adam_eps",
           "log_std", "lag", "replay", "gradient_steps", "ratio", "correction_cap", "trace",
           "age_weights"}  # fmt: skip
    return tuple(getattr(c, name) for name in types_of(Config) if name not in own)


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
    for name in ("gamma", "gae_lambda"):
        if not 0 <= getattr(c, name) <= 1:
            raise KlipError(f"{name}={getattr(c, name)} must lie between 0 and 1")
    for name in ("adam_b1", "adam_b2"):
        if not 0 <= getattr(c, name) < 1:
            raise KlipError(f"{name}={getattr(c, name)} must be at least 0 and less than 1")
    if (long := max(c.lag + 1, c.replay)) > c.iterations:
        what = f"lag={c.lag}" if long > c.replay else f"replay={c.replay}"
        raise KlipError(
            f"{what} is longer than the run of {c.iterations} iterations ({c.steps} steps in "
            f"rollouts of {c.batch}): give more steps, or less"
        )
    age_weights(c.age_weights, c.replay)
    positive = ("lr", "max_grad_norm", "adam_eps", "observation_clip", "reward_clip")
    for name in (*positive, "correction_cap"):
        if not getattr(c, name) > 0:
            raise KlipError(f"{name}={getattr(c, name)} must be greater than 0")
    for name in ("value_weight", "value_clip", "entropy_weight"):
        if not getattr(c, name) >= 0:
            raise KlipError(f"{name}={getattr(c, name)} must be at least 0")
    if not c.hidden or min(c.hidden) < 1:
        raise KlipError(f"hidden={c.hidden} must be one or more positive widths")


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
    if spelled in ("uniform", "geppo"):
        given = [1.0 if spelled == "uniform" else float(replay - i) for i in range(replay)]
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
    from klip.tasks import describe  # here, since it loads the simulators

    describe(c.task, c.arguments, c.processes)
