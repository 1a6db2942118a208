"""The trust region itself: one number per sample.

A shape's gradient is E[m * grad log pi], with m = w*A + beta. A class defines any one of three
methods, and the others follow:

    multiplier   m
    beta         the coefficient; m = w*A + beta
    objective    the published J(w, A); m = dJ / d log w, by automatic differentiation
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from klip.errors import KlipError
from klip.shapes.backend import Array, derivative, value_and_derivative, where
from klip.shapes.context import NO_CONTEXT, Context
from klip.shapes.region import Region, State
from klip.shapes.sample import Sample
from klip.shapes.value import Parameter, ParameterError, Value, entry, parameter

Edges = tuple[Array, Array]
"""The least and the largest ratio of a band."""

REFERENCE_BAND: Edges = (0.8, 1.2)
"""The edges that divide samples into sets where a shape has no band of its own."""


@dataclass(frozen=True)
class Shape(Region, abstract=True):
    """A trust region: how hard each sample pulls on its own log-probability.

    A class defines its methods with one argument, a sample `s`. Callers pass
    `(log_ratio, advantage, context)`, arrays of NumPy, JAX or PyTorch, of one shape `[N]` or
    `[B, T]` (or broadcast to it), or the sample itself.
    """

    elementwise: ClassVar[tuple[str, ...]] = (
        "multiplier",
        "beta",
        "objective",
        "kl_weight",
        "evaluate",
    )
    definitions: ClassVar[frozenset[str]] = frozenset()
    """which of multiplier, beta and objective the class defines"""

    def __init_subclass__(cls, **header: Any) -> None:
        """Note which of the three methods the class defines."""
        super().__init_subclass__(**header)
        own = {m for m in ("multiplier", "beta", "objective") if m in cls.__dict__}
        cls.definitions = cls.definitions | own
        if not cls.abstract and not cls.definitions:
            raise KlipError(
                f"{cls.__name__} says nothing: define multiplier(self, s), or beta(self, s), or "
                "objective(self, s)"
            )

    @entry
    def multiplier(self, s: Sample) -> Array:
        """m: d objective / d log pi of each sample."""
        if "beta" in self.definitions:
            return s.w * s.advantage + self.beta(s)
        return derivative(lambda x: self.objective(s.at(x)), s.log_w)

    @entry
    def beta(self, s: Sample) -> Array:
        """The coefficient beta = m - w*A."""
        return self.multiplier(s) - s.w * s.advantage

    @entry
    def objective(self, s: Sample) -> Array:
        """The published objective J of each sample, up to a constant; to be maximised."""
        raise KlipError(
            f"{self.name} has no published objective; klip.theory.objective_value integrates one"
        )

    @entry
    def kl_weight(self, s: Sample) -> Array | None:
        """The second channel: the weight of each state's closed-form KL(old || new), or None.

        The objective is then E[J - kl_weight * KL(state)], with the weight detached.
        """
        return None

    @entry
    def evaluate(self, s: Sample) -> tuple[Array, Array | None]:
        """(m, J) in one pass; J is None if no objective is published.

        >>> from klip.shapes import Clip, Ramp
        >>> [tuple(map(float, Clip(eps=0.25).evaluate(0.5, 1.0))), Ramp().evaluate(0.0, 1.0)]
        [(0.0, 1.25), (1.0, None)]
        """
        if not self.published:
            return self.multiplier(s), None
        if self.definitions & {"multiplier", "beta"}:
            return self.multiplier(s), self.objective(s)
        value, m = value_and_derivative(lambda x: self.objective(s.at(x)), s.log_w)
        return m, value

    @entry
    def effective_advantage(self, s: Sample) -> Array:
        """m / w = A + beta/w: the advantage that the unconstrained surrogate would need."""
        return self.multiplier(s) / s.w

    @property
    def published(self) -> bool:
        """Whether the shape has an objective, its own or that of its parts."""
        return "objective" in self.definitions

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        """The ratios (1 - low, 1 + high) between which samples are left alone; None without a band.

        If thresholds make the edges arrays, these have the dtype of `like`.

        >>> from klip.shapes import KLk3, Clip, SPO
        >>> (Clip(eps=0.25) + KLk3()).band(), SPO().band()
        ((0.75, 1.25), None)
        """
        return None

    @property
    def banded(self) -> bool:
        """Whether the shape has a band of its own.

        >>> from klip.shapes import AgeConditioned, SPO
        >>> AgeConditioned().banded, SPO().banded
        (True, False)
        """
        return self.band(Context(**dict.fromkeys(self.needs, 1.0))) is not None

    def shape_at(self, state: State) -> Shape:
        return self

    def weighs_kl(self, like: Array) -> bool:
        """Whether the shape has a `kl_weight`, asked with samples such as `like`.

        >>> import numpy as np
        >>> from klip.shapes import KL, Clip
        >>> KL().weighs_kl(np.ones(1)), Clip().weighs_kl(np.ones(1))
        (True, False)
        """
        known = Context(**{name: like for name in self.needs})
        return self.kl_weight(like, like, known) is not None

    def __add__(self, other: Shape) -> Shape:
        """`shape + penalty`: their betas add."""
        from klip.shapes.algebra import Sum

        if not isinstance(other, Shape):
            return NotImplemented
        if not isinstance(other, Penalty) and isinstance(self, Penalty):
            self, other = other, self
        if not isinstance(other, Penalty):
            raise KlipError(
                f"{self.name} + {other.name} would count w*A twice: only a penalty can be added "
                "(kl-k1, kl-k2, kl-k3, kl, kl-reverse, chi2, ...)"
            )
        return Sum(self, other)


@dataclass(frozen=True)
class Penalty(Shape, abstract=True):
    """The unconstrained surrogate w*A minus a cost: it can be added to a shape."""

    @entry
    def cost(self, s: Sample) -> Array:
        """J - w*A: what it adds to another shape's objective; 0 if no objective is published."""
        if not self.published:
            return 0.0 * s.log_w
        return self.objective(s) - s.w * s.advantage


