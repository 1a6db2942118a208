"""Which settings to try next: Optuna's sampler, asked and told in batches.

It is a function of its seed and of the scores that it hears, in their order; nothing is kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from klip.errors import KlipError
from klip.studies.ranges import Range

MISSING: Final = 'a search needs Optuna, which is not installed: pip install "klip-rl[tune]"'
RANDOM: Final = 10
"""At least so many trials, and the first batch, are drawn at random."""


class Sampler:
    """A search over ranges, from nothing on.

    Args:
        optuna: the library
        over: what is searched
        seed: of the search
        batch: how many settings are asked for at once

    """

    def __init__(self, optuna: Any, over: Sequence[Range], seed: int, batch: int) -> None:
        self._optuna, self._over = optuna, over
        self._kinds = {each.name: _distribution(optuna, each) for each in over}
        # trials that are asked for together must not be alike: a running one counts as a bad one
        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, constant_liar=True, n_startup_trials=max(RANDOM, batch)
        )
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._asked: list[Any] = []
        self._scores: set[float] = set()

    def ask(self, count: int) -> list[dict[str, Any]]:
        """Where the knobs stand in the next trials."""
        self._asked = [self._study.ask(self._kinds) for _ in range(count)]
        return [
            {each.name: _value(each, trial.params[each.name]) for each in self._over}
            for trial in self._asked
        ]

    def tell(self, scores: Sequence[float]) -> None:
        """The scores of the trials that were last asked for."""
        for trial, score in zip(self._asked, scores, strict=True):
            self._study.tell(trial, score)
        self._scores |= set(scores)

    def importance(self) -> Mapping[str, float]:
        """How much each knob has to do with being among the better trials, the largest first.

        By PED-ANOVA; the shares sum to 1. Nothing where trials do not differ, or are too few.
        """
        if len(self._scores) < 2:
            return {}
        evaluator = self._optuna.importance.PedAnovaImportanceEvaluator()
        try:
            found = self._optuna.importance.get_param_importances(self._study, evaluator=evaluator)
        except (RuntimeError, ValueError):  # too few trials to tell
            return {}
        return {str(name): float(share) for name, share in found.items()}


@contextmanager
def library() -> Iterator[Any]:
    """Optuna, silent meanwhile; a `KlipError` where it is not installed."""
    try:
        import optuna
    except ImportError:
        raise KlipError(MISSING) from None
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield optuna
    finally:
        optuna.logging.set_verbosity(level)


def _distribution(optuna: Any, each: Range) -> Any:
    """Of a knob; a list of numbers is searched by its places, which keeps their order."""
    kinds = optuna.distributions
    if each.choices and each.ordered:
        return kinds.IntDistribution(0, len(each.choices) - 1)
    if each.choices:
        return kinds.CategoricalDistribution(each.choices)
    if each.whole:
        return kinds.IntDistribution(int(each.low), int(each.high), log=each.log)
    return kinds.FloatDistribution(each.low, each.high, log=each.log)


def _value(each: Range, found: Any) -> Any:
    """Where a knob stands, from what Optuna says."""
    if not each.choices:
        return each.value(found)
    return each.choices[found] if each.ordered else found
