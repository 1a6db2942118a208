"""Several folders and packs as one study: each run once, and what disagrees is refused."""

import dataclasses
import shutil

import pytest

import klip
from klip.engine.advance import Keeping
from klip.engine.having import having
from klip.errors import KlipError
from klip.ppo.config import config as job_of
from klip.studies.freezing import FILE
from klip.studies.gathering import gathered, read_have, run_of
from klip.studies.packing import CHOICES, pack
from klip.studies.reading import read_study
from klip.studies.standings import FILE as STANDINGS
from klip.studies.standings import read_standings
from tests.studies import leagues
from tests.studies.folders import FORMS, config, keep, make_run, make_study, same, small


def test_folders_and_packs_are_one_study_in_any_order(tmp_path):
    make_study(tmp_path / "all", shapes=FORMS, seeds=2, **small())
    make_study(tmp_path / "a", shapes=FORMS[:2], seeds=2, **small())
    make_study(tmp_path / "b", shapes=FORMS[1:], seeds=2, **small())  # one shape is in both
    klip.pack(tmp_path / "a", tmp_path / "pack")
    for sources in (("pack", "b"), ("b", "pack")):
        assert same(gathered([tmp_path / s for s in sources]), read_study(tmp_path / "all"))
    packed = klip.pack([tmp_path / "b", tmp_path / "pack"], tmp_path / "pack")  # in its own place
    assert packed.runs == 6
    klip.pack(tmp_path / "all", tmp_path / "whole")
    for file in (tmp_path / "whole").iterdir():
        assert (tmp_path / "pack" / file.name).read_bytes() == file.read_bytes()


