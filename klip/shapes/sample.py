"""A batch of samples as a formula sees it: `s.w * s.advantage`."""

from __future__ import annotations

import functools
from typing import Any

from klip.shapes.backend import Array, ratio
from klip.shapes.context import CONTEXT_FIELDS, NO_CONTEXT, Context


class Sample:
    """What a shape may know: `s.w`, `s.log_w`, `s.advantage`, and each field of the context.

    All are arrays of one shape `[N]` or `[B, T]` (or broadcast to it), one number per sample.

    >>> s = Sample(0.0, 2.0, Context(age=3.0))
    >>> float(s.w), s.advantage, s.age
    (1.0, 2.0, 3.0)
    """

    def __init__(self, log_w: Array, advantage: Array, context: Context = NO_CONTEXT) -> None:
        self.log_w, self.advantage, self.context = log_w, advantage, context

    @functools.cached_property
    def w(self) -> Array:
        """The ratio of the new to the old probability, limited to e^±20."""
        return ratio(self.log_w)

    def at(self, log_w: Array) -> Sample:
        """The same samples at another log-ratio, as differentiation needs them."""
        return Sample(log_w, self.advantage, self.context)

    def __getattr__(self, name: str) -> Any:
        if name in CONTEXT_FIELDS:
            return getattr(self.context, name)
        raise AttributeError(
            f"a sample has no '{name}'; it has w, log_w, advantage, {', '.join(CONTEXT_FIELDS)}"
        )