@dataclass(frozen=True)
class Band(Shape, abstract=True):
    """A shape with a band [1 - low, 1 + high] around w = 1.

    `eps` sets both sides. If the two are equal the value keeps `eps` alone, so that
    `Clip(eps=0.2) == Clip(low=0.2, high=0.2)`.
    """

    knob = ("eps", "low", "high")
    eps: Parameter = parameter(None, above=0)
    low: Parameter = parameter(None, above=0)
    high: Parameter = parameter(None, above=0)
    default_band: ClassVar[tuple[float, float]] = (0.2, 0.2)
    """low and high unless they are given"""

    def __post_init__(self) -> None:
        if None not in (self.eps, self.low, self.high):
            raise ParameterError(
                f"{self.name}: eps={self.eps} sets both sides, so low={self.low} and "
                f"high={self.high} contradict it; give eps, or low and high"
            )
        sides = [
            given if given is not None else self.eps if self.eps is not None else default
            for given, default in zip((self.low, self.high), self.default_band, strict=True)
        ]
        low, high = sides
        same = low is high or (isinstance(low, (int, float, Value)) and low == high)
        eps, low, high = (low, None, None) if same else (None, low, high)
        for key, value in (("eps", eps), ("low", low), ("high", high)):
            object.__setattr__(self, key, value)
        super().__post_init__()

    @property
    def edges(self) -> Edges:
        """The ratios 1 - low and 1 + high."""
        low = self.eps if self.low is None else self.low
        high = self.eps if self.high is None else self.high
        return 1 - low, 1 + high

    def band(self, context: Context = NO_CONTEXT, like: Array = 0.0) -> tuple[Array, Array] | None:
        return self.at(context, like).edges

    def killed(self, s: Sample) -> Array:
        """I_kill: outside the band, edges excluded, on the side to which the advantage pushes."""
        bottom, top = self.edges
        return ((s.w > top) & (s.advantage > 0)) | ((s.w < bottom) & (s.advantage < 0))

    def overshoot(self, s: Sample) -> Array:
        """How far w lies beyond the edge on the side to which A pushes; negative inside."""
        bottom, top = self.edges
        return where(s.advantage > 0, s.w - top, bottom - s.w)
