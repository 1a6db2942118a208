"""Files of a report: every number is in a table, and statistics are computed once."""

import csv

from klip.pages import writing
from klip.pages.writing import report_of, write_report, write_tables
from klip.studies import findings
from klip.studies.across import across, records
from klip.studies.reading import read_study
from tests.studies.folders import FORMS, config, make_pooled, make_run, make_study, small


def test_every_pooled_number_is_in_the_csv(tmp_path):
    study = read_study(make_pooled(tmp_path / "runs"))
    pool = across(study)
    paths = write_tables(report_of(study), tmp_path / "out")
    (path,) = (path for path in paths if path.name == "across.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(records(pool))
    kinds = {row["statistic"] for row in rows}
    assert kinds == {"zero", "one", "iqm", "mean", "improvement", "profile"}
    (row,) = (r for r in rows if (r["statistic"], r["label"]) == ("improvement", "spo"))
    assert float(row["estimate"]) == pool.shapes[2].better.estimate
    assert (row["tasks"], row["seeds"], row["diverged"]) == ("2", "3", "1")


def test_without_a_pool_there_is_no_table_of_it(tmp_path):
    make_run(tmp_path / "runs", config(**small()))
    made = report_of(read_study(tmp_path / "runs"))
    assert "across.csv" not in made.tables()
    assert "across-tasks" not in made.figures()


def test_a_report_is_computed_once(tmp_path, monkeypatch):
    """The bootstraps over tasks are what a report waits for."""
    make_study(tmp_path / "runs", ["CartPole-v1", "Hopper-v4"], FORMS[:2], 2, **small())
    calls = []

    def counted(study):
        calls.append(study)
        return across(study)

    monkeypatch.setattr(findings, "across", counted)
    study = read_study(tmp_path / "runs")
    write_report(study, tmp_path / "page.html", tmp_path / "files")
    assert calls == [study]
    assert writing.report_of(study).tables()["across.csv"]
