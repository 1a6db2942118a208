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
from klip.ppo.checking import UNIFORM, age_weights, check, check_task, digest_of_task
from klip.ppo.presets import PAPER_TASKS, fields_of, named
from klip.runs import config_id
from klip.runs.checkpoint import HOW
from klip.shapes import parse
from klip.shapes.code import digest_of_code

__all__ = ["Config", "check", "check_task", "config", "settings_in", "usual_settings"]

OWN: Final[tuple[str, ...]] = ("task", "shape", "seed", "code", "task_code")
"""Fields of a config that are no settings: they are given by themselves, or follow from those."""
NETWORKS: Final = (
    "value_hidden",
    "activation",
    "shared_trunk",
    "layer_norm",
    "state_std",
    "squash",
)
"""Fields that say what networks are like, besides `hidden`."""


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
    """the gradient's norm is clipped here; 0: nowhere"""
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
    """widths of the hidden layers of policy and value network"""
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
    age_weights: str = field(default=UNIFORM, metadata=LATE)
    """of the rollouts in replay: uniform, geppo, or numbers from the newest on, such as 3 2 1"""
    activation: Literal["tanh", "relu", "elu", "swish"] = field(default="tanh", metadata=LATE)
    """after each hidden layer"""
    value_hidden: tuple[int, ...] = field(default=(), metadata=LATE)
    """widths of the value network's hidden layers; none: the policy's"""
    shared_trunk: bool = field(default=False, metadata=LATE)
    """policy and value network share their hidden layers"""
    layer_norm: bool = field(default=False, metadata=LATE)
    """hidden layers are normalised before their activation"""
    state_std: bool = field(default=False, metadata=LATE)
    """a Gaussian's deviations come from the network, not from parameters of their own"""
    squash: bool = field(default=False, metadata=LATE)
    """an action is the tanh of what a Gaussian draws, scaled to the bounds, not clipped to them"""
    init: Literal["orthogonal", "torch", "lecun"] = field(default="orthogonal", metadata=LATE)
    """initial weights: orthogonal with the gains below, uniform as PyTorch's layers are, or
    uniform of variance 1/inputs"""
    hidden_gain: float = field(default=2**0.5, metadata=LATE)
    """of orthogonal weights, in hidden layers"""
    policy_gain: float = field(default=0.01, metadata=LATE)
    """likewise, in the policy's last layer"""
    value_gain: float = field(default=1.0, metadata=LATE)
    """likewise, in the value network's last layer"""
    value_lr: float = field(default=0.0, metadata=LATE)
    """Adam's step size for the value network at the start; 0: lr"""
    decay: Literal["linear", "cosine"] = field(default="linear", metadata=LATE)
    """how step sizes fall, with anneal"""
    lr_end: float = field(default=0.0, metadata=LATE)
    """the share of it that step sizes fall to, with anneal"""
    warmup: float = field(default=0.0, metadata=LATE)
    """the share of all iterations in which step sizes rise first, linearly"""
    grad_clip: Literal["joint", "separate"] = field(default="joint", metadata=LATE)
    """the norm that is clipped: of the whole gradient, or of policy and value network each"""
    value_bound: Literal["worse", "clipped"] = field(default="worse", metadata=LATE)
    """with value_clip: the worse of both losses counts, or that of the clipped prediction (SB3)"""
    value_target: Literal["lambda", "monte-carlo"] = field(default="lambda", metadata=LATE)
    """what the value network learns: advantage plus value, or the discounted rewards to the end"""
    advantage_form: Literal["gae", "next-return"] = field(default="gae", metadata=LATE)
    """GAE, or reward plus the lambda-return of the next step (Brax)"""
    advantage_ddof: int = field(default=1, metadata=LATE)
    """advantages are normalised by the deviation with n minus this: 1, or 0"""
    time_limits: Literal["bootstrap", "end", "skip"] = field(default="bootstrap", metadata=LATE)
    """where a time limit cuts an episode off: the value of its last observation follows, nothing
    does, as at an end (CleanRL), or the step teaches nothing (Brax)"""
    stop_at: Literal["epoch", "step"] = field(default="epoch", metadata=LATE)
    """when a controller such as target-kl may stop: after an epoch, or before a gradient step that
    its minibatch advises against (SB3)"""
    stop_value: bool = field(default=True, metadata=LATE)
    """a controller that stops the policy stops the value network, too"""

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
    def weighted(self) -> bool:
        """Whether samples pull on the policy with weights other than 1."""
        return self.age_weights != UNIFORM or self.ratio == "decoupled"

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

    @property
    def networks(self) -> dict[str, Any]:
        """The fields of `klip.ppo.acting.Layout` that have the same name here, but for `hidden`."""
        return {name: getattr(self, name) for name in NETWORKS}


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

    Where they are those of a preset, that is named in their place.

    >>> settings_in({"task": "Hopper-v4", "seed": 1})["lr"]
    0.0003
    """
    whole = named({**_defaults(), **fields}, usual_settings(str(fields.get("task"))))
    return {key: value for key, value in whole.items() if key not in {*OWN, *HOW}}


def config(task: str, *, preset: str = "paper", **fields: Any) -> Config:
    """The configuration of a task in a preset, with fields replaced; checked, but for the task.

    Args:
        task: Gymnasium id
        preset: whose conventions: see `klip.ppo.presets`
        fields: what differs from them

    >>> config("CartPole-v1").envs, config("CartPole-v1", preset="sb3").envs
    (4, 1)

    """
    known = [f.name for f in dataclasses.fields(Config)]
    for name in fields:
        if name not in known:
            raise KlipError(f"no config field is called '{name}'; there are {', '.join(known)}")
    given = {**fields_of(preset, task, fields.get("task_args", "")), **fields}
    if "shape" in given:
        given["shape"] = str(parse(str(given["shape"])))
        given["code"] = digest_of_code(given["shape"])
    if ":" in task:
        given["task_code"] = digest_of_task(task)
    made = Config(task=task, **given)
    check(made)
    return made


FREE: Final = {
    "shape", "seed", "code", "epochs", "minibatch", "lr", "anneal", "gamma", "gae_lambda",
    "entropy_weight", "value_weight", "value_clip", "max_grad_norm", "adam_b1", "adam_b2",
    "adam_eps", "log_std", "normalise_advantages", "lag", "replay", "gradient_steps", "ratio",
    "correction_cap", "trace", "age_weights", "init", "hidden_gain", "policy_gain", "value_gain",
    "value_lr", "decay", "lr_end", "warmup", "grad_clip", "value_bound", "value_target",
    "advantage_form", "advantage_ddof", "time_limits", "stop_at", "stop_value",
}  # fmt: skip
"""Fields in which runs of a cohort may differ: collecting and physics do not depend on them."""


def lockstep_key(c: Config) -> tuple[Any, ...]:
    """Equal for runs that may share a cohort."""
    return tuple(getattr(c, name) for name in types_of(Config) if name not in FREE)
