"""Running statistics of observations and returns, for R runs at once and each by itself.

Every operation is elementwise over runs, so a run's numbers do not depend on its neighbours.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

LEAST: Final = 1e-8
"""What is added to a variance before its root is taken."""
_LEAST: F64 = np.array(LEAST)
"""As an array, which NumPy takes faster than a number."""


class Weights(NamedTuple):
    """What an update of moments weighs old and new numbers by.

    All but the first are `[R, ...]`, or single numbers where all runs have counted alike.
    """

    reached: F64
    """how many there are then, `[R]`"""
    before: F64
    """how many there were"""
    total: F64
    """how many there are then"""
    pull: F64
    """before * new / total"""
    share: F64
    """new / total"""


@dataclass
class Moments:
    """Mean and variance of all numbers so far, in float64; they start at 0, 1, counted as 1e-4."""

    mean: F64  # [R, ...]
    variance: F64  # [R, ...]
    count: F64  # [R]

    @staticmethod
    def of(runs: int, *shape: int) -> Moments:
        """Statistics before the first number, of arrays of a shape."""
        return Moments(np.zeros((runs, *shape)), np.ones((runs, *shape)), np.full(runs, 1e-4))

    def ahead(self, steps: int, envs: int) -> Iterator[Weights]:
        """The weights of the next `steps` updates by `envs` numbers each, computed together."""
        added = np.broadcast_to(float(envs), (steps, *self.count.shape))
        counts = np.add.accumulate(np.concatenate([self.count[None], added]))
        if counts[0].min() == counts[0].max():  # NumPy takes single numbers twice as fast
            spread = counts[:, 0]
        else:
            spread = counts.reshape(*counts.shape, *(1,) * (self.mean.ndim - 1))
        before, total = spread[:-1], spread[1:]
        return map(Weights, counts[1:], before, total, before * envs / total, envs / total)

    def update(self, x: F64, weights: Weights) -> None:
        """Take in `[R, E, ...]`: one more batch of E for each run."""
        envs = x.shape[1]
        mean = x[:, 0] if envs == 1 else x.mean(axis=1)
        delta = mean - self.mean
        self.variance *= weights.before
        if envs > 1:
            self.variance += x.var(axis=1) * envs
        self.mean += delta * weights.share
        delta *= delta
        delta *= weights.pull
        self.variance += delta
        self.variance /= weights.total
        self.count = weights.reached

    def arrays(self, prefix: str, run: int) -> dict[str, NDArray[Any]]:
        """One run's statistics, for its file."""
        return {
            f"{prefix}.mean": self.mean[run],
            f"{prefix}.variance": self.variance[run],
            f"{prefix}.count": self.count[run],
        }

    def take(self, prefix: str, run: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Set one run's statistics from its file."""
        for name, mine in (("mean", self.mean), ("variance", self.variance), ("count", self.count)):
            mine[run] = arrays[f"{prefix}.{name}"]

    def only(self, runs: Sequence[int]) -> Moments:
        """The statistics of some runs."""
        rows = list(runs)
        return Moments(self.mean[rows], self.variance[rows], self.count[rows])


def normalise(x: F64, moments: Moments, limit: float) -> NDArray[np.float32]:
    """(x - mean) / sqrt(variance + 1e-8), clipped, float32; `[R, E, D]`."""
    scaled: F64 = x - moments.mean[:, None]
    scaled /= np.sqrt(moments.variance + _LEAST)[:, None]
    low, high = _ends(limit)
    np.maximum(scaled, low, out=scaled)
    np.minimum(scaled, high, out=scaled)
    return scaled.astype(np.float32)


@functools.cache
def _ends(limit: float) -> tuple[F64, F64]:
    """The limits as arrays."""
    return np.array(-limit), np.array(limit)


@dataclass
class RewardScale:
    """r / sqrt(Var(G) + 1e-8), with G <- gamma G + r over each environment's episode."""

    moments: Moments
    discounted: F64  # [R, E]

    @staticmethod
    def of(runs: int, envs: int) -> RewardScale:
        """Statistics before the first reward."""
        return RewardScale(Moments.of(runs), np.zeros((runs, envs)))

    def only(self, runs: Sequence[int]) -> RewardScale:
        """The statistics of some runs."""
        return RewardScale(self.moments.only(runs), self.discounted[list(runs)])

    def __call__(self, reward: F64, ended: NDArray[np.bool_], gamma: F64, limit: float) -> F64:
        """Normalise `[T, R, E]` in the order of time; gamma is `[R, 1]`.

        G starts anew where an episode ended, however it ended.
        """
        scaled = np.empty_like(reward)
        if reward.shape[2] == 1:
            for run in range(reward.shape[1]):
                scaled[:, run, 0] = self._alone(run, reward[:, run, 0], ended[:, run, 0], gamma)
        else:
            weights = self.moments.ahead(*reward.shape[::2])
            for t, each in enumerate(weights):
                self.discounted *= gamma
                self.discounted += reward[t]
                self.moments.update(self.discounted, each)
                scaled[t] = reward[t] / np.sqrt(self.moments.variance + _LEAST)[:, None]
                self.discounted[ended[t]] = 0.0
        return scaled.clip(-limit, limit)

    def _alone(self, run: int, reward: F64, ended: NDArray[np.bool_], gamma: F64) -> list[float]:
        """The rewards `[T]` of a run with one environment, not yet clipped.

        Python's numbers are those of NumPy to the last bit, and on single ones it is much faster.
        """
        moments = self.moments
        mean, variance = float(moments.mean[run]), float(moments.variance[run])
        count, g = float(moments.count[run]), float(self.discounted[run, 0])
        discount, scaled = float(gamma[run, 0]), []
        for r, over in zip(reward.tolist(), ended.tolist(), strict=True):
            g = g * discount + r
            total = count + 1
            delta = g - mean
            variance = (variance * count + delta * delta * (count / total)) / total
            mean += delta * (1 / total)
            count = total
            scaled.append(r / math.sqrt(variance + LEAST))
            if over:
                g = 0.0
        moments.mean[run], moments.variance[run], moments.count[run] = mean, variance, count
        self.discounted[run, 0] = g
        return scaled
