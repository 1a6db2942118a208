"""Running statistics of observations and returns, for R runs at once and each by itself.

Every operation is elementwise over runs, so a run's numbers do not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


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

    def update(self, x: F64) -> None:
        """Take in `[R, E, ...]`: one more batch of E for each run."""
        envs = x.shape[1]
        if envs == 1:
            mean, variance = x[:, 0], 0.0
        else:
            mean, variance = x.mean(axis=1), x.var(axis=1)
        count = self.count.reshape(-1, *(1,) * (mean.ndim - 1))
        total = count + envs
        delta = mean - self.mean
        spread = self.variance * count + variance * envs + delta * delta * (count * envs / total)
        self.mean += delta * (envs / total)
        self.variance = spread / total
        self.count += envs

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
    scaled = (x - moments.mean[:, None]) / np.sqrt(moments.variance + 1e-8)[:, None]
    return np.clip(scaled, -limit, limit).astype(np.float32)


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
        """Normalise `[R, E]`; G starts anew where an episode ended, however it ended."""
        self.discounted *= gamma
        self.discounted += reward
        self.moments.update(self.discounted)
        scaled = reward / np.sqrt(self.moments.variance + 1e-8)[:, None]
        self.discounted[ended] = 0.0
        return np.clip(scaled, -limit, limit)
