"""Old samples in a study: who has them, by age, and in words."""

import numpy as np
import pytest

from klip.studies.ages import by_age, how_old, old_variants
from klip.studies.packing import pack, unpack
from klip.studies.reading import columns, read_study
from tests.studies.folders import config, make_run, same, small


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A run with a replay of 3, its ages filling up, and one of PPO as it is."""
    out = tmp_path_factory.mktemp("runs")
    make_run(out, config(**small()))
    for seed in range(2):
        made = config(seed=seed, **small(replay=3))
        make_run(out, made)
    study = read_study(out)
    for run in study.runs:
        if run.settings["replay"] == 3:
            lists = [[0.1 * k, None if k < 1 else 0.2, None if k < 2 else 0.3, None]
                     for k in range(run.rows)]  # fmt: skip
            run.metrics.update(columns([{"age.zeroed": row, "age.samples": row} for row in lists]))
    return study


def test_who_has_old_samples(study):
    (found,) = old_variants(study, "CartPole-v1")
    assert found.label == "clip, replay 3"


def test_each_age_from_when_it_is_there(study):
    (found,) = old_variants(study, "CartPole-v1")
    bands = by_age(found, "zeroed")
    assert list(bands) == [0, 1, 2]
    assert [len(band.steps) for band in bands.values()] == [20, 19, 18]
    np.testing.assert_allclose(bands[2].mean, 0.3)
    assert by_age(found, "kl") == {}


def test_lists_survive_packing(study, tmp_path):
    pack(study, tmp_path / "packed")
    assert same(unpack(tmp_path / "packed"), study)


def test_words():
    usual = {"lag": 0, "replay": 1, "ratio": "behaviour", "trace": "corrected", "envs": 1,
             "rollout": 2048, "minibatch": 64, "epochs": 10, "gradient_steps": "equal",
             "correction_cap": 5.0}  # fmt: skip
    assert how_old(usual) == ""
    equal = how_old({**usual, "replay": 4})
    assert (
        "collects 2,048 samples and learns from 8,192, in 320 gradient steps, as many as" in equal
    )
    grow = how_old({**usual, "replay": 4, "gradient_steps": "grow"})
    assert "1,280 gradient steps, 4 times as many as without replay" in grow
    assert "1 iteration ago acts" in how_old({**usual, "lag": 1})
    assert "at most 5" in how_old({**usual, "lag": 1, "ratio": "decoupled"})
    assert "uncorrected" in how_old({**usual, "lag": 1, "ratio": "proximal"})
    assert "as they were" in how_old({**usual, "lag": 1, "trace": "recorded"})
    assert "weights by age: geppo" in how_old({**usual, "replay": 2, "age_weights": "geppo"})
