"""The partition of a batch into I_in, I_kill and I_pass."""

from __future__ import annotations

from typing import NamedTuple

from klip.shapes import NO_CONTEXT, REFERENCE_BAND, Array, Context, Edges, Shape, ratio

REFERENCE_MARK = "@0.2"
"""What the names of the three sets end with where the reference band divides them: `kill@0.2`."""


class Partition(NamedTuple):
    """Three masks of the samples' shape; exactly one holds for each sample."""

    inside: Array
    """within the band, or of zero advantage: the clip is inactive"""
    kill: Array
    """outside, on the side to which the advantage pushes: PPO-Clip drops the gradient"""
    passing: Array
    """outside on the other side: the gradient leads back and stays"""


def partition(log_ratio: Array, advantage: Array, low: float = 0.2, high: float = 0.2) -> Partition:
    """The samples that PPO-Clip with the band [1 - low, 1 + high] leaves alone, kills and passes.

    The inequalities are strict: the edge itself lies inside, and so does any sample of zero
    advantage.

    >>> import numpy as np
    >>> l = np.log(np.array([1.1, 1.5, 1.5, 0.5, 0.5, 1.5]))
    >>> masks = partition(l, np.array([1.0, 1.0, -1.0, 1.0, -1.0, 0.0]))
    >>> ["in kill pass".split()[i] for i in np.stack(masks).argmax(axis=0)]
    ['in', 'kill', 'pass', 'pass', 'kill', 'in']
    """
    return split(ratio(log_ratio), advantage, 1 - low, 1 + high)


def split(w: Array, advantage: Array, bottom: Array, top: Array) -> Partition:
    """`partition` by ratio and edges; the edges are numbers or arrays like `w`."""
    above, below = w > top, w < bottom
    kill = (above & (advantage > 0)) | (below & (advantage < 0))
    passing = (above & (advantage < 0)) | (below & (advantage > 0))
    return Partition(~(kill | passing), kill, passing)


def edges_of(shape: Shape, context: Context = NO_CONTEXT, like: Array = 0.0) -> Edges:
    """The ratios (1 - low, 1 + high) that divide a shape's samples into the three sets.

    They are `Shape.band(context, like)`, or the reference band for a shape without a band.

    >>> from klip.shapes import Clip, KLk3, SPO
    >>> edges_of(Clip(eps=0.25) + KLk3()), edges_of(SPO())
    ((0.75, 1.25), (0.8, 1.2))
    """
    return shape.band(context, like) or REFERENCE_BAND


def mark_of(shape: Shape) -> str:
    """What the names of a shape's three sets end with: nothing if it has a band of its own.

    >>> from klip.shapes import Clip, SPO
    >>> mark_of(Clip()), mark_of(SPO())
    ('', '@0.2')
    """
    return "" if shape.banded else REFERENCE_MARK
