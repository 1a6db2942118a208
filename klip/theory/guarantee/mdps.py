"""Small MDPs, many at once, solved exactly: their advantages, their returns, and their policies.

    P [N, S, A, S]   transitions        R [N, S, A]   rewards
    logits [N, S, A] of the old policy  features [N, S, A, D], if parameters are shared

With shared parameters the policy is softmax(logits + features @ theta): an update of one state
moves the others, as a network does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from klip.errors import KlipError
from klip.theory.views import Floats

DISCOUNT: Final = 0.95
STATES, ACTIONS, SHARED = 4, 3, 3


@dataclass(frozen=True)
class MDPs:
    """N MDPs with an old policy each, and features if parameters are shared."""

    transitions: Floats
    rewards: Floats
    logits: Floats
    features: Floats | None
    old: Floats
    """`[N, S, A]`"""
    visits: Floats
    """The discounted visits of each state under the old policy, `[N, S]`; they sum to 1."""
    advantages: Floats
    """`[N, S, A]`, of unit variance under visits and policy."""
    scale: Floats
    """What the advantages were divided by, `[N]`."""
    value: Floats
    """The old policy's return, `[N]`."""

    def __len__(self) -> int:
        return len(self.value)


def random_mdps(rng: np.random.Generator, count: int, shared: bool) -> MDPs:
    """`count` MDPs with sparse random transitions, normal rewards and a random old policy.

    >>> suite = random_mdps(np.random.default_rng(0), 5, shared=False)
    >>> bool(np.allclose((suite.old * suite.advantages).sum(axis=-1), 0))
    True
    """
    transitions = rng.dirichlet(np.full(STATES, 0.3), size=(count, STATES, ACTIONS))
    rewards = rng.normal(size=(count, STATES, ACTIONS))
    logits = rng.normal(size=(count, STATES, ACTIONS))
    features = rng.normal(size=(count, STATES, ACTIONS, SHARED)) if shared else None
    return solved(transitions, rewards, logits, features)


def solved(transitions: Floats, rewards: Floats, logits: Floats, features: Floats | None) -> MDPs:
    """The MDPs with the old policy's visits, advantages and return worked out."""
    old = _softmax(logits)
    step = np.einsum("nsa,nsat->nst", old, transitions)
    reward = (old * rewards).sum(axis=-1)
    eye = np.eye(transitions.shape[1])
    states = np.linalg.solve(eye - DISCOUNT * step, reward[..., None])[..., 0]
    start = np.full(reward.shape, 1 / reward.shape[1])
    flow = np.swapaxes(eye - DISCOUNT * step, 1, 2)
    visits = (1 - DISCOUNT) * np.linalg.solve(flow, start[..., None])[..., 0]
    q = rewards + DISCOUNT * np.einsum("nsat,nt->nsa", transitions, states)
    raw = q - states[..., None]
    scale = np.sqrt((visits[..., None] * old * raw**2).sum(axis=(1, 2)))
    advantages = raw / np.maximum(scale, 1e-9)[:, None, None]
    value = (start * states).sum(axis=-1)
    return MDPs(
        transitions, rewards, logits, features, old, visits, advantages, scale, value
    )  # fmt: skip


def _softmax(logits: Floats) -> Floats:
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def returns(mdps: MDPs, policy: Floats) -> Floats:
    """The return of policies `[..., N, S, A]`, `[..., N]`."""
    step = np.einsum("...nsa,nsat->...nst", policy, mdps.transitions)
    reward = (policy * mdps.rewards).sum(axis=-1)
    eye = np.eye(step.shape[-1])
    values = np.linalg.solve(eye - DISCOUNT * step, reward[..., None])[..., 0]
    return np.asarray(values.mean(axis=-1))


def change(mdps: MDPs, policy: Floats) -> Floats:
    """By how much the return of `policy` differs from the old one's, `[..., N]`.

    It is (1 - discount) times the difference, in units of the advantages' spread.
    """
    return np.asarray(
        (1 - DISCOUNT) * (returns(mdps, policy) - mdps.value) / np.maximum(mdps.scale, 1e-9)
    )


def surrogate(mdps: MDPs, policy: Floats) -> Floats:
    """L: the mean over old visits of E_new[A], `[..., N]`."""
    return np.asarray((mdps.visits[..., None] * policy * mdps.advantages).sum(axis=(-1, -2)))


def variation(mdps: MDPs, policy: Floats) -> Floats:
    """The total variation of each state, `[..., N, S]`."""
    return np.asarray(np.abs(policy - mdps.old).sum(axis=-1) / 2)


def certified(mdps: MDPs, policy: Floats) -> Floats:
    """Whether Achiam et al.'s corollary 1 (2017) certifies the step, `[..., N]`.

    L - 2 discount eps / (1 - discount) * mean TV > 0, eps = max over states of |E_new[A]|.
    """
    per_state = (policy * mdps.advantages).sum(axis=-1)
    worst = np.abs(per_state).max(axis=-1)
    mean = (mdps.visits * variation(mdps, policy)).sum(axis=-1)
    return np.asarray(surrogate(mdps, policy) - 2 * DISCOUNT / (1 - DISCOUNT) * worst * mean > 0)


# -- as plain data ---------------------------------------------------------------------------------


def to_fields(mdps: MDPs, index: int) -> dict[str, Any]:
    """One MDP as plain data."""
    arrays = {"transitions": mdps.transitions, "rewards": mdps.rewards, "logits": mdps.logits}
    if mdps.features is not None:
        arrays["features"] = mdps.features
    return {name: array[index].tolist() for name, array in arrays.items()}


def of_fields(about: Mapping[str, Any]) -> MDPs:
    """The MDP that `to_fields` gave, as a suite of one; raises `KlipError` for anything else."""
    try:
        arrays = {
            name: np.array(about[name], dtype=float)[None]
            for name in ("transitions", "rewards", "logits", "features")
            if name in about
        }
        transitions, rewards, logits = (
            arrays[name] for name in ("transitions", "rewards", "logits")
        )
    except (KeyError, TypeError, ValueError):
        raise KlipError("an MDP needs transitions, rewards and logits: nested lists") from None
    features = arrays.get("features")
    _, states, actions = rewards.shape if rewards.ndim == 3 else (0, 0, 0)
    shapes = transitions.shape == (1, states, actions, states) and logits.shape == rewards.shape
    if features is not None:
        shapes &= features.ndim == 4 and features.shape[:3] == rewards.shape
    rows = transitions.sum(axis=-1)
    if not shapes or not states or states * actions > 10_000:
        raise KlipError("an MDP's transitions, rewards and logits do not fit one another")
    finite = all(np.isfinite(array).all() for array in arrays.values())
    if not finite or (transitions < 0).any() or np.abs(rows - 1).max() > 1e-6:
        raise KlipError("an MDP's transitions must be probabilities that sum to 1, all finite")
    return solved(transitions, rewards, logits, features)
