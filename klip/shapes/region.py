"""What a trainer holds: a trust region that gives a shape for each rollout.

    state = region.init()
    shape = region.shape_at(state)                      # before a rollout's epochs
    size = lr * region.step_scale(state)                # the step size of these epochs
    region.stop(state, feedback)                        # after each epoch: stop here?
    state = region.update(state, feedback)              # after all epochs

State is a dict of numbers, so it fits a checkpoint; all are pure and may be traced. A shape is
a region whose state is empty, and which leaves the step size alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from klip.errors import KlipError
from klip.shapes.backend import Array
from klip.shapes.context import Facts, fact
from klip.shapes.value import Value

if TYPE_CHECKING:
    from klip.shapes.shape import Shape

State = Mapping[str, Array]


class MissingFeedback(KlipError):
    """A controller reads what its trainer cannot give."""


@dataclass(frozen=True, repr=False, eq=False)
class Feedback(Facts):
    """What training did to the policy, as means over samples.

    `stop` is told of the epoch that has just ended, each sample as it was when it was trained on.
    `update` is told of the whole rollout under the policy after its last epoch. The names are those
    of the metrics (`klip.theory.diagnostics`).

    >>> Feedback(kl=0.1).kl
    0.1
    >>> Feedback(kl=0.1).entropy
    Traceback (most recent call last):
    klip.shapes.region.MissingFeedback: the feedback has no entropy (entropy of the policy): this trainer cannot give it
    """

    kl: Array = fact("closed-form KL(old || new) of a sample's state")
    k1: Array = fact("-log w")
    k3: Array = fact("w - 1 - log w, an estimate of KL(old || new)")
    entropy: Array = fact("entropy of the policy")
    ratio_mean: Array = fact("w")
    ratio_std: Array = fact("standard deviation of w")
    ratio_min: Array = fact("smallest w")
    ratio_max: Array = fact("largest w")
    ratio_deviation: Array = fact("|w - 1|")
    tv: Array = fact("v |w_b - c| / 2: w_b = new / sampler, c = start / sampler, v weights by age")
    inside: Array = fact("fraction of samples within the shape's band")
    kill: Array = fact("fraction outside the band where the advantage pushes")
    kill_positive: Array = fact("fraction above the band of positive advantage")
    kill_negative: Array = fact("fraction below the band of negative advantage")
    passing: Array = fact("fraction outside the band on the other side")
    killed_mass: Array = fact("share of |wA| of the killed samples")
    kept: Array = fact("fraction of samples with m = wA")
    weakened: Array = fact("fraction with m smaller than wA")
    zeroed: Array = fact("fraction with m = 0")
    reversed: Array = fact("fraction with m A < 0")
    strengthened: Array = fact("fraction with m larger than wA")
    zeroed_mass: Array = fact("share of |wA| of the zeroed samples")
    samples: Array = fact("how many samples the rollout has")
    epoch: Array = fact("how many epochs of this rollout have been run")
    progress: Array = fact("how much of training is over before this rollout, from 0 to 1")

    def missing(self, name: str, meaning: str) -> KlipError:
        way_out = "this trainer cannot give it"
        if name in _OF_BAND:
            way_out = "its shape has no band of its own; read kept, weakened, zeroed or reversed"
        return MissingFeedback(f"the feedback has no {name} ({meaning}): {way_out}")

    @staticmethod
    def of(metrics: Mapping[str, Array], **more: Array) -> Feedback:
        """The feedback that metrics hold, by their names, and `more`."""
        named = {"passing" if name == "pass" else name: x for name, x in metrics.items()}
        return Feedback(**{name: x for name, x in named.items() if name in FEEDBACK_FIELDS} | more)


FEEDBACK_FIELDS: dict[str, str] = {f.name: f.metadata["meaning"] for f in fields(Feedback)}
"""Each field of the feedback and what it means."""

_OF_BAND = ("inside", "kill", "kill_positive", "kill_negative", "passing", "killed_mass")


@dataclass(frozen=True)
class Region(Value, abstract=True):
    """A trust region: a shape, or a controller that chooses one for each rollout."""

    adapts: ClassVar[bool] = False
    """whether the shape, or the number of epochs, follows what training does"""
    knob: ClassVar[tuple[str, ...] | None] = None
    """the parameters that set its radius and are tuned as one, by a common factor; () where it has
    none to tune, None where nobody has said"""

    def init(self) -> State:
        """The state before the first rollout."""
        return {}

    def shape_at(self, state: State) -> Shape:
        """The shape for a rollout in this state."""
        raise NotImplementedError

    def step_scale(self, state: State) -> Array:
        """The factor on the step size of a rollout's epochs in this state."""
        return 1.0

    def stop(self, state: State, feedback: Feedback) -> Array:
        """Whether this rollout's epochs end here."""
        return False

    def update(self, state: State, feedback: Feedback) -> State:
        """The state for the next rollout."""
        return state

    @property
    def initial(self) -> Shape:
        """The shape of the first rollout; of a shape, the shape itself.

        >>> from klip.shapes import AdaptiveKL, Clip
        >>> str(AdaptiveKL().initial), str(Clip().initial)
        ('kl(b=1.0)', 'clip(eps=0.2)')
        """
        return self.shape_at(self.init())

    def _repr_html_(self) -> str:
        """What a notebook shows: the spelling, the formula and a picture."""
        # asked for by name: this room imports no other
        text: str = importlib.import_module("klip.draw.notebook").notebook(self)
        return text
