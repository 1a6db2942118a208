"""A tuned plan's answer: from its tests alone, whatever else lies beside them."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from klip.engine.advance import Keeping
from klip.studies.comparing import holm
from klip.studies.reading import read_study
from klip.studies.tested import fresh_answers
from klip.studies.tuned import read
from tests.studies.leagues import play
from tests.studies.test_tuned import PLAN


@pytest.fixture
def study(tmp_path):
    play(read("small", PLAN), tmp_path)
    return read_study(tmp_path)


def finals(study, task, shape, seeds):
    return [r.final for r in study.runs if (r.task, r.shape) == (task, shape) and r.seed in seeds]


def test_only_fresh_seeds_count(study):
    rows = fresh_answers(study)
    assert [(row.task, row.family) for row in rows] == [
        (task, family) for task in PLAN["tasks"] for family in ("fixed", "spo")
    ]
    for row in rows:
        shape = "spo(eps=0.4)" if row.family == "spo" else f"{row.chosen}"
        shape = "kl(b=1.0)" if shape == "kl" else shape
        own = finals(study, row.task, shape, (10, 11, 12))
        clip = finals(study, row.task, "clip(eps=0.2)", (10, 11, 12))
        assert (row.mean.n, row.mean.estimate) == (3, pytest.approx(np.mean(own)))
        (gap,) = row.against.values()
        assert gap.estimate == pytest.approx(np.mean(own) - np.mean(clip))
        tuning = [np.mean(finals(study, row.task, s, (0, 1))) for s in ("spo(eps=0.2)", shape)]
        if row.family == "spo":
            assert sorted(row.scores.values()) == pytest.approx(sorted(tuning))


def test_claims_are_corrected_for_all_answers(study):
    gaps = [gap for row in fresh_answers(study) for gap in row.against.values()]
    assert [g.p_holm for g in gaps] == pytest.approx(holm(np.array([g.p for g in gaps])).tolist())


def test_without_all_tests_there_is_no_answer(tmp_path):
    plan = read("small", PLAN)
    made = play(plan, tmp_path)
    keeping = Keeping(tmp_path)
    last = plan.next(keeping).configs[-1]
    assert last.id in made
    shutil.rmtree(keeping.path(last))
    families = [(row.task, row.family) for row in fresh_answers(read_study(tmp_path))]
    assert ("Acrobot-v1", "spo") not in families
    assert len(families) == 3


@pytest.mark.parametrize("data", [b"", b"[]", b'{"format": "klip tuned 1"}', b'{"format": 3}'])
def test_what_is_no_choice_is_passed_over(study, data):
    assert fresh_answers(replace(study, choices={"frozen-00000000.json": data})) == []
