"""Pictures of old samples: a line for each age, and returns against lag and replay."""

import pytest

from klip.draw.ages import ages, staleness
from klip.draw.as_matplotlib import drawn
from klip.draw.as_plotly import charts
from klip.draw.panel import Line, Whisker
from klip.engine import read_plan
from klip.studies.findings import find
from klip.studies.reading import columns, read_study
from tests.studies.folders import config, make_run, small


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    """Lags of 0, 1 and 4 with two shapes, and a replay of 2; one run diverged."""
    out = tmp_path_factory.mktemp("runs")
    for shape in ("clip(eps=0.2)", "spo(eps=0.2)"):
        for lag in (0, 1, 4):
            for seed in range(2):
                make_run(out, config(shape=shape, seed=seed, **small(lag=lag)))
    make_run(out, config(seed=2, **small(lag=4)), 5, "diverged", "not finite")
    make_run(out, config(**small(replay=2)))
    study = read_study(out)
    for run in study.runs:
        count = run.settings["lag"] + run.settings["replay"]
        if count > 1:
            row = [None] * run.settings["lag"] + [0.2, 0.1][: run.settings["replay"]]
            names = [f"age.{name}" for name in ("samples", "zeroed", "pull", "ess")]
            run.metrics.update(columns([dict.fromkeys(names, row)] * run.rows))
    return find(study)


def labels(panel):
    return [mark.label for mark in panel.marks if isinstance(mark, Line)]


def test_a_line_for_each_age(findings):
    picture = ages(findings)
    titles = [panel.about for panel in picture.panels]
    assert titles == [
        "zeroed, samples of one age", "ess, samples of one age",
        "zeroed, clip, replay 2", "pull, clip, replay 2", "ess, clip, replay 2",
    ]  # fmt: skip
    assert len(labels(picture.panels[0])) == 4
    assert labels(picture.panels[2]) == ["age 0", "age 1"]
    dark, pale = (mark.look.light for mark in picture.panels[2].marks)
    assert dark < pale


def test_returns_against_the_lag(findings):
    picture = staleness(findings)
    lag, replay = picture.panels
    assert lag.x.ticks == ((0.0, "0"), (1.0, "1"), (2.0, "4"))
    assert labels(lag) == ["clip", "spo"]
    assert sum(isinstance(mark, Whisker) for mark in lag.marks) == 6
    assert lag.note == "Diverged, and not in the means: clip at lag 4: 1 of 3."
    assert labels(replay) == ["clip"]


@pytest.mark.parametrize(("knob", "lines"), [("lag", 9), ("replay", 6)])
def test_every_method_of_the_shipped_plans_has_a_line_over_all_values(knob, lines, tmp_path):
    """Those that need an age, or correct for it, begin where the clip does."""
    for c in read_plan(f"stale-{knob}").only(["Hopper-v4"], seeds=1).configs:
        make_run(tmp_path, c.stored, 4)
    (panel,) = staleness(find(read_study(tmp_path))).panels
    drawn = [mark for mark in panel.marks if isinstance(mark, Line)]
    assert len(drawn) == lines == len({mark.look for mark in drawn})
    assert {len(mark.x) for mark in drawn} == {len(panel.x.ticks)}
    assert "begin as clip: clip, ratio decoupled; age-conditioned" in panel.note


def test_both_renderers_draw_them(findings):
    for picture in (ages(findings), staleness(findings)):
        assert len(drawn(picture).axes) == len(picture.panels) == len(dict(charts(picture)))


def test_without_old_samples_there_is_nothing_to_draw(tmp_path):
    make_run(tmp_path, config(**small()))
    alone = find(read_study(tmp_path))
    assert ages(alone) is None
    assert staleness(alone) is None
