"""A group of one: for kinds of job whose runs share no computation with others."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from klip.engine.job import Job, State, Stopped
from klip.errors import NotFinite


class Trainer(Protocol):
    """One run in training."""

    def iterate(self, stop: Callable[[], bool]) -> dict[str, Any]:
        """Do one iteration, and return its row of metrics.

        Raises `NotFinite` if a number is not finite, `Stopped` if it was asked to stop.
        """

    def arrays(self) -> State:
        """The arrays that the next iteration depends on; it does not change them in place."""

    def restore(self, iteration: int, arrays: State) -> None:
        """Go on from there; raises `KlipError` if that is not possible."""


class Alone:
    """A trainer as a group. An error in an iteration ends the run as it was before that."""

    def __init__(self, job: Job, trainer: Trainer) -> None:
        self.job, self.trainer = job, trainer
        self.iteration, self.status, self.reason, self.traceback = 0, "running", "", ""

    @property
    def runs(self) -> Sequence[Alone]:
        """Itself."""
        return (self,)

    def iterate(self, stop: Callable[[], bool]) -> list[dict[str, Any] | None]:
        """The row of one iteration, or None if it failed; then `status` and `reason` say why."""
        where = f"in iteration {self.iteration + 1} of {self.job.iterations}"
        try:
            row = self.trainer.iterate(stop)
            _check(row)
        except Stopped:
            raise
        except NotFinite as error:
            self.status, self.reason = "diverged", f"{error}, {where}; nothing of it was applied"
            return [None]
        except (Exception, SystemExit) as error:  # a shape is anybody's code, and ours may be wrong
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self.status, self.reason = "failed", f"{text}, {where}"
            self.traceback = traceback.format_exc()
            return [None]
        self.iteration += 1
        if self.iteration == self.job.iterations:
            self.status = "done"
        return [row]

    def state(self, i: int) -> State:
        """The trainer's arrays."""
        return self.trainer.arrays()

    def restore(self, i: int, iteration: int, state: State) -> None:
        """Go on from there."""
        self.trainer.restore(iteration, state)
        self.iteration = iteration

    def keep(self, chosen: Sequence[int]) -> None:
        """Do nothing: there is no other run to drop."""

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""


def _check(row: dict[str, Any]) -> None:
    """Raise `NotFinite` for a row with a number that is not finite, naming it."""
    for name, value in row.items():
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            raise NotFinite(f"the metric {name} is not finite") from None
