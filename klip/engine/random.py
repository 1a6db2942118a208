"""Random numbers as a pure function of (seed, purpose, index).

Philox is a counter-based generator: the key says whose numbers these are, the counter which. So
there is no state to store or to drift, and no run can disturb another's.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """The generator for one purpose of one run, at one place.

    Args:
        seed: of the run
        purpose: what the numbers are for, such as "act"
        index: which of many: the iteration, the episode, ...

    >>> bool(stream(0, "noise", 3).integers(100) == stream(0, "noise", 3).integers(100))
    True

    """
    key = (seed & 0xFFFFFFFFFFFFFFFF) << 64 | zlib.crc32(purpose.encode())
    counter = 0
    for place in index:
        counter = counter << 48 | place
    # The low 64 bits of the counter run within a stream; the index sits above them.
    return np.random.Generator(np.random.Philox(key=key, counter=counter << 64))


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed with which a run's environment `env` is reset for its `episode`-th episode."""
    return int(stream(seed, "episode", env, episode).integers(2**31))
