"""Stable-Baselines3's PPO with any shape: `KlipPPO("MlpPolicy", env, shape="spo(eps=0.2)")`.

Stable-Baselines3 has no hook in its policy loss, so this module has a `train()` of its own: the
same numbers in the same order, with the shape in place of the clip. With the shape `clip` an update
equals that of the original PPO up to the rounding of float32, and in float64 to the last bit.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.utils import explained_variance
from torch import Tensor
from torch.distributions import kl_divergence
from torch.func import functional_call
from torch.nn import Module
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from klip.adapters.common import given_shape, logged, short_log
from klip.adapters.samples import policy_loss, together
from klip.errors import KlipError
from klip.shapes import Band, Context, Feedback, Region, Shape, parse
from klip.shapes.value import is_number
from klip.theory.diagnostics import metrics, totals
from klip.tokens import Diagnostics

TRAINER = "Stable-Baselines3"
FIELDS = ("old_log_prob", "kl", "entropy", "step", "progress")
KILLED = ("beta_kill_p05", "beta_kill_p50", "beta_kill_p95")
"""Diagnostics that are also logged if a sample was killed."""
FOLLOWED = "2ffe213c00847e0d"
"""The fingerprint of the `train()` that ours follows, which is in versions 2.4.0 to 2.9.2."""


class KlipPPO(PPO):
    """PPO of Stable-Baselines3 whose trust region is a shape or a controller.

    It takes the arguments of `stable_baselines3.PPO` and, by keyword, `shape`: a value of
    `klip.shapes` or its spelling. The shape replaces `clip_range`, which is left out. A saved model
    has its shape and a controller's state; `KlipPPO.load(path, shape=...)` changes the shape.

    >>> model = KlipPPO("MlpPolicy", "CartPole-v1", n_steps=64, shape="spo(eps=0.3)", device="cpu")
    >>> model.shape
    'spo(eps=0.3)'
    """

    def __init__(
        self, policy: Any, env: Any, *args: Any, shape: Any = "clip(eps=0.2)", **kwargs: Any
    ) -> None:
        self.shape = shape
        self.shape_state: dict[str, float] = {}
        bound = inspect.signature(PPO).bind(policy, env, *args, **kwargs)
        bound.arguments.setdefault("clip_range", None)  # None: the user gave none
        super().__init__(*bound.args, **bound.kwargs)

    def _setup_model(self) -> None:
        value = parse(self.shape) if isinstance(self.shape, str) else self.shape
        start = given_shape(value.initial if isinstance(value, Region) else value, TRAINER, FIELDS)
        if "old_log_prob" in start.needs and isinstance(self.action_space, spaces.Box):
            raise KlipError(
                f"{start.name} needs the probability of an action, and in {self.action_space} "
                "actions have densities: choose a shape of the ratio, such as clip or spo"
            )
        self.clip_range: Any = _clip_range(self.clip_range, start)
        self.shape, self._region = _spelled(value), value
        if self.shape_state.keys() != value.init().keys():
            self.shape_state = _numbers(value.init())
        super()._setup_model()
        if train_fingerprint() != FOLLOWED:
            warnings.warn(
                "this version of Stable-Baselines3 has a train() that KlipPPO has not been "
                "compared with: whatever is new in it is missing here",
                stacklevel=2,
            )
        if self.n_epochs == 1 and self.batch_size >= self.n_steps * self.n_envs:
            warnings.warn(
                "every ratio will be 1 and every shape inert: there is one gradient step per "
                f"rollout (n_epochs=1, batch_size={self.batch_size}); raise n_epochs or lower "
                "batch_size",
                stacklevel=2,
            )

    def _excluded_save_params(self) -> list[str]:
        """Leave out what follows from the shape's spelling."""
        return [*super()._excluded_save_params(), "_region", "clip_range"]

    def train(self) -> None:
        """Train for epochs of minibatches over the rollout, with the shape's multiplier."""
        policy, region = self.policy, self._region
        policy.set_training_mode(True)
        self._update_learning_rate(policy.optimizer)
        scale = float(region.step_scale(self.shape_state))
        for group in policy.optimizer.param_groups:
            group["lr"] *= scale
        shape = region.shape_at(self.shape_state)
        adapts, asks_kl = region.adapts, uses_kl(shape)
        old = OldPolicy(policy) if adapts or asks_kl else None
        value_clip = self.clip_range_vf
        if value_clip is not None:
            value_clip = value_clip(self._current_progress_remaining)  # type: ignore[operator]

        steps: list[Minibatch] = []
        for epoch in range(self.n_epochs):
            begun, ended = len(steps), False
            for batch in self.rollout_buffer.get(self.batch_size):
                loss, step = self._step(batch, shape, old if asks_kl else None, value_clip)
                if adapts and old is not None:
                    step = step._replace(kl=self._kl(old, batch.observations))
                steps.append(step)
                if self.target_kl is not None and step.approx_kl > 1.5 * self.target_kl:
                    ended = True
                    if self.verbose >= 1:
                        print(f"Stopped in epoch {epoch}: approx_kl reached {step.approx_kl:.2f}")
                    break
                policy.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                clip_grad_norm_(policy.parameters(), self.max_grad_norm)
                policy.optimizer.step()
            self._n_updates += 1
            if adapts:
                moved = self._told(steps[begun:], epoch + 1)
                ended = ended or bool(region.stop(self.shape_state, moved))
            if ended:
                break
        if adapts and old is not None:
            feedback = self._told(self._after(shape, old), epoch + 1)
            self.shape_state = _numbers(region.update(self.shape_state, feedback))
        self._log(steps, begun, value_clip)

    def _step(
        self, batch: Any, shape: Shape, old: OldPolicy | None, value_clip: float | None
    ) -> tuple[Tensor, Minibatch]:
        """The loss of one minibatch, and what is logged about it."""
        values, log_prob, entropy = self._evaluate(batch)
        values, advantages = values.flatten(), batch.advantages
        if self.normalize_advantage and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        if entropy is None and "entropy" in shape.needs:
            raise KlipError(
                f"{shape.name} needs entropy, which a squashed policy does not have: choose a "
                "shape of the ratio, such as clip or spo"
            )
        known = {} if entropy is None else {"entropy": entropy.detach()}
        progress = 1.0 - self._current_progress_remaining
        context = Context(step=float(self.num_timesteps), progress=progress, **known)
        kl = None if old is None else old.kl(batch.observations)
        pulled, diagnostics = policy_loss(
            log_prob, batch.old_log_prob, advantages, shape, context, state_kl=kl
        )
        assert diagnostics is not None
        if value_clip is not None:
            change = torch.clamp(values - batch.old_values, -value_clip, value_clip)
            values = batch.old_values + change
        value_loss = F.mse_loss(batch.returns, values)
        entropy_loss = -torch.mean(-log_prob if entropy is None else entropy)
        loss = pulled + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        with torch.no_grad():
            log_ratio = log_prob - batch.old_log_prob
            approx_kl = torch.mean((torch.exp(log_ratio) - 1) - log_ratio)
        return loss, Minibatch(
            loss=loss.item(),
            policy_loss=pulled.item(),
            value_loss=value_loss.item(),
            entropy_loss=entropy_loss.item(),
            approx_kl=approx_kl.item(),
            diagnostics=diagnostics,
            has_entropy=entropy is not None,
        )

    def _evaluate(self, batch: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values, log-probabilities of the actions taken, and entropies if they have a formula."""
        discrete = isinstance(self.action_space, spaces.Discrete)
        actions = batch.actions.long().flatten() if discrete else batch.actions
        return self.policy.evaluate_actions(batch.observations, actions)

    def _kl(self, old: OldPolicy, observations: Any) -> float | None:
        """The mean closed-form KL(old || new); None for a distribution without one."""
        try:
            with torch.no_grad():
                return float(old.kl(observations).mean())
        except NotImplementedError:
            return None

    def _after(self, shape: Shape, old: OldPolicy) -> list[Minibatch]:
        """The rollout in minibatches, as the policy is after the last epoch."""
        asked = old if uses_kl(shape) else None
        with torch.no_grad():
            return [
                self._step(batch, shape, asked, None)[1]._replace(
                    kl=self._kl(old, batch.observations)
                )
                for batch in self.rollout_buffer.get(self.batch_size)
            ]

    def _told(self, steps: Sequence[Minibatch], epoch: int) -> Feedback:
        """What some minibatches say to the controller after so many epochs."""
        diagnostics = _joined(steps)
        weights = [step.diagnostics.m.numel() for step in steps]
        named = metrics(totals(diagnostics.observed), diagnostics.mark)
        row: dict[str, Any] = {name: float(x) for name, x in named.items()}
        row["tv"] = row["ratio_deviation"] / 2  # every sample is of the policy that learns from it
        if all(step.kl is not None for step in steps):
            row["kl"] = float(np.average([step.kl for step in steps], weights=weights))
        if all(step.has_entropy for step in steps):
            row["entropy"] = float(np.average([-s.entropy_loss for s in steps], weights=weights))
        return Feedback.of(
            row,
            epoch=float(epoch),
            samples=float(self.n_steps * self.n_envs),
            progress=1.0 - self._current_progress_remaining,
        )

    def _log(self, steps: Sequence[Minibatch], last_epoch: int, value_clip: float | None) -> None:
        """The entries of Stable-Baselines3 under `train/`, and the shape's under `klip/`."""
        diagnostics, buffer = _joined(steps), self.rollout_buffer
        (bottom, top), w = diagnostics.edges, diagnostics.observed.ratio
        outside = (w < bottom) | (w > top)
        rows = {
            "entropy_loss": np.mean([step.entropy_loss for step in steps]),
            "policy_gradient_loss": np.mean([step.policy_loss for step in steps]),
            "value_loss": np.mean([step.value_loss for step in steps]),
            "approx_kl": np.mean([step.approx_kl for step in steps[last_epoch:]]),
            "clip_fraction": float(outside.float().mean()),
            "loss": steps[-1].loss,
            "explained_variance": explained_variance(
                buffer.values.flatten(), buffer.returns.flatten()
            ),
        }
        if hasattr(self.policy, "log_std"):
            rows["std"] = torch.exp(self.policy.log_std).mean().item()
        if (eps := _eps(self._region.initial)) is not None:
            rows["clip_range"] = eps
        if value_clip is not None:
            rows["clip_range_vf"] = value_clip
        for name, number in rows.items():
            self.logger.record(f"train/{name}", number)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        row, names = diagnostics.metrics(), (*short_log(diagnostics.mark), *KILLED)
        own = {name: row[name] for name in names if name in row} | self.shape_state
        for name, number in logged(own).items():
            self.logger.record(name, number)


class Minibatch(NamedTuple):
    """What is logged about one minibatch."""

    loss: float
    policy_loss: float
    value_loss: float
    entropy_loss: float
    approx_kl: float
    diagnostics: Diagnostics
    has_entropy: bool
    """whether the entropy has a formula"""
    kl: float | None = None
    """closed form, of the old policy from the new, if a controller may ask for it"""


class OldPolicy:
    """The policy of the rollout: a copy of its parameters, which the epochs do not change."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.at = policy, _At(policy)
        named = [*self.at.named_parameters(), *self.at.named_buffers()]
        self.tensors = {name: x.detach().clone() for name, x in named}

    def kl(self, observations: Any) -> Tensor:
        """KL(old || new) in closed form, `[N]`, with gradient in the new policy."""
        new = self.at(observations)
        # Rollouts are collected in evaluation mode, so the old policy was in it.
        self.policy.set_training_mode(False)
        with torch.no_grad():
            old = functional_call(self.at, self.tensors, (observations,))
        self.policy.set_training_mode(True)
        parts = [kl_divergence(p, q) for p, q in zip(old, new, strict=True)]
        return torch.stack([x if x.ndim == 1 else x.sum(-1) for x in parts]).sum(0)


class _At(Module):
    """A module that returns a policy's PyTorch distributions at some observations."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: Any) -> list[Any]:
        parts = self.policy.get_distribution(observations).distribution
        return list(parts) if isinstance(parts, (list, tuple)) else [parts]


def uses_kl(shape: Shape) -> bool:
    """Whether a shape weighs or needs the closed-form KL of each state.

    >>> uses_kl(parse("kl(b=1)")), uses_kl(parse("tr-ppo")), uses_kl(parse("clip"))
    (True, True, False)
    """
    return "kl" in shape.needs or shape.weighs_kl(torch.ones(1))


def train_fingerprint() -> str:
    """A digest of Stable-Baselines3's own `train()` without comments and white space."""
    try:
        lines = inspect.getsource(PPO.train).splitlines()
    except OSError:  # installed without its sources
        return "unknown"
    code = re.sub(r"\s", "", "".join(re.sub("#.*", "", line) for line in lines))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def _eps(shape: Shape) -> float | None:
    """The radius of the shape's band if it has one and it is a number, else None."""
    radii = {part.eps for part in shape.parts() if isinstance(part, Band)}
    eps = radii.pop() if len(radii) == 1 else None
    return eps if is_number(eps) else None


def _clip_range(clip_range: Any, shape: Shape) -> float:
    """The radius of the shape's band, or 0.2; raises if the user's `clip_range` contradicts it."""
    eps = _eps(shape)
    if callable(clip_range):
        raise KlipError(
            f"clip_range is a schedule and the shape is {shape}: the shape decides, so leave "
            "clip_range out and write eps=by-step(start=0.2, end=0.0, steps=1e6) in the shape"
        )
    if clip_range is not None and clip_range != eps:
        raise KlipError(
            f"clip_range={clip_range} and the shape is {shape}: the shape decides, so leave "
            f"clip_range out, or write shape='clip(eps={clip_range})'"
        )
    return 0.2 if eps is None else eps


def _spelled(value: Any) -> Any:
    """The spelling of a value, for saved models; the value itself if no spelling is equal to it."""
    try:
        return str(value) if parse(str(value)) == value else value
    except KlipError:
        return value


def _numbers(state: Any) -> dict[str, float]:
    return {name: float(x) for name, x in state.items()}


def _joined(steps: Sequence[Minibatch]) -> Diagnostics:
    return together([step.diagnostics for step in steps])
