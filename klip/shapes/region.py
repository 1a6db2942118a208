"""What a trainer holds: a trust region that gives a shape for each rollout.

    state = region.init()
    shape = region.shape_at(state)                      # before a rollout's epochs
    region.stop(state, feedback)                        # after each epoch: stop here?
    state = region.update(state, feedback)              # after all epochs

State is a dict of numbers, so it fits a checkpoint; all four are pure and may be traced. A shape
is a region whose state is empty.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from klip.shapes.backend import Array
from klip.shapes.value import Value

if TYPE_CHECKING:
    from klip.shapes.shape import Shape

State = Mapping[str, Array]


@dataclass(frozen=True)
class Feedback:
    """What the epochs of one rollout did to the policy, as means over its samples."""

    kl: Array = 0.0
    """closed-form KL(old || new)"""
    ratio_deviation: Array = 0.0
    """|w - 1|"""
    samples: Array = 0
    """how many samples the rollout had"""


@dataclass(frozen=True)
class Region(Value, abstract=True):
    """A trust region: a shape, or a controller that chooses one for each rollout."""

    adapts: ClassVar[bool] = False
    """whether the shape, or the number of epochs, follows what training does"""

    def init(self) -> State:
        """The state before the first rollout."""
        return {}

    def shape_at(self, state: State) -> Shape:
        """The shape for a rollout in this state."""
        raise NotImplementedError

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
