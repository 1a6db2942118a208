"""Presets: the conventions of five implementations of PPO, each as fields of the config.

    paper         the paper's; what a config has that names none
    sb3           Stable-Baselines3's PPO, as its constructor has it
    cleanrl       CleanRL's ppo_continuous_action.py, or its ppo.py where actions are choices
    spinning-up   Spinning Up's PPO in PyTorch
    brax          Brax's PPO

A field that is given beside a preset wins over it. The name of a preset is not kept in a run: its
fields are, and two runs with equal fields are one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klip.errors import KlipError
from klip.ppo.arguments import arguments_in, spelled

Settings = Mapping[str, Any]

NO_NORMALISATION: Final = {"normalise_observations": False, "normalise_rewards": False}
PAPER_TASKS: Final[dict[str, dict[str, Any]]] = {
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
"""What the paper sets otherwise, task by task; its MuJoCo tasks take the defaults."""


@dataclass(frozen=True)
class Preset:
    """A named set of fields of the config, over its defaults."""

    about: str
    """whose conventions these are"""
    fields: Settings = field(default_factory=dict)
    choices: Settings = field(default_factory=dict)
    """over them, on a task whose actions are choices"""
    apart: str = ""
    """what the library does that is not done here"""


PRESETS: Final[dict[str, Preset]] = {
    "paper": Preset("the paper's experiments"),
    "sb3": Preset(
        'Stable-Baselines3, PPO("MlpPolicy", ...)',
        {
            "anneal": False,
            "normalise_advantages": "minibatch",
            "value_weight": 1.0,  # 0.5 of a mean square; ours is half of one
            "value_clip": 0.0,
            "value_bound": "clipped",
            **NO_NORMALISATION,
        },
    ),
    "cleanrl": Preset(
        "CleanRL, ppo_continuous_action.py and ppo.py",
        {"normalise_advantages": "minibatch", "time_limits": "end"},
        {
            "steps": 500_000,
            "envs": 4,
            "rollout": 128,
            "epochs": 4,
            "minibatch": 128,
            "lr": 2.5e-4,
            "entropy_weight": 0.01,
            **NO_NORMALISATION,
        },
    ),
    "spinning-up": Preset(
        "Spinning Up, spinup.ppo_pytorch",
        {
            "shape": "target-kl(shape=clip(eps=0.2), target=0.01, estimator=k1)",
            "steps": 200_000,
            "rollout": 4000,
            "epochs": 80,
            "minibatch": 4000,
            "gae_lambda": 0.97,
            "value_lr": 1e-3,
            "anneal": False,
            "adam_eps": 1e-8,
            "max_grad_norm": 0.0,
            "value_weight": 2.0,  # a mean square, alone in its optimiser
            "value_clip": 0.0,
            "value_target": "monte-carlo",
            "advantage_ddof": 0,
            "init": "torch",
            "log_std": -0.5,
            "stop_at": "step",
            "stop_value": False,
            **NO_NORMALISATION,
        },
        apart="an episode that is open at the end of a rollout goes on in the next; there it ends",
    ),
    "brax": Preset(
        "Brax, brax.training.agents.ppo",
        {
            "shape": "clip(eps=0.3)",
            "envs": 512,
            "rollout": 10,
            "epochs": 2,
            "minibatch": 320,
            "gamma": 0.9,
            "lr": 1e-4,
            "anneal": False,
            "adam_eps": 1e-8,
            "max_grad_norm": 0.0,
            "value_clip": 0.0,
            "entropy_weight": 1e-4,
            "normalise_advantages": "minibatch",
            "advantage_ddof": 0,
            "advantage_form": "next-return",
            "time_limits": "skip",
            "hidden": (32,) * 4,
            "value_hidden": (256,) * 5,
            "activation": "swish",
            "state_std": True,
            "squash": True,
            "init": "lecun",
            "log_std": math.log(math.log(2) + 0.001),  # of a network that gives 0
            **NO_NORMALISATION,
        },
        apart="advantages are computed once a rollout, there again at each gradient step; a "
        "minibatch has samples from everywhere, there whole stretches of 10 steps; the entropy of "
        "a squashed Gaussian is its mean, there one sample of it",
    ),
}


def known(preset: str) -> Preset:
    """The preset of that name; a `KlipError` where there is none."""
    if not isinstance(preset, str) or preset not in PRESETS:
        raise KlipError(f"preset={preset!r} must be one of {', '.join(PRESETS)}")
    return PRESETS[preset]


def fields_of(preset: str, task: str, arguments: Any = "") -> dict[str, Any]:
    """The fields of a preset on a task; CleanRL's need to know whether its actions are choices.

    A preset that has no number of steps leaves the paper's.

    >>> fields_of("cleanrl", "CartPole-v1")["lr"], fields_of("paper", "CartPole-v1")["envs"]
    (0.00025, 4)
    """
    chosen, usual = known(preset), PAPER_TASKS.get(task, {})
    if preset == "paper":
        return dict(usual)
    fields = {"steps": usual["steps"]} if "steps" in usual else {}
    fields |= chosen.fields
    if chosen.choices:
        from klip.tasks import Box, describe  # here, since it loads the simulators

        if not isinstance(describe(task, arguments_in(spelled(arguments))).action, Box):
            fields |= chosen.choices
    return fields


def shape_of(preset: str) -> str:
    """The shape of a preset; PPO-Clip where it names none.

    >>> shape_of("sb3"), shape_of("brax")
    ('clip(eps=0.2)', 'clip(eps=0.3)')
    """
    return str(known(preset).fields.get("shape", "clip(eps=0.2)"))


def named(settings: Settings, usual: Settings) -> dict[str, Any]:
    """Settings with a preset's name in place of its fields, where they are all those of one.

    Args:
        settings: every field
        usual: likewise, as the paper has them for the task

    """
    for name, fields in _variants():
        if all(_plain(settings.get(key)) == value for key, value in fields.items()):
            return {**settings, **{key: usual.get(key) for key in fields}, "preset": name}
    return dict(settings)


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def _variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each preset's fields as JSON has them, those for choices first; shape and steps are free."""
    for name, preset in PRESETS.items():
        for fields in ({**preset.fields, **preset.choices}, preset.fields):
            kept = {k: _plain(v) for k, v in fields.items() if k not in ("shape", "steps")}
            if kept:
                yield name, kept
