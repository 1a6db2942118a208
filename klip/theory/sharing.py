"""The ratio that the tokens of a sequence, or the samples of a batch, share in a loss.

A loss that mixes its samples is asked for the pull of one alone. That says what the loss is only
if its pull on many follows from it: by the mean of their log-ratios in GSPO, by the mean of the
clipped ones in GMPO. Each such rule is held against the loss's own gradients here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from klip.theory.reduction import Question
from klip.theory.views import Floats, first_zero

TOKENS = 4
SCALES = (1e-4, 1e-3, 0.02, 0.1, 0.3, 0.7)
"""Log-ratios of these sizes are shared, since bands are as narrow as 3e-4 and as wide as 0.4."""


@dataclass(frozen=True)
class Sharing:
    """A rule by which samples share a ratio."""

    name: str
    """As levels are called in `klip.tokens`, or "" if there is none like it."""
    words: str
    """What is shared, as a part of a sentence."""


SEQUENCE_MEAN = Sharing("sequence-mean", "exp(mean log w), as in GSPO")
SEQUENCE_SUM = Sharing("sequence-sum", "exp(sum log w)")
GEOMETRIC_MEAN = Sharing("geometric-mean", "exp(mean of the clipped log w), as in GMPO")
MEAN_RATIO = Sharing("", "the mean of w")
MEAN_PROBABILITY = Sharing("", "the ratio of mean probabilities")
UNKNOWN = Sharing("", "something that is neither a mean nor a product of w")


def sharing_of(question: Question, tolerance: float) -> Sharing:
    """The rule by which samples share a ratio, given that they share something."""
    x, a, old = _rows()
    m = question.together(x, a, old)
    idle = question.pull(x, 0 * a)

    def alone(log_ratio: Floats) -> Floats:
        """The pull of one sample, without what pulls at A = 0."""
        whole = question.pull(log_ratio, a[:, :1]) - question.pull(log_ratio, 0 * a[:, :1])
        return np.asarray(whole)

    enough = 0.9 if question.box.half else 1.0  # an edge is blurred in half precision
    for sharing, shared, share in _rules(x, _clipped(question, x, a), old):
        surrogate = alone(shared) * share
        for penalty in (idle, question.pull(shared, 0 * shared), _weighted(question, x, shared)):
            off = np.abs(m - surrogate - penalty) <= tolerance * np.maximum(1.0, np.abs(m))
            if np.mean(off) >= enough:
                return sharing
    return UNKNOWN


def _rows() -> tuple[Floats, Floats, Floats]:
    """Log-ratios, advantages (one for a row) and old log-probabilities, each `[R, T]`."""
    wave = np.sin(1.0 + 1.7 * np.arange(8.0 * TOKENS)).reshape(8, TOKENS)
    x = np.concatenate([scale * wave for scale in SCALES])
    a = np.tile([[1.0], [-1.0], [0.5], [-1.6]], (len(x) // 4, TOKENS))
    old = np.tile([[-1.5, -3.0, -1.0, -2.2]], (len(x), 1))
    return x, a, np.minimum(old, -x - 0.1)


def _weighted(question: Question, x: Floats, shared: Floats) -> Floats:
    """The pull of b exp(shared) k3 of each token, as TRL has it; on one token it is -b w log w."""
    half = np.array([0.5])
    b = -question.pull(half, 0 * half) / (half * np.exp(half))
    k3 = np.exp(-x) - 1 + x
    return np.asarray(-b * np.exp(shared) * (k3.mean(1, keepdims=True) + 1 - np.exp(-x)))


def _clipped(question: Question, x: Floats, a: Floats) -> Floats:
    """The log-ratios, held where a sample alone is first killed on the side of its advantage."""
    out = x.copy()
    for sign in (1.0, -1.0):

        def outward(distance: Floats, sign: float = sign) -> Floats:
            here = np.full_like(distance, sign)
            return np.asarray(sign * question.pull(sign * distance, here))

        edge = first_zero(outward, 4.0)
        if edge is not None:
            out = np.where((a * sign > 0) & (x * sign > edge), sign * edge, out)
    return out


def _rules(x: Floats, clipped: Floats, old: Floats) -> Iterator[tuple[Sharing, Floats, Floats]]:
    """Each rule with the log-ratio `[R, 1]` that is shared, and the factor of each token's pull."""
    one = np.ones_like(x)
    yield SEQUENCE_MEAN, x.mean(1, keepdims=True), one
    yield SEQUENCE_SUM, x.sum(1, keepdims=True), one
    yield GEOMETRIC_MEAN, clipped.mean(1, keepdims=True), (clipped == x).astype(np.float64)
    for sharing, level in ((MEAN_RATIO, 0 * old), (MEAN_PROBABILITY, old)):
        new = np.exp(level + x)
        total = new.mean(1, keepdims=True)
        shared = np.log(total / np.exp(level).mean(1, keepdims=True))
        yield sharing, shared, new / total
        yield sharing, shared, one  # the ratio is detached, and the gradient that of log pi
