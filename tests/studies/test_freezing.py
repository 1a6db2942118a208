"""Freezing: the best radius, chosen once; nothing is tuned after a look at tests."""

import hashlib
import json
import shutil

import pytest

from klip.engine.advance import Keeping
from klip.errors import KlipError
from klip.studies.freezing import FILE, FORMAT, factors_to_test, freeze, normalised, read_frozen
from tests.studies.leagues import play, rules, small, train


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    out = tmp_path_factory.mktemp("league")
    train(small().configs, out)
    return out


@pytest.fixture
def out(tuned, tmp_path):
    return shutil.copytree(tuned, tmp_path / "runs")


def test_the_best_radius_is_chosen_with_its_scores(out):
    frozen = freeze(rules(), Keeping(out))
    spo = frozen["spo(eps=0.2)"]
    assert (spo.factor, spo.spelling) == (2.0, "spo(eps=0.4)")
    assert spo.scores["2"] == max(spo.scores.values())
    assert spo.cells["2"].keys() == set(rules().cells)
    assert frozen["is"].factor == 1.0
    assert factors_to_test(frozen)["spo(eps=0.2)"] == (1.0, 2.0)
    assert factors_to_test(frozen)["is"] == (1.0,)


def test_forms_of_one_shape_are_tuned_alike(out):
    frozen = freeze(rules(), Keeping(out))
    clip, form = frozen["clip(eps=0.2)"], frozen["per-sample(eps=0.2)"]
    assert clip.scores["1"] == form.scores["1"]


def test_what_is_frozen_stays_whatever_happens_to_the_runs(out):
    before = freeze(rules(), Keeping(out))
    text = (out / FILE).read_bytes()
    shutil.rmtree(out / "CartPole-v1")
    assert freeze(rules(), Keeping(out)) == before == read_frozen(rules(), Keeping(out))
    assert (out / FILE).read_bytes() == text


def test_it_is_a_function_of_the_runs(out, tuned):
    freeze(rules(), Keeping(out))
    freeze(rules(), Keeping(tuned))
    assert (out / FILE).read_bytes() == (tuned / FILE).read_bytes()
    (tuned / FILE).unlink()


def test_an_edited_choice_is_refused(out):
    freeze(rules(), Keeping(out))
    data = json.loads((out / FILE).read_bytes())
    data["frozen"]["chosen"]["is"]["factor"] = 4.0
    (out / FILE).write_text(json.dumps(data))
    with pytest.raises(KlipError, match="damaged or was edited"):
        freeze(rules(), Keeping(out))


@pytest.mark.parametrize(
    ("place", "value"),
    [((), []), (("chosen",), []), (("chosen", "is"), 1), (("chosen", "is", "factor"), "4"),
     (("chosen", "is", "factor"), 10**400), (("chosen", "is", "spelling"), None),
     (("chosen", "is", "scores"), [1]), (("chosen", "is", "cells"), {"1": {"a": "x"}})],
)  # fmt: skip
def test_a_choice_that_is_none_is_refused_though_its_seal_is_right(out, place, value):
    freeze(rules(), Keeping(out))
    whole = {"frozen": json.loads((out / FILE).read_bytes())["frozen"]}
    inside = whole
    for key in ("frozen", *place)[:-1]:
        inside = inside[key]
    inside[("frozen", *place)[-1]] = value
    text = json.dumps(whole["frozen"], sort_keys=True, indent=1)
    seal = hashlib.sha256(text.encode()).hexdigest()
    (out / FILE).write_text(json.dumps({"format": FORMAT, "sha256": seal, **whole}))
    with pytest.raises(KlipError, match="damaged or was edited"):
        freeze(rules(), Keeping(out))


@pytest.mark.parametrize("text", ["[" * 9999, '{"frozen": ' + "[" * 900 + "]" * 900 + "}"])
def test_lists_in_lists_are_no_choices(out, text):
    (out / FILE).write_text(text)
    with pytest.raises(KlipError, match="damaged or was edited"):
        read_frozen(rules(), Keeping(out))


def test_other_rules_need_another_folder(out):
    freeze(rules(), Keeping(out))
    with pytest.raises(KlipError, match="frozen for other rules"):
        freeze(rules(shapes=["clip", "is"]), Keeping(out))


def test_nothing_is_tuned_again_after_a_test(out):
    play(small(), out)
    (out / FILE).unlink()
    with pytest.raises(KlipError, match=r"has tests of tuned shapes.*nothing is tuned again"):
        freeze(rules(), Keeping(out))


def test_a_newcomer_has_a_file_of_its_own(out):
    freeze(rules(), Keeping(out))
    alone = rules().with_newcomer("ramp")
    train([t.job for t in alone.trials("tuning")], out)
    scales = dict.fromkeys(alone.cells, (0.0, 100.0))
    assert freeze(alone, Keeping(out), scales).keys() == {"ramp(eps=0.2, width=0.05)"}
    assert len(list(out.glob("frozen*.json"))) == 2


def test_runs_that_diverged_count_at_zero_or_below():
    assert normalised([None, 20.0], (10.0, 20.0)) == [0.0, 1.0]
    assert normalised([None, 0.0], (10.0, 20.0)) == [-1.0, -1.0]


def test_a_cell_in_which_clip_learned_nothing_has_no_scale(tmp_path):
    from klip.studies.freezing import scale

    with pytest.raises(KlipError, match="PPO-Clip has learned nothing in x"):
        scale("x", [5.0], [4.0])
