"""A shape as a state meets it: the pull on each action, with what the shape asks about it.

The closed-form KL of a state with weight b has the gradient of the sampled k3: m + b (1 - w). So a
shape's second channel is folded into m, which is exact in the tabular case.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from klip.errors import KlipError
from klip.shapes import Shape
from klip.theory.views import Floats, Pull, raised_by, reference_context

REACH: Final = 18.0
"""Ratios from e^-18 to e^18: beyond e^20 the library lets them saturate."""
SIZES: Final = (0.01, 0.1, 0.3, 1.0, 2.0, 3.0, 10.0)
ADVANTAGES: Final = tuple(sorted([0.0, *SIZES, *(-a for a in SIZES)]))
PROBABILITIES: Final = (0.01, 0.05, 0.2, 0.5, 0.9)
CONTEXTS: Final[Mapping[str, tuple[float, ...]]] = {
    "old_log_prob": tuple(np.log(PROBABILITIES)),
    "kl": (0.0, 0.02, 0.05, 1.0),
    "entropy": (0.1, 1.0, 3.0),
    "age": (0.0, 1.0, 4.0, 16.0),
    "position": (0.0, 50.0, 100.0),
    "behaviour_log_ratio": (-0.5, 0.0, 0.5),
    "effective_size": (0.3, 1.0),
    "deviation": (0.0, 0.5),
    "second_moment": (0.0, 0.1),
    "progress": (0.0, 0.5, 1.0),
    "step": (0.0, 1e5, 1e6),
    "reward": (-1.0, 1.0),
}
"""The context at which a shape is looked at, one field at a time, the others typical."""


@dataclass(frozen=True)
class Law:
    """A shape with its context frozen at `context`; the rest of it is typical."""

    shape: Shape
    context: Mapping[str, float] = field(default_factory=dict)

    def pull(self, log_w: Floats, advantage: Floats) -> Floats:
        """M of samples at this context, with the state's KL folded in."""
        return self.of_actions(log_w, advantage)

    def of_actions(self, log_w: Floats, advantage: Floats, old: Floats | None = None) -> Floats:
        """M of a state's actions, `[..., actions]` if `old`, their old probabilities, are given.

        A shape that asks for them gets the true old probability and the true KL of the state.
        """
        log_w, advantage = np.broadcast_arrays(
            np.asarray(log_w, dtype=np.float64), np.asarray(advantage, dtype=np.float64)
        )
        known: dict[str, Any] = dict(self.context)
        if old is not None and "old_log_prob" in self.shape.needs:
            known["old_log_prob"] = np.broadcast_to(np.log(old), log_w.shape)
        if old is not None and "kl" in self.shape.needs:
            kl = -(old * log_w).sum(axis=-1, keepdims=True)
            known["kl"] = np.broadcast_to(np.maximum(kl, 0.0), log_w.shape)
        context = reference_context(self.shape, log_w, advantage, known)
        m = np.asarray(self.shape.multiplier(log_w, advantage, context), dtype=np.float64)
        weight = self.shape.kl_weight(log_w, advantage, context) if self.weighs else None
        if weight is not None:
            if old is not None:
                weight = (old * weight).sum(axis=-1, keepdims=True)
            m = m + weight * -np.expm1(np.clip(log_w, -20, 20))
        return np.broadcast_to(m, log_w.shape)

    @functools.cached_property
    def weighs(self) -> bool:
        """Whether the shape has the second channel."""
        with np.errstate(all="ignore"):
            return self.shape.weighs_kl(np.ones(1))

    @property
    def top(self) -> float:
        """The largest log-ratio that an action of this old probability can have."""
        log_prob = self.context.get("old_log_prob", -REACH)
        return min(REACH, -float(log_prob))

    @property
    def probability(self) -> float | None:
        """The old probability at which the context is frozen, if it is."""
        log_prob = self.context.get("old_log_prob")
        return None if log_prob is None else float(np.exp(log_prob))


def laws(shape: Shape) -> list[Law]:
    """The shape at each context that it may meet; one law if it looks at ratio and advantage alone.

    >>> from klip.shapes import Clip, TRPPO
    >>> len(laws(Clip())), [law.context for law in laws(TRPPO())][:2]
    (1, [{'kl': 0.0}, {'kl': 0.02}])
    """
    frozen = [
        Law(shape, {name: float(value)})
        for name in sorted(shape.needs)
        for value in CONTEXTS.get(name, ())
    ]
    return frozen or [Law(shape)]


def follows_the_state(shape: Shape) -> bool:
    """Whether the shape's weight of the state's KL differs from sample to sample."""
    law = Law(shape)
    if not law.weighs:
        return False
    x, a = (v.ravel() for v in np.meshgrid(np.linspace(-1, 1, 9), [-1.0, 1.0]))
    weight = shape.kl_weight(x, a, reference_context(shape, x, a))
    return bool(np.ptp(np.asarray(weight)) > 0)


def grid(law: Law) -> Floats:
    """Log-ratios from e^-18 to e^18, dense about 1."""
    x = np.concatenate(
        [np.linspace(-REACH, -5, 651), np.linspace(-5, 5, 4001), np.linspace(5, REACH, 651)]
    )
    return np.unique(np.append(x[x <= law.top], law.top))


def check(law: Law) -> None:
    """Raise a line that names the shape and the place, if m is no finite number somewhere."""
    x, a = np.meshgrid(np.linspace(-REACH, law.top, 73), ADVANTAGES)
    with raised_by(law.shape), np.errstate(all="ignore"):
        m = law.pull(x, a)
    bad = ~np.isfinite(m)
    if bad.any():
        w, advantage, value = np.exp(x[bad][0]), a[bad][0], m[bad][0]
        raise KlipError(
            f"{law.shape} gives m = {value} at w = {w:.4g}, A = {advantage:g}; "
            "a guarantee needs a finite m at every ratio: mend its formula"
        )


def each(shape: Shape) -> Iterator[Law]:
    """The laws of a shape, each checked."""
    for law in laws(shape):
        check(law)
        yield law


def line(pull: Pull) -> tuple[float, float, float]:
    """(a, c, worst residual) of the line a A + c nearest to m(1, A).

    >>> from klip.shapes import KLk1
    >>> line(Law(KLk1(b=0.5)).pull)[:2]
    (1.0, 0.5)
    """
    a = np.asarray(ADVANTAGES)
    m = pull(np.zeros_like(a), a)
    centred = a - a.mean()
    slope = float((centred * m).sum() / (centred**2).sum())
    offset = float((m - slope * a).mean())
    # two points decide where the line is one: a fit would blur the last digits
    through = (float((m[-1] - m[0]) / (a[-1] - a[0])), float(m[len(m) // 2]))
    if np.abs(m - through[0] * a - through[1]).max() <= 1e-9 * (1 + np.abs(m).max()):
        slope, offset = (float(f"{x:.12g}") + 0.0 for x in through)
    return slope, offset, float(np.abs(m - slope * a - offset).max() / (1 + np.abs(m).max()))
