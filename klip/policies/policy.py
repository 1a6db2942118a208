"""A trained policy as a frozen value: parameters, statistics, what its outputs mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from klip.errors import KlipError
from klip.ppo.acting import (
    ACTIVATIONS,
    F32,
    Action,
    Layout,
    actor,
    bounded,
    forward,
    layers,
    layout_of,
)
from klip.ppo.arguments import arguments_in
from klip.ppo.normalise import Moments, normalise
from klip.tasks import Box, Discrete, MultiDiscrete

Arrays = Mapping[str, NDArray[Any]]
NETWORKS = ("policy.", "value.", "trunk.")
PARTS = (*NETWORKS, "observation.", "action.")
"""The arrays that make a policy have names that begin with these."""


@dataclass(frozen=True, eq=False)
class Policy:
    """Acts as the run did when it was saved; nothing about it changes by being used.

    Every observation of a batch is answered by itself: its action has the same bits in any batch,
    and those that the trainer's own acting gives for one environment.
    """

    config: Mapping[str, Any]
    """the fields of `klip.Config` that it was trained with"""
    action: Action
    """the task's action space"""
    start: NDArray[Any]
    """the number of the first choice, [] or [K]; 0 for a Box"""
    layout: Layout
    arrays: Mapping[str, F32]
    """parameters by name, [1, ...] each"""
    moments: Moments | None
    """the statistics that normalise observations; None if nothing does"""
    limit: float
    """normalised observations are clipped to +-limit"""

    @property
    def task(self) -> str:
        """Gymnasium's id of the task that it was trained on."""
        return str(self.config["task"])

    @property
    def task_arguments(self) -> dict[str, Any]:
        """The keyword arguments of that task."""
        return arguments_in(str(self.config.get("task_args", "")))

    @property
    def observation_size(self) -> int:
        """D of the observations that it takes."""
        return self.layout.observation

    @property
    def noise_size(self) -> int:
        """How many random numbers one sampled action takes."""
        return sum(self.layout.heads) if self.layout.gaussian else len(self.layout.heads)

    def act(
        self,
        observation: ArrayLike,
        deterministic: bool = True,
        rng: np.random.Generator | None = None,
    ) -> Any:
        """Choose an action for an observation, or one for each of a batch.

        Args:
            observation: [D] or [N, D], as the environment gives it
            deterministic: take the mean or the likeliest choice; otherwise draw a sample
            rng: where a sample takes its random numbers from

        Returns:
            the action as the environment takes it: for a Box real numbers within its bounds, in
            its own precision; for a Discrete an integer, and for a MultiDiscrete K of them,
            counted from the space's `start`

        """
        rows, single = self._rows(observation)
        noise = None
        if not deterministic:
            if rng is None:
                raise KlipError(
                    "a sampled action needs random numbers: give rng=numpy.random.default_rng(0)"
                )
            noise = np.stack([self.noise(rng) for _ in rows]) if len(rows) else None
        chosen = self.choose(rows, noise)
        if not isinstance(self.action, Box):
            chosen = (chosen + self.start).astype(self.start.dtype)
        return chosen[0] if single else chosen

    def value(self, observation: ArrayLike) -> Any:
        """Estimate the discounted return from an observation on, by the value network.

        Args:
            observation: [D] or [N, D], as the environment gives it

        Returns:
            a number, or [N], in units of the rewards that it was trained on: normalised ones
            where the config says `normalise_rewards`

        """
        rows, single = self._rows(observation)
        values = self._run("value", rows)[:, 0]
        return values[0] if single else values

    def _repr_html_(self) -> str:
        """What a notebook shows: what it was trained on and how, and its trust region."""
        from klip.policies.showing import policy_card  # draws, and acting needs no drawing

        return policy_card(self)

    def noise(self, rng: np.random.Generator) -> F32:
        """The random numbers of one sampled action, [K]."""
        if self.layout.gaussian:
            return rng.standard_normal(self.noise_size, np.float32)
        return rng.random(self.noise_size, np.float32)

    def choose(self, rows: NDArray[np.float64], noise: F32 | None) -> NDArray[Any]:
        """Actions for [N, D] as lanes take them, choices counted from 0; `noise` [N, K] samples."""
        if noise is not None:
            draw = actor(self.layout, self.arrays, noise[None, :, None])
            raw = draw(self.seen(rows)[:, None], 0)[:, 0]
        else:
            raw = self._likeliest(self.outputs(rows))
        if isinstance(self.action, Box):
            return bounded(self.layout, raw, self.action).astype(self.action.low.dtype)
        chosen: NDArray[Any] = raw[:, 0] if isinstance(self.action, Discrete) else raw
        return chosen

    def outputs(self, rows: NDArray[np.float64]) -> F32:
        """The policy network's own outputs at [N, D]: means before they are bounded, or logits.

        Where it gives deviations too, what makes those stands behind the means.
        """
        return self._run("policy", rows)

    def _likeliest(self, out: F32) -> NDArray[Any]:
        """The mode of a Gaussian, [N, A], before it is bounded; or [N, K] choices."""
        if self.layout.gaussian:
            return out[:, : sum(self.layout.heads)]
        edges = np.cumsum(self.layout.heads)[:-1]
        return np.stack([part.argmax(axis=1) for part in np.split(out, edges, axis=1)], axis=1)

    def seen(self, rows: NDArray[np.float64]) -> F32:
        """[N, D] as the network gets it: normalised by the frozen statistics, clipped, float32."""
        if self.moments is None:
            return rows.astype(np.float32)
        normal: F32 = normalise(rows[None], self.moments, self.limit)[0]
        return normal

    def _run(self, net: str, rows: NDArray[np.float64]) -> F32:
        # [N, 1, D]: each row is then a product of its own
        network = layers(self.layout, self.arrays, net)
        return forward(self.layout, network, self.seen(rows)[:, None])[:, 0]

    def _rows(self, observation: ArrayLike) -> tuple[NDArray[np.float64], bool]:
        try:
            x = np.asarray(observation, np.float64)
        except (TypeError, ValueError):
            x = np.empty((0, 0, 0))
        if x.ndim not in (1, 2) or x.shape[-1] != self.observation_size:
            given = getattr(observation, "shape", None) or type(observation).__name__
            raise KlipError(
                f"the observation is {given}, and this policy takes [{self.observation_size}] or "
                f"[N, {self.observation_size}] numbers"
            )
        return (x[None], True) if x.ndim == 1 else (x, False)


