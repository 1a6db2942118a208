"""A trust region of one's own. Try: klip show clip "examples/my_shapes.py:Cauchy(scale=0.3)"."""

from dataclasses import dataclass

from klip.shapes import Parameter, Shape, parameter, ratio, where


@dataclass(frozen=True)
class Cauchy(Shape):
    """m = wA / (1 + ((w-1)/scale)^2) where A pushes away from w = 1, wA where it leads back."""

    scale: Parameter = parameter(0.3, above=0)

    def multiplier(self, log_ratio, advantage, context):
        w = ratio(log_ratio)
        gate = 1 / (1 + ((w - 1) / self.scale) ** 2)
        return w * advantage * where((w - 1) * advantage > 0, gate, 1.0)
