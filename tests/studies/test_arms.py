"""Arms of a token experiment: what is said of them follows from the runs, packed or not."""

import json
import shutil

import numpy as np
import pytest

from klip.errors import KlipError
from klip.studies.arms import (
    Arm,
    apart,
    arms_of,
    final,
    find_arms,
    is_tokens,
    mean_over_rows,
    paired,
    records,
    start,
)
from klip.studies.comparing import holm
from klip.studies.packing import pack
from klip.studies.reading import read_study
from klip.studies.study import Run, Study
from tests.studies.folders import config, make_run, small
from tests.studies.token_folders import SAMPLES, make_experiment, make_token_run, token_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return make_experiment(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def packed(trained, tmp_path):
    pack(read_study(trained), tmp_path / "packed")
    return tmp_path / "packed"


def fake(name, finals, starts=0.5, status="done", place=0):
    """An arm whose runs ended with these accuracies."""
    runs = [
        Run(
            name, f"{name} {seed}",
            {"seed": seed, "task": "addition", "shape": "clip", "arm": name, "group": "g",
             "place": place},
            status, "", (), (), (), "",
            {"held_out": np.array([value]), "start_held_out": np.array([starts]),
             "greedy": np.array([value]), "zeroed": np.array([0.1]), "step": np.array([1.0])},
        )
        for seed, value in enumerate(finals)
    ]  # fmt: skip
    return Arm(name, "g", "clip", place, "", tuple(runs))


def test_token_runs_are_known_by_their_configs(trained, tmp_path):
    assert is_tokens(read_study(trained))
    make_run(tmp_path, config(**small()))
    assert not is_tokens(read_study(tmp_path))
    assert not is_tokens(Study(()))
    make_token_run(tmp_path, token_config("g", "a", "clip"))
    with pytest.raises(KlipError, match="runs of one kind"):
        is_tokens(read_study(tmp_path))


def test_what_runs_begin_with_is_no_run_of_the_study(trained, tmp_path, monkeypatch):
    """A warm-up has no shape."""
    from klip.studies import reading

    read = reading.read_run

    def without_shape(path):
        record = read(path)
        if record.config["seed"] == 1:
            del record.config["shape"]
        return record

    monkeypatch.setattr(reading, "read_run", without_shape)
    assert {run.seed for run in read_study(trained).runs} == {0}


def test_a_config_needs_no_fields_of_ppo(trained):
    run = read_study(trained).runs[0]
    assert not {"steps", "envs", "rollout"} & run.config.keys()
    assert run.iterations == 6
    assert find_arms(Study((run,))).groups[0].rows[0].final.n == 1


def test_arms_stand_in_the_order_of_the_plan(trained):
    position, age = find_arms(read_study(trained)).groups
    assert [arm.name for arm in position.arms] == ["plain clip", "sharp <answer>", "wide clip"]
    assert [arm.name for arm in age.arms] == ["constant epsilon", "hard drop"]
    assert all([run.seed for run in arm.runs] == [0, 1] for arm in position.arms)
    assert [(pair.arm.name, pair.other.name) for pair in position.matched] == [
        ("sharp <answer>", "wide clip")
    ]
    assert position.age_shares == ()
    assert age.age_shares == pytest.approx((0.7, 0.2, 0.1, 0.0))


def test_final_accuracies_are_compared_by_welchs_interval_and_those_over_training_in_pairs():
    x, y = fake("x", [0.6, 0.7, 0.9]), fake("y", [0.5, 0.6, 0.7])
    unpaired, by_seed = apart(x, y), paired(x, y, final)
    assert unpaired.estimate == pytest.approx(0.4 / 3) == by_seed.estimate
    assert (unpaired.method, unpaired.n, unpaired.against) == ("Welch t", 3, 3)
    assert (by_seed.method, by_seed.n, by_seed.against) == ("Student t", 3, None)
    assert by_seed.high - by_seed.low < unpaired.high - unpaired.low  # these seeds are alike


def test_claims_are_corrected_for_every_arm_and_pair(trained):
    found = find_arms(read_study(trained))
    rows = [row.difference for group in found.groups for row in group.rows]
    pairs = [pair.final for group in found.groups for pair in group.matched]
    tested = [e for e in rows + pairs if e is not None and e.p is not None]
    assert found.comparisons == len(tested) > 1
    assert {e.family for e in tested} == {len(tested)}
    corrected = holm(np.array([e.p for e in tested]))
    assert [e.p_holm for e in tested] == corrected.tolist()


def test_a_run_below_half_of_its_warm_up_has_collapsed():
    assert fake("x", [0.24, 0.26, 0.9]).collapsed == 1
    assert fake("x", [0.9], status="diverged").collapsed == 1


def test_finals_are_those_of_the_last_row(trained):
    for run in arms_of(read_study(trained))[0].runs:
        lines = (trained / run.path / "metrics.jsonl").read_text().splitlines()
        told = [json.loads(line) for line in lines]
        assert (final(run), start(run)) == (told[-1]["held_out"], told[0]["start_held_out"])


def test_means_are_over_the_rows_that_have_a_value():
    values = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])
    np.testing.assert_array_equal(mean_over_rows(values), [2.0, 5.0, np.nan])


def test_a_pack_says_the_same(trained, packed, tmp_path):
    study, again = read_study(trained), read_study(packed)
    assert records(find_arms(again)) == records(find_arms(study))
    shown = [run for run in again.runs if run.samples]
    assert {run.seed for run in shown} == {0}
    assert len(shown) == 5
    assert shown[0].samples == SAMPLES
    pack(again, tmp_path / "twice")
    for path in packed.iterdir():
        assert (tmp_path / "twice" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("name", ["samples.json", "addition.parquet", "runs.json"])
def test_packed_files_that_are_damaged_or_missing_are_named(packed, name):
    data = (packed / name).read_bytes()
    (packed / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(KlipError, match="damaged"):
        read_study(packed)
    if name != "runs.json":  # without it a folder is no pack
        (packed / name).unlink()
        with pytest.raises(KlipError, match=name.partition(".")[0]):
            read_study(packed)


def test_changed_samples_are_found_out(packed):
    path = packed / "samples.json"
    about = json.loads(path.read_text())
    about["samples"] = about["samples"].replace('"age":0', '"age":1', 1)
    path.write_text(json.dumps(about))
    with pytest.raises(KlipError, match="checksum"):
        read_study(packed)


def test_samples_that_cannot_be_read_are_said(trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "copy")
    made = token_config("position", "odd", "clip(eps=0.1)", place=9)
    path = make_token_run(copy, made)
    from klip.runs import RunFolder

    folder = RunFolder(path, made)
    folder.save(6, {"samples": np.frombuffer(b"[{}]", np.uint8)}, "done")
    folder.close()
    study = read_study(copy)
    assert len(study.runs) == 10
    assert any("samples cannot be read" in line for line in study.trouble)