def policy_of(config: Mapping[str, Any], arrays: Arrays) -> Policy:
    """The policy that a checkpoint's config and arrays make; raises unless every size fits."""
    if not any(name.startswith("policy.") for name in arrays):
        raise KlipError("there are no parameters yet: train it to its first checkpoint")
    action, start = _action(arrays)
    name = "trunk.0.weight" if "trunk.0.weight" in arrays else "policy.0.weight"
    first = _array(arrays, name, np.float32)
    if first.ndim != 2:
        raise KlipError(f"{name!r} has shape {first.shape}, and must have two axes")
    size = first.shape[0]
    layout = layout_of(size, action, **_networks(config, arrays))
    parameters = {
        name: _frozen(_array(arrays, name, np.float32, shape)[None])
        for name, shape in layout.shapes
    }
    known = set(parameters)
    for name in arrays:
        if name.startswith(NETWORKS) and name not in known:
            raise KlipError(f"{name[:80]!r} is no array of a network with {layout.hidden} hidden")
    moments, limit = None, 0.0
    if _is(config, "normalise_observations", bool):
        limit = float(_is(config, "observation_clip", int | float))
        mean = _array(arrays, "observation.mean", np.float64, (size,))
        variance = _array(arrays, "observation.variance", np.float64, (size,))
        if variance.min(initial=0.0) < 0 or not limit > 0:
            raise KlipError("its statistics are impossible: a variance or a limit is negative")
        moments = Moments(_frozen(mean[None]), _frozen(variance[None]), np.ones(1))
    return Policy(
        config=MappingProxyType(dict(config)),
        action=action,
        start=start,
        layout=layout,
        arrays=MappingProxyType(parameters),
        moments=moments,
        limit=limit,
    )


