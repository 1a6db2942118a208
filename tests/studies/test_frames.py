"""Metrics and returns as frames: what the files say, and nothing else."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import klip
from klip.errors import KlipError
from klip.studies.frames import metrics, returns
from klip.studies.reading import read_study
from klip.studies.study import Study

RUNS = "examples/cartpole"


@pytest.fixture(scope="module")
def study():
    return read_study(RUNS)


def test_every_number_of_every_run_is_there(study):
    frame = metrics(study)
    assert len(frame) == sum(run.rows for run in study.runs)
    for run in study.runs:
        part = frame.filter(pl.col("run") == run.id)
        assert set(part["seed"]) == {run.seed}
        for name, column in run.metrics.items():
            names = [name] if column.ndim == 1 else [f"{name}[{k}]" for k in range(column.shape[1])]
            told = np.stack([part[each].cast(pl.Float64).to_numpy() for each in names], axis=1)
            np.testing.assert_array_equal(told, column.reshape(len(column), -1))


def test_what_was_not_measured_is_null_and_counts_in_no_mean(study):
    run = study.runs[0]
    gap = run.metrics["return_mean"].copy()
    gap[0] = np.nan
    changed = replace(run, metrics={**run.metrics, "return_mean": gap})
    frame = metrics(Study((changed,)), ["return_mean"])
    assert frame["return_mean"].null_count() == np.isnan(gap).sum() > 0
    assert frame["return_mean"].mean() == pytest.approx(np.nanmean(gap))


def test_columns_are_those_asked_for_in_their_order(study):
    names = ["task", "shape", "seed", "run", "kill", "step"]
    assert metrics(study, ["kill", "step"]).columns == names
    with pytest.raises(KlipError, match=r"no metric 'kil'; they have .*kill"):
        metrics(study, ["kil"])


def test_a_folder_is_read_as_a_study_is():
    assert klip.metrics(RUNS).equals(metrics(read_study(RUNS)))


def test_returns_are_the_table_of_the_page(study):
    table = returns(study)
    assert table["label"].to_list() == [v.label for v in study.variants]
    for row, variant in zip(table.rows(named=True), study.variants, strict=True):
        assert row["mean"] == pytest.approx(np.mean([run.final for run in variant.runs]))
        assert row["mean_low"] < row["mean"] < row["mean_high"]


def test_returns_of_tokens_are_accuracies():
    table = returns("results/tokens")
    assert {"group", "arm", "final"} <= set(table.columns)
    assert table["final"].is_between(0, 1).all()


def test_nothing_to_show_is_said():
    with pytest.raises(KlipError, match="no run in this study has a row of metrics"):
        metrics(Study(()))
    with pytest.raises(KlipError, match="there are no runs in this study"):
        returns(Study(()))
    with pytest.raises(KlipError, match="there is no folder nowhere"):
        metrics("nowhere")
