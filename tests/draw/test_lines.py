"""Which shapes' lines are shown: the reference, everybody's own, and as many as one can tell."""

import numpy as np

from klip.draw.lines import SHOWN, line, main_labels, of_seeds, shown_at_first
from klip.draw.palette import PLAIN
from klip.studies.learning import SeedBand
from klip.studies.reading import read_study
from tests.studies.folders import make_study, small

CATALOGUE = ["clip(eps=0.2)", "per-sample(eps=0.2)", "kl(b=1.0)", "sapo", "spo(eps=0.2)", "is"]


def test_shapes_of_ones_own_are_shown_beside_six_of_the_catalogue(tmp_path):
    own = ["z.py:Mine(a=1.0)", "z.py:Mine(a=2.0)", "z.py:Other()"]
    study = read_study(make_study(tmp_path, shapes=[*CATALOGUE, *own], seeds=1, **small()))
    assert set(own) <= shown_at_first(study)
    assert shown_at_first(study) == set(study.labels)
    assert study.labels[:4] == ("clip", *own)


def test_however_many_there_are_the_reference_and_ones_own_are_shown(tmp_path):
    many = [f"kl(b={k}.0)" for k in range(2, 30)]
    own = [f"z.py:Mine(a={k}.0)" for k in range(SHOWN + 3)]
    study = read_study(
        make_study(tmp_path, shapes=["clip(eps=0.2)", *many, *own], seeds=1, **small())
    )
    assert shown_at_first(study) >= {"clip", *own}
    assert len(shown_at_first(study)) < len(study.labels)


def test_a_sweep_on_one_task_is_not_in_the_picture_of_all(tmp_path):
    shapes = ["clip(eps=0.2)", "kl(b=1.0)"]
    make_study(tmp_path, ["CartPole-v1", "Hopper-v4"], shapes, 1, **small())
    make_study(tmp_path, ["CartPole-v1"], ["kl(b=0.1)", "spo(eps=0.2)"], 1, **small())
    assert shown_at_first(read_study(tmp_path)) == {"clip", "kl", "spo"}
    alone = read_study(tmp_path / "CartPole-v1")
    assert "kl(b=0.1)" in shown_at_first(alone)
    assert main_labels(alone) == set(alone.labels)


def test_a_single_seed_has_no_band_and_no_band_goes_below_its_floor():
    x, y = np.arange(3.0), np.ones(3)
    one = line("a", PLAIN, SeedBand(x, y, 0 * y, y))
    two = line("a", PLAIN, SeedBand(x, y, 5 * y, 2 * y), floor=0.0)
    assert (one.low, one.about, two.low.min(), two.about) == (None, "1 seed", 0.0, of_seeds(2))
