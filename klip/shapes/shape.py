"""The trust region itself: one number per sample.

A shape's gradient is E[m * grad log pi], with m = w*A + beta. A class says what its shape is by
any one of three methods, and the others follow:

    multiplier   m
    beta         the coefficient; m = w*A + beta
    objective    the published J(w, A); m = dJ / d log w, by automatic differentiation
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from klip.errors import KlipError
from klip.shapes.backend import Array, derivative, ratio
from klip.shapes.context import NO_CONTEXT, Context
from klip.shapes.value import Parameter, ParameterError, Value, parameter


@dataclass(frozen=True)
class Shape(Value, abstract=True):
    """A trust region: how hard each sample pulls on its own log-probability.

    Arrays are of NumPy, JAX or PyTorch, of one shape `[N]` or `[B, T]` (or broadcast to it).
    """

    elementwise: ClassVar[tuple[str, ...]] = ("multiplier", "beta", "objective", "kl_weight")
    definitions: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **about: Any) -> None:
        """Note which of the three definitions the class gives."""
        super().__init_subclass__(**about)
        given = {m for m in ("multiplier", "beta", "objective") if m in cls.__dict__}
        cls.definitions = cls.definitions | given
        if not cls.abstract and not cls.definitions:
            raise KlipError(
                f"{cls.__name__} says nothing: define multiplier(self, log_ratio, advantage, "
                "context), or beta, or objective, with the same arguments"
            )

    def multiplier(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        """m: d objective / d log pi of each sample."""
        if "beta" in self.definitions:
            return ratio(log_ratio) * advantage + self.beta(log_ratio, advantage, context)
        return derivative(lambda x: self.objective(x, advantage, context), log_ratio)

    def beta(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        """The coefficient beta = m - w*A."""
        m = self.multiplier(log_ratio, advantage, context)
        return m - ratio(log_ratio) * advantage

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        """The published objective J of each sample, up to a constant; to be maximised."""
        raise KlipError(
            f"{self.name} has no published objective; klip.theory.objective_value integrates one"
        )

    def kl_weight(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array | None:
        """The second channel: what each state's closed-form KL(old || new) is multiplied by.

        The objective is then E[J - kl_weight * KL(state)], the weight detached. None: no such term.
        """
        return None

    def weighs_kl(self, like: Array) -> bool:
        """Whether it has the second channel; asked of samples such as `like`, of any framework.

        >>> import numpy as np
        >>> from klip.shapes import KL, Clip
        >>> KL().weighs_kl(np.ones(1)), Clip().weighs_kl(np.ones(1))
        (True, False)
        """
        known = Context(**{name: like for name in self.needs})
        return self.kl_weight(like, like, known) is not None

    def effective_advantage(
        self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT
    ) -> Array:
        """M / w = A + beta/w: the advantage that the unconstrained surrogate would need."""
        return self.multiplier(log_ratio, advantage, context) / ratio(log_ratio)

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
    """The unconstrained surrogate w*A with something taken off: it can be added to a shape."""


@dataclass(frozen=True)
class Band(Shape, abstract=True):
    """A shape with a band [1 - low, 1 + high] around w = 1.

    `eps` sets both sides. Where the two are equal the value keeps `eps` alone, so that
    `Clip(eps=0.2) == Clip(low=0.2, high=0.2)`.
    """

    eps: Parameter = parameter(None, above=0)
    low: Parameter = parameter(None, above=0)
    high: Parameter = parameter(None, above=0)
    default_band: ClassVar[tuple[float, float]] = (0.2, 0.2)

    def __init_subclass__(cls, *, band: tuple[float, float] | None = None, **about: Any) -> None:
        """`band` is the default (low, high)."""
        super().__init_subclass__(**about)
        cls.default_band = band or cls.default_band

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
    def edges(self) -> tuple[Array, Array]:
        """The ratios 1 - low and 1 + high."""
        low = self.eps if self.low is None else self.low
        high = self.eps if self.high is None else self.high
        return 1 - low, 1 + high

    def killed(self, w: Array, advantage: Array) -> Array:
        """I_kill: outside the band on the side that the advantage pushes to; strict."""
        bottom, top = self.edges
        return ((w > top) & (advantage > 0)) | ((w < bottom) & (advantage < 0))
