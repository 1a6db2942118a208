"""Figures: what they draw, and that the same study gives the same bytes."""

import numpy as np
import pytest

from klip.draw.figures import (
    FORMATS,
    beta,
    clip_runs,
    identity,
    knob_sweeps,
    learning_curves,
    partition,
    per_sample_runs,
    write_figures,
)
from klip.draw.palette import LIGHT, colour, dash, slots
from klip.studies.learning import band
from klip.studies.packing import pack
from klip.studies.study import Study, read_study
from tests.studies.folders import FORMS, config, make_run, make_study, small


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    make_study(out, ["CartPole-v1", "Hopper-v4"], (*FORMS, "spo(eps=0.2)"), 2, **small())
    make_study(out, ["CartPole-v1"], ["clip(eps=0.1)", "clip(eps=0.3)"], 2, **small())
    make_run(out, config(shape="my.py:Mine", **small()))
    return read_study(out)


def test_the_first_variants_have_a_line(study):
    axes, hopper = learning_curves(study).axes
    assert [ax.get_title() for ax in (axes, hopper)] == ["CartPole-v1", "Hopper-v4"]
    labels = [line.get_label() for line in axes.get_lines()]
    assert labels == ["clip", "per-sample", "clip-phi", "my.py:Mine", "spo"]
    (legend,) = learning_curves(study).legends
    assert {text.get_text() for text in legend.get_texts()} == set(labels)
    lines = dict(zip(labels, axes.get_lines(), strict=True))
    expected = band(study.of("CartPole-v1")[0].runs, "return_mean")
    np.testing.assert_array_equal(lines["clip"].get_ydata(), expected.mean)
    assert (lines["clip"].get_linestyle(), lines["per-sample"].get_linestyle()) == ("-", "--")
    assert lines["clip-phi"].get_linestyle() == "--"


def test_a_sweep_on_one_task_is_not_in_the_picture_of_all(tmp_path):
    shapes = ["clip(eps=0.2)", "kl(b=1.0)"]
    make_study(tmp_path, ["CartPole-v1", "Hopper-v4"], shapes, 1, **small())
    make_study(tmp_path, ["CartPole-v1"], ["kl(b=0.1)", "spo(eps=0.2)"], 1, **small())
    labels = [
        line.get_label() for line in learning_curves(read_study(tmp_path)).axes[0].get_lines()
    ]
    assert sorted(labels) == ["clip", "kl", "spo"]
    alone = tmp_path / "CartPole-v1"
    labels = [line.get_label() for line in learning_curves(read_study(alone)).axes[0].get_lines()]
    assert "kl(b=0.1)" in labels


def test_published_curves_lie_below_the_papers_config_only(tmp_path):
    make_run(tmp_path, config(shape="clip(eps=0.2)"))
    make_run(tmp_path, config(task="Hopper-v4", **small()))
    axes, hopper = learning_curves(read_study(tmp_path)).axes
    assert len(axes.get_lines()) == 2
    assert len(hopper.get_lines()) == 1


def test_the_identity_shows_its_forms_alone(study):
    axes = identity(study).axes[0]
    labels = {line.get_label() for line in axes.get_lines()}
    assert labels == {"clip", "per-sample", "clip-phi"}


def test_partition_and_coefficient_are_of_the_papers_runs(study):
    assert clip_runs(study, "CartPole-v1").shape == "clip(eps=0.2)"
    assert per_sample_runs(study, "CartPole-v1").shape == "per-sample(eps=0.2)"
    kill, passing = partition(study).axes[0].get_lines()
    runs = clip_runs(study, "CartPole-v1").runs
    np.testing.assert_array_equal(kill.get_ydata(), band(runs, "kill").mean)
    np.testing.assert_array_equal(passing.get_ydata(), band(runs, "pass").mean)
    (median,) = beta(study).axes[0].get_lines()
    runs = per_sample_runs(study, "CartPole-v1").runs
    np.testing.assert_array_equal(median.get_ydata(), band(runs, "beta").mean[:, 4])


def test_sweeps_have_a_panel(study):
    (axes,) = knob_sweeps(study).axes
    assert axes.get_xlabel() == "eps"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.1", "0.2", "0.3"]


def test_nothing_to_draw():
    empty = Study(())
    for make in (learning_curves, identity, partition, beta, knob_sweeps):
        assert make(empty) is None


def test_one_colour_a_shape(study):
    found = slots(study)
    assert len(set(found.values())) == len(found)
    assert [found[name] for name in ("clip", "per-sample")] == [0, 1]
    looks = {(colour(i), dash(i)) for i in range(4 * len(LIGHT))}
    assert len(looks) == 4 * len(LIGHT)


def test_the_same_bytes_from_folders_and_from_a_pack(tmp_path):
    out = make_study(tmp_path / "runs", shapes=FORMS[:2], seeds=2, **small())
    make_run(out, config(shape="clip(eps=0.3)", **small()))
    study = read_study(out)
    pack(study, tmp_path / "packed")
    first = write_figures(study, tmp_path / "a")
    second = write_figures(read_study(tmp_path / "packed"), tmp_path / "b")
    assert [p.name for p in first] == [p.name for p in second]
    stems = {p.stem for p in first}
    assert stems == {"learning-curves", "identity", "knob-sweeps", "partition", "beta", "shapes"}
    assert len(first) == len(stems) * len(FORMATS)
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
