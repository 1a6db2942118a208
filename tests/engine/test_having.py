"""What packs have is not trained again, whatever the plan; and it is said where it comes from."""

import dataclasses
import shutil
from pathlib import Path

import pytest

import klip
from klip.engine import having as module
from klip.engine import read_plan, run
from klip.engine.advance import Keeping
from klip.engine.finish import estimate, finish, survey
from klip.engine.having import Have, having, taken_words
from klip.engine.plan import Plan
from klip.errors import KlipError
from klip.ppo.config import config
from tests.engine.test_finish import JOBS, SMALL, one_by_one

ROOT = Path(__file__).parents[2]
WILD = config("CartPole-v1", shape="is", lr=1e18, **SMALL)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Two runs that are done and one that diverged; their folders are gone."""
    base = tmp_path_factory.mktemp("had")
    finish(survey([*JOBS[:2], WILD], Keeping(base / "runs")), one_by_one)
    klip.pack(base / "runs", base / "pack")
    shutil.rmtree(base / "runs")
    return base / "pack"


def refuses(jobs, keeping, stop):
    assert not jobs, "nothing may be trained"
    return iter(())


def test_runs_of_a_pack_count_as_done_and_are_not_trained_again(packed, tmp_path):
    keeping = Keeping(tmp_path / "runs", have=having([packed]))
    found = survey([*JOBS[:2], WILD], keeping)
    assert found.missing == ()
    results = finish(found, refuses)
    assert [r.status for r in results] == ["done", "done", "diverged"]
    assert {r.path for r in results} == {packed}
    assert not keeping.out.exists()
    whole = finish(survey(JOBS[:1], Keeping(tmp_path / "again")), one_by_one)
    assert results[0].final_return == whole[0].final_return


def test_what_is_missing_beside_a_pack_is_trained(packed, tmp_path, monkeypatch):
    trained = []

    def runner(jobs, keeping, stop):
        trained.extend(jobs)
        return one_by_one(jobs, keeping, stop)

    monkeypatch.setattr(run, "here", lambda workers, limit=None: runner)
    plan = Plan("mine", "", (*JOBS, WILD))
    results = klip.run(plan, out=tmp_path, have=[packed])
    assert trained == [JOBS[2]]
    assert [r.path == packed for r in results] == [True, True, False, True]
    assert klip.run(plan, out=tmp_path, have=str(packed)) == results
    assert trained == [JOBS[2]]


def test_a_run_that_ended_in_its_folder_is_taken_from_there(packed, tmp_path):
    keeping = Keeping(tmp_path, have=having([packed]))
    finish(survey(JOBS[:1], Keeping(tmp_path)), one_by_one)
    (result,) = survey(JOBS[:1], keeping).ended.values()
    assert result.path == keeping.path(JOBS[0])


def test_a_run_whose_folder_is_damaged_or_unfinished_is_taken_from_the_pack(packed, tmp_path):
    keeping = Keeping(tmp_path, have=having([packed]))
    keeping.path(JOBS[0]).mkdir(parents=True)
    (keeping.path(JOBS[0]) / "config.json").write_text("{")
    finish(survey(JOBS[1:2], keeping), refuses)
    assert survey(JOBS[:2], keeping).missing == ()


def test_it_is_said_how_many_are_taken_from_where(packed, tmp_path):
    keeping = Keeping(tmp_path, have=having([packed]))
    assert estimate(survey([*JOBS, WILD], keeping), 1, "here").endswith(
        f"; 3 from {packed} are taken as packed"
    )
    assert estimate(survey(JOBS[:1], keeping), 1, "here") == (
        f"all 1 runs have ended; 1 from {packed} is taken as packed"
    )
    assert taken_words(Have(), [], JOBS) == ""


def test_other_versions_and_processors_are_said_where_runs_are_mixed(packed, monkeypatch):
    have, ids = having([packed]), [job.id for job in JOBS[:2]]
    here = {**module.this_machine(("jax",)), "cpu": "other"}
    monkeypatch.setattr(module, "this_machine", lambda libraries: here)
    said = taken_words(have, ids, JOBS[2:])
    assert "2 trained under other conditions, so bytes may differ: cpu " in said
    assert said.endswith("-> other)")
    assert "conditions" not in taken_words(have, ids, [])


def test_shipped_results_finish_their_plans(tmp_path):
    """Of PPO and of tokens; a warm-up, which no pack has, is trained where a run needs it."""
    paper, tokens = ROOT / "results" / "paper", ROOT / "results" / "tokens"
    keeping = Keeping(tmp_path, have=having([paper, tokens]))
    for name, pack, count in (("paper", paper, 140), ("scratchpad", tokens, 50)):
        found = survey(read_plan(name).configs, keeping)
        assert found.missing == ()
        assert estimate(found, 2, "here").endswith(f"{count} from {pack} are taken as packed")
    longer = read_plan("scratchpad").only(seeds=1).configs[:1]
    changed = dataclasses.replace(longer[0], iterations=longer[0].iterations + 1)
    missing = survey([*longer, changed], keeping).missing
    assert missing == (changed.warmup, changed)


def test_what_is_no_pack_is_a_line(tmp_path, packed):
    for path, words in ((tmp_path / "nowhere", "is no packed study"), (tmp_path, "klip pack")):
        with pytest.raises(KlipError, match=words) as caught:
            having([path])
        assert str(path) in str(caught.value)
    broken = shutil.copytree(packed, tmp_path / "broken")
    (broken / "CartPole-v1.parquet").write_bytes(b"x")
    with pytest.raises(KlipError, match="broken holds a damaged study") as caught:
        klip.run(Plan("mine", "", tuple(JOBS)), out=tmp_path / "runs", have=[broken])
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_process_that_trains_is_not_told_of_packs(packed, tmp_path):
    keeping = Keeping(tmp_path, 3.0, True, have=having([packed]))
    assert Keeping.read(keeping.text) == Keeping(tmp_path, 3.0, True)