def policy_arrays(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """The arrays of a checkpoint that make its policy, without those that only training needs."""
    return {name: array for name, array in arrays.items() if name.startswith(PARTS)}


def _action(arrays: Arrays) -> tuple[Action, NDArray[Any]]:
    """The action space and the number of its first choice, from the arrays that describe them."""
    if "action.low" in arrays:
        low = _array(arrays, "action.low", np.floating)
        high = _array(arrays, "action.high", low.dtype, low.shape)
        if low.ndim != 1 or low.size == 0 or not np.all(low <= high):
            raise KlipError("'action.low' and 'action.high' are not the bounds of a flat Box")
        return Box(_frozen(low), _frozen(high)), np.zeros((), np.int64)
    heads = _array(arrays, "action.heads", np.integer)
    if heads.size == 0 or heads.min() < 1:
        raise KlipError(
            f"'action.heads' says {heads.ravel().tolist()[:8]}, and must be counts of choices"
        )
    start = _array(arrays, "action.start", np.integer)
    if start.size != heads.size:
        raise KlipError(f"'action.start' has {start.size} numbers for {heads.size} choices")
    first = start.ravel().tolist()
    if heads.ndim == 0:
        return Discrete(int(heads), first[0]), _frozen(start.reshape(()))
    return MultiDiscrete(tuple(heads.ravel().tolist()), tuple(first)), _frozen(start.ravel())


def _networks(config: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """What the networks are like: from the arrays where these show it, else from the config."""
    activation = config.get("activation", "tanh")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise KlipError(f"its config says activation={str(activation)[:40]!r}, which cannot be")
    squash = _is(config, "squash", bool) if "squash" in config else False
    shared = "trunk.0.bias" in arrays
    hidden = _widths(arrays, "trunk") if shared else _widths(arrays, "policy")[:-1]
    value = () if shared else _widths(arrays, "value")[:-1]
    return {
        "hidden": hidden,
        "value_hidden": () if value == hidden else value,
        "activation": activation,
        "shared_trunk": shared,
        "layer_norm": any(name.endswith(".scale") for name in arrays),
        "state_std": "action.low" in arrays and "policy.log_std" not in arrays,
        "squash": squash,
    }


def _widths(arrays: Arrays, net: str) -> tuple[int, ...]:
    """The sizes of the biases of a network's layers."""
    widths: list[int] = []
    while (bias := arrays.get(f"{net}.{len(widths)}.bias")) is not None:
        widths.append(int(bias.size))
    return tuple(widths)


def _array(
    arrays: Arrays, name: str, dtype: Any, shape: tuple[int, ...] | None = None
) -> NDArray[Any]:
    """One array, or an error that says why a policy cannot use it."""
    array = arrays.get(name)
    if array is None:
        raise KlipError(f"it has no {name!r}: it is not a policy that this version of Klip wrote")
    if not np.issubdtype(array.dtype, dtype):
        kind = getattr(dtype, "__name__", dtype)
        raise KlipError(f"{name!r} holds {array.dtype}, and must hold {kind}")
    if shape is not None and array.shape != shape:
        raise KlipError(f"{name!r} has shape {array.shape}, and must have {shape}")
    if not name.startswith("action.") and not np.isfinite(array).all():
        raise KlipError(f"{name!r} has numbers that are not finite: the run diverged")
    return array


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def _is(config: Mapping[str, Any], name: str, kind: Any) -> Any:
    value = config.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise KlipError(f"its config says {name}={str(value)[:40]!r}, which cannot be")
    return value
