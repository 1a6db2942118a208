"""The partition of a batch into I_in, I_kill and I_pass."""

from __future__ import annotations

from typing import NamedTuple

from klip.shapes import Array, Band, Shape, ratio


class Partition(NamedTuple):
    """Three masks of the samples' shape; exactly one holds for each sample."""

    inside: Array
    """within the band, or of zero advantage: the clip is inactive"""
    kill: Array
    """outside, on the side that the advantage pushes to: PPO-Clip drops the gradient"""
    passing: Array
    """outside on the other side: the gradient leads back and stays"""


def partition(log_ratio: Array, advantage: Array, low: float = 0.2, high: float = 0.2) -> Partition:
    """Which samples PPO-Clip with the band [1 - low, 1 + high] leaves alone, kills and passes.

    The inequalities are strict: the edge itself lies inside. A zero advantage lies inside
    whatever its ratio.

    >>> import numpy as np
    >>> l = np.log(np.array([1.1, 1.5, 1.5, 0.5, 0.5, 1.5]))
    >>> masks = partition(l, np.array([1.0, 1.0, -1.0, 1.0, -1.0, 0.0]))
    >>> ["in kill pass".split()[i] for i in np.stack(masks).argmax(axis=0)]
    ['in', 'kill', 'pass', 'pass', 'kill', 'in']
    """
    w = ratio(log_ratio)
    above, below = w > 1 + high, w < 1 - low
    kill = (above & (advantage > 0)) | (below & (advantage < 0))
    passing = (above & (advantage < 0)) | (below & (advantage > 0))
    return Partition(~(kill | passing), kill, passing)


def band_of(shape: Shape, default: float = 0.2) -> tuple[Array, Array]:
    """The (low, high) by which a shape's samples are told apart: its own band, if it has one."""
    if not isinstance(shape, Band):
        return default, default
    bottom, top = shape.edges
    return 1 - bottom, top - 1