def test_one_run_with_other_bytes_is_refused_and_both_places_are_named(tmp_path):
    make_run(tmp_path / "a", config(**small()))
    make_run(tmp_path / "b", config(**small()), edit=lambda arrays: arrays["policy/w"].fill(0))
    for folder in ("a", "b"):
        klip.pack(tmp_path / folder, tmp_path / f"pack-{folder}")
    places = [tmp_path / "pack-a", tmp_path / "pack-b"]
    for read in (gathered, read_have):
        with pytest.raises(KlipError, match=r"pack-a and .*pack-b both have CartPole") as caught:
            read(places)
        assert "\n" not in str(caught.value)
    with pytest.raises(KlipError, match="with other bytes"):
        klip.pack([tmp_path / "a", places[1]], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_the_run_that_has_ended_is_taken(tmp_path):
    c = config(**small())
    make_run(tmp_path / "a", c, 5, "running")
    keep(make_run(tmp_path / "b", c), c)
    make_run(tmp_path / "c", c)
    for sources in ("abc", "cba"):
        (run,) = gathered([tmp_path / s for s in sources]).runs
        assert (run.status, run.rows) == ("done", 20)
        assert run.portrait is not None


@pytest.mark.parametrize(
    ("count", "status", "counts"),
    [(None, "done", 1), (5, "diverged", 1), (5, "running", 0), (5, "failed", 0), (5, "done", 0)],
)
def test_only_a_run_that_is_over_is_had(tmp_path, count, status, counts):
    make_run(tmp_path / "a", config(**small()), count, status)
    klip.pack(tmp_path / "a", tmp_path / "pack")
    assert len(read_have([tmp_path / "pack"]).runs) == counts


@pytest.mark.parametrize("sources", ["a", "ab", "ba"])
def test_runs_that_go_on_are_left_out_of_a_pack_where_asked(tmp_path, sources):
    make_run(tmp_path / "a", config(**small()), 5, "running")
    make_run(tmp_path / "a", config(seed=1, **small()), 5, "diverged")
    make_run(tmp_path / "b", config(seed=2, **small()))
    places = [tmp_path / source for source in sources]
    packed = klip.pack(places, tmp_path / "pack", ended=True)
    assert packed.runs == len(sources)
    assert {run.seed for run in read_study(tmp_path / "pack").runs} == {*range(1, packed.runs + 1)}
    assert klip.pack(places, tmp_path / "all").runs == packed.runs + 1


def test_a_pack_of_nothing_that_has_ended_is_refused(tmp_path):
    make_run(tmp_path / "a", config(**small()), 5, "running")
    with pytest.raises(KlipError, match=r"no run has ended in .*without --ended"):
        klip.pack(tmp_path / "a", tmp_path / "pack", ended=True)
    assert not (tmp_path / "pack").exists()


def test_the_run_of_a_job_is_of_its_folder_or_of_a_pack(tmp_path):
    job = job_of("CartPole-v1", **small(minibatch=16))
    make_run(tmp_path / "a", job.stored)
    klip.pack(tmp_path / "a", tmp_path / "pack")
    keeping = Keeping(tmp_path / "b", have=having([tmp_path / "pack"]))
    packed = run_of(job, keeping)
    assert packed.path.startswith("CartPole-v1/")
    make_run(tmp_path / "b", job.stored, 5, "running")
    assert run_of(job, keeping).rows == 20
    shutil.rmtree(tmp_path / "b")
    make_run(tmp_path / "b", job.stored)
    own = run_of(job, keeping)
    assert own.path == str(keeping.path(job))
    assert own.digest == packed.digest
    with pytest.raises(KlipError, match="is not the folder of a run"):
        run_of(job, Keeping(tmp_path / "nowhere"))


def test_every_source_must_have_runs(tmp_path):
    make_run(tmp_path / "a", config(**small()))
    (tmp_path / "empty").mkdir()
    with pytest.raises(KlipError, match=r"there are no runs in .*empty"):
        gathered([tmp_path / "a", tmp_path / "empty"])
    with pytest.raises(KlipError, match="there is nothing to pack"):
        gathered([])


# -- a league on several machines -------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("league")
    leagues.play(leagues.small(), out)
    return out


def files(out):
    return [(out / name).read_bytes() for name in (FILE, STANDINGS)]


def test_a_league_goes_on_from_packs_machine_by_machine_to_the_same_bytes(whole, tmp_path):
    plan, pack = leagues.small(), tmp_path / "pack"
    first = leagues.train(plan.configs[:30], tmp_path / "a")
    klip.pack(tmp_path / "a", pack)
    keeping = Keeping(tmp_path / "b", have=having([pack]))
    second = leagues.train(plan.configs[30:], keeping.out)
    testing = plan.next(keeping)
    second += leagues.train(testing.configs[:7], keeping.out)
    klip.pack([keeping.out, pack], pack)
    third = leagues.play(plan, tmp_path / "c", have=[pack])
    assert files(tmp_path / "c") == files(whole)
    assert len({*first, *second, *third}) == len(first) + len(second) + len(third)
    assert len(list(whole.rglob("seed-*"))) == len(first) + len(second) + len(third)
    klip.pack([tmp_path / "c", pack], pack)
    assert leagues.play(plan, tmp_path / "d", have=[pack]) == []
    assert files(tmp_path / "d") == files(whole)
    assert not list((tmp_path / "d").rglob("seed-*"))


def test_what_was_frozen_goes_with_the_pack_and_binds(whole, tmp_path):
    klip.pack(whole, tmp_path / "pack")
    assert (tmp_path / "pack" / FILE).read_bytes() == (whole / FILE).read_bytes()
    assert CHOICES.fullmatch(FILE)
    study = read_study(tmp_path / "pack")
    assert study.choices == {FILE: (whole / FILE).read_bytes()}
    pack(dataclasses.replace(study, choices={}), tmp_path / "without")
    with pytest.raises(KlipError, match=r"without has tests of tuned .*nothing is tuned again"):
        leagues.play(leagues.small(), tmp_path / "out", have=[tmp_path / "without"])
    (tmp_path / "pack" / FILE).write_text("{}")
    with pytest.raises(KlipError, match="holds a damaged study"):
        having([tmp_path / "pack"])


def test_two_choices_for_one_league_are_refused(whole, tmp_path):
    klip.pack(whole, tmp_path / "pack")
    study = read_study(tmp_path / "pack")
    other = study.choices[FILE].replace(b'"factor": 2.0', b'"factor": 4.0', 1)
    pack(dataclasses.replace(study, choices={FILE: other}), tmp_path / "other")
    both = [tmp_path / "pack", tmp_path / "other"]
    with pytest.raises(KlipError, match=r"have frozen other choices in frozen\.json"):
        gathered(both)
    with pytest.raises(KlipError, match="have frozen other choices for one league"):
        leagues.play(leagues.small(), tmp_path / "out", have=both)
    with pytest.raises(KlipError, match="damaged or was edited"):
        leagues.play(leagues.small(), tmp_path / "out", have=both[1:])


def test_choices_of_another_league_do_not_bind(whole, tmp_path):
    klip.pack(whole, tmp_path / "pack")
    mine = leagues.small(tasks=["Pendulum-v1"])
    assert leagues.play(mine, tmp_path / "out", have=[tmp_path / "pack"])
    assert read_standings(tmp_path / "out").rules.tasks == ("Pendulum-v1",)


def test_standings_of_a_pack_are_made_by_going_on_from_it(whole, tmp_path):
    klip.pack(whole, tmp_path / "pack")
    with pytest.raises(KlipError, match=r"klip run league --have .*pack` writes them into --out"):
        read_standings(tmp_path / "pack")
