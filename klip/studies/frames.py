"""A study as Polars frames: every metric of every iteration, and the table of what came out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from klip.errors import KlipError
from klip.studies import arms, tables
from klip.studies.packing import frame_of
from klip.studies.reading import read_study
from klip.studies.study import Study

NAMES: Final = ("task", "shape", "seed", "run")
"""The columns that say whose a row is; `shape` is the variant's label, `run` the run's id."""


def metrics(runs: str | Path | Study = "runs", columns: Sequence[str] = ()) -> pl.DataFrame:
    """Every metric of every iteration of every run: a row per run and iteration.

    The columns `task`, `shape`, `seed` and `run` say whose a row is; `shape` is the label of its
    variant, as on the page. Quantiles have a column each, such as `beta[0]`; what a run did not
    measure is null.

    >>> frame = metrics("examples/cartpole", ["step", "return_mean", "kill"])
    >>> frame.columns, len(frame)
    (['task', 'shape', 'seed', 'run', 'step', 'return_mean', 'kill'], 480)

    Args:
        runs: folder that `klip.train`, `klip.run` or `klip.pack` wrote, one run in it, or what
            `klip.read_study` gives for one
        columns: the metrics to take, in this order; all unless given

    Returns:
        the frame, by task, shape and seed; returns are in units of the task's rewards, `step`
        counts environment steps (completions on tokens), shares are between 0 and 1

    """
    study = _study(runs)
    frames = [
        frame_of(run).select(
            pl.lit(run.task).alias("task"),
            pl.lit(variant.label).alias("shape"),
            pl.lit(run.seed, pl.Int64).alias("seed"),
            pl.lit(run.id).alias("run"),
            pl.all(),
        )
        for variant in study.variants
        for run in variant.runs
        if run.rows
    ]
    if not frames:
        raise KlipError(f"no run in {_named(runs)} has a row of metrics yet: `klip train` some")
    whole = pl.concat(frames, how="diagonal_relaxed").fill_nan(None)
    unknown = [name for name in columns if name not in whole.columns]
    if unknown:
        known = ", ".join(name for name in whole.columns if name not in NAMES)
        raise KlipError(f"these runs have no metric {unknown[0]!r}; they have {known}")
    return whole.select(*NAMES, *columns) if columns else whole


def returns(runs: str | Path | Study = "runs") -> pl.DataFrame:
    """What came out: a row per task and shape, or per arm of a token experiment.

    `mean` and `std` are of the final returns over seeds (the mean of the last tenth of a run's
    steps), `mean_low` and `mean_high` the 95 % interval of the mean, `minus_reference` the
    difference to PPO-Clip with its own; of token arms `final` is the held-out accuracy.

    >>> for shape, mean in returns("examples/cartpole").select("label", "mean").rows():
    ...     print(shape, round(mean, 1))
    clip 406.9
    spo 335.3

    Args:
        runs: as for `klip.metrics`

    Returns:
        the frame, in the order of the page's tables, in units of the return or as accuracies

    """
    study = _study(runs)
    if not study.runs:
        raise KlipError(f"there are no runs in {_named(runs)}; `klip train` makes some")
    if arms.is_tokens(study):
        rows = arms.records(arms.find_arms(study))
    else:
        rows = tables.records(tables.finals(study), tables.differences(study))
    return pl.DataFrame(rows, infer_schema_length=None)


def _study(runs: str | Path | Study) -> Study:
    return runs if isinstance(runs, Study) else read_study(runs)


def _named(runs: str | Path | Study) -> str:
    return "this study" if isinstance(runs, Study) else str(runs)
