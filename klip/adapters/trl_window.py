"""What TRL's losses have shown since the last entry of its log, over all processes.

`Windows` pools what was seen; `AnswerFinder` finds the answers of completions, and warns if there
are too few. The trainer with a shape and the watcher of a stock trainer share both.
"""

from __future__ import annotations

import warnings
from typing import Any

from klip.adapters.common import logged, reader, shown_metrics
from klip.adapters.trl_batch import ANSWER, generated, mark
from klip.errors import KlipError
from klip.theory.ranked import LIMIT
from klip.tokens import Pool, pooled

try:
    from accelerate.utils import gather_object  # type: ignore[import-not-found]
except ModuleNotFoundError:
    raise KlipError("klip.adapters.trl needs TRL: pip install 'klip-rl[trl]'") from None

ENOUGH, FEW = 32, 1 / 3
"""After so many completions, a smaller share of them with an answer is worth a warning."""


def mode_of(trainer: Any) -> str:
    """Where TRL collects its metrics now: train or eval."""
    return "train" if trainer.model.training else "eval"


class Windows(dict[str, Pool]):
    """By TRL's mode, what all processes have seen since the last entry of the log."""

    def __init__(self, metrics: str) -> None:
        super().__init__()
        self.shown = shown_metrics(metrics)

    def take_in(self, trainer: Any, pool: Pool) -> Pool:
        """Add what every process has seen to the window of the log, and return it.

        It is gathered here, where all processes are, and not for `log`, which one may call alone.
        """
        if sum(gather_object([pool.tokens])) > LIMIT:
            pool = pool.in_cells()
        everywhere = pooled(gather_object([pool]))
        mode = mode_of(trainer)
        self[mode] = pooled([self[mode], everywhere]) if mode in self else everywhere
        return everywhere

    def close(self, trainer: Any) -> dict[str, float]:
        """Empty the window into the metrics that TRL is about to log; the whole row is returned."""
        mode = mode_of(trainer)
        window = self.pop(mode, None)
        if window is None:
            return {}
        row = window.metrics()
        # TRL logs the mean of each list: of one number, that number.
        shown = logged(self.shown(row))
        trainer._metrics[mode].update({name: [value] for name, value in shown.items()})
        return row


class AnswerFinder:
    """Finds the answer of each completion: what follows the last marker."""

    def __init__(self, tokenizer: Any, marker: str) -> None:
        self.marker = marker
        self.decode = reader(tokenizer, marker)
        self.found: tuple[float, float] | None = (0.0, 0.0)
        """how many completions had an answer, and of how many; None once the user was told"""

    def mark(self, trainer: Any, batch: dict[str, Any], windows: Windows) -> None:
        """Mark the answers of a batch; warn once if too few completions have one."""
        answer = mark(batch, self.decode, self.marker)
        batch[ANSWER] = answer.mask
        counts = generated(batch).any(-1)  # TRL may have masked what was truncated
        own = (float(answer.found.sum()), float(counts.sum()))
        seen = windows.take_in(trainer, Pool({}, means={"answer_found": own}))
        found, completions = seen.means["answer_found"]
        if self.found is None:
            return
        self.found = (self.found[0] + found, self.found[1] + completions)
        if self.found[1] >= ENOUGH and self.found[0] < FEW * self.found[1]:
            without = (counts & ~answer.found).nonzero()[:1, 0]
            ids = batch["completion_ids"][without][generated(batch)[without]]
            if trainer.accelerator.is_main_process:
                warnings.warn(
                    say_few_answers(self.marker, *self.found, self.decode(ids.tolist())),
                    stacklevel=2,
                )
            self.found = None


def say_few_answers(marker: str, found: float, completions: float, text: str) -> str:
    """The warning for a user whose completions have no answer; `text` is one of them."""
    return (
        f"only {found:g} of {completions:g} completions have the answer_marker {marker!r}: in the "
        "others every token counts as reasoning, for the shape and for the diagnostics; one of "
        f"them ends with {text[-80:]!r}. Give the marker that the model writes, or ask for it in "
        "the prompt"
    )
