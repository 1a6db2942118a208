"""The parts of `benchmarks/campaign.py` and `ray_kills.py` that take seconds."""

import sys
from pathlib import Path

import pytest

from klip.studies import packing

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import campaign
    import damaged_trainers
    import other_files
    import ray_kills
    import records
finally:
    sys.path.remove(str(BENCHMARKS))


def test_files_that_are_no_runs_are_never_believed():
    outcomes, wrong = other_files.many(250, seed=1)
    assert wrong == []
    assert {"as it was", "not there", "refused in a line"} == set(outcomes)
    assert min(outcomes.values()) > 5


def test_a_reader_that_believes_all_is_found_out(monkeypatch):
    monkeypatch.setattr("klip.studies.packing._read_index", packing.read_json)
    _, wrong = other_files.many(250, seed=1)
    assert wrong


def test_every_kind_of_trainer_goes_on_from_damaged_files():
    outcomes, wrong = damaged_trainers.many(8, seed=1)
    assert wrong == []
    assert {name.partition(":")[0] for name in outcomes} == set(damaged_trainers.KINDS)


def test_a_record_goes_on_with_the_same_code_alone(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    record = records.Record(path)
    records.add(record.part("strikes", "replay"), {"worker": 2, "failures": ["x"]})
    record.keep()
    again = records.Record(path).part("strikes", "replay")
    records.add(again, {"worker": 1, "parent": 1, "failures": []})
    assert again == {"worker": 3, "parent": 1, "failures": ["x"]}
    assert records.Record(path, seed=1).part("strikes") == {}
    monkeypatch.setattr(records, "code", lambda: "other")
    assert records.Record(path).part("strikes") == {}


def test_damages_go_on_where_they_were(tmp_path, monkeypatch):
    """A record that was kept after 500 of them is not begun again."""
    done = []

    def do(count, seed, first):
        if done and first == 500 and len(done) == 1:
            done.append("stopped")
            raise KeyboardInterrupt
        done.append((count, first))
        return campaign.Counter({"as it was": count}), []

    monkeypatch.setitem(campaign.DAMAGES, "runs", (do, 1.0))
    path = tmp_path / "record.json"
    with pytest.raises(KeyboardInterrupt):
        campaign.damage_kind("runs", 1200, records.Record(path))
    assert campaign.damage_kind("runs", 1200, records.Record(path)) == 0
    assert done == [(500, 0), "stopped", (500, 500), (200, 1000)]
    assert records.Record(path).part("damages", "runs")["outcomes"] == {"as it was": 1200}


def test_what_fails_is_kept_and_the_next_round_follows(tmp_path, monkeypatch):
    rounds = iter([RuntimeError("it hangs"), {"worker": 3, "runs": 4, "runs that differ": 0}])

    def struck(*_):
        found = next(rounds)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(campaign, "struck", struck)
    record = records.Record(tmp_path / "record.json")
    assert campaign.strike_kind("replay", 3, record) == 1
    found = records.Record(tmp_path / "record.json").part("strikes", "replay")
    assert (found["strikes"], found["tries"], found["runs"]) == (3, 2, 4)
    assert "it hangs" in found["failures"][0]


def test_iterations_are_counted(monkeypatch):
    monkeypatch.setattr(ray_kills, "ITERATIONS", 3)
    calm = "trained a 1\nsaved a 1\ntrained a 2\nsaved a 2\ntrained a 3\nsaved a 3\n"
    assert set(ray_kills.counts(calm, 1).values()) == {3, 0}
    assert ray_kills.counts(calm, 2)["missing"] == 3
    lost = "trained a 1\nsaved a 1\ntrained a 2\ntrained a 2\nsaved a 2\ntrained a 3\n"
    found = ray_kills.counts(lost, 1)
    assert found["trained again, lost with a process before it was saved"] == 1
    assert found["trained again though it was saved"] == 0
    assert ray_kills.counts(calm + calm, 1)["trained again though it was saved"] == 3


def test_every_plan_of_the_campaign_can_be_read(tmp_path):
    from klip.engine.plan import read_plan

    for name, text in campaign.KINDS.items():
        (tmp_path / "plan.toml").write_text(text(0))
        assert read_plan(tmp_path / "plan.toml").configs, name
