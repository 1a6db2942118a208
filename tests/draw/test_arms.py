"""Pictures of a token experiment: from its runs, a picture a group and a kind."""

import numpy as np
import pytest

from klip.draw.arms import accuracy, arm_looks, by_age, differences, pictures, zeroed
from klip.studies.arms import find_arms, start
from klip.studies.reading import read_study
from tests.studies.token_folders import make_experiment


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    return find_arms(read_study(make_experiment(tmp_path_factory.mktemp("runs"))))


def test_every_arm_has_a_line_that_begins_with_the_warm_up(findings):
    position = findings.groups[0]
    (panel,) = accuracy(position).panels
    assert [line.label for line in panel.legend] == [arm.name for arm in position.arms]
    for line, arm in zip(panel.legend, position.arms, strict=True):
        assert line.x[0] == 0
        assert line.y[0] == pytest.approx(np.mean([start(run) for run in arm.ended]))


def test_differences_are_in_points_and_leave_out_the_first_arm(findings):
    position = findings.groups[0]
    level, *whiskers = differences(position).panels[0].marks
    assert level.at == 0
    assert [mark.label for mark in whiskers] == ["sharp <answer>", "wide clip"]
    assert whiskers[0].estimate == 100 * position.rows[1].difference.estimate


def test_ages_are_drawn_where_they_were_counted(findings):
    position, age = findings.groups
    assert by_age(position) is None
    none, less = by_age(age).panels
    assert (none.title, less.title) == ("Zeroed, by age", "Weakened, by age")
    assert [len(line.x) for line in none.legend] == [4, 4]
    assert len(zeroed(age).panels) == 3


def test_arms_look_different_and_pictures_are_named_by_their_group(findings):
    for group in findings.groups:
        assert len({look.light for look in arm_looks(group).values()}) == len(group.arms)
    stems = [one.stem for kinds in pictures(findings).values() for one in kinds.values()]
    assert len(set(stems)) == len(stems)
    assert "age-by-age" in stems
