"""Controllers: trust regions with explicit state, which choose a shape for each rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from klip.errors import KlipError
from klip.shapes.backend import Array, clip, maximum, where
from klip.shapes.hard import Clip, ImportanceSampling
from klip.shapes.penalties import KL
from klip.shapes.region import Feedback, Region, State
from klip.shapes.shape import Shape
from klip.shapes.stale import GePPO
from klip.shapes.value import Parameter, numbers, parameter, with_numbers


@dataclass(frozen=True)
class Controller(Region, abstract=True):
    """A shape whose parameters, or whose number of epochs, follow what training does."""

    family = "controller"
    adapts: ClassVar[bool] = True

    shape: Shape = ImportanceSampling()

    def shape_at(self, state: State) -> Shape:
        return self.shape


@dataclass(frozen=True)
class _Coefficient(Controller, abstract=True):
    """A controller of the one parameter `b` of its shape, which starts as the shape has it."""

    knob = ("target",)
    shape: Shape = KL()
    target: Parameter = parameter(0.02, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (count := len(self._paths())) != 1:
            raise KlipError(
                f"{self.name} steers a parameter b, and {self.shape} has {count} of them: "
                "give it a shape with one, such as kl(b=1), kl-k3(b=1) or clip + kl(b=1)"
            )

    def _paths(self) -> list[str]:
        return [path for path in numbers(self.shape) if path.split(".")[-1] == "b"]

    def init(self) -> State:
        (path,) = self._paths()
        return {"b": numbers(self.shape)[path]}

    def shape_at(self, state: State) -> Shape:
        (path,) = self._paths()
        return with_numbers(self.shape, {path: state["b"]})


@dataclass(frozen=True)
class AdaptiveKL(_Coefficient):
    """b <- grow b if d > above target, shrink b if d < below target; d the rollout's KL.

    PPO's own rule by default. RLlib's is `grow=1.5, shrink=0.5, above=2, below=0.5`.

    >>> c = AdaptiveKL()
    >>> [float(c.update(c.init(), Feedback(kl=d))["b"]) for d in (0.1, 0.02, 0.001)]
    [2.0, 1.0, 0.5]
    """

    number = "49"
    reference = "Schulman et al. 2017, arXiv:1707.06347"

    grow: Parameter = parameter(2.0, at_least=1)
    shrink: Parameter = parameter(0.5, above=0)
    above: Parameter = parameter(1.5, at_least=1)
    below: Parameter = parameter(1 / 1.5, above=0)
    smallest: Parameter = parameter(1e-4, at_least=0)
    largest: Parameter = parameter(1e4, above=0)

    def update(self, state: State, feedback: Feedback) -> State:
        b, d = state["b"], feedback.kl
        lowered = where(d < self.below * self.target, self.shrink * b, b)
        b = where(d > self.above * self.target, self.grow * b, lowered)
        return {"b": clip(b, self.smallest, self.largest)}


@dataclass(frozen=True)
class ProportionalKL(_Coefficient):
    """b <- b (1 + clip(d/target - 1, -limit, limit) n/horizon): the controller of RLHF.

    >>> c = ProportionalKL(horizon=1000)
    >>> float(c.update(c.init(), Feedback(kl=0.1, samples=500))["b"])
    1.1
    """

    number = "49"
    reference = "Ziegler et al. 2019, arXiv:1909.08593"

    limit: Parameter = parameter(0.2, above=0)
    horizon: Parameter = parameter(10_000.0, above=0)

    def update(self, state: State, feedback: Feedback) -> State:
        error = clip(feedback.kl / self.target - 1.0, -self.limit, self.limit)
        return {"b": state["b"] * (1 + error * feedback.samples / self.horizon)}


@dataclass(frozen=True)
class DualAscent(_Coefficient):
    """b <- max(b + rate (d - target), 0): gradient ascent on the multiplier of KL <= target.

    >>> c = DualAscent(rate=10.0)
    >>> round(float(c.update(c.init(), Feedback(kl=0.12))["b"]), 6)
    2.0
    """

    number = "49"
    reference = "KLip-PPO, figure of PPO-KL, step 7"

    rate: Parameter = parameter(10.0, above=0)

    def update(self, state: State, feedback: Feedback) -> State:
        return {"b": maximum(state["b"] + self.rate * (feedback.kl - self.target), 0.0)}


@dataclass(frozen=True)
class TargetKL(Controller):
    """Stop a rollout's epochs once their KL exceeds `factor` target; the shape until then.

    The KL is that of the epoch that has just ended: the mean of k3 = w - 1 - log w, which
    Stable-Baselines3 and CleanRL log as `approx_kl`, of k1 = -log w, as in Spinning Up, or the
    closed form. CleanRL's factor is 1.

    >>> stop = TargetKL(target=0.02)
    >>> [stop.stop({}, Feedback(k3=d)) for d in (0.029, 0.031)]
    [False, True]
    """

    knob = ("target",)
    name = "target-kl"
    reference = "early stopping; Spinning Up, Stable-Baselines3, CleanRL"

    shape: Shape = Clip()
    target: Parameter = parameter(0.02, above=0)
    factor: Parameter = parameter(1.5, above=0)
    estimator: str = parameter("k3", choices=("k3", "k1", "closed-form"))

    def stop(self, state: State, feedback: Feedback) -> Array:
        measured = "kl" if self.estimator == "closed-form" else self.estimator
        return getattr(feedback, measured) > self.factor * self.target


@dataclass(frozen=True)
class ESPO(Controller):
    """Stop a rollout's epochs once the mean of |w - 1| exceeds delta; wA until then.

    >>> ESPO().stop({}, Feedback(ratio_deviation=0.3))
    True
    """

    knob = ("delta",)
    number = "17"
    reference = "Sun et al. 2022, arXiv:2202.00079"

    delta: Parameter = parameter(0.25, above=0)

    def stop(self, state: State, feedback: Feedback) -> Array:
        return feedback.ratio_deviation > self.delta


@dataclass(frozen=True)
class TVStepSize(Controller):
    """size <- size/factor if tv > target, size factor if tv < below: the step size of GePPO.

    tv is the rollout's mean of v |w_b - c| / 2 after its epochs: how much of this iteration's
    samples the policy would now draw otherwise. GePPO's target is eps/2 of its band. It never
    raises the size again (`below=0`); an earlier version did so below a quarter of eps. There it
    was the actor's step size alone; a trainer with one optimiser scales the critic's, too.

    >>> c = TVStepSize(factor=2.0)
    >>> state = c.update(c.init(), Feedback(tv=0.06))
    >>> float(c.step_scale(c.init())), float(c.step_scale(state))
    (1.0, 0.5)
    """

    name = "tv-step-size"
    knob = ("target",)
    reference = "GePPO, Queeney et al. 2021, arXiv:2111.00072"

    shape: Shape = GePPO()
    target: Parameter = parameter(0.05, above=0)
    factor: Parameter = parameter(1.03, at_least=1)
    below: Parameter = parameter(0.0, at_least=0)
    smallest: Parameter = parameter(1e-4, above=0)
    largest: Parameter = parameter(10.0, above=0)

    def init(self) -> State:
        return {"step_scale": 1.0}

    def step_scale(self, state: State) -> Array:
        return state["step_scale"]

    def update(self, state: State, feedback: Feedback) -> State:
        scale, tv = state["step_scale"], feedback.tv
        raised = where(tv < self.below, scale * self.factor, scale)
        scale = where(tv > self.target, scale / self.factor, raised)
        return {"step_scale": clip(scale, self.smallest, self.largest)}
