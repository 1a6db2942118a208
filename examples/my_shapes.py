"""A trust region of one's own. Try: klip show clip "examples/my_shapes.py:Cauchy(scale=0.3)"."""

from dataclasses import dataclass

from klip.shapes import Parameter, Shape, parameter, where


@dataclass(frozen=True)
class Cauchy(Shape):
    """m = wA / (1 + ((w-1)/scale)^2) where A pushes away from w = 1, wA where it leads back."""

    scale: Parameter = parameter(0.3, above=0)

    def multiplier(self, s):
        gate = 1 / (1 + ((s.w - 1) / self.scale) ** 2)
        return s.w * s.advantage * where((s.w - 1) * s.advantage > 0, gate, 1.0)
