"""Pictures of step sizes: a panel a cell, a row a shape, and the claims of theory."""

import dataclasses

import pytest

from klip.draw.as_matplotlib import drawn
from klip.draw.as_plotly import charts
from klip.draw.lines import shown_at_first
from klip.draw.panel import Line, Whisker
from klip.draw.step_sizes import endurance, foretold, promises, returns, verdicts
from klip.engine import read_plan
from klip.studies.findings import find
from klip.studies.reading import read_study
from klip.studies.study import Study
from tests.studies.folders import config, keep, make_run, small
from tests.studies.test_step_sizes import make


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    return find(read_study(make(tmp_path_factory.mktemp("runs"))))


def test_returns_have_a_panel_a_cell_and_a_line_a_shape(findings):
    picture = returns(findings)
    assert [(panel.title, panel.about) for panel in picture.panels] == [
        ("Hopper-v4", "epochs 10"), ("Hopper-v4", "epochs 40")
    ]  # fmt: skip
    for panel in picture.panels:
        assert [name for _, name in panel.x.ticks] == ["0.0003", "0.003", "0.03"]
        lines = [mark for mark in panel.marks if isinstance(mark, Line)]
        assert [mark.label for mark in lines] == ["clip", "sapo", "spo"]
        assert len({mark.look for mark in lines}) == 3
        assert sum(isinstance(mark, Whisker) for mark in panel.marks) == 9
        assert lines[1].y[0] > 5 * lines[1].y[1]


def test_each_shape_stands_beside_what_theory_says_of_it(findings):
    (panel,) = endurance(findings).panels
    assert [name for _, name in panel.y.ticks] == [
        "clip: T1 yes, T2 yes, T3 no",
        "spo: T1 yes, T2 no, T3 yes",
        "sapo: T1 no, T2 yes, T3 no",
    ]
    assert [mark.estimate for mark in panel.marks] == [3.0, 2.0, 1.0]


def test_claims_divide_the_shapes(findings):
    told = foretold(findings.step_sizes)
    divided = [(each.claim.name[:2], each.claim.have, each.claim.lack) for each in told]
    assert divided == [
        ("T1", ("clip", "spo"), ("sapo",)),
        ("T2", ("clip", "sapo"), ("spo",)),
        ("T3", ("spo",), ("clip", "sapo")),
    ]
    assert [each.difference.estimate for each in told] == [1.5, 0.0, 0.0]
    assert [each.difference.family for each in told] == [3, 3, 3]
    assert [panel.title[:2] for panel in promises(findings).panels] == ["T1", "T2", "T3"]


def test_diverged_runs_are_named(tmp_path):
    make(tmp_path, {"clip(eps=0.2)": (900, 900)}, epochs=(10,), seeds=2)
    make_run(
        tmp_path, config("Hopper-v4", seed=2, **small(lr=3e-3, epochs=10)), 5, "diverged", "no"
    )
    (panel,) = returns(find(read_study(tmp_path))).panels
    assert panel.note == "Diverged, and counted at the lowest return: clip at 0.003: 1 of 3."


def test_somebodys_shape_has_what_its_runs_kept(tmp_path):
    for rate in (3e-4, 3e-3):
        c = config("Hopper-v4", "my.py:Mine", **small(lr=rate))
        keep(make_run(tmp_path, c), c)
    (each,) = find(read_study(tmp_path)).step_sizes.shapes
    assert verdicts(each) == "T1 yes, T2 yes, T3 no"


def test_the_shipped_plan_has_every_shape_in_every_cell(tmp_path):
    for c in read_plan("guarantees").only(seeds=1).configs:
        make_run(tmp_path, c.stored, 3)
    found = find(read_study(tmp_path))
    assert len(found.step_sizes.cells) == 4
    assert len(found.step_sizes.shapes) == 8
    assert {cell.rates for cell in found.step_sizes.cells} == {(3e-4, 9e-4, 3e-3, 9e-3)}
    assert found.step_sizes.left == ()
    (t2,) = [each for each in foretold(found.step_sizes) if each.claim.name.startswith("T2")]
    assert t2.claim.lack == ("kl-k3", "ppo-rb", "spo")
    assert t2.claim.have == ("clip", "dppo-tv", "ramp", "sapo", "tis")
    lines = [mark for mark in returns(found).panels[0].marks if isinstance(mark, Line)]
    assert len({mark.look for mark in lines}) == 8
    # a label is hidden in all charts or in none: those of the ladders are among the first
    assert {mark.label for mark in lines} <= shown_at_first(found.study)


def test_both_renderers_draw_them(findings):
    for picture in (returns(findings), endurance(findings), promises(findings)):
        assert len(drawn(picture).axes) == len(picture.panels) == len(dict(charts(picture)))


def test_without_step_sizes_there_is_nothing_to_draw():
    empty = find(Study(()))
    assert (returns(empty), endurance(empty), promises(empty)) == (None, None, None)


def test_one_shape_has_nothing_to_stand_beside(findings):
    alone = dataclasses.replace(findings.step_sizes, shapes=findings.step_sizes.shapes[:1])
    found = dataclasses.replace(findings, step_sizes=alone)
    assert (endurance(found), promises(found)) == (None, None)
