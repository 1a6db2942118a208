"""Random numbers as a pure function of (seed, purpose, index).

Philox is a counter-based generator: the key says whose numbers these are, the counter which. So
there is no state to store or to drift, and no run can disturb another's.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

_WORD = 0xFFFFFFFFFFFFFFFF


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """The generator for one purpose of one run, at one place.

    Args:
        seed: of the run
        purpose: what the numbers are for, such as "act"
        index: which of many: the iteration, the episode, ...

    >>> bool(stream(0, "noise", 3).integers(100) == stream(0, "noise", 3).integers(100))
    True

    """
    key, counter = _place(seed, purpose, index)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _place(seed: int, purpose: str, index: tuple[int, ...]) -> tuple[int, int]:
    """The key and the counter at which a stream begins."""
    counter = 0
    for place in index:
        counter = counter << 48 | place
    # The low 64 bits of the counter run within a stream; the index sits above them.
    return (seed & _WORD) << 64 | zlib.crc32(purpose.encode()), counter << 64


class EpisodeSeeds:
    """The seed with which a run's environment `env` is reset for its `episode`-th episode.

    It is drawn from `stream(seed, "episode", env, episode)`. Episodes may be short, so one
    generator is moved from place to place: making one takes longer, and asks the system for chance.

    >>> drawn = stream(3, "episode", 0, 17).integers(2**31)
    >>> bool(EpisodeSeeds()(seed=3, env=0, episode=17) == drawn)
    True
    """

    def __init__(self) -> None:
        self._bits = np.random.Philox(0)
        self._generator, self._state = np.random.Generator(self._bits), self._bits.state

    def __call__(self, seed: int, env: int, episode: int) -> int:
        key, counter = _place(seed, "episode", (env, episode))
        self._state["state"] = {"key": _words(key, 2), "counter": _words(counter, 4)}
        self._bits.state = self._state
        return int(self._generator.integers(2**31))


def _words(number: int, count: int) -> NDArray[np.uint64]:
    """A number as so many words of 64 bits, the lowest first."""
    return np.array([number >> 64 * i & _WORD for i in range(count)], np.uint64)
