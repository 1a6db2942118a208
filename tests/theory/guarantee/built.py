"""Shapes that are built to fail by a known amount, or to pass narrowly."""

from dataclasses import dataclass

from klip.shapes import Shape, absolute, where
from klip.shapes.value import Parameter, parameter


@dataclass(frozen=True)
class Bump(Shape):
    """m = wA, and w at + height/width on the half of [at, at + 2 width] where J climbs.

    J climbs by `height` before it comes down again, so its tangent is broken by `height` at one w.
    """

    height: Parameter = parameter(1e-3)
    place: Parameter = parameter(1.5)
    width: Parameter = parameter(0.02)

    def multiplier(self, s):
        up = (s.w > self.place) & (s.w <= self.place + self.width)
        down = (s.w > self.place + self.width) & (s.w <= self.place + 2 * self.width)
        slope = self.height / self.width
        extra = where(up, slope, 0.0, like=s.w) - where(down, slope, 0.0, like=s.w)
        return s.w * s.advantage + where(s.advantage > 0, s.w * extra, 0.0)


@dataclass(frozen=True)
class Crooked(Shape):
    """m = w (A + bend |A|): a gauge that depends on A, so that no line goes through the anchor."""

    bend: Parameter = parameter(0.1)

    def multiplier(self, s):
        return s.w * (s.advantage + self.bend * absolute(s.advantage))


@dataclass(frozen=True)
class LateReversal(Shape):
    """m = wA up to w = at, -0.1 wA beyond, for A > 0."""

    place: Parameter = parameter(50.0)

    def multiplier(self, s):
        beyond = (s.w > self.place) & (s.advantage > 0)
        return where(beyond, -0.1, 1.0, like=s.w) * s.w * s.advantage


@dataclass(frozen=True)
class Narrow(Shape):
    """J = wA - tiny (w-1)^2 |A|: below its tangent by very little."""

    tiny: Parameter = parameter(1e-6)

    def multiplier(self, s):
        return s.w * (s.advantage - 2 * self.tiny * (s.w - 1) * absolute(s.advantage))


@dataclass(frozen=True)
class Broken(Shape):
    """m is no number above w = 2."""

    def multiplier(self, s):
        return where(s.w > 2, float("nan"), s.w * s.advantage)


@dataclass(frozen=True)
class Raising(Shape):
    """m raises."""

    def multiplier(self, s):
        return s.w * s.advantage / len(())


@dataclass(frozen=True)
class Rough(Shape):
    """An objective that cannot be differentiated."""

    def objective(self, s):
        return float(s.w) * s.advantage
