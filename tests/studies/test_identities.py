"""The three forms of PPO-Clip, compared run by run: what is the same, and where it is not."""

import shutil

import numpy as np
import pytest

from klip.runs import RunFolder, read_run
from klip.studies.identities import also_identical, comparisons
from klip.studies.reading import read_study
from tests.studies.folders import FORMS, config, make_run, make_study, small


@pytest.fixture
def runs(tmp_path):
    return make_study(tmp_path, shapes=(*FORMS, "spo(eps=0.2)"), seeds=3, **small())


def found(runs):
    return [(c.seed, c.verdict) for c in comparisons(read_study(runs))]


def test_all_identical(runs):
    assert found(runs) == [(0, "identical"), (1, "identical"), (2, "identical")]
    assert also_identical(read_study(runs)) == []


def resaved(path, change):
    """The run's folder with one thing changed, and every checksum right."""
    record = read_run(path)
    arrays = {name: array.copy() for name, array in record.arrays.items()}
    rows = [dict(row) for row in record.rows]
    change(arrays, rows)
    shutil.rmtree(path)
    folder = RunFolder(path, record.config)
    for row in rows:
        folder.append(row)
    folder.save(record.iteration, arrays, record.status)
    folder.close()


def test_one_bit_of_one_array(runs):
    (path,) = runs.glob("*/per-sample*/seed-1-*")

    def change(arrays, rows):
        arrays["policy/w"][2, 1] = np.nextafter(arrays["policy/w"][2, 1], 9)

    resaved(path, change)
    assert found(runs) == [(0, "identical"), (1, "differs"), (2, "identical")]
    (parted,) = (c for c in comparisons(read_study(runs)) if c.verdict == "differs")
    assert "per-sample has the metrics of clip, but not its parameters" in parted.detail


def test_one_metric_of_one_iteration(runs):
    (path,) = runs.glob("*/clip-phi*/seed-2-*")

    def change(arrays, rows):
        rows[6]["kl"] = float(np.nextafter(rows[6]["kl"], 1))

    resaved(path, change)
    parted = comparisons(read_study(runs))[2]
    assert parted.verdict == "differs"
    assert "clip-phi parts from clip at iteration 7: kl" in parted.detail


def test_another_seeds_training(runs):
    """The arrays and metrics of seed 2 in the folder of seed 0."""
    (path,) = runs.glob("*/per-sample*/seed-0-*")
    (other,) = runs.glob("*/per-sample*/seed-2-*")
    record = read_run(other)

    def change(arrays, rows):
        arrays.update(record.arrays)
        rows[:] = [dict(row) for row in record.rows]

    resaved(path, change)
    parted = comparisons(read_study(runs))[0]
    assert parted.verdict == "differs"
    assert "per-sample parts from clip at iteration 1" in parted.detail


def test_what_is_not_done_is_open(tmp_path):
    make_run(tmp_path, config(shape=FORMS[0], **small()))
    make_run(tmp_path, config(shape=FORMS[1], **small()), 8, "running")
    (c,) = comparisons(read_study(tmp_path))
    assert c.verdict == "open"
    assert c.detail == "per-sample stopped at 8; the metrics of 8 iterations are equal so far"


def test_what_has_parted_before_it_is_done_differs(tmp_path):
    make_run(tmp_path, config(shape=FORMS[0], **small()))
    make_run(tmp_path, config(shape=FORMS[1], **small()), 8, "running", level=50.0)
    (c,) = comparisons(read_study(tmp_path))
    assert c.verdict == "differs"


def test_one_diverged_and_the_other_did_not(tmp_path):
    make_run(tmp_path, config(shape=FORMS[0], **small()))
    make_run(tmp_path, config(shape=FORMS[1], **small()), 8, "diverged", "nan")
    (c,) = comparisons(read_study(tmp_path))
    assert c.verdict == "differs"
    assert "diverged" in c.detail


def test_only_equal_bands_and_settings_are_compared(tmp_path):
    make_run(tmp_path, config(shape="clip(eps=0.2)", **small()))
    make_run(tmp_path, config(shape="per-sample(eps=0.3)", **small()))
    make_run(tmp_path, config(shape="per-sample(eps=0.2)", **small(lr=0.1)))
    make_run(tmp_path, config(shape="per-sample(eps=0.2)", seed=1, **small()))
    assert comparisons(read_study(tmp_path)) == []


def test_nothing_to_hash_is_not_identical(tmp_path):
    for shape in FORMS:
        make_run(tmp_path, config(shape=shape, **small()), 0, "running")
    (c,) = comparisons(read_study(tmp_path))
    assert c.verdict == "open"


def test_other_twins_are_found(tmp_path):
    """Two spellings whose folders hold the same training."""
    source = make_run(tmp_path, config(shape="spo(eps=0.2)", **small()))
    target = make_run(tmp_path, config(shape="cispo(eps=0.2)", **small()))
    record = read_run(source)

    def change(arrays, rows):
        rows[:] = [dict(row) for row in record.rows]

    resaved(target, change)
    assert also_identical(read_study(tmp_path)) == [("CartPole-v1", "cispo(eps=0.2) = spo", 1)]
